//! Which loads made a grid.
//!
//! Comes in: the ids that clients gave their loads. Goes out: the same, as long as the rows stand under a name: who repeats a load whose answer was lost is recognized by them. Never here: loading, comparing rows.

use std::sync::Arc;

use crate::grid::PartitionGrid;

/// The most loads that a grid knows; the oldest are forgotten first.
const MOST: usize = 1000;

/// A load that made a grid, or added rows to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadMark {
    /// What its client called it.
    pub id: String,
    /// A checksum of what was asked for or sent: the same id with another one is another load.
    pub digest: String,
    /// The rows that it brought.
    pub num_rows: u64,
}

impl PartitionGrid {
    /// The loads that made it and had an id, the oldest first.
    #[must_use]
    pub fn loads(&self) -> &[LoadMark] {
        &self.loads
    }

    /// The same grid, made by these loads; only the latest thousand are kept.
    #[must_use]
    pub fn with_loads(self, mut loads: Vec<LoadMark>) -> Self {
        let too_many = loads.len().saturating_sub(MOST);
        loads.drain(..too_many);
        let loads = Arc::from(loads);
        Self { loads, ..self }
    }
}
