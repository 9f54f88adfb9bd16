//! Answers of long queries, made while nobody listens.
//!
//! Comes in: queries, one for each set of parameters. Goes out: how far they are, and their rows in parts that can be fetched as they are finished, in any order and again, until nobody asks for a
//! while. The rows count against the memory of queries. Never here: messages of the protocol.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::StreamExt;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::rows::{Room, columns_of};
use super::running::{Guard, Running, Task};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::slice_bytes;
use crate::query::{BatchStream, Counted};
use crate::serve::door::auth::Caller;
use crate::serve::door::call::unknown;
use crate::serve::receive::visit::Visit;

/// A part is handed out once it has so many bytes.
const PART_BYTES: u64 = 16 * 1024 * 1024;

/// How long a question waits for news.
pub(in crate::serve) const WAIT: Duration = Duration::from_secs(2);

/// Queries whose rows the server keeps: those of one after those of the other.
pub(in crate::serve) struct Polled {
    /// Until they have ended and a name has changed.
    tasks: ArcSwap<Vec<Task>>,
    pub(in crate::serve) schema: SchemaRef,
    parts: Mutex<Parts>,
    /// Counts what has changed: parts, the end.
    news: watch::Sender<u64>,
    work: Mutex<Option<AbortHandle>>,
    /// Ends with the queries.
    pub(in crate::serve) life: Visit,
}

#[derive(Default)]
struct Parts {
    finished: Vec<Arc<[RecordBatch]>>,
    num_rows: u64,
    num_bytes: u64,
    ended: Option<Result<()>>,
    /// Of queries that have ended.
    counted: Vec<Counted>,
}

/// What is known of it at one moment.
pub(in crate::serve) struct Known {
    pub(in crate::serve) num_parts: usize,
    /// Of these parts.
    pub(in crate::serve) num_rows: u64,
    pub(in crate::serve) num_bytes: u64,
    pub(in crate::serve) is_done: bool,
    /// From 0 to 1, where it can be told.
    pub(in crate::serve) progress: Option<f64>,
}

impl Drop for Polled {
    fn drop(&mut self) {
        let work = self.work.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(work) = work.take() {
            work.abort();
        }
    }
}

impl Polled {
    /// Begins the queries.
    ///
    /// # Errors
    /// As [`columns_of`] and [`Query::stream_to_keep`](crate::query::Query::stream_to_keep).
    pub(in crate::serve) fn begin(
        tasks: Vec<Task>,
        caller: &Caller,
        running: &Arc<Running>,
        room: Room,
    ) -> Result<Arc<Self>> {
        let schema = columns_of(&tasks)?;
        let first = tasks.first();
        let first = first.ok_or_else(|| Error::internal("a statement without a query"))?;
        let begun = Begun::of(first, caller, running)?;
        let polled = Arc::new(Self {
            schema,
            tasks: ArcSwap::from_pointee(tasks),
            parts: Mutex::default(),
            news: watch::Sender::new(0),
            work: Mutex::default(),
            life: Visit::default(),
        });
        let gathering = Gathering {
            keeper: Arc::downgrade(&polled),
            caller: caller.clone(),
            running: Arc::clone(running),
            room,
            part: Vec::new(),
            part_bytes: 0,
        };
        let work = tokio::spawn(gathering.all(begun));
        let handle = work.abort_handle();
        *polled.work.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
        Ok(polled)
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, part: Vec<RecordBatch>) {
        if part.is_empty() {
            return;
        }
        let mut parts = self.parts();
        parts.num_rows += part
            .iter()
            .map(|batch| batch.num_rows() as u64)
            .sum::<u64>();
        parts.num_bytes += part.iter().map(slice_bytes).sum::<u64>();
        parts.finished.push(part.into());
        drop(parts);
        self.tell();
    }

    fn end(&self, ended: Result<()>) {
        self.parts().ended = Some(ended);
        self.life.end();
        self.tell();
    }

    /// Has those look who wait for news.
    fn tell(&self) {
        self.news.send_modify(|news| *news += 1);
    }

    /// What is known now, or once there is news, or after a while.
    ///
    /// # Errors
    /// That of a query.
    pub(in crate::serve) async fn look(&self, wait_for_news: bool) -> Result<Known> {
        let mut news = self.news.subscribe();
        let is_done = self.parts().ended.is_some();
        if wait_for_news && !is_done {
            // Nothing new within the time is an answer too.
            drop(tokio::time::timeout(WAIT, news.changed()).await);
        }
        self.known()
    }

    /// What is known once all queries have ended.
    ///
    /// # Errors
    /// That of a query.
    pub(in crate::serve) async fn ended(&self) -> Result<Known> {
        let mut news = self.news.subscribe();
        loop {
            let known = self.known()?;
            if known.is_done {
                return Ok(known);
            }
            let told = news.changed().await;
            told.map_err(|_| Error::internal("an answer was dropped while it was waited for"))?;
        }
    }

    fn known(&self) -> Result<Known> {
        let parts = self.parts();
        if let Some(Err(error)) = &parts.ended {
            return Err(error.clone());
        }
        Ok(Known {
            num_parts: parts.finished.len(),
            num_rows: parts.num_rows,
            num_bytes: parts.num_bytes,
            is_done: parts.ended.is_some(),
            progress: self.progress(parts.counted.len()),
        })
    }

    /// How far all queries are, of which some have ended.
    fn progress(&self, num_ended: usize) -> Option<f64> {
        let tasks = self.tasks.load();
        let progress = tasks.get(num_ended)?.query.progress()?;
        Some((num_ended as f64 + progress.fraction()?) / tasks.len() as f64)
    }

    /// A part that is finished. An answer without rows has a part without rows.
    ///
    /// # Errors
    /// `NotFound` for another one.
    pub(in crate::serve) fn part(&self, number: usize) -> Result<Arc<[RecordBatch]>> {
        let parts = self.parts();
        let is_empty = parts.finished.is_empty() && matches!(parts.ended, Some(Ok(())));
        match parts.finished.get(number) {
            Some(part) => Ok(Arc::clone(part)),
            None if is_empty && number == 0 => Ok(Arc::from([])),
            None => Err(unknown("part of an answer")),
        }
    }

    /// The queries.
    ///
    /// # Errors
    /// `NotFound` when they have ended, and names stand for something else since then.
    pub(in crate::serve) fn tasks(&self) -> Result<Vec<Task>> {
        let tasks = self.tasks.load_full();
        match tasks.is_empty() {
            true => Err(Error::not_found(
                "the plan of this answer is not kept any more: grids that it read may be gone",
            )
            .with_hint("ask again")),
            false => Ok(Vec::clone(&tasks)),
        }
    }

    /// Lets go of queries that have ended, once a name has changed: of the grids that they read. The rows stay.
    pub(super) fn forget_outdated(&self) {
        let is_outdated = |task: &Task| task.query.is_outdated();
        if self.parts().ended.is_some() && self.tasks.load().iter().any(is_outdated) {
            self.tasks.store(Arc::default());
        }
    }

    /// Stops them, and lets go of what they have.
    pub(in crate::serve) fn cancel(&self) {
        let tasks = self.tasks.load();
        tasks.iter().for_each(|task| task.query.cancel());
        let mut parts = self.parts();
        parts.finished.clear();
        parts.counted.clear();
        let cancelled = Error::new(ErrorKind::Cancelled, "the query was cancelled");
        parts.ended = Some(Err(cancelled));
        drop(parts);
        self.life.end();
        self.tell();
    }
}

/// A query that runs.
struct Begun {
    batches: BatchStream,
    guard: Guard,
}

impl Begun {
    fn of(task: &Task, caller: &Caller, running: &Arc<Running>) -> Result<Self> {
        let batches = task.query.stream_to_keep()?;
        let guard = running.begin(caller, task);
        Ok(Self { batches, guard })
    }
}

/// Puts the rows of queries into parts, as long as somebody keeps them.
struct Gathering {
    keeper: Weak<Polled>,
    caller: Caller,
    running: Arc<Running>,
    room: Room,
    part: Vec<RecordBatch>,
    part_bytes: u64,
}

impl Gathering {
    /// The rows of all queries, the first of which has begun.
    async fn all(mut self, first: Begun) {
        let mut begun = first;
        loop {
            let ended = match self.one(begun).await {
                None => return,
                Some(ended) => ended,
            };
            let Some(keeper) = self.keeper.upgrade() else {
                return;
            };
            let batches = match ended {
                Ok(batches) => batches,
                Err(error) => return keeper.end(Err(error)),
            };
            let (tasks, num_ended) = {
                let mut parts = keeper.parts();
                if parts.ended.is_some() {
                    return;
                }
                parts.counted.push(batches.into_counted());
                (keeper.tasks.load_full(), parts.counted.len())
            };
            let Some(next) = tasks.get(num_ended) else {
                keeper.finish(std::mem::take(&mut self.part));
                return keeper.end(Ok(()));
            };
            begun = match Begun::of(next, &self.caller, &self.running) {
                Ok(begun) => begun,
                Err(error) => return keeper.end(Err(error)),
            };
        }
    }

    /// The rows of one, to its end; `None` when nobody keeps them.
    async fn one(&mut self, mut begun: Begun) -> Option<Result<BatchStream>> {
        loop {
            let next = begun.batches.next().await;
            let keeper = self.keeper.upgrade()?;
            let taken = match next {
                None => {
                    begun.guard.end(None);
                    return Some(Ok(begun.batches));
                }
                Some(Ok(batch)) => {
                    begun.guard.count(batch.num_rows());
                    self.take(&keeper, batch)
                }
                Some(Err(error)) => Err(error),
            };
            if let Err(error) = taken {
                begun.guard.end(Some(&error));
                return Some(Err(error));
            }
        }
    }

    fn take(&mut self, keeper: &Polled, batch: RecordBatch) -> Result<()> {
        self.room.take(&batch)?;
        self.part_bytes += slice_bytes(&batch);
        self.part.push(batch);
        if self.part_bytes >= PART_BYTES {
            keeper.finish(std::mem::take(&mut self.part));
            self.part_bytes = 0;
        }
        Ok(())
    }
}
