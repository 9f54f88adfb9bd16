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

/// Where the names are of what a process has open, which of them are written to by all programs, and how many links may lead to one.
const OPEN: &str = "/proc/self/fd";
const STDOUT: u32 = 1;
const STDERR: u32 = 2;
const MOST_LINKS: usize = 8;

/// Where a result goes that has a name.
pub(super) struct Output<'a> {
    path: &'a Path,
    target: Target,
}

/// What is behind a name.
enum Target {
    /// The file that is made or replaced, behind links.
    File(PathBuf),
    /// What is written into as it is: a device, a named pipe.
    There,
    /// What this process writes to already: what others write there before and afterwards stays.
    Stdout,
    Stderr,
}

impl<'a> Output<'a> {
    /// The one of a path. Behind a link it is the file that it leads to, and the link stays. A device and a named pipe are written into, and so are standard output and standard error (`/dev/stdout`), whatever these are.
    ///
    /// # Errors
    /// `InvalidArgument` for a folder, a socket and a file that this process has open otherwise, `NotFound` for a link that leads to nothing, `PermissionDenied` or `Storage` for what cannot be looked at.
    pub(super) fn of(path: &'a Path) -> Result<Self> {
        let named = |error: Error| error.with_file(path.display().to_string());
        let failed = |error: io::Error| named(write_failed(&error));
        let refused = |what: &str, remedy: &'static str| {
            let text = format!("the result must go into a file, {what}");
            Err(named(Error::invalid_argument(text)).with_hint(remedy))
        };
        let open = descriptor(path);
        let there = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            found => Some(found.map_err(failed)?),
        };
        let target = match there {
            None if path.is_symlink() => {
                let text = "the result must go into a file, this is a link that leads to nothing";
                return Err(named(Error::not_found(text))
                    .with_hint("make the file that it is to lead to, or name that file"));
            }
            None => Target::File(path.to_owned()),
            Some(_) if open == Some(STDOUT) => Target::Stdout,
            Some(_) if open == Some(STDERR) => Target::Stderr,
            Some(there) if there.is_dir() => {
                return refused("this is a folder", "name a file in it");
            }
            Some(there) if there.file_type().is_socket() => {
                let remedy = "without --output it goes to standard output";
                return refused("a pipe or a device, this is a socket", remedy);
            }
            Some(there) if there.is_file() && open.is_some() => {
                let what = "this is one that was opened for the command, and may be written to by others meanwhile";
                return refused(what, "name the file itself, or /dev/stdout");
            }
            Some(there) if there.is_file() => Target::File(fs::canonicalize(path).map_err(failed)?),
            Some(_) => Target::There,
        };
        Ok(Self { path, target })
    }

    /// Whether a file is half written for a while that must not stay.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.target, Target::File(_))
    }

    /// Lets `work` write: into a temporary file beside the one that is wanted, which takes the name, and the mode of the one that was there, when the work is done, and is removed when it failed; or into what is there.
    ///
    /// # Errors
    /// Those of the work; `NotFound`, `PermissionDenied` or `Storage` when it cannot be written.
    pub(super) fn write(&self, work: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        let failed =
            |error: io::Error| write_failed(&error).with_file(self.path.display().to_string());
        let target = match &self.target {
            Target::File(target) => target,
            Target::There => {
                let there = File::options().append(true).open(self.path);
                return self.work(&mut there.map_err(failed)?, work);
            }
            // Not locked: progress and the log of other threads go there meanwhile.
            Target::Stdout => return self.work(&mut io::stdout(), work),
            Target::Stderr => return self.work(&mut io::stderr(), work),
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
        let done =
            work(&mut sink).and_then(|()| sink.flush().map_err(|error| write_failed(&error)));
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

/// The number of what this process has open, if a path leads to such, as `/dev/stdout` and `/dev/fd/3` do.
fn descriptor(path: &Path) -> Option<u32> {
    let open = fs::canonicalize(OPEN).ok()?;
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let folder = folder_of(&path);
        if fs::canonicalize(&folder).is_ok_and(|folder| folder == open) {
            return path.file_name()?.to_str()?.parse().ok();
        }
        path = folder.join(fs::read_link(&path).ok()?);
    }
    None
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
