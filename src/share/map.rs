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
        Error::new(kind, format!("a file could not be mapped: {error}")).with_source(error)
    })?;
    Ok(Bytes::from_owner(mapped))
}
