//! Groups whose keys were coded.
//!
//! Comes in: groups by codes, and other keys. Goes out: the same groups with the keys that the codes stand for, in the columns of an aggregate without codes. Never here: groups.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{SchemaRef, UInt32Type};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Statistics, internal_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};
use futures::StreamExt;

use super::dictionary::Dictionary;
use crate::query::exec::over::over_one_input;

/// Where the values of a column come from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// A column of the groups.
    Column(usize),
    /// The key with this number that the codes of a column stand for.
    Code {
        column: usize,
        key: usize,
        dictionary: Arc<Dictionary>,
    },
}

/// The operator.
#[derive(Debug)]
pub(super) struct KeyDecodeExec {
    input: Arc<dyn ExecutionPlan>,
    sources: Arc<[Source]>,
    /// Of the aggregate without codes.
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl KeyDecodeExec {
    pub(super) fn new(
        input: Arc<dyn ExecutionPlan>,
        sources: Arc<[Source]>,
        properties: Arc<PlanProperties>,
    ) -> Self {
        Self {
            input,
            sources,
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "as all nodes over one input")]
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Result<Self> {
        let (sources, properties) = (Arc::clone(&self.sources), Arc::clone(&self.properties));
        Ok(Self::new(input, sources, properties))
    }

    pub(super) fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    pub(super) fn sources(&self) -> &[Source] {
        &self.sources
    }
}

impl DisplayAs for KeyDecodeExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema();
        let names = schema.fields().iter().zip(self.sources.iter());
        let names = names.filter(|(_, source)| matches!(source, Source::Code { .. }));
        let names = names.map(|(field, _)| field.name().as_str());
        let names = names.collect::<Vec<&str>>().join(", ");
        write!(formatter, "KeyDecodeExec: keys=[{names}]")
    }
}

impl ExecutionPlan for KeyDecodeExec {
    fn name(&self) -> &'static str {
        "KeyDecodeExec"
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
        let mut statistics = Statistics::new_unknown(&self.schema());
        if let Some(input) = inputs.first() {
            statistics.num_rows = input.num_rows;
            let columns = statistics.column_statistics.iter_mut();
            for (known, source) in columns.zip(self.sources.iter()) {
                if let Source::Column(column) = source
                    && let Some(input) = input.column_statistics.get(*column)
                {
                    *known = input.clone();
                }
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
        let (sources, own) = (Arc::clone(&self.sources), Arc::clone(&schema));
        let groups = self.input.execute(partition, context)?;
        let groups = groups.map(move |groups| {
            let groups = groups?;
            let _working = counters.elapsed_compute().timer();
            let decoded = decoded(&groups, &sources, &own)?;
            Ok(decoded.record_output(&counters))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, groups)))
    }
}

/// Groups with their keys.
fn decoded(groups: &RecordBatch, sources: &[Source], schema: &SchemaRef) -> Result<RecordBatch> {
    // The keys of each column of codes are looked up once.
    let mut known: Vec<(usize, Vec<ArrayRef>)> = Vec::new();
    let mut columns = Vec::with_capacity(sources.len());
    for source in sources {
        let (column, key, dictionary) = match source {
            Source::Column(column) => {
                columns.push(Arc::clone(groups.column(*column)));
                continue;
            }
            Source::Code {
                column,
                key,
                dictionary,
            } => (*column, *key, dictionary),
        };
        if !known.iter().any(|(place, _)| *place == column) {
            let codes = groups.column(column).as_primitive::<UInt32Type>();
            known.push((column, dictionary.keys_of(codes)?));
        }
        let keys = known.iter().find(|(place, _)| *place == column);
        match keys.and_then(|(_, keys)| keys.get(key)) {
            Some(keys) => columns.push(Arc::clone(keys)),
            None => return internal_err!("no key {key} of column {column}"),
        }
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}
