//! How plans are changed before they are cut into stages, and after.
//!
//! Comes in: a plan for one process, the members of a statement. Goes out: the same rows with fewer exchanges between members, and none that the engine would get wrong. Read on in `limits.rs`, `pairs.rs`, `unions.rs` (what the engine
//! does not do as it is meant), `together.rs`, `hashed.rs`, `borders.rs` with `cuts.rs` and `border.rs` (rows that are where they are needed), `whole.rs`, `single.rs`, `few.rs`, `fewer.rs` (exchanges that are not needed),
//! `numbers.rs`, `orders.rs`, `known.rs` (what operators may do), `cores.rs` with `allowed.rs` (how many shares parts have), `lambdas.rs` (functions with lambdas), `sent.rs` (the walk past what is written down), `stages.rs` (plans as they are sent). Never here: which member reads what (`placement/`).

pub(super) mod allowed;
pub(super) mod border;
pub(super) mod borders;
pub(super) mod cores;
pub(super) mod cuts;
pub(super) mod fetches;
pub(super) mod few;
pub(super) mod fewer;
pub(super) mod hashed;
pub(super) mod known;
pub(super) mod lambdas;
pub(super) mod limits;
pub(super) mod lists;
pub(super) mod numbers;
pub(super) mod orders;
pub(super) mod pairs;
mod sent;
pub(super) mod single;
pub(super) mod stages;
pub(super) mod together;
pub(super) mod unions;
pub(super) mod whole;
pub(super) mod windows;
