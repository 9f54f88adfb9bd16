//! The bytes of a source file: ranges for footers, pages for the decoder.
//!
//! Comes in: byte ranges. Goes out: exactly these bytes, or an error; a file that changed since it was listed is noticed. Local files are read where they are needed,
//! in blocks, while they are decoded; other stores are asked for all ranges at once. Never here: what the bytes mean.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path as ObjectPath;
use object_store::{GetOptions, GetRange};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::claims::Claims;
use super::error::from_io;
use super::ranges::requests;
use super::source::{Place, Remote, SourceFile, stamp_of};
use crate::error::{Error, ErrorKind, Result};

/// How much of a local column chunk is read at once.
const BLOCK_BYTES: u64 = 1 << 20;

/// How many requests for one row band are under way.
const REQUESTS_AT_ONCE: usize = 8;

/// One range of a file. Blocks for a local file.
pub(super) async fn fetch(file: &SourceFile, range: Range<u64>) -> Result<Bytes> {
    match &file.place {
        Place::Local(path) => {
            let opened = open(file, path)?;
            read_at(&opened, range).map_err(|error| short_or_failed(error, file))
        }
        Place::Remote { remote, path } => ask(file, remote, path, range).await,
    }
}

/// One range of an object, if it is still the one that was listed.
async fn ask(
    file: &SourceFile,
    remote: &Remote,
    path: &ObjectPath,
    range: Range<u64>,
) -> Result<Bytes> {
    let wanted = range.end - range.start;
    // A weak etag never matches.
    let strong = file.stamp.as_ref().filter(|stamp| !stamp.starts_with("W/"));
    let options = GetOptions {
        range: Some(GetRange::Bounded(range)),
        if_match: strong.cloned(),
        ..GetOptions::default()
    };
    let failed = |error| remote.error(error, &file.name);
    let answer = remote.store.get_opts(path, options).await.map_err(failed)?;
    if let (Some(listed), Some(now)) = (&file.stamp, &answer.meta.e_tag)
        && listed != now
    {
        return Err(changed(file, "its etag is another one"));
    }
    let bytes = answer.bytes().await.map_err(failed)?;
    if bytes.len() as u64 == wanted {
        return Ok(bytes);
    }
    let text = format!(
        "{wanted} bytes were asked for, the store sent {}",
        bytes.len()
    );
    Err(Error::new(ErrorKind::Storage { retryable: true }, text).with_file(&file.name))
}

/// The pages in the ranges, which must be sorted and must not overlap. Nothing is read yet of a local file.
pub(super) async fn pages(file: &SourceFile, ranges: &[Range<u64>]) -> Result<Pages> {
    let source = match &file.place {
        Place::Local(path) => PageSource::Local {
            file: Arc::new(open(file, path)?),
            ranges: ranges.into(),
        },
        Place::Remote { remote, path } => {
            let parts: Vec<(u64, Bytes)> = stream::iter(requests(ranges))
                .map(|range| async move {
                    let start = range.start;
                    Ok::<_, Error>((start, ask(file, remote, path, range).await?))
                })
                .buffered(REQUESTS_AT_ONCE)
                .try_collect()
                .await?;
            let pieces = ranges
                .iter()
                .map(|range| (range.start, piece(&parts, range)));
            PageSource::Fetched(pieces.collect())
        }
    };
    Ok(Pages {
        file_bytes: file.size_bytes,
        source,
        block: Mutex::default(),
        claims: None,
    })
}

/// A range out of the parts that cover it; copied only where it lies in several.
fn piece(parts: &[(u64, Bytes)], range: &Range<u64>) -> Bytes {
    let overlapping = parts.iter().filter_map(|(start, bytes)| {
        let inside = |offset: u64| {
            let offset = offset.saturating_sub(*start).min(bytes.len() as u64);
            usize::try_from(offset).unwrap_or(0)
        };
        let (from, to) = (inside(range.start), inside(range.end));
        (from < to).then(|| bytes.slice(from..to))
    });
    let mut overlapping: Vec<Bytes> = overlapping.collect();
    match (overlapping.pop(), overlapping.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            overlapping.extend(last);
            Bytes::from(overlapping.concat())
        }
    }
}

/// Opens a local file and sees that it is the one that was listed.
fn open(file: &SourceFile, path: &Path) -> Result<File> {
    let opened = File::open(path).map_err(|error| from_io(error, &file.name))?;
    let metadata = opened
        .metadata()
        .map_err(|error| from_io(error, &file.name))?;
    if file.stamp == Some(stamp_of(&metadata)) {
        return Ok(opened);
    }
    Err(changed(file, "it is not the file that was listed"))
}

fn changed(file: &SourceFile, what: &str) -> Error {
    Error::invalid_data(format!("the file changed while it was read: {what}"))
        .with_file(&file.name)
        .with_hint("load again when nobody writes to it")
}

fn short_or_failed(error: io::Error, file: &SourceFile) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => changed(file, "it is shorter than when it was listed"),
        _ => from_io(error, &file.name),
    }
}

/// Exactly the bytes of a range, without zeroing the memory first.
fn read_at(file: &File, range: Range<u64>) -> io::Result<Bytes> {
    let wanted = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(wanted)
        .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    while bytes.len() < wanted {
        let offset = range.start + bytes.len() as u64;
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(wanted);
    Ok(Bytes::from(bytes))
}

/// Some column chunks of a file, under the offsets that they have in it.
#[derive(Debug)]
pub(super) struct Pages {
    file_bytes: u64,
    source: PageSource,
    /// The part of a local file that was read last, and where it starts.
    block: Mutex<(u64, Bytes)>,
    /// Looks at pages before a decoder gets them.
    claims: Option<Arc<Claims>>,
}

#[derive(Debug, Clone)]
enum PageSource {
    Local {
        file: Arc<File>,
        ranges: Arc<[Range<u64>]>,
    },
    /// By offset, not overlapping.
    Fetched(Arc<[(u64, Bytes)]>),
}

impl Clone for Pages {
    /// Shares the bytes; each clone has a block of its own, so that clones do not disturb each other.
    fn clone(&self) -> Self {
        Self {
            file_bytes: self.file_bytes,
            source: self.source.clone(),
            block: Mutex::default(),
            claims: self.claims.clone(),
        }
    }
}

impl Pages {
    /// The same, for one decoder of these columns.
    pub(super) fn checked(&self, claims: Claims) -> Self {
        let mut pages = self.clone();
        pages.claims = Some(Arc::new(claims));
        pages
    }

    /// So many bytes from `start` on.
    fn exactly(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let rest = self.rest(start, length as u64)?;
        if length > rest.len() {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at {start} reach past the column chunk"
            )));
        }
        Ok(rest.slice(..length))
    }

    /// The bytes from `start` on: at least one, and `wanted` if the column chunk has so many.
    fn rest(&self, start: u64, wanted: u64) -> Result<Bytes, ParquetError> {
        match &self.source {
            PageSource::Fetched(pieces) => {
                let after = pieces.partition_point(|(offset, _)| *offset <= start);
                let piece = after.checked_sub(1).and_then(|place| pieces.get(place));
                piece
                    .and_then(|(offset, bytes)| tail(*offset, bytes, start))
                    .ok_or_else(|| outside(start))
            }
            PageSource::Local { file, ranges } => {
                let mut block = self.block.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(bytes) = tail(block.0, &block.1, start)
                    && bytes.len() as u64 >= wanted
                {
                    return Ok(bytes);
                }
                let chunk = ranges.iter().find(|range| range.contains(&start));
                let end = chunk.ok_or_else(|| outside(start))?.end;
                let stop = start.saturating_add(wanted.max(BLOCK_BYTES)).min(end);
                let read = read_at(file, start..stop);
                *block = (
                    start,
                    read.map_err(|error| ParquetError::External(error.into()))?,
                );
                Ok(block.1.clone())
            }
        }
    }
}

fn tail(offset: u64, bytes: &Bytes, start: u64) -> Option<Bytes> {
    let skip = usize::try_from(start.checked_sub(offset)?).ok()?;
    (skip < bytes.len()).then(|| bytes.slice(skip..))
}

fn outside(start: u64) -> ParquetError {
    ParquetError::EOF(format!("offset {start} lies outside the column chunks"))
}

impl Length for Pages {
    fn len(&self) -> u64 {
        self.file_bytes
    }
}

impl ChunkReader for Pages {
    type T = PageRead;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(PageRead {
            bytes: self.rest(start, 1)?,
            start,
            next: start,
            pages: self.clone(),
        }
        .counted())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let bytes = match length {
            0 => Bytes::new(),
            _ => self.exactly(start, length)?,
        };
        if let Some(claims) = &self.claims {
            claims.check(start, &bytes)?;
        }
        Ok(bytes)
    }
}

/// Reads on from an offset, block after block, to the end of the column chunk.
#[derive(Debug)]
pub(super) struct PageRead {
    bytes: Bytes,
    /// Where it began to read.
    start: u64,
    /// Where `bytes` ends in the file.
    next: u64,
    pages: Pages,
}

impl PageRead {
    fn counted(mut self) -> Self {
        self.next += self.bytes.len() as u64;
        self
    }
}

impl Read for PageRead {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.bytes.is_empty() {
            self.bytes = match self.pages.rest(self.next, 1) {
                // Past the end of the chunk there is nothing more.
                Err(ParquetError::EOF(_)) => return Ok(0),
                read => read.map_err(io::Error::other)?,
            };
            self.next += self.bytes.len() as u64;
        }
        let count = into.len().min(self.bytes.len());
        let (Some(into), Some(from)) = (into.get_mut(..count), self.bytes.get(..count)) else {
            return Ok(0);
        };
        into.copy_from_slice(from);
        if let Some(claims) = &self.pages.claims {
            claims.note(self.start, into);
        }
        self.bytes.advance(count);
        Ok(count)
    }
}
