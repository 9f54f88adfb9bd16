//! Plans that give the same rows each time that they run.
//!
//! Comes in: a plan that is to run more than once in one statement. Goes out: whether the values of some of its columns are the same each time. Never here: what the plan runs twice for.

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, ExprSchema, Result};
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, LogicalPlan, WindowFunctionDefinition,
};

/// Window functions whose values do not depend on the order of equal rows.
const RANKS: [&str; 4] = ["rank", "dense_rank", "percent_rank", "cume_dist"];

/// Aggregates of floats that give one of the values, or none of them.
const CHOICES: [&str; 4] = ["min", "max", "count", "approx_distinct"];

/// Whether a plan gives the same values of the columns when it runs again.
pub(super) fn is_steady<'a>(
    plan: &LogicalPlan,
    mut columns: impl Iterator<Item = &'a Column>,
) -> Result<bool> {
    let schema = plan.schema();
    let is_float = |column: &Column| match schema.field_from_column(column) {
        Ok(field) => field.data_type().is_floating(),
        Err(_) => true,
    };
    let has_floats = columns.any(is_float);
    let mut is_steady = true;
    plan.apply_with_subqueries(|node| {
        is_steady &= node_is_steady(node, has_floats)?;
        Ok(match is_steady {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    })?;
    Ok(is_steady)
}

fn node_is_steady(node: &LogicalPlan, has_floats: bool) -> Result<bool> {
    let is_known = match node {
        LogicalPlan::TableScan(scan) => scan.fetch.is_none(),
        LogicalPlan::Sort(sort) => sort.fetch.is_none(),
        LogicalPlan::Limit(limit) => match limit.input.as_ref() {
            LogicalPlan::Sort(sort) => orders_all(&sort.input, sort.expr.iter().map(|by| &by.expr)),
            _ => false,
        },
        LogicalPlan::Distinct(Distinct::On(_)) | LogicalPlan::Extension(_) => false,
        LogicalPlan::Window(window) => {
            let mut functions = window.window_expr.iter();
            functions.all(|function| is_ranked(function, &window.input))
        }
        LogicalPlan::Aggregate(aggregate) => {
            let mut parts = aggregate.aggr_expr.iter();
            parts.all(|part| has_one_value(part, &aggregate.input, has_floats))
        }
        _ => true,
    };
    let mut is_volatile = false;
    node.apply_expressions(|expression| {
        is_volatile |= expression.is_volatile();
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_known && !is_volatile)
}

/// Whether rows that are equal in these values are equal in all.
fn orders_all<'a>(rows: &LogicalPlan, by: impl Iterator<Item = &'a Expr>) -> bool {
    let known: Vec<&Column> = by.filter_map(Expr::try_as_col).collect();
    let columns = rows.schema().columns();
    columns.iter().all(|column| known.contains(&column))
}

/// Whether a window function does not look at the order of equal rows, or there are none.
fn is_ranked(part: &Expr, rows: &LogicalPlan) -> bool {
    match part {
        Expr::Alias(alias) => is_ranked(&alias.expr, rows),
        Expr::WindowFunction(function) => {
            let params = &function.params;
            let order = params.order_by.iter().map(|by| &by.expr);
            let is_total = orders_all(rows, order.chain(&params.partition_by));
            is_total
                || match &function.fun {
                    WindowFunctionDefinition::AggregateUDF(_) => params.order_by.is_empty(),
                    WindowFunctionDefinition::WindowUDF(ranking) => RANKS.contains(&ranking.name()),
                }
        }
        _ => false,
    }
}

/// Whether an aggregate does not depend on the order of the rows. Sums of floats do, in their last digits.
fn has_one_value(part: &Expr, input: &LogicalPlan, has_floats: bool) -> bool {
    match part {
        Expr::Alias(alias) => has_one_value(&alias.expr, input, has_floats),
        Expr::AggregateFunction(function) => {
            let name = function.func.name();
            let looks_at_order = [
                "first_value",
                "last_value",
                "nth_value",
                "array_agg",
                "string_agg",
            ];
            let is_choice = CHOICES.contains(&name);
            let of_floats = function.params.args.iter().any(|argument| {
                let argument = match argument {
                    Expr::Cast(cast) => cast.expr.as_ref(),
                    other => other,
                };
                argument
                    .get_type(input.schema())
                    .map_or(true, |found| found.is_floating())
            });
            let params = &function.params;
            let mut arguments = params.args.iter();
            // Rows that are equal in the order are equal in the value.
            let is_ordered = !params.order_by.is_empty()
                && arguments.all(|value| params.order_by.iter().any(|by| by.expr == *value));
            let is_free = is_ordered || !looks_at_order.contains(&name);
            is_choice || is_free && !(has_floats && of_floats)
        }
        _ => false,
    }
}
