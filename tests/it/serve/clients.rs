//! What honest clients get.

use std::time::Duration;

use arrow_flight::FlightDescriptor;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    CommandGetTables, CommandStatementIngest, CommandStatementQuery, ProstMessageExt,
};
use futures::{TryStreamExt, stream};
use partgrid::client::{Client, ClientOptions, IfExists};
use partgrid::error::ErrorKind;
use partgrid::serve::{Scope, Server, Tokens, new_token};
use prost::Message;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;

use super::{numbers, options, runtime};

pub(super) async fn flight_sql(server: &Server) -> FlightSqlServiceClient<Channel> {
    let address = format!("http://{}", server.address());
    let channel = Channel::from_shared(address).unwrap().connect().await;
    FlightSqlServiceClient::new(channel.unwrap())
}

#[test]
fn the_client_of_arrow_flight_queries_prepares_and_lists() {
    runtime().block_on(async {
        let server = Server::start(&options()).await.unwrap();
        let mut client = flight_sql(&server).await;
        let info = client.execute("SELECT sum(n) AS s FROM numbers".to_owned(), None);
        let ticket = info.await.unwrap().endpoint[0].ticket.clone().unwrap();
        let rows: Vec<_> = client
            .do_get(ticket)
            .await
            .unwrap()
            .try_collect()
            .await
            .unwrap();
        let sum = rows[0]
            .column(0)
            .as_any()
            .downcast_ref::<arrow::array::Int64Array>();
        assert_eq!(sum.unwrap().value(0), (0..30).sum::<i64>());

        let text = "SELECT name FROM numbers WHERE n = $1".to_owned();
        let mut prepared = client.prepare(text, None).await.unwrap();
        let schema = prepared.parameter_schema().unwrap();
        assert_eq!(
            schema.field(0).data_type(),
            &arrow::datatypes::DataType::Int64
        );
        let value = arrow::array::Int64Array::from(vec![7]);
        let values =
            arrow::array::RecordBatch::try_from_iter([("1", std::sync::Arc::new(value) as _)]);
        prepared.set_parameters(values.unwrap()).unwrap();
        let info = prepared.execute().await.unwrap();
        let ticket = info.endpoint[0].ticket.clone().unwrap();
        let rows: Vec<_> = client
            .do_get(ticket)
            .await
            .unwrap()
            .try_collect()
            .await
            .unwrap();
        assert_eq!(
            rows.iter()
                .map(arrow::array::RecordBatch::num_rows)
                .sum::<usize>(),
            1
        );

        let tables = CommandGetTables {
            include_schema: true,
            ..CommandGetTables::default()
        };
        let info = client.get_tables(tables).await.unwrap();
        let ticket = info.endpoint[0].ticket.clone().unwrap();
        let rows: Vec<_> = client
            .do_get(ticket)
            .await
            .unwrap()
            .try_collect()
            .await
            .unwrap();
        assert_eq!((rows[0].num_rows(), rows[0].num_columns()), (1, 5));
        server.shutdown(Duration::from_secs(5)).await;
    });
}

/// A client that takes messages packed with Zstandard, and perhaps sends such.
async fn packing(server: &Server, sends: bool) -> FlightSqlServiceClient<Channel> {
    let service = flight_sql(server).await.into_inner();
    let service = service.accept_compressed(CompressionEncoding::Zstd);
    FlightSqlServiceClient::new_from_inner(match sends {
        true => service.send_compressed(CompressionEncoding::Zstd),
        false => service,
    })
}

#[test]
fn a_client_may_have_messages_packed_and_may_not_send_such() {
    runtime().block_on(async {
        let server = Server::start(&options()).await.unwrap();
        let to = |table: &str| CommandStatementIngest {
            table: table.to_owned(),
            ..CommandStatementIngest::default()
        };
        let rows = || stream::iter([Ok(numbers().open_row_band(1).unwrap())]);
        let mut client = packing(&server, false).await;
        assert_eq!(
            client.execute_ingest(to("packed"), rows()).await.unwrap(),
            10
        );
        let query = CommandStatementQuery {
            query: "SELECT n, name FROM packed ORDER BY n".to_owned(),
            transaction_id: None,
        };
        let descriptor = FlightDescriptor::new_cmd(query.as_any().encode_to_vec());
        let info = client
            .inner_mut()
            .get_flight_info(descriptor)
            .await
            .unwrap();
        assert_eq!(info.metadata().get("grpc-encoding").unwrap(), "zstd");
        let ticket = info.into_inner().endpoint[0].ticket.clone().unwrap();
        let got = client.inner_mut().do_get(ticket.clone()).await.unwrap();
        assert_eq!(got.metadata().get("grpc-encoding").unwrap(), "zstd");
        let batches = client.do_get(ticket).await.unwrap();
        let batches: Vec<_> = batches.try_collect().await.unwrap();
        let found = arrow::compute::concat_batches(batches[0].schema_ref(), &batches).unwrap();
        let expected = numbers().open_row_band(1).unwrap();
        assert_eq!(found.columns(), expected.columns());

        let mut client = packing(&server, true).await;
        let refused = client.execute_ingest(to("refused"), rows()).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("zstd"), "{refused}");
        let refused = client.execute("SELECT 1".to_owned(), None).await;
        assert!(refused.unwrap_err().to_string().contains("zstd"));
    });
}

#[test]
fn a_grid_of_a_server_has_its_cuts_and_its_rows() {
    runtime().block_on(async {
        let server = Server::start(&options()).await.unwrap();
        let client = Client::connect(server.uri(), &ClientOptions::default())
            .await
            .unwrap();
        assert_eq!(client.grids().await.unwrap(), ["numbers"]);
        let grid = client.grid("numbers").await.unwrap();
        assert_eq!(grid.rows().cuts(), [0, 10, 20, 30]);
        let batch = grid
            .tile(&[2, 0])
            .unwrap()
            .data()
            .fetch(&[1])
            .await
            .unwrap();
        assert_eq!((batch.num_rows(), batch.num_columns()), (10, 1));
        let missing = client.grid("nothing").await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn an_upload_is_there_at_once_or_not_at_all() {
    runtime().block_on(async {
        let server = Server::start(&options()).await.unwrap();
        let client = Client::connect(server.uri(), &ClientOptions::default())
            .await
            .unwrap();
        let done = client
            .upload(&numbers(), "copy", IfExists::Fail)
            .await
            .unwrap();
        assert_eq!((done.num_rows, done.is_durable), (30, false));
        let taken = client
            .upload(&numbers(), "copy", IfExists::Fail)
            .await
            .unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::Query, "{taken}");
        client
            .upload(&numbers(), "copy", IfExists::Replace)
            .await
            .unwrap();
        let rows = client
            .sql("SELECT count(*) FROM copy")
            .await
            .unwrap()
            .collect()
            .await;
        assert_eq!(rows.unwrap()[0].num_rows(), 1);
    });
}

#[test]
fn a_token_opens_what_its_scope_and_patterns_say() {
    let (reader, one) = new_token("reader", Scope::Read, &["num*".to_owned()], None).unwrap();
    let (writer, other) = new_token("writer", Scope::Write, &["other".to_owned()], None).unwrap();
    let tokens = Tokens::parse(&format!("{one}\n{other}")).unwrap();
    assert!(!format!("{tokens:?} {one}").contains(&reader));
    runtime().block_on(async {
        let server = Server::start(&options().with_tokens(tokens)).await.unwrap();
        let with = |token: &str| ClientOptions::default().with_token(token);
        let nobody = Client::connect(server.uri(), &ClientOptions::default())
            .await
            .unwrap();
        assert_eq!(
            nobody.grids().await.unwrap_err().kind(),
            ErrorKind::PermissionDenied
        );
        let reader = Client::connect(server.uri(), &with(&reader)).await.unwrap();
        assert_eq!(reader.grids().await.unwrap(), ["numbers"]);
        let refused = reader
            .sql("CREATE TABLE numbers2 AS SELECT 1 AS a")
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
        let writer = Client::connect(server.uri(), &with(&writer)).await.unwrap();
        assert!(writer.grids().await.unwrap().is_empty());
        let hidden = writer.sql("SELECT * FROM numbers").await.unwrap_err();
        assert_eq!(hidden.kind(), ErrorKind::Query, "{hidden}");
        writer
            .sql("CREATE TABLE other AS SELECT 1 AS a")
            .await
            .unwrap();
        let refused = writer
            .sql("CREATE TABLE another AS SELECT 1 AS a")
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
    });
}

#[test]
fn an_address_beyond_loopback_needs_tls_and_tokens() {
    runtime().block_on(async {
        let everywhere = "0.0.0.0:0".parse().unwrap();
        let refused = Server::start(&options().with_address(everywhere))
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        assert!(refused.to_string().contains("TLS and tokens"), "{refused}");
    });
}

#[test]
fn a_query_that_keeps_all_threads_busy_ends_in_time() {
    runtime().block_on(async {
        let limits = partgrid::serve::Limits {
            query_time: Duration::from_millis(500),
            ..partgrid::serve::Limits::default()
        };
        let server = Server::start(&options().with_limits(limits)).await.unwrap();
        let client = Client::connect(server.uri(), &ClientOptions::default()).await.unwrap();
        let text = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b WHERE a.value * b.value = 7";
        let query = client.sql(text).await.unwrap();
        let ended = query.collect().await.unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::ResourcesExhausted, "{ended}");
    });
}

#[test]
fn a_token_goes_to_another_host_over_tls_only() {
    runtime().block_on(async {
        let options = ClientOptions::default().with_token("secret");
        let refused = Client::connect("grpc://partgrid.invalid:1", &options).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
        assert!(refused.hint().unwrap().contains("grpc+tls://"), "{refused}");
        assert!(!refused.to_string().contains("secret"));
        let options = options.with_insecure(true);
        let missing = Client::connect("grpc://partgrid.invalid:1", &options).await;
        let missing = missing.unwrap_err();
        assert!(
            matches!(missing.kind(), ErrorKind::Storage { .. }),
            "{missing}"
        );
    });
}

#[test]
fn bounds_of_nothing_are_refused_by_their_names() {
    runtime().block_on(async {
        let none = ClientOptions::default().with_timeout(Duration::ZERO);
        let refused = Client::connect("grpc://127.0.0.1:1", &none)
            .await
            .unwrap_err();
        assert!(refused.message().starts_with("timeout must"), "{refused}");
        let none = ClientOptions::default().with_memory_limit_bytes(0);
        let refused = Client::connect("grpc://127.0.0.1:1", &none)
            .await
            .unwrap_err();
        assert!(
            refused.message().starts_with("memory_limit must"),
            "{refused}"
        );
    });
}
