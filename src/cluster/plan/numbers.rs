//! Joins that look rows up by number, in each part of a plan.
//!
//! Comes in: a plan in stages, whose joins look up by number where that is worth it for tables that each member makes of the numbers of all (`dense_apart`). Goes out: the same plan, in which also those do whose keys lie apart, where it is worth it
//! for the numbers of each member alone. Never here: how a table is built.

use std::sync::Arc;

use datafusion::common::NullEquality;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion_distributed::{DistributedLeafExec, NetworkBoundaryExt};

use super::together::held;
use crate::query::{GridScanExec, LookupExec, is_worth_its_places, most_places};

/// The plan whose joins look up by number where that is worth it in each task; a member has this memory limit in bytes.
///
/// # Errors
/// As the engine says.
pub(in crate::cluster) fn by_number(
    plan: Arc<dyn ExecutionPlan>,
    limit_bytes: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut looking = Looking {
        most: most_places(limit_bytes),
        num_more: 0,
    };
    let looked = looking.node(&plan, 1)?;
    Ok(match looking.num_more {
        0 => plan,
        _ => looked,
    })
}

struct Looking {
    /// The most places of the tables of a join in a member.
    most: usize,
    /// Joins that look up by number now and did not.
    num_more: usize,
}

impl Looking {
    /// The plan below and at a node, which so many tasks run. Every join says how it looks up, since what runs below it has its settings.
    fn node(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
        num_tasks: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let said = plan.downcast_ref::<LookupExec>();
        let node = match said {
            Some(lookup) => lookup.join(),
            None => plan,
        };
        let boundary = node.as_network_boundary();
        let below = boundary.map_or(num_tasks, |boundary| boundary.input_stage().task_count());
        let children = node.children().into_iter();
        let children = children.map(|child| self.node(child, below));
        let children = children.collect::<Result<_>>()?;
        let changed = replace_children_if_necessary(Arc::clone(node), children)?;
        let Some(join) = node.downcast_ref::<HashJoinExec>() else {
            return Ok(changed);
        };
        let was_by_number = said.is_some_and(LookupExec::is_by_number);
        let is_more = !was_by_number && num_tasks > 1 && self.is_worth_it(join, num_tasks);
        self.num_more += usize::from(is_more);
        Ok(Arc::new(LookupExec::new(changed, was_by_number || is_more)))
    }

    /// Whether the tables of a join are worth it in each of so many tasks.
    fn is_worth_it(&self, join: &HashJoinExec, num_tasks: usize) -> bool {
        let [(key, _)] = join.on() else {
            return false;
        };
        let kind = key.data_type(&join.left().schema());
        if join.null_equality() != NullEquality::NullEqualsNothing
            || !kind.is_ok_and(|kind| kind.is_integer())
        {
            return false;
        }
        let tables = match join.partition_mode() {
            PartitionMode::Partitioned => join.left().output_partitioning().partition_count(),
            _ => 1,
        };
        let column = key.downcast_ref::<Column>();
        let held = column.and_then(|column| held(join.left(), column.index(), num_tasks));
        let numbers = held.and_then(|held| held.numbers());
        numbers.is_some_and(|numbers| {
            numbers.iter().enumerate().all(|(task, numbers)| {
                let places = numbers.saturating_mul(tables);
                is_worth_its_places(places, most_rows(join.right(), task), self.most)
            })
        })
    }
}

/// How many rows the largest scan below reads in a task.
fn most_rows(plan: &Arc<dyn ExecutionPlan>, task: usize) -> usize {
    if let Some(leaf) = plan.downcast_ref::<DistributedLeafExec>() {
        let scan = leaf.variants().get(task);
        let scan = scan.and_then(|scan| scan.downcast_ref::<GridScanExec>());
        let rows = scan.map_or(0, GridScanExec::kept_rows);
        return usize::try_from(rows).unwrap_or(usize::MAX);
    }
    if plan.is_network_boundary() {
        return 0;
    }
    let below = plan.children().into_iter();
    let below = below.map(|child| most_rows(child, task)).max();
    below.unwrap_or_default()
}
