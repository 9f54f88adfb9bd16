//! Sorts of all rows, in memory while there is room.
//!
//! Comes in: a plan that is about to run. Goes out: the same plan, whose sorts of all rows are ours: that of the engine sorts each batch by itself, key after key, and merges the batches row by row. Ours looks at the keys of all rows at once (`order.rs`, `packed.rs`) and puts the other columns into their order once (`rows.rs`), those of all partitions together where they are merged at once (`run.rs`). Where there is no room for that, it hands all rows over to the sort of the engine, which has files (`gathered.rs`). Never here: the first rows of many (TopK), merges of what was in order before.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Statistics, internal_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::limit::LocalLimitExec;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions,
};
use futures::{TryStreamExt, stream};

use self::gathered::Sort;
use self::run::Sorting;
use super::stand_in::stands_in;

mod gathered;
mod order;
mod packed;
mod ranks;
mod rows;
mod run;
mod runs;

/// The plan whose sorts of all rows are ours, and the merges of their partitions with them.
///
/// # Errors
/// As the engine says.
pub(in crate::query) fn sorting(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let sorted = match packed(&node)? {
            None => merged(&node)?,
            sorted => sorted,
        };
        Ok(sorted.map_or_else(|| Transformed::no(node), Transformed::yes))
    })
    .data()
}

/// The plan whose sorts of all rows are ours, each in its place, and nothing else.
///
/// # Errors
/// As the engine says.
#[cfg(feature = "distributed")]
pub(in crate::query) fn sorting_in_place(
    plan: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let sorted = packed(&node)?;
        Ok(sorted.map_or_else(|| Transformed::no(node), Transformed::yes))
    })
    .data()
}

/// Our sort in place of one of all rows.
fn packed(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(sort) = node.downcast_ref::<SortExec>() else {
        return Ok(None);
    };
    let input = sort.input().equivalence_properties();
    let is_one = sort.fetch().is_none() && !input.ordering_satisfy(sort.expr().clone())?;
    Ok(is_one.then(|| Arc::new(PackedSortExec::of(Arc::clone(node), None)) as _))
}

/// The sort whose partitions an operator merges, and the merge with it, if that does no more; below what shows other columns, or the same by other names.
fn merged(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() else {
        return Ok(None);
    };
    let mut input = merge.input();
    // The merge has the same limit.
    if let Some(limit) = input.downcast_ref::<LocalLimitExec>()
        && merge.fetch().is_some_and(|fetch| fetch <= limit.fetch())
    {
        input = limit.input();
    }
    let shown = input.downcast_ref::<ProjectionExec>();
    let shown = shown.filter(|shown| shown.expr().iter().all(|item| item.expr.is::<Column>()));
    let sorted = shown.map_or(input, ProjectionExec::input);
    let Some(sorted) = sorted.downcast_ref::<PackedSortExec>() else {
        return Ok(None);
    };
    let sort = sorted.sort()?;
    let partitions = sort.properties().partitioning.partition_count();
    if sorted.merge.is_some() || partitions == 1 || !is_same(merge.expr(), sort.expr(), shown) {
        return Ok(None);
    }
    let merge = SortPreservingMergeExec::new(sort.expr().clone(), Arc::clone(&sorted.sort))
        .with_fetch(merge.fetch())
        .with_round_robin_repartition(false);
    let sort = PackedSortExec::of(Arc::clone(&sorted.sort), Some(Arc::new(merge)));
    let sort: Arc<dyn ExecutionPlan> = Arc::new(sort);
    Ok(Some(match shown {
        None => sort,
        Some(_) => {
            let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            Arc::clone(input).replace_children(vec![sort], recompute)?
        }
    }))
}

/// Whether an order is another one, of columns as they are shown.
fn is_same(order: &LexOrdering, other: &LexOrdering, shown: Option<&ProjectionExec>) -> bool {
    let behind = |by: &PhysicalSortExpr| match shown {
        None => Some(Arc::clone(&by.expr)),
        Some(shown) => {
            let column = by.expr.downcast_ref::<Column>()?;
            let item = shown.expr().get(column.index())?;
            Some(Arc::clone(&item.expr))
        }
    };
    order.len() == other.len()
        && order.iter().zip(other).all(|(by, other)| {
            by.options == other.options && behind(by).is_some_and(|expr| expr.eq(&other.expr))
        })
}

/// The operator. What it asks of its input, and promises, is what the sort of the engine does, or the merge of its partitions.
#[derive(Debug)]
struct PackedSortExec {
    /// That of the engine.
    sort: Arc<dyn ExecutionPlan>,
    /// What merges its partitions, if it is that as well.
    merge: Option<Arc<dyn ExecutionPlan>>,
    metrics: ExecutionPlanMetricsSet,
}

impl PackedSortExec {
    fn of(sort: Arc<dyn ExecutionPlan>, merge: Option<Arc<dyn ExecutionPlan>>) -> Self {
        Self {
            sort,
            merge,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The same in place of another one of the engine.
    fn of_engine(&self, sort: Arc<dyn ExecutionPlan>) -> Result<Self> {
        let merge = self.merge.as_ref().map(|merge| {
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            Arc::clone(merge).replace_children(vec![Arc::clone(&sort)], options)
        });
        let merge = merge.transpose()?;
        Ok(Self::of(sort, merge))
    }

    fn sort(&self) -> Result<&SortExec> {
        match self.sort.downcast_ref::<SortExec>() {
            Some(sort) => Ok(sort),
            None => internal_err!("a sort that is {}", self.sort.name()),
        }
    }

    /// The operator of the engine that it stands for.
    fn outer(&self) -> &Arc<dyn ExecutionPlan> {
        self.merge.as_ref().unwrap_or(&self.sort)
    }
}

impl DisplayAs for PackedSortExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sort = self.sort().map_err(|_| fmt::Error)?;
        write!(formatter, "{}: expr=[{}]", self.name(), sort.expr())?;
        if let Some(merge) = &self.merge {
            let partitions = sort.properties().partitioning.partition_count();
            write!(formatter, ", merged={partitions}")?;
            if let Some(fetch) = merge.fetch() {
                write!(formatter, ", fetch={fetch}")?;
            }
        }
        Ok(())
    }
}

impl ExecutionPlan for PackedSortExec {
    stands_in!(sort);

    fn name(&self) -> &'static str {
        match self.merge {
            Some(_) => "PackedSortMergeExec",
            None => "PackedSortExec",
        }
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.outer().properties()
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        match self.merge {
            Some(_) => vec![ChildStats::At(None)],
            None => self.sort.child_stats_requests(partition),
        }
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let sorted = self.sort.statistics_from_inputs(inputs, arguments)?;
        match &self.merge {
            Some(merge) => merge.statistics_from_inputs(&[sorted], arguments),
            None => Ok(sorted),
        }
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let sort = self.sort()?;
        let partitions = match self.merge {
            Some(_) => 0..sort.input().output_partitioning().partition_count(),
            None => partition..partition + 1,
        };
        let ahead = partitions.len();
        let counters = BaselineMetrics::new(&self.metrics, partition);
        let how = Sort {
            by: sort.expr().clone(),
            context: Arc::clone(&context),
            metrics: self.metrics.clone(),
        };
        let inputs = partitions.map(|partition| {
            let rows = sort.input().execute(partition, Arc::clone(&context))?;
            Ok((rows, how.room()))
        });
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let sorting = Sorting {
            sort: how,
            schema: self.schema(),
            counters: counters.clone(),
            fetch: self.merge.as_ref().and_then(|merge| merge.fetch()),
            ahead,
        };
        let batches = stream::once(sorting.sorted(inputs))
            .try_flatten()
            .inspect_ok(move |batch| {
                batch.record_output(&counters);
            });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            batches,
        )))
    }
}
