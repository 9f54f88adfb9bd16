//! Tiles that lie in files of this process: Arrow IPC, mapped back.
//!
//! Comes in: a batch, a folder. Goes out: a tile that takes no memory until it is opened. The file has no name, so that nothing is left behind however the process
//! ends. Never here: which tiles are spilled.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::{FileDecoder, read_footer_length};
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use arrow::ipc::{Block, MetadataVersion, convert, root_as_footer};
use async_trait::async_trait;

use crate::error::{Error, ErrorKind, Result};
use crate::grid::{TileData, slice_bytes};
use crate::location::Location;
use crate::share::map_unnamed;

/// Buffers start at multiples of this, as in memory.
const ALIGNMENT_BYTES: usize = 64;
/// Footer length and magic at the end of an IPC file.
const TRAILER_BYTES: usize = 10;

/// A tile whose bytes lie in a file.
#[derive(Debug)]
pub(super) struct SpilledTile {
    schema: SchemaRef,
    num_rows: u64,
    memory_bytes: u64,
    /// The whole file.
    file: Buffer,
    /// Filled by the first `open`.
    batch: OnceLock<RecordBatch>,
}

/// Writes a batch to a file without a name in `folder`.
pub(super) fn spill(batch: &RecordBatch, folder: &Path) -> Result<SpilledTile> {
    let failed = |error: io::Error| write_failed(error, folder);
    let file = tempfile::tempfile_in(folder).map_err(failed)?;
    let mut sink = BufWriter::new(&file);
    write_ipc(batch, &mut sink).map_err(|error| match error {
        ArrowError::IoError(_, error) => failed(error),
        other => Error::from(other),
    })?;
    sink.flush().map_err(failed)?;
    drop(sink);
    Ok(SpilledTile {
        schema: batch.schema(),
        num_rows: batch.num_rows() as u64,
        memory_bytes: slice_bytes(batch),
        file: Buffer::from(map_unnamed(&file)?),
        batch: OnceLock::new(),
    })
}

fn write_ipc(batch: &RecordBatch, sink: &mut impl Write) -> Result<(), ArrowError> {
    let options = IpcWriteOptions::try_new(ALIGNMENT_BYTES, false, MetadataVersion::V5)?;
    let mut writer = FileWriter::try_new_with_options(sink, &batch.schema(), options)?;
    writer.write(batch)?;
    writer.finish()
}

fn write_failed(error: io::Error, folder: &Path) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::ResourcesExhausted,
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::Storage { retryable: true },
    };
    Error::new(kind, format!("a tile could not be spilled: {error}"))
        .with_file(PathBuf::from(folder).to_string_lossy())
        .with_hint("spill_to must be a folder with room for the tiles")
        .with_source(error)
}

impl SpilledTile {
    /// The batch, over the mapped file; nothing is copied.
    fn read(&self) -> Result<RecordBatch, ArrowError> {
        let bytes = self.file.as_slice();
        let torn = || ArrowError::IpcError("the spilled file is too short".to_owned());
        let trailer_at = bytes.len().checked_sub(TRAILER_BYTES).ok_or_else(torn)?;
        let trailer = bytes.get(trailer_at..).ok_or_else(torn)?;
        let length = read_footer_length(trailer.try_into().map_err(|_| torn())?)?;
        let footer = trailer_at
            .checked_sub(length)
            .and_then(|start| bytes.get(start..trailer_at))
            .ok_or_else(torn)?;
        let footer = root_as_footer(footer)
            .map_err(|error| ArrowError::IpcError(format!("the footer is torn: {error}")))?;
        let schema = footer
            .schema()
            .map(convert::fb_to_schema)
            .ok_or_else(torn)?;
        let mut decoder = FileDecoder::new(Arc::new(schema), footer.version());
        for block in footer.dictionaries().iter().flatten() {
            decoder.read_dictionary(block, &self.slice(block)?)?;
        }
        let batches = footer.recordBatches();
        let block = batches.iter().flatten().next().ok_or_else(torn)?;
        let batch = decoder.read_record_batch(block, &self.slice(block)?)?;
        batch
            .ok_or_else(torn)?
            .with_schema(Arc::clone(&self.schema))
    }

    fn slice(&self, block: &Block) -> Result<Buffer, ArrowError> {
        let outside = |_| ArrowError::IpcError("a block lies outside the file".to_owned());
        let start = usize::try_from(block.offset()).map_err(outside)?;
        let header = usize::try_from(block.metaDataLength()).map_err(outside)?;
        let body = usize::try_from(block.bodyLength()).map_err(outside)?;
        Ok(self.file.slice_with_length(start, header + body))
    }
}

#[async_trait]
impl TileData for SpilledTile {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn num_rows(&self) -> u64 {
        self.num_rows
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn locations(&self) -> Vec<Location> {
        vec![Location::here()]
    }

    fn open(&self) -> Result<RecordBatch> {
        if let Some(batch) = self.batch.get() {
            return Ok(batch.clone());
        }
        let batch = self.read().map_err(|error| {
            Error::internal(format!("a spilled tile could not be read back: {error}"))
        })?;
        Ok(self.batch.get_or_init(|| batch).clone())
    }
}
