//! Where results go.
//!
//! Comes in: a path. Goes out: a writer; a file appears under its name only when it is whole, and nothing but an ordinary file is ever replaced. Never here: formats.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::error::{Error, ErrorKind, Result};

/// The mode of a file that is new, before the user's mask.
const MODE: u32 = 0o666;

/// Where the names are of what a process has open, and how many links may lead to one of them.
const OPEN: &str = "/proc/self/fd";
const MOST_LINKS: usize = 8;

/// Where a result goes that has a name.
pub(super) struct Output<'a> {
    path: &'a Path,
    /// The file that is made or replaced, behind links; none where there is something to write into as it is.
    file: Option<PathBuf>,
}

impl<'a> Output<'a> {
    /// The one of a path. Behind a link it is the file that it leads to, and the link stays. A device, a named pipe, and what this process has open already (`/dev/stdout`) are written into.
    ///
    /// # Errors
    /// `InvalidArgument` for a folder and a socket, `NotFound` for a link that leads to nothing, `PermissionDenied` or `Storage` for what cannot be looked at.
    pub(super) fn of(path: &'a Path) -> Result<Self> {
        let named = |error: Error| error.with_file(path.display().to_string());
        let failed = |error: io::Error| named(write_failed(&error));
        let there = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            found => Some(found.map_err(failed)?),
        };
        let file = match there {
            None if path.is_symlink() => {
                let text = "the result must go into a file, this is a link that leads to nothing";
                return Err(named(Error::not_found(text))
                    .with_hint("make the file that it is to lead to, or name that file"));
            }
            None => Some(path.to_owned()),
            Some(there) if there.is_dir() => {
                let text = "the result must go into a file, this is a folder";
                return Err(named(Error::invalid_argument(text)).with_hint("name a file in it"));
            }
            Some(there) if there.file_type().is_socket() => {
                let text = "the result must go into a file, a pipe or a device, this is a socket";
                return Err(named(Error::invalid_argument(text))
                    .with_hint("without --output it goes to standard output"));
            }
            Some(there) if there.is_file() && !is_open_here(path) => {
                Some(fs::canonicalize(path).map_err(failed)?)
            }
            Some(_) => None,
        };
        Ok(Self { path, file })
    }

    /// Whether a file is half written for a while that must not stay.
    pub(super) fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// Lets `work` write: into a temporary file beside the one that is wanted, which takes the name, and the mode of the one that was there, when the work is done, and is removed when it failed; or into what is there.
    ///
    /// # Errors
    /// Those of the work; `NotFound`, `PermissionDenied` or `Storage` when it cannot be written.
    pub(super) fn write(&self, work: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        let failed =
            |error: io::Error| write_failed(&error).with_file(self.path.display().to_string());
        let Some(target) = &self.file else {
            // Of a file that somebody has opened for this process, nothing that is in it is lost.
            let there = File::options().append(true).open(self.path);
            let mut there = there.map_err(failed)?;
            self.work(&mut there, work)?;
            return there.flush().map_err(failed);
        };
        let mut made = BufWriter::new(temporary(target).map_err(failed)?);
        self.work(&mut made, work)?;
        let made = made
            .into_inner()
            .map_err(|error| failed(error.into_error()))?;
        if let Ok(before) = fs::metadata(target) {
            // The user's mask has taken some of it away.
            let kept = made.as_file().set_permissions(before.permissions());
            kept.map_err(failed)?;
        }
        made.as_file().sync_all().map_err(failed)?;
        let placed = made.persist(target);
        placed.map(drop).map_err(|error| failed(error.error))
    }

    /// Does the work; where it fails because the file cannot be written, names the file.
    fn work(
        &self,
        file: &mut dyn Write,
        work: impl FnOnce(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let mut sink = Sink {
            inner: file,
            failed: false,
        };
        let done = work(&mut sink);
        if sink.failed {
            return done.map_err(|error| error.with_file(self.path.display().to_string()));
        }
        done
    }
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

/// Whether a path leads to a name of what this process has open, as `/dev/stdout` and `/dev/fd/3` do: whoever opened it may have put something into it, and may still do so.
fn is_open_here(path: &Path) -> bool {
    let Ok(open) = fs::canonicalize(OPEN) else {
        return false;
    };
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let folder = folder_of(&path);
        if fs::canonicalize(&folder).is_ok_and(|folder| folder == open) {
            return true;
        }
        match fs::read_link(&path) {
            Ok(next) => path = folder.join(next),
            Err(_) => return false,
        }
    }
    false
}

fn temporary(target: &Path) -> io::Result<NamedTempFile> {
    let folder = folder_of(target);
    if !folder.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "there is no such folder",
        ));
    }
    let mut builder = Builder::new();
    builder.prefix(".partgrid-").suffix(".tmp");
    // Meanwhile nobody may read more of it than of the one that it replaces.
    let before = fs::metadata(target).map(|before| before.permissions());
    builder.permissions(before.unwrap_or_else(|_| Permissions::from_mode(MODE)));
    builder.tempfile_in(folder)
}

/// The folder in which a path is.
fn folder_of(path: &Path) -> PathBuf {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or_else(|| PathBuf::from("."), Path::to_owned)
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
