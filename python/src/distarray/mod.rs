//! The Distributed Array Protocol: who has which elements (`map.rs`, `distribution.rs`), arrays and their sections (`array.rs`, `section.rs`), other distributions (`plan.rs`, `halo.rs`, over the buffers of
//! `memory.rs`), what is wrong with the sections of others (`check.rs`), grids of them (`import.rs`).
//!
//! Every number comes from `partgrid::distarray`.

mod array;
mod check;
mod dictionary;
mod distribution;
mod export;
mod halo;
mod import;
mod map;
mod memory;
mod plan;
mod section;
mod value;
mod wishes;

pub(crate) use array::{PyDistArray, from_parts, from_sections};
pub(crate) use check::{PyFinding, validate};
pub(crate) use distribution::PyDistribution;
pub(crate) use export::{Export, Lying, Names, Padding, export};
pub(crate) use halo::{PyHaloPlan, fill_halos};
pub(crate) use import::from_distarray;
pub(crate) use map::{PyMap, block, cyclic, unstructured};
pub(crate) use plan::{PyPlan, PyTransfer};
pub(crate) use section::PySection;
pub(crate) use wishes::PyVersion;
