//! Paths, folders, patterns -> a sorted list of files, each with the store that holds it.
//!
//! Comes in: what the user wrote. Goes out: every file once, in name order, with its size and the `key=value` folders above it. `local.rs` walks through the file
//! system, `remote.rs` lists object stores (which `store.rs` opens, with `cloud.rs`, `aws.rs`, `settings.rs`), `pattern.rs` says which names match. Never here: what is in the files.

mod allowed;
#[cfg(feature = "cloud")]
mod aws;
#[cfg(feature = "cloud")]
mod cloud;
mod local;
mod pattern;
mod remote;
#[cfg(feature = "cloud")]
mod settings;
mod store;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "distributed")]
use std::sync::{Mutex, PoisonError};

use object_store::path::Path as ObjectPath;
use percent_encoding::percent_decode_str;

pub(super) use allowed::{check_files, check_source};
pub(super) use local::stamp_of;
#[cfg(feature = "distributed")]
pub(super) use remote::named;
pub(super) use store::Remote;

use super::error::blocking;
use super::hive::HiveKey;
use super::options::LoadOptions;
use crate::error::{Error, ErrorKind, Result};

const ENDINGS: [&str; 3] = [".parquet", ".parq", ".pq"];

/// Where the bytes of a file are.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// In the file system of this machine.
    Local(Arc<Path>),
    /// In an object store, under a path in it.
    Remote {
        remote: Arc<Remote>,
        path: ObjectPath,
    },
}

/// One file to load.
#[derive(Debug, Clone)]
pub(super) struct SourceFile {
    pub(super) place: Place,
    /// As messages name it; files are sorted by it.
    pub(super) name: String,
    pub(super) size_bytes: u64,
    /// Another one means that the file is another one (an etag). Local files always have one.
    pub(super) stamp: Option<String>,
    /// Whether the stamp is old enough to change with the next write: clocks of file systems are coarse.
    pub(super) settled: bool,
    /// The `key=value` folders between the source and the file, outermost first.
    pub(super) hive: Vec<HiveKey>,
}

/// Finds the files of all sources: in name order, each once, at least one.
pub(super) async fn find(sources: &[String], options: &LoadOptions) -> Result<Vec<SourceFile>> {
    if sources.is_empty() {
        return Err(Error::invalid_argument(
            "at least one source is needed, got none",
        ));
    }
    match options.allowed() {
        Some(places) => {
            for source in sources {
                check_source(places, source).map_err(|error| of_setting(error, places))?;
            }
        }
        None => check_options(sources, options)?,
    }
    let given = options
        .store()
        .map(|store| Arc::new(Remote::given(Arc::clone(store))));
    let mut files = BTreeMap::new();
    for source in sources {
        let found = match &given {
            Some(remote) => remote::find(remote, source, source).await?,
            None => {
                let found = find_one(source, options.storage_options()).await;
                found.map_err(|error| match options.allowed() {
                    // It says where this process is, which is nothing for others.
                    Some(_) => error.without_hint(),
                    None => error,
                })?
            }
        };
        if let Some(places) = options.allowed() {
            check_files(places, &found).map_err(|error| of_setting(error, places))?;
        }
        files.extend(found.into_iter().map(|file| (file.name.clone(), file)));
    }
    Ok(files.into_values().collect())
}

/// Whether a path or URL leads to a store, and not to the file system of this machine.
pub(crate) fn is_in_store(source: &str) -> bool {
    source
        .split_once("://")
        .is_some_and(|(scheme, _)| is_scheme(scheme) && !scheme.eq_ignore_ascii_case("file"))
}

/// Refuses settings of a store where nothing lies in one.
fn check_options(sources: &[String], options: &LoadOptions) -> Result<()> {
    let has_store = options.store().is_some() || sources.iter().any(|source| is_in_store(source));
    let Some(first) = sources.first() else {
        return Ok(());
    };
    if has_store || options.storage_options().is_empty() {
        return Ok(());
    }
    let text =
        "there are settings for a store (s3://, gs://, az://, https://), and this is a local path";
    Err(Error::invalid_argument(text)
        .with_file(first)
        .with_hint("leave storage_options out"))
}

/// A refusal with what is allowed, for those who may read of it, and the setting that says so.
fn of_setting(error: Error, places: &[String]) -> Error {
    match error.kind() {
        ErrorKind::PermissionDenied => error
            .with_context("allowed", places.join(", "))
            .with_hint("the setting load.from of the server says which places these are: ask its administrator to add this one"),
        _ => error,
    }
}

async fn find_one(source: &str, storage_options: &[(String, String)]) -> Result<Vec<SourceFile>> {
    let path = match source.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("file") => file_url(source, rest)?,
        Some((scheme, _)) if is_scheme(scheme) => {
            let (url, path) = remote::split(source)?;
            let remote = Arc::new(store::open(&url, source, storage_options)?);
            return remote::find(&remote, source, &path).await;
        }
        _ => source.to_owned(),
    };
    let source = source.to_owned();
    blocking(move || local::find(&source, &local::absolute(&source, &path)?)).await
}

/// The store of a URL, with the settings of this process; one client for each store.
#[cfg(feature = "distributed")]
pub(super) fn remote_of(url: &str) -> Result<Arc<Remote>> {
    static KNOWN: Mutex<BTreeMap<String, Arc<Remote>>> = Mutex::new(BTreeMap::new());
    let (store, _) = remote::split(url)?;
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(remote) = known().get(store.as_str()) {
        return Ok(Arc::clone(remote));
    }
    let remote = Arc::new(store::open(&store, url, &[])?);
    Ok(Arc::clone(
        known().entry(store.to_string()).or_insert(remote),
    ))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "+.-".contains(letter))
}

/// Where files are written.
#[derive(Debug, Clone)]
pub(super) enum Target {
    /// A folder.
    Local(PathBuf),
    /// Below a prefix of a store.
    Remote {
        remote: Arc<Remote>,
        prefix: ObjectPath,
    },
}

/// The folder or prefix that a path or URL names.
pub(super) fn target_of(url: &str, options: &LoadOptions) -> Result<Target> {
    let prefix_of = |path: &str| remote::path_of(url, &remote::names_in(path));
    if let Some(store) = options.store() {
        let remote = Arc::new(Remote::given(Arc::clone(store)));
        let prefix = prefix_of(url)?;
        return Ok(Target::Remote { remote, prefix });
    }
    if url.is_empty() {
        return Err(Error::invalid_argument("the folder must have a name"));
    }
    check_options(std::slice::from_ref(&url.to_owned()), options)?;
    let path = match url.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("file") => file_url(url, rest)?,
        Some((scheme, _)) if is_scheme(scheme) => {
            let (store, path) = remote::split(url)?;
            let remote = Arc::new(store::open(&store, url, options.storage_options())?);
            let prefix = prefix_of(&path)?;
            return Ok(Target::Remote { remote, prefix });
        }
        _ => url.to_owned(),
    };
    Ok(Target::Local(local::absolute(url, &path)?))
}

/// The data files that are there already, as the target names them.
pub(super) async fn data_files_below(target: &Target, name: &str) -> Result<Vec<String>> {
    let found = match target {
        Target::Local(folder) => {
            let (name, folder) = (name.to_owned(), folder.clone());
            if folder.exists() && !folder.is_dir() {
                let text = "files are written into a folder, this is none";
                return Err(Error::invalid_argument(text).with_file(name));
            }
            if folder.is_symlink() && !folder.exists() {
                let text = "files are written into a folder, this is a link that leads to nothing";
                let error = Error::not_found(text).with_file(name);
                return Err(
                    error.with_hint("make the folder that it is to lead to, or name that folder")
                );
            }
            blocking(move || local::find(&name, &folder)).await
        }
        Target::Remote { remote, prefix } => remote::below(remote, name, prefix).await,
    };
    let files = match found {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        found => found?,
    };
    let names = files.into_iter().map(|file| match file.place {
        Place::Local(_) => file.name,
        Place::Remote { path, .. } => path.to_string(),
    });
    Ok(names.collect())
}

/// The data files in a local folder.
pub(super) fn data_files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let files = match local::find(&folder.to_string_lossy(), folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        files => files?,
    };
    let names = files.into_iter().map(|file| PathBuf::from(file.name));
    Ok(names.collect())
}

/// The path of a `file://` URL, given what follows the two slashes.
fn file_url(source: &str, rest: &str) -> Result<String> {
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        let text = "a file URL must name a path of this host, as in file:///folder/a.parquet";
        return Err(Error::invalid_argument(text).with_file(source));
    }
    let decoded = percent_decode_str(path).decode_utf8().map_err(|error| {
        Error::invalid_argument("a file URL must hold valid UTF-8")
            .with_file(source)
            .with_source(error)
    })?;
    Ok(decoded.into_owned())
}

fn no_data(source: &str) -> Error {
    let endings = ENDINGS.join(", *");
    Error::not_found(format!("the folder holds no file *{endings}"))
        .with_file(source)
        .with_hint("names that start with _ or . are left out")
}

fn no_match(source: &str) -> Error {
    Error::not_found("no file matches the pattern")
        .with_file(source)
        .with_start_of(source)
}

/// Whether a name stands for something that is no data, as Hive and Spark have it; `_key=value` is a folder of data.
fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || (name.starts_with('_') && !name.contains('='))
}

/// Whether a file's name says that it is Parquet.
fn is_data(name: &str) -> bool {
    let name = name.to_lowercase();
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}
