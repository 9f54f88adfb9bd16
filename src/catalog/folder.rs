//! A catalog in a folder.
//!
//! Comes in: paths, bytes. Goes out: files that are there after a crash: a file is written under a name of its own, synced, linked to its name (which fails when there is one), and the folder synced.
//! The folder is locked while a process has it, unless it is one that several processes share, of this host or others. Never here: what the bytes are.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use rustix::fs::OFlags;

use super::failed;
use super::paths::{MANIFESTS, TILES, WRITING, unique};
use super::store::{Listed, Store};
use crate::error::{Error, ErrorKind, Result};

/// The file that is locked.
const LOCK: &str = ".partgrid-catalog";

/// What is said of a folder that may have been meant for something else.
const OF_OTHERS: &str = "the folder of the catalog has files of others and was no catalog: grids are kept in its folders `grids` and `tiles` from now on, the files are left alone; if that is not meant, stop the server, remove what it made there, and name a folder that is empty or not there yet";

#[derive(Debug)]
pub(super) struct Folder {
    root: Arc<PathBuf>,
    next: AtomicU64,
    is_shared: bool,
    /// `None` once it was given back; the system frees it when the process ends, however it does.
    lock: Mutex<Option<File>>,
}

impl Folder {
    /// Takes the folder, which is made if it is not there; together with others, if it is shared.
    pub(super) async fn open(root: &Path, is_shared: bool) -> Result<Self> {
        // Other members may write it with a slash at its end.
        let root: PathBuf = root.components().collect();
        blocking(move || {
            let name = root.display().to_string();
            let is_of_others = has_other_files(&root);
            let opened = || {
                // They are there before anybody writes: one that writes side by side with others does not make them.
                for part in [MANIFESTS, TILES] {
                    make_folder(Path::new("/"), &root.join(part))?;
                }
                // Network file systems give a shared lock only to those who may read, and one that keeps others out only to those who may write.
                let mut lock = OpenOptions::new();
                lock.read(true).write(true).create(true).truncate(false);
                lock.open(root.join(LOCK))
            };
            let cannot = |error| {
                let error = failed("the catalog cannot be opened", error, &name);
                match root.ancestors().find(|place| place.is_file()) {
                    Some(file) => error.with_hint(format!(
                        "a catalog is kept in a folder, which is made if it is not there; {} is a file",
                        file.display()
                    )),
                    None => error,
                }
            };
            let lock = opened().map_err(cannot)?;
            // Whoever has it alone keeps all others out; those who share it only that one.
            let locked = match is_shared {
                true => lock.try_lock_shared(),
                false => lock.try_lock(),
            };
            match locked {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let text = "another process has the catalog";
                    return Err(Error::new(ErrorKind::ResourcesExhausted, text)
                        .with_file(name)
                        .with_hint("end it, or use another folder"));
                }
                Err(TryLockError::Error(error)) => return Err(cannot(error)),
            }
            if is_of_others {
                tracing::warn!(folder = %name, "{OF_OTHERS}");
            }
            for part in [MANIFESTS, TILES].iter().filter(|_| !is_shared) {
                sweep(&root.join(part), None).map_err(cannot)?;
            }
            Ok(Self {
                root: Arc::new(root),
                next: AtomicU64::new(0),
                is_shared,
                lock: Mutex::new(Some(lock)),
            })
        })
        .await
    }
}

/// Whether a folder is no catalog and has something in it. What file systems and tools keep in folders of their own accord does not count.
fn has_other_files(root: &Path) -> bool {
    let is_catalog = [LOCK, MANIFESTS]
        .iter()
        .any(|part| root.join(part).exists());
    let is_other = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name != "lost+found" && !name.starts_with('.')
        })
    };
    !is_catalog && fs::read_dir(root).is_ok_and(|mut entries| entries.any(is_other))
}

/// Removes what was left half written: all of it and folders that are empty, or, beside others, what was before a moment.
fn sweep(folder: &Path, before: Option<SystemTime>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_dir() {
            sweep(&entry.path(), before)?;
            if before.is_none() {
                // That of a name without manifests; one that has something in it stays.
                drop(fs::remove_dir(entry.path()));
            }
        } else if name.to_string_lossy().starts_with(WRITING) && is_before(&entry, before) {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

fn is_before(entry: &fs::DirEntry, before: Option<SystemTime>) -> bool {
    let written = entry.metadata().and_then(|metadata| metadata.modified());
    before.is_none_or(|before| written.is_ok_and(|written| written < before))
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
        !self.is_shared
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
            let read = read_file(&target);
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

    async fn list(&self, folder: &str) -> Result<Vec<Listed>> {
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

    async fn now(&self, path: &str) -> Result<SystemTime> {
        let (root, target) = (Arc::clone(&self.root), self.root.join(path));
        blocking(move || {
            let folder = make_folder(&root, target.parent().unwrap_or(&root));
            let written = folder
                .and_then(|()| File::create(&target))
                .and_then(|file| {
                    // A file that was there keeps its time until something is written.
                    file.set_len(1)?;
                    file.set_len(0)?;
                    file.metadata()?.modified()
                });
            written.map_err(|error| {
                let name = target.display().to_string();
                failed("the catalog cannot be asked for the time", error, &name)
            })
        })
        .await
    }

    async fn remove_torn(&self, before: SystemTime) -> Result<()> {
        let root = Arc::clone(&self.root);
        blocking(move || {
            let torn = [MANIFESTS, TILES]
                .iter()
                .try_for_each(|part| sweep(&root.join(part), Some(before)));
            torn.map_err(|error| {
                failed(
                    "the catalog cannot be swept",
                    error,
                    &root.display().to_string(),
                )
            })
        })
        .await
    }

    async fn remove(&self, path: &str) -> Result<()> {
        let target = self.root.join(path);
        blocking(move || removed(&target, fs::remove_file(&target))).await
    }

    async fn remove_folder(&self, path: &str) -> Result<()> {
        let target = self.root.join(path);
        blocking(move || removed(&target, fs::remove_dir(&target))).await
    }
}

/// What came of removing something, which may be gone.
fn removed(target: &Path, outcome: io::Result<()>) -> Result<()> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(
            "the catalog cannot remove",
            error,
            &target.display().to_string(),
        )),
        _ => Ok(()),
    }
}

/// The bytes of a file; a link that stands where a file must be is not followed.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let no_links = i32::try_from(OFlags::NOFOLLOW.bits()).map_err(io::Error::other)?;
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(no_links)
        .open(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn put_new(root: &Path, target: &Path, number: u64, bytes: &[u8]) -> io::Result<bool> {
    let folder = target.parent().unwrap_or(root);
    make_folder(root, folder)?;
    // Processes of other hosts may have the same number.
    let unique = unique().map_err(io::Error::other)?;
    let writing = folder.join(format!("{WRITING}{unique}-{number}"));
    let written =
        write_whole(&writing, bytes).and_then(|()| match fs::hard_link(&writing, target) {
            Ok(()) => Ok(true),
            // An answer that was lost on its way is asked for again, and finds what it has made.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => is_same(&writing, target),
            Err(error) => Err(error),
        });
    // What stays of it is swept at the next start.
    drop(fs::remove_file(&writing));
    let is_new = written?;
    if let Err(error) = sync_folder(folder) {
        // Whoever is told that it failed must not find it after a restart.
        if is_new && fs::remove_file(target).is_ok() {
            drop(sync_folder(folder));
        }
        return Err(error);
    }
    Ok(is_new)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Whether two names are of one file.
fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let (one, other) = (fs::metadata(one)?, fs::metadata(other)?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
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
    let above = match above.as_os_str().is_empty() {
        true => Path::new("."),
        false => above,
    };
    make_folder(root, above)?;
    match fs::create_dir(folder) {
        // One that is there counts as durable, so it is taken away again where it is not.
        Ok(()) => sync_folder(above).inspect_err(|_| drop(fs::remove_dir(folder))),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn list(root: &Path, folder: &Path, found: &mut Vec<Listed>) -> io::Result<()> {
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
            let metadata = match entry.metadata() {
                // Another process removed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            found.push(Listed {
                path: within.to_string_lossy().into_owned(),
                bytes: metadata.len(),
                written: metadata.modified()?,
            });
        }
    }
    Ok(())
}
