//! One batch <-> the bytes of an Arrow IPC file.
//!
//! Comes in: a batch, or a buffer that holds such a file. Goes out: the file, or the batch over the same memory. Never here: which files, whether their bytes can be trusted.

use std::any::Any;
use std::collections::HashMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{Array, RecordBatch, RecordBatchOptions};
use arrow::buffer::Buffer;
use arrow::error::ArrowError;
use arrow::ipc::reader::{FileDecoder, read_footer_length};
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use arrow::ipc::{
    Block, Footer, MetadataVersion, RecordBatch as Message, convert, root_as_footer,
    root_as_message,
};

/// Buffers start at multiples of this, as in memory.
const ALIGNMENT_BYTES: usize = 64;

/// The most that an array of Arrow asks for: 128-bit numbers.
const WANTED_ALIGNMENT_BYTES: usize = 16;

/// Footer length and magic at the end of an IPC file.
const TRAILER_BYTES: usize = 10;

/// The number of bytes before the flat buffer of a message: a mark and the length.
const PREFIX_BYTES: usize = 8;

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

/// The same of a file that a partgrid of this host wrote from valid arrays, and that nobody can change: what lies where is checked, and not every value, so that nothing of it is
/// read. Whatever is broken is an error, also where Arrow panics.
#[cfg(target_os = "linux")]
pub(super) fn read_sealed(
    file: &Buffer,
) -> Result<(RecordBatch, HashMap<String, String>), ArrowError> {
    contained(|| {
        let footer = footer_of(file)?;
        let aligned = check_blocks(file, &footer)?;
        let decoder = FileDecoder::new(Arc::new(schema_of(&footer)?), footer.version());
        let decoder = decoder.with_require_alignment(aligned);
        let batch = decoded(trusting(decoder), file, &footer)?;
        for column in batch.columns() {
            column.to_data().validate()?;
        }
        // Types, lengths and nulls of the columns.
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let (schema, columns, _) = batch.into_parts();
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        Ok((batch, metadata_of(&footer)))
    })
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "values are not checked again")]
fn trusting(decoder: FileDecoder) -> FileDecoder {
    // SAFETY: the file was written from valid arrays by a process of this user that knows a secret of the handle, and is sealed; lengths are checked around this.
    unsafe { decoder.with_skip_validation(true) }
}

fn torn() -> ArrowError {
    ArrowError::IpcError("the file is torn".to_owned())
}

fn footer_of(file: &Buffer) -> Result<Footer<'_>, ArrowError> {
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

fn schema_of(footer: &Footer<'_>) -> Result<arrow::datatypes::Schema, ArrowError> {
    footer.schema().map(convert::fb_to_schema).ok_or_else(torn)
}

fn metadata_of(footer: &Footer<'_>) -> HashMap<String, String> {
    let pairs = footer.custom_metadata();
    let pairs = pairs.iter().flatten();
    pairs
        .filter_map(|pair| Some((pair.key()?.to_owned(), pair.value()?.to_owned())))
        .collect()
}

fn decoded(
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

fn slice(file: &Buffer, block: &Block) -> Result<Buffer, ArrowError> {
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

/// Checks that all buffers lie within their blocks and are not compressed, and says whether all are aligned for every type.
#[cfg(target_os = "linux")]
fn check_blocks(file: &Buffer, footer: &Footer<'_>) -> Result<bool, ArrowError> {
    let (dictionaries, batches) = (footer.dictionaries(), footer.recordBatches());
    let blocks = dictionaries
        .iter()
        .flatten()
        .chain(batches.iter().flatten());
    let mut aligned = true;
    for block in blocks {
        let bytes = slice(file, block)?;
        let header = bytes.get(PREFIX_BYTES..).ok_or_else(torn)?;
        let message = root_as_message(header)
            .map_err(|error| ArrowError::IpcError(format!("a message is torn: {error}")))?;
        let batch = match message.header_as_dictionary_batch() {
            Some(dictionary) => dictionary.data(),
            None => message.header_as_record_batch(),
        };
        let body_at = usize::try_from(block.metaDataLength()).map_err(|_| torn())?;
        let length = bytes.len().checked_sub(body_at).ok_or_else(torn)?;
        let at = bytes.as_ptr().addr().wrapping_add(body_at);
        aligned &= check_body(&batch.ok_or_else(torn)?, at, length)?;
    }
    Ok(aligned)
}

#[cfg(target_os = "linux")]
fn check_body(batch: &Message<'_>, at: usize, length: usize) -> Result<bool, ArrowError> {
    if batch.compression().is_some() {
        let text = "the buffers are compressed".to_owned();
        return Err(ArrowError::IpcError(text));
    }
    let mut aligned = true;
    for buffer in batch.buffers().iter().flatten() {
        let start = usize::try_from(buffer.offset()).map_err(|_| torn())?;
        let size = usize::try_from(buffer.length()).map_err(|_| torn())?;
        if start.checked_add(size).is_none_or(|stop| stop > length) {
            return Err(torn());
        }
        aligned &= at
            .wrapping_add(start)
            .is_multiple_of(WANTED_ALIGNMENT_BYTES);
    }
    Ok(aligned)
}

/// Runs what reads foreign bytes; a panic is an error.
#[cfg(target_os = "linux")]
fn contained<T>(work: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ArrowError> {
    let text = |panic: &(dyn Any + Send)| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        text.or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default()
    };
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = format!("the reader gave up with {:?}", text(panic.as_ref()));
        Err(ArrowError::IpcError(text))
    })
}
