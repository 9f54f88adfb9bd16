//! One run of a query.
//!
//! Comes in: a physical plan. Goes out: its batches, made by a task of their own, so that whoever waits for them can always be dropped at once, and dropping them
//! stops the task and every operator under it. A run waits for its turn, ends at its deadline, and ends when its query is cancelled. One that finds no memory while others run is
//! begun again, once, when it is alone. Never here: planning.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use arrow::array::RecordBatch;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::{FutureExt, Stream, StreamExt};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep};

use super::bounds::Queue;
use super::exec::dense::dense;
use super::exec::own::owning;
use super::exec::stop::{Stop, stoppable};
use super::exec::wait::waiting;
use super::kept::Kept;
use crate::error::{Error, ErrorKind, Result};

/// How many finished batches wait for a slow reader.
const BATCHES_AHEAD: usize = 2;

/// The plan that runs at this moment, with its counters.
pub(super) type Running = Arc<ArcSwap<Arc<dyn ExecutionPlan>>>;

/// What a run needs.
pub(super) struct Start {
    pub(super) plan: Arc<dyn ExecutionPlan>,
    pub(super) context: Arc<TaskContext>,
    pub(super) queue: Queue,
    pub(super) timeout: Option<Duration>,
    pub(super) cancelled: watch::Receiver<u64>,
    /// Counts what whoever reads the batches keeps.
    pub(super) kept: Option<Kept>,
}

/// The batches of a running query, in the order in which they are found. Dropping it stops the query.
pub struct BatchStream {
    receiver: Receiver<Result<RecordBatch>>,
    task: AbortHandle,
    stop: Stop,
    running: Running,
    deadline: Option<Deadline>,
    cancelled: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    kept: Option<Kept>,
    ended: bool,
}

struct Deadline {
    timeout: Duration,
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
        let plan = ready(Arc::clone(&start.plan), &start.context, &stop)?;
        let running: Running = Arc::new(ArcSwap::from_pointee(plan));
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let task = Task {
            plan: start.plan,
            running: Arc::clone(&running),
            context: start.context,
            queue: start.queue,
            stop: stop.clone(),
            sender,
        };
        let deadline = start.timeout.map(|timeout| {
            let at = Instant::now() + timeout;
            let timer = Box::pin(tokio::time::sleep_until(at));
            Deadline { timeout, at, timer }
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
            task: tokio::spawn(task.run()).abort_handle(),
            stop,
            running,
            deadline,
            cancelled: Box::pin(cancelled),
            kept: start.kept,
            ended: false,
        })
    }

    /// The plan that runs, with its counters.
    pub(super) fn running(&self) -> &Running {
        &self.running
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
        over.then(|| {
            let seconds = deadline.timeout.as_secs_f64();
            let text = format!("the query took longer than its timeout of {seconds} seconds");
            Error::new(ErrorKind::ResourcesExhausted, text).with_hint("raise timeout")
        })
    }

    fn end(&mut self) {
        self.ended = true;
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
        let counted = match (next, &mut self.kept) {
            (Some(Ok(batch)), Some(kept)) => Some(kept.count(&batch).map(|()| batch)),
            (next, _) => next,
        };
        if !matches!(counted, Some(Ok(_))) {
            self.end();
        }
        Poll::Ready(counted)
    }
}

impl Drop for BatchStream {
    fn drop(&mut self) {
        self.stop.set();
        self.task.abort();
    }
}

/// The plan as it is run: from the start, with its counters at 0.
fn ready(
    plan: Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
    stop: &Stop,
) -> Result<Arc<dyn ExecutionPlan>> {
    // A run learns its dynamic filters itself: those of the plan belong to nobody.
    let plan = reset_plan_states(plan)?;
    let options = context.session_config().options();
    let plan = FilterPushdown::new_post_optimization().optimize(plan, options)?;
    let plan = owning(dense(waiting(plan)?, context)?)?;
    Ok(stoppable(plan, stop)?)
}

/// The task that makes the batches.
struct Task {
    /// As it was planned.
    plan: Arc<dyn ExecutionPlan>,
    running: Running,
    context: Arc<TaskContext>,
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
    fn plan(&self) -> Arc<dyn ExecutionPlan> {
        Arc::clone(self.running.load().as_ref())
    }

    async fn run(self) {
        if let Err(error) = self.attempts().await {
            // Nobody reads any more when this fails.
            drop(self.sender.send(Err(error)).await);
        }
    }

    async fn attempts(&self) -> Result<()> {
        let turn = self.queue.turn().await?;
        let moment = self.queue.moment();
        let Ended::Unseen(error) = self.attempt(turn).await? else {
            return Ok(());
        };
        if error.kind() != ErrorKind::ResourcesExhausted || !self.queue.was_shared_since(moment) {
            return Err(error);
        }
        tracing::debug!(%error, "a query found no memory beside others and waits until it is alone");
        let turn = self.queue.alone().await?;
        let plan = ready(Arc::clone(&self.plan), &self.context, &self.stop)?;
        self.running.store(Arc::new(plan));
        match self.attempt(turn).await? {
            Ended::Unseen(error) => Err(error),
            Ended::Done => Ok(()),
        }
    }

    /// Runs the plan. Its turn is given up while a slow reader has batches to read, so that readers who wait for one another do not wait for ever.
    async fn attempt(&self, turn: OwnedSemaphorePermit) -> Result<Ended> {
        let mut turn = turn;
        let plan = self.plan();
        let mut batches = match execute_stream(plan, Arc::clone(&self.context)) {
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
        Ok(batch) => batch.map(|batch| batch.map_err(Error::from)),
        Err(panic) => Some(Err(panicked(panic.as_ref()))),
    }
}

/// Arrow panics where the texts of one batch have more than 2 GiB; all else is a fault.
fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    if text.contains("offset overflow") || text.contains("byte array offset overflow") {
        let text = "the texts of one batch have more than 2 GiB";
        return Error::new(ErrorKind::ResourcesExhausted, text)
            .with_hint("make them shorter, or cast them to a type without that limit: arrow_cast(…, 'LargeUtf8')");
    }
    Error::internal(format!("an operator of the query panicked: {text}"))
}
