//! Where results go.
//!
//! Comes in: a path, or none for standard output. Goes out: a writer; a file appears under its name only when it is whole. Never here: formats.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::error::{Error, ErrorKind, Result};

/// Lets `work` write to `path`: into a temporary file beside it, which takes the name when the work is done and is removed when it failed. What exists and
/// is no regular file (a device, a named pipe) is written to directly.
///
/// # Errors
/// Those of the work; `NotFound`, `PermissionDenied` or `Storage` when the file cannot be written.
pub(super) fn write_file(
    path: &Path,
    work: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let named = |error: &io::Error| write_failed(error).with_file(path.display().to_string());
    // Behind a link, the file that it leads to is replaced, not the link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if target.exists() && !target.is_file() {
        let file = File::options().write(true).open(&target);
        let mut file = file.map_err(|error| named(&error))?;
        do_work(path, &mut file, work)?;
        return file.flush().map_err(|error| named(&error));
    }
    let mut file = BufWriter::new(temporary(&target).map_err(|error| named(&error))?);
    do_work(path, &mut file, work)?;
    let file = file.into_inner().map_err(|error| named(error.error()))?;
    file.as_file().sync_all().map_err(|error| named(&error))?;
    file.persist(&target).map_err(|error| named(&error.error))?;
    Ok(())
}

/// Does the work; where it fails because the file cannot be written, names the file.
fn do_work(
    path: &Path,
    file: &mut dyn Write,
    work: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let mut sink = Sink {
        inner: file,
        failed: false,
    };
    let done = work(&mut sink);
    if sink.failed {
        return done.map_err(|error| error.with_file(path.display().to_string()));
    }
    done
}

/// A writer that remembers whether it failed.
struct Sink<'a> {
    inner: &'a mut dyn Write,
    failed: bool,
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.inner.write(bytes);
        self.failed |= result.is_err();
        result
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.inner.flush();
        self.failed |= result.is_err();
        result
    }
}

fn temporary(target: &Path) -> io::Result<NamedTempFile> {
    let folder = target
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.map_or_else(|| PathBuf::from("."), Path::to_owned);
    if !folder.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "there is no such folder",
        ));
    }
    let mut builder = Builder::new();
    builder.prefix(".partgrid-").suffix(".tmp");
    if let Some(permissions) = wanted_permissions(target) {
        builder.permissions(permissions);
    }
    builder.tempfile_in(folder)
}

/// Those of the file that is replaced, else what the user's mask leaves of "all may read and write", as for any new file.
#[cfg(unix)]
fn wanted_permissions(target: &Path) -> Option<Permissions> {
    use std::os::unix::fs::PermissionsExt;
    let existing = fs::metadata(target)
        .ok()
        .map(|metadata| metadata.permissions());
    Some(existing.unwrap_or_else(|| Permissions::from_mode(0o666)))
}

#[cfg(not(unix))]
fn wanted_permissions(_: &Path) -> Option<Permissions> {
    None
}

/// An error of the operating system while reading or writing.
pub(super) fn io_failed(what: &str, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::Storage { retryable: false },
    };
    Error::new(kind, format!("{what}: {error}"))
}

/// An error while writing a result.
pub(super) fn write_failed(error: &io::Error) -> Error {
    io_failed("the result could not be written", error)
}
