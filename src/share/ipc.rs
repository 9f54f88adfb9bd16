//! One batch <-> the bytes of an Arrow IPC file.
//!
//! Comes in: a batch, or a buffer that holds such a file. Goes out: the file, or the batch over the same memory; of bytes that somebody else may have written, at most an error. Never here: which files.

use std::collections::HashMap;
use std::io::{Cursor, Write};
#[cfg(feature = "parquet")]
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::{FileDecoder, StreamReader, read_footer_length};
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use arrow::ipc::{Block, Footer, MetadataVersion, convert, root_as_footer};
#[cfg(feature = "parquet")]
use arrow::ipc::{Message, root_as_message};

use crate::error::Error;
use crate::quiet::quietly;

/// Buffers start at multiples of this, as in memory.
const ALIGNMENT_BYTES: usize = 64;

/// Footer length and magic at the end of an IPC file.
const TRAILER_BYTES: usize = 10;

/// Writes a batch as a file; `metadata` goes into its footer.
pub(crate) fn write(
    batch: &RecordBatch,
    metadata: &[(&str, &str)],
    sink: impl Write,
) -> Result<(), ArrowError> {
    let options = IpcWriteOptions::try_new(ALIGNMENT_BYTES, false, MetadataVersion::V5)?;
    let mut writer = FileWriter::try_new_with_options(sink, &batch.schema(), options)?;
    for (key, value) in metadata {
        writer.write_metadata(*key, *value);
    }
    match batch.num_rows() {
        // Of a slice without rows of run-end encoded columns, the writer of arrow 59 makes a run that ends at 0, which the reader refuses.
        0 => writer.write(&RecordBatch::new_empty(batch.schema()))?,
        _ => writer.write(batch)?,
    }
    writer.finish()
}

/// The batch of a file in memory, without copying what is aligned, and the metadata of its footer. Every value is checked.
#[cfg(feature = "parquet")]
pub(crate) fn read(file: &Buffer) -> Result<(RecordBatch, HashMap<String, String>), ArrowError> {
    contained(|| {
        let footer = footer_of(file)?;
        let decoder = FileDecoder::new(Arc::new(schema_of(&footer)?), footer.version());
        let blocks = footer.dictionaries().into_iter().flatten();
        for block in blocks.chain(footer.recordBatches().into_iter().flatten()) {
            let block = slice(file, block)?;
            let (message, _) = header(&block)?.ok_or_else(torn)?;
            check_plain(&message)?;
        }
        let batch = decoded(decoder, file, &footer)?;
        Ok((batch, metadata_of(&footer)))
    })
}

/// The columns of a file in memory; its batch is not looked at.
#[cfg(feature = "serve")]
pub(crate) fn read_schema(file: &Buffer) -> Result<arrow::datatypes::Schema, ArrowError> {
    contained(|| schema_of(&footer_of(file)?))
}

/// The first batch of a stream in memory, if it has one. Every value is checked.
#[cfg(feature = "serve")]
pub(crate) fn read_stream(stream: &[u8]) -> Result<Option<RecordBatch>, ArrowError> {
    contained(|| {
        let mut rest = stream;
        while let Some((message, after)) = next_message(rest)? {
            check_plain(&message)?;
            rest = after;
        }
        let mut reader = StreamReader::try_new(Cursor::new(stream), None)?;
        reader.next().transpose()
    })
}

/// The schema of a stream in memory, which somebody else may have written.
///
/// # Errors
/// `InvalidData` for what is none, or is damaged.
pub fn schema_of_stream(stream: &[u8]) -> Result<SchemaRef, Error> {
    let read = contained(|| Ok(StreamReader::try_new(Cursor::new(stream), None)?.schema()));
    read.map_err(|error| Error::invalid_data(format!("the schema is damaged: {error}")))
}

/// What begins each message; writers of long ago left it out.
#[cfg(feature = "parquet")]
const CONTINUATION: [u8; 4] = [0xFF; 4];

/// The header that some bytes begin with, and what comes after it; nothing at the end of a stream.
#[cfg(feature = "parquet")]
fn header(bytes: &[u8]) -> Result<Option<(Message<'_>, &[u8])>, ArrowError> {
    let bytes = bytes.strip_prefix(&CONTINUATION).unwrap_or(bytes);
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return Ok(None);
    };
    let length = usize::try_from(i32::from_le_bytes(*length)).map_err(|_| torn())?;
    if length == 0 {
        return Ok(None);
    }
    let (header, rest) = rest.split_at_checked(length).ok_or_else(torn)?;
    let message = root_as_message(header);
    let message = message.map_err(|error| ArrowError::IpcError(format!("a message: {error}")))?;
    Ok(Some((message, rest)))
}

/// The next message of a stream, all of which must be there, and what comes after it.
#[cfg(feature = "serve")]
fn next_message(stream: &[u8]) -> Result<Option<(Message<'_>, &[u8])>, ArrowError> {
    let Some((message, rest)) = header(stream)? else {
        return Ok(None);
    };
    let length = usize::try_from(message.bodyLength()).map_err(|_| torn())?;
    let (_, rest) = rest.split_at_checked(length).ok_or_else(torn)?;
    Ok(Some((message, rest)))
}

/// What is packed says how long it is, and the reader believes that: files and streams of ours are not.
#[cfg(feature = "parquet")]
fn check_plain(message: &Message<'_>) -> Result<(), ArrowError> {
    let batch = match message.header_as_dictionary_batch() {
        Some(dictionary) => dictionary.data(),
        None => message.header_as_record_batch(),
    };
    match batch.and_then(|batch| batch.compression()) {
        None => Ok(()),
        Some(_) => Err(ArrowError::IpcError("it is packed".to_owned())),
    }
}

/// Runs what reads foreign bytes; a panic is an error, and prints nothing.
pub(super) fn contained<T>(work: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ArrowError> {
    quietly(work).unwrap_or_else(|panic| {
        let text = format!("the reader gave up with {panic:?}");
        Err(ArrowError::IpcError(text))
    })
}

pub(super) fn torn() -> ArrowError {
    ArrowError::IpcError("the file is torn".to_owned())
}

pub(super) fn footer_of(file: &Buffer) -> Result<Footer<'_>, ArrowError> {
    let bytes = file.as_slice();
    let trailer_at = bytes.len().checked_sub(TRAILER_BYTES).ok_or_else(torn)?;
    let trailer = bytes.get(trailer_at..).ok_or_else(torn)?;
    let length = read_footer_length(trailer.try_into().map_err(|_| torn())?)?;
    let footer = trailer_at
        .checked_sub(length)
        .and_then(|start| bytes.get(start..trailer_at))
        .ok_or_else(torn)?;
    root_as_footer(footer)
        .map_err(|error| ArrowError::IpcError(format!("the footer is torn: {error}")))
}

pub(super) fn schema_of(footer: &Footer<'_>) -> Result<arrow::datatypes::Schema, ArrowError> {
    footer.schema().map(convert::fb_to_schema).ok_or_else(torn)
}

pub(super) fn metadata_of(footer: &Footer<'_>) -> HashMap<String, String> {
    let pairs = footer.custom_metadata();
    let pairs = pairs.iter().flatten();
    pairs
        .filter_map(|pair| Some((pair.key()?.to_owned(), pair.value()?.to_owned())))
        .collect()
}

pub(super) fn decoded(
    mut decoder: FileDecoder,
    file: &Buffer,
    footer: &Footer<'_>,
) -> Result<RecordBatch, ArrowError> {
    for block in footer.dictionaries().iter().flatten() {
        decoder.read_dictionary(block, &slice(file, block)?)?;
    }
    let batches = footer.recordBatches();
    let block = batches.iter().flatten().next().ok_or_else(torn)?;
    let batch = decoder.read_record_batch(block, &slice(file, block)?)?;
    batch.ok_or_else(torn)
}

pub(super) fn slice(file: &Buffer, block: &Block) -> Result<Buffer, ArrowError> {
    let outside = || ArrowError::IpcError("a block lies outside the file".to_owned());
    let number = |length: i64| usize::try_from(length).map_err(|_| outside());
    let start = number(block.offset())?;
    let header = usize::try_from(block.metaDataLength()).map_err(|_| outside())?;
    let length = number(block.bodyLength())?.checked_add(header);
    let length = length.ok_or_else(outside)?;
    match start.checked_add(length) {
        Some(stop) if stop <= file.len() => Ok(file.slice_with_length(start, length)),
        _ => Err(outside()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quiet::is_quiet;

    #[test]
    fn a_reader_that_panics_prints_nothing() {
        assert!(contained(|| Ok(is_quiet())).unwrap());
        let error = contained::<()>(|| panic!("broken")).unwrap_err();
        assert!(error.to_string().contains("gave up with \"broken\""));
    }
}
