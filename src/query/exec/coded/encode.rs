//! Keys of rows, coded.
//!
//! Comes in: rows, and which of their columns are keys. Goes out: the same rows, which have the code of their keys in the place of the first one; those of the others are empty. Never here: what becomes of the codes.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, NullArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, Statistics};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::StreamExt;

use super::dictionary::Dictionary;
use crate::query::exec::over::over_one_input;

/// The operator.
#[derive(Debug)]
pub(super) struct KeyEncodeExec {
    input: Arc<dyn ExecutionPlan>,
    /// The places of the keys.
    keys: Vec<usize>,
    dictionary: Arc<Dictionary>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl KeyEncodeExec {
    /// # Errors
    /// For keys that are no columns of the input.
    pub(super) fn try_new(input: Arc<dyn ExecutionPlan>, keys: Vec<usize>) -> Result<Self> {
        let schema = Arc::new(input.schema().project(&keys)?);
        Ok(Self::with(input, keys, Arc::new(Dictionary::new(schema))))
    }

    fn with(input: Arc<dyn ExecutionPlan>, keys: Vec<usize>, dictionary: Arc<Dictionary>) -> Self {
        let schema = coded_schema(&input.schema(), &keys);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(schema)),
            partitioning(&input, &keys),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self {
            input,
            keys,
            dictionary,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "as all nodes over one input")]
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Result<Self> {
        let dictionary = Arc::clone(&self.dictionary);
        Ok(Self::with(input, self.keys.clone(), dictionary))
    }

    /// What the codes stand for.
    pub(super) fn dictionary(&self) -> &Arc<Dictionary> {
        &self.dictionary
    }
}

/// The columns with codes in place of keys. Their names stay: nothing that says a column by name is about a key.
fn coded_schema(schema: &Schema, keys: &[usize]) -> Schema {
    let fields = schema.fields().iter().enumerate().map(|(place, field)| {
        match keys.iter().position(|key| *key == place) {
            None => Arc::clone(field),
            Some(0) => Arc::new(Field::new(field.name(), DataType::UInt32, false)),
            Some(_) => Arc::new(Field::new(field.name(), DataType::Null, true)),
        }
    });
    Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone())
}

/// How the rows are dealt out: as before, if not by keys.
fn partitioning(input: &Arc<dyn ExecutionPlan>, keys: &[usize]) -> Partitioning {
    let partitioning = input.output_partitioning();
    let is_by_keys = match partitioning {
        Partitioning::Hash(by, _) => by.iter().any(|by| {
            let columns = collect_columns(by);
            columns.iter().any(|column| keys.contains(&column.index()))
        }),
        Partitioning::RoundRobinBatch(_) | Partitioning::UnknownPartitioning(_) => false,
        _ => true,
    };
    match is_by_keys {
        true => Partitioning::UnknownPartitioning(partitioning.partition_count()),
        false => partitioning.clone(),
    }
}

impl DisplayAs for KeyEncodeExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.dictionary.schema();
        let names = schema.fields().iter().map(|field| field.name().as_str());
        let names = names.collect::<Vec<&str>>().join(", ");
        write!(formatter, "KeyEncodeExec: keys=[{names}]")
    }
}

impl ExecutionPlan for KeyEncodeExec {
    fn name(&self) -> &'static str {
        "KeyEncodeExec"
    }

    over_one_input!();

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let Some(input) = inputs.first() else {
            return Ok(Arc::new(Statistics::new_unknown(&self.schema())));
        };
        let mut statistics = Statistics::clone(input);
        statistics.total_byte_size = Precision::Absent;
        for key in &self.keys {
            if let Some(known) = statistics.column_statistics.get_mut(*key) {
                *known = ColumnStatistics::new_unknown();
            }
        }
        Ok(Arc::new(statistics))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let counters = BaselineMetrics::new(&self.metrics, partition);
        let (keys, dictionary) = (self.keys.clone(), Arc::clone(&self.dictionary));
        let batches = self.input.execute(partition, Arc::clone(&context))?;
        let own = Arc::clone(&schema);
        let coded = batches.map(move |batch| {
            let batch = batch?;
            let _working = counters.elapsed_compute().timer();
            let values: Vec<ArrayRef> = batch.project(&keys)?.columns().to_vec();
            let codes = dictionary.codes(&values, &context)?;
            let mut columns = batch.columns().to_vec();
            let mut coded: Option<ArrayRef> = Some(Arc::new(codes));
            for key in &keys {
                if let Some(column) = columns.get_mut(*key) {
                    let empty = || Arc::new(NullArray::new(batch.num_rows())) as ArrayRef;
                    *column = coded.take().unwrap_or_else(empty);
                }
            }
            let batch = RecordBatch::try_new(Arc::clone(&own), columns)?;
            Ok(batch.record_output(&counters))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, coded)))
    }
}
