//! What the files of a catalog are called.
//!
//! Comes in: names of tables, names of files. Goes out: folders of manifests, and back; whether a file is of a tile; names that nobody else draws. Never here: what is in them.

use crate::error::{Error, Result};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Where manifests and tiles are, within the catalog.
pub(super) const MANIFESTS: &str = "grids";
pub(super) const TILES: &str = "tiles";

/// The longest name that file systems take.
const MAX_FOLDER_BYTES: usize = 255;

/// What stays as it is in the name of a folder.
const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// The name of a table as that of a folder.
fn encoded(name: &str) -> String {
    utf8_percent_encode(name, &PLAIN).to_string()
}

/// The folder of the manifests of a table.
///
/// # Errors
/// `InvalidArgument` for a name that is too long for one.
pub(super) fn folder_of(name: &str) -> Result<String> {
    let encoded = encoded(name);
    if encoded.len() <= MAX_FOLDER_BYTES {
        return Ok(format!("{MANIFESTS}/{encoded}"));
    }
    let text = format!(
        "the name is too long for a catalog: as the name of a folder it may have {MAX_FOLDER_BYTES} bytes, it has {}",
        encoded.len()
    );
    Err(Error::invalid_argument(text).with_context("table", name))
}

/// A name that nobody else draws.
pub(super) fn unique() -> Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::internal("the operating system gave no random bytes").with_source(error)
    })?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}

pub(super) fn number_of(path: &str) -> Option<u64> {
    let (_, file) = path.rsplit_once('/')?;
    file.strip_suffix(".json")?.parse().ok()
}

/// With what the names of files begin that are being written, or were to see whether they can be. Where they stay, they are swept.
pub(super) const WRITING: &str = ".writing-";

/// A file beside the manifests that is none: no table has its name, which is not that of a folder either.
pub(super) fn probe(unique: &str) -> String {
    format!("{MANIFESTS}/{WRITING}{unique}")
}

/// Whether it is one that [`probe`] names.
pub(super) fn is_probe(path: &str) -> bool {
    let name = path
        .strip_prefix(MANIFESTS)
        .and_then(|rest| rest.strip_prefix('/'));
    name.is_some_and(|name| name.starts_with(WRITING) && !name.contains('/'))
}

/// Whether it is a name that only we give.
pub(super) fn is_tile(path: &str) -> bool {
    let is_hex = |part: Option<&str>, length: usize| {
        part.is_some_and(|part| {
            part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    };
    let is_number = |part: Option<&str>| part.is_some_and(|part| part.parse::<usize>().is_ok());
    let name = path
        .strip_prefix(TILES)
        .and_then(|rest| rest.strip_prefix('/'));
    let Some(name) = name.and_then(|name| name.strip_suffix(".arrow")) else {
        return false;
    };
    let mut parts = name.split('-');
    is_hex(parts.next(), 32)
        && is_number(parts.next())
        && is_number(parts.next())
        && is_hex(parts.next(), 16)
        && parts.next().is_none()
}

pub(super) fn name_of(path: &str) -> Option<String> {
    let rest = path.strip_prefix(MANIFESTS)?.strip_prefix('/')?;
    let (folder, _) = rest.split_once('/')?;
    let name = percent_decode_str(folder).decode_utf8().ok()?;
    Some(name.into_owned())
}
