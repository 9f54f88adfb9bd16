//! Rows of which no column is wanted any more, in no order: `SELECT count(*) FROM (SELECT a FROM t ORDER BY random() LIMIT 3)`.
//!
//! Comes in: a plan that is optimized. Goes out: the same, with a limit in place of first rows without columns, of which the engine cannot make a batch, and nothing in place of a sort of them. Never here: orders by columns, which are wanted for that.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Sorts no rows without columns.
#[derive(Debug)]
pub(in crate::query) struct Unordered;

impl OptimizerRule for Unordered {
    fn name(&self) -> &'static str {
        "unordered"
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
        match plan {
            LogicalPlan::Sort(sort) if sort.input.schema().fields().is_empty() => {
                let rows = LogicalPlanBuilder::from(Arc::unwrap_or_clone(sort.input));
                let rows = match sort.fetch {
                    Some(count) => rows.limit(0, Some(count))?,
                    None => rows,
                };
                Ok(Transformed::yes(rows.build()?))
            }
            other => Ok(Transformed::no(other)),
        }
    }
}
