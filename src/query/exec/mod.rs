//! Runs while a query runs: reading tiles and putting column bands side by side.

mod condition;
pub(super) mod morsel;
mod read;
pub(super) mod scan;
mod sieve;
pub(super) mod stitch;
pub(super) mod stop;
