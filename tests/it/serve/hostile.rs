//! Messages that nobody honest sends. `PARTGRID_FUZZ_CASES` says how many changed commands are sent: one of a hundred.

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionClosePreparedStatementRequest,
    ActionCreatePreparedStatementRequest, CommandGetDbSchemas, CommandGetPrimaryKeys,
    CommandGetSqlInfo, CommandGetTables, CommandGetXdbcTypeInfo, CommandPreparedStatementQuery,
    CommandStatementIngest, CommandStatementQuery, CommandStatementUpdate, ProstMessageExt,
    TicketStatementQuery,
};
use arrow_flight::{Action, FlightData, FlightDescriptor, SchemaAsIpc, Ticket};
use futures::stream;
use partgrid::serve::Server;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use prost::Message;
use tonic::Code;
use tonic::transport::Channel;

use super::{numbers, options, runtime};
use crate::harm::{Random, cases, harmed};

/// Every byte string is answered with an error that says what kind it is, and the server goes on.
#[test]
fn any_bytes_are_answered_with_a_typed_error() {
    let runtime = runtime();
    let server = runtime.block_on(Server::start(&options())).unwrap();
    let client = runtime.block_on(raw(&server));
    let mut runner = TestRunner::new(Config::with_cases(300));
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    let checked = runner.run(&bytes, |bytes| {
        runtime.block_on(async {
            let mut client = client.clone();
            let ticket = client.do_get(Ticket::new(bytes.clone())).await.unwrap_err();
            let info = client
                .get_flight_info(FlightDescriptor::new_cmd(bytes.clone()))
                .await;
            let action = client
                .do_action(Action::new("CreatePreparedStatement", bytes))
                .await;
            for status in [ticket, info.unwrap_err(), action.unwrap_err()] {
                assert!(
                    matches!(
                        status.code(),
                        Code::InvalidArgument | Code::NotFound | Code::Unimplemented
                    ),
                    "{status}"
                );
            }
        });
        Ok(())
    });
    checked.unwrap();
}

/// Good messages with a few bytes changed: taken when nothing is wrong with them, refused when something is, and never the end of the server.
#[test]
fn changed_messages_of_batches_end_only_their_own_call() {
    let runtime = runtime();
    let server = runtime.block_on(Server::start(&options())).unwrap();
    let client = runtime.block_on(raw(&server));
    let batch = numbers().open_row_band(0).unwrap();
    let good = messages(&batch);
    let changes =
        prop::collection::vec((0usize..2, any::<prop::sample::Index>(), any::<u8>()), 1..6);
    let mut runner = TestRunner::new(Config::with_cases(300));
    let checked = runner.run(&changes, |changes| {
        let mut sent = good.clone();
        for (message, place, byte) in changes {
            let mut header = sent[message].data_header.to_vec();
            let place = place.index(header.len());
            header[place] = byte;
            sent[message].data_header = header.into();
        }
        runtime.block_on(async {
            let answer = client.clone().do_put(stream::iter(sent)).await;
            if let Err(status) = answer {
                assert_ne!(status.code(), Code::Unavailable, "{status}");
            }
            let ticket = client.clone().do_get(Ticket::new("nothing")).await;
            assert_ne!(ticket.unwrap_err().code(), Code::Unavailable);
        });
        Ok(())
    });
    checked.unwrap();
}

/// A good command of each kind.
fn commands() -> Vec<Vec<u8>> {
    let text = || "SELECT n, name FROM numbers WHERE n = 3".to_owned();
    let table = || "numbers".to_owned();
    let query = CommandStatementQuery {
        query: text(),
        transaction_id: None,
    };
    let update = CommandStatementUpdate {
        query: "DROP TABLE nothing".to_owned(),
        transaction_id: None,
    };
    let create = ActionCreatePreparedStatementRequest {
        query: text(),
        transaction_id: None,
    };
    let tables = CommandGetTables {
        catalog: Some("partgrid".to_owned()),
        table_name_filter_pattern: Some("num%".to_owned()),
        table_types: vec!["TABLE".to_owned()],
        include_schema: true,
        ..CommandGetTables::default()
    };
    let keys = CommandGetPrimaryKeys {
        table: table(),
        ..CommandGetPrimaryKeys::default()
    };
    let schemas = CommandGetDbSchemas {
        db_schema_filter_pattern: Some("pub%".to_owned()),
        ..CommandGetDbSchemas::default()
    };
    let ingest = CommandStatementIngest {
        table: table(),
        ..CommandStatementIngest::default()
    };
    let handle = || vec![7; 16].into();
    let close = ActionClosePreparedStatementRequest {
        prepared_statement_handle: handle(),
    };
    let prepared = CommandPreparedStatementQuery {
        prepared_statement_handle: handle(),
    };
    let ticket = TicketStatementQuery {
        statement_handle: handle(),
    };
    let cancel = ActionCancelQueryRequest { info: handle() };
    let kinds = CommandGetXdbcTypeInfo { data_type: Some(4) };
    let infos = CommandGetSqlInfo {
        info: vec![0, 1, 500],
    };
    let all = [
        query.as_any(),
        update.as_any(),
        create.as_any(),
        tables.as_any(),
        keys.as_any(),
        schemas.as_any(),
        ingest.as_any(),
        close.as_any(),
        prepared.as_any(),
        ticket.as_any(),
        cancel.as_any(),
        kinds.as_any(),
        infos.as_any(),
    ];
    all.iter().map(Message::encode_to_vec).collect()
}

const ACTIONS: [&str; 8] = [
    "CreatePreparedStatement",
    "ClosePreparedStatement",
    "CancelQuery",
    "CancelFlightInfo",
    "BeginUpload",
    "CommitUpload",
    "SetSessionOptions",
    "Explain",
];

/// Good commands that were changed, to each method that takes one: done, or refused with a kind of error that is the client's.
#[test]
fn changed_commands_are_done_or_refused_with_a_typed_error() {
    let runtime = runtime();
    let server = runtime.block_on(Server::start(&options())).unwrap();
    let client = runtime.block_on(raw(&server));
    let commands = commands();
    for case in 0..cases(50_000) / 100 {
        let mut random = Random::of(case);
        let (good, other) = (random.one(&commands), random.place(commands.len()));
        let bytes = harmed(&mut random, good, &commands[other]);
        let action = Action::new(*random.one(&ACTIONS), bytes.clone());
        let descriptor = FlightDescriptor::new_cmd(bytes.clone());
        let put = FlightData {
            flight_descriptor: Some(descriptor.clone()),
            ..FlightData::default()
        };
        let mut client = client.clone();
        let answers = runtime.block_on(async {
            [
                client.get_flight_info(descriptor.clone()).await.err(),
                client.get_schema(descriptor).await.err(),
                client.do_get(Ticket::new(bytes)).await.err(),
                client.do_action(action).await.err(),
                client.do_put(stream::iter([put])).await.err(),
            ]
        });
        for status in answers.into_iter().flatten() {
            let ours = [Code::Internal, Code::Unknown, Code::Unavailable];
            assert!(!ours.contains(&status.code()), "case {case}: {status}");
        }
    }
}

async fn raw(server: &Server) -> FlightServiceClient<Channel> {
    let address = format!("http://{}", server.address());
    let channel = Channel::from_shared(address).unwrap().connect().await;
    FlightServiceClient::new(channel.unwrap())
}

fn messages(batch: &arrow::array::RecordBatch) -> Vec<FlightData> {
    let command = CommandStatementIngest {
        table: "sent".to_owned(),
        ..CommandStatementIngest::default()
    };
    let options = arrow::ipc::writer::IpcWriteOptions::default();
    let mut schema: FlightData = SchemaAsIpc::new(&batch.schema(), &options).into();
    schema.flight_descriptor = Some(FlightDescriptor::new_cmd(command.as_any().encode_to_vec()));
    let mut tracker = arrow::ipc::writer::DictionaryTracker::new(false);
    let generator = arrow::ipc::writer::IpcDataGenerator::default();
    let mut context = arrow::ipc::writer::IpcWriteContext::default();
    let (_, encoded) = generator
        .encode(batch, &mut tracker, &options, &mut context)
        .unwrap();
    let rows = FlightData {
        data_header: encoded.ipc_message.into(),
        data_body: encoded.arrow_data.into(),
        ..FlightData::default()
    };
    vec![schema, rows]
}
