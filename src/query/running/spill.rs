//! Files into which queries write what has no room in memory.
//!
//! Comes in: a folder, and how many bytes all files may have. Goes out: what the engine takes for files: parts of one in that folder that has no name, so that nothing is left of it however the process ends, and no folder beside that of the user is made. There may be thousands of parts, far more than a
//! process may have files open. Never here: what is written.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use futures::{Stream, stream};

use super::bounds::{SessionMemory, size};
use crate::error::{Error, ErrorKind, Result};
use crate::query::session::Session;

/// How much is read at once, and what each part of a file has at least.
const BLOCK_BYTES: usize = 128 * 1024;

/// What a hint says where spilled files have no room; a server says it in its settings.
pub(crate) const RAISE_SPILL_LIMIT: &str = "raise spill_limit or memory_limit";

/// A part of so few bytes is read at once.
const SMALL_BYTES: usize = 64 * 1024;

/// So many blocks stay in a file of which none is taken, 2 MiB.
const MOST_FREE: u64 = 16;

/// Makes files in one folder.
#[derive(Debug)]
pub(in crate::query) struct SpillFolder {
    folder: PathBuf,
    /// What the files of all queries may have together, and have.
    room: Arc<SessionMemory>,
    /// The file, as long as anything is in it.
    file: Mutex<Weak<Blocks>>,
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
            file: Mutex::default(),
        };
        if let Some(folder) = named {
            let made = std::fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder));
            drop(made.map_err(|error| failed(error, folder))?);
        }
        Ok(this)
    }

    fn blocks(&self) -> Result<Arc<Blocks>> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(blocks) = file.upgrade() {
            return Ok(blocks);
        }
        let made = tempfile::tempfile_in(&self.folder);
        let blocks = Arc::new(Blocks {
            file: made.map_err(|error| failed(error, &self.folder))?,
            folder: self.folder.clone(),
            space: Mutex::default(),
        });
        *file = Arc::downgrade(&blocks);
        Ok(blocks)
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
        Ok(Arc::new(Part(Arc::new(Content {
            blocks: self.blocks()?,
            places: Mutex::default(),
            bytes: AtomicUsize::new(0),
            room: Arc::clone(&self.room),
        }))))
    }
}

/// A file without a name, in blocks of [`BLOCK_BYTES`], and which of them are taken.
#[derive(Debug)]
struct Blocks {
    file: File,
    folder: PathBuf,
    space: Mutex<Space>,
}

#[derive(Debug, Default)]
struct Space {
    /// Those that were given back.
    free: Vec<u64>,
    /// How many there are.
    count: u64,
}

impl Blocks {
    fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> u64 {
        let mut space = self.space();
        space.free.pop().unwrap_or_else(|| {
            space.count += 1;
            space.count - 1
        })
    }

    /// Gives some back; a large file has no bytes any more once all are.
    fn give(&self, places: Vec<u64>) {
        let mut space = self.space();
        space.free.extend(places);
        if space.free.len() as u64 == space.count && space.count > MOST_FREE {
            *space = Space::default();
            // Else they are there until the file is closed.
            drop(self.file.set_len(0));
        }
    }
}

/// What is in one part. Its bytes are given back once nobody writes or reads it any more, as the system does it for a file.
struct Content {
    blocks: Arc<Blocks>,
    /// The blocks that it has, in order.
    places: Mutex<Vec<u64>>,
    bytes: AtomicUsize,
    room: Arc<SessionMemory>,
}

impl Content {
    fn places(&self) -> MutexGuard<'_, Vec<u64>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a byte is in the file, and how many behind it are there as well.
    fn place(&self, byte: usize) -> Option<(u64, usize)> {
        let place = *self.places().get(byte / BLOCK_BYTES)?;
        let within = byte % BLOCK_BYTES;
        let offset = place * BLOCK_BYTES as u64 + within as u64;
        Some((offset, BLOCK_BYTES - within))
    }

    /// Bytes from one on, up to the end of its block; none at the end.
    fn read(&self, byte: usize) -> io::Result<Vec<u8>> {
        let written = self.bytes.load(Ordering::Acquire).saturating_sub(byte);
        let Some((offset, there)) = self.place(byte).filter(|_| written > 0) else {
            return Ok(Vec::new());
        };
        let mut chunk = vec![0; there.min(written)];
        let read = read_at(&self.blocks.file, &mut chunk, offset)?;
        chunk.truncate(read);
        Ok(chunk)
    }

    /// Puts bytes behind the others, as many as the last block takes.
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let end = self.bytes.load(Ordering::Acquire);
        if end.is_multiple_of(BLOCK_BYTES) && self.places().len() == end / BLOCK_BYTES {
            let place = self.blocks.take();
            self.places().push(place);
        }
        let Some((offset, there)) = self.place(end) else {
            return Err(io::Error::other("a part of a file without its last block"));
        };
        let bytes = bytes.get(..there).unwrap_or(bytes);
        if !self.room.try_take(bytes.len()) {
            return Err(io::Error::other(exhausted(&self.room, bytes.len())));
        }
        match write_at(&self.blocks.file, bytes, offset) {
            Ok(written) => {
                self.room.give(bytes.len().saturating_sub(written));
                self.bytes.fetch_add(written, Ordering::AcqRel);
                Ok(written)
            }
            Err(error) => {
                self.room.give(bytes.len());
                Err(io::Error::other(failed(error, &self.blocks.folder)))
            }
        }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.room.give(self.bytes.load(Ordering::Acquire));
        let places = std::mem::take(&mut *self.places());
        self.blocks.give(places);
    }
}

/// What the engine takes for a file.
struct Part(Arc<Content>);

impl SpillFile for Part {
    fn size(&self) -> Option<u64> {
        Some(self.0.bytes.load(Ordering::Acquire) as u64)
    }

    fn read_stream(&self) -> PlanResult<Pin<Box<dyn Stream<Item = PlanResult<Bytes>> + Send>>> {
        let content = Arc::clone(&self.0);
        let chunks = stream::try_unfold(0, move |byte| {
            let content = Arc::clone(&content);
            async move {
                // The little that was written last is at hand; for more, another thread waits.
                let chunk = if content.bytes.load(Ordering::Acquire) <= SMALL_BYTES {
                    content.read(byte)
                } else {
                    let from = Arc::clone(&content);
                    let reading = tokio::task::spawn_blocking(move || from.read(byte));
                    let ended = |error| DataFusionError::External(Box::new(error));
                    reading.await.map_err(ended)?
                };
                let chunk = chunk.map_err(|error| unreadable(error, &content.blocks.folder))?;
                let next = byte + chunk.len();
                Ok((!chunk.is_empty()).then(|| (Bytes::from(chunk), next)))
            }
        });
        Ok(Box::pin(chunks))
    }

    fn open_writer(&self) -> PlanResult<Box<dyn SpillWriter>> {
        Ok(Box::new(Writer {
            content: Arc::clone(&self.0),
            waiting: Vec::new(),
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

/// Writes to the end of a part. The engine writes a few bytes at a time; they wait until they are many, or to be read.
struct Writer {
    content: Arc<Content>,
    waiting: Vec<u8>,
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.waiting.len() + bytes.len() <= BLOCK_BYTES {
            self.waiting.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        self.flush()?;
        self.content.append(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut rest = self.waiting.as_slice();
        while !rest.is_empty() {
            match self.content.append(rest)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => rest = rest.get(written..).unwrap_or_default(),
            }
        }
        self.waiting.clear();
        Ok(())
    }
}

impl SpillWriter for Writer {
    fn finish(&mut self) -> PlanResult<()> {
        Ok(self.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::*;

    /// What is in a part.
    fn read(part: &Arc<dyn SpillFile>) -> Vec<u8> {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let chunks = part.read_stream().unwrap().try_collect::<Vec<_>>();
        runtime.block_on(chunks).unwrap().concat()
    }

    #[test]
    fn parts_that_grow_in_turns_have_their_own_bytes() {
        let room = Arc::new(SessionMemory::new(100 << 20));
        let folder = SpillFolder::try_new(None, &room).unwrap();
        let parts = [0_u8, 1, 2].map(|_| folder.create_temp_file("").unwrap());
        let mut writers = parts.each_ref().map(|part| part.open_writer().unwrap());
        let mut expected = [const { Vec::new() }; 3];
        for turn in 0..40_u8 {
            for (number, (writer, expected)) in (0..).zip(writers.iter_mut().zip(&mut expected)) {
                let bytes = vec![turn * 3 + number; 10_001];
                writer.write_all(&bytes).unwrap();
                writer.flush().unwrap();
                expected.extend(bytes);
                // While others are written.
                if turn % 20 == 5 {
                    assert!(read(&parts[usize::from(number)]) == *expected);
                }
            }
        }
        assert_eq!(room.used(), 3 * 40 * 10_001);
        for (part, expected) in parts.iter().zip(&expected) {
            assert!(read(part) == *expected);
        }
        // Blocks that were given back are taken again.
        let [first, second, third] = parts;
        drop((first, writers));
        assert_eq!(room.used(), 2 * 40 * 10_001);
        let fourth = folder.create_temp_file("").unwrap();
        let bytes = vec![9; 500_000];
        let mut writer = fourth.open_writer().unwrap();
        writer.write_all(&bytes).unwrap();
        writer.finish().unwrap();
        assert!(read(&fourth) == bytes);
        assert!(read(&second) == expected[1]);
        let blocks = folder.blocks().unwrap();
        assert_eq!(blocks.space().count, 12);
        drop((second, third, fourth, writer));
        assert_eq!(blocks.space().free.len(), 12);
        assert_eq!(room.used(), 0);
        // Of a large file nothing stays.
        let large = folder.create_temp_file("").unwrap();
        let bytes = vec![1; BLOCK_BYTES];
        let mut writer = large.open_writer().unwrap();
        (0..=MOST_FREE).for_each(|_| writer.write_all(&bytes).unwrap());
        writer.flush().unwrap();
        drop((large, writer));
        assert_eq!(blocks.space().count, 0);
        assert_eq!(blocks.file.metadata().unwrap().len(), 0);
    }

    #[test]
    fn what_has_no_room_is_said_and_not_counted() {
        let room = Arc::new(SessionMemory::new(200_000));
        let folder = SpillFolder::try_new(None, &room).unwrap();
        let part = folder.create_temp_file("").unwrap();
        let mut writer = part.open_writer().unwrap();
        writer.write_all(&vec![1; 190_000]).unwrap();
        writer.flush().unwrap();
        writer.write_all(&[2; 20_000]).unwrap();
        let error = writer.flush().unwrap_err();
        assert!(error.to_string().contains("spill"), "{error}");
        assert_eq!((room.used(), read(&part).len()), (190_000, 190_000));
    }
}
