//! The files of one call in a local folder.
//!
//! Comes in: names and contents. Goes out: a folder in which all of them appear at once. They are written into a hidden folder beside it and flushed to the disk; then the two folders change
//! places in one step. Where that cannot be (other files lie in the folder, it is a mount point, the system cannot exchange folders), files are moved one by one, and moved back when one
//! cannot. Hidden folders of calls that were killed are taken away by the next call. Never here: what is in the files.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use tempfile::TempDir;
use walkdir::WalkDir;

use crate::error::{Error, Result};
use crate::load::error::from_io;
use crate::load::source::data_files_in;

/// What the names of hidden folders begin with.
const PREFIX: &str = ".partgrid-";
/// Within a hidden folder: the files that are being replaced one by one.
const REPLACED: &str = ".replaced";
/// A hidden folder is locked right after it is made; an older one that is not belongs to nobody.
const UNLOCKED: Duration = Duration::from_secs(60);
/// Before the user's mask.
const FILE_MODE: u32 = 0o666;
const FOLDER_MODE: u32 = 0o777;

/// The files of one call, before they are visible.
pub(super) struct LocalOutput {
    folder: PathBuf,
    /// Data files that are there already and will be replaced.
    old: Vec<PathBuf>,
    /// Held by the lock until the end, so that no other call takes the hidden folder for one of the dead.
    _lock: File,
    hidden: TempDir,
    /// Whether the two folders can change places.
    whole: bool,
    /// Folders above `folder` that this call has made, outermost first.
    made: Vec<PathBuf>,
    /// Below `folder`.
    paths: Vec<String>,
    /// Whether files that were in `folder` are in the hidden folder now.
    holds_old: bool,
}

impl LocalOutput {
    /// Makes the hidden folder for files that replace `old`, which are all data files in `folder`.
    pub(super) fn open(folder: &Path, old: Vec<PathBuf>) -> Result<Self> {
        let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let above = folder.parent().unwrap_or(&folder).to_owned();
        let mut there = above.ancestors().filter(|path| path.exists());
        if let Some(file) = there.next().filter(|path| !path.is_dir()) {
            let error = Error::invalid_argument("there is no folder in a file");
            return Err(error.with_file(text(file)));
        }
        let made = missing(&above);
        let opened = Self::try_open(&folder, &above, &old);
        if opened.is_err() {
            unmake(&made);
        }
        let (hidden, lock, whole) = opened.map_err(|error| from_io(error, &text(&folder)))?;
        Ok(Self {
            folder,
            old,
            _lock: lock,
            hidden,
            whole,
            made,
            paths: Vec::new(),
            holds_old: false,
        })
    }

    fn try_open(folder: &Path, above: &Path, old: &[PathBuf]) -> io::Result<(TempDir, File, bool)> {
        fs::create_dir_all(above)?;
        if may_move(folder, above, old)? {
            // Nothing may be written beside the folder of somebody else.
            if let Ok((hidden, lock)) = hidden_folder(above) {
                return Ok((hidden, lock, true));
            }
        }
        let (hidden, lock) = hidden_folder(folder)?;
        Ok((hidden, lock, false))
    }

    /// Writes one file and flushes it to the disk.
    pub(super) fn write(&mut self, path: &str, content: &[u8]) -> Result<()> {
        let failed = |error| from_io(error, &text(&self.folder.join(path)));
        let place = self.hidden.path().join(path);
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(FILE_MODE);
        let mut file = options.open(&place).map_err(failed)?;
        file.write_all(content).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        self.paths.push(path.to_owned());
        Ok(())
    }

    /// Makes all files visible. After an error the folder is as it was; where even that failed, the old files are kept and the error says where.
    pub(super) fn publish(mut self) -> Result<()> {
        let published = self.try_publish();
        match published {
            // The hidden folder has changed places, or holds what is not needed any more; that it cannot be taken away is no reason to fail.
            Ok(()) => {
                drop(self.hidden.close());
                Ok(())
            }
            Err(error) if self.holds_old => {
                let kept = self.hidden.keep();
                // Marks the folder as one that no later call may take away; best effort, since the error matters more.
                drop(fs::create_dir_all(kept.join(REPLACED)));
                Err(error.with_hint(format!(
                    "the files that were there are in {}",
                    kept.display()
                )))
            }
            Err(error) => {
                self.discard();
                Err(error)
            }
        }
    }

    /// Takes away what was written, and the folders that were made for it.
    pub(super) fn discard(self) {
        // Best effort: the error that led here matters more.
        drop(self.hidden.close());
        unmake(&self.made);
    }

    fn try_publish(&mut self) -> Result<()> {
        let name = text(&self.folder);
        let failed = |error| from_io(error, &name);
        flush_folders(self.hidden.path()).map_err(failed)?;
        if !(self.whole && self.change_places().map_err(failed)?) {
            self.move_files()?;
        }
        let above = self.folder.parent().unwrap_or(&self.folder);
        flush_folders(&self.folder)
            .and_then(|()| File::open(above)?.sync_all())
            .map_err(failed)
    }

    /// Lets the hidden folder and the other change places; `false` where the system cannot.
    fn change_places(&mut self) -> io::Result<bool> {
        let (hidden, folder) = (self.hidden.path(), &self.folder);
        if !folder.exists() {
            return fs::rename(hidden, folder).map(|()| true);
        }
        fs::set_permissions(hidden, fs::metadata(folder)?.permissions())?;
        let exchange = || renameat_with(CWD, hidden, CWD, folder, RenameFlags::EXCHANGE);
        if exchange().is_err() {
            return Ok(false);
        }
        // What is in the hidden folder now will be deleted: nobody may have added to it since the call began.
        let old: Vec<PathBuf> = self
            .old
            .iter()
            .map(|file| moved(file, folder, hidden))
            .collect();
        self.holds_old = true;
        let only_old = holds_only(hidden, &old);
        if matches!(only_old, Ok(true)) {
            return Ok(true);
        }
        exchange()?;
        self.holds_old = false;
        only_old
    }

    /// Refuses data files that have come since the call began: the answer of another call would be mixed with this one.
    fn check_others(&self) -> Result<()> {
        let whole = |file: &PathBuf| fs::canonicalize(file).unwrap_or_else(|_| file.clone());
        let old: HashSet<PathBuf> = self.old.iter().map(whole).collect();
        let mut files = data_files_in(&self.folder)?.into_iter();
        match files.find(|file| !old.contains(&whole(file))) {
            None => Ok(()),
            Some(other) => Err(came_meanwhile(&other)),
        }
    }

    /// Moves the old files away and the new ones into their places; moves all back when one cannot be moved.
    fn move_files(&mut self) -> Result<()> {
        let mut moves = Moves::default();
        self.holds_old = !self.old.is_empty();
        let moved = self.try_move_files(&mut moves);
        if moved.is_err() && moves.undo() {
            self.holds_old = false;
        }
        moved
    }

    fn try_move_files(&self, moves: &mut Moves) -> Result<()> {
        self.check_others()?;
        let replaced = self.hidden.path().join(REPLACED);
        for (number, file) in self.old.iter().enumerate() {
            moves.rename(file, &replaced.join(number.to_string()))?;
        }
        for path in &self.paths {
            moves.rename(&self.hidden.path().join(path), &self.folder.join(path))?;
        }
        let folders = self.old.iter().filter_map(|file| file.parent());
        for folder in folders.filter(|folder| *folder != self.folder) {
            // Fails where something else is left in it, as it should.
            drop(fs::remove_dir(folder));
        }
        Ok(())
    }
}

/// Files that were moved and folders that were made, in order.
#[derive(Default)]
struct Moves {
    files: Vec<(PathBuf, PathBuf)>,
    folders: Vec<PathBuf>,
}

impl Moves {
    fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        let failed = |error| from_io(error, &text(to));
        if let Some(folder) = to.parent() {
            self.folders.extend(missing(folder));
            fs::create_dir_all(folder).map_err(failed)?;
        }
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(Errno::EXIST) if !to.is_dir() => return Err(came_meanwhile(to)),
            // Not every file system can see to that.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) if !to.exists() => {
                fs::rename(from, to).map_err(failed)?;
            }
            Err(error) => return Err(failed(error.into())),
        }
        self.files.push((from.to_owned(), to.to_owned()));
        Ok(())
    }

    /// Moves all back; whether that could be done.
    fn undo(self) -> bool {
        let mut all = true;
        for (from, to) in self.files.iter().rev() {
            all &= fs::rename(to, from).is_ok();
        }
        unmake(&self.folders);
        all
    }
}

/// Whether a folder that takes the place of `folder` takes away nothing but `old`.
fn may_move(folder: &Path, above: &Path, old: &[PathBuf]) -> io::Result<bool> {
    match fs::metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
        // This process would go on in a folder that is not there any more.
        Ok(_) if std::env::current_dir().is_ok_and(|here| here.starts_with(folder)) => Ok(false),
        // A mount point lies on another device than the folder above it.
        Ok(found) => Ok(found.dev() == fs::metadata(above)?.dev() && holds_only(folder, old)?),
    }
}

fn came_meanwhile(file: &Path) -> Error {
    let text = "the folder holds a data file that was not there when the call began";
    let error = Error::invalid_argument(text).with_file(file.to_string_lossy());
    error.with_hint("another call has written it: overwrite=True (`--overwrite`) replaces it")
}

fn holds_only(folder: &Path, files: &[PathBuf]) -> io::Result<bool> {
    let files: HashSet<&Path> = files.iter().map(PathBuf::as_path).collect();
    for entry in WalkDir::new(folder) {
        let entry = entry?;
        if !entry.file_type().is_dir() && !files.contains(entry.path()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A hidden folder of this call, and its lock. Those of calls that were killed are taken away first.
fn hidden_folder(within: &Path) -> io::Result<(TempDir, File)> {
    for entry in fs::read_dir(within)?.flatten() {
        if is_abandoned(&entry.path()) {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
    let hidden = tempfile::Builder::new()
        .prefix(PREFIX)
        .permissions(Permissions::from_mode(FOLDER_MODE))
        .tempdir_in(within)?;
    let lock = File::open(hidden.path())?;
    // A file system without locks has no abandoned folders either.
    drop(lock.try_lock());
    Ok((hidden, lock))
}

/// Whether a folder was left by a call that was killed. One that holds files that were being replaced is left to its user.
fn is_abandoned(path: &Path) -> bool {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let is_ours = name.is_some_and(|name| name.starts_with(PREFIX));
    let is_old = |found: &fs::Metadata| {
        let age = found.modified().ok().and_then(|time| time.elapsed().ok());
        found.is_dir() && age.is_some_and(|age| age > UNLOCKED)
    };
    is_ours
        && fs::symlink_metadata(path).is_ok_and(|found| is_old(&found))
        && !path.join(REPLACED).exists()
        && File::open(path).is_ok_and(|folder| folder.try_lock().is_ok())
}

/// The folders that must be made for a path, outermost first.
fn missing(folder: &Path) -> Vec<PathBuf> {
    let mut missing: Vec<PathBuf> = folder
        .ancestors()
        .take_while(|folder| !folder.exists())
        .map(Path::to_owned)
        .collect();
    missing.reverse();
    missing
}

/// Removes folders that are empty.
fn unmake(folders: &[PathBuf]) {
    for folder in folders.iter().rev() {
        drop(fs::remove_dir(folder));
    }
}

/// Flushes the names in a folder and in those below it to the disk.
fn flush_folders(folder: &Path) -> io::Result<()> {
    for entry in WalkDir::new(folder) {
        let entry = entry?;
        if entry.file_type().is_dir() {
            File::open(entry.path())?.sync_all()?;
        }
    }
    Ok(())
}

fn moved(file: &Path, from: &Path, to: &Path) -> PathBuf {
    to.join(file.strip_prefix(from).unwrap_or(file))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
