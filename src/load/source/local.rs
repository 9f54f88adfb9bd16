//! The local file system: which files a path, folder or pattern stands for.
//!
//! Comes in: a path from the root. Goes out: files with their sizes. Links are followed; one that leads nowhere or in a circle is an error. Never here: what is in the
//! files.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use walkdir::{DirEntry, WalkDir};

use super::pattern::{Pattern, has_wildcard};
use super::{Place, SourceFile, no_data, no_match};
use crate::error::{Error, Result};
use crate::load::error::from_io;
use crate::load::hive::{HiveKey, keys_of};

/// A file that was written so long ago gets another time when it is written again.
const SETTLED: Duration = Duration::from_secs(2);

/// The path that a source without a scheme, or the path of a `file://` URL, names: from the root, without `.` and `..`; `~` is the home folder.
pub(super) fn absolute(source: &str, path: &str) -> Result<PathBuf> {
    if path.is_empty() {
        return Err(Error::invalid_argument("a source must not be empty"));
    }
    let path = std::path::absolute(with_home(path)).map_err(|error| {
        Error::invalid_argument("not a path")
            .with_file(source)
            .with_source(error)
    })?;
    let mut plain = PathBuf::new();
    for component in path.components() {
        if component == Component::ParentDir {
            // The folder above a link is that above its target.
            if plain.is_symlink() {
                plain = fs::canonicalize(&plain).map_err(|error| from_io(error, source))?;
            }
            plain.pop();
        } else {
            plain.push(component);
        }
    }
    Ok(plain)
}

/// The path with the home folder in the place of `~`, as shells have it.
fn with_home(path: &str) -> PathBuf {
    let below = match path {
        "~" => Some(""),
        path => path.strip_prefix("~/"),
    };
    match (below, std::env::home_dir()) {
        (Some(below), Some(home)) => home.join(below),
        _ => PathBuf::from(path),
    }
}

/// The files that a path stands for, in any order; at least one.
pub(super) fn find(source: &str, path: &Path) -> Result<Vec<SourceFile>> {
    let walk = |base: &Path, pattern: Pattern| {
        let walk = Walk {
            base: base.to_owned(),
            above: keys_above(base),
            pattern,
        };
        walk.files()
    };
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            at_least_one(walk(path, Pattern::try_new(&[])?)?, || no_data(source))
        }
        Ok(metadata) if metadata.is_file() => {
            let keys = keys_above(path.parent().unwrap_or(path));
            Ok(vec![file(path, &metadata, keys)?])
        }
        Ok(_) => Err(Error::invalid_argument(
            "a source must be a file, a folder or a pattern, this is none",
        )
        .with_file(source)),
        Err(error) if !is_absent(&error) => Err(from_io(error, source)),
        Err(_) if has_wildcard(source) => {
            let (base, pattern) = split(path).map_err(|error| error.with_file(source))?;
            if !base.is_dir() {
                return Err(no_match(source));
            }
            at_least_one(walk(&base, pattern)?, || no_match(source))
        }
        Err(error) => Err(absent(error, source)),
    }
}

fn at_least_one(
    files: Vec<SourceFile>,
    otherwise: impl FnOnce() -> Error,
) -> Result<Vec<SourceFile>> {
    if files.is_empty() {
        return Err(otherwise());
    }
    Ok(files)
}

/// A pattern may be longer than a name can be, and a file may stand where it wants a folder.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename)
}

fn absent(error: io::Error, source: &str) -> Error {
    from_io(error, source).with_start_of(source)
}

/// The folders before the first wildcard, and the rest.
fn split(path: &Path) -> Result<(PathBuf, Pattern)> {
    let text = |part: &Component<'_>| part.as_os_str().to_string_lossy().into_owned();
    let parts: Vec<Component<'_>> = path.components().collect();
    let fixed = parts.iter().position(|part| has_wildcard(&text(part)));
    let (base, rest) = parts.split_at(fixed.unwrap_or(parts.len()));
    let rest: Vec<String> = rest.iter().map(text).collect();
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    Ok((base.iter().collect(), Pattern::try_new(&rest)?))
}

/// A walk through a folder and all below it.
struct Walk {
    base: PathBuf,
    /// The keys that the base itself ends with.
    above: Vec<HiveKey>,
    pattern: Pattern,
}

impl Walk {
    fn files(&self) -> Result<Vec<SourceFile>> {
        let entries = WalkDir::new(&self.base).follow_links(true).into_iter();
        let wanted = |entry: &DirEntry| {
            !entry.file_type().is_dir() || self.pattern.may_hold(&self.below(entry.path()))
        };
        let mut files = Vec::new();
        for entry in entries.filter_entry(wanted) {
            match entry {
                Ok(entry) if entry.file_type().is_dir() => {}
                Ok(entry) => files.extend(self.file(&entry)?),
                Err(error) if self.passes_over(&error) => {}
                Err(error) => return Err(from_walk(error, &self.base)),
            }
        }
        Ok(files)
    }

    fn file(&self, entry: &DirEntry) -> Result<Option<SourceFile>> {
        let below = self.below(entry.path());
        if !self.pattern.takes(&below) {
            return Ok(None);
        }
        let name = entry.path().to_string_lossy();
        let metadata = entry
            .metadata()
            .map_err(|error| from_walk(error, &self.base))?;
        if !metadata.is_file() {
            let text = "neither a file nor a folder, which cannot be loaded";
            return Err(Error::invalid_data(text).with_file(name));
        }
        let folders: Vec<&str> = below.iter().map(String::as_str).collect();
        let folders = folders.split_last().map_or(&[][..], |(_, folders)| folders);
        let keys = self.above.iter().cloned().chain(keys_of(folders));
        file(entry.path(), &metadata, keys.collect()).map(Some)
    }

    /// A fault at a name that would be left out anyway.
    fn passes_over(&self, error: &walkdir::Error) -> bool {
        error
            .path()
            .is_some_and(|path| !self.pattern.may_hold(&self.below(path)))
    }

    fn below(&self, path: &Path) -> Vec<String> {
        let below = path.strip_prefix(&self.base).unwrap_or(path);
        let names = below.components();
        names
            .map(|part| part.as_os_str().to_string_lossy().into_owned())
            .collect()
    }
}

fn from_walk(error: walkdir::Error, base: &Path) -> Error {
    let name = error.path().unwrap_or(base).to_string_lossy().into_owned();
    if error.loop_ancestor().is_some() {
        return Error::invalid_data("the folder is a link to a folder above it").with_file(name);
    }
    let broken = fs::symlink_metadata(&name).is_ok_and(|found| found.is_symlink());
    let error = from_io(error.into(), &name);
    if broken {
        return error.with_hint("the name is a link to a file or folder that is not there");
    }
    error
}

/// The keys of the `key=value` folders that a path ends with, so that `flights/month=01` has a month as `flights` has.
fn keys_above(folder: &Path) -> Vec<HiveKey> {
    let parts: Vec<&str> = folder
        .components()
        .filter_map(|part| part.as_os_str().to_str())
        .collect();
    let plain = parts.iter().rposition(|part| !part.contains('='));
    let first = plain.map_or(0, |place| place + 1);
    keys_of(parts.get(first..).unwrap_or_default())
}

fn file(path: &Path, metadata: &Metadata, hive: Vec<HiveKey>) -> Result<SourceFile> {
    let name = path.to_str().ok_or_else(|| {
        Error::invalid_argument("the path cannot be named: it must be valid UTF-8")
            .with_file(path.to_string_lossy())
    })?;
    Ok(SourceFile {
        place: Place::Local(path.into()),
        name: name.to_owned(),
        size_bytes: metadata.len(),
        stamp: Some(stamp_of(metadata)),
        settled: metadata
            .modified()
            .is_ok_and(|time| time.elapsed().is_ok_and(|age| age > SETTLED)),
        hive,
    })
}

/// A text that changes when the file is replaced or written to.
pub(in crate::load) fn stamp_of(metadata: &Metadata) -> String {
    let (inode, seconds) = (metadata.ino(), metadata.mtime());
    let (nanoseconds, size) = (metadata.mtime_nsec(), metadata.len());
    format!("{inode:x}-{seconds:x}.{nanoseconds:x}-{size:x}")
}
