//! Paths, folders, patterns -> an object store and a sorted list of files.
//!
//! Comes in: what the user wrote. Goes out: every file once, in name order, with its size and the `key=value` folders above it. This is the only file that knows the
//! store to be local. Never here: what is in the files.

use std::collections::BTreeMap;
use std::path::{Component, PathBuf};
use std::sync::Arc;

use futures::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

use super::error::from_store;
use super::hive::{HiveKey, keys_of};
use crate::error::{Error, Result};

const ENDINGS: [&str; 3] = [".parquet", ".parq", ".pq"];

/// One file to load.
#[derive(Debug, Clone)]
pub(super) struct SourceFile {
    /// As the store names it.
    pub(super) path: Path,
    /// As messages name it.
    pub(super) name: String,
    pub(super) size_bytes: u64,
    /// The `key=value` folders between the source and the file, outermost first.
    pub(super) hive: Vec<HiveKey>,
}

/// A store and the files in it.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) store: Arc<dyn ObjectStore>,
    /// In name order, each once, at least one.
    pub(super) files: Vec<SourceFile>,
}

/// Finds the files of all sources.
pub(super) async fn find(sources: &[String]) -> Result<Found> {
    if sources.is_empty() {
        return Err(Error::invalid_argument(
            "at least one source is needed, got none",
        ));
    }
    let store = LocalFileSystem::new();
    let mut files = BTreeMap::new();
    for source in sources {
        for file in find_one(&store, source).await? {
            files.insert(file.path.clone(), file);
        }
    }
    Ok(Found {
        store: Arc::new(store),
        files: files.into_values().collect(),
    })
}

async fn find_one(store: &LocalFileSystem, source: &str) -> Result<Vec<SourceFile>> {
    let path = absolute(source)?;
    let metadata = std::fs::metadata(&path);
    match metadata {
        Ok(metadata) if metadata.is_dir() => find_in_folder(store, source, &path).await,
        Ok(_) => {
            let location = location(&path, source)?;
            let meta = store
                .head(&location)
                .await
                .map_err(|error| from_store(error, source))?;
            let folder = path.parent().unwrap_or(&path);
            Ok(vec![file(store, meta, keys_above(folder))])
        }
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(Error::new(
            crate::error::ErrorKind::PermissionDenied,
            "access is refused",
        )
        .with_file(source)
        .with_source(error)),
        Err(error) if source.contains(['*', '?', '[']) => {
            drop(error);
            find_by_pattern(store, source, &path).await
        }
        Err(error) => Err(Error::not_found("no such file or folder")
            .with_file(source)
            .with_source(error)),
    }
}

/// The path that a source names, from the root, without `.` and `..`.
fn absolute(source: &str) -> Result<PathBuf> {
    let path = match source.split_once("://") {
        Some(("file", rest)) => {
            let decoded = percent_encoding::percent_decode_str(rest).decode_utf8();
            decoded
                .map_err(|_| {
                    Error::invalid_argument("a file URL must hold valid UTF-8").with_file(source)
                })?
                .into_owned()
        }
        Some((scheme, _)) if scheme.chars().all(|letter| letter.is_ascii_alphanumeric()) => {
            return Err(Error::unsupported(format!(
                "only local files can be loaded, got a URL of scheme `{scheme}`"
            ))
            .with_file(source)
            .with_hint("copy the files to a local folder first"));
        }
        _ => source.to_owned(),
    };
    if path.is_empty() {
        return Err(Error::invalid_argument("a source must not be empty"));
    }
    let path = std::path::absolute(&path).map_err(|error| {
        Error::invalid_argument("not a path")
            .with_file(source)
            .with_source(error)
    })?;
    let mut plain = PathBuf::new();
    for component in path.components() {
        if component == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(component);
        }
    }
    Ok(plain)
}

fn location(path: &std::path::Path, source: &str) -> Result<Path> {
    Path::from_absolute_path(path).map_err(|error| {
        Error::invalid_argument("not a path")
            .with_file(source)
            .with_source(error)
    })
}

async fn find_in_folder(
    store: &LocalFileSystem,
    source: &str,
    folder: &std::path::Path,
) -> Result<Vec<SourceFile>> {
    let files = list(store, folder, source).await?;
    let files: Vec<SourceFile> = files
        .into_iter()
        .filter(|(_, below)| is_data(below))
        .map(|(file, _)| file)
        .collect();
    if files.is_empty() {
        let endings = ENDINGS.join(", *");
        return Err(
            Error::not_found(format!("the folder holds no file *{endings}"))
                .with_file(source)
                .with_hint("names that start with _ or . are left out"),
        );
    }
    Ok(files)
}

async fn find_by_pattern(
    store: &LocalFileSystem,
    source: &str,
    path: &std::path::Path,
) -> Result<Vec<SourceFile>> {
    let text = path.to_string_lossy();
    let pattern = glob::Pattern::new(&text).map_err(|error| {
        Error::invalid_argument(format!("not a glob pattern: {error}")).with_file(source)
    })?;
    let has_wildcard =
        |part: &Component<'_>| part.as_os_str().to_string_lossy().contains(['*', '?', '[']);
    let base: PathBuf = path
        .components()
        .take_while(|part| !has_wildcard(part))
        .collect();
    let options = glob::MatchOptions {
        require_literal_separator: true,
        ..glob::MatchOptions::new()
    };
    let files = list(store, &base, source).await?;
    let matches = |file: &SourceFile| pattern.matches_with(&file.name, options);
    let files: Vec<SourceFile> = files
        .into_iter()
        .map(|(file, _)| file)
        .filter(matches)
        .collect();
    if files.is_empty() {
        return Err(Error::not_found("no file matches the pattern").with_file(source));
    }
    Ok(files)
}

/// All files below a folder, each with the parts of its path below the folder.
async fn list(
    store: &LocalFileSystem,
    folder: &std::path::Path,
    source: &str,
) -> Result<Vec<(SourceFile, Vec<String>)>> {
    let prefix = location(folder, source)?;
    let metas: Vec<ObjectMeta> = store
        .list(Some(&prefix))
        .try_collect()
        .await
        .map_err(|error| from_store(error, source))?;
    let above = keys_above(folder);
    let entries = metas.into_iter().map(|meta| {
        let parts = meta.location.prefix_match(&prefix).into_iter().flatten();
        let below: Vec<String> = parts.map(|part| decoded(part.as_ref())).collect();
        let folders: Vec<&str> = below.iter().map(String::as_str).collect();
        let folders = folders.split_last().map_or(&[][..], |(_, folders)| folders);
        let keys = above.iter().cloned().chain(keys_of(folders)).collect();
        (file(store, meta, keys), below)
    });
    Ok(entries.collect())
}

/// The keys of the `key=value` folders that a path ends with, so that `flights/month=01` has a month as `flights` has.
fn keys_above(folder: &std::path::Path) -> Vec<HiveKey> {
    let parts: Vec<&str> = folder
        .components()
        .filter_map(|part| part.as_os_str().to_str())
        .collect();
    let plain = parts.iter().rposition(|part| !part.contains('='));
    let first = plain.map_or(0, |place| place + 1);
    keys_of(parts.get(first..).unwrap_or_default())
}

fn decoded(part: &str) -> String {
    percent_encoding::percent_decode_str(part)
        .decode_utf8_lossy()
        .into_owned()
}

fn file(store: &LocalFileSystem, meta: ObjectMeta, hive: Vec<HiveKey>) -> SourceFile {
    let path = store.path_to_filesystem(&meta.location);
    SourceFile {
        name: path.map_or_else(
            |_| meta.location.to_string(),
            |path| path.to_string_lossy().into_owned(),
        ),
        path: meta.location,
        size_bytes: meta.size,
        hive,
    }
}

/// Whether a path below a folder names a data file.
fn is_data(below: &[String]) -> bool {
    let hidden =
        |part: &String| part.starts_with('.') || (part.starts_with('_') && !part.contains('='));
    let ending = |name: &String| {
        ENDINGS
            .iter()
            .any(|ending| name.to_lowercase().ends_with(ending))
    };
    !below.iter().any(hidden) && below.last().is_some_and(ending)
}
