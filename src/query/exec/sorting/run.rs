//! Rows of partitions in order.
//!
//! Comes in: the rows of one partition, or of all. Goes out: the same in order, of several partitions as if they were one. Where one of several has no room in memory, each is sorted by itself, and they are merged row by row. Never here: how the order is found (`order.rs`).

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::internal_datafusion_err;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::metrics::{BaselineMetrics, Time};
use datafusion::physical_plan::sorts::streaming_merge::StreamingMergeBuilder;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::try_join_all;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::task::JoinError;

use super::gathered::{Gathered, Partition, Sort};
use super::order::{Key, order};
use super::rows::Rows;

/// How a sort goes out.
pub(super) struct Sorting {
    pub(super) sort: Sort,
    pub(super) schema: SchemaRef,
    pub(super) counters: BaselineMetrics,
    /// The most rows that are wanted.
    pub(super) fetch: Option<usize>,
    /// How many batches are put together at the same time.
    pub(super) ahead: usize,
}

impl Sorting {
    /// The rows of all inputs, which are read at the same time.
    ///
    /// # Errors
    /// Those of the rows, and as the engine says.
    pub(super) async fn sorted(
        self,
        mut inputs: Vec<(SendableRecordBatchStream, MemoryReservation)>,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let partitions = match (inputs.pop(), inputs.is_empty()) {
            (Some((alone, room)), true) => vec![Partition::read(alone, room, &self.sort).await?],
            (last, _) => self.read(inputs.into_iter().chain(last)).await?,
        };
        let is_alone = partitions.len() == 1;
        let mut gathered = Vec::with_capacity(partitions.len());
        let mut others = Vec::new();
        for partition in partitions {
            match partition {
                Partition::InMemory(rows) if others.is_empty() => gathered.push(rows),
                other => others.push(other),
            }
        }
        let mut num_rows = gathered.iter().map(|rows| rows.num_rows);
        // No row has the last number.
        let num_rows = num_rows
            .try_fold(0_u32, u32::checked_add)
            .filter(|rows| *rows < u32::MAX);
        match num_rows.filter(|_| others.is_empty()) {
            Some(num_rows) => self.in_memory(gathered, num_rows).await,
            None if is_alone && let Some(Partition::Outside(sorted)) = others.pop() => {
                Ok(sorted.boxed())
            }
            None => {
                let gathered = gathered.into_iter().map(Partition::InMemory);
                self.merged(gathered.chain(others)).await
            }
        }
    }

    async fn read(
        &self,
        inputs: impl Iterator<Item = (SendableRecordBatchStream, MemoryReservation)>,
    ) -> Result<Vec<Partition>> {
        let tasks = inputs.map(|(input, room)| {
            let sort = self.sort.clone();
            let read = SpawnedTask::spawn(async move { Partition::read(input, room, &sort).await });
            // An error of one ends all.
            async move { read.await.map_err(early)? }
        });
        try_join_all(tasks.collect::<Vec<_>>()).await
    }

    async fn in_memory(
        &self,
        parts: Vec<Gathered>,
        num_rows: u32,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let (mut batches, mut counted) = (Vec::new(), Vec::new());
        for part in parts {
            batches.extend(part.batches);
            counted.push(part.reservation);
        }
        let time = self.counters.elapsed_compute();
        let keys = self
            .sort
            .by
            .iter()
            .map(|key| key_of(key, &self.schema, &batches));
        let keys: Vec<Key> = keys.collect::<Result<_>>()?;
        let mut numbers = timed(time, order(keys, num_rows)).await?;
        numbers.truncate(self.fetch.unwrap_or(usize::MAX));
        let numbers = UInt32Array::from(numbers);
        let rows = timed(time, Rows::try_new(Arc::clone(&self.schema), batches)).await?;
        let rows = Arc::new(rows);
        let order_bytes = numbers.len() * size_of::<u32>();
        keep(&counted, rows.size().saturating_add(order_bytes));

        let batch_rows = self.sort.context.session_config().batch_size().max(1);
        let starts = (0..numbers.len()).step_by(batch_rows);
        let (time, ahead) = (time.clone(), self.ahead.max(1));
        let batches = stream::iter(starts).map(move |start| {
            let numbers = numbers.slice(start, batch_rows.min(numbers.len() - start));
            let (rows, time) = (Arc::clone(&rows), time.clone());
            let made = move || {
                let _working = time.timer();
                rows.batches(&numbers)
            };
            async move {
                let made = match ahead {
                    1 => made()?,
                    _ => SpawnedTask::spawn(async move { made() })
                        .await
                        .map_err(early)??,
                };
                Ok::<_, DataFusionError>(stream::iter(made.into_iter().map(Ok)))
            }
        });
        let batches = batches.buffered(ahead).try_flatten().map(move |batch| {
            let _counted = &counted;
            batch
        });
        Ok(batches.boxed())
    }

    /// Partitions of which one at least has no room in memory.
    async fn merged(
        &self,
        partitions: impl Iterator<Item = Partition>,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let mut streams: Vec<SendableRecordBatchStream> = Vec::new();
        for partition in partitions {
            streams.push(match partition {
                Partition::Outside(sorted) => sorted,
                Partition::InMemory(rows) => {
                    let num_rows = rows.num_rows;
                    let sorted = Box::pin(self.in_memory(vec![rows], num_rows)).await?;
                    let schema = Arc::clone(&self.schema);
                    spawn_buffered(Box::pin(RecordBatchStreamAdapter::new(schema, sorted)), 1)
                }
            });
        }
        let settings = self.sort.context.session_config();
        let consumer = MemoryConsumer::new("PackedSortExec (merge)");
        let merged = StreamingMergeBuilder::new()
            .with_streams(streams)
            .with_schema(Arc::clone(&self.schema))
            .with_expressions(&self.sort.by)
            .with_metrics(self.counters.intermediate())
            .with_batch_size(settings.batch_size())
            .with_fetch(self.fetch)
            .with_reservation(consumer.register(self.sort.context.memory_pool()))
            .with_round_robin_tie_breaker(false);
        Ok(merged.build()?.boxed())
    }
}

fn key_of(key: &PhysicalSortExpr, schema: &Schema, batches: &[RecordBatch]) -> Result<Key> {
    let values = batches.iter();
    let values = values.map(|batch| Ok(key.evaluate_to_sort_column(batch)?.values));
    Ok(Key {
        kind: key.expr.data_type(schema)?,
        values: values.collect::<Result<_>>()?,
        options: key.options,
    })
}

fn early(error: JoinError) -> DataFusionError {
    internal_datafusion_err!("a sort ended early: {error}")
}

/// Counts no more than so many bytes.
fn keep(counted: &[MemoryReservation], bytes: usize) {
    let mut left = bytes;
    for reservation in counted {
        let kept = reservation.size().min(left);
        reservation.shrink(reservation.size() - kept);
        left -= kept;
    }
}

/// What comes of it, and the time in which it worked, not that in which others did.
async fn timed<T>(time: &Time, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        let _working = time.timer();
        work.as_mut().poll(context)
    })
    .await
}
