//! Sorts of the engine, which go into files where there is no room.
//!
//! Comes in: rows. Goes out: the same rows in order. Never here: when the engine sorts.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricValue};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{EmptyRecordBatchStream, ExecutionPlan};
use futures::StreamExt;

use super::own::own;

/// The rows in order. What the sort writes to files counts for the operator that has these counters.
///
/// # Errors
/// As the engine says; its stream has those of the rows, and `ResourcesExhausted`.
pub(super) fn sorted_outside(
    rows: SendableRecordBatchStream,
    order: LexOrdering,
    context: Arc<TaskContext>,
    metrics: &ExecutionPlanMetricsSet,
) -> Result<SendableRecordBatchStream> {
    let sort = sort(rows, order)?;
    let sorted = sort.execute(0, context)?;
    count_files(&sort, metrics);
    Ok(sorted)
}

/// A sort of the engine over rows, which is executed once.
///
/// # Errors
/// As the engine says.
pub(super) fn sort(rows: SendableRecordBatchStream, order: LexOrdering) -> Result<SortExec> {
    let schema = rows.schema();
    // There is little room: slices of large tiles count as the tiles.
    let owned = rows.map(|batch| own(&batch?));
    let owned = RecordBatchStreamAdapter::new(schema, owned);
    Ok(SortExec::new(order, once(Box::pin(owned), None)?))
}

/// An operator over rows, in an order that they have, which is executed once.
///
/// # Errors
/// As the engine says.
pub(super) fn once(
    rows: SendableRecordBatchStream,
    order: Option<LexOrdering>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = rows.schema();
    let once = Arc::new(Once {
        schema: Arc::clone(&schema),
        rows: Mutex::new(Some(rows)),
    });
    let input = StreamingTableExec::try_new(schema, vec![once], None, order, false, None)?;
    Ok(Arc::new(input))
}

/// What a sort that is no part of the plan writes to files, for the operator that has these counters. It has counters once it is executed.
pub(super) fn count_files(sort: &dyn ExecutionPlan, metrics: &ExecutionPlanMetricsSet) {
    for metric in sort.metrics().iter().flat_map(|counters| counters.iter()) {
        if let MetricValue::SpillCount(_)
        | MetricValue::SpilledBytes(_)
        | MetricValue::SpilledRows(_) = metric.value()
        {
            metrics.register(Arc::clone(metric));
        }
    }
}

/// Rows that are read once.
struct Once {
    schema: SchemaRef,
    rows: Mutex<Option<SendableRecordBatchStream>>,
}

impl fmt::Debug for Once {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Once")
    }
}

impl PartitionStream for Once {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let none = || Box::pin(EmptyRecordBatchStream::new(Arc::clone(&self.schema))) as _;
        rows.take().unwrap_or_else(none)
    }
}
