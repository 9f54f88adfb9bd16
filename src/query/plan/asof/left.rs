//! Conditions of the left table of a nearest join go below it.
//!
//! Comes in: a logical plan that is optimized. Goes out: the same plan, in which conditions over a nearest join that are about columns of its left table alone are asked there; those about columns that are equal on the right, on both sides. Never here: conditions of
//! the right table, without whose rows others would be the nearest.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, ExprSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::replace_col;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Extension, Filter, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use super::{AsofJoin, Side, side};

/// The rule.
#[derive(Debug)]
pub(in crate::query) struct AsofLeft;

impl OptimizerRule for AsofLeft {
    fn name(&self) -> &'static str {
        "asof_left"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Filter(filter) => below(filter),
            other => Ok(Transformed::no(other)),
        }
    }
}

/// Whether equal values of a column are the same to all functions: 0.0 and -0.0 are not.
fn is_one_value(schema: &DFSchema, column: &Column) -> bool {
    let field = ExprSchema::field_from_column(schema, column);
    field.is_ok_and(|field| !field.data_type().is_floating() && !field.data_type().is_nested())
}

fn below(filter: Filter) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Extension(extension) = filter.input.as_ref() else {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    };
    let Some(join) = extension.node.as_any().downcast_ref::<AsofJoin>() else {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    };
    let schema = join.left().schema();
    let is_of_left = |part: &Expr| side(part, schema) == Side::Left && !part.is_volatile();
    let parts = split_conjunction_owned(filter.predicate.clone());
    let (of_left, above): (Vec<Expr>, Vec<Expr>) = parts.into_iter().partition(is_of_left);
    if of_left.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let equal: HashMap<&Column, &Column> = join
        .equal_columns()
        .filter(|(left, _)| is_one_value(schema, left))
        .collect();
    let is_equal = |part: &&Expr| {
        let columns = part.column_refs();
        !columns.is_empty() && columns.iter().all(|column| equal.contains_key(*column))
    };
    let of_right = of_left.iter().filter(is_equal);
    let of_right = of_right.map(|part| replace_col(part.clone(), &equal));
    let of_right: Vec<Expr> = of_right.collect::<Result<_>>()?;
    let node = Arc::new(join.of_chosen(of_left, of_right)?);
    let join = LogicalPlan::Extension(Extension { node });
    let plan = match conjunction(above) {
        Some(condition) => LogicalPlan::Filter(Filter::try_new(condition, Arc::new(join))?),
        None => join,
    };
    Ok(Transformed::yes(plan))
}
