//! Runs while a query runs: reading tiles and putting column bands side by side.

mod ahead;
mod align;
pub(super) mod batch_rows;
pub(super) mod between;
mod condition;
pub(super) mod connect;
pub(super) mod dense;
pub(super) mod enough;
pub(in crate::query) mod expand;
pub(super) mod expressions;
mod growth;
pub(super) mod morsel;
pub(super) mod narrow;
pub(super) mod own;
pub(super) mod pace;
pub(super) mod portion;
mod read;
pub(in crate::query) mod relabel;
pub(super) mod reported;
pub(super) mod scan;
mod sieve;
pub(super) mod spool;
pub(super) mod stitch;
pub(super) mod stop;
mod tally;
pub(super) mod twins;
pub(super) mod wait;
