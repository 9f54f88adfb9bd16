//! What goes on, for those who watch.
//!
//! Comes in: the state of the server. Goes out: JSON of what runs (`status`) and of grids (`describe`), whether all is as it should be (`health`), counters (`counts`), traces for collectors (`traces`), the page and metrics (`http`). Never
//! here: changes.

pub(super) mod counts;
pub(super) mod describe;
pub(super) mod health;
pub(super) mod http;
pub(super) mod status;
pub(super) mod traces;
