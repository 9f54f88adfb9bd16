//! Functions of ours, most in place of those of the engine.
//!
//! Comes in: a context of the engine. Goes out: the same, whose functions of these names mean what they mean elsewhere, and have more names. Never here: what is wrong with those of the engine.
//!
//! - Aggregates: `sums`, `extremes`, `moments`, `pairs`, `gathered`, `placed`, `percentiles`; over windows `ranks`, `neighbours`, `sliding`.
//! - Lists: `by_lambda`, `contained`, `of_lists`, `sorted_lists`, `vectors`. Texts: `formats`, `letters`, `matches`, `json`, `type_names`. Times: `ages`, `buckets`, `timezone`, `years`.
//! - Of PIVOT: `cells`. Of numbers: `bit_not`. Of values of any type: `chosen`, `coerced`, and in `simple` tables of functions that need nothing but their arguments.
//! - Of all: `aliases` (more names), `growing` (values within the memory limit), `passed_on` (what they have of the engine's).

mod ages;
mod aliases;
pub(super) mod bit_not;
mod buckets;
mod by_lambda;
pub(super) mod cells;
mod chosen;
pub(super) mod coerced;
mod contained;
pub(super) mod extremes;
mod formats;
pub(super) mod gathered;
pub(super) mod growing;
pub(super) mod json;
pub(super) mod letters;
mod matches;
mod moments;
mod neighbours;
pub(super) mod nested_text;
mod of_lists;
mod pairs;
pub(super) mod passed_on;
mod percentiles;
pub(super) mod placed;
pub(super) mod ranks;
mod simple;
mod sliding;
mod sorted_lists;
pub(super) mod sums;
pub(super) mod timezone;
pub(super) mod type_names;
mod vectors;
pub(super) mod years;

pub(super) use self::simple::json_casts::{CAST as JSON_CAST, TRY_CAST as JSON_TRY_CAST};
pub(super) use self::simple::json_rows::{
    COLUMNS as JSON_COLUMNS, OF_ROWS as JSON_ROWS, ORDINALITY as JSON_ORDINALITY,
};
pub(super) use self::simple::json_texts::MARK as JSON_MARK;

use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionContext;

use crate::query::plan::asof::Condition;
use crate::query::plan::meaning::listed_text::HasNull;
use crate::query::plan::types::unsigned::Quotient;

/// Puts all of them in place.
pub(super) fn add_to(context: &SessionContext) {
    aliases::add_to(context);
    ages::add_to(context);
    buckets::add_to(context);
    cells::add_to(context);
    contained::add_to(context);
    sums::add_to(context);
    extremes::add_to(context);
    gathered::add_to(context);
    ranks::add_to(context);
    neighbours::add_to(context);
    sliding::add_to(context);
    sorted_lists::add_to(context);
    chosen::add_to(context);
    timezone::add_to(context);
    placed::add_to(context);
    by_lambda::add_to(context);
    json::add_to(context);
    letters::add_to(context);
    matches::add_to(context);
    moments::add_to(context);
    pairs::add_to(context);
    bit_not::add_to(context);
    simple::add_to(context);
    type_names::add_to(context);
    vectors::add_to(context);
    years::add_to(context);
    // Of all aggregates that there are.
    of_lists::add_to(context);
    context.register_udf(ScalarUDF::from(Condition::new()));
    context.register_udf(ScalarUDF::from(HasNull::new()));
    context.register_udf(ScalarUDF::from(Quotient::new()));
}
