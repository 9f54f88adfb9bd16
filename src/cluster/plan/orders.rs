//! Groups that come in order within a part.
//!
//! Comes in: a plan in stages, whose scans say nothing of the order of their rows, since the engine takes those of several processes as they arrive. Goes out: the same plan, in which rows that are grouped where they are read come in the order of
//! their grid, if that is an order of their groups: no table of all groups is made. Never here: who sends what.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, InputOrderMode};
use datafusion_distributed::DistributedLeafExec;

use super::border::BorderExec;
use crate::query::GridScanExec;

/// The plan whose groups come in order where their rows do. What is known above an exchange stays as it was.
///
/// # Errors
/// As the engine says.
pub(in crate::cluster) fn grouped_in_order(
    plan: Arc<dyn ExecutionPlan>,
    batch_rows: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let grouped = plan.transform_up(|node| {
        let Some(input) = unordered(&node) else {
            return Ok(Transformed::no(node));
        };
        let Some(input) = in_order(input, batch_rows)? else {
            return Ok(Transformed::no(node));
        };
        let groups = replace_children_if_necessary(Arc::clone(&node), vec![input])?;
        Ok(match unordered(&groups) {
            Some(_) => Transformed::no(node),
            None => Transformed::yes(groups),
        })
    });
    grouped.data()
}

/// What is grouped, if it comes in no order of its groups.
fn unordered(node: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    let groups = node.downcast_ref::<AggregateExec>()?;
    let is_unordered = *groups.input_order_mode() == InputOrderMode::Linear;
    (is_unordered && !groups.group_expr().expr().is_empty()).then(|| groups.input())
}

/// The rows of a scan of their own task, in order; `None` if they have none, or are others.
fn in_order(
    plan: &Arc<dyn ExecutionPlan>,
    batch_rows: usize,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(leaf) = plan.downcast_ref::<DistributedLeafExec>() {
        let num_shares = plan.output_partitioning().partition_count();
        return of_leaf(leaf, num_shares, batch_rows);
    }
    if let Some(border) = plan.downcast_ref::<BorderExec>() {
        let own = in_order(border.own(), batch_rows)?;
        return Ok(own.map(|own| Arc::new(border.over(own)) as Arc<dyn ExecutionPlan>));
    }
    let hands_on =
        plan.is::<FilterExec>() || plan.is::<ProjectionExec>() || plan.is::<CooperativeExec>();
    match plan.children().as_slice() {
        [input] if hands_on => {
            let input = in_order(input, batch_rows)?;
            let above =
                input.map(|input| replace_children_if_necessary(Arc::clone(plan), vec![input]));
            above.transpose()
        }
        _ => Ok(None),
    }
}

fn of_leaf(
    leaf: &DistributedLeafExec,
    num_shares: usize,
    batch_rows: usize,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let mut scans = Vec::with_capacity(leaf.variants().len());
    for scan in leaf.variants() {
        let Some(scan) = scan.downcast_ref::<GridScanExec>() else {
            return Ok(None);
        };
        let Some(scan) = scan.in_order(num_shares, batch_rows)? else {
            return Ok(None);
        };
        scans.push(Arc::new(scan) as Arc<dyn ExecutionPlan>);
    }
    let leaf = DistributedLeafExec::try_new(Arc::clone(leaf.original()), scans)?;
    Ok(Some(Arc::new(leaf)))
}
