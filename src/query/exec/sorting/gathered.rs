//! The rows of one partition that are to be sorted.
//!
//! Comes in: its rows. Goes out: all of them, kept in memory and counted there; or those for which there was room and what comes after, in the order of the sort of the engine, which has files. Never here: how rows are put in order in memory.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};

use super::packed::has_numbers;
use crate::grid::{array_bytes, slice_bytes};
use crate::query::exec::outside::sorted_outside;

/// The bytes that the order of a row takes: three words of 16 bytes, since they are copied into runs, and these merged into others, and its number.
const ROW_BYTES: usize = 52;

/// What a key takes that is worked out of the columns.
const KEY_BYTES: usize = 16;

/// What the bytes of a key may take beside twice its value.
const LONG_KEY_BYTES: usize = 32;

/// What a sort is.
#[derive(Debug, Clone)]
pub(super) struct Sort {
    pub(super) by: LexOrdering,
    pub(super) context: Arc<TaskContext>,
    pub(super) metrics: ExecutionPlanMetricsSet,
}

impl Sort {
    /// The room of a partition.
    pub(super) fn room(&self) -> MemoryReservation {
        let consumer = MemoryConsumer::new("PackedSortExec").with_can_spill(true);
        consumer.register(self.context.memory_pool())
    }
}

/// The rows so far.
pub(super) struct Gathered {
    pub(super) batches: Vec<RecordBatch>,
    pub(super) num_rows: u32,
    pub(super) reservation: MemoryReservation,
}

/// The rows of a partition.
pub(super) enum Partition {
    InMemory(Gathered),
    /// In order.
    Outside(SendableRecordBatchStream),
}

impl Partition {
    /// Reads it to its end, within a room that is asked for before any partition is read: all know then how many share it.
    ///
    /// # Errors
    /// Those of its rows, and as the engine says.
    pub(super) async fn read(
        mut rows: SendableRecordBatchStream,
        reservation: MemoryReservation,
        sort: &Sort,
    ) -> Result<Self> {
        let mut gathered = Gathered {
            batches: Vec::new(),
            num_rows: 0,
            reservation,
        };
        let settings = &sort.context.session_config().options().execution;
        // The sort of the engine asks for it before anything else.
        let least = settings.sort_spill_reservation_bytes;
        if gathered.reservation.try_grow(least).is_err() {
            return gathered.outside(None, rows, sort);
        }
        while let Some(batch) = rows.next().await.transpose()? {
            if batch.num_rows() > 0
                && let Some(batch) = gathered.keep(batch, &sort.by)?
            {
                return gathered.outside(Some(batch), rows, sort);
            }
        }
        Ok(Self::InMemory(gathered))
    }
}

impl Gathered {
    /// Keeps a batch, or gives it back if there is no room.
    fn keep(&mut self, batch: RecordBatch, by: &LexOrdering) -> Result<Option<RecordBatch>> {
        let added = u32::try_from(batch.num_rows()).ok();
        let num_rows = added.and_then(|added| self.num_rows.checked_add(added));
        let bytes = bytes(&batch, by)?;
        let Some(num_rows) = num_rows.filter(|_| self.reservation.try_grow(bytes).is_ok()) else {
            return Ok(Some(batch));
        };
        self.num_rows = num_rows;
        self.batches.push(batch);
        Ok(None)
    }

    /// Hands all rows over to the engine.
    fn outside(
        self,
        next: Option<RecordBatch>,
        rest: SendableRecordBatchStream,
        sort: &Sort,
    ) -> Result<Partition> {
        let schema = rest.schema();
        // The engine counts them as it gets them, at once, twice as many bytes as they have, in the same room.
        drop(self.reservation);
        let kept = stream::iter(self.batches.into_iter().chain(next).map(Ok));
        let rows = RecordBatchStreamAdapter::new(schema, kept.chain(rest));
        let (by, context) = (sort.by.clone(), Arc::clone(&sort.context));
        let sorted = sorted_outside(Box::pin(rows), by, context, &sort.metrics)?;
        // Others may wait until this partition is read.
        Ok(Partition::Outside(spawn_buffered(sorted, 1)))
    }
}

/// How many bytes a batch will take at most: as it is and as it goes out, its keys, and the order.
fn bytes(batch: &RecordBatch, by: &LexOrdering) -> Result<usize> {
    let rows = usize::try_from(slice_bytes(batch)).unwrap_or(usize::MAX);
    let order = batch.num_rows().saturating_mul(ROW_BYTES);
    let mut bytes = rows.saturating_mul(2).saturating_add(order);
    let schema = batch.schema();
    for key in by {
        // Those that become bytes take about as many, and some of each row more.
        if !has_numbers(&key.expr.data_type(&schema)?) {
            let values = key.evaluate_to_sort_column(batch)?.values;
            let values = usize::try_from(array_bytes(&values)).unwrap_or(usize::MAX);
            let more = batch.num_rows().saturating_mul(LONG_KEY_BYTES);
            bytes = bytes
                .saturating_add(values.saturating_mul(2))
                .saturating_add(more);
        } else if !key.expr.is::<Column>() {
            bytes = bytes.saturating_add(batch.num_rows().saturating_mul(KEY_BYTES));
        }
    }
    Ok(bytes)
}
