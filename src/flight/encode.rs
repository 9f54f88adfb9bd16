//! Batches -> messages of Flight.
//!
//! Comes in: a stream of batches of one schema. Goes out: the schema, then each batch in messages of bounded size, with types and dictionaries as they are. Nothing is read ahead of whoever takes
//! the messages. The encoder of arrow-flight 59 is not used: it sends large lists as lists and rebuilds the fields of unions. Never here: who gets them.

use std::collections::VecDeque;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, StreamEncoder};
use arrow::ipc::{CompressionType, root_as_message};
use arrow_flight::{FlightData, FlightDescriptor, IpcMessage, SchemaAsIpc};
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};

use super::MESSAGE_BYTES;
use super::lean::lean;
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

/// A message whose body lies where its batch has it.
pub(crate) struct Pieces {
    /// What the message is, as a flatbuffer of Arrow IPC.
    pub(crate) header: Bytes,
    /// The buffers with what is between them, in order.
    pub(crate) body: Vec<Bytes>,
}

impl Pieces {
    /// Bytes of the body.
    pub(crate) fn body_len(&self) -> usize {
        self.body.iter().map(Bytes::len).sum()
    }
}

/// Copies the body into one piece, unless it is one.
impl From<Pieces> for FlightData {
    fn from(pieces: Pieces) -> Self {
        let mut body = pieces.body;
        let data_body = match (body.pop(), body.len()) {
            (None, _) => Bytes::new(),
            (Some(only), 0) => only,
            (Some(last), _) => {
                body.push(last);
                body.concat().into()
            }
        };
        Self {
            data_header: pieces.header,
            data_body,
            ..Self::default()
        }
    }
}

/// The messages of a stream of batches, without copying what is in them where they are not packed: the schema, then each batch behind its dictionaries.
///
/// # Errors
/// `Unsupported` for a schema that Arrow IPC does not hold.
pub(crate) fn pieces<S>(
    schema: &SchemaRef,
    batches: S,
    compression: Compression,
) -> Result<BoxStream<'static, Result<Pieces>>>
where
    S: Stream<Item = Result<RecordBatch>> + Send + 'static,
{
    let encoder = Encoder {
        stream: StreamEncoder::try_new_with_options(schema, compression.options()?)?,
        has_begun: false,
    };
    let first = encoder.schema(schema);
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

/// As [`pieces`], as messages of one part each; the first one carries the descriptor, if there is one.
///
/// # Errors
/// As [`pieces`].
pub(crate) fn encoded<S>(
    schema: &SchemaRef,
    batches: S,
    compression: Compression,
    mut descriptor: Option<FlightDescriptor>,
) -> Result<BoxStream<'static, Result<FlightData>>>
where
    S: Stream<Item = Result<RecordBatch>> + Send + 'static,
{
    let messages = pieces(schema, batches, compression)?.map_ok(move |pieces| FlightData {
        flight_descriptor: descriptor.take(),
        ..FlightData::from(pieces)
    });
    Ok(messages.boxed())
}

/// What encoding of one stream needs.
struct Encoder {
    stream: StreamEncoder,
    has_begun: bool,
}

impl Encoder {
    fn schema(&self, schema: &Schema) -> Pieces {
        let encoded = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
            schema,
            // Numbers dictionaries as the one of the stream does.
            &mut DictionaryTracker::new(false),
            &IpcWriteOptions::default(),
        );
        Pieces {
            header: encoded.ipc_message.into(),
            body: Vec::new(),
        }
    }

    fn batch(&mut self, batch: &RecordBatch, ready: &mut VecDeque<Pieces>) -> Result<()> {
        let mut messages = messages(self.stream.encode(batch)?)?;
        if !std::mem::replace(&mut self.has_begun, true) {
            // The schema was sent before there was a batch.
            messages.pop_front();
        }
        ready.append(&mut messages);
        Ok(())
    }
}

/// A buffer, kept until it is sent.
struct Kept(Buffer);

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// The messages of a piece of an IPC stream: each with four bytes that say that one begins, the length of its header in four more, the header, the body.
fn messages(buffers: Vec<Buffer>) -> Result<VecDeque<Pieces>> {
    let broken = || Error::internal("Arrow wrote a stream that is none");
    let mut buffers = buffers.into_iter().filter(|buffer| !buffer.is_empty());
    let mut found = VecDeque::new();
    while let Some(prefix) = buffers.next() {
        let len = prefix.get(4..8).ok_or_else(broken)?;
        let len = u32::from_le_bytes(len.try_into().map_err(|_| broken())?) as usize;
        let mut header = Vec::with_capacity(len);
        while header.len() < len {
            header.extend_from_slice(&buffers.next().ok_or_else(broken)?);
        }
        let message = root_as_message(&header).map_err(|_| broken())?;
        let body_len = usize::try_from(message.bodyLength()).map_err(|_| broken())?;
        let (mut body, mut size) = (Vec::new(), 0);
        while size < body_len {
            let buffer = buffers.next().ok_or_else(broken)?;
            size += buffer.len();
            body.push(Bytes::from_owner(Kept(buffer)));
        }
        let header = header.into();
        found.push_back(Pieces { header, body });
    }
    Ok(found)
}

/// The batch in slices of about the size of a message.
fn parts(batch: &RecordBatch) -> Vec<RecordBatch> {
    let num_rows = batch.num_rows();
    if num_rows == 0 {
        // Of a slice without rows of run-end encoded columns, the writer of arrow 59 makes a run that ends at 0, which no reader of Rust takes.
        return vec![RecordBatch::new_empty(batch.schema())];
    }
    let num_bytes = usize::try_from(slice_bytes(batch)).unwrap_or(usize::MAX);
    let num_parts = num_bytes.div_ceil(MESSAGE_BYTES).clamp(1, num_rows);
    if num_parts == 1 {
        return vec![lean(batch.clone())];
    }
    let rows = num_rows.div_ceil(num_parts);
    let starts = (0..num_rows).step_by(rows);
    starts
        .map(|start| lean(batch.slice(start, rows.min(num_rows - start))))
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
