//! Plans on threads of their own, with stacks that deep SQL fits into.
//!
//! Comes in: a session state and SQL text. Goes out: a physical plan. A planning thread is never the caller's and never one that runs queries, so that a long plan
//! stops nobody; a panic in it becomes an error. Never here: running.

use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::execution::context::SQLOptions;
use datafusion::physical_plan::ExecutionPlan;
use tokio::sync::{Semaphore, oneshot};

use super::guard;
use crate::error::{Error, Result};

/// Parsing, planning and dropping of the deepest text that the guard lets through need about a tenth of it. Only touched pages cost memory.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// How many plans are made at once in one session.
const MAX_AT_ONCE: usize = 2;

/// Makes plans, a bounded number at a time.
#[derive(Debug, Clone)]
pub(super) struct Planner {
    permits: Arc<Semaphore>,
}

impl Planner {
    pub(super) fn new() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(MAX_AT_ONCE)),
        }
    }

    /// The physical plan of one statement that only reads.
    ///
    /// # Errors
    /// As the guard says; `Query` for unknown tables, columns and functions.
    pub(super) async fn plan(
        &self,
        state: SessionState,
        text: String,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| Error::internal("the planner was closed"))?;
        let runtime = tokio::runtime::Handle::current();
        let (send, receive) = oneshot::channel();
        let work = move || {
            let _permit = permit;
            let plan = runtime.block_on(plan(state, text));
            // Nobody listens any more when the caller was cancelled; then the plan is dropped here.
            drop(send.send(plan));
        };
        std::thread::Builder::new()
            .name("partgrid-plan".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(work)
            .map_err(|error| Error::internal("no thread to plan on").with_source(error))?;
        let panicked = |_| Error::internal("the planner panicked, which is a fault of partgrid");
        receive.await.map_err(panicked)?
    }
}

async fn plan(state: SessionState, text: String) -> Result<Arc<dyn ExecutionPlan>> {
    let statement = guard::parse(&state, &text)?;
    let logical = state.statement_to_plan(statement).await?;
    let read_only = SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false);
    read_only.verify_plan(&logical)?;
    Ok(state.create_physical_plan(&logical).await?)
}
