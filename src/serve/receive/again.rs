//! Loads that are asked for again, because the answer was lost.
//!
//! Comes in: the id that a client gave a load, and what it asks for or sends. Goes out: whether the grid under the name was made by that very load already; the same id with something else is refused.
//! Never here: loading.

use std::io::{self, Write};

use arrow::array::RecordBatch;
use prost::Message;
use sha2::{Digest as _, Sha256};
use tonic::metadata::MetadataMap;

use crate::error::{Error, Result};
use crate::flight::LOAD_ID;
use crate::flight::messages::LoadRequest;
use crate::grid::{LoadMark, PartitionGrid};
use crate::serve::door::call::hex;
use crate::share::ipc;

/// The longest id of a load.
const MAX_ID_BYTES: usize = 200;

/// The id of a load, if a client gave it one.
///
/// # Errors
/// `InvalidArgument` for one that is too long or has control characters.
pub(super) fn id_of(text: &str) -> Result<Option<String>> {
    if text.is_empty() {
        return Ok(None);
    }
    if text.len() > MAX_ID_BYTES || text.chars().any(char::is_control) {
        let text = format!(
            "a load id must have 1 to {MAX_ID_BYTES} bytes and no control characters, got {text:?}"
        );
        return Err(Error::invalid_argument(text));
    }
    Ok(Some(text.to_owned()))
}

/// That of a request that sends rows, if its headers say one.
///
/// # Errors
/// As [`id_of`]; `InvalidArgument` for a header without a value, or of other characters than ASCII.
pub(in crate::serve) fn said(metadata: &MetadataMap) -> Result<Option<String>> {
    let Some(value) = metadata.get(LOAD_ID) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    let wrong = || {
        let text = format!("the header {LOAD_ID} must be a load id, as plain text, got none");
        Error::invalid_argument(text)
    };
    id_of(text)?.map(Some).ok_or_else(wrong)
}

/// What a load asks for or sends, as it comes.
#[derive(Clone, Default)]
pub(super) struct Sum(Sha256);

impl Write for Sum {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sum {
    /// Adds bytes, and where they end.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// Adds rows with their columns.
    ///
    /// # Errors
    /// `Unsupported` for columns that Arrow IPC does not hold.
    pub(super) fn add_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        Ok(ipc::write(batch, &[], self)?)
    }

    /// All of it, in hexadecimal.
    pub(super) fn all(self) -> String {
        hex(&self.0.finalize())
    }
}

/// What a client asks the server to load, if it may ask again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::serve) struct Asked {
    pub(in crate::serve) id: String,
    digest: String,
}

impl Asked {
    /// That of a request; `None` where the client gave it no id.
    ///
    /// # Errors
    /// As [`id_of`].
    pub(in crate::serve) fn of(request: &LoadRequest) -> Result<Option<Self>> {
        let Some(id) = id_of(&request.load_id)? else {
            return Ok(None);
        };
        // What is to become of a grid that is there is no part of what is loaded.
        let wishes = LoadRequest {
            replace: false,
            load_id: String::new(),
            ..request.clone()
        };
        let mut sum = Sum::default();
        sum.add(&wishes.encode_to_vec());
        let digest = sum.all();
        Ok(Some(Self { id, digest }))
    }

    /// The load, once it is known how many rows it has.
    pub(in crate::serve) fn mark(&self, num_rows: u64) -> LoadMark {
        LoadMark {
            id: self.id.clone(),
            digest: self.digest.clone(),
            num_rows,
        }
    }

    /// How many rows it had, if it made a grid.
    ///
    /// # Errors
    /// As [`was_done`].
    pub(in crate::serve) fn rows_of(&self, grid: &PartitionGrid) -> Result<Option<u64>> {
        found(&self.id, &self.digest, grid)
    }
}

/// Whether a grid says that a load of this id made it or added to it.
pub(super) fn is_known(id: Option<&str>, grid: &PartitionGrid) -> bool {
    let mut loads = grid.loads().iter();
    id.is_some_and(|id| loads.any(|load| load.id == id))
}

/// Whether a grid was made by a load, or has its rows.
///
/// # Errors
/// `InvalidArgument` when the id is that of another load of this grid.
pub(super) fn was_done(load: &LoadMark, grid: &PartitionGrid) -> Result<bool> {
    Ok(found(&load.id, &load.digest, grid)?.is_some())
}

fn found(id: &str, digest: &str, grid: &PartitionGrid) -> Result<Option<u64>> {
    match grid.loads().iter().find(|known| known.id == id) {
        None => Ok(None),
        Some(known) if known.digest == digest => Ok(Some(known.num_rows)),
        Some(_) => Err(other(id)),
    }
}

/// An id that stands for something else already.
pub(in crate::serve) fn other(id: &str) -> Error {
    let text = format!(
        "the load id {id:?} is that of another load of this table: other rows, or other wishes"
    );
    Error::invalid_argument(text)
        .with_hint("repeat the same load with it, or give this one an id of its own")
}

/// The marks of a grid to which a load has added.
pub(super) fn with(before: &[LoadMark], load: Option<&LoadMark>) -> Vec<LoadMark> {
    let mut marks = before.to_vec();
    marks.extend(load.cloned());
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_parts_end_is_part_of_a_sum() {
        let sum = |parts: &[&str]| {
            let mut sum = Sum::default();
            parts.iter().for_each(|part| sum.add(part.as_bytes()));
            sum.all()
        };
        assert_eq!(sum(&["ab", "c"]), sum(&["ab", "c"]));
        assert_ne!(sum(&["ab", "c"]), sum(&["a", "bc"]));
    }

    #[test]
    fn ids_are_short_and_plain() {
        assert_eq!(id_of("").unwrap(), None);
        assert_eq!(id_of("é 1").unwrap().as_deref(), Some("é 1"));
        assert!(id_of("a\nb").is_err());
        assert!(id_of(&"x".repeat(201)).is_err());
    }
}
