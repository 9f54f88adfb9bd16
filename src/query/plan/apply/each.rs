//! Subqueries that make rows of one row outside alone: `FROM t, unnest(t.l) AS u(x)`.
//!
//! Comes in: a join whose right side names columns of its left and reads no table. Goes out: the rows of the left, each with what the right side makes of it, without a join; so the left may be rows that are others
//! each time that they are read. Never here: subqueries that read tables, and those of further outside.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{JoinType, NullEquality, NullHandling, Result};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, Filter, Join, LogicalPlan, Projection, Subquery, lit};

use super::domain::{Domain, Names};
use super::push::{is_one_row, pushed};
use super::reach::{has_subquery, outside};

/// The rows of such a join; `None` for other joins.
///
/// # Errors
/// As the engine says of the nodes that are made.
pub(super) fn of_each(join: &Join, names: &Names) -> Result<Option<LogicalPlan>> {
    let is_plain = join.null_equality == NullEquality::NullEqualsNothing;
    let pairs = join.on.iter().cloned();
    let conditions = pairs.map(|(left, right)| left.eq(right));
    let conditions = conditions.chain(join.filter.clone().filter(|filter| *filter != lit(true)));
    let conditions: Vec<Expr> = conditions.collect();
    let is_made = match join.join_type {
        JoinType::Inner => is_made_of_each(&join.right),
        // What is there for a row without any is null, and it stays.
        JoinType::Left => conditions.is_empty() && is_null_without(&join.right),
        _ => false,
    };
    let left = join.left.schema();
    let is_near = outside(&join.right)?
        .keys()
        .all(|column| left.has_column(column));
    if !is_plain || !is_made || !is_near || conditions.iter().any(has_subquery) {
        return Ok(None);
    }
    let right = match join.join_type {
        JoinType::Left => keeping(LogicalPlan::clone(&join.right))?,
        _ => LogicalPlan::clone(&join.right),
    };
    let domain = Domain::of_each(&join.left, names);
    let found = pushed(&domain, &right)?;
    let own = left.iter().zip(&found.keys);
    let own = own.map(|((qualifier, field), key)| {
        Expr::Column(key.clone()).alias_qualified(qualifier.cloned(), field.name())
    });
    let made = join.right.schema().columns().into_iter();
    let columns = own.chain(made.map(Expr::Column)).collect();
    let rows = Projection::try_new(columns, Arc::new(found.plan))?;
    let rows = LogicalPlan::Projection(rows);
    Ok(Some(match conjunction(conditions) {
        Some(condition) => LogicalPlan::Filter(Filter::try_new(condition, Arc::new(rows))?),
        None => rows,
    }))
}

/// Whether a plan is of one row, or of what is made of one, and of no table.
fn is_made_of_each(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Filter(filter) => {
            !has_subquery(&filter.predicate) && is_made_of_each(&filter.input)
        }
        LogicalPlan::Unnest(unnest) => is_made_of_each(&unnest.input),
        other => below(other).map_or_else(|| is_one_row(other), is_made_of_each),
    }
}

/// Whether it has all columns null in place of no row, where its lists are kept without elements.
fn is_null_without(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Unnest(unnest) => {
            let are_all = unnest.exec_columns.len() == unnest.input.schema().fields().len();
            are_all && is_row_of_each(&unnest.input)
        }
        LogicalPlan::Projection(over) if !over.expr.iter().all(is_column) => is_row_of_each(plan),
        other => below(other).map_or_else(|| is_one_row(other), is_null_without),
    }
}

/// Whether it has one row in any case.
fn is_row_of_each(plan: &LogicalPlan) -> bool {
    below(plan).map_or_else(|| is_one_row(plan), is_row_of_each)
}

/// The plan below one that has a row for each of its rows.
fn below(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    match plan {
        LogicalPlan::Subquery(Subquery { subquery, .. }) => Some(subquery),
        LogicalPlan::SubqueryAlias(alias) => Some(&alias.input),
        LogicalPlan::Projection(over) => {
            (!over.expr.iter().any(has_subquery)).then_some(over.input.as_ref())
        }
        _ => None,
    }
}

fn is_column(expression: &Expr) -> bool {
    match expression {
        Expr::Alias(alias) => is_column(&alias.expr),
        Expr::Cast(cast) => is_column(&cast.expr),
        other => matches!(other, Expr::Column(_)),
    }
}

/// The same with a row for lists without elements.
fn keeping(plan: LogicalPlan) -> Result<LogicalPlan> {
    let done = plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::Unnest(mut unnest) => {
            unnest.options.null_handling = NullHandling::PreserveAndExpandEmpty;
            Ok(Transformed::yes(LogicalPlan::Unnest(unnest)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(done.data)
}
