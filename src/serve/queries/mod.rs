//! Queries of clients, while they run and when they have run.
//!
//! Comes in: what tickets stand for (`answers`). Goes out: batches within what one answer may be (`rows`), or parts of answers that are made while nobody listens (`poll`); what runs at this moment (`running`). Never here: statements (`sql/`).

pub(super) mod answers;
pub(super) mod poll;
pub(super) mod rows;
pub(super) mod running;
