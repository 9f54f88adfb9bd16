//! Runs while a query runs: reading tiles and putting column bands side by side.

pub(super) mod morsel;
pub(super) mod own;
pub(super) mod scan;
pub(super) mod stitch;
pub(super) mod stop;
