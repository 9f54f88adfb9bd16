//! partgrid keeps a dataframe as a grid of Arrow tiles, says where every tile lives, hands tiles over without copying, and runs SQL where they are.
//!
//! Read the modules in the order in which data flows:
//!
//! 1. [`load`]: Parquet files become a grid.
//! 2. [`grid`]: the central noun, [`PartitionGrid`]; a tile is data behind the trait [`grid::TileData`], at a [`location`].
//! 3. [`query`]: SQL over grids.
//! 4. Side exits: [`partitioned`] and [`distarray`] describe a grid as two protocols do, [`device`] hands batches through the Arrow C interfaces, [`share`] names
//!    tiles across process borders and shares their memory, [`storage`] lays memory out for stencils.
//! 5. [`serve`]: a server that holds grids, over Arrow Flight SQL; [`client`]: what another server holds; [`catalog`]: grids
//!    that outlive the process.
//! 6. [`cli`]: the `partgrid` command as a function.
//!
//! Everything fails with one [`Error`], whose [`ErrorKind`] says what a program can do about it.
//!
//! | feature | default | brings |
//! | --- | --- | --- |
//! | `parquet` | yes | [`load`]: parquet, object_store |
//! | `sql` | yes | [`query`]: DataFusion |
//! | `serve` | yes | [`serve`]: arrow-flight, tonic, axum, rustls; needs both others |
//! | `distributed` | yes | [`cluster`]: datafusion-distributed; needs `serve` |
//! | `cli` | yes | [`cli`] and the command `partgrid`; needs `serve` |

#[cfg(feature = "serve")]
pub mod catalog;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "serve")]
pub mod client;
#[cfg(feature = "distributed")]
pub mod cluster;
pub mod device;
pub mod distarray;
pub mod error;
#[cfg(feature = "serve")]
pub(crate) mod flight;
pub mod grid;
#[cfg(feature = "parquet")]
pub mod load;
pub mod location;
pub mod memory;
pub mod partitioned;
#[cfg(feature = "sql")]
pub mod query;
mod quiet;
#[cfg(feature = "serve")]
pub mod serve;
pub mod share;
pub mod still;
pub mod storage;

// What unit tests and those of the public interface both need.
#[cfg(test)]
#[cfg(feature = "serve")]
#[path = "../tests/it/columns.rs"]
mod columns;
#[cfg(test)]
#[cfg(feature = "serve")]
#[path = "../tests/it/counting.rs"]
mod counting;
#[cfg(test)]
#[cfg(feature = "serve")]
#[path = "../tests/it/harm.rs"]
mod harm;

pub use error::{Error, ErrorKind, Result};
pub use grid::PartitionGrid;

/// Runs the example of the README as a test.
#[cfg(all(doctest, feature = "parquet", feature = "sql"))]
#[doc = include_str!("../README.md")]
mod readme {}
