//! Runs while a query is planned: what it means, which tiles it needs, and what is known of them.
//!
//! Comes in: logical and physical plans of the engine. Goes out: plans that mean the same as the SQL, and cost less.
//!
//! - What a plan means: `types/` (before types are settled) and `meaning/` (after), which `walk` past all expressions; `copies`, `steps`, `subqueries`, `apply/`, `only`, `asof/`, and `own_nodes`, which makes nodes of ours physical.
//! - What is said in several places: `repeated/`.
//! - What is known of grids: `statistics/`, `dependencies`, `sorted`.
//! - Logical plans that cost less: `semi_early`, `join_order` with `join_search`, `twin_windows`, `outer`, `unions`, `unordered`, `stay`; in clusters `spread/`.
//! - Physical plans, first `roll_up` and `early_groups`, then among the engine's rules `casts`, `set_keys`, `constants`, `offsets`, `kept_limits`, `required`, at last `long_limit`, `one_step`, `narrow`, `pause`. `settings` are the engine's.
//!
//! Never here: what is done to a plan just before it runs, which is in `exec`.

pub(super) mod apply;
pub(in crate::query) mod asof;
pub(super) mod casts;
pub(crate) mod constants;
pub(super) mod copies;
mod dependencies;
pub(in crate::query) mod early_groups;
pub(super) mod join_order;
mod join_search;
pub(super) mod kept_limits;
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
pub(super) mod semi_early;
pub(super) mod set_keys;
pub(super) mod settings;
pub(super) mod sorted;
#[cfg(feature = "distributed")]
pub(super) mod spread;
pub(in crate::query) mod statistics;
mod stay;
pub(super) mod steps;
pub(super) mod subqueries;
mod twin_windows;
pub(super) mod types;
mod unions;
pub(super) mod unordered;
mod walk;
