//! Tiles that lie in files of this process: Arrow IPC, mapped back.
//!
//! Comes in: a batch, a folder. Goes out: a tile that takes no memory until it is opened. The file has no name, so that nothing is left behind however the process
//! ends. Never here: which tiles are spilled.

use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use async_trait::async_trait;

use crate::error::{Error, ErrorKind, Result};
use crate::grid::{TileData, slice_bytes};
use crate::location::{Locality, Location};
use crate::share::{ipc, map_unnamed};

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

/// Makes the folder, if it is not there, and sees that files can be written to it: a load that comes to need it would fail in its midst.
pub(super) fn prepare(folder: &Path) -> Result<()> {
    let made = std::fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder));
    let made = made.map(drop);
    made.map_err(|error| write_failed(error, folder, "spill_to"))
}

/// Writes a batch to a file without a name in `folder`.
pub(super) fn spill(batch: &RecordBatch, folder: &Path) -> Result<SpilledTile> {
    let failed = |error: io::Error| write_failed(error, folder, "spill_to");
    let file = tempfile::tempfile_in(folder).map_err(failed)?;
    let mut sink = BufWriter::new(&file);
    ipc::write(batch, &[], &mut sink).map_err(|error| match error {
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

/// An error of the file system while a tile was written into `folder`, which the setting `setting` named.
pub(super) fn write_failed(error: io::Error, folder: &Path, setting: &str) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::ResourcesExhausted,
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::Storage { retryable: true },
    };
    Error::new(kind, format!("a tile could not be written: {error}"))
        .with_file(PathBuf::from(folder).to_string_lossy())
        .with_hint(format!(
            "{setting} must be a folder with room for the tiles"
        ))
        .with_source(error)
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

    fn locality(&self) -> Locality {
        Locality::File
    }

    fn open(&self) -> Result<RecordBatch> {
        if let Some(batch) = self.batch.get() {
            return Ok(batch.clone());
        }
        let read = ipc::read(&self.file).and_then(|(batch, _)| batch.with_schema(self.schema()));
        let batch = read.map_err(|error| {
            Error::internal(format!("a spilled tile could not be read back: {error}"))
        })?;
        Ok(self.batch.get_or_init(|| batch).clone())
    }
}
