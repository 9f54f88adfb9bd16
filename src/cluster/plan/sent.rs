//! The walk of what changes a plan for other processes alone.
//!
//! Comes in: a plan in stages, and what is done to a node. Goes out: the same plan, each node of which that is written down was changed, from below; those that run where the statement was asked stay as they are. Never here: what is done.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion_distributed::NetworkBoundaryExt;

/// What is done to a node.
type Change<'a> = dyn Fn(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> + 'a;

/// The plan with the nodes changed that are written down.
pub(super) fn each_sent(
    plan: &Arc<dyn ExecutionPlan>,
    change: &Change<'_>,
) -> Result<Arc<dyn ExecutionPlan>> {
    below(plan, false, change)
}

/// What is below and at a node, which is written down or is not.
fn below(
    plan: &Arc<dyn ExecutionPlan>,
    is_sent: bool,
    change: &Change<'_>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let is_sent_below = is_sent || plan.is_network_boundary();
    let children = plan.children().into_iter();
    let children = children.map(|child| below(child, is_sent_below, change));
    let children = children.collect::<Result<_>>()?;
    let plan = replace_children_if_necessary(Arc::clone(plan), children)?;
    match is_sent {
        true => change(plan),
        false => Ok(plan),
    }
}
