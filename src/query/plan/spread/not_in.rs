//! NOT IN over rows of several processes.
//!
//! Comes in: a logical plan for several processes, in which `x NOT IN (SELECT k …)` is a join that must see all rows in one place, since one null among them makes the answer unknown for every row. Goes out: the
//! same plan with a join that need not, beside two numbers: how many rows the subquery has, and how many of them are not null. Never here: one process, where one place sees all; subqueries that look at the rows outside.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, Result};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// With what the name of the table of the two numbers begins.
const COUNTS: &str = "__counts";

/// Counts instead of looking at all rows.
#[derive(Debug)]
pub(in crate::query) struct NotIn;

impl OptimizerRule for NotIn {
    fn name(&self) -> &'static str {
        "not_in"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(join) = &plan else {
            return Ok(Transformed::no(plan));
        };
        let is_such = join.null_aware && join.join_type == JoinType::LeftAnti;
        let is_steady = is_such && join.filter.is_none() && is_steady(&join.right);
        match join.on.as_slice() {
            [(value, key)] if is_steady && !value.is_volatile() && !key.is_volatile() => {
                let counts = config.alias_generator().next(COUNTS);
                Ok(Transformed::yes(counted(join, value, key, &counts)?))
            }
            _ => Ok(Transformed::no(plan)),
        }
    }
}

/// The rows without a partner; of them none if some key is null, and none whose own value is null, unless there is nothing to compare it with.
fn counted(join: &Join, value: &Expr, key: &Expr, counts: &str) -> Result<LogicalPlan> {
    let number = |name: &str| Expr::Column(Column::new(Some(counts), name));
    let numbers = LogicalPlanBuilder::from(Arc::unwrap_or_clone(Arc::clone(&join.right)))
        .aggregate(
            Vec::<Expr>::new(),
            [
                count(lit(1_i64)).alias("rows"),
                count(key.clone()).alias("keys"),
            ],
        )?
        .alias(counts)?
        .build()?;
    let mut unmatched = join.clone();
    unmatched.null_aware = false;
    let is_empty = number("rows").eq(lit(0_i64));
    let is_known = number("rows").eq(number("keys"));
    let outside = join.left.schema().columns().into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(LogicalPlan::Join(unmatched))
        .cross_join(numbers)?
        .filter(is_empty.or(is_known.and(value.clone().is_not_null())))?
        .project(outside)?
        .build()
}

/// Whether a plan gives the same rows when it runs twice.
fn is_steady(plan: &LogicalPlan) -> bool {
    let mut is_steady = true;
    let seen = plan.apply_with_subqueries(|node| {
        let may_differ = match node {
            LogicalPlan::TableScan(scan) => {
                scan.fetch.is_some() || scan.filters.iter().any(Expr::is_volatile)
            }
            LogicalPlan::Sort(sort) => sort.fetch.is_some(),
            LogicalPlan::Limit(_) | LogicalPlan::Window(_) | LogicalPlan::Extension(_) => true,
            _ => node.expressions().iter().any(Expr::is_volatile),
        };
        is_steady &= !may_differ;
        Ok(match may_differ {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    });
    seen.is_ok() && is_steady
}
