//! Windows of whole partitions, worked out without a sort: each row gets the value of an aggregate of all rows with its keys.
//!
//! Comes in: a plan that is about to run. Goes out: the same plan, in which an operator of windows that has only such ones (`sum(x) OVER (PARTITION BY k)`) is one of ours, and the sort that it had its rows by is gone, if nobody above wants rows in that order: rows go out as they came. Of so many partitions that there is no room for what is known of them, they are sorted, after all. That of the engine keeps all rows, and calls an aggregate for each partition. Never here: windows with an order; values that are lists or texts made of all rows; plans of other processes.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
#[cfg(feature = "distributed")]
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Statistics, internal_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{
    LexOrdering, OrderingRequirements, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput, SpillMetrics, Time,
};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::WindowAggExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions, SpillManager,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};

use self::aggregates::{Aggregates, can_be_whole};
use self::kept::Kept;
use super::outside::{count_files, once, sort};
use super::stand_in::{promises_as, stands_in};

mod aggregates;
mod kept;

/// The plan whose windows of whole partitions are ours.
///
/// # Errors
/// As the engine says.
pub(in crate::query) fn whole(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    // Rows of several partitions have no order that a caller could want.
    let is_ordered = plan.output_partitioning().partition_count() == 1;
    below(plan, is_ordered)
}

/// The plan whose windows of whole partitions are ours, each in its place: rows are sorted for them all the same.
///
/// # Errors
/// As the engine says.
#[cfg(feature = "distributed")]
pub(in crate::query) fn whole_in_place(
    plan: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let windows = node.downcast_ref::<WindowAggExec>();
        Ok(match windows.is_some_and(can_be_whole) {
            true => Transformed::yes(Arc::new(WholeWindowAggExec::of(node, None)) as _),
            false => Transformed::no(node),
        })
    })
    .data()
}

/// The same for an operator of the plan; `is_ordered` says whether somebody above wants the order of its rows.
fn below(node: Arc<dyn ExecutionPlan>, is_ordered: bool) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(windows) = node.downcast_ref::<WindowAggExec>()
        && can_be_whole(windows)
    {
        let sort = match is_ordered {
            true => None,
            false => sort_of(windows),
        };
        let input = sort.map_or(windows.input(), SortExec::input);
        let (input, by) = (
            Arc::clone(input),
            sort.and_then(|_| by_keys(windows, Vec::new())),
        );
        let windows = over(Arc::clone(&node), vec![below(input, is_ordered)?])?;
        return Ok(Arc::new(WholeWindowAggExec::of(windows, by)));
    }
    let (wanted, kept) = (node.required_input_ordering(), node.maintains_input_order());
    // Which rows are the first ones is a matter of their order.
    let is_limit = node.fetch().is_some() || node.is::<GlobalLimitExec>();
    let given: Vec<_> = node.children().into_iter().map(Arc::clone).collect();
    let mut children = Vec::with_capacity(given.len());
    for (place, child) in given.iter().enumerate() {
        let wants = wanted.get(place).is_some_and(Option::is_some);
        let keeps = kept.get(place).copied().unwrap_or_default();
        children.push(below(
            Arc::clone(child),
            wants || keeps && (is_ordered || is_limit),
        )?);
    }
    let is_same = given
        .iter()
        .zip(&children)
        .all(|(given, child)| Arc::ptr_eq(given, child));
    match is_same {
        true => Ok(node),
        false => over(node, children),
    }
}

/// The sort below an operator of windows, if that is only by their keys.
fn sort_of(windows: &WindowAggExec) -> Option<&SortExec> {
    let sort = windows.input().downcast_ref::<SortExec>()?;
    let keys = windows.window_expr().first()?.partition_by();
    let is_by_keys = sort.expr().iter().all(|by| keys.contains(&by.expr));
    (is_by_keys && sort.fetch().is_none()).then_some(sort)
}

/// The keys of windows as an order, behind those of an order by some of them: others have one value there.
fn by_keys(windows: &WindowAggExec, first: Vec<PhysicalSortExpr>) -> Option<LexOrdering> {
    let keys = windows.window_expr().first()?.partition_by().iter();
    let others = keys.filter(|key| !first.iter().any(|by| by.expr.eq(key)));
    let others: Vec<PhysicalSortExpr> = others
        .map(|key| PhysicalSortExpr::new_default(Arc::clone(key)))
        .collect();
    LexOrdering::new(first.into_iter().chain(others))
}

fn over(
    node: Arc<dyn ExecutionPlan>,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    node.replace_children(inputs, options)
}

/// The operator. What it promises, and how it has its rows dealt out, is what the operator of the engine does.
#[derive(Debug)]
struct WholeWindowAggExec {
    /// That of the engine.
    windows: Arc<dyn ExecutionPlan>,
    /// The order that it would sort its rows by, if they have none.
    by: Option<LexOrdering>,
    metrics: ExecutionPlanMetricsSet,
}

impl WholeWindowAggExec {
    fn of(windows: Arc<dyn ExecutionPlan>, by: Option<LexOrdering>) -> Self {
        Self {
            windows,
            by,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The same in place of another one of the engine.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "as all nodes that stand in for another"
    )]
    fn of_engine(&self, windows: Arc<dyn ExecutionPlan>) -> Result<Self> {
        Ok(Self::of(windows, self.by.clone()))
    }

    fn windows(&self) -> Result<&WindowAggExec> {
        match self.windows.downcast_ref::<WindowAggExec>() {
            Some(windows) => Ok(windows),
            None => internal_err!("windows of {}", self.windows.name()),
        }
    }
}

impl DisplayAs for WholeWindowAggExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let windows = self.windows().map_err(|_| fmt::Error)?;
        let names = windows.window_expr().iter();
        let names: Vec<&str> = names.map(|window| window.name()).collect();
        write!(formatter, "{}: wdw=[{}]", self.name(), names.join(", "))
    }
}

impl ExecutionPlan for WholeWindowAggExec {
    fn name(&self) -> &'static str {
        "WholeWindowAggExec"
    }

    stands_in!(windows);
    promises_as!(windows);

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![None]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let windows = self.windows()?;
        let input = windows.input().execute(partition, Arc::clone(&context))?;
        let files = SpillManager::new(
            context.runtime_env(),
            SpillMetrics::new(&self.metrics, partition),
            input.schema(),
        );
        let partitions = windows.input().output_partitioning().partition_count();
        let counters = BaselineMetrics::new(&self.metrics, partition);
        let run = Run {
            aggregates: Aggregates::try_new(windows.window_expr(), &input.schema())?,
            kept: Kept::new(files, &context, partitions),
            windows: Arc::clone(&self.windows),
            by: self.by.clone(),
            context,
            metrics: self.metrics.clone(),
            time: counters.elapsed_compute().clone(),
        };
        let batches = stream::once(run.batches(input))
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

/// One partition of the plan.
struct Run {
    aggregates: Aggregates,
    kept: Kept,
    windows: Arc<dyn ExecutionPlan>,
    by: Option<LexOrdering>,
    context: Arc<TaskContext>,
    metrics: ExecutionPlanMetricsSet,
    time: Time,
}

impl Run {
    /// All rows, with the values of the windows beside them.
    async fn batches(
        mut self,
        mut input: SendableRecordBatchStream,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        while let Some(batch) = input.try_next().await? {
            let has_room = {
                let _working = self.time.timer();
                let bytes = self.aggregates.push(&batch)?;
                self.kept.push(batch, bytes)?
            };
            if !has_room {
                return self.by_sort(input);
            }
        }
        let values = self.aggregates.finish()?;
        let beside = values.beside(self.windows.schema());
        let batches = self.kept.batches()?.map_ok(beside);
        Ok(batches.and_then(std::future::ready).boxed())
    }

    /// Of so many partitions that what is known of them has no room: as the engine does it, one after the other, sorted with files.
    fn by_sort(
        mut self,
        rest: SendableRecordBatchStream,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        drop(self.aggregates);
        self.kept.forget();
        let schema = rest.schema();
        let rows = RecordBatchStreamAdapter::new(schema, self.kept.batches()?.chain(rest));
        let windows = self.windows.downcast_ref::<WindowAggExec>();
        let order = windows.and_then(|windows| {
            let keys = windows.partition_by_sort_keys().unwrap_or_default();
            by_keys(windows, keys)
        });
        let context = Arc::clone(&self.context);
        let Some(by) = self.by else {
            let windows = over(self.windows, vec![once(Box::pin(rows), order)?])?;
            return Ok(windows.execute(0, context)?.boxed());
        };
        let sort: Arc<dyn ExecutionPlan> = Arc::new(sort(Box::pin(rows), by)?);
        let windows = over(self.windows, vec![Arc::clone(&sort)])?;
        let batches = windows.execute(0, context)?;
        count_files(sort.as_ref(), &self.metrics);
        Ok(batches.boxed())
    }
}
