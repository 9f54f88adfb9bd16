//! Messages of Flight -> batches.
//!
//! Comes in: messages of somebody who is not trusted, one after the other. Goes out: the schema, then batches whose every value was validated. A panic of the decoder is an error about the message.
//! Never here: who sends them, what becomes of the batches.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::{RecordBatchDecoder, read_dictionary};
use arrow::ipc::{Message, MessageHeader, MetadataVersion, convert};
use arrow_flight::FlightData;
use bytes::Bytes;

use super::guard::{Bounds, checked, wrong};
use crate::error::{Error, ErrorKind, Result};
use crate::quiet::quietly;

/// Arrays begin at multiples of this; a body that does not is copied once.
const ALIGNMENT_BYTES: usize = 64;

/// What one message was.
#[derive(Debug)]
pub(crate) enum Decoded {
    /// The columns of what follows.
    Schema,
    /// Rows.
    Batch(RecordBatch),
    /// Values of a dictionary, or nothing at all.
    Nothing,
}

/// Makes batches of the messages of one stream.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bounds: Bounds,
    schema: Option<SchemaRef>,
    dictionaries: HashMap<i64, ArrayRef>,
    dictionary_bytes: usize,
}

impl Decoder {
    /// One that keeps to these bounds.
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            ..Self::default()
        }
    }

    /// The columns, once their message has come.
    pub(crate) fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// Takes the next message.
    ///
    /// # Errors
    /// `InvalidData` and `Protocol` for a broken one, `ResourcesExhausted` past a bound; after that the stream is of no use.
    pub(crate) fn take(&mut self, data: FlightData) -> Result<Decoded> {
        if data.data_header.is_empty() {
            return Ok(Decoded::Nothing);
        }
        let taken = quietly(|| self.decode(data));
        taken.unwrap_or_else(|_| Err(wrong("its reader gave up")))
    }

    fn decode(&mut self, data: FlightData) -> Result<Decoded> {
        let message = checked(&data.data_header, &data.data_body, &self.bounds)?;
        match message.header_type() {
            MessageHeader::Schema => self.take_schema(&message),
            MessageHeader::DictionaryBatch => self.take_dictionary(&message, &data.data_body),
            MessageHeader::RecordBatch => self.take_batch(&message, &data.data_body),
            MessageHeader::NONE => Ok(Decoded::Nothing),
            other => {
                let name = other.variant_name().unwrap_or("something unknown");
                Err(protocol(format!("a stream of batches must hold no {name}")))
            }
        }
    }

    fn take_schema(&mut self, message: &Message<'_>) -> Result<Decoded> {
        if self.schema.is_some() {
            return Err(protocol(
                "a stream of batches must hold one schema, got a second one",
            ));
        }
        let schema = message.header_as_schema();
        let schema = schema.ok_or_else(|| wrong("a schema that is none"))?;
        self.schema = Some(Arc::new(convert::fb_to_schema(schema)));
        Ok(Decoded::Schema)
    }

    fn take_dictionary(&mut self, message: &Message<'_>, body: &Bytes) -> Result<Decoded> {
        let schema = self.schema.as_ref().ok_or_else(no_schema)?;
        let batch = message.header_as_dictionary_batch();
        let batch = batch.ok_or_else(|| wrong("a dictionary that is none"))?;
        let before = self
            .dictionaries
            .get(&batch.id())
            .map(bytes_of)
            .unwrap_or(0);
        let body = aligned(body);
        read_dictionary(
            &body,
            batch,
            schema,
            &mut self.dictionaries,
            &message.version(),
        )?;
        let after = self
            .dictionaries
            .get(&batch.id())
            .map(bytes_of)
            .unwrap_or(0);
        self.dictionary_bytes = (self.dictionary_bytes + after).saturating_sub(before);
        if self.dictionary_bytes as u64 > self.bounds.max_unpacked_bytes {
            let text = format!(
                "the dictionaries of a stream may take {} bytes, got more",
                self.bounds.max_unpacked_bytes
            );
            return Err(Error::new(ErrorKind::ResourcesExhausted, text));
        }
        Ok(Decoded::Nothing)
    }

    fn take_batch(&mut self, message: &Message<'_>, body: &Bytes) -> Result<Decoded> {
        let schema = self.schema.as_ref().ok_or_else(no_schema)?;
        let batch = message.header_as_record_batch();
        let batch = batch.ok_or_else(|| wrong("a batch that is none"))?;
        let version: MetadataVersion = message.version();
        let body = aligned(body);
        let decoder = RecordBatchDecoder::try_new(
            &body,
            batch,
            Arc::clone(schema),
            &self.dictionaries,
            &version,
        )?;
        Ok(Decoded::Batch(decoder.read_record_batch()?))
    }
}

/// The schema that somebody who is not trusted wrote as one message of Arrow IPC, as `FlightInfo` has it: Arrow's own reader panics at some.
///
/// # Errors
/// As [`Decoder::take`]; `Protocol` for another message, or none.
pub(crate) fn schema_of(message: &[u8]) -> Result<SchemaRef> {
    let data = FlightData {
        data_header: Bytes::copy_from_slice(header_of(message)?),
        ..FlightData::default()
    };
    let mut decoder = Decoder::default();
    decoder.take(data)?;
    decoder
        .schema
        .ok_or_else(|| protocol("the Arrow message is no schema"))
}

/// The flatbuffer within an encapsulated message.
fn header_of(message: &[u8]) -> Result<&[u8]> {
    let broken = || protocol("a schema must be a message of Arrow IPC, it is none");
    let rest = message.strip_prefix(&[0xFF; 4]).unwrap_or(message);
    let (length, rest) = rest.split_first_chunk().ok_or_else(broken)?;
    let length = usize::try_from(i32::from_le_bytes(*length)).map_err(|_| broken())?;
    rest.get(..length).ok_or_else(broken)
}

fn protocol(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Protocol, text)
}

fn no_schema() -> Error {
    protocol("a stream of batches must begin with a schema")
}

fn bytes_of(values: &ArrayRef) -> usize {
    let data = values.to_data();
    data.get_slice_memory_size()
        .unwrap_or_else(|_| values.get_buffer_memory_size())
}

fn aligned(body: &Bytes) -> Buffer {
    if (body.as_ptr() as usize).is_multiple_of(ALIGNMENT_BYTES) {
        return Buffer::from(body.clone());
    }
    Buffer::from(body.as_ref())
}
