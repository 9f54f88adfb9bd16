//! Functions with lambdas, as they are sent.
//!
//! Comes in: a plan in stages. Goes out: the same with the engine's functions in place of ours (`query/plan/lambdas/`) in what is written down: members are sent names of functions, and no lambdas of ours. What scans compare is put right where they are written (`codec/`). Never here: how the two differ.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder,
};
use datafusion_distributed::{DistributedLeafExec, NetworkBoundaryExt};

use crate::error::Error;
use crate::query::{GridScanExec, has_lambda, with_expressions, with_lambdas};

/// The plan that can be written down; what runs where the statement was asked stays as it is.
///
/// # Errors
/// `Unsupported` for lambdas in operators of which nothing else is known.
pub(in crate::cluster) fn written_out(
    plan: &Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    below(plan, false)
}

/// What is below and at a node, which is written down or is not.
fn below(plan: &Arc<dyn ExecutionPlan>, is_sent: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let is_sent_below = is_sent || plan.is_network_boundary();
    let children = plan.children().into_iter();
    let children = children.map(|child| below(child, is_sent_below));
    let children = children.collect::<Result<_>>()?;
    let plan = replace_children_if_necessary(Arc::clone(plan), children)?;
    match is_sent && has_lambdas(&plan)? {
        true => of_node(plan),
        false => Ok(plan),
    }
}

fn has_lambdas(node: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    if node.is::<GridScanExec>() || node.is::<DistributedLeafExec>() {
        return Ok(false);
    }
    let mut has = false;
    node.apply_expressions(&mut |expression| {
        has |= has_lambda(expression)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(has)
}

fn of_node(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let node = match joined(&node)? {
        Some(joined) => joined,
        None => with_expressions(node, &with_lambdas)?.data,
    };
    match has_lambdas(&node)? {
        false => Ok(node),
        true => {
            let text = format!("a lambda in {} is not supported in a cluster", node.name());
            let hint = "make its value in the SELECT of a query in FROM, and take that column";
            Err(Error::unsupported(text).with_hint(hint).into())
        }
    }
}

/// A join with its condition.
fn joined(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(join) = node.downcast_ref::<HashJoinExec>()
        && let Some(filter) = join.filter()
    {
        let filter = condition(filter)?;
        let join = join.builder().with_filter(Some(filter)).build()?;
        return Ok(Some(Arc::new(join)));
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>()
        && let Some(filter) = join.filter()
    {
        let filter = condition(filter)?;
        let join = NestedLoopJoinExecBuilder::from(join).with_filter(Some(filter));
        return Ok(Some(Arc::new(join.build()?)));
    }
    Ok(None)
}

fn condition(filter: &JoinFilter) -> Result<JoinFilter> {
    let schema = Arc::clone(filter.schema());
    let changed = with_lambdas(filter.expression(), &schema)?;
    let places = filter.column_indices().to_vec();
    Ok(JoinFilter::new(changed.data, places, schema))
}
