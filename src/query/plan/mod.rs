//! Runs while a query is planned: which tiles it needs, and what is known of them.

pub(super) mod estimate;
pub(super) mod facts;
pub(super) mod pause;
pub(super) mod prune;
