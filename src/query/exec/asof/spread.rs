//! Nearest joins without keys over all partitions of their inputs: the right one is read once, and its index is there for all of the left one.
//!
//! Comes in: a plan that is about to run. Goes out: the same plan, in which such a join does not have its inputs brought together in one partition, but its rows. Never here: plans of clusters, whose processes have not all of the right input, and where a partition
//! that is not read on could keep others waiting.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::future::{BoxFuture, Shared, try_join_all};
use futures::{FutureExt, StreamExt};

use super::builder::{BYTES_OF_ROW, Builder, CHUNK_BYTES, USUAL_ROWS, is_no_room};
use super::columns::Columns;
use super::index::Kept;
use super::{AsofJoinExec, Nearest, Partition};

/// The plan with such joins over all partitions.
///
/// # Errors
/// As the engine says.
pub(in crate::query) fn spread(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let Some(join) = node.downcast_ref::<AsofJoinExec>() else {
            return Ok(Transformed::no(node));
        };
        if !join.nearest.equal.is_empty() || join.once.is_some() {
            return Ok(Transformed::no(node));
        }
        let Some(left) = partitions(&join.left) else {
            return Ok(Transformed::no(node));
        };
        let right = partitions(&join.right).unwrap_or_else(|| Arc::clone(&join.right));
        let spread = join.spread(left, right)?;
        Ok(Transformed::yes(Arc::new(CoalescePartitionsExec::new(
            Arc::new(spread),
        ))))
    })
    .data()
}

/// The input in its partitions; `None` where they are brought together in another way.
fn partitions(input: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    match input.downcast_ref::<CoalescePartitionsExec>() {
        Some(together) if together.fetch().is_none() => Some(Arc::clone(together.input())),
        _ => None,
    }
}

/// The right input, once it was read.
pub(super) enum Right {
    Index(Arc<Kept>),
    /// What was read, and the rest of each partition; nothing once somebody has taken it.
    NoRoom(Box<NoRoom>),
}

/// A builder with the rows that it has no room for, and the rest of each partition.
type NoRoom = Mutex<Option<(Builder, Vec<SendableRecordBatchStream>)>>;

type Read = BoxFuture<'static, Result<Arc<Right>, Arc<DataFusionError>>>;

/// Reads the right input for all partitions. Once all have it, they alone keep what was read.
#[derive(Default)]
pub(super) struct Once(Mutex<Option<Handed>>);

/// What is read, or will be, and how many partitions do not have it yet.
struct Handed {
    read: Shared<Read>,
    others: usize,
}

impl fmt::Debug for Once {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Once")
    }
}

/// The right input, as one partition has it.
pub(super) struct SharedRight {
    read: Shared<Read>,
    schema: SchemaRef,
}

impl SharedRight {
    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    pub(super) async fn read(self) -> Result<Arc<Right>> {
        self.read.await.map_err(DataFusionError::Shared)
    }
}

impl Once {
    /// What is read for others, or will be.
    pub(super) fn right(&self, join: &AsofJoinExec, partition: Partition) -> Result<SharedRight> {
        let schema = join.right.schema();
        let mut once = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handed) = once.as_mut() {
            let read = handed.read.clone();
            handed.others -= 1;
            if handed.others == 0 {
                *once = None;
            }
            return Ok(SharedRight { read, schema });
        }
        let parts = 0..join.right.output_partitioning().partition_count();
        let parts = parts.map(|number| join.right.execute(number, Arc::clone(&partition.context)));
        let parts: Vec<_> = parts.collect::<Result<_>>()?;
        let builder = partition.builder(&join.nearest, join.right.schema())?;
        let (nearest, left) = (join.nearest.clone(), join.left.schema());
        let read = async move {
            let right = read(parts, builder, (&nearest, &left), &partition).await;
            right.map(Arc::new).map_err(Arc::new)
        };
        let read = read.boxed().shared();
        let others = join.left.output_partitioning().partition_count() - 1;
        *once = (others > 0).then(|| Handed {
            read: read.clone(),
            others,
        });
        Ok(SharedRight { read, schema })
    }
}

/// Reads all partitions at the same time.
async fn read(
    parts: Vec<SendableRecordBatchStream>,
    builder: Builder,
    (nearest, left): (&Nearest, &SchemaRef),
    partition: &Partition,
) -> Result<Right> {
    let schema = builder.schema();
    let counted = Arc::new(Mutex::new(Counted {
        counter: RecordBatchMemoryCounter::new(),
        num_rows: 0,
        has_room: true,
        builder,
    }));
    let columns = Arc::new(Columns::of(&schema, nearest, super::right));
    let tasks = parts.into_iter().map(|rows| {
        let read = part(rows, Arc::clone(&columns), Arc::clone(&counted));
        joined(SpawnedTask::spawn(read)).boxed()
    });
    let tasks: Vec<_> = tasks.collect();
    let parts = try_join_all(tasks).await?;
    let Some(counted) = Arc::into_inner(counted) else {
        return internal_err!("a part of a nearest join goes on");
    };
    let counted = counted.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (mut batches, mut rest) = (Vec::new(), Vec::new());
    for (read, rows) in parts {
        batches.extend(read);
        rest.extend(rows);
    }
    let no_room = |builder, rest| Right::NoRoom(Box::new(Mutex::new(Some((builder, rest)))));
    if !counted.has_room {
        return Ok(no_room(counted.builder.of_rows(batches), rest));
    }
    let index = match counted.builder.of_counted(batches, counted.counter)? {
        Ok(builder) => builder.finish(left, nearest)?,
        Err(builder) => Err(builder),
    };
    Ok(match index {
        Ok(index) => {
            partition.count(&index);
            Right::Index(index.into_kept())
        }
        Err(builder) => no_room(builder, rest),
    })
}

/// What was read of all partitions, of which several may have slices of the same memory.
struct Counted {
    counter: RecordBatchMemoryCounter,
    num_rows: usize,
    has_room: bool,
    builder: Builder,
}

impl Counted {
    /// Counts one more batch. Whether there is room for it, and was for those before.
    fn count(&mut self, batch: &RecordBatch) -> Result<bool> {
        if !self.has_room {
            return Ok(false);
        }
        self.counter.count_batch(batch);
        self.num_rows += batch.num_rows();
        let rows = self.num_rows.saturating_mul(BYTES_OF_ROW);
        let bytes = self.counter.memory_usage().saturating_add(rows);
        if let Err(error) = self.builder.reservation().try_resize(bytes) {
            self.has_room = is_no_room(error)?;
        }
        Ok(self.has_room)
    }
}

/// The rows of one partition, and what is left of it.
type Part = (Vec<RecordBatch>, Option<SendableRecordBatchStream>);

async fn joined(task: SpawnedTask<Result<Part>>) -> Result<Part> {
    match task.join().await {
        Ok(read) => read,
        Err(error) => internal_err!("a part of a nearest join ended: {error}"),
    }
}

/// The rows of one partition in their order, and what is left of it where there is no room.
async fn part(
    mut rows: SendableRecordBatchStream,
    columns: Arc<Columns>,
    counted: Arc<Mutex<Counted>>,
) -> Result<Part> {
    let (mut batches, mut small) = (Vec::new(), Small::new(rows.schema(), &counted));
    loop {
        let batch = rows.next().await.transpose()?;
        let is_over = batch.is_none();
        let batch = batch
            .map(|batch| columns.without_nulls(batch))
            .transpose()?;
        let mut taken = small.with(batch)?.into_iter();
        while let Some(batch) = taken.next() {
            let has_room = {
                let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
                counted.count(&batch)?
            };
            batches.push(batch);
            if !has_room {
                batches.extend(taken);
                batches.extend(small.batches);
                return Ok((batches, (!is_over).then_some(rows)));
            }
        }
        if is_over {
            break;
        }
    }
    Ok((batches, None))
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
            let counted = Arc::new(Mutex::new(Counted {
                counter: RecordBatchMemoryCounter::new(),
                num_rows: 0,
                has_room: true,
                builder,
            }));
            let batches = stream::iter(sizes.map(|count| Ok(batch(count)?)));
            let rows = RecordBatchStreamAdapter::new(Arc::clone(&schema), batches);
            let columns = Arc::new(Columns::of(&schema, &nearest, super::super::right));
            let read = part(Box::pin(rows), columns, Arc::clone(&counted)).await;
            let (mut read, rest) = read.unwrap();
            if let Some(rest) = rest {
                read.extend(rest.try_collect::<Vec<_>>().await.unwrap());
            }
            let count: usize = read.iter().map(RecordBatch::num_rows).sum();
            assert_eq!(i64::try_from(count).unwrap(), total, "with {room} bytes");
            let has_room = counted.lock().unwrap().has_room;
            assert_eq!(has_room, room == 10_000_000, "with {room} bytes");
        }
    }
}
