//! Full joins without equal keys.
//!
//! Comes in: a plan for one process. Goes out: the same plan, in which such a join gets the rows of its right input from all members. Any two rows may be partners, and rows of both sides come out that have none, so that the engine has
//! one task make the join: it would read the tiles of all members itself. The left input comes from all of them already. Never here: other joins, of which one side is sent to all, or both by their keys.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};

use super::unions::reads_tiles;

/// The plan for so many members, in which no full join keeps rows from being read where their tiles are.
///
/// # Errors
/// As the engine says.
pub(in crate::cluster) fn gathered_for_pairs(
    plan: Arc<dyn ExecutionPlan>,
    num_members: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    if num_members < 2 {
        return Ok(plan);
    }
    plan.transform_up(|node| {
        let join = node.downcast_ref::<NestedLoopJoinExec>();
        let join = join.filter(|join| *join.join_type() == JoinType::Full);
        let Some(join) = join.filter(|join| reads_tiles(join.right())) else {
            return Ok(Transformed::no(node));
        };
        let children = vec![Arc::clone(join.left()), gathered(join.right())?];
        Ok(Transformed::yes(replace_children_if_necessary(
            node, children,
        )?))
    })
    .data()
}

/// Rows of all tasks in one, in as many shares as they had.
fn gathered(rows: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let all: Arc<dyn ExecutionPlan> = Arc::new(CoalescePartitionsExec::new(Arc::clone(rows)));
    match rows.output_partitioning().partition_count() {
        0 | 1 => Ok(all),
        of => {
            let shares = Partitioning::RoundRobinBatch(of);
            Ok(Arc::new(RepartitionExec::try_new(all, shares)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_plan::empty::EmptyExec;

    use super::*;
    use crate::grid::PartitionGrid;
    use crate::query::GridScanExec;

    fn schema() -> Arc<Schema> {
        Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]))
    }

    fn read(num_shares: usize) -> Arc<dyn ExecutionPlan> {
        let grid = PartitionGrid::try_from_batches(schema(), &[]).unwrap();
        let scan = GridScanExec::over(Arc::new(grid), vec![0], &[]).unwrap();
        Arc::new(scan.in_shares(num_shares, 8192).unwrap())
    }

    /// The names of the operators down the right of a join.
    fn right_of(join_type: JoinType, right: Arc<dyn ExecutionPlan>, members: usize) -> Vec<String> {
        let join = NestedLoopJoinExec::try_new(read(1), right, None, &join_type, None).unwrap();
        let join = gathered_for_pairs(Arc::new(join), members).unwrap();
        let shares = join.output_partitioning().partition_count();
        let mut names = vec![shares.to_string()];
        let mut next = join.children().pop().map(Arc::clone);
        while let Some(node) = next {
            names.push(node.name().to_owned());
            next = node.children().pop().map(Arc::clone);
        }
        names
    }

    #[test]
    fn rows_on_the_right_of_a_full_join_come_from_all_members() {
        let full = |right, members| right_of(JoinType::Full, right, members);
        let (dealt, gathered) = ("RepartitionExec", "CoalescePartitionsExec");
        assert_eq!(full(read(2), 3), ["2", dealt, gathered, "GridScanExec"]);
        let one_share = ["1", gathered, "GridScanExec"];
        assert_eq!(full(read(1), 3), one_share);
        // They do already; they are nobody's; nobody else is there.
        let all: Arc<dyn ExecutionPlan> = Arc::new(CoalescePartitionsExec::new(read(2)));
        assert_eq!(full(all, 3), one_share);
        let values: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(schema()));
        assert_eq!(full(values, 3), ["1", "EmptyExec"]);
        assert_eq!(full(read(2), 1), ["2", "GridScanExec"]);
        let left = right_of(JoinType::Left, read(2), 3);
        assert_eq!(left, ["2", "GridScanExec"]);
    }
}
