//! partgrid keeps a dataframe as a grid of Arrow tiles, says where every tile lives, hands tiles over without copying, and runs SQL where they are.

#[cfg(feature = "cli")]
pub mod cli;
pub mod device;
pub mod distarray;
pub mod error;
pub mod grid;
#[cfg(feature = "parquet")]
pub mod load;
pub mod location;
pub mod partitioned;
#[cfg(feature = "sql")]
pub mod query;
pub mod share;

/// Runs the example of the README as a test.
#[cfg(all(doctest, feature = "parquet", feature = "sql"))]
#[doc = include_str!("../README.md")]
mod readme {}
