//! The rows of one run that several places read.
//!
//! Comes in: what makes the rows. Goes out: the batches of each partition, to each reader in the same order. Each partition is made by a task of its own, a batch ahead of the reader that is furthest, so that no
//! reader waits for another one; a batch is let go when the last reader has it. What has no room in memory is written to a file. Never here: columns that are not read.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use datafusion::common::internal_datafusion_err;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, SpillFile, TaskContext};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, SpillManager};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use crate::grid::slice_bytes;

/// The rows take at most this part of the memory limit; the rest of them goes into files.
const PART: usize = 4;

/// The rows of a run.
#[derive(Debug)]
pub(super) struct Rows {
    metrics: ExecutionPlanMetricsSet,
    /// How many batches of each partition were asked for.
    wanted: Vec<watch::Sender<usize>>,
    /// Only who begins to read takes the lock, for a moment.
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// Nobody has asked yet.
    Waiting {
        maker: Arc<dyn ExecutionPlan>,
        num_readers: usize,
    },
    /// What each reader takes when it begins, for each partition.
    Made {
        receivers: Vec<Vec<Option<UnboundedReceiver<Made>>>>,
        _tasks: Vec<SpawnedTask<()>>,
    },
    Ended,
}

/// What readers get.
#[derive(Clone)]
enum Made {
    Batch(Arc<Held>),
    /// The rest of the partition.
    File(Arc<dyn SpillFile>, SpillManager),
    Failed(Arc<DataFusionError>),
}

impl fmt::Debug for Made {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Batch(_) => "Batch",
            Self::File(..) => "File",
            Self::Failed(_) => "Failed",
        })
    }
}

/// A batch, which counts until the last reader has it.
#[derive(Debug)]
struct Held {
    batch: RecordBatch,
    bytes: usize,
    used: Arc<AtomicUsize>,
    _counted: MemoryReservation,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl Rows {
    /// Nothing is made before somebody reads.
    pub(super) fn new(
        maker: Arc<dyn ExecutionPlan>,
        num_readers: usize,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Self {
        let count = maker.output_partitioning().partition_count();
        Self {
            metrics: metrics.clone(),
            wanted: (0..count).map(|_| watch::Sender::new(0)).collect(),
            state: Mutex::new(State::Waiting { maker, num_readers }),
        }
    }

    /// The batches of a partition for one reader, who asks once.
    ///
    /// # Errors
    /// Whatever the operators that make the rows say; `Internal` for a reader that asked before.
    pub(super) fn read(
        self: &Arc<Self>,
        partition: usize,
        reader: usize,
        context: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let mut state = self.state();
        if let State::Waiting { maker, num_readers } = &*state {
            *state = self.begun(maker, *num_readers, context)?;
        }
        let receiver = match &mut *state {
            State::Made { receivers, .. } => receivers
                .get_mut(partition)
                .and_then(|readers| readers.get_mut(reader)?.take()),
            _ => None,
        };
        let from = Reader {
            rows: Arc::clone(self),
            partition,
            receiver: receiver
                .ok_or_else(|| internal_datafusion_err!("each reader reads rows once"))?,
            taken: 0,
        };
        let batches = stream::try_unfold(from, |mut from| async move {
            let found = from.next().await?;
            Ok::<_, DataFusionError>(found.map(|found| (found, from)))
        });
        Ok(batches.try_flatten().boxed())
    }

    /// Lets go of all that was not read, since nobody reads any more.
    pub(super) fn end(&self) {
        *self.state() = State::Ended;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts all partitions, each of which waits until somebody wants rows.
    fn begun(
        &self,
        maker: &Arc<dyn ExecutionPlan>,
        num_readers: usize,
        context: &Arc<TaskContext>,
    ) -> Result<State> {
        let (mut all, mut tasks) = (Vec::new(), Vec::new());
        for (partition, wanted) in self.wanted.iter().enumerate() {
            let (senders, receivers): (_, Vec<_>) =
                (0..num_readers).map(|_| unbounded_channel()).unzip();
            let batches = maker.execute(partition, Arc::clone(context))?;
            let making = Maker {
                reservation: MemoryConsumer::new("rows that are read several times")
                    .register(context.memory_pool()),
                limit: match context.memory_pool().memory_limit() {
                    MemoryLimit::Finite(limit) => limit / PART / self.wanted.len(),
                    _ => usize::MAX,
                },
                used: Arc::default(),
                wanted: wanted.subscribe(),
                files: SpillManager::new(
                    context.runtime_env(),
                    SpillMetrics::new(&self.metrics, partition),
                    maker.schema(),
                ),
                senders,
            };
            tasks.push(SpawnedTask::spawn(making.run(batches)));
            all.push(receivers.into_iter().map(Some).collect());
        }
        Ok(State::Made {
            receivers: all,
            _tasks: tasks,
        })
    }

    /// Says that a reader wants so many batches of a partition. What makes the rows may wait until all partitions are read, so the others begin as well.
    fn want(&self, partition: usize, batches: usize) {
        for (number, wanted) in self.wanted.iter().enumerate() {
            let batches = if number == partition { batches } else { 1 };
            wanted.send_if_modified(|wanted| {
                let more = *wanted < batches;
                *wanted = batches.max(*wanted);
                more
            });
        }
    }
}

/// Makes a partition.
struct Maker {
    reservation: MemoryReservation,
    /// The most that the batches of this partition take in memory.
    limit: usize,
    used: Arc<AtomicUsize>,
    wanted: watch::Receiver<usize>,
    files: SpillManager,
    senders: Vec<UnboundedSender<Made>>,
}

impl Maker {
    async fn run(mut self, batches: SendableRecordBatchStream) {
        if let Err(error) = self.make(batches).await {
            self.give(&Made::Failed(Arc::new(error)));
        }
    }

    async fn make(&mut self, mut batches: SendableRecordBatchStream) -> Result<()> {
        let mut made = 0;
        // One batch ahead. Whoever waits is dropped with the run.
        while self
            .wanted
            .wait_for(|wanted| *wanted > 0 && wanted + 1 > made)
            .await
            .is_ok()
        {
            let Some(batch) = batches.next().await.transpose()? else {
                return Ok(());
            };
            if batch.num_rows() == 0 {
                continue;
            }
            let given = match self.held(&batch) {
                Some(held) => self.give(&Made::Batch(Arc::new(held))),
                None => return self.write(&batch, batches).await,
            };
            if !given {
                return Ok(());
            }
            made += 1;
        }
        Ok(())
    }

    /// The batch, if there is room for it.
    fn held(&self, batch: &RecordBatch) -> Option<Held> {
        let bytes = usize::try_from(slice_bytes(batch)).unwrap_or(usize::MAX);
        let counted = self.reservation.new_empty();
        let used = self.used.load(Ordering::Acquire);
        if used.saturating_add(bytes) > self.limit || counted.try_grow(bytes).is_err() {
            return None;
        }
        self.used.fetch_add(bytes, Ordering::AcqRel);
        Some(Held {
            batch: batch.clone(),
            bytes,
            used: Arc::clone(&self.used),
            _counted: counted,
        })
    }

    /// Writes this batch and all that follow to a file.
    async fn write(
        &mut self,
        first: &RecordBatch,
        mut batches: SendableRecordBatchStream,
    ) -> Result<()> {
        let mut file = self
            .files
            .create_in_progress_file("rows that are read several times")?;
        file.append_batch(first)?;
        while let Some(batch) = batches.next().await.transpose()? {
            file.append_batch(&batch)?;
        }
        if let Some(file) = file.finish()? {
            self.give(&Made::File(file, self.files.clone()));
        }
        Ok(())
    }

    /// Hands it to all readers; whether any of them is left.
    fn give(&mut self, made: &Made) -> bool {
        self.senders
            .retain(|reader| reader.send(made.clone()).is_ok());
        !self.senders.is_empty()
    }
}

/// One reader of one partition.
struct Reader {
    rows: Arc<Rows>,
    partition: usize,
    receiver: UnboundedReceiver<Made>,
    taken: usize,
}

impl Reader {
    async fn next(&mut self) -> Result<Option<BoxStream<'static, Result<RecordBatch>>>> {
        self.taken += 1;
        self.rows.want(self.partition, self.taken);
        Ok(match self.receiver.recv().await {
            None => None,
            Some(Made::Batch(held)) => {
                let batch = held.batch.clone();
                Some(stream::once(async { Ok(batch) }).boxed())
            }
            Some(Made::File(file, files)) => Some(files.read_spill_as_stream(file, None)?.boxed()),
            Some(Made::Failed(error)) => return Err(DataFusionError::Shared(error)),
        })
    }
}
