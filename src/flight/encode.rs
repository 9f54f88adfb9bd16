//! Batches -> messages of Flight.
//!
//! Comes in: a stream of batches of one schema. Goes out: the schema, then each batch in messages of bounded size, with types and dictionaries as they are. Nothing is read ahead of whoever takes
//! the messages. The encoder of arrow-flight 59 is not used: it sends large lists as lists and rebuilds the fields of unions. Never here: who gets them.

use std::collections::VecDeque;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{
    DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteContext, IpcWriteOptions,
};
use arrow_flight::{FlightData, FlightDescriptor, IpcMessage, SchemaAsIpc};
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};

use super::MESSAGE_BYTES;
use crate::error::{Error, Result};
use crate::grid::slice_bytes;

/// How the bodies of messages are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Compression {
    /// As they lie in memory.
    #[default]
    None,
    /// Fast.
    Lz4,
    /// Small.
    Zstd,
}

impl Compression {
    /// That of a name.
    ///
    /// # Errors
    /// `InvalidArgument` for another one.
    pub(crate) fn named(name: &str) -> Result<Self> {
        match name {
            "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            "zstd" => Ok(Self::Zstd),
            other => Err(Error::invalid_argument(format!(
                "compression must be none, lz4 or zstd, got {other:?}"
            ))),
        }
    }

    fn options(self) -> Result<IpcWriteOptions> {
        let kind = match self {
            Self::None => None,
            Self::Lz4 => Some(CompressionType::LZ4_FRAME),
            Self::Zstd => Some(CompressionType::ZSTD),
        };
        Ok(IpcWriteOptions::default().try_with_compression(kind)?)
    }
}

/// The messages of a stream of batches; the first one carries the descriptor, if there is one.
///
/// # Errors
/// `Internal` when Arrow lacks the compression.
pub(crate) fn encoded<S>(
    schema: &SchemaRef,
    batches: S,
    compression: Compression,
    descriptor: Option<FlightDescriptor>,
) -> Result<BoxStream<'static, Result<FlightData>>>
where
    S: Stream<Item = Result<RecordBatch>> + Send + 'static,
{
    let mut encoder = Encoder {
        generator: IpcDataGenerator::default(),
        tracker: DictionaryTracker::new(false),
        options: compression.options()?,
        context: IpcWriteContext::default(),
    };
    let mut first = encoder.schema(schema);
    first.flight_descriptor = descriptor;
    let state = (encoder, batches.boxed(), VecDeque::from([first]));
    let messages = stream::try_unfold(state, |(mut encoder, mut batches, mut ready)| async {
        while ready.is_empty() {
            let Some(batch) = batches.next().await else {
                return Ok(None);
            };
            for part in parts(&batch?) {
                encoder.batch(&part, &mut ready)?;
            }
        }
        let message = ready.pop_front();
        Ok(message.map(|message| (message, (encoder, batches, ready))))
    });
    Ok(messages.boxed())
}

/// What encoding of one stream needs.
struct Encoder {
    generator: IpcDataGenerator,
    tracker: DictionaryTracker,
    options: IpcWriteOptions,
    context: IpcWriteContext,
}

impl Encoder {
    fn schema(&mut self, schema: &Schema) -> FlightData {
        let generator = &self.generator;
        let encoded = generator.schema_to_bytes_with_dictionary_tracker(
            schema,
            &mut self.tracker,
            &self.options,
        );
        message(encoded)
    }

    fn batch(&mut self, batch: &RecordBatch, ready: &mut VecDeque<FlightData>) -> Result<()> {
        let (dictionaries, batch) =
            self.generator
                .encode(batch, &mut self.tracker, &self.options, &mut self.context)?;
        ready.extend(dictionaries.into_iter().map(message));
        ready.push_back(message(batch));
        Ok(())
    }
}

fn message(encoded: EncodedData) -> FlightData {
    FlightData {
        data_header: encoded.ipc_message.into(),
        data_body: encoded.arrow_data.into(),
        ..FlightData::default()
    }
}

/// The batch in slices of about the size of a message.
fn parts(batch: &RecordBatch) -> Vec<RecordBatch> {
    let num_rows = batch.num_rows();
    let num_bytes = usize::try_from(slice_bytes(batch)).unwrap_or(usize::MAX);
    let num_parts = num_bytes.div_ceil(MESSAGE_BYTES).clamp(1, num_rows.max(1));
    if num_parts == 1 {
        return vec![batch.clone()];
    }
    let rows = num_rows.div_ceil(num_parts);
    let starts = (0..num_rows).step_by(rows);
    starts
        .map(|start| batch.slice(start, rows.min(num_rows - start)))
        .collect()
}

/// A schema as the bytes of `FlightInfo` and of metadata have it.
///
/// # Errors
/// `Unsupported` when Arrow IPC does not hold it.
pub(crate) fn schema_bytes(schema: &Schema) -> Result<Bytes> {
    let options = IpcWriteOptions::default();
    let message: IpcMessage = SchemaAsIpc::new(schema, &options).try_into()?;
    Ok(message.0)
}

/// What the builders of metadata give up with.
pub(crate) fn of_flight(error: arrow_flight::error::FlightError) -> Error {
    use arrow_flight::error::FlightError;
    match error {
        FlightError::Arrow(error) => error.into(),
        other => Error::internal(format!("Flight gave up: {other}")),
    }
}
