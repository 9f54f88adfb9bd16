//! The batch of a sealed segment, read without touching its values.
//!
//! Comes in: a mapped Arrow IPC file that nobody can change any more. Goes out: the batch over the same memory, in the time that its schema takes, however large it is. Never here: a panic; a
//! buffer that lies outside the file.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch, RecordBatchOptions};
use arrow::buffer::Buffer;
use arrow::error::ArrowError;
use arrow::ipc::reader::FileDecoder;
use arrow::ipc::{Footer, RecordBatch as Message, root_as_message};

use super::ipc::{contained, decoded, footer_of, metadata_of, schema_of, slice, torn};

/// The most that an array of Arrow asks for: 128-bit numbers.
const WANTED_ALIGNMENT_BYTES: usize = 16;

/// The number of bytes before the flat buffer of a message: a mark and the length.
const PREFIX_BYTES: usize = 8;

/// The batch of a file, without copying what is aligned, and the metadata of its footer. A partgrid of this host wrote the file from valid arrays, and nobody can change it: what lies where is
/// checked, and not every value, so that nothing of it is read. Whatever is broken is an error, also where Arrow panics.
pub(super) fn read(file: &Buffer) -> Result<(RecordBatch, HashMap<String, String>), ArrowError> {
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

#[expect(unsafe_code, reason = "values are not checked again")]
fn trusting(decoder: FileDecoder) -> FileDecoder {
    // SAFETY: the file was written from valid arrays by a process of this user that knows a secret of the handle, and is sealed; lengths are checked around this.
    unsafe { decoder.with_skip_validation(true) }
}

/// Checks that all buffers lie within their blocks and are not compressed, and says whether all are aligned for every type.
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
