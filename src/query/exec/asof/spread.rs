//! Nearest joins whose right input is read once, for all partitions of the left one, which stay as they are.
//!
//! Comes in: a plan that is about to run. Goes out: the same plan, in which such a join has neither of its inputs dealt out by keys, or brought together in one partition where there are none. So it is without keys, and with keys that are few beside the rows: each partition of the left input has all of them. Never here: plans of clusters, whose processes have not all of the right input, and where a partition
//! that is not read on could keep others waiting; how the right input is read (`shared.rs`).

use std::sync::Arc;

use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::physical_expr::Partitioning;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::tree_node::PlanContext;
use datafusion::physical_plan::union::InterleaveExec;
use datafusion::physical_plan::{Distribution, ExecutionPlan, ExecutionPlanProperties};

use super::AsofJoinExec;
use super::builder::BYTES_OF_ROW;
use super::narrow::narrowed;

/// Of the memory limit, what the right input may take so: where there is no room for it, one partition sorts all rows.
const PART_OF_MEMORY: usize = 4;

/// To look a row up costs about as much as to deal so many out.
const ROWS_FOR_A_KEY: usize = 4;

/// So few rows one partition reads as fast as many.
const FEW_ROWS: usize = 1 << 20;

/// The bytes of a value whose size nobody knows.
const BYTES_OF_VALUE: usize = 16;

/// A node of a plan, and whether rows of equal keys must stay in the same partition, for nodes above.
type Node = PlanContext<bool>;

/// The plan with such joins over all partitions.
///
/// # Errors
/// As the engine says.
pub(in crate::query) fn spread(
    plan: Arc<dyn ExecutionPlan>,
    context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    if !plan.exists(|node| Ok(node.is::<AsofJoinExec>()))? {
        return Ok(plan);
    }
    let limit = match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(bytes) => bytes,
        MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
    };
    let spread = Node::new_default(narrowed(plan)?).transform_down(|node| {
        let plan = match node.plan.downcast_ref::<AsofJoinExec>() {
            Some(join) if join.once.is_none() => match join.nearest.equal.is_empty() {
                true => without_keys(join)?,
                false if node.data => None,
                false => with_keys(join, limit)?,
            },
            _ => None,
        };
        let mut spread = match plan {
            Some(plan) => {
                let mut spread = Node::new_default(plan);
                spread.data = node.data;
                Transformed::yes(spread)
            }
            None => Transformed::no(node),
        };
        tell_children(&mut spread.data);
        Ok(spread)
    });
    Ok(spread.data()?.plan)
}

/// Tells the nodes below whether rows of equal keys must stay in the same partition.
fn tell_children(node: &mut Node) {
    let asked = node.plan.input_distribution_requirements().into_per_child();
    let deals_out_anew = node.plan.is::<RepartitionExec>()
        || node.plan.is::<CoalescePartitionsExec>()
        || node.plan.is::<SortPreservingMergeExec>();
    let is_of_equal = node.plan.is::<InterleaveExec>();
    for (child, asked) in node.children.iter_mut().zip(asked) {
        child.data = match asked {
            Distribution::SinglePartition => false,
            Distribution::UnspecifiedDistribution if deals_out_anew => false,
            Distribution::UnspecifiedDistribution => node.data || is_of_equal,
            _ => true,
        };
    }
}

/// A join without keys, whose inputs are brought together only for it.
fn without_keys(join: &AsofJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(left) = brought_together(&join.left) else {
        return Ok(None);
    };
    let right = brought_together(&join.right).unwrap_or_else(|| Arc::clone(&join.right));
    let spread = Arc::new(join.spread(left, right)?);
    Ok(Some(Arc::new(CoalescePartitionsExec::new(spread))))
}

/// The input in its partitions; `None` where they are brought together in another way.
fn brought_together(input: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    match input.downcast_ref::<CoalescePartitionsExec>() {
        Some(together) if together.fetch().is_none() => Some(Arc::clone(together.input())),
        _ => None,
    }
}

/// A join with keys, whose inputs are dealt out only for it.
fn with_keys(join: &AsofJoinExec, limit: usize) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let (Some(left), Some(right)) = (dealt_out(&join.left), dealt_out(&join.right)) else {
        return Ok(None);
    };
    let count = join.left.output_partitioning().partition_count();
    let partitions = |plan: &Arc<dyn ExecutionPlan>| plan.output_partitioning().partition_count();
    // Whoever is above it may have been planned for so many partitions, or for one.
    if partitions(left) != count {
        return Ok(None);
    }
    let (of_left, of_right) = (statistics(left)?, statistics(right)?);
    let (Some(rows), Some(left_rows)) = (known(&of_right.num_rows), known(&of_left.num_rows))
    else {
        return Ok(None);
    };
    if partitions(right) < count && rows > FEW_ROWS {
        return Ok(None);
    }
    let keys = join.nearest.equal.iter().map(|(_, column)| {
        let column = of_right.column_statistics.get(*column);
        column.and_then(|column| known(&column.distinct_count))
    });
    let keys = keys.fold(1_usize, |all, keys| {
        all.saturating_mul(keys.unwrap_or(rows).max(1))
    });
    let looked_up = keys.min(rows).saturating_mul(count + 1);
    let is_cheap = looked_up.saturating_mul(ROWS_FOR_A_KEY) <= rows.saturating_add(left_rows);
    let values = right.schema().fields().len() * BYTES_OF_VALUE;
    let bytes = known(&of_right.total_byte_size).unwrap_or(rows.saturating_mul(values));
    let bytes = bytes.saturating_add(rows.saturating_mul(BYTES_OF_ROW + BYTES_OF_VALUE));
    if !is_cheap || bytes > limit / PART_OF_MEMORY {
        return Ok(None);
    }
    let spread = join.spread(Arc::clone(left), Arc::clone(right))?;
    Ok(Some(Arc::new(spread)))
}

/// The input before it is dealt out by keys.
fn dealt_out(input: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    let dealt = input.downcast_ref::<RepartitionExec>()?;
    let is_by_keys = matches!(dealt.partitioning(), Partitioning::Hash(..));
    is_by_keys.then(|| dealt.input())
}

fn statistics(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<Statistics>> {
    StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new())
}

/// A number that is known, if only about.
fn known(number: &Precision<usize>) -> Option<usize> {
    number.get_value().copied()
}
