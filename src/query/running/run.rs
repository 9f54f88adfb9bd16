//! One run of a query.
//!
//! Comes in: a physical plan. Goes out: its batches, made by a task of their own, so that whoever waits for them can always be dropped at once, and dropping them
//! stops the task and every operator under it. A run waits for its turn, ends at its deadline, and ends when its query is cancelled. One that finds no memory while others run is
//! begun again, once, when it is alone; one whose rows are gone is planned anew, once (`anew.rs`). Never here: planning.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use arrow::array::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::{FutureExt, Stream, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep};

use super::allowance::Seat;
use super::answer::Query;
use super::begun::Begun;
use super::bounds::{Queue, RunPool};
use super::kept::Kept;
use super::metrics::QueryMetrics;
use crate::error::{Error, ErrorKind, Result};
use crate::query::exec::remains::remains;
use crate::query::exec::spool::Ending;
use crate::query::exec::stop::Stop;
use crate::query::messages::faults;
use crate::query::messages::limits::TimeLimit;

/// How many finished batches wait for a slow reader.
const BATCHES_AHEAD: usize = 2;

/// One run, for those who ask what it does.
#[derive(Debug)]
pub(super) struct Run {
    /// The plan that runs at this moment, with its counters.
    plan: ArcSwap<Arc<dyn ExecutionPlan>>,
    memory: Arc<RunPool>,
    begun: Instant,
    /// How long it waited for its turn, once it had it.
    waited: OnceLock<Duration>,
    /// How long it took, once it ended.
    took: OnceLock<Duration>,
    num_rows: AtomicU64,
    num_batches: AtomicU64,
    /// Whether all rows have been made.
    complete: AtomicBool,
}

impl Run {
    fn complete(&self) {
        self.complete.store(true, Ordering::Release);
    }

    fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// The plan that runs at this moment, or ran last.
    pub(super) fn plan(&self) -> Arc<dyn ExecutionPlan> {
        Arc::clone(self.plan.load().as_ref())
    }

    /// What the run did so far.
    pub(super) fn metrics(&self) -> QueryMetrics {
        let took = self.took.get().copied();
        let elapsed = took.unwrap_or_else(|| self.begun.elapsed());
        let mut metrics = QueryMetrics {
            is_done: took.is_some(),
            elapsed,
            waited: self.waited.get().copied().unwrap_or(elapsed),
            num_rows: self.num_rows.load(Ordering::Relaxed),
            num_batches: self.num_batches.load(Ordering::Relaxed),
            peak_memory_bytes: self.peak_memory_bytes(),
            ..QueryMetrics::default()
        };
        metrics.add(&self.plan(), 0);
        metrics
    }

    /// The most bytes that it used of its memory limit at once.
    pub(super) fn peak_memory_bytes(&self) -> u64 {
        self.memory.peak() as u64
    }

    fn end(&self) {
        self.took.get_or_init(|| {
            if let Some(plan) = remains(&self.plan()) {
                self.plan.store(Arc::new(plan));
            }
            self.begun.elapsed()
        });
    }

    fn count(&self, batch: &RecordBatch) {
        self.num_rows
            .fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        self.num_batches.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a run needs.
pub(super) struct Start {
    pub(super) query: Query,
    /// Whether it asks what other processes counted.
    pub(super) counts: bool,
    pub(super) memory: Arc<RunPool>,
    pub(super) queue: Queue,
    pub(super) timeout: Option<TimeLimit>,
    /// Where it runs; on the runtime of the caller without it.
    pub(super) on: Option<Handle>,
    /// What was written, if errors can be shown in it.
    pub(super) text: Option<Arc<str>>,
    pub(super) cancelled: watch::Receiver<u64>,
    /// Its place among the queries of its caller.
    pub(super) seat: Option<Seat>,
    /// Counts what whoever reads the batches keeps.
    pub(super) kept: Option<Kept>,
}

/// The batches of a running query, in the order in which they are found. Dropping it stops the query.
pub struct BatchStream {
    receiver: Receiver<Result<RecordBatch>>,
    task: AbortHandle,
    stop: Stop,
    run: Arc<Run>,
    deadline: Option<Deadline>,
    cancelled: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    kept: Option<Kept>,
    /// Until it ends, also where somebody holds on to it.
    seat: Option<Seat>,
    text: Option<Arc<str>>,
    ended: bool,
}

/// Batches of a run that is over count against the memory limit as long as it is there.
#[derive(Debug)]
pub struct Counted {
    _kept: Option<Kept>,
}

struct Deadline {
    timeout: TimeLimit,
    at: Instant,
    timer: Pin<Box<Sleep>>,
}

impl std::fmt::Debug for BatchStream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("BatchStream")
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl BatchStream {
    /// Starts a run on the current tokio runtime.
    pub(super) fn start(start: Start) -> Result<Self> {
        let stop = Stop::default();
        let begun = Begun::first(start.query, (&start.memory, &stop, start.counts))?;
        let plan = begun.ready_or_planned(&stop)?;
        let run = Arc::new(Run {
            plan: ArcSwap::from_pointee(plan),
            memory: start.memory,
            begun: Instant::now(),
            waited: OnceLock::new(),
            took: OnceLock::new(),
            num_rows: AtomicU64::new(0),
            num_batches: AtomicU64::new(0),
            complete: AtomicBool::new(false),
        });
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let task = Task {
            begun,
            counts: start.counts,
            run: Arc::clone(&run),
            queue: start.queue,
            stop: stop.clone(),
            sender,
        };
        // A time that no clock will come to is none.
        let deadline = start.timeout.and_then(|timeout| {
            let at = Instant::now().checked_add(timeout.time)?;
            stop.end_at(at);
            let timer = Box::pin(tokio::time::sleep_until(at));
            Some(Deadline { timeout, at, timer })
        });
        let mut cancelled = start.cancelled;
        cancelled.mark_unchanged();
        let cancelled = async move {
            // A query that is gone cannot be cancelled any more; its runs go on.
            if cancelled.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        Ok(Self {
            receiver,
            task: match start.on {
                Some(runtime) => runtime.spawn(task.run()),
                None => tokio::spawn(task.run()),
            }
            .abort_handle(),
            stop,
            run,
            deadline,
            cancelled: Box::pin(cancelled),
            kept: start.kept,
            seat: start.seat,
            text: start.text,
            ended: false,
        })
    }

    /// Ends it, and gives what its batches count with as long as they are kept, without the plan and its grids.
    #[must_use]
    pub fn into_counted(mut self) -> Counted {
        Counted {
            _kept: self.kept.take(),
        }
    }

    /// The run, for those who ask what it does.
    pub(super) fn tracked(&self) -> &Arc<Run> {
        &self.run
    }

    /// Why the run must end now, if it must.
    fn must_end(&mut self, context: &mut Context<'_>) -> Option<Error> {
        if self.cancelled.as_mut().poll(context).is_ready() {
            return Some(Error::new(ErrorKind::Cancelled, "the query was cancelled"));
        }
        let deadline = self.deadline.as_mut()?;
        // The clock is asked as well: while all threads are busy, no timer goes off.
        let over =
            deadline.timer.as_mut().poll(context).is_ready() || Instant::now() >= deadline.at;
        over.then(|| deadline.timeout.run_over())
    }

    fn end(&mut self) {
        self.ended = true;
        self.seat = None;
        self.run.end();
        self.stop.set();
        self.task.abort();
        self.receiver.close();
    }
}

impl Stream for BatchStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Some(error) = self.must_end(context) {
            self.end();
            return Poll::Ready(Some(Err(error)));
        }
        let Poll::Ready(next) = self.receiver.poll_recv(context) else {
            return Poll::Pending;
        };
        // Whoever made the rows is gone, and did not say that these are all.
        let next = match next {
            None if !self.run.is_complete() => Some(Err(Error::internal(
                "the query ended before all its rows were there",
            ))),
            next => next,
        };
        let counted = match (next, &mut self.kept) {
            (Some(Ok(batch)), Some(kept)) => Some(kept.count(&batch).map(|()| batch)),
            (next, _) => next,
        };
        let counted = match (counted, &self.text) {
            (Some(Err(error)), Some(text)) => {
                Some(Err(faults::placed(error, text, &self.run.plan())))
            }
            (counted, _) => counted,
        };
        match &counted {
            Some(Ok(batch)) => self.run.count(batch),
            _ => self.end(),
        }
        Poll::Ready(counted)
    }
}

impl Drop for BatchStream {
    fn drop(&mut self) {
        self.run.end();
        self.stop.set();
        self.task.abort();
    }
}

/// The task that makes the batches.
struct Task {
    begun: Begun,
    counts: bool,
    run: Arc<Run>,
    queue: Queue,
    stop: Stop,
    sender: Sender<Result<RecordBatch>>,
}

/// How an attempt ended.
enum Ended {
    Done,
    /// With an error, before anybody got a batch.
    Unseen(Error),
}

impl Task {
    async fn run(mut self) {
        let attempts = std::panic::AssertUnwindSafe(self.attempts()).catch_unwind();
        let done = attempts.await;
        match done.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))) {
            Ok(()) => self.run.complete(),
            // Nobody reads any more when this fails.
            Err(error) => drop(self.sender.send(Err(error)).await),
        }
    }

    async fn attempts(&mut self) -> Result<()> {
        let turn = self.queue.turn().await?;
        self.run.waited.get_or_init(|| self.run.begun.elapsed());
        let mut moment = self.queue.moment();
        let mut ended = self.attempt_or_look(turn).await?;
        if let Ended::Unseen(error) = &ended
            && let Some(anew) = self.begun_anew(error).await?
        {
            self.begun = anew;
            let turn = self.queue.turn().await?;
            moment = self.queue.moment();
            ended = self.begin_again(turn).await?;
        }
        let Ended::Unseen(error) = ended else {
            return Ok(());
        };
        if error.kind() != ErrorKind::ResourcesExhausted || !self.queue.was_shared_since(moment) {
            return Err(error);
        }
        tracing::debug!(%error, "a query found no memory beside others and waits until it is alone");
        let turn = self.queue.alone().await?;
        match self.begin_again(turn).await? {
            Ended::Unseen(error) => Err(error),
            Ended::Done => Ok(()),
        }
    }

    /// As [`Task::attempt`]. Where a tile is gone after rows were seen, names stand for what there is by now when that is told, so that whoever asks again is not told the same.
    async fn attempt_or_look(&mut self, turn: OwnedSemaphorePermit) -> Result<Ended> {
        let ended = match self.begun.is_own {
            true => self.attempt(turn).await,
            false => self.begin_again(turn).await,
        };
        if let Err(error) = &ended
            && let Some(anew) = self.begun.query.anew()
        {
            anew.look_after(error).await;
        }
        ended
    }

    /// The statement over what its names stand for now, where that is something else and its rows are gone.
    async fn begun_anew(&self, error: &Error) -> Result<Option<Begun>> {
        let query = &self.begun.query;
        let Some(anew) = query.anew() else {
            return Ok(None);
        };
        let took = self.run.begun.elapsed();
        let query = anew.after(error, query, took).await;
        let with = (&self.run.memory, &self.stop, self.counts);
        query.map(|query| Begun::first(query, with)).transpose()
    }

    async fn begin_again(&mut self, turn: OwnedSemaphorePermit) -> Result<Ended> {
        let with = (&self.run.memory, &self.stop, self.counts);
        if let Some(own) = self.begun.with_own_plan(with).await? {
            self.begun = own;
        }
        let plan = self.begun.ready(&self.stop)?;
        self.run.plan.store(Arc::new(plan));
        self.attempt(turn).await
    }

    /// Runs the plan. Its turn is given up while a slow reader has batches to read, so that readers who wait for one another do not wait for ever.
    async fn attempt(&self, turn: OwnedSemaphorePermit) -> Result<Ended> {
        let mut turn = turn;
        let plan = self.run.plan();
        let _ending = Ending(Arc::clone(&plan));
        let context = Arc::clone(&self.begun.context);
        let mut batches = match execute_stream(plan, context) {
            Ok(batches) => batches,
            Err(error) => return Ok(Ended::Unseen(error.into())),
        };
        let mut seen = false;
        while let Some(batch) = next(&mut batches).await {
            let batch = match batch {
                Err(error) if !seen => return Ok(Ended::Unseen(error)),
                batch => batch?,
            };
            seen = true;
            match self.sender.try_send(Ok(batch)) {
                Ok(()) => {}
                Err(TrySendError::Closed(_)) => return Ok(Ended::Done),
                Err(TrySendError::Full(batch)) => {
                    drop(turn);
                    if self.sender.send(batch).await.is_err() {
                        return Ok(Ended::Done);
                    }
                    turn = self.queue.turn().await?;
                }
            }
        }
        Ok(Ended::Done)
    }
}

/// The next batch. A panic in an operator is this query's error and nobody else's.
async fn next(batches: &mut SendableRecordBatchStream) -> Option<Result<RecordBatch>> {
    let next = std::panic::AssertUnwindSafe(batches.next())
        .catch_unwind()
        .await;
    match next {
        Ok(batch) => batch.map(|batch| batch.map_err(|error| too_long_or(Error::from(error)))),
        Err(panic) => Some(Err(panicked(panic.as_ref()))),
    }
}

/// A panic, which is a fault, unless it says that texts are too long.
fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    // It may quote texts that are none.
    let text = String::from_utf8_lossy(text.as_bytes());
    let text = format!("an operator of the query panicked: {text}");
    too_long_or(Error::internal(text))
}

/// Arrow panics or fails where the texts of one batch have more than 2 GiB; other errors stay as they are.
fn too_long_or(error: Error) -> Error {
    let is_ours = !matches!(error.kind(), ErrorKind::Internal | ErrorKind::Query);
    if is_ours || !error.message().to_lowercase().contains("offset overflow") {
        return error;
    }
    let text = "the texts of one batch have more than 2 GiB";
    let hint =
        "make them shorter, or cast them to a type without that limit: arrow_cast(…, 'LargeUtf8')";
    Error::new(ErrorKind::ResourcesExhausted, text)
        .with_hint(hint)
        .with_source(error)
}
