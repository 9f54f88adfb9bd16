//! Answers of long queries, made while nobody listens.
//!
//! Comes in: a query. Goes out: how far it is, and its rows in parts that can be fetched as they are finished, in any order and again, until nobody asks for a while. The rows count against the
//! memory of queries. Never here: messages of the protocol.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::StreamExt;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::auth::Caller;
use super::call::unknown;
use super::rows::Room;
use super::running::{Guard, Running, Task};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::slice_bytes;
use crate::query::BatchStream;

/// A part is handed out once it has so many bytes.
const PART_BYTES: u64 = 16 * 1024 * 1024;

/// How long a question waits for news.
pub(super) const WAIT: Duration = Duration::from_secs(2);

/// A query whose rows the server keeps.
pub(super) struct Polled {
    pub(super) task: Task,
    pub(super) schema: SchemaRef,
    parts: Mutex<Parts>,
    /// Counts what has changed: parts, the end.
    news: watch::Sender<u64>,
    work: Mutex<Option<AbortHandle>>,
}

#[derive(Default)]
struct Parts {
    finished: Vec<Arc<[RecordBatch]>>,
    ended: Option<Result<()>>,
    /// Holds the memory that the parts were counted with.
    counted: Option<BatchStream>,
}

/// What is known of it at one moment.
pub(super) struct Known {
    pub(super) num_parts: usize,
    pub(super) is_done: bool,
    /// From 0 to 1, where it can be told.
    pub(super) progress: Option<f64>,
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
    /// Begins the query.
    ///
    /// # Errors
    /// As [`Query::stream_to_keep`](crate::query::Query::stream_to_keep).
    pub(super) fn begin(
        task: Task,
        caller: &Caller,
        running: &Arc<Running>,
        room: Room,
    ) -> Result<Arc<Self>> {
        let batches = task.query.stream_to_keep()?;
        let polled = Arc::new(Self {
            schema: task.query.schema(),
            task,
            parts: Mutex::default(),
            news: watch::Sender::new(0),
            work: Mutex::default(),
        });
        let guard = running.begin(caller, &polled.task);
        let gathering = gather(Arc::downgrade(&polled), batches, guard, room);
        let work = tokio::spawn(gathering);
        let handle = work.abort_handle();
        *polled.work.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
        Ok(polled)
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, part: Vec<RecordBatch>) {
        if !part.is_empty() {
            self.parts().finished.push(part.into());
            self.news.send_modify(|news| *news += 1);
        }
    }

    fn end(&self, ended: Result<()>) {
        self.parts().ended = Some(ended);
        self.news.send_modify(|news| *news += 1);
    }

    /// What is known now, or once there is news, or after a while.
    ///
    /// # Errors
    /// That of the query.
    pub(super) async fn look(&self, wait_for_news: bool) -> Result<Known> {
        let mut news = self.news.subscribe();
        let is_done = self.parts().ended.is_some();
        if wait_for_news && !is_done {
            // Nothing new within the time is an answer too.
            drop(tokio::time::timeout(WAIT, news.changed()).await);
        }
        let parts = self.parts();
        if let Some(Err(error)) = &parts.ended {
            return Err(error.clone());
        }
        let progress = self.task.query.progress();
        Ok(Known {
            num_parts: parts.finished.len(),
            is_done: parts.ended.is_some(),
            progress: progress.and_then(|progress| progress.fraction()),
        })
    }

    /// A part that is finished.
    ///
    /// # Errors
    /// `NotFound` for another one.
    pub(super) fn part(&self, number: usize) -> Result<Arc<[RecordBatch]>> {
        let part = self.parts().finished.get(number).cloned();
        part.ok_or_else(|| unknown("part of an answer"))
    }

    /// Stops it, and lets go of what it has.
    pub(super) fn cancel(&self) {
        self.task.query.cancel();
        let mut parts = self.parts();
        parts.finished.clear();
        drop(parts.counted.take());
        let cancelled = Error::new(ErrorKind::Cancelled, "the query was cancelled");
        parts.ended = Some(Err(cancelled));
    }
}

/// Puts the rows of a query into parts, as long as somebody keeps them.
async fn gather(keeper: Weak<Polled>, mut batches: BatchStream, guard: Guard, mut room: Room) {
    let mut part = Vec::new();
    let mut part_bytes = 0;
    loop {
        let next = batches.next().await;
        let Some(keeper) = keeper.upgrade() else {
            return;
        };
        let batch = match next {
            None => {
                keeper.finish(part);
                guard.end(None);
                keeper.parts().counted = Some(batches);
                return keeper.end(Ok(()));
            }
            Some(Err(error)) => {
                guard.end(Some(&error));
                return keeper.end(Err(error));
            }
            Some(Ok(batch)) => batch,
        };
        guard.count(batch.num_rows());
        if let Err(error) = room.take(&batch) {
            guard.end(Some(&error));
            return keeper.end(Err(error));
        }
        part_bytes += slice_bytes(&batch);
        part.push(batch);
        if part_bytes >= PART_BYTES {
            keeper.finish(std::mem::take(&mut part));
            part_bytes = 0;
        }
    }
}
