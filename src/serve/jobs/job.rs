//! One load that the server does for a client.
//!
//! Comes in: who wants it, and what the load says of itself. Goes out: how far it is and how it ended, for those who ask now or wait. Never here: which loads there are, and what they do (`jobs/`).

use std::pin::pin;
#[cfg(feature = "distributed")]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
#[cfg(feature = "distributed")]
use std::time::Instant;

use tokio::sync::Notify;

#[cfg(feature = "distributed")]
use crate::cluster::Writing;
use crate::error::{Error, ErrorKind, Result};
use crate::flight::kind_name;
use crate::flight::messages::JobProgress;
#[cfg(feature = "distributed")]
use crate::load::LoadOptions;
use crate::load::{LoadJob, Progress};
use crate::serve::door::auth::Caller;
use crate::serve::door::call::{Call, told_beside};
use crate::serve::receive::again::Asked;
use crate::serve::receive::visit::Visit;

/// A load by all members of a cluster.
#[cfg(feature = "distributed")]
pub(super) struct ByAll {
    /// How far they are.
    pub(super) writing: Writing,
    /// All that the caller wishes; the load that plans it knows nothing of an order of rows.
    pub(super) options: LoadOptions,
}

/// A load.
pub(in crate::serve) struct Job {
    pub(in crate::serve) id: u64,
    pub(in crate::serve) caller: Caller,
    /// The name of the request that began it, under which the log has its end.
    pub(in crate::serve) request: Arc<str>,
    pub(in crate::serve) name: String,
    /// What it reads, as the caller named it.
    pub(super) sources: Vec<String>,
    /// What its client called it, if it may repeat it.
    pub(super) again: Option<Asked>,
    /// None where an earlier one has done it.
    pub(super) load: Option<LoadJob>,
    /// The load by all members of a cluster; the load itself only plans it then.
    #[cfg(feature = "distributed")]
    pub(super) spread: Option<ByAll>,
    #[cfg(feature = "distributed")]
    begun: Instant,
    /// How long it took, once it has ended.
    #[cfg(feature = "distributed")]
    took: OnceLock<Duration>,
    is_cancelled: AtomicBool,
    cancelled: Notify,
    ended: Mutex<Option<Result<u64>>>,
    /// Ends once it is known how.
    life: Visit,
}

impl Job {
    /// One of a caller, of which nothing else is known yet.
    pub(super) fn new(id: u64, call: &Call, name: String) -> Self {
        Self {
            id,
            caller: call.caller.clone(),
            request: Arc::clone(&call.request),
            name,
            sources: Vec::new(),
            again: None,
            load: None,
            #[cfg(feature = "distributed")]
            spread: None,
            #[cfg(feature = "distributed")]
            begun: Instant::now(),
            #[cfg(feature = "distributed")]
            took: OnceLock::new(),
            is_cancelled: AtomicBool::new(false),
            cancelled: Notify::new(),
            ended: Mutex::default(),
            life: Visit::default(),
        }
    }

    fn ended(&self) -> MutexGuard<'_, Option<Result<u64>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_running(&self) -> bool {
        self.ended().is_none()
    }

    /// Ends it; its grid does not appear, unless it is there already.
    pub(super) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
        self.cancelled.notify_waiters();
        self.cancel_reading();
    }

    pub(super) fn cancel_reading(&self) {
        if let Some(load) = &self.load {
            load.cancel();
        }
    }

    /// # Errors
    /// `Cancelled` once somebody has ended it.
    pub(super) fn check_cancelled(&self) -> Result<()> {
        match self.is_cancelled.load(Ordering::Acquire) {
            true => Err(cancelled()),
            false => Ok(()),
        }
    }

    /// Waits until somebody has ended it.
    pub(super) async fn until_cancelled(&self) -> Error {
        let mut told = pin!(self.cancelled.notified());
        told.as_mut().enable();
        if !self.is_cancelled.load(Ordering::Acquire) {
            told.await;
        }
        cancelled()
    }

    /// The client of a call wants to hear how it ends, unless it hears that now.
    pub(in crate::serve) fn asked_after(&self, call: &Call) {
        if self.is_running() {
            call.asks_after(&self.life);
        }
    }

    /// Waits for its end, but no longer than that.
    pub(in crate::serve) async fn wait(&self, most: Duration) {
        // That it goes on is an answer too.
        drop(tokio::time::timeout(most, self.over()).await);
    }

    /// Waits for its end.
    pub(super) async fn over(&self) {
        self.life.visitor().gone().await;
    }

    /// Says how it ended, to all who watch.
    pub(super) fn end(&self, done: Result<u64>) {
        #[cfg(feature = "distributed")]
        self.took.get_or_init(|| self.begun.elapsed());
        *self.ended() = Some(done);
        self.life.end();
    }

    /// How far it is.
    fn so_far(&self) -> Progress {
        let Some(load) = &self.load else {
            let num_rows = match self.ended().as_ref() {
                Some(Ok(num_rows)) => *num_rows,
                _ => 0,
            };
            return Progress {
                num_rows,
                total_rows: num_rows,
                ..Progress::default()
            };
        };
        let progress = load.progress();
        #[cfg(feature = "distributed")]
        if let Some(ByAll { writing, .. }) = &self.spread {
            let (num_rows, num_tiles, num_bytes) = writing.so_far();
            let (rows_to_arrange, arranged_rows) = writing.arranged_so_far();
            let took = self.took.get().copied();
            return Progress {
                num_rows,
                num_tiles,
                num_bytes,
                rows_to_arrange,
                arranged_rows,
                // Planning it has ended.
                elapsed: took.unwrap_or_else(|| self.begun.elapsed()),
                ..progress
            };
        }
        progress
    }

    /// How it ended, or that it runs.
    pub(super) fn state(&self) -> &'static str {
        match self.ended().as_ref() {
            None => "running",
            Some(Ok(_)) => "done",
            Some(Err(error)) if error.kind() == ErrorKind::Cancelled => "cancelled",
            Some(Err(_)) => "failed",
        }
    }

    fn error(&self) -> Option<Error> {
        self.ended().as_ref()?.as_ref().err().cloned()
    }

    /// Why it failed, as somebody is told who asks; empty where it has not failed.
    pub(super) fn message(&self, caller: &Caller) -> String {
        let error = self.error();
        error.map_or_else(String::new, |error| {
            told_beside(caller, &self.request, &error, &self.sources)
        })
    }

    /// How far it is, as somebody is told who asks.
    pub(in crate::serve) fn progress(&self, caller: &Caller) -> JobProgress {
        let progress = self.so_far();
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let error = self.error();
        let kind = error.as_ref().map(|error| kind_name(error.kind()));
        JobProgress {
            state: self.state().to_owned(),
            num_rows: progress.num_rows,
            total_rows: progress.total_rows,
            num_bytes: progress.num_bytes,
            total_bytes: progress.total_bytes,
            num_tiles: progress.num_tiles,
            total_tiles: progress.total_tiles,
            arranged_rows: progress.arranged_rows,
            rows_to_arrange: progress.rows_to_arrange,
            elapsed_millis: millis(progress.elapsed),
            remaining_millis: progress.remaining().map(millis),
            message: self.message(caller),
            request: self.request.to_string(),
            kind: kind.unwrap_or_default().to_owned(),
            is_about_path: error.is_some_and(|error| error.is_about_path()),
        }
    }
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the load was cancelled")
}
