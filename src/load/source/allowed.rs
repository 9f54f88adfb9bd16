//! Loads for somebody who may read some places only.
//!
//! Comes in: the folders and URLs that are allowed, a source as it was written, then the files that it led to. Goes out: nothing, or a refusal that does not say whether there is something. Never here: who asks.

use std::path::{Component, Path, PathBuf};

use super::{Place, SourceFile, is_scheme};
use crate::error::{Error, ErrorKind, Result};

/// Refuses a source that is not below an allowed place as it is written.
///
/// # Errors
/// `PermissionDenied`.
pub(in crate::load) fn check_source(allowed: &[String], source: &str) -> Result<()> {
    let is_url = |text: &str| {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| is_scheme(scheme) && !scheme.eq_ignore_ascii_case("file"))
    };
    let is_below = |place: &String| match (is_url(place), is_url(source)) {
        (true, true) => is_below_url(place, source),
        (false, false) => {
            let (place, source) = (absolute(place), absolute(source));
            place
                .zip(source)
                .is_some_and(|(place, source)| source.starts_with(place))
        }
        _ => false,
    };
    if allowed.iter().any(is_below) {
        return Ok(());
    }
    Err(refused(source))
}

/// Refuses files that a link led out of the allowed folders.
///
/// # Errors
/// `PermissionDenied`; `NotFound` for one that is gone.
pub(in crate::load) fn check_files(allowed: &[String], files: &[SourceFile]) -> Result<()> {
    let roots: Vec<PathBuf> = allowed
        .iter()
        .filter_map(|place| absolute(place)?.canonicalize().ok())
        .collect();
    for file in files {
        if let Place::Local(path) = &file.place {
            let real = path.canonicalize();
            if let Err(error) = &real
                && error.kind() == std::io::ErrorKind::NotFound
            {
                let text = "the file is there no more";
                return Err(Error::not_found(text).with_file(&file.name));
            }
            let is_inside = real.is_ok_and(|real| roots.iter().any(|root| real.starts_with(root)));
            if !is_inside {
                return Err(refused(&file.name));
            }
        }
    }
    Ok(())
}

fn refused(source: &str) -> Error {
    let text = "this is not below a place that may be loaded from";
    Error::new(ErrorKind::PermissionDenied, text).with_context("source", source)
}

/// Object stores know no `..`, but those who write URLs do.
fn is_below_url(place: &str, source: &str) -> bool {
    let lower = source.to_ascii_lowercase();
    let climbs = lower.split(['/', '\\']).any(|part| part == "..") || lower.contains("%2e");
    let place = format!("{}/", place.trim_end_matches('/'));
    !climbs && (source.starts_with(&place) || source == place.trim_end_matches('/'))
}

/// The path without `.`, as it is written; nothing for one with `..`.
fn absolute(path: &str) -> Option<PathBuf> {
    let path = path.strip_prefix("file://").unwrap_or(path);
    let whole = std::path::absolute(Path::new(path)).ok()?;
    let climbs = whole.components().any(|part| part == Component::ParentDir);
    (!climbs && !path.contains('\0')).then_some(whole)
}
