//! Runs while a query is planned: what it means, which tiles it needs, and what is known of them.
//!
//! Comes in: logical and physical plans of the engine. Goes out: plans that mean the same as the SQL, and cost less. In the order in which they act:
//!
//! 1. On what the SQL planner made: `repeated` (what stands in a statement twice), `copies`, `types/` (before types are settled), `meaning/` (after). `walk` passes all expressions of a plan.
//! 2. Subqueries and nodes of ours: `subqueries`, `apply/`, `only`, `steps`, `asof/`, which `own_nodes` makes physical; in clusters `spread/`.
//! 3. What is known of grids: `statistics/`, `dependencies`, `sorted`; with it the order of joins (`join_order`, `join_search`, `outer`) and groups (`early_groups`, `one_step`, `roll_up`, `set_keys`).
//! 4. Physical plans: `casts`, `constants`, `offsets`, `unions`, `stay`, `long_limit`, `narrow`, `required`, `settings`, `pause`.
//!
//! Never here: what is done to a plan just before it runs, which is in `exec`.

pub(super) mod apply;
pub(in crate::query) mod asof;
pub(super) mod casts;
pub(crate) mod constants;
pub(super) mod copies;
mod dependencies;
pub(super) mod early_groups;
pub(super) mod join_order;
mod join_search;
pub(super) mod long_limit;
pub(super) mod meaning;
pub(super) mod narrow;
pub(super) mod offsets;
pub(super) mod one_step;
pub(super) mod only;
pub(super) mod outer;
pub(super) mod own_nodes;
pub(super) mod pause;
pub(super) mod repeated;
pub(super) mod required;
pub(super) mod roll_up;
pub(super) mod set_keys;
pub(super) mod settings;
pub(super) mod sorted;
#[cfg(feature = "distributed")]
pub(super) mod spread;
pub(in crate::query) mod statistics;
mod stay;
pub(super) mod steps;
pub(super) mod subqueries;
pub(super) mod types;
mod unions;
mod walk;
