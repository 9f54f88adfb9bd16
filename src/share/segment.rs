//! Segments: the bytes of one tile in memory that other processes can map, and that nobody can change any more.
//!
//! Comes in: a batch to publish, or a descriptor that another process sent. Goes out: the batch over the mapped memory, which lives as long as any of its arrays. A segment is an Arrow IPC
//! file in a memfd, sealed before anybody else sees it. Never here: who gets it; memory that somebody could still write or shorten: reading that could end the process.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::ops::Range;
use std::os::fd::OwnedFd;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use bytes::Bytes;
use memmap2::Mmap;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

use super::{ipc, sealed};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::slice_bytes;

/// What makes a segment safe to read: nobody can write, shorten or lengthen it, and nobody can take these seals away.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::WRITE)
    .union(SealFlags::SEAL);

/// What `statfs` says of memory files with ordinary pages; pages of hugetlbfs may be missing when they are read.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// The number of bytes in a block of `stat`, on all machines.
const BLOCK_BYTES: u64 = 512;

/// The key of the footer for [`Content::memory_bytes`].
const MEMORY_BYTES: &str = "partgrid.memory_bytes";

const WRITE_BYTES: usize = 1 << 16;

/// A batch over a mapped segment.
#[derive(Debug, Clone)]
pub(super) struct Content {
    pub(super) batch: RecordBatch,
    /// Bytes of values, offsets and validity.
    pub(super) memory_bytes: u64,
    /// Bytes of the segment: the same with padding and schema.
    pub(super) segment_bytes: u64,
    /// Bytes that could not stay where they are, because a foreign writer did not align them.
    pub(super) copied_bytes: u64,
}

/// Copies a batch into a segment, once: its descriptor, and the batch over it.
///
/// # Errors
/// `ResourcesExhausted` without room or descriptors; `Unsupported` for a type that Arrow IPC cannot hold.
pub(super) fn publish(batch: &RecordBatch) -> Result<(File, Content)> {
    let memory_bytes = slice_bytes(batch);
    check_room(memory_bytes)?;
    let mut file = File::from(create().map_err(|error| failed("made", error.into()))?);
    let metadata = memory_bytes.to_string();
    let metadata = [(MEMORY_BYTES, metadata.as_str())];
    let mut sink = BufWriter::with_capacity(WRITE_BYTES, &mut file);
    let written = ipc::write(&without_waste(batch)?, &metadata, &mut sink);
    written.map_err(|error| match error {
        ArrowError::IoError(_, error) => failed("written", error),
        other => not_written(&other),
    })?;
    sink.flush().map_err(|error| failed("written", error))?;
    drop(sink);
    rustix::fs::fcntl_add_seals(&file, SEALS).map_err(|error| failed("sealed", error.into()))?;
    let content = read(map(&file)?, Bytes::from_owner)?;
    // Names and metadata as they are, should a foreign schema have more than IPC keeps.
    let batch = content.batch.with_schema(batch.schema());
    let batch = batch.map_err(|error| not_written(&error))?;
    Ok((file, Content { batch, ..content }))
}

/// The batch of a descriptor that another process sent; `kept` puts beside the mapping what shall live as long.
///
/// # Errors
/// `InvalidData` when the descriptor is not a sealed memory file of `segment_bytes`, or holds no batch.
pub(super) fn receive(
    descriptor: OwnedFd,
    segment_bytes: u64,
    kept: impl FnOnce(Mmap) -> Bytes,
) -> Result<Content> {
    let file = File::from(descriptor);
    check(&file, segment_bytes)?;
    read(map(&file)?, kept)
}

fn create() -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create("partgrid", flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3.
        Err(Errno::INVAL) => rustix::fs::memfd_create("partgrid", flags),
        made => made,
    }
}

/// Whether the descriptor is what a segment must be.
fn check(file: &File, segment_bytes: u64) -> Result<()> {
    let refused = |text: String| {
        Err(Error::invalid_data(text)
            .with_hint("a process of this user sends what partgrid does not: see `partgrid ps`"))
    };
    let seals = rustix::fs::fcntl_get_seals(file);
    let sealed = seals.as_ref().is_ok_and(|seals| seals.contains(SEALS));
    let kind = rustix::fs::fstatfs(file);
    let plain = kind.is_ok_and(|kind| u64::try_from(kind.f_type).ok() == Some(TMPFS_MAGIC));
    if !sealed || !plain {
        let found = match seals {
            Ok(seals) if !plain => format!("seals {:#x} on other pages", seals.bits()),
            Ok(seals) => format!("seals {:#x}", seals.bits()),
            Err(_) => "no memory file".to_owned(),
        };
        return refused(format!(
            "a shared tile must be a memory file with the seals {:#x}, so that nobody can change it while it is read, got {found}",
            SEALS.bits()
        ));
    }
    let status = rustix::fs::fstat(file).map_err(|error| failed("looked at", error.into()))?;
    let found = u64::try_from(status.st_size).unwrap_or(0);
    if found != segment_bytes || found == 0 {
        return refused(format!(
            "a shared tile must have the {segment_bytes} bytes that its owner said, got {found}"
        ));
    }
    let present = u64::try_from(status.st_blocks).unwrap_or(0);
    if present.saturating_mul(BLOCK_BYTES) < found {
        return refused(
            "a shared tile must be in memory as a whole, got one with holes".to_owned(),
        );
    }
    Ok(())
}

#[expect(
    unsafe_code,
    reason = "mapping is unsafe since the file could be cut short meanwhile"
)]
fn map(file: &File) -> Result<Mmap> {
    // SAFETY: the file is sealed, which was done or checked before: nobody can write or shorten it.
    let mapped = unsafe { Mmap::map(file) };
    mapped.map_err(|error| {
        let error = failed("mapped", error);
        error.with_hint("a process may have so many mappings: make tiles larger (tile_rows), or raise vm.max_map_count")
    })
}

fn read(map: Mmap, kept: impl FnOnce(Mmap) -> Bytes) -> Result<Content> {
    let start = map.as_ptr().addr();
    let range = start..start + map.len();
    let segment_bytes = map.len() as u64;
    let file = Buffer::from(kept(map));
    let (batch, metadata) = sealed::read(&file).map_err(|error| {
        let text = format!("a shared tile could not be read: {error}");
        Error::invalid_data(text).with_source(error)
    })?;
    let known = metadata
        .get(MEMORY_BYTES)
        .and_then(|text| text.parse().ok());
    Ok(Content {
        memory_bytes: known.unwrap_or_else(|| slice_bytes(&batch)),
        copied_bytes: bytes_outside(&batch, &range),
        segment_bytes,
        batch,
    })
}

/// Bytes of the buffers of a batch that do not lie in a range of addresses.
fn bytes_outside(batch: &RecordBatch, range: &Range<usize>) -> u64 {
    let columns = batch.columns().iter();
    let bytes: usize = columns
        .map(|column| data_outside(&column.to_data(), range))
        .sum();
    bytes as u64
}

fn data_outside(data: &ArrayData, range: &Range<usize>) -> usize {
    let validity = data.nulls().map(NullBuffer::buffer);
    let buffers = data.buffers().iter().chain(validity);
    let outside = buffers.filter(|buffer| !range.contains(&buffer.as_ptr().addr()));
    let bytes: usize = outside.map(Buffer::len).sum();
    let children = data.child_data().iter();
    bytes
        + children
            .map(|child| data_outside(child, range))
            .sum::<usize>()
}

/// The batch with what it keeps of longer texts left out: IPC writes the buffers of views as they are.
fn without_waste(batch: &RecordBatch) -> Result<RecordBatch> {
    if batch.num_rows() == 0 {
        // Of no rows of run-end encoded columns, the writer of arrow 59 makes a run that ends at 0.
        return Ok(RecordBatch::new_empty(batch.schema()));
    }
    let columns: Vec<ArrayRef> = batch.columns().iter().map(tight).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let batch = RecordBatch::try_new_with_options(batch.schema(), columns, &options);
    batch.map_err(|error| not_written(&error))
}

fn tight(column: &ArrayRef) -> ArrayRef {
    let used = |needed: usize, buffers: &[Buffer]| {
        needed.saturating_mul(2) >= buffers.iter().map(Buffer::len).sum()
    };
    match column.data_type() {
        DataType::Utf8View => {
            let views = column.as_string_view();
            match used(views.total_buffer_bytes_used(), views.data_buffers()) {
                true => ArrayRef::clone(column),
                false => std::sync::Arc::new(views.gc()),
            }
        }
        DataType::BinaryView => {
            let views = column.as_binary_view();
            match used(views.total_buffer_bytes_used(), views.data_buffers()) {
                true => ArrayRef::clone(column),
                false => std::sync::Arc::new(views.gc()),
            }
        }
        _ => ArrayRef::clone(column),
    }
}

/// Refuses to fill the memory of the machine, where the system says how much there is.
fn check_room(bytes: u64) -> Result<()> {
    let Ok(text) = std::fs::read_to_string("/proc/meminfo") else {
        return Ok(());
    };
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    match kibibytes.map(|number| number.saturating_mul(1024)) {
        Some(available) if bytes > available => Err(Error::new(
            ErrorKind::ResourcesExhausted,
            format!("a tile of {bytes} bytes does not fit beside what is in memory: {available} bytes are available"),
        )
        .with_hint("make tiles smaller (tile_rows)")),
        _ => Ok(()),
    }
}

fn not_written(error: &ArrowError) -> Error {
    Error::unsupported(format!("a tile cannot be shared: {error}"))
        .with_hint("cast the column first, with SQL")
}

fn failed(what: &str, error: std::io::Error) -> Error {
    use std::io::ErrorKind::{OutOfMemory, StorageFull};
    let text = format!("shared memory could not be {what}: {error}");
    let full = matches!(error.kind(), OutOfMemory | StorageFull);
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    match number {
        Some(Errno::MFILE | Errno::NFILE) => Error::new(ErrorKind::ResourcesExhausted, text)
            .with_hint("each shared tile takes a descriptor: raise `ulimit -n`, or make tiles larger (tile_rows)"),
        _ if full => Error::new(ErrorKind::ResourcesExhausted, text),
        _ => Error::new(ErrorKind::Storage { retryable: true }, text),
    }
    .with_source(error)
}
