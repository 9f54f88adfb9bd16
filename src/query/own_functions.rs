//! Functions of ours, most in place of those of the engine.
//!
//! Comes in: a context of the engine. Goes out: the same, whose functions of these names mean what they mean elsewhere, and have more names. Never here: what is wrong with those of the engine.

use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionContext;

use super::plan::asof::Condition;
use super::plan::listed_text::HasNull;
use super::plan::unsigned::Quotient;
use super::{
    ages, aliases, buckets, by_lambda, chosen, contained, extremes, gathered, json, letters,
    matches, moments, neighbours, operators, placed, ranks, simple, sliding, sorted_lists, sums,
    timezone, type_names, vectors, years,
};

/// Puts all of them in place.
pub(super) fn add_to(context: &SessionContext) {
    aliases::add_to(context);
    ages::add_to(context);
    buckets::add_to(context);
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
    operators::add_to(context);
    simple::add_to(context);
    type_names::add_to(context);
    vectors::add_to(context);
    years::add_to(context);
    context.register_udf(ScalarUDF::from(Condition::new()));
    context.register_udf(ScalarUDF::from(HasNull::new()));
    context.register_udf(ScalarUDF::from(Quotient::new()));
}
