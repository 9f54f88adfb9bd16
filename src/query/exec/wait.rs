//! Makes scans wait for the joins above them.
//!
//! Comes in: a physical plan with its dynamic filters in place. Goes out: the same plan, whose scans read nothing before the joins that filter them have read their other
//! side. Needed because some operators start to read as soon as the plan starts, when these filters say nothing yet. Only filters of hash joins: these are made once, from
//! a side that the scan has no part in. Never here: other dynamic filters, such as that of TopK, which is made from what the scan gives.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;

use super::scan::GridScanExec;

/// The plan with scans that wait.
pub(in crate::query) fn waiting(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let mut filters = HashSet::new();
    plan.apply(|node| {
        if node.is::<HashJoinExec>() {
            let produced = node.dynamic_expressions_produced();
            filters.extend(produced.iter().filter_map(|filter| filter.expression_id()));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if filters.is_empty() {
        return Ok(plan);
    }
    let waiting = plan.transform_up(|node| match node.downcast_ref::<GridScanExec>() {
        Some(scan) => Ok(Transformed::yes(Arc::new(scan.awaiting(&filters)) as _)),
        None => Ok(Transformed::no(node)),
    });
    waiting.data()
}
