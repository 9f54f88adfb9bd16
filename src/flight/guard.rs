//! Looks over a message of a stranger before Arrow decodes it.
//!
//! Comes in: the header and body of a message. Goes out: nothing, or what is wrong. Needed because the decoder of arrow 59 believes what a header declares: it allocates lengths that nothing is
//! behind, reads big-endian numbers as little-endian ones, and follows nesting as deep as it goes. Never here: values, which are validated as they are decoded.

use arrow::ipc::{Endianness, Field, Message, RecordBatch, Schema, root_as_message};

use crate::error::{Error, ErrorKind, Result};

/// What a message may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Fields of a schema, nested ones included.
    pub(crate) max_fields: usize,
    /// How deep they may stand in one another.
    pub(crate) max_nesting: usize,
    /// The most rows that a batch may declare.
    pub(crate) max_rows: i64,
    /// The most bytes that the body of a message may unpack to.
    pub(crate) max_unpacked_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max_fields: 10_000,
            max_nesting: 64,
            max_rows: i64::from(i32::MAX),
            max_unpacked_bytes: 1 << 30,
        }
    }
}

/// A packed body may become so many times as large, or have so many bytes: equal values pack to almost nothing.
const MAX_RATIO: u64 = 100;
const ALWAYS_BYTES: u64 = 64 * 1024 * 1024;

/// Bytes before each packed buffer: its length unpacked.
const PREFIX_BYTES: usize = 8;

/// The metadata of each flatbuffer may have as many tables.
const MAX_METADATA: usize = 10_000;

pub(super) fn wrong(text: impl Into<String>) -> Error {
    let text = text.into();
    Error::invalid_data(format!("the Arrow message is broken: {text}"))
}

/// The message of a header, checked against the body that came with it.
///
/// # Errors
/// `InvalidData` for what contradicts itself, `Unsupported` for big-endian numbers, `ResourcesExhausted` past a bound.
pub(super) fn checked<'a>(header: &'a [u8], body: &[u8], bounds: &Bounds) -> Result<Message<'a>> {
    let message = root_as_message(header).map_err(|error| wrong(format!("its header: {error}")))?;
    if let Some(schema) = message.header_as_schema() {
        check_schema(&schema, bounds)?;
    }
    if let Some(batch) = message.header_as_record_batch() {
        check_batch(&batch, body, bounds)?;
    }
    if let Some(dictionary) = message.header_as_dictionary_batch() {
        let batch = dictionary.data();
        check_batch(
            &batch.ok_or_else(|| wrong("a dictionary without values"))?,
            body,
            bounds,
        )?;
    }
    Ok(message)
}

fn check_schema(schema: &Schema<'_>, bounds: &Bounds) -> Result<()> {
    if schema.endianness() != Endianness::Little {
        return Err(Error::unsupported(
            "the numbers of the Arrow stream must be little-endian, it says they are big-endian",
        ));
    }
    let metadata = schema.custom_metadata();
    if metadata.is_some_and(|pairs| pairs.len() > MAX_METADATA) {
        return Err(past(format!(
            "a schema may have {MAX_METADATA} pairs of metadata"
        )));
    }
    let mut num_fields = 0;
    let mut open: Vec<(Field<'_>, usize)> = Vec::new();
    open.extend(schema.fields().iter().flatten().map(|field| (field, 1)));
    while let Some((field, depth)) = open.pop() {
        num_fields += 1;
        if num_fields > bounds.max_fields {
            return Err(past(format!(
                "a schema may have {} fields",
                bounds.max_fields
            )));
        }
        if depth > bounds.max_nesting {
            return Err(past(format!(
                "fields may be nested {} deep",
                bounds.max_nesting
            )));
        }
        open.extend(
            field
                .children()
                .iter()
                .flatten()
                .map(|child| (child, depth + 1)),
        );
    }
    Ok(())
}

fn past(text: String) -> Error {
    Error::new(ErrorKind::ResourcesExhausted, format!("{text}, got more"))
}

fn check_batch(batch: &RecordBatch<'_>, body: &[u8], bounds: &Bounds) -> Result<()> {
    check_length(batch.length(), bounds)?;
    for node in batch.nodes().iter().flatten() {
        check_length(node.length(), bounds)?;
        if node.null_count() < 0 || node.null_count() > node.length() {
            return Err(wrong(format!(
                "a column of {} values has {} nulls",
                node.length(),
                node.null_count()
            )));
        }
    }
    let buffers = batch.buffers();
    let num_buffers = buffers.as_ref().map_or(0, |buffers| buffers.len()) as u64;
    let mut variadic: u64 = 0;
    for count in batch.variadicBufferCounts().iter().flatten() {
        let count = u64::try_from(count).map_err(|_| wrong("a negative number of buffers"))?;
        variadic = variadic.saturating_add(count);
    }
    if variadic > num_buffers {
        return Err(wrong("it has fewer buffers than it says"));
    }
    let is_packed = batch.compression().is_some();
    let most = bounds.max_unpacked_bytes.min(
        (body.len() as u64)
            .saturating_mul(MAX_RATIO)
            .max(ALWAYS_BYTES),
    );
    let mut unpacked: u64 = 0;
    for buffer in buffers.iter().flatten() {
        let bytes = part(body, buffer.offset(), buffer.length())?;
        if !is_packed || bytes.is_empty() {
            continue;
        }
        let prefix = bytes.first_chunk::<PREFIX_BYTES>();
        let prefix = prefix.ok_or_else(|| wrong("a packed buffer without its length"))?;
        let length = match i64::from_le_bytes(*prefix) {
            // Says that this one is not packed after all.
            -1 => (bytes.len() - PREFIX_BYTES) as u64,
            length => {
                u64::try_from(length).map_err(|_| wrong("a packed buffer of negative length"))?
            }
        };
        unpacked = unpacked.saturating_add(length);
        if unpacked > most {
            return Err(past(format!(
                "the packed Arrow message may unpack to {most} bytes"
            )));
        }
    }
    Ok(())
}

fn check_length(length: i64, bounds: &Bounds) -> Result<()> {
    if length < 0 {
        return Err(wrong(format!("{length} rows")));
    }
    if length > bounds.max_rows {
        return Err(past(format!("a batch may have {} rows", bounds.max_rows)));
    }
    Ok(())
}

/// The bytes of a buffer, which must lie in the body.
fn part(body: &[u8], offset: i64, length: i64) -> Result<&[u8]> {
    let start = usize::try_from(offset).ok();
    let length = usize::try_from(length).ok();
    let stop = start
        .zip(length)
        .and_then(|(start, length)| start.checked_add(length));
    let bytes = start
        .zip(stop)
        .and_then(|(start, stop)| body.get(start..stop));
    bytes.ok_or_else(|| {
        wrong(format!(
            "a buffer of {} bytes at {offset} lies outside the body of {} bytes",
            length.map_or_else(|| "?".to_owned(), |length| length.to_string()),
            body.len()
        ))
    })
}
