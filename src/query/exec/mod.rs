//! Runs while a query runs: operators of ours, and what is done to a plan just before it runs.
//!
//! Comes in: physical plans. Goes out: batches; plans that are ready to run.
//!
//! - Operators: `scan/` (reading tiles), `asof/` (`groups`: rows of equal keys), `dense` (joins that look up by number), `spool/` (rows that are made once), `expand/` (groups for each set of keys), `running/` (windows from the first row), `whole/` (windows of whole partitions), `coded/` (groups by codes of keys), `sorting/` (all rows; `outside`: with files), `first_seen`, `relabel`; `over` is what those of one input have in common, `stand_in` those that stand in for one of the engine.
//! - Expressions: `narrow` (decimals in 64 bits), `guarded` (what can fail, beside what guards it), `expressions` (putting others into operators), `ordered` (numbers in the order of values).
//! - Before a run: `connect` (joins and TopK with scans; `twins`: columns of one name), `wait`, `enough` (few groups), `own` (copies for sorts), `batch_rows`, `portion` and `pace` (small batches for what makes much of little: `growth`), `reported`, `stable` (merges), `stop`; `between` is the node of these.
//! - After it: `remains`.
//!
//! Never here: which plan it is (`plan/`).

pub(crate) mod asof;
pub(super) mod batch_rows;
pub(super) mod between;
pub(super) mod coded;
pub(super) mod connect;
pub(super) mod dense;
pub(super) mod enough;
pub(in crate::query) mod expand;
pub(super) mod expressions;
pub(in crate::query) mod first_seen;
mod groups;
mod growth;
pub(super) mod guarded;
pub(super) mod narrow;
mod ordered;
mod outside;
pub(in crate::query) mod over;
pub(super) mod own;
pub(super) mod pace;
pub(super) mod portion;
pub(in crate::query) mod relabel;
pub(super) mod remains;
pub(super) mod reported;
pub(super) mod running;
pub(super) mod scan;
pub(super) mod sorting;
pub(super) mod spool;
pub(super) mod stable;
mod stand_in;
pub(super) mod stop;
pub(super) mod twins;
pub(super) mod wait;
pub(super) mod whole;
