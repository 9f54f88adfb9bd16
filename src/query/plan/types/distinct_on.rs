//! DISTINCT ON, of which the engine makes the first value of each group.
//!
//! Comes in: a node of a logical plan before types are settled. Goes out: the same without what the engine does not bear there: dictionaries, keys of the order that stand there once more, subqueries, which are worked out for
//! all rows before. Never here: other aggregates.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Distinct, DistinctOn, Expr, LogicalPlan, Projection};

use super::dictionaries::{without_dictionaries, without_repeated};
use crate::query::plan::apply::reach::subquery_of;

/// With what the names of values of subqueries begin.
const VALUE: &str = "__value";

/// The rows of DISTINCT ON, whose values, and what says which row it is, are those of one row each.
pub(super) fn of_distinct_on(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Distinct(Distinct::On(mut rows)) = plan else {
        return Ok(Transformed::no(plan));
    };
    let names = NamePreserver::new_for_projection();
    let saved = rows.select_expr.iter().map(|value| names.save(value));
    let saved: Vec<_> = saved.collect();
    let is_shorter = rows.sort_expr.as_mut().is_some_and(without_repeated);
    let is_before = with_values_before(&mut rows)?;
    let schema = Arc::clone(rows.input.schema());
    let are_plain = without_dictionaries(parts_of(&mut rows), &schema)?;
    let is_changed = is_shorter || is_before || are_plain;
    if is_changed {
        let values = rows.select_expr.into_iter().zip(saved);
        let values = values.map(|(value, name)| name.restore(value)).collect();
        rows = DistinctOn::try_new(rows.on_expr, values, rows.sort_expr, rows.input)?;
    }
    let rows = LogicalPlan::Distinct(Distinct::On(rows));
    Ok(Transformed::new_transformed(rows, is_changed))
}

/// Puts values of subqueries into columns of the input.
fn with_values_before(rows: &mut DistinctOn) -> Result<bool> {
    let mut values: Vec<Expr> = Vec::new();
    for part in parts_of(rows) {
        let done = std::mem::take(part).transform_down(|value| {
            if subquery_of(&value).is_none() {
                return Ok(Transformed::no(value));
            }
            let known = values.iter().position(|known| *known == value);
            let place = known.unwrap_or(values.len());
            if known.is_none() {
                values.push(value);
            }
            let column = Column::new_unqualified(format!("{VALUE}_{place}"));
            Ok(Transformed::yes(Expr::Column(column)))
        })?;
        *part = done.data;
    }
    if values.is_empty() {
        return Ok(false);
    }
    let values = values.into_iter().enumerate();
    let values = values.map(|(place, value)| value.alias(format!("{VALUE}_{place}")));
    let columns = rows.input.schema().columns().into_iter().map(Expr::Column);
    let all = columns.chain(values).collect();
    let before = Projection::try_new(all, Arc::clone(&rows.input))?;
    rows.input = Arc::new(LogicalPlan::Projection(before));
    Ok(true)
}

fn parts_of(rows: &mut DistinctOn) -> impl Iterator<Item = &mut Expr> {
    let orders = rows.sort_expr.iter_mut().flatten();
    let keys = rows.on_expr.iter_mut();
    let keys = keys.chain(orders.map(|order| &mut order.expr));
    keys.chain(&mut rows.select_expr)
}
