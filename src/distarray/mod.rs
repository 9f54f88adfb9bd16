//! The Distributed Array Protocol, 0.9 and 0.10, as plain data.
//!
//! Comes in: columns of a grid, or the dictionaries of others as untyped values. Goes out: sections ([`export`]), and what dictionaries mean. Read on in `version.rs` (what differs between
//! the versions), `dimension.rs` (one dictionary), `index_set.rs`, `map/` (one dimension over all ranks), `distribution.rs` (their product), `picture.rs` (it drawn), `redistribute/` (who sends what to whom); of
//! others: `value.rs`, `json.rs`, `check/` (all that is wrong with them), `import.rs` (a grid of them). Never here: Python, communication, data of other processes.

pub mod check;
mod dimension;
mod distribution;
mod export;
mod import;
mod index_set;
#[cfg(feature = "cli")]
mod json;
mod map;
mod picture;
pub mod redistribute;
mod value;
mod version;

pub use dimension::{DimData, Dist};
pub use distribution::Distribution;
pub use export::{Columns, Copied, DistArray, ExportOptions, Parts, Reason, Section, export};
pub use import::{fits_frame, import};
pub use index_set::{IndexSet, Part, Progression, Run, Runs};
#[cfg(feature = "cli")]
pub use json::from_json;
pub use map::{Halo, Map, Place};
pub use value::{BufferFacts, Integers, Value};
pub use version::{Rules, Version, translate};

pub use crate::grid::ElementType;
