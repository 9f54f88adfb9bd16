//! Groups of which the first few are enough.
//!
//! Comes in: a plan that is about to run. Goes out: the same plan, in which DISTINCT gives all its rows where it cannot end after some. The engine notes how many rows are wanted when their order is not known yet; if it is
//! known in the end, it takes the first ones of an order that it was not told, and fails. The LIMIT above takes as many as it wants. Never here: other limits.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

/// The plan whose groups end early only where they can.
///
/// # Errors
/// As the engine says.
pub(in crate::query) fn enough(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let groups = node.downcast_ref::<AggregateExec>();
        Ok(match groups.filter(|groups| is_mistaken(groups)) {
            Some(groups) => Transformed::yes(Arc::new(groups.with_new_limit_options(None))),
            None => Transformed::no(node),
        })
    })
    .data()
}

fn is_mistaken(groups: &AggregateExec) -> bool {
    let limit = groups.limit_options();
    limit.is_some_and(|limit| limit.descending().is_none())
        && groups.get_minmax_desc().is_none()
        && !groups.is_unordered_unfiltered_group_by_distinct()
}
