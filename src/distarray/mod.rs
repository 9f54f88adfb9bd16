//! The Distributed Array Protocol, 0.9 and 0.10, as plain data.
//!
//! Comes in: columns of a grid, or the dictionaries of others as untyped values. Goes out: sections ([`export`]), and what dictionaries mean. Read on in `version.rs` (what differs between
//! the versions), `dimension.rs` (one dictionary), `index_set.rs`, `map/` (one dimension over all ranks), `distribution.rs` (their product), `redistribute/` (from one distribution to another). Never here: Python, communication, data of
//! other processes.

mod dimension;
mod distribution;
mod export;
mod index_set;
mod map;
pub mod redistribute;
mod version;

pub use dimension::{DimData, Dist};
pub use distribution::Distribution;
pub use export::{DistArray, Section, VERSION, export};
pub use index_set::{IndexSet, Part, Progression, Run, Runs};
pub use map::{Map, Place};
pub use version::{Rules, Version, translate};

pub use crate::grid::ElementType;
