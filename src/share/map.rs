//! Files of this process in its memory.
//!
//! Comes in: a file without a name. Goes out: its bytes, mapped. Never here: files that anybody else can reach; one of those could shrink, and reading it would end
//! the process.

use std::fs::File;

use bytes::Bytes;
use memmap2::Mmap;

use crate::error::{Error, ErrorKind, Result};

/// Maps a file into memory. The file must have no name any more and no other holder, as `tempfile::tempfile_in` makes them. Pages are read when they are touched, and
/// the system takes them back when memory runs short. The mapping lives as long as the bytes.
///
/// # Errors
/// `Storage` when the system refuses.
#[expect(
    unsafe_code,
    reason = "mapping is unsafe since the file could be cut short meanwhile"
)]
pub fn map_unnamed(file: &File) -> Result<Bytes> {
    // SAFETY: the file has no name and this process alone holds it, so that nobody can change or shorten it.
    let mapped = unsafe { Mmap::map(file) };
    let mapped = mapped.map_err(|error| {
        let kind = ErrorKind::Storage { retryable: true };
        let full = error.kind() == std::io::ErrorKind::OutOfMemory;
        let text = format!("a file could not be mapped: {error}");
        let error = Error::new(kind, text).with_source(error);
        match full {
            true => error.with_hint("a process may have so many mappings: make tiles larger (tile_rows, memory_limit), or raise vm.max_map_count"),
            false => error,
        }
    })?;
    Ok(Bytes::from_owner(mapped))
}
