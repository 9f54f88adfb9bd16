//! Windows from the first row of a partition to the row itself, or from so many rows before it, worked out a batch at a time: numbers of rows, ranks, counts, sums, means of floats, least and greatest values.
//!
//! Comes in: a plan that is about to run. Goes out: the same plan, in which an operator of windows that has only such ones is one of ours: that of the engine calls an aggregate for each row. Its input is in the order of its keys, and goes on to the output as it comes. Rows that are equal to the last one of a batch (RANGE: they have one value) wait until others come. Never here: frames that look ahead or slide by values, filters that the engine keeps apart, plans of other processes, and how values are worked out (`values.rs`, `functions/`).

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Statistics, internal_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr::{OrderingRequirements, PhysicalExpr};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::BoundedWindowAggExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan,
    InputDistributionRequirements, InputOrderMode, PlanProperties, ReplaceChildrenOptions,
};
use futures::{TryStreamExt, stream};

use self::rows::Rows;
use self::values::Function;
pub(super) use self::values::has_filter;
use super::stand_in::{promises_as, stands_in};

mod peers;
mod rows;
mod values;

/// The plan whose windows are worked out by batches where they can.
///
/// # Errors
/// As the engine says.
pub(in crate::query) fn running(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let Some(windows) = node.downcast_ref::<BoundedWindowAggExec>() else {
            return Ok(Transformed::no(node));
        };
        let is_one = windows.input_order_mode == InputOrderMode::Sorted
            && windows.state_observer().is_none()
            && have_same_keys(windows.window_expr())
            && windows
                .window_expr()
                .iter()
                .all(|window| Function::of(window, &windows.input().schema()).is_some());
        match is_one {
            true => Ok(Transformed::yes(
                Arc::new(RunningWindowAggExec::of(node)) as _
            )),
            false => Ok(Transformed::no(node)),
        }
    })
    .data()
}

fn have_same_keys(windows: &[Arc<dyn WindowExpr>]) -> bool {
    let Some((first, others)) = windows.split_first() else {
        return false;
    };
    others.iter().all(|other| {
        other.partition_by() == first.partition_by() && other.order_by() == first.order_by()
    })
}

/// The operator. What it asks of its input, and promises, is what the operator of the engine does.
#[derive(Debug)]
struct RunningWindowAggExec {
    /// That of the engine.
    windows: Arc<dyn ExecutionPlan>,
    metrics: ExecutionPlanMetricsSet,
}

impl RunningWindowAggExec {
    fn of(windows: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            windows,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The same in place of another one of the engine.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "as all nodes that stand in for another"
    )]
    fn of_engine(&self, windows: Arc<dyn ExecutionPlan>) -> Result<Self> {
        Ok(Self::of(windows))
    }

    fn windows(&self) -> Result<&BoundedWindowAggExec> {
        match self.windows.downcast_ref::<BoundedWindowAggExec>() {
            Some(windows) => Ok(windows),
            None => internal_err!("windows of {}", self.windows.name()),
        }
    }
}

impl DisplayAs for RunningWindowAggExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let windows = self.windows().map_err(|_| fmt::Error)?;
        let names = windows.window_expr().iter();
        let names: Vec<&str> = names.map(|window| window.name()).collect();
        write!(formatter, "{}: wdw=[{}]", self.name(), names.join(", "))
    }
}

impl ExecutionPlan for RunningWindowAggExec {
    fn name(&self) -> &'static str {
        "RunningWindowAggExec"
    }

    stands_in!(windows);
    promises_as!(windows);

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        self.windows.required_input_ordering()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.windows.maintains_input_order()
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let windows = self.windows()?;
        let schema: SchemaRef = self.schema();
        let input = windows.input().execute(partition, context)?;
        let rows = Rows::try_new(windows.window_expr(), &input.schema(), Arc::clone(&schema))?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let time = metrics.elapsed_compute().clone();
        let state = (input, rows, time);
        let batches = stream::try_unfold(state, |(mut input, mut rows, time)| async move {
            loop {
                if let Some(batch) = rows.next_ready() {
                    return Ok(Some((batch, (input, rows, time))));
                }
                if rows.is_over() {
                    return Ok(None);
                }
                let batch = input.try_next().await?;
                let _working = time.timer();
                match batch {
                    Some(batch) => rows.push(batch)?,
                    None => rows.end()?,
                }
            }
        });
        let batches = batches.inspect_ok(move |batch| {
            batch.record_output(&metrics);
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}
