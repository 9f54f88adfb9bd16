//! Runs of planned queries.
//!
//! Comes in: a plan. Goes out: its batches. Read on in `answer` (a query, whose plan is `physical`), `begun` (what a run begins with) and `run` (one run); what it may use is kept by `bounds` (a session), `shares` (the operators of a run),
//! `allowance` (a caller), `kept` (answers in memory) and `spill` (files); how far it is and what it did say `progress` and `metrics`; `anew` plans again what found its rows gone. Never here: operators, which are in `exec`.

pub(super) mod allowance;
pub(super) mod anew;
pub(super) mod answer;
pub(super) mod begun;
pub(super) mod bounds;
mod kept;
pub(super) mod metrics;
pub(super) mod physical;
pub(super) mod progress;
pub(super) mod run;
mod shares;
pub(super) mod spill;
