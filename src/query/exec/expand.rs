//! Groups of several sets of keys, made of the groups of all keys.
//!
//! Comes in: the groups of all keys, with what their aggregates keep. Goes out: the same rows once for each set, without the keys that are not in it, and with the number of the set, as the engine's own first step
//! gives them. Never here: putting rows of one group together.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, new_null_array};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
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
use futures::{StreamExt, TryStreamExt, future, stream};

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
            sets: sets.into(),
            without_rows: Arc::new(without_rows),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    fn of_set(&self, groups: &RecordBatch, set: &Set) -> Result<RecordBatch> {
        let schema = self.schema();
        let rows = groups.num_rows();
        let (keys, kept) = groups.columns().split_at(set.left_out.len());
        let keys = keys.iter().zip(&set.left_out);
        let keys = keys.map(|(key, is_out)| match is_out {
            true => new_null_array(key.data_type(), rows),
            false => Arc::clone(key),
        });
        let number = set.number.to_array_of_size(rows)?;
        let columns = keys.chain([number]).chain(kept.iter().map(Arc::clone));
        Ok(RecordBatch::try_new(schema, columns.collect())?)
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
        let groups = self.input.execute(partition, Arc::clone(&context))?;
        let mut groups = groups.try_filter(|groups| future::ready(groups.num_rows() > 0));
        let batches = stream::once(async move {
            // The groups of no key are there without any row.
            let first = match groups.try_next().await? {
                None => return this.without_rows.execute(0, context),
                Some(first) => first,
            };
            let all = stream::once(async { Ok(first) }).chain(groups);
            let schema = this.schema();
            let expanded = all.map_ok(move |groups| {
                let sets = Arc::clone(&this.sets);
                let this = this.clone();
                stream::iter(0..sets.len()).map(move |place| match sets.get(place) {
                    Some(set) => this.of_set(&groups, set),
                    None => datafusion::common::internal_err!("there is no set {place}"),
                })
            });
            let expanded = expanded.try_flatten();
            Ok(Box::pin(RecordBatchStreamAdapter::new(schema, expanded)) as _)
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
