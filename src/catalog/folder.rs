//! A catalog in a folder of this machine.
//!
//! Comes in: paths, bytes. Goes out: files that are there after a crash: a file is written under a name of its own, synced, linked to its name (which fails when there is one), and the folder synced.
//! The folder is locked while a process has it. Never here: what the bytes are.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

use super::store::Store;
use super::{MANIFESTS, TILES, failed};
use crate::error::{Error, ErrorKind, Result};

/// The file that is locked.
const LOCK: &str = ".partgrid-catalog";

/// With what the names of files that are being written begin.
const WRITING: &str = ".writing-";

#[derive(Debug)]
pub(super) struct Folder {
    root: Arc<PathBuf>,
    next: AtomicU64,
    /// `None` once it was given back; the system frees it when the process ends, however it does.
    lock: Mutex<Option<File>>,
}

impl Folder {
    /// Takes the folder, which is made if it is not there.
    pub(super) async fn open(root: &Path) -> Result<Self> {
        let root = root.to_owned();
        blocking(move || {
            let name = root.display().to_string();
            let opened = || {
                fs::create_dir_all(&root)?;
                File::create(root.join(LOCK))
            };
            let cannot = |error| failed("the catalog cannot be opened", error, &name);
            let lock = opened().map_err(cannot)?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let text = "another process has the catalog";
                    return Err(Error::new(ErrorKind::ResourcesExhausted, text)
                        .with_file(name)
                        .with_hint("end it, or use another folder"));
                }
                Err(TryLockError::Error(error)) => return Err(cannot(error)),
            }
            for part in [MANIFESTS, TILES] {
                sweep(&root.join(part)).map_err(cannot)?;
            }
            Ok(Self {
                root: Arc::new(root),
                next: AtomicU64::new(0),
                lock: Mutex::new(Some(lock)),
            })
        })
        .await
    }
}

/// Removes what a crash left half written.
fn sweep(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_dir() {
            sweep(&entry.path())?;
        } else if name.to_string_lossy().starts_with(WRITING) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Runs work that waits for a disk on a thread that may wait.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::internal("a thread of the catalog ended").with_source(error))?
}

#[async_trait]
impl Store for Folder {
    fn place(&self) -> String {
        self.root.display().to_string()
    }

    fn is_ours_alone(&self) -> bool {
        true
    }

    fn close(&self) {
        let lock = self
            .lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(lock);
    }

    async fn put_new(&self, path: &str, bytes: Bytes) -> Result<bool> {
        if self
            .lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_none()
        {
            let text = "the catalog was closed";
            return Err(Error::new(ErrorKind::Storage { retryable: false }, text));
        }
        let (root, path) = (Arc::clone(&self.root), path.to_owned());
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        blocking(move || {
            let target = root.join(&path);
            put_new(&root, &target, number, &bytes).map_err(|error| {
                failed(
                    "the catalog cannot write",
                    error,
                    &target.display().to_string(),
                )
            })
        })
        .await
    }

    async fn read(&self, path: &str) -> Result<Bytes> {
        let target = self.root.join(path);
        blocking(move || {
            let read = fs::read(&target);
            let read = read.map_err(|error| {
                failed(
                    "the catalog cannot read",
                    error,
                    &target.display().to_string(),
                )
            });
            Ok(Bytes::from(read?))
        })
        .await
    }

    async fn list(&self, folder: &str) -> Result<Vec<(String, u64)>> {
        let (root, folder) = (Arc::clone(&self.root), folder.to_owned());
        blocking(move || {
            let mut found = Vec::new();
            list(&root, &root.join(&folder), &mut found).map_err(|error| {
                failed(
                    "the catalog cannot be listed",
                    error,
                    &root.display().to_string(),
                )
            })?;
            Ok(found)
        })
        .await
    }

    async fn remove(&self, path: &str) -> Result<()> {
        let target = self.root.join(path);
        blocking(move || match fs::remove_file(&target) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed(
                "the catalog cannot remove",
                error,
                &target.display().to_string(),
            )),
        })
        .await
    }
}

fn put_new(root: &Path, target: &Path, number: u64, bytes: &[u8]) -> io::Result<bool> {
    let folder = target.parent().unwrap_or(root);
    make_folder(root, folder)?;
    let writing = folder.join(format!("{WRITING}{}-{number}", std::process::id()));
    let written =
        write_whole(&writing, bytes).and_then(|()| match fs::hard_link(&writing, target) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        });
    let removed = fs::remove_file(&writing);
    let is_new = written?;
    removed?;
    File::open(folder)?.sync_all()?;
    Ok(is_new)
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes the folders on the way to one, each durable in the one above.
fn make_folder(root: &Path, folder: &Path) -> io::Result<()> {
    if folder.is_dir() || folder == root {
        return Ok(());
    }
    let above = folder.parent().unwrap_or(root);
    make_folder(root, above)?;
    match fs::create_dir(folder) {
        Ok(()) => File::open(above)?.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn list(root: &Path, folder: &Path, found: &mut Vec<(String, u64)>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            list(root, &path, found)?;
            continue;
        }
        let is_writing = entry.file_name().to_string_lossy().starts_with(WRITING);
        if let (false, Ok(within)) = (is_writing, path.strip_prefix(root)) {
            let length = entry.metadata()?.len();
            found.push((within.to_string_lossy().into_owned(), length));
        }
    }
    Ok(())
}
