//! Files into which queries write what has no room in memory.
//!
//! Comes in: a folder. Goes out: files in it that have no name, so that nothing is left of them however the process ends, and no folder beside that of the user is made. Never here: what
//! is written.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use futures::{Stream, stream};

use crate::error::{Error, ErrorKind, Result};

/// How much is read at once.
const READ_BYTES: usize = 128 * 1024;

/// The most that the files of one session may have at any time.
const MAX_BYTES: u64 = 100 * 1024 * 1024 * 1024;

/// Makes files in one folder.
#[derive(Debug)]
pub(super) struct SpillFolder {
    folder: PathBuf,
    /// Bytes of all files at this moment.
    used: Arc<AtomicU64>,
}

impl SpillFolder {
    /// A folder that the user named, made if it is not there, or that of the system.
    ///
    /// # Errors
    /// `Storage` when no file can be made in the folder that the user named.
    pub(super) fn try_new(named: Option<&Path>) -> Result<Self> {
        let this = Self {
            folder: named.map_or_else(std::env::temp_dir, Path::to_path_buf),
            used: Arc::default(),
        };
        if let Some(folder) = named {
            let made = std::fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder));
            drop(made.map_err(|error| failed(error, folder))?);
        }
        Ok(this)
    }
}

fn failed(error: io::Error, folder: &Path) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::ResourcesExhausted,
        _ => ErrorKind::Storage { retryable: false },
    };
    Error::new(kind, format!("a query could not write to a file: {error}"))
        .with_file(folder.to_string_lossy())
        .with_hint("spill_to must be a folder with room for what queries cannot keep in memory")
        .with_source(error)
}

impl TempFileFactory for SpillFolder {
    fn create_temp_file(&self, _: &str) -> PlanResult<Arc<dyn SpillFile>> {
        let file = tempfile::tempfile_in(&self.folder);
        let file = file.map_err(|error| failed(error, &self.folder))?;
        Ok(Arc::new(Unnamed {
            file: Arc::new(file),
            folder: self.folder.clone(),
            bytes: Arc::default(),
            used: Arc::clone(&self.used),
        }))
    }
}

/// One file. Its bytes are given back to the system when the last reader is gone.
struct Unnamed {
    file: Arc<File>,
    folder: PathBuf,
    bytes: Arc<AtomicU64>,
    used: Arc<AtomicU64>,
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        let bytes = self.bytes.load(Ordering::Acquire);
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl SpillFile for Unnamed {
    fn size(&self) -> Option<u64> {
        Some(self.bytes.load(Ordering::Acquire))
    }

    fn read_stream(&self) -> PlanResult<Pin<Box<dyn Stream<Item = PlanResult<Bytes>> + Send>>> {
        let (file, folder) = (Arc::clone(&self.file), self.folder.clone());
        let chunks = stream::try_unfold(0_u64, move |offset| {
            let (file, folder) = (Arc::clone(&file), folder.clone());
            async move {
                let reading = tokio::task::spawn_blocking(move || {
                    let mut chunk = vec![0; READ_BYTES];
                    let read = read_at(&file, &mut chunk, offset)?;
                    chunk.truncate(read);
                    Ok(chunk)
                });
                let ended = |error| DataFusionError::External(Box::new(error));
                let chunk: io::Result<Vec<u8>> = reading.await.map_err(ended)?;
                let chunk = chunk.map_err(|error| unreadable(error, &folder))?;
                let next = offset + chunk.len() as u64;
                Ok((!chunk.is_empty()).then(|| (Bytes::from(chunk), next)))
            }
        });
        Ok(Box::pin(chunks))
    }

    fn open_writer(&self) -> PlanResult<Box<dyn SpillWriter>> {
        Ok(Box::new(Writer {
            file: Arc::clone(&self.file),
            folder: self.folder.clone(),
            bytes: Arc::clone(&self.bytes),
            used: Arc::clone(&self.used),
        }))
    }
}

fn unreadable(error: io::Error, folder: &Path) -> Error {
    let kind = ErrorKind::Storage { retryable: false };
    let text = format!("what a query wrote to a file could not be read back: {error}");
    Error::new(kind, text)
        .with_file(folder.to_string_lossy())
        .with_source(error)
}

#[cfg(unix)]
fn read_at(file: &File, chunk: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, chunk, offset)
}

#[cfg(windows)]
fn read_at(file: &File, chunk: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, chunk, offset)
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::write_at(file, bytes, offset)
}

#[cfg(windows)]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_write(file, bytes, offset)
}

/// Writes to the end of a file.
struct Writer {
    file: Arc<File>,
    folder: PathBuf,
    bytes: Arc<AtomicU64>,
    used: Arc<AtomicU64>,
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.used.load(Ordering::Acquire) >= MAX_BYTES {
            let text = "the files that the queries of a session spill to have 100 GiB, they may not have more";
            let error = Error::new(ErrorKind::ResourcesExhausted, text)
                .with_hint("raise memory_limit, or ask for fewer rows or columns");
            return Err(io::Error::other(error));
        }
        let end = self.bytes.load(Ordering::Acquire);
        let written = write_at(&self.file, bytes, end)
            .map_err(|error| io::Error::other(failed(error, &self.folder)))?;
        self.bytes.fetch_add(written as u64, Ordering::AcqRel);
        self.used.fetch_add(written as u64, Ordering::AcqRel);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SpillWriter for Writer {
    fn finish(&mut self) -> PlanResult<()> {
        Ok(())
    }
}
