//! Limits of tables that are sent to all.
//!
//! Comes in: a plan for one process. Goes out: the same plan, in which a limit on the table of a join is an operator of its own: where the engine sends the table to all tasks, each would take that many rows of its own choice, and
//! the tasks would join different ones. Never here: how tables are sent.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::limit::GlobalLimitExec;

/// The plan whose tables are limited before they are sent.
///
/// # Errors
/// As the engine says.
pub(in crate::cluster) fn limited_once(
    plan: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let joins = node.is::<HashJoinExec>()
            || node.is::<NestedLoopJoinExec>()
            || node.is::<CrossJoinExec>();
        let mut children: Vec<_> = node.children().into_iter().map(Arc::clone).collect();
        let table = children.first_mut().filter(|_| joins);
        let limited = table.and_then(|table| {
            let gathered = table.downcast_ref::<CoalescePartitionsExec>();
            let rows = gathered.and_then(CoalescePartitionsExec::fetch)?;
            *table = Arc::new(GlobalLimitExec::new(Arc::clone(table), 0, Some(rows)));
            Some(())
        });
        match limited {
            None => Ok(Transformed::no(node)),
            Some(()) => Ok(Transformed::yes(replace_children_if_necessary(
                node, children,
            )?)),
        }
    })
    .data()
}
