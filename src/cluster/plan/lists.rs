//! Lists with long offsets between processes.
//!
//! Comes in: a plan in stages. Goes out: the same plan in which they travel as list views, and are lists again above each exchange: the encoder of Flight says of lists with long offsets (`LargeList`) that theirs are short, and whoever
//! reads them finds other values, or none. Never here: other types, which arrive as they are.

use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, UnionFields};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    ChildrenPropertiesMode, replace_children_if_necessary,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};
use datafusion_distributed::NetworkBoundaryExt;

use crate::query::over_one_input;
use futures::StreamExt;

/// The plan, between whose processes there are no such lists.
///
/// # Errors
/// As the engine says.
pub(in crate::cluster) fn as_views(
    plan: &Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let is_boundary = plan.is_network_boundary();
    let is_long = is_boundary && plan.schema().fields().iter().any(is_long);
    let children = plan.children().into_iter().map(|child| {
        let child = as_views(child)?;
        Ok(match is_long {
            true => Arc::new(ListsExec::new(child, true)) as Arc<dyn ExecutionPlan>,
            false => child,
        })
    });
    let children = children.collect::<Result<_>>()?;
    let plan = replace_children_if_necessary(Arc::clone(plan), children)?;
    Ok(match is_long {
        true => Arc::new(ListsExec::new(plan, false)),
        false => plan,
    })
}

fn is_long(field: &FieldRef) -> bool {
    let data_type = field.data_type();
    *data_type != viewed(data_type)
}

/// The type with views in place of such lists.
fn viewed(data_type: &DataType) -> DataType {
    match data_type {
        DataType::LargeList(field) => DataType::LargeListView(viewed_field(field)),
        DataType::List(field) => DataType::List(viewed_field(field)),
        DataType::ListView(field) => DataType::ListView(viewed_field(field)),
        DataType::LargeListView(field) => DataType::LargeListView(viewed_field(field)),
        DataType::FixedSizeList(field, length) => {
            DataType::FixedSizeList(viewed_field(field), *length)
        }
        DataType::Map(field, is_sorted) => DataType::Map(viewed_field(field), *is_sorted),
        DataType::Struct(fields) => DataType::Struct(viewed_fields(fields)),
        DataType::Union(fields, mode) => {
            let fields = fields.iter();
            let fields = fields.map(|(number, field)| (number, viewed_field(field)));
            DataType::Union(fields.collect::<UnionFields>(), *mode)
        }
        DataType::Dictionary(keys, values) => {
            DataType::Dictionary(keys.clone(), Box::new(viewed(values)))
        }
        DataType::RunEndEncoded(ends, values) => {
            DataType::RunEndEncoded(Arc::clone(ends), viewed_field(values))
        }
        other => other.clone(),
    }
}

fn viewed_fields(fields: &Fields) -> Fields {
    fields.iter().map(viewed_field).collect()
}

fn viewed_field(field: &FieldRef) -> FieldRef {
    let data_type = viewed(field.data_type());
    match data_type == *field.data_type() {
        true => Arc::clone(field),
        false => Arc::new(Field::clone(field).with_data_type(data_type)),
    }
}

/// The rows of its input, below an exchange with views in place of such lists, above it with lists again.
#[derive(Debug)]
pub(in crate::cluster) struct ListsExec {
    input: Arc<dyn ExecutionPlan>,
    are_views: bool,
    properties: Arc<PlanProperties>,
}

impl ListsExec {
    pub(in crate::cluster) fn new(input: Arc<dyn ExecutionPlan>, are_views: bool) -> Self {
        let properties = match are_views {
            // The exchange says the types that come out above it.
            false => Arc::clone(input.properties()),
            true => {
                let schema = input.schema();
                let fields = viewed_fields(schema.fields());
                let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
                Arc::new(PlanProperties::new(
                    EquivalenceProperties::new(Arc::new(schema)),
                    input.output_partitioning().clone(),
                    input.pipeline_behavior(),
                    input.boundedness(),
                ))
            }
        };
        Self {
            input,
            are_views,
            properties,
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "as of all nodes over one input")]
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Result<Self> {
        Ok(Self::new(input, self.are_views))
    }

    /// Whether views come out.
    pub(in crate::cluster) fn are_views(&self) -> bool {
        self.are_views
    }
}

/// The batch in the types of a schema.
fn converted(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(
        |(column, field)| match column.data_type() == field.data_type() {
            true => Ok(Arc::clone(column)),
            false => cast_with_options(column, field.data_type(), &options),
        },
    );
    let columns = columns.collect::<Result<_, _>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &rows)?;
    Ok(batch)
}

impl DisplayAs for ListsExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.are_views { "views" } else { "lists" };
        write!(formatter, "ListsExec: as={what}")
    }
}

impl ExecutionPlan for ListsExec {
    fn name(&self) -> &'static str {
        "ListsExec"
    }

    over_one_input!();

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let wanted = Arc::clone(&schema);
        let batches = self.input.execute(partition, context)?;
        let batches = batches.map(move |batch| converted(&batch?, &wanted));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, Int64Array, LargeListArray, StructArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn lists_are_views_between_and_lists_again() {
        let lists = LargeListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
            Some(vec![Some(4), Some(5), Some(6)]),
        ]);
        let within = Field::new("l", lists.data_type().clone(), true);
        let lists: Arc<dyn Array> = Arc::new(lists);
        let structs = StructArray::from(vec![(Arc::new(within.clone()), Arc::clone(&lists))]);
        let schema = Arc::new(Schema::new(vec![
            within,
            Field::new("s", structs.data_type().clone(), true),
            Field::new("n", DataType::Int64, true),
        ]));
        let numbers = Int64Array::from(vec![1, 2, 3, 4]);
        let columns: Vec<Arc<dyn Array>> = vec![lists, Arc::new(structs), Arc::new(numbers)];
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
        let views = Arc::new(Schema::new(viewed_fields(schema.fields())));
        let kinds = views.fields().iter().map(is_long);
        assert!(kinds.eq([false, false, false]));
        assert!(schema.fields().iter().map(is_long).eq([true, true, false]));
        // A part of a batch, whose offsets do not begin with 0.
        for part in [batch.clone(), batch.slice(1, 3)] {
            let sent = converted(&part, &views).unwrap();
            assert_eq!(converted(&sent, &schema).unwrap(), part);
        }
    }
}
