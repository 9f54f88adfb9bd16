//! Merges of partitions that give rows with equal keys in the order of the partitions.
//!
//! Comes in: a plan that is about to run. Goes out: the same, whose merges take rows with equal keys from the first partition that has some, and not from each in turn. The engine says of merged rows that they have all orders that they had in each partition; so they do, if the partitions are parts of one table in its order. Never here: which orders these are (`scan/`).

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;

/// The plan with such merges.
///
/// # Errors
/// As the engine says.
pub(in crate::query) fn stable(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() else {
            return Ok(Transformed::no(node));
        };
        let merge = SortPreservingMergeExec::new(merge.expr().clone(), Arc::clone(merge.input()))
            .with_fetch(merge.fetch())
            .with_round_robin_repartition(false);
        Ok(Transformed::yes(Arc::new(merge) as _))
    })
    .data()
}
