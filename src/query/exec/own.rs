//! Rows of their own for operators that keep what they get.
//!
//! Comes in: a plan. Goes out: the same plan, in which a sort gets copies of rows instead of slices of tiles, once slices would cost too much. A sort counts the whole buffers under
//! each slice: of a tile of a million rows, each slice of 8,192 counts as the tile, so that it would spill or fail with memory to spare. Never here: other changes of a plan.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::StreamExt;

/// Copies begin when the slices so far count as this part of the memory limit, over all partitions.
const PART: usize = 8;

/// A sort that keeps no more than these counts little.
const FEW_ROWS: usize = 8_192;

/// The plan with rows of their own under each sort that keeps all rows.
pub(in crate::query) fn owning(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let keeps_all = node
            .downcast_ref::<SortExec>()
            .is_some_and(|sort| sort.fetch().is_none_or(|rows| rows > FEW_ROWS));
        let Some(input) = node.children().first().map(|input| Arc::clone(input)) else {
            return Ok(Transformed::no(node));
        };
        if !keeps_all || input.downcast_ref::<OwnRowsExec>().is_some() {
            return Ok(Transformed::no(node));
        }
        let owning: Arc<dyn ExecutionPlan> = Arc::new(OwnRowsExec { input });
        let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        Ok(Transformed::yes(
            node.replace_children(vec![owning], recompute)?,
        ))
    })
    .data()
}

/// Copies rows out of large buffers.
#[derive(Debug, Clone)]
struct OwnRowsExec {
    input: Arc<dyn ExecutionPlan>,
}

impl DisplayAs for OwnRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("OwnRowsExec")
    }
}

impl ExecutionPlan for OwnRowsExec {
    fn name(&self) -> &'static str {
        "OwnRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
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
        let input = children.pop();
        let input =
            input.ok_or_else(|| DataFusionError::Internal("no child was given".to_owned()))?;
        Ok(Arc::new(Self { input }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, recompute)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let limit = match context.memory_pool().memory_limit() {
            MemoryLimit::Finite(limit) => limit,
            _ => usize::MAX,
        };
        let most = limit / PART / self.input.output_partitioning().partition_count().max(1);
        let mut counted = 0_usize;
        let batches = self.input.execute(partition, context)?;
        let owned = batches.map(move |batch| {
            let batch = batch?;
            counted = counted.saturating_add(get_record_batch_memory_size(&batch));
            if counted <= most {
                Ok(batch)
            } else {
                own(&batch)
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            owned,
        )))
    }
}

/// The batch in buffers that hold its rows and no others; as it is, if its buffers hold little else.
fn own(batch: &RecordBatch) -> Result<RecordBatch> {
    let bytes = |column: &ArrayRef| {
        column
            .to_data()
            .get_slice_memory_size()
            .unwrap_or(usize::MAX)
    };
    let rows_bytes = batch
        .columns()
        .iter()
        .map(bytes)
        .fold(0, usize::saturating_add);
    if get_record_batch_memory_size(batch) / 2 <= rows_bytes {
        return Ok(batch.clone());
    }
    let rows = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
    let copy = take_record_batch(batch, &UInt32Array::from_iter_values(0..rows))?;
    let columns = copy
        .columns()
        .iter()
        .map(|column| match column.data_type() {
            // Views were taken, not what they point to.
            DataType::Utf8View => Arc::new(column.as_string_view().gc()) as ArrayRef,
            DataType::BinaryView => Arc::new(column.as_binary_view().gc()) as ArrayRef,
            _ => Arc::clone(column),
        });
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(copy.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        copy.schema(),
        columns.collect(),
        &options,
    )?)
}
