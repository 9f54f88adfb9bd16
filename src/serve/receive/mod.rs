//! What clients send: rows, tiles, values, statements that name something.
//!
//! Comes in: the messages of DoPut. Goes out: grids under names, all at once or not at all. `put` reads the messages, `ingest` makes grids of rows, `upload` of tiles that come one by one; `visit` knows who is still there, `again` loads that
//! are repeated, `held` counts what is not yet a grid. Never here: loads that the server does itself (`jobs/`).

pub(super) mod again;
pub(super) mod held;
pub(super) mod ingest;
pub(super) mod put;
pub(super) mod upload;
pub(super) mod visit;
