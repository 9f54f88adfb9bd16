//! What is known of grids before anything is read, and what follows from it.
//!
//! Comes in: a grid, filters, logical plans. Goes out: exact statistics in the engine's shape (`facts`), the row bands that filters leave (`prune`), estimates of rows and values (`estimate` by samples, `cardinality` of parts of plans,
//! `longest` values, numbers `beyond` a border). Never here: decisions about joins and groups.

#[cfg(feature = "distributed")]
pub(in crate::query) mod beyond;
pub(in crate::query) mod cardinality;
pub(in crate::query) mod estimate;
pub(in crate::query) mod facts;
mod longest;
pub(in crate::query) mod prune;
