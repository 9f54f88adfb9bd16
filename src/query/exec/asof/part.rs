//! One partition of the right side, while all are read at the same time.
//!
//! Comes in: its rows. Goes out: the same in batches that are not too small, with the numbers of their keys among those of this partition, and what is compared; the rest where there is no room for it. Never here: what becomes of all partitions (`shared.rs`).

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;

use super::builder::{BYTES_OF_ROW, Builder, CHUNK_BYTES, USUAL_ROWS, is_no_room};
use super::known::{Grouped, Known, Looking};

/// What was read of all partitions, of which several may have slices of the same memory.
pub(super) struct Counted {
    pub(super) counter: RecordBatchMemoryCounter,
    num_rows: usize,
    /// Bytes of what is known of the rows.
    known: usize,
    pub(super) has_room: bool,
    pub(super) builder: Builder,
}

impl Counted {
    pub(super) fn new(builder: Builder) -> Self {
        Self {
            counter: RecordBatchMemoryCounter::new(),
            num_rows: 0,
            known: 0,
            has_room: true,
            builder,
        }
    }

    /// Counts one more batch, and so many bytes of what is known of its rows. Whether there is room for it, and was for those before.
    fn count(&mut self, batch: &RecordBatch, known: usize) -> Result<bool> {
        if !self.has_room {
            return Ok(false);
        }
        self.counter.count_batch(batch);
        self.num_rows += batch.num_rows();
        self.known += known;
        let rows = self.num_rows.saturating_mul(BYTES_OF_ROW);
        let bytes = self.counter.memory_usage().saturating_add(rows);
        let bytes = bytes.saturating_add(self.known);
        if let Err(error) = self.builder.reservation().try_resize(bytes) {
            self.has_room = is_no_room(error)?;
        }
        Ok(self.has_room)
    }
}

/// One partition.
pub(super) struct Part {
    pub(super) batches: Vec<RecordBatch>,
    /// Of all rows, if there was room.
    pub(super) known: Option<Grouped>,
    /// What was not read, where there is no room.
    pub(super) rest: Option<SendableRecordBatchStream>,
}

/// Reads the rows of one partition in their order.
pub(super) async fn part(
    mut rows: SendableRecordBatchStream,
    looking: Looking,
    counted: Arc<Mutex<Counted>>,
) -> Result<Part> {
    let (mut batches, mut small) = (Vec::new(), Small::new(rows.schema(), &counted));
    let columns = Arc::clone(&looking.columns);
    let mut known = Known::try_new(looking)?;
    let mut known_bytes = 0;
    loop {
        let batch = rows.next().await.transpose()?;
        let is_over = batch.is_none();
        let batch = batch
            .map(|batch| columns.without_nulls(batch))
            .transpose()?;
        let mut taken = small.with(batch)?.into_iter();
        while let Some(batch) = taken.next() {
            let has_numbers = known.push(&batch)?;
            let grown = known.size().saturating_sub(known_bytes);
            known_bytes += grown;
            let has_room = {
                let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
                counted.has_room &= has_numbers;
                counted.count(&batch, grown)?
            };
            batches.push(batch);
            if !has_room {
                batches.extend(taken);
                batches.extend(small.batches);
                return Ok(Part {
                    batches,
                    known: None,
                    rest: (!is_over).then_some(rows),
                });
            }
        }
        if is_over {
            break;
        }
    }
    Ok(Part {
        batches,
        known: Some(known.by_group()),
        rest: None,
    })
}

/// Batches of few rows, which become one: each is looked into for every batch of the left side.
struct Small {
    schema: SchemaRef,
    may_be_put_together: bool,
    batches: Vec<RecordBatch>,
    num_rows: usize,
    bytes: usize,
}

impl Small {
    fn new(schema: SchemaRef, counted: &Mutex<Counted>) -> Self {
        let counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            schema,
            may_be_put_together: counted.builder.may_be_put_together(),
            batches: Vec::new(),
            num_rows: 0,
            bytes: 0,
        }
    }

    /// The batches that are there with one more; `None` is behind the last.
    fn with(&mut self, batch: Option<RecordBatch>) -> Result<Vec<RecordBatch>> {
        let Some(batch) = batch else {
            return self.taken();
        };
        let num_rows = batch.num_rows();
        if num_rows == 0 {
            return Ok(Vec::new());
        }
        if !self.may_be_put_together || num_rows >= USUAL_ROWS / 8 {
            let mut all = self.taken()?;
            all.push(batch);
            return Ok(all);
        }
        for column in batch.columns() {
            self.bytes += column.to_data().get_slice_memory_size()?;
        }
        self.num_rows += num_rows;
        self.batches.push(batch);
        match self.num_rows >= USUAL_ROWS || self.bytes >= CHUNK_BYTES {
            true => self.taken(),
            false => Ok(Vec::new()),
        }
    }

    fn taken(&mut self) -> Result<Vec<RecordBatch>> {
        let batches = std::mem::take(&mut self.batches);
        (self.num_rows, self.bytes) = (0, 0);
        Ok(match batches.len() {
            0 | 1 => batches,
            _ => vec![concat_batches(&self.schema, &batches)?],
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
    use datafusion::logical_expr::Operator;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures::{TryStreamExt, stream};

    use super::super::Nearest;
    use super::*;

    #[tokio::test]
    async fn no_row_is_lost_where_there_is_no_room() {
        let schema = Arc::new(Schema::new(vec![Field::new("m", DataType::Int64, true)]));
        let nearest = Nearest::of(Operator::GtEq, Vec::new(), (0, 0), true).unwrap();
        let batch = |count: i64| {
            let moments = Arc::new(Int64Array::from_iter_values(0..count));
            RecordBatch::try_new(Arc::clone(&schema), vec![moments])
        };
        let sizes = [10, 5_000, 20, 30, 9_000, 40];
        let total: i64 = sizes.iter().sum();
        for room in [1, 400_000, 500_000, 10_000_000] {
            let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(room));
            let reservation = MemoryConsumer::new("test").register(&pool);
            let builder = Builder::try_new(Arc::clone(&schema), &nearest, reservation).unwrap();
            let looking = builder.looking().clone();
            let counted = Arc::new(Mutex::new(Counted::new(builder)));
            let batches = stream::iter(sizes.map(|count| Ok(batch(count)?)));
            let rows = RecordBatchStreamAdapter::new(Arc::clone(&schema), batches);
            let read = part(Box::pin(rows), looking, Arc::clone(&counted)).await;
            let mut read = read.unwrap();
            if let Some(rest) = read.rest {
                let rest: Vec<RecordBatch> = rest.try_collect().await.unwrap();
                read.batches.extend(rest);
            }
            let count: usize = read.batches.iter().map(RecordBatch::num_rows).sum();
            assert_eq!(i64::try_from(count).unwrap(), total, "with {room} bytes");
            let has_room = counted.lock().unwrap().has_room;
            assert_eq!(has_room, room == 10_000_000, "with {room} bytes");
        }
    }
}
