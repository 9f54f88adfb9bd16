//! Every type through the client of arrow-flight: read, sent, as parameters; and all that it asks about tables.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::Schema;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::{FlightError, Result};
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys,
    CommandGetPrimaryKeys, CommandGetTables, CommandGetXdbcTypeInfo, CommandStatementIngest,
    SqlInfo,
};
use arrow_flight::{FlightDescriptor, FlightInfo, IpcMessage};
use futures::{TryStreamExt, stream};
use partgrid::grid::PartitionGrid;
use partgrid::serve::Server;
use tonic::Code;
use tonic::transport::Channel;

use super::clients::flight_sql;
use super::{options, runtime};
use crate::support::{column_of_every_type, flat_columns, nested_columns};

type Client = FlightSqlServiceClient<Channel>;

fn of(name: &str, column: &ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([(name, Arc::clone(column), true)]).unwrap()
}

/// A server with a grid for each type: a tile of all rows, and one without any.
async fn serving() -> (Server, Client) {
    let mut options = options();
    for (name, column) in column_of_every_type() {
        let batch = of(name, &column);
        let parts = [batch.clone(), batch.slice(0, 0)];
        let grid = PartitionGrid::try_from_batches(batch.schema(), &parts).unwrap();
        options = options.with_grid(format!("of_{name}"), Arc::new(grid));
    }
    let server = Server::start(&options).await.unwrap();
    let client = flight_sql(&server).await;
    (server, client)
}

/// The rows of all endpoints.
async fn rows(client: &mut Client, info: FlightInfo) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    for endpoint in info.endpoint {
        let rows = client.do_get(endpoint.ticket.unwrap()).await?;
        batches.extend(rows.try_collect::<Vec<_>>().await?);
    }
    Ok(batches)
}

/// The tiles of a grid, one endpoint for each row band.
async fn tiles(client: &mut Client, name: &str) -> Vec<RecordBatch> {
    let path = FlightDescriptor::new_path(vec![name.to_owned()]);
    let info = client.inner_mut().get_flight_info(path).await.unwrap();
    rows(client, info.into_inner()).await.unwrap()
}

/// A value as an array of one row; of a union that of the child: what the others have there is not shown.
fn values(batches: &[RecordBatch]) -> Vec<ArrayRef> {
    let cell = |column: &ArrayRef, row| match column.as_union_opt() {
        Some(union) => union.value(row),
        None => column.slice(row, 1),
    };
    let cells = batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(move |row| cell(batch.column(0), row)));
    cells.collect()
}

fn check_same(found: &[RecordBatch], expected: &[RecordBatch], what: &str) {
    for batch in found {
        assert_eq!(batch.schema_ref(), expected[0].schema_ref(), "{what}");
    }
    assert_eq!(values(found), values(expected), "{what}");
}

#[test]
fn every_type_is_the_same_in_statements_prepared_ones_and_tiles() {
    runtime().block_on(async {
        let (_server, mut client) = serving().await;
        for (name, column) in column_of_every_type() {
            let expected = [of(name, &column)];
            let text = format!("SELECT * FROM of_{name}");
            let info = client.execute(text.clone(), None).await.unwrap();
            let schema = info.clone().try_decode_schema().unwrap();
            assert_eq!(&schema, expected[0].schema_ref().as_ref(), "{name}");
            let found = rows(&mut client, info).await.unwrap();
            check_same(&found, &expected, name);

            let mut prepared = client.prepare(text, None).await.unwrap();
            let schema = prepared.dataset_schema().unwrap();
            assert_eq!(schema, expected[0].schema_ref().as_ref(), "{name}");
            let info = prepared.execute().await.unwrap();
            let found = rows(&mut client, info).await.unwrap();
            check_same(&found, &expected, name);
            prepared.close().await.unwrap();

            let found = tiles(&mut client, &format!("of_{name}")).await;
            check_same(&found, &expected, name);
        }
    });
}

/// What the client makes of batches before it sends them: it takes dictionaries apart, and large lists are lists.
async fn as_sent(batches: &[RecordBatch]) -> Vec<RecordBatch> {
    let batches = batches.to_vec();
    let batches = stream::iter(batches.into_iter().map(Ok));
    let sent = FlightDataEncoderBuilder::new().build(batches);
    let sent = FlightRecordBatchStream::new_from_flight_data(sent);
    sent.try_collect().await.unwrap()
}

#[test]
fn every_type_that_the_client_ingests_is_there_as_it_was_sent() {
    runtime().block_on(async {
        let (_server, mut client) = serving().await;
        for (name, column) in column_of_every_type() {
            let batch = of(name, &column);
            let batches = [batch.clone(), batch.slice(2, 4), batch.slice(3, 0)];
            let table = format!("put_{name}");
            let command = CommandStatementIngest {
                table: table.clone(),
                ..CommandStatementIngest::default()
            };
            let sent = stream::iter(batches.clone().map(Ok));
            let count = client.execute_ingest(command, sent).await.unwrap();
            assert_eq!(count, 11, "{name}");
            let found = tiles(&mut client, &table).await;
            check_same(&found, &as_sent(&batches).await, name);
        }
    });
}

/// Each row of a column as the value of a parameter.
async fn by_parameters(client: &mut Client, column: &ArrayRef) -> Result<Vec<RecordBatch>> {
    let mut prepared = client.prepare("SELECT $1 AS v".to_owned(), None).await?;
    prepared.set_parameters(of("1", column))?;
    let info = prepared.execute().await?;
    let found = rows(client, info).await;
    prepared.close().await?;
    found
}

#[test]
fn values_of_every_flat_type_are_parameters() {
    runtime().block_on(async {
        let (_server, mut client) = serving().await;
        for (name, column) in flat_columns() {
            let found = by_parameters(&mut client, &column).await;
            let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
            let expected = [of("v", &column)];
            assert_eq!(values(&found), values(&expected), "{name}");
        }
        for (name, column) in nested_columns() {
            match by_parameters(&mut client, &column).await {
                Ok(found) => assert_eq!(values(&found).len(), 7, "{name}"),
                Err(FlightError::Tonic(status)) => {
                    let refused = [Code::InvalidArgument, Code::Unimplemented];
                    assert!(refused.contains(&status.code()), "{name}: {status}");
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
    });
}

fn texts(batches: &[RecordBatch], column: usize) -> Vec<String> {
    let each = batches.iter().flat_map(|batch| {
        let column = batch.column(column).as_string::<i32>();
        column.iter().map(|text| text.unwrap_or("").to_owned())
    });
    each.collect()
}

#[test]
fn the_client_learns_what_there_is() {
    runtime().block_on(async {
        let (_server, mut client) = serving().await;
        let info = client.get_catalogs().await.unwrap();
        let found = rows(&mut client, info).await.unwrap();
        assert_eq!(texts(&found, 0), ["partgrid"]);
        let schemas = CommandGetDbSchemas::default();
        let info = client.get_db_schemas(schemas).await.unwrap();
        let found = rows(&mut client, info).await.unwrap();
        assert_eq!(texts(&found, 1), ["public"]);
        let info = client.get_table_types().await.unwrap();
        let mut kinds = texts(&rows(&mut client, info).await.unwrap(), 0);
        kinds.sort();
        assert_eq!(kinds, ["TABLE", "VIEW"]);
        let name = vec![SqlInfo::FlightSqlServerName];
        let info = client.get_sql_info(name).await.unwrap();
        let found = rows(&mut client, info).await.unwrap();
        assert_eq!(values(&found).len(), 1);
        let kinds = CommandGetXdbcTypeInfo::default();
        let info = client.get_xdbc_type_info(kinds).await.unwrap();
        let found = rows(&mut client, info).await.unwrap();
        assert!(values(&found).len() > 10);
        let refused = client.begin_transaction().await.unwrap_err();
        let FlightError::Tonic(refused) = refused else {
            panic!("{refused}");
        };
        assert_eq!(refused.code(), Code::Unimplemented, "{refused}");
    });
}

#[test]
fn the_client_learns_the_columns_of_every_type_and_that_there_are_no_keys() {
    runtime().block_on(async {
        let (_server, mut client) = serving().await;
        for (name, column) in column_of_every_type() {
            let tables = CommandGetTables {
                table_name_filter_pattern: Some(format!("of_{name}")),
                include_schema: true,
                ..CommandGetTables::default()
            };
            let info = client.get_tables(tables).await.unwrap();
            let found = rows(&mut client, info).await.unwrap();
            // In patterns, `_` stands for any letter.
            let names = texts(&found, 2);
            let place = names
                .iter()
                .position(|known| *known == format!("of_{name}"));
            let schemas = found[0].column(4).as_binary::<i32>();
            let bytes = schemas.value(place.unwrap()).to_vec();
            let schema = Schema::try_from(IpcMessage(bytes.into())).unwrap();
            assert_eq!(&schema, of(name, &column).schema_ref().as_ref());
        }
        let table = || "of_int32".to_owned();
        let primary = CommandGetPrimaryKeys {
            table: table(),
            ..CommandGetPrimaryKeys::default()
        };
        let exported = CommandGetExportedKeys {
            table: table(),
            ..CommandGetExportedKeys::default()
        };
        let imported = CommandGetImportedKeys {
            table: table(),
            ..CommandGetImportedKeys::default()
        };
        let crossed = CommandGetCrossReference {
            pk_table: table(),
            fk_table: table(),
            ..CommandGetCrossReference::default()
        };
        let infos = [
            client.get_primary_keys(primary).await,
            client.get_exported_keys(exported).await,
            client.get_imported_keys(imported).await,
            client.get_cross_reference(crossed).await,
        ];
        for info in infos {
            let found = rows(&mut client, info.unwrap()).await.unwrap();
            assert!(values(&found).is_empty());
        }
    });
}
