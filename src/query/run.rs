//! One run of a query.
//!
//! Comes in: a physical plan. Goes out: its batches, made by a task of their own, so that whoever waits for them can always be dropped at once, and dropping them
//! stops the task and every operator under it. Never here: planning.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use datafusion::execution::TaskContext;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::{FutureExt, Stream, StreamExt};
use tokio::sync::mpsc::{self, Receiver};
use tokio::task::AbortHandle;

use super::exec::dense::dense;
use super::exec::stop::{Stop, stoppable};
use super::exec::wait::waiting;
use crate::error::{Error, Result};

/// How many finished batches wait for a slow reader.
const BATCHES_AHEAD: usize = 2;

/// The batches of a running query, in the order in which they are found. Dropping it stops the query.
#[derive(Debug)]
pub struct BatchStream {
    receiver: Receiver<Result<RecordBatch>>,
    task: AbortHandle,
    stop: Stop,
}

impl BatchStream {
    /// Starts a run on the current tokio runtime.
    pub(super) fn start(plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> Result<Self> {
        let stop = Stop::default();
        // A run learns its dynamic filters itself: those of the plan belong to nobody.
        let plan = reset_plan_states(plan)?;
        let options = context.session_config().options();
        let plan = FilterPushdown::new_post_optimization().optimize(plan, options)?;
        let plan = stoppable(dense(waiting(plan)?, &context)?, &stop)?;
        let mut batches = execute_stream(plan, context)?;
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let work = async move {
            loop {
                // A panic in an operator is this query's error and nobody else's.
                let next = std::panic::AssertUnwindSafe(batches.next())
                    .catch_unwind()
                    .await;
                let (message, last) = match next {
                    Ok(Some(batch)) => (batch.map_err(Error::from), false),
                    Ok(None) => return,
                    Err(_) => (
                        Err(Error::internal("an operator of the query panicked")),
                        true,
                    ),
                };
                let last = last || message.is_err();
                if sender.send(message).await.is_err() || last {
                    return;
                }
            }
        };
        Ok(Self {
            receiver,
            task: tokio::spawn(work).abort_handle(),
            stop,
        })
    }
}

impl Stream for BatchStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receiver.poll_recv(context)
    }
}

impl Drop for BatchStream {
    fn drop(&mut self) {
        self.stop.set();
        self.task.abort();
    }
}
