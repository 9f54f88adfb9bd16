//! Messages of Flight that somebody has changed: read whole or refused, within bounds of memory.
//!
//! Comes in: good messages. Goes out: nothing. `PARTGRID_FUZZ_CASES` says how many are tried. Never here: servers (`tests/it/serve/hostile.rs`).

use std::fmt::Debug;

use arrow::array::RecordBatch;
use arrow_flight::FlightData;
use arrow_flight::sql::Any;
use bytes::Bytes;
use futures::{TryStreamExt, stream};
use prost::Message;

use super::messages::{self, Named};
use super::options;
use super::{Bounds, Compression, Decoded, Decoder, encoded, schema_bytes, schema_of};
use crate::columns::column_of_every_type;
use crate::counting::allocated_bytes;
use crate::error::{ErrorKind, Result};
use crate::harm::{Random, cases, harmed};

/// What a stream of so many bytes may ask for, packed bodies aside: they are copied once, and there are tables of what is in them.
const MOST_PER_BYTE: usize = 64;
const MOST_BESIDE: usize = 256 * 1024;

/// What packed bodies may unpack to, and as much again for the unpacking itself.
const MOST_UNPACKED: usize = 128 * 1024 * 1024;

fn messages_of(batch: &RecordBatch, compression: Compression) -> Vec<FlightData> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let batches = stream::iter([Ok(batch.clone())]);
    let messages = encoded(&batch.schema(), batches, compression, None).unwrap();
    runtime
        .unwrap()
        .block_on(messages.try_collect::<Vec<_>>())
        .unwrap()
}

/// The messages of a batch for each type and each way to pack.
fn streams() -> Vec<Vec<FlightData>> {
    let mut streams = Vec::new();
    for (name, column) in column_of_every_type() {
        let batch = RecordBatch::try_from_iter([(name, column)]).unwrap();
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            streams.push(messages_of(&batch, compression));
        }
    }
    streams
}

/// The batches of a stream.
fn read(messages: Vec<FlightData>) -> Result<Vec<RecordBatch>> {
    let mut decoder = Decoder::new(Bounds::default());
    let mut batches = Vec::new();
    for message in messages {
        if let Decoded::Batch(batch) = decoder.take(message)? {
            assert_eq!(Some(batch.schema_ref()), decoder.schema());
            batches.push(batch);
        }
    }
    Ok(batches)
}

/// Changes the header or the body of one of the messages.
fn change(random: &mut Random, messages: &mut [FlightData], other: &[FlightData]) {
    let place = random.place(messages.len());
    let other = &other[random.place(other.len())];
    let message = &mut messages[place];
    let body = &message.data_body;
    match !body.is_empty() && random.below(3) == 0 {
        true => message.data_body = harmed(random, body, &other.data_body).into(),
        false => {
            message.data_header = harmed(random, &message.data_header, &other.data_header).into()
        }
    }
}

#[test]
fn changed_batches_are_whole_or_refused_and_take_no_more_memory_than_they_may() {
    let streams = streams();
    let (mut whole, mut refused) = (0, 0);
    let cases = cases(20_000);
    for case in 0..cases {
        let mut random = Random::of(case);
        let mut messages = random.one(&streams).clone();
        change(&mut random, &mut messages, random_other(case, &streams));
        let most = most_for(&messages);
        let (read, asked) = allocated_bytes(|| read(messages));
        assert!(asked < most, "case {case}: {asked} of {most}");
        match read {
            Ok(batches) => {
                whole += 1;
                batches.iter().for_each(|batch| check(case, batch));
            }
            Err(error) => {
                refused += 1;
                assert_ne!(error.kind(), ErrorKind::Internal, "case {case}: {error}");
            }
        }
    }
    assert!(
        whole > cases / 200 && refused > cases / 4,
        "{whole} {refused}"
    );
}

/// What reading these may ask for.
fn most_for(messages: &[FlightData]) -> usize {
    let is_packed = messages.iter().any(|message| {
        let message = arrow::ipc::root_as_message(&message.data_header).ok();
        let batch = message.and_then(|message| match message.header_as_dictionary_batch() {
            Some(dictionary) => dictionary.data(),
            None => message.header_as_record_batch(),
        });
        batch.is_some_and(|batch| batch.compression().is_some())
    });
    let bytes = messages.iter().map(Message::encoded_len).sum::<usize>();
    let unpacked = if is_packed { MOST_UNPACKED } else { 0 };
    MOST_BESIDE + MOST_PER_BYTE * bytes + unpacked
}

fn random_other(case: u64, streams: &[Vec<FlightData>]) -> &[FlightData] {
    let mut random = Random::of(case ^ u64::MAX);
    &streams[random.place(streams.len())]
}

/// Every value is valid, and can be sent on.
fn check(case: u64, batch: &RecordBatch) {
    for column in batch.columns() {
        let valid = column.to_data().validate_full();
        valid.unwrap_or_else(|error| panic!("case {case}: {error}"));
    }
    let again = read(messages_of(batch, Compression::None)).unwrap();
    let rows = again.iter().map(RecordBatch::num_rows).sum::<usize>();
    assert_eq!(rows, batch.num_rows(), "case {case}");
}

#[test]
fn changed_schemas_are_read_or_refused() {
    let columns = column_of_every_type();
    let schemas: Vec<Bytes> = columns
        .into_iter()
        .map(|(name, column)| {
            let batch = RecordBatch::try_from_iter([(name, column)]).unwrap();
            schema_bytes(&batch.schema()).unwrap()
        })
        .collect();
    let cases = cases(20_000);
    for case in 0..cases {
        let mut random = Random::of(case);
        let (good, other) = (random.one(&schemas), random.place(schemas.len()));
        let bytes = harmed(&mut random, good, &schemas[other]);
        let (read, asked) = allocated_bytes(|| schema_of(&bytes));
        let most = MOST_BESIDE + MOST_PER_BYTE * bytes.len();
        assert!(asked < most, "case {case}: {asked} of {}", bytes.len());
        match read {
            Ok(schema) => drop(schema_bytes(&schema)),
            Err(error) => assert_ne!(error.kind(), ErrorKind::Internal, "case {case}: {error}"),
        }
    }
}

/// One of each of our own messages, as bytes, with what reads it.
macro_rules! ours {
    ($($message:expr),* $(,)?) => {
        vec![$({
            let message = $message;
            (message.to_bytes(), tried_as(&message))
        }),*]
    };
}

/// Reads bytes as the type of a message; what is read is written and read again.
type Tried = Box<dyn Fn(u64, &[u8]) -> bool>;

fn tried_as<M: Named + PartialEq + Debug + 'static>(_: &M) -> Tried {
    Box::new(|case, bytes| {
        let Ok(any) = Any::decode(bytes) else {
            return false;
        };
        match M::from_any(&any) {
            Ok(None) => false,
            Ok(Some(message)) => {
                let again = Any::decode(message.to_bytes().as_slice()).unwrap();
                assert_eq!(M::from_any(&again).unwrap(), Some(message), "case {case}");
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Protocol, "case {case}: {error}");
                false
            }
        }
    })
}

fn text() -> String {
    "flights".to_owned()
}

/// An id of a grid, of an upload or of an answer.
fn id() -> Vec<u8> {
    vec![7; 16]
}

/// Messages about tiles, queries and what is named.
fn of_tiles() -> Vec<(Vec<u8>, Tried)> {
    let tile = messages::TileTicket {
        grid: id(),
        row_band: 3,
        column_band: Some(1),
        columns: vec![0, 5, u32::MAX],
        is_projected: true,
        part: id(),
        part_row_band: 2,
    };
    let explain = messages::ExplainRequest {
        ticket: tile.to_bytes(),
        analyze: true,
    };
    ours![
        tile,
        messages::PartTicket {
            answer: id(),
            part: 4
        },
        messages::PollCommand { answer: id() },
        messages::JobName {
            job: 1,
            wait_millis: 2
        },
        messages::RunName { run: u64::MAX },
        messages::RebalanceRequest {
            name: text(),
            without: vec![text(), text()]
        },
        explain,
    ]
}

/// Messages about loads and uploads.
fn of_loads() -> Vec<(Vec<u8>, Tried)> {
    let sort_by = messages::SortBy {
        name: text(),
        descending: true,
    };
    ours![
        messages::UploadCommand {
            upload: id(),
            row_band: 9,
            column_band: 1,
        },
        messages::BeginUpload {
            name: text(),
            schema: vec![1; 40],
            row_cuts: vec![0, 10, 1 << 40],
            column_cuts: vec![0, 3],
            load_id: text(),
            ..messages::BeginUpload::default()
        },
        messages::Upload { upload: id() },
        messages::Acknowledgement {
            is_durable: true,
            num_rows: 30
        },
        messages::LoadRequest {
            name: text(),
            sources: vec![text(), "s3://bucket/*.parquet".to_owned()],
            columns: vec![text()],
            sort_by: vec![sort_by; 3],
            tile_rows: 1 << 20,
            ..messages::LoadRequest::default()
        },
        messages::JobProgress {
            state: "running".to_owned(),
            total_rows: u64::MAX,
            remaining_millis: Some(5),
            ..messages::JobProgress::default()
        },
    ]
}

fn all_of_ours() -> Vec<(Vec<u8>, Tried)> {
    let mut all = of_tiles();
    all.extend(of_loads());
    #[cfg(feature = "distributed")]
    all.extend(ours![messages::GridPart {
        name: text(),
        id: id(),
        of: 3,
        replicas: 2,
        ..messages::GridPart::default()
    }]);
    all
}

#[test]
fn changed_messages_of_ours_are_read_or_refused() {
    let all = all_of_ours();
    let good = all
        .iter()
        .enumerate()
        .all(|(number, (bytes, tried))| tried(number as u64, bytes));
    assert!(good, "each is read as what it is");
    let cases = cases(100_000);
    let mut whole = 0;
    for case in 0..cases {
        let mut random = Random::of(case);
        let (good, tried) = random.one(&all);
        let other = random.place(all.len());
        let bytes = harmed(&mut random, good, &all[other].0);
        let (is_whole, asked) = allocated_bytes(|| tried(case, &bytes));
        whole += u64::from(is_whole);
        let most = MOST_BESIDE + MOST_PER_BYTE * bytes.len();
        assert!(asked < most, "case {case}: {asked} of {}", bytes.len());
    }
    assert!(whole > cases / 100, "{whole}");
}

#[test]
fn changed_options_of_sessions_are_read_or_refused() {
    let value = |value| options::SessionOptionValue { value: Some(value) };
    let texts = options::Texts {
        values: vec!["a".to_owned(); 3],
    };
    let options = [
        options::OptionValue::Text("lz4".to_owned()),
        options::OptionValue::Flag(true),
        options::OptionValue::Whole(-1),
        options::OptionValue::Number(0.5),
        options::OptionValue::Texts(texts),
    ];
    let named = options.into_iter().enumerate();
    let session_options = named.map(|(number, option)| (number.to_string(), value(option)));
    let request = options::SetSessionOptionsRequest {
        session_options: session_options.collect(),
    };
    let good = request.encode_to_vec();
    for case in 0..cases(50_000) {
        let bytes = harmed(&mut Random::of(case), &good, &good);
        let read = || options::SetSessionOptionsRequest::decode(bytes.as_slice());
        let (read, asked) = allocated_bytes(read);
        assert!(
            asked < MOST_BESIDE + MOST_PER_BYTE * bytes.len(),
            "case {case}: {asked}"
        );
        if let Ok(read) = read {
            let again = options::SetSessionOptionsRequest::decode(read.encode_to_vec().as_slice());
            let again = again.unwrap().session_options;
            assert_eq!(again.len(), read.session_options.len(), "case {case}");
        }
    }
}
