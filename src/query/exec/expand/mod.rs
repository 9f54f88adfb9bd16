//! Groups of several sets of keys, made of the groups of all keys.
//!
//! Comes in: the groups of all keys, with what their aggregates keep. Goes out: the groups of each set, without the keys that are not in it, and with the number of the set, as the engine's own first step gives them. Those
//! of a set are made of the fewest rows that have all of its keys (`levels.rs`); where memory or an aggregate does not allow that, they are the rows of all keys, and the last step puts them together. Never here: that step.

mod levels;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt, stream};

use self::levels::{Levels, Step, bytes_of, room, steps_for};
use crate::query::plan::early_groups::is_merged;

/// A set of keys.
#[derive(Debug, Clone)]
struct Set {
    /// Which keys are not in it.
    left_out: Vec<bool>,
    number: ScalarValue,
}

/// The node.
#[derive(Debug, Clone)]
pub(in crate::query) struct ExpandExec {
    input: Arc<dyn ExecutionPlan>,
    sets: Arc<[Set]>,
    steps: Arc<[Step]>,
    /// Gives the groups that there are without any row: those of no key.
    without_rows: Arc<AggregateExec>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ExpandExec {
    /// `input` has the groups of all keys; `first` is the first step whose rows come out.
    ///
    /// # Errors
    /// `Internal` when the step cannot be made without rows.
    pub(in crate::query) fn try_new(
        input: Arc<dyn ExecutionPlan>,
        first: &AggregateExec,
    ) -> Result<Self> {
        let schema = first.schema();
        let keys = first.group_expr();
        let number_type = schema.field(keys.expr().len()).data_type();
        let mut seen: HashMap<&[bool], u64> = HashMap::new();
        let mut sets = Vec::new();
        for left_out in keys.groups() {
            let again = seen.entry(left_out).or_default();
            // As the engine counts: a bit for each key that is left out, the last one lowest, and above them how often the same set was there before.
            let bits = left_out
                .iter()
                .fold(0_u64, |bits, is_out| bits << 1 | u64::from(*is_out));
            let number = bits | *again << left_out.len();
            *again += 1;
            sets.push(Set {
                left_out: left_out.clone(),
                number: ScalarValue::UInt64(Some(number)).cast_to(number_type)?,
            });
        }
        let without_rows = AggregateExec::try_new(
            AggregateMode::Partial,
            keys.clone(),
            first.aggr_expr().to_vec(),
            first.filter_expr().to_vec(),
            Arc::new(EmptyExec::new(first.input().schema())),
            first.input_schema(),
        )?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Ok(Self {
            input,
            steps: steps_for(&sets).into(),
            sets: sets.into(),
            without_rows: Arc::new(without_rows),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// Groups by some keys, which stand first in their order, as those of a set, whose keys are among these.
    fn of_set(&self, groups: &RecordBatch, keys: &[usize], set: &Set) -> Result<RecordBatch> {
        let schema = self.schema();
        let rows = groups.num_rows();
        let (columns, states) = groups.columns().split_at(keys.len());
        let all = set.left_out.iter().enumerate().zip(schema.fields());
        let all = all.map(|((key, is_out), field)| {
            let place = keys.iter().position(|known| *known == key);
            let column = place.and_then(|place| columns.get(place));
            match column.filter(|_| !is_out) {
                Some(column) => Arc::clone(column),
                None => new_null_array(field.data_type(), rows),
            }
        });
        let number = set.number.to_array_of_size(rows)?;
        let columns = all.chain([number]).chain(states.iter().map(Arc::clone));
        let columns: Vec<ArrayRef> = columns.collect();
        Ok(RecordBatch::try_new(schema, columns)?)
    }

    /// The rows of all keys, once for each set.
    fn repeated(
        self,
        groups: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        let keys: Arc<[usize]> = (0..self.num_keys()).collect();
        let expanded = groups.map_ok(move |groups| {
            let (this, keys) = (self.clone(), Arc::clone(&keys));
            stream::iter(0..self.sets.len()).map(move |place| match this.sets.get(place) {
                Some(set) => this.of_set(&groups, &keys, set),
                None => datafusion::common::internal_err!("there is no set {place}"),
            })
        });
        expanded.try_flatten().boxed()
    }

    fn num_keys(&self) -> usize {
        self.without_rows.group_expr().expr().len()
    }
}

impl DisplayAs for ExpandExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ExpandExec: sets={}", self.sets.len())
    }
}

impl ExecutionPlan for ExpandExec {
    fn name(&self) -> &'static str {
        "ExpandExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.pop().unwrap_or_else(|| Arc::clone(&self.input));
        let properties = PlanProperties::new(
            EquivalenceProperties::new(self.schema()),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Ok(Arc::new(Self {
            input,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            ..Self::clone(&self)
        }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, recompute)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let counted = BaselineMetrics::new(&self.metrics, partition);
        let this = self.clone();
        let mut groups = self.input.execute(partition, Arc::clone(&context))?;
        let batches = stream::once(async move {
            let consumer = MemoryConsumer::new(format!("ExpandExec[{partition}]"));
            let held = consumer.register(context.memory_pool());
            let room = room(&context, this.properties.partitioning.partition_count());
            let are_merged = this
                .without_rows
                .aggr_expr()
                .iter()
                .all(|one| is_merged(one));
            let mut all = Vec::new();
            while let Some(batch) = groups.try_next().await? {
                if batch.num_rows() == 0 {
                    continue;
                }
                let bytes = bytes_of(&batch);
                let is_within = held.size().saturating_add(bytes) <= room;
                let has_room = are_merged && is_within && held.try_grow(bytes).is_ok();
                all.push(batch);
                if !has_room {
                    // They count until the last of them is given on.
                    let all = stream::iter(all).map(move |batch| {
                        let _counted = &held;
                        Ok(batch)
                    });
                    return Ok::<_, DataFusionError>(this.repeated(all.chain(groups)));
                }
            }
            // The groups of no key are there without any row.
            match all.is_empty() {
                true => Ok(this.without_rows.execute(0, context)?.boxed()),
                false => Ok(Levels::new(this, all, (held, room), context).made()),
            }
        });
        let batches = batches
            .try_flatten()
            .inspect_ok(move |batch: &RecordBatch| {
                counted.record_output(batch.num_rows());
            });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            batches,
        )))
    }
}
