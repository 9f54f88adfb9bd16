//! Paths, folders, patterns -> a sorted list of files, each with the store that holds it.
//!
//! Comes in: what the user wrote. Goes out: every file once, in name order, with its size and the `key=value` folders above it. `local.rs` walks through the file
//! system, `pattern.rs` says which names match. Never here: what is in the files.

mod local;
mod pattern;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path as ObjectPath;
use percent_encoding::percent_decode_str;

pub(super) use local::stamp_of;

use super::error::blocking;
use super::hive::HiveKey;
use crate::error::{Error, Result};

const ENDINGS: [&str; 3] = [".parquet", ".parq", ".pq"];

/// Where the bytes of a file are.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// In the file system of this machine.
    Local(Arc<Path>),
    /// In an object store, under a path in it.
    Remote {
        store: Arc<dyn ObjectStore>,
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
    /// The `key=value` folders between the source and the file, outermost first.
    pub(super) hive: Vec<HiveKey>,
}

/// Finds the files of all sources: in name order, each once, at least one.
pub(super) async fn find(sources: &[String]) -> Result<Vec<SourceFile>> {
    if sources.is_empty() {
        return Err(Error::invalid_argument(
            "at least one source is needed, got none",
        ));
    }
    let mut files = BTreeMap::new();
    for source in sources {
        let source = source.clone();
        let found = blocking(move || find_one(&source)).await?;
        files.extend(found.into_iter().map(|file| (file.name.clone(), file)));
    }
    Ok(files.into_values().collect())
}

fn find_one(source: &str) -> Result<Vec<SourceFile>> {
    let path = match source.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("file") => file_url(source, rest)?,
        Some((scheme, _)) if is_scheme(scheme) => {
            return Err(Error::unsupported(format!(
                "only local files can be loaded, got a URL of scheme `{scheme}`"
            ))
            .with_file(source)
            .with_hint("copy the files to a local folder first"));
        }
        _ => source.to_owned(),
    };
    local::find(source, &local::absolute(source, &path)?)
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "+.-".contains(letter))
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
    Error::not_found("no file matches the pattern").with_file(source)
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
