//! Inputs of unions that one task makes.
//!
//! Comes in: a plan for one process. Goes out: the same plan, in which an input of a union that one task makes (the first rows of all, values) is dealt out to the tasks of the other inputs, where these read tiles. The engine would have one task make all of them,
//! which reads the tiles of all members. Never here: how tasks are counted, which tiles they read.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, lit};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};

use crate::query::GridScanExec;

/// The plan for so many members, in whose unions no input keeps others from being made where their tiles are.
///
/// # Errors
/// As the engine says.
pub(in crate::cluster) fn dealt_to_all(
    plan: Arc<dyn ExecutionPlan>,
    num_members: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    if num_members < 2 {
        return Ok(plan);
    }
    plan.transform_up(|node| {
        if !node.is::<UnionExec>() {
            return Ok(Transformed::no(node));
        }
        let inputs = node.children();
        let made: Vec<Made> = inputs.iter().map(|input| Made::of(input)).collect();
        let is_read = made.iter().any(|made| made.reads && !made.is_by_one);
        if !is_read || !made.iter().any(|made| made.is_by_one) {
            return Ok(Transformed::no(node));
        }
        let inputs = inputs
            .into_iter()
            .zip(&made)
            .map(|(input, made)| match made.is_by_one {
                true => dealt_out(input),
                false => Ok(Arc::clone(input)),
            });
        let inputs = inputs.collect::<Result<_>>()?;
        Ok(Transformed::yes(replace_children_if_necessary(
            node, inputs,
        )?))
    })
    .data()
}

/// Whether the stage that ends with a plan reads tiles.
pub(in crate::cluster) fn reads_tiles(plan: &Arc<dyn ExecutionPlan>) -> bool {
    Made::of(plan).reads
}

/// What the engine will do with the stage that ends with a plan.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Made {
    /// Whether it has one task.
    is_by_one: bool,
    /// Whether it reads tiles.
    reads: bool,
}

impl Made {
    fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        if plan.is::<GridScanExec>() {
            return Self {
                is_by_one: false,
                reads: true,
            };
        }
        if is_by_hash(plan) {
            return Self::default();
        }
        let children = plan.children();
        let join = plan.downcast_ref::<HashJoinExec>();
        let is_by_one = children.is_empty()
            || plan.is::<CoalescePartitionsExec>()
            || plan.is::<SortPreservingMergeExec>()
            || join.is_some_and(|join| join.null_aware);
        if is_by_one {
            return Self {
                is_by_one,
                reads: false,
            };
        }
        // The table of a join is sent to its rows.
        let num_sent = match plan.is::<UnionExec>() {
            true => 0,
            false => children.len() - 1,
        };
        let inputs = children.into_iter().skip(num_sent).map(Self::of);
        inputs.fold(Self::default(), |one, other| Self {
            is_by_one: one.is_by_one || other.is_by_one,
            reads: one.reads || other.reads,
        })
    }
}

fn is_by_hash(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let exchange = plan.downcast_ref::<RepartitionExec>();
    exchange.is_some_and(|exchange| matches!(exchange.partitioning(), Partitioning::Hash(..)))
}

/// Rows of one task, each with the task of its hash; in order, if they come in order.
fn dealt_out(input: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = input.schema();
    let fields = schema.fields().iter().enumerate();
    let fields = fields.filter(|(_, field)| has_hash(field.data_type()));
    let mut keys: Vec<Arc<dyn PhysicalExpr>> = fields
        .map(|(place, field)| Arc::new(Column::new(field.name(), place)) as _)
        .collect();
    if keys.is_empty() {
        // All with the same task.
        keys.push(lit(0_i32));
    }
    let dealt = RepartitionExec::try_new(Arc::clone(input), Partitioning::Hash(keys, 1))?;
    Ok(Arc::new(dealt.with_preserve_order()))
}

/// Types whose values are hashed for little.
fn has_hash(kind: &DataType) -> bool {
    kind.is_integer()
        || kind.is_decimal()
        || kind.is_string()
        || kind.is_temporal()
        || matches!(kind, DataType::Boolean)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Schema};
    use datafusion::physical_plan::empty::EmptyExec;

    use super::*;
    use crate::grid::PartitionGrid;

    fn read() -> Arc<dyn ExecutionPlan> {
        let grid = PartitionGrid::try_from_batches(schema(), &[]).unwrap();
        Arc::new(GridScanExec::over(Arc::new(grid), vec![0], &[]).unwrap())
    }

    fn schema() -> Arc<Schema> {
        Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]))
    }

    /// For each input whether it is dealt out.
    fn dealt(inputs: Vec<Arc<dyn ExecutionPlan>>) -> Vec<bool> {
        let union = dealt_to_all(UnionExec::try_new(inputs).unwrap(), 2).unwrap();
        union.children().into_iter().map(is_by_hash).collect()
    }

    #[test]
    fn what_one_task_makes_is_dealt_out_where_others_read_tiles() {
        let values: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(schema()));
        let gathered: Arc<dyn ExecutionPlan> = Arc::new(CoalescePartitionsExec::new(read()));
        let one = || Arc::clone(&values);
        assert_eq!(dealt(vec![one(), read()]), [true, false]);
        assert_eq!(
            dealt(vec![read(), Arc::clone(&gathered), one()]),
            [false, true, true]
        );
        assert_eq!(dealt(vec![one(), gathered]), [false, false]);
        assert_eq!(dealt(vec![read(), read()]), [false, false]);
        let by_hash = dealt_out(&read()).unwrap();
        assert_eq!(dealt(vec![by_hash, one()]), [true, false]);
        let nested = UnionExec::try_new(vec![one(), read()]).unwrap();
        assert_eq!(dealt(vec![nested, read(), one()]), [false, false, true]);
    }
}
