//! Runs while a query is planned: which tiles it needs, and what is known of them.

pub(super) mod apply;
pub(in crate::query) mod asof;
pub(super) mod bare;
#[cfg(feature = "distributed")]
pub(crate) mod beyond;
mod cardinality;
pub(super) mod casts;
mod centuries;
pub(super) mod checked;
mod clocks;
pub(super) mod concatenate;
mod conditions;
pub(crate) mod constants;
pub(super) mod copies;
pub(super) mod days;
pub(in crate::query) mod decimals;
mod dependencies;
mod dictionaries;
mod distinct_on;
mod elements;
pub(crate) mod estimate;
pub(in crate::query) mod exact;
pub(super) mod facts;
pub(super) mod fields;
pub(super) mod floats;
pub(super) mod join_order;
mod join_search;
pub(super) mod lambdas;
pub(super) mod lengths;
pub(super) mod listed_text;
pub(super) mod long_limit;
mod longest;
pub(super) mod meaning;
pub(super) mod moments;
pub(super) mod narrow;
pub(super) mod nested;
pub(super) mod nested_order;
#[cfg(feature = "distributed")]
pub(super) mod not_in;
pub(super) mod offsets;
pub(super) mod one_step;
pub(super) mod only;
pub(super) mod outer;
mod outside;
pub(super) mod own_nodes;
pub(super) mod pause;
pub(super) mod prune;
pub(super) mod repeated;
pub(super) mod required;
pub(super) mod roll_up;
#[cfg(feature = "distributed")]
pub(super) mod semi_early;
#[cfg(feature = "distributed")]
pub(super) mod semi_reduce;
pub(super) mod set_keys;
pub(super) mod settings;
#[cfg(feature = "distributed")]
pub(super) mod single;
pub(super) mod sorted;
pub(super) mod spans;
mod stay;
pub(super) mod steps;
pub(super) mod subqueries;
pub(super) mod types;
mod unions;
mod united;
mod units;
mod unnested;
pub(super) mod unsigned;
mod uuids;
#[cfg(feature = "distributed")]
pub(super) mod values_below;
mod walk;
