//! Statements that one process leads: those that go on from their own rows (`WITH RECURSIVE`), and those that read few rows in several places, which are made once.
//!
//! Comes in: a plan for one process. Goes out: the same plan, which runs in this process, since its steps follow one another here, or its rows are kept here; what in it does not change from step to step, and what makes the rows, is
//! spread, each piece for itself, and gives its rows to this process. Never here: how a piece is spread.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::UnKnownColumn;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};

use crate::query::{FirstSeenExec, GridScanExec, RelabelExec, SpoolExec};

/// Whether a statement goes on from its own rows, or keeps some that it reads in several places.
pub(in crate::cluster) fn is_led_here(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    plan.exists(|node| Ok(node.is::<RecursiveQueryExec>() || node.is::<SpoolExec>()))
}

/// The plan with each piece that does not change spread by `spread`, which gives nodes of one partition.
///
/// # Errors
/// As the engine says.
pub(in crate::cluster) fn in_pieces(
    plan: Arc<dyn ExecutionPlan>,
    spread: &dyn Fn(Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_down(|node| {
        if !is_piece(&node)? {
            return Ok(Transformed::no(node));
        }
        let partitioning = node.output_partitioning().clone();
        let piece = spread(node);
        let piece = match partitioning.partition_count() {
            1 => piece,
            of => {
                let again = match partitioning {
                    Partitioning::Hash(keys, of) if !keys.iter().any(is_gone) => {
                        Partitioning::Hash(keys, of)
                    }
                    _ => Partitioning::RoundRobinBatch(of),
                };
                Arc::new(RepartitionExec::try_new(piece, again)?)
            }
        };
        Ok(Transformed::new(piece, true, TreeNodeRecursion::Jump))
    })
    .data()
}

/// Whether rows are dealt out by what they do not have any more, so that nobody above counts on it.
fn is_gone(key: &Arc<dyn PhysicalExpr>) -> bool {
    key.is::<UnKnownColumn>()
}

/// Whether a node and all below it can be spread as one: it reads grids, gives the same rows in each step, and nobody above counts on their order.
fn is_piece(node: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let is_ranged = matches!(node.output_partitioning(), Partitioning::Range(_));
    if is_ranged || node.output_ordering().is_some() {
        return Ok(false);
    }
    let changes = node.exists(|below| {
        // What a step says of its rows is no concern of others.
        let is_of_step =
            below.is::<WorkTableExec>() || below.is::<RelabelExec>() || below.is::<FirstSeenExec>();
        let is_led_here = below.is::<RecursiveQueryExec>() || below.is::<SpoolExec>();
        Ok(is_of_step || is_led_here)
    })?;
    Ok(!changes && node.exists(|below| Ok(below.is::<GridScanExec>()))?)
}
