//! One batch <-> the bytes of an Arrow IPC file.
//!
//! Comes in: a batch, or a buffer that holds such a file. Goes out: the file, or the batch over the same memory. Never here: which files, whether their bytes can be trusted.

use std::collections::HashMap;
use std::io::Write;
#[cfg(feature = "parquet")]
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::error::ArrowError;
use arrow::ipc::reader::{FileDecoder, read_footer_length};
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use arrow::ipc::{Block, Footer, MetadataVersion, convert, root_as_footer};

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
    writer.write(batch)?;
    writer.finish()
}

/// The batch of a file in memory, without copying what is aligned, and the metadata of its footer. Every value is checked.
#[cfg(feature = "parquet")]
pub(crate) fn read(file: &Buffer) -> Result<(RecordBatch, HashMap<String, String>), ArrowError> {
    let footer = footer_of(file)?;
    let decoder = FileDecoder::new(Arc::new(schema_of(&footer)?), footer.version());
    let batch = decoded(decoder, file, &footer)?;
    Ok((batch, metadata_of(&footer)))
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
