//! Makes every plan pause often, so that a cancelled query stops.
//!
//! Comes in: a physical plan. Goes out: the same plan with a pause around each operator that can make many batches of one (joins, unnest). DataFusion counts the
//! batches of leaves only, so that a cross join over two small tables would hold its thread until it is done. Never here: other changes.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;

/// Operators whose output may be many times their input.
const MULTIPLYING: [&str; 7] = [
    "CrossJoinExec",
    "HashJoinExec",
    "NestedLoopJoinExec",
    "PiecewiseMergeJoinExec",
    "SortMergeJoinExec",
    "SymmetricHashJoinExec",
    "UnnestExec",
];

/// Puts `CooperativeExec` around operators that multiply rows.
#[derive(Debug)]
pub(in crate::query) struct PauseOften;

impl PhysicalOptimizerRule for PauseOften {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            if MULTIPLYING.contains(&node.name()) {
                return Ok(Transformed::yes(Arc::new(CooperativeExec::new(node))));
            }
            Ok(Transformed::no(node))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "pause_often"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
