//! Runs while a query runs: reading tiles and putting column bands side by side.

pub(crate) mod asof;
pub(super) mod batch_rows;
pub(super) mod between;
pub(super) mod connect;
pub(super) mod dense;
pub(super) mod enough;
pub(in crate::query) mod expand;
pub(super) mod expressions;
pub(in crate::query) mod first_seen;
mod growth;
pub(super) mod guarded;
pub(super) mod narrow;
pub(in crate::query) mod over;
pub(super) mod own;
pub(super) mod pace;
pub(super) mod portion;
pub(in crate::query) mod relabel;
pub(super) mod remains;
pub(super) mod reported;
pub(super) mod scan;
pub(super) mod spool;
pub(super) mod stop;
pub(super) mod twins;
pub(super) mod wait;
