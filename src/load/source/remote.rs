//! Object stores: which objects a URL stands for.
//!
//! Comes in: a URL with or without a pattern, settings. Goes out: objects with their sizes and etags. Never here: how a store is reached (`store.rs`), what is in the
//! objects.

use std::sync::Arc;

use futures::TryStreamExt;
use object_store::path::{Path as ObjectPath, PathPart};
use object_store::{ObjectMeta, ObjectStoreExt};
use url::Url;

use super::pattern::{Pattern, has_wildcard};
use super::store::Remote;
use super::{Place, SourceFile, no_data, no_match};
use crate::error::{Error, ErrorKind, Result};
use crate::load::hive::keys_of;

/// The files that a URL, or a path in a store that the caller gave, stands for; at least one. `path` is what follows the host, decoded.
pub(super) async fn find(
    remote: &Arc<Remote>,
    source: &str,
    path: &str,
) -> Result<Vec<SourceFile>> {
    let search = Search { remote, source };
    let names = names_in(path);
    if !path.ends_with('/')
        && !names.is_empty()
        && let Some(file) = search.object(&names).await?
    {
        return Ok(vec![file]);
    }
    if remote.is_http() {
        return Err(Error::not_found("no such file")
            .with_file(source)
            .with_hint("HTTP has no folders and no patterns: name each file"));
    }
    let wild = names.iter().position(|name| has_wildcard(name));
    let (base, rest) = names.split_at(wild.unwrap_or(names.len()));
    let pattern = Pattern::try_new(rest).map_err(|error| error.with_file(source))?;
    let files = search.below(base, &pattern).await?;
    match (files.is_empty(), wild) {
        (false, _) => Ok(files),
        (true, Some(_)) => Err(no_match(source)),
        (true, None) => Err(no_data(source)),
    }
}

/// The URL of the store, and the path in it. Paths of HTTP are decoded; those of object stores are names as they stand, where `?` may be a wildcard.
pub(super) fn split(source: &str) -> Result<(Url, String)> {
    let wrong =
        |what: &str| Error::invalid_argument(format!("not a URL: {what}")).with_file(source);
    let parse =
        |text: &str| Url::parse(text).map_err(|error| wrong(&error.to_string()).with_source(error));
    if source.starts_with("http") {
        let url = parse(source)?;
        if url.query().is_some() {
            return Err(Error::unsupported("a URL with a query cannot be loaded").with_file(source));
        }
        let path = percent_encoding::percent_decode_str(url.path()).decode_utf8();
        let path = path
            .map_err(|_| wrong("it must hold valid UTF-8"))?
            .into_owned();
        return Ok((url, path));
    }
    let (scheme, rest) = source.split_once("://").unwrap_or_default();
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() && scheme != "memory" {
        return Err(wrong("the name of a bucket must follow `://`"));
    }
    Ok((
        parse(&format!("{}://{host}", scheme.to_lowercase()))?,
        path.to_owned(),
    ))
}

/// The path of names as they stand: a store keeps what others call them, and knows no other form of it.
pub(super) fn path_of(source: &str, names: &[&str]) -> Result<ObjectPath> {
    let parts = names.iter().map(|name| PathPart::parse(name));
    let parts: Vec<PathPart<'_>> = parts.collect::<Result<_, _>>().map_err(|error| {
        let text = "a path in a store has no parts `.` and `..`, and no control characters";
        Error::invalid_argument(text)
            .with_file(source)
            .with_source(error)
    })?;
    Ok(parts.into_iter().collect())
}

/// The names in a path.
pub(super) fn names_in(path: &str) -> Vec<&str> {
    path.split('/').filter(|name| !name.is_empty()).collect()
}

/// The data files below a prefix, whatever is in its name; at least one.
pub(super) async fn below(
    remote: &Arc<Remote>,
    source: &str,
    prefix: &ObjectPath,
) -> Result<Vec<SourceFile>> {
    let pattern = Pattern::try_new(&[]).map_err(|error| error.with_file(source))?;
    let names = names_in(prefix.as_ref());
    let files = Search { remote, source }.below(&names, &pattern).await?;
    match files.is_empty() {
        true => Err(no_data(source)),
        false => Ok(files),
    }
}

struct Search<'a> {
    remote: &'a Arc<Remote>,
    source: &'a str,
}

impl Search<'_> {
    /// The object of exactly this name, if there is one.
    async fn object(&self, names: &[&str]) -> Result<Option<SourceFile>> {
        let path = path_of(self.source, names)?;
        match self.remote.store.head(&path).await {
            Ok(meta) => {
                let folders = names.split_last().map_or(&[][..], |(_, folders)| folders);
                Ok(Some(self.file(meta, trailing(folders))))
            }
            Err(error) => match self.remote.error(error, self.source) {
                error if error.kind() == ErrorKind::NotFound => Ok(None),
                // Who may list only below a prefix may not ask for any name.
                error
                    if error.kind() == ErrorKind::PermissionDenied && has_wildcard(self.source) =>
                {
                    Ok(None)
                }
                error => Err(error),
            },
        }
    }

    async fn below(&self, base: &[&str], pattern: &Pattern) -> Result<Vec<SourceFile>> {
        let prefix = path_of(self.source, base)?;
        let prefix_of = (!base.is_empty()).then_some(&prefix);
        let metas: Vec<ObjectMeta> = self
            .remote
            .store
            .list(prefix_of)
            .try_collect()
            .await
            .map_err(|error| self.remote.error(error, self.source))?;
        let mut files = Vec::new();
        for meta in metas {
            let parts = meta.location.prefix_match(&prefix).into_iter().flatten();
            let below: Vec<String> = parts.map(|part| part.as_ref().to_owned()).collect();
            // Some stores have an empty object for each folder.
            if below.is_empty() || (meta.size == 0 && meta.location.as_ref().ends_with('/')) {
                continue;
            }
            if pattern.takes(&below) {
                let below: Vec<&str> = below.iter().map(String::as_str).collect();
                let folders = below.split_last().map_or(&[][..], |(_, folders)| folders);
                let keys = [trailing(base), folders].concat();
                files.push(self.file(meta, &keys));
            }
        }
        Ok(files)
    }

    fn file(&self, meta: ObjectMeta, folders: &[&str]) -> SourceFile {
        SourceFile {
            name: named(&self.remote.root, &meta.location),
            place: Place::Remote {
                remote: Arc::clone(self.remote),
                path: meta.location,
            },
            size_bytes: meta.size,
            stamp: meta.e_tag,
            settled: true,
            hive: keys_of(folders),
        }
    }
}

/// The name of an object in messages: the URL of the store, and the path.
pub(in crate::load) fn named(root: &str, path: &ObjectPath) -> String {
    format!("{root}{path}")
}

/// The run of `key=value` folders that a path ends with.
fn trailing<'a, 'b>(folders: &'b [&'a str]) -> &'b [&'a str] {
    let plain = folders.iter().rposition(|folder| !folder.contains('='));
    folders
        .get(plain.map_or(0, |place| place + 1)..)
        .unwrap_or_default()
}
