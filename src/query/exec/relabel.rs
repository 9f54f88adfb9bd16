//! The same rows, of which other metadata is said.
//!
//! Comes in: an operator, and a schema of as many columns. Goes out: its batches, whose schema has the metadata of that one. Never here: names, types, values.

use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::Statistics;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::StreamExt;

use super::over::{known_as_input, over_one_input};

/// The node.
#[derive(Debug)]
pub(crate) struct RelabelExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl RelabelExec {
    /// `like` has the metadata.
    pub(in crate::query) fn new(input: Arc<dyn ExecutionPlan>, like: &Schema) -> Self {
        let schema = input.schema();
        let fields = schema.fields().iter().zip(like.fields());
        let fields = fields.map(|(field, like)| {
            let field = Field::clone(field);
            field.with_metadata(like.metadata().clone())
        });
        let fields: Vec<Field> = fields.collect();
        let schema = Schema::new_with_metadata(fields, like.metadata().clone());
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(schema)),
            input.output_partitioning().clone(),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self {
            input,
            properties: Arc::new(properties),
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "as all nodes over one input")]
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Result<Self> {
        Ok(Self::new(input, &self.schema()))
    }
}

impl DisplayAs for RelabelExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RelabelExec")
    }
}

impl ExecutionPlan for RelabelExec {
    fn name(&self) -> &'static str {
        "RelabelExec"
    }

    over_one_input!();
    known_as_input!();

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let batches = self.input.execute(partition, context)?;
        let own = Arc::clone(&schema);
        let batches = batches.map(move |batch| relabelled(&batch?, &own));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

fn relabelled(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().to_vec();
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &options,
    )?)
}
