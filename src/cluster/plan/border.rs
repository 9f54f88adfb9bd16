//! The rows of a scan with the task that has their values.
//!
//! Comes in: the rows that each task keeps, those that all tasks hand over, which whole numbers belong to each task. Goes out: in each task the rows of its numbers; in order, if those of the scan are. Rows that are handed over are few: they are
//! kept until all of them have come where rows come in order. Never here: which rows those are (`borders.rs`).

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{
    cast, concat_batches, filter_record_batch, sort_to_indices, take_record_batch,
};
use arrow::datatypes::{DataType, Decimal128Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ScalarValue, Statistics};
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, ChildPushdownResult, FilterDescription, FilterPushdownPhase,
    FilterPushdownPropagation,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties, ReplaceChildrenOptions,
};
use datafusion_distributed::DistributedTaskContext;
use futures::{StreamExt, TryStreamExt, future, stream};

use super::cuts::Span;

/// As which whole numbers of all types are compared.
const WHOLE: DataType = DataType::Decimal128(38, 0);

/// Which rows belong to which task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cluster) struct Border {
    /// The place of a column of whole numbers without nulls.
    pub(in crate::cluster) column: usize,
    /// The numbers of each task; those of two tasks lie apart. `None` for a task that has no rows.
    pub(in crate::cluster) spans: Vec<Option<Span>>,
    /// The least number that each task has itself, if what others hand over to it lies before or behind all its rows, or among equal ones.
    pub(in crate::cluster) firsts: Option<Vec<i128>>,
}

/// A whole number as a value of another type.
pub(in crate::cluster) fn value(number: i128, kind: &DataType) -> Result<ScalarValue> {
    ScalarValue::Decimal128(Some(number), 38, 0).cast_to(kind)
}

/// The whole numbers of an array of another type.
pub(in crate::cluster) fn numbers(array: &dyn Array) -> Result<Vec<Option<i128>>> {
    let whole = cast(array, &WHOLE)?;
    Ok(whole.as_primitive::<Decimal128Type>().iter().collect())
}

/// The rows of a scan, of which others hand over some.
#[derive(Debug)]
pub(in crate::cluster) struct BorderExec {
    own: Arc<dyn ExecutionPlan>,
    handed: Arc<dyn ExecutionPlan>,
    border: Arc<Border>,
    properties: Arc<PlanProperties>,
}

impl BorderExec {
    /// What a task keeps, and what all hand over, of the same columns; the border is that of a column of whole numbers of them.
    pub(in crate::cluster) fn new(
        own: Arc<dyn ExecutionPlan>,
        handed: Arc<dyn ExecutionPlan>,
        border: Arc<Border>,
    ) -> Self {
        let schema = own.schema();
        let mut known = EquivalenceProperties::new(Arc::clone(&schema));
        let orders = own.equivalence_properties().oeq_class().iter();
        let first_keys = orders.filter_map(|order| order.iter().next());
        let mut by_number = first_keys.filter(|key| {
            let column = key.expr.downcast_ref::<Column>().map(Column::index);
            column == Some(border.column) && !key.options.descending
        });
        let key = border.firsts.as_ref().and_then(|_| by_number.next());
        if let Some(key) = key {
            known.add_ordering([PhysicalSortExpr::new(Arc::clone(&key.expr), key.options)]);
        }
        let num_partitions = own.output_partitioning().partition_count();
        let properties = PlanProperties::new(
            known,
            Partitioning::UnknownPartitioning(num_partitions),
            own.pipeline_behavior(),
            own.boundedness(),
        );
        Self {
            own,
            handed,
            border,
            properties: Arc::new(properties),
        }
    }

    pub(in crate::cluster) fn border(&self) -> &Arc<Border> {
        &self.border
    }

    pub(in crate::cluster) fn own(&self) -> &Arc<dyn ExecutionPlan> {
        &self.own
    }

    /// The same over other rows that each task keeps.
    pub(in crate::cluster) fn over(&self, own: Arc<dyn ExecutionPlan>) -> Self {
        Self::new(own, Arc::clone(&self.handed), Arc::clone(&self.border))
    }

    /// What is handed over to a task, as it comes.
    fn of_task(&self, task: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let span = self.border.spans.get(task).copied().flatten();
        let column = self.border.column;
        let batches = self.handed.execute(0, context)?;
        let batches = batches.map(move |batch| within(&batch?, column, span));
        let batches = batches.try_filter(|batch| future::ready(batch.num_rows() > 0));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// The rows of a batch whose numbers are in a span.
fn within(batch: &RecordBatch, column: usize, span: Option<Span>) -> Result<RecordBatch> {
    let passing = numbers(batch.column(column))?.into_iter().map(|number| {
        let inside = |(first, last): Span| number.is_some_and(|it| first <= it && it <= last);
        span.is_some_and(inside)
    });
    let passing: BooleanArray = passing.map(Some).collect();
    Ok(filter_record_batch(batch, &passing)?)
}

/// Rows in order of their numbers: those up to the first number of a task, and the others.
fn parted(rows: &RecordBatch, column: usize, first: i128) -> Result<[RecordBatch; 2]> {
    let order = sort_to_indices(rows.column(column), None, None)?;
    let rows = take_record_batch(rows, &order)?;
    let numbers = numbers(rows.column(column))?;
    let num_before = numbers.partition_point(|number| number.is_some_and(|it| it <= first));
    let before = rows.slice(0, num_before);
    let behind = rows.slice(num_before, rows.num_rows() - num_before);
    Ok([before, behind])
}

impl DisplayAs for BorderExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema();
        let name = schema.fields().get(self.border.column);
        let name = name.map_or("", |field| field.name());
        write!(formatter, "BorderExec: {name}, of each task ")?;
        for (task, span) in self.border.spans.iter().enumerate() {
            if task > 0 {
                formatter.write_str(", ")?;
            }
            match span {
                Some((first, last)) => write!(formatter, "{first}..={last}")?,
                None => formatter.write_str("none")?,
            }
        }
        Ok(())
    }
}

impl ExecutionPlan for BorderExec {
    fn name(&self) -> &'static str {
        "BorderExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.own, &self.handed]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false, false]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let handed = children.pop().unwrap_or_else(|| Arc::clone(&self.handed));
        let own = children.pop().unwrap_or_else(|| Arc::clone(&self.own));
        Ok(Arc::new(Self::new(own, handed, Arc::clone(&self.border))))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, recompute)
    }

    /// What joins above learn goes to the scan; of the few rows from elsewhere none is left out.
    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        conditions: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        let own = ChildFilterDescription::from_child(&conditions, &self.own)?;
        let handed = ChildFilterDescription::all_unsupported(&conditions);
        Ok(FilterDescription::new().with_child(own).with_child(handed))
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        answers: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        Ok(FilterPushdownPropagation::if_all(answers))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let own = self.own.execute(partition, Arc::clone(&context))?;
        if partition > 0 {
            return Ok(own);
        }
        let schema = self.schema();
        let task = DistributedTaskContext::from_ctx(&context).task_index;
        let handed = self.of_task(task, Arc::clone(&context))?;
        let firsts = self.border.firsts.as_ref();
        let firsts = firsts.filter(|_| self.properties.output_ordering().is_some());
        let Some(first) = firsts.and_then(|firsts| firsts.get(task)).copied() else {
            let rows = stream::select(own, handed);
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)));
        };
        let column = self.border.column;
        let reservation = MemoryConsumer::new("rows at borders").register(context.memory_pool());
        let kept = Arc::clone(&schema);
        let rows = stream::once(async move {
            let grown = handed.and_then(|batch| {
                let grown = reservation.try_grow(batch.get_array_memory_size());
                future::ready(grown.map(|()| batch))
            });
            let batches: Vec<RecordBatch> = grown.try_collect().await?;
            let rows = concat_batches(&kept, &batches)?;
            let [before, behind] = parted(&rows, column, first)?;
            let all = |rows: RecordBatch| stream::iter((rows.num_rows() > 0).then_some(Ok(rows)));
            let rows = all(before).chain(own).chain(all(behind));
            // Counted until the last of them was read.
            Ok::<_, datafusion::error::DataFusionError>(rows.inspect(move |_| {
                let _ = &reservation;
            }))
        });
        let rows = rows.try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition), ChildStats::Skip]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let own = inputs.first().map(|own| own.as_ref().clone());
        let mut known = own.unwrap_or_else(|| Statistics::new_unknown(&self.schema()));
        known = known.to_inexact();
        // Others may hand over values beyond those that are here.
        for column in &mut known.column_statistics {
            column.min_value = Precision::Absent;
            column.max_value = Precision::Absent;
        }
        Ok(Arc::new(known))
    }
}
