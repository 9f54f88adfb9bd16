//! Rows of their own for operators that keep what they get.
//!
//! Comes in: a plan. Goes out: the same plan, in which a sort gets copies of rows instead of slices of tiles, once slices would cost too much. A sort counts the whole buffers under
//! each slice: of a tile of a million rows, each slice of 8,192 counts as the tile, so that it would spill or fail with memory to spare. Never here: other changes of a plan.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;
use futures::StreamExt;
use futures::stream::BoxStream;

use super::between::{Between, Place, Room, put_under};

/// Copies begin when the slices so far count as this part of the memory limit, over all partitions.
const PART: usize = 8;

/// A sort that keeps no more than these counts little.
const FEW_ROWS: usize = 8_192;

/// The plan with rows of their own under each sort that keeps all rows.
pub(in crate::query) fn owning(
    plan: Arc<dyn ExecutionPlan>,
    place: Place,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let keeps_all = node
            .downcast_ref::<SortExec>()
            .is_some_and(|sort| sort.fetch().is_none_or(|rows| rows > FEW_ROWS));
        if !keeps_all {
            return Ok(Transformed::no(node));
        }
        let owning = put_under(Arc::clone(&node), OwnRows, place)?;
        Ok(owning.map_or_else(|| Transformed::no(node), Transformed::yes))
    })
    .data()
}

/// Copies rows out of large buffers.
#[derive(Debug)]
struct OwnRows;

impl Between for OwnRows {
    const NAME: &'static str = "OwnRowsExec";

    fn hand_on(
        &self,
        batches: SendableRecordBatchStream,
        room: Room,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        let most = room.limit_bytes / PART / room.num_partitions;
        let mut counted = 0_usize;
        let owned = batches.map(move |batch| {
            let batch = batch?;
            counted = counted.saturating_add(get_record_batch_memory_size(&batch));
            if counted <= most {
                Ok(batch)
            } else {
                own(&batch)
            }
        });
        owned.boxed()
    }
}

/// The batch in buffers that hold its rows and no others; as it is, if its buffers hold little else.
pub(in crate::query) fn own(batch: &RecordBatch) -> Result<RecordBatch> {
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
