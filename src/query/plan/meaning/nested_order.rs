//! Lists, structs and maps that rows are ordered by, in statements, aggregates and windows. The engine has three orders of them, which differ in where nulls inside come, and none of maps.
//!
//! Comes in: a plan that is optimized. Goes out: the same, ordered by bytes in place of such values ([`NestedKey`](super::nested::NestedKey)), so that nulls inside are greater than all values, as `<`, `min` and `max` have them. Never here: aggregates of
//! distinct values, which ask for their own values as keys, and make such bytes themselves.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use super::nested::{has_key, key_of};

/// Orders by bytes.
#[derive(Debug)]
pub(in crate::query) struct NestedOrders;

impl OptimizerRule for NestedOrders {
    fn name(&self) -> &'static str {
        "nested_orders"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let input = match plan {
            LogicalPlan::Sort(mut sort) => {
                let is_changed = by_bytes(&mut sort.expr, sort.input.schema())?;
                let sort = LogicalPlan::Sort(sort);
                return Ok(Transformed::new_transformed(sort, is_changed));
            }
            LogicalPlan::Aggregate(ref groups) => &groups.input,
            LogicalPlan::Window(ref windows) => &windows.input,
            _ => return Ok(Transformed::no(plan)),
        };
        let schema = Arc::clone(input.schema());
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expression| {
            let name = names.save(&expression);
            let changed = expression.transform_up(|part| within(part, &schema))?;
            Ok(match changed.transformed {
                true => changed.update_data(|expression| name.restore(expression)),
                false => changed,
            })
        })
    }
}

/// The order within an aggregate or a window.
fn within(mut expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let keys = match &mut expression {
        Expr::AggregateFunction(aggregate) if !aggregate.params.distinct => {
            &mut aggregate.params.order_by
        }
        Expr::WindowFunction(window) => &mut window.params.order_by,
        _ => return Ok(Transformed::no(expression)),
    };
    let is_changed = by_bytes(keys, schema)?;
    Ok(Transformed::new_transformed(expression, is_changed))
}

/// Puts bytes in the places of nested values, and says whether there were any.
fn by_bytes(keys: &mut [Sort], schema: &DFSchema) -> Result<bool> {
    let mut is_changed = false;
    for key in keys {
        if has_key(&key.expr.get_type(schema)?) {
            key.expr = key_of(std::mem::take(&mut key.expr));
            is_changed = true;
        }
    }
    Ok(is_changed)
}
