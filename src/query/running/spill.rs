//! Files into which queries write what has no room in memory.
//!
//! Comes in: a folder, and how many bytes all files may have. Goes out: files in it that have no name, so that nothing is left of them however the process ends, and no folder beside that of the user is made. Never here: what
//! is written.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use futures::{Stream, stream};

use super::bounds::{SessionMemory, size};
use crate::error::{Error, ErrorKind, Result};
use crate::query::session::Session;

/// How much is read at once.
const READ_BYTES: usize = 128 * 1024;

/// What a hint says where spilled files have no room; a server says it in its settings.
pub(crate) const RAISE_SPILL_LIMIT: &str = "raise spill_limit or memory_limit";

/// Makes files in one folder.
#[derive(Debug)]
pub(in crate::query) struct SpillFolder {
    folder: PathBuf,
    /// What the files of all queries may have together, and have.
    room: Arc<SessionMemory>,
}

impl SpillFolder {
    /// A folder that the user named, made if it is not there, or that of the system.
    ///
    /// # Errors
    /// `Storage` when no file can be made in the folder that the user named.
    pub(in crate::query) fn try_new(
        named: Option<&Path>,
        room: &Arc<SessionMemory>,
    ) -> Result<Self> {
        let this = Self {
            folder: named.map_or_else(std::env::temp_dir, Path::to_path_buf),
            room: Arc::clone(room),
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

/// There is no room for so many bytes more.
fn exhausted(room: &SessionMemory, more: usize) -> Error {
    let (limit, more) = (size(room.limit()), size(more));
    let text = format!(
        "the files that queries spill to may have {limit} together, there is no room for {more} more"
    );
    Error::new(ErrorKind::ResourcesExhausted, text).with_hint(format!(
        "{RAISE_SPILL_LIMIT}, or ask for fewer rows or columns"
    ))
}

impl Session {
    /// Bytes of the files that running queries have spilled to, at this moment.
    #[must_use]
    pub fn spilled_bytes(&self) -> usize {
        self.spilled.used()
    }

    /// The most that these files may have together.
    #[must_use]
    pub fn spill_limit_bytes(&self) -> usize {
        self.spilled.limit()
    }
}

impl TempFileFactory for SpillFolder {
    fn create_temp_file(&self, _: &str) -> PlanResult<Arc<dyn SpillFile>> {
        let file = tempfile::tempfile_in(&self.folder);
        let file = file.map_err(|error| failed(error, &self.folder))?;
        Ok(Arc::new(Unnamed(Arc::new(Content {
            file,
            folder: self.folder.clone(),
            bytes: AtomicUsize::new(0),
            room: Arc::clone(&self.room),
        }))))
    }
}

/// What is in one file. Its bytes are given back once nobody writes or reads it any more, as the system does it.
struct Content {
    file: File,
    folder: PathBuf,
    bytes: AtomicUsize,
    room: Arc<SessionMemory>,
}

impl Drop for Content {
    fn drop(&mut self) {
        self.room.give(self.bytes.load(Ordering::Acquire));
    }
}

/// One file.
struct Unnamed(Arc<Content>);

impl SpillFile for Unnamed {
    fn size(&self) -> Option<u64> {
        Some(self.0.bytes.load(Ordering::Acquire) as u64)
    }

    fn read_stream(&self) -> PlanResult<Pin<Box<dyn Stream<Item = PlanResult<Bytes>> + Send>>> {
        let content = Arc::clone(&self.0);
        let chunks = stream::try_unfold(0_u64, move |offset| {
            let content = Arc::clone(&content);
            async move {
                let from = Arc::clone(&content);
                let reading = tokio::task::spawn_blocking(move || {
                    let mut chunk = vec![0; READ_BYTES];
                    let read = read_at(&from.file, &mut chunk, offset)?;
                    chunk.truncate(read);
                    Ok(chunk)
                });
                let ended = |error| DataFusionError::External(Box::new(error));
                let chunk: io::Result<Vec<u8>> = reading.await.map_err(ended)?;
                let chunk = chunk.map_err(|error| unreadable(error, &content.folder))?;
                let next = offset + chunk.len() as u64;
                Ok((!chunk.is_empty()).then(|| (Bytes::from(chunk), next)))
            }
        });
        Ok(Box::pin(chunks))
    }

    fn open_writer(&self) -> PlanResult<Box<dyn SpillWriter>> {
        Ok(Box::new(Writer(Arc::clone(&self.0))))
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
struct Writer(Arc<Content>);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Content {
            file,
            folder,
            bytes: length,
            room,
        } = self.0.as_ref();
        if !room.try_take(bytes.len()) {
            return Err(io::Error::other(exhausted(room, bytes.len())));
        }
        let end = length.load(Ordering::Acquire);
        match write_at(file, bytes, end as u64) {
            Ok(written) => {
                room.give(bytes.len().saturating_sub(written));
                length.fetch_add(written, Ordering::AcqRel);
                Ok(written)
            }
            Err(error) => {
                room.give(bytes.len());
                Err(io::Error::other(failed(error, folder)))
            }
        }
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
