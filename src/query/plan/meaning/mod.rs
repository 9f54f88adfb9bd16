//! Gives expressions the meaning that SQL gives them, where the engine has another.
//!
//! Comes in: a logical plan whose types are settled. Goes out: the same plan, each expression of which went past the rules that are listed here, once. Never here: the rules.
//!
//! - Numbers: `checked` (overflow), `floats` (0.0 and -0.0, NaN). Times: `clocks` with `moments` (casts and texts of instants), `days` (after instants), `lengths` (of intervals), `units` (constants between two seconds).
//! - Nulls and conditions: `exact`, `conditions` (FILTER over windows). Texts: `concatenate`, `uuids`.
//! - Nested values: `fields` (of structs), `nested` (as keys), `nested_order` (in ORDER BY), `listed_text`, `lambdas/`.

pub(in crate::query) mod checked;
pub(in crate::query) mod clocks;
pub(in crate::query) mod concatenate;
mod conditions;
pub(in crate::query) mod days;
pub(in crate::query) mod exact;
pub(in crate::query) mod fields;
pub(in crate::query) mod floats;
pub(in crate::query) mod lambdas;
pub(in crate::query) mod lengths;
pub(in crate::query) mod listed_text;
pub(in crate::query) mod moments;
pub(in crate::query) mod nested;
pub(in crate::query) mod nested_order;
pub(in crate::query) mod units;
pub(in crate::query) mod uuids;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use self::checked::{checked, is_checked_late};
use self::clocks::by_clocks;
use self::concatenate::bounded;
use self::conditions::without_condition;
use self::exact::exact;
use self::floats::with_one_zero;
use self::lengths::by_length;
use self::listed_text::as_text;
use self::nested::by_keys;
use self::units::in_whole_units;
use super::subqueries::with_rows_or_none;
use super::walk::walk;

/// Rewrites what the engine would take for something else.
#[derive(Debug)]
pub(in crate::query) struct Meaning {
    /// The bytes that the session may use.
    pub(in crate::query) limit: usize,
}

impl AnalyzerRule for Meaning {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        walk(plan, |node| {
            let may_be_late = !counts(node);
            move |expression, schema: &DFSchema| {
                all_parts(expression, schema, (may_be_late, self.limit))
            }
        })
    }

    fn name(&self) -> &'static str {
        "meaning"
    }
}

/// Whether a node counts: the engine does not bear it where it writes counts itself.
fn counts(plan: &LogicalPlan) -> bool {
    let is_count = |part: &Expr| matches!(part, Expr::AggregateFunction(function) if function.func.name() == "count");
    match plan {
        LogicalPlan::Aggregate(aggregate) => {
            let mut parts = aggregate.aggr_expr.iter();
            parts.any(|part| part.exists(|part| Ok(is_count(part))).unwrap_or(true))
        }
        _ => false,
    }
}

fn all_parts(
    expression: Expr,
    schema: &DFSchema,
    (may_be_late, limit): (bool, usize),
) -> Result<Transformed<Expr>> {
    expression.transform_down_up(
        |part| match may_be_late && is_checked_late(&part) {
            true => Ok(Transformed::new(part, false, TreeNodeRecursion::Jump)),
            false => Ok(Transformed::no(part)),
        },
        |part| {
            exact(part)
                .transform_data(|part| checked(part, schema))?
                .transform_data(|part| with_one_zero(part, schema))?
                .transform_data(|part| by_keys(part, schema))?
                .transform_data(|part| Ok(by_length(part, schema)))?
                .transform_data(|part| Ok(as_text(part, schema)))?
                .transform_data(|part| by_clocks(part, schema))?
                .transform_data(|part| in_whole_units(part, schema))?
                .transform_data(|part| Ok(without_condition(part)))?
                .transform_data(|part| bounded(part, schema, limit))?
                .transform_data(with_rows_or_none)
        },
    )
}
