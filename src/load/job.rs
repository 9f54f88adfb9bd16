//! A load that runs by itself.
//!
//! Comes in: sources, options. Goes out: a [`LoadJob`] that can be watched, cancelled and waited for. Never here: the steps of a load.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::options::LoadOptions;
use super::progress::{Counters, Progress};
use super::{needs_runtime, run};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::PartitionGrid;

/// The grid of a load, until it is let go of.
type Kept = Arc<ArcSwapOption<PartitionGrid>>;

/// What came of a load; nothing while it runs.
type Outcome = Option<Result<Kept>>;

/// A load that runs in the background. Dropping the last clone cancels it, unless it is finished.
#[derive(Debug, Clone)]
pub struct LoadJob {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    counters: Arc<Counters>,
    outcome: watch::Receiver<Outcome>,
    task: AbortHandle,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl LoadJob {
    /// Starts to load `sources` on the current tokio runtime.
    ///
    /// # Errors
    /// `InvalidArgument` without a runtime. Everything else comes with the result.
    pub fn start(sources: Vec<String>, options: LoadOptions) -> Result<Self> {
        let runtime = Handle::try_current().map_err(|_| needs_runtime())?;
        let counters = Arc::new(Counters::new());
        let (sender, outcome) = watch::channel(None);
        let counted = Arc::clone(&counters);
        let task = runtime.spawn(async move {
            let running = AssertUnwindSafe(run(&sources, &options, &counted));
            let broken = |_| {
                Err(Error::internal(
                    "a load panicked; the message is on standard error",
                ))
            };
            let result = running.catch_unwind().await.unwrap_or_else(broken);
            let result = result.map(|grid| Arc::new(ArcSwapOption::from_pointee(grid)));
            counted.end();
            // Nobody may be left to hear it.
            drop(sender.send(Some(result)));
        });
        Ok(Self {
            shared: Arc::new(Shared {
                counters,
                outcome,
                task: task.abort_handle(),
            }),
        })
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.shared.counters.snapshot()
    }

    /// Whether there is a result: a grid, an error, or that it was cancelled.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let outcome = &self.shared.outcome;
        outcome.borrow().is_some() || outcome.has_changed().is_err()
    }

    /// Stops the load. What is being decoded at the moment is finished and thrown away. A finished load keeps its result.
    pub fn cancel(&self) {
        self.shared.task.abort();
    }

    /// The grid, once it is there. May be called again and by several.
    ///
    /// # Errors
    /// As [`load`](super::load); `Cancelled` after [`cancel`](Self::cancel).
    pub async fn result(&self) -> Result<PartitionGrid> {
        let mut outcome = self.shared.outcome.clone();
        let cancelled = || Error::new(ErrorKind::Cancelled, "the load was cancelled");
        let found = outcome.wait_for(Option::is_some).await;
        let found = found.map_err(|_| cancelled())?;
        let kept = found.clone().ok_or_else(cancelled)??;
        let grid = kept.load_full();
        let grid = grid.ok_or_else(|| Error::internal("the grid of a load was let go of"))?;
        Ok(PartitionGrid::clone(&grid))
    }

    /// Keeps the grid no longer, which somebody has by now; how far it is, is known still.
    #[cfg(feature = "serve")]
    pub(crate) fn let_go(&self) {
        if let Some(Ok(kept)) = self.shared.outcome.borrow().as_ref() {
            kept.store(None);
        }
    }
}
