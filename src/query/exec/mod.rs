//! Runs while a query runs: reading tiles and putting column bands side by side.

mod align;
mod condition;
pub(super) mod dense;
pub(super) mod expressions;
pub(super) mod morsel;
pub(super) mod narrow;
pub(super) mod own;
mod read;
pub(super) mod scan;
mod sieve;
pub(super) mod stitch;
pub(super) mod stop;
mod tally;
pub(super) mod wait;
