//! Messages that nobody honest sends.

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::{CommandStatementIngest, ProstMessageExt};
use arrow_flight::{Action, FlightData, FlightDescriptor, SchemaAsIpc, Ticket};
use futures::stream;
use partgrid::serve::Server;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use prost::Message;
use tonic::Code;
use tonic::transport::Channel;

use super::{numbers, options, runtime};

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
