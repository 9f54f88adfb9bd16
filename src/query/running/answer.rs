//! A planned query, and its runs.
//!
//! Comes in: a plan, and what its session lets it use. Goes out: its schema, its plan as text, its answer in batches, how far it is. Never here: planning.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::SessionConfig;
use futures::TryStreamExt;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::allowance::Allowance;
use super::anew::Anew;
use super::bounds::{Queue, RunPool, SessionMemory};
use super::kept::Kept;
use super::metrics::QueryMetrics;
use super::physical::OwnPlans;
use super::progress::{QueryProgress, progress};
use super::run::{BatchStream, Run, Start};
use crate::error::Result;
use crate::query::exec::batch_rows::{batch_rows, in_batches};
use crate::query::exec::first_seen::SeenInRun;
use crate::query::exec::stop::Stop;
use crate::query::messages::limits::{MemoryBound, TimeLimit};
use crate::query::names::{Known, Names};
use crate::query::planner::Planner;
use crate::query::spread::Uncounted;

/// What the queries of a session share.
#[derive(Clone)]
pub(in crate::query) struct Bounds {
    pub(in crate::query) config: SessionConfig,
    pub(in crate::query) runtime: Arc<RuntimeEnv>,
    pub(in crate::query) memory: Arc<SessionMemory>,
    pub(in crate::query) queue: Queue,
    pub(in crate::query) planner: Planner,
    pub(in crate::query) names: Names,
    /// What they stood for when it was planned, as long as they do.
    pub(in crate::query) known: Weak<Known>,
    pub(in crate::query) timeout: Option<TimeLimit>,
    pub(in crate::query) on: Option<Handle>,
    pub(in crate::query) memory_bound: Option<MemoryBound>,
    /// The functions by name, for plans that list them.
    pub(in crate::query) functions: Option<Arc<TaskContext>>,
    /// Whether nobody asks what other processes counted.
    pub(in crate::query) leaves_counts: bool,
    /// What it shares with others of its caller.
    pub(in crate::query) allowance: Option<Allowance>,
}

/// A planned query.
#[derive(Clone)]
pub struct Query {
    plan: Arc<dyn ExecutionPlan>,
    /// Makes plans like it, where each run needs one of its own.
    own_plans: Option<Arc<OwnPlans>>,
    bounds: Bounds,
    cancel: watch::Sender<u64>,
    /// The run that began last.
    last: Arc<ArcSwapOption<Run>>,
    /// What was written, if errors of a run can be shown in it.
    text: Option<Arc<str>>,
    /// How it is planned once more where its rows are gone before it has given one.
    anew: Option<Anew>,
    /// What a statement said that was done when it was planned.
    said: Option<RecordBatch>,
    /// How many rows of tables it wrote then.
    written_rows: u64,
}

impl Query {
    pub(in crate::query) fn new(
        plan: Arc<dyn ExecutionPlan>,
        own_plans: Option<Box<OwnPlans>>,
        bounds: Bounds,
    ) -> Self {
        Self {
            plan,
            own_plans: own_plans.map(Arc::from),
            bounds,
            cancel: watch::Sender::new(0),
            last: Arc::default(),
            text: None,
            anew: None,
            said: None,
            written_rows: 0,
        }
    }

    /// Of a statement that was done already, and said this.
    pub(in crate::query) fn that_said(self, batch: RecordBatch) -> Self {
        let said = Some(batch);
        Self { said, ..self }
    }

    /// Of a statement that was done already, and wrote so many rows.
    pub(in crate::query) fn that_wrote(self, written_rows: u64) -> Self {
        Self {
            written_rows,
            ..self
        }
    }

    /// Errors of its runs show where they are in this text.
    pub(in crate::query) fn with_text(self, text: Option<Arc<str>>) -> Self {
        Self { text, ..self }
    }

    /// Its runs may be of plans that are made anew so.
    pub(in crate::query) fn planned_by(self, anew: Option<Anew>) -> Self {
        Self { anew, ..self }
    }

    /// The same query, which is not planned anew where rows are gone: it is one of several that give one answer.
    #[cfg(feature = "serve")]
    #[must_use]
    pub(crate) fn planned_once(self) -> Self {
        Self { anew: None, ..self }
    }

    /// Whether the plan that is there belongs to whoever asks, who is about to run it.
    pub(super) fn takes_plan(&self) -> bool {
        let own_plans = self.own_plans.as_ref();
        own_plans.is_none_or(|own_plans| own_plans.take_first())
    }

    /// The same query with a plan that no other run has; `None` where all runs may have one.
    pub(super) async fn with_own_plan(&self) -> Result<Option<Self>> {
        let Some(own_plans) = self.own_plans.clone() else {
            return Ok(None);
        };
        let planning = async move { Ok(own_plans.another().await?) };
        let plan = self.bounds.planner.on_thread(planning).await?;
        let own = self.clone();
        Ok(Some(Self { plan, ..own }))
    }

    /// How it is planned once more.
    pub(super) fn anew(&self) -> Option<Anew> {
        self.anew.clone()
    }

    /// The answer of a statement that changed what names stand for: it took effect when it was planned. `None` for one that reads.
    #[must_use]
    pub fn said(&self) -> Option<&RecordBatch> {
        self.said.as_ref()
    }

    /// How many rows of tables the statement wrote when it was planned: those of `CREATE TABLE … AS`, 0 of all others.
    #[must_use]
    pub fn written_rows(&self) -> u64 {
        self.written_rows
    }

    /// The columns of the result.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        self.plan.schema()
    }

    /// Whether some name has changed since it was planned: the same text may mean other rows now, and nobody else may have the grids that this one reads.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        Weak::as_ptr(&self.bounds.known) != Arc::as_ptr(&self.bounds.names.now())
    }

    /// The physical plan as text, one operator a line.
    #[must_use]
    pub fn explain(&self) -> String {
        displayable(self.plan.as_ref()).indent(false).to_string()
    }

    /// Runs the query, drops its rows, and gives the physical plan as text, with what each operator counted.
    ///
    /// # Errors
    /// As [`Query::stream`].
    pub async fn explain_analyze(&self) -> Result<String> {
        let mut stream = self.start(false, true)?;
        while stream.try_next().await?.is_some() {}
        let plan = stream.tracked().plan();
        Ok(DisplayableExecutionPlan::with_metrics(plan.as_ref())
            .indent(true)
            .to_string())
    }

    /// Runs the query from the start, when it is its turn. Dropping the stream stops it. Needs a tokio runtime.
    ///
    /// # Errors
    /// Now: `Internal` when the plan cannot be begun again, `ResourcesExhausted` when its caller has as many queries as may be. Later, in the stream: whatever stops the query; `ResourcesExhausted` past its timeout or memory limit,
    /// `Cancelled` after [`Query::cancel`].
    pub fn stream(&self) -> Result<BatchStream> {
        self.start(false, !self.bounds.leaves_counts)
    }

    /// As [`Query::stream`], for a reader who keeps all batches: they count against the memory limit as well, without those buffers that lie in registered grids.
    ///
    /// # Errors
    /// As [`Query::stream`].
    pub fn stream_to_keep(&self) -> Result<BatchStream> {
        self.start(true, !self.bounds.leaves_counts)
    }

    /// Begins a run, whose reader keeps the batches or does not, and asks what other processes counted or does not.
    fn start(&self, keep: bool, counts: bool) -> Result<BatchStream> {
        let allowance = self.bounds.allowance.as_ref();
        let seat = allowance.map(Allowance::seat).transpose()?;
        let pool = RunPool::new(&self.bounds.memory, self.bounds.memory_bound);
        let pool = pool.within(allowance.and_then(Allowance::memory));
        let memory = Arc::new(pool);
        let pool = Arc::clone(&memory) as Arc<dyn MemoryPool>;
        let stream = BatchStream::start(Start {
            query: self.clone(),
            counts,
            memory,
            queue: self.bounds.queue.clone(),
            timeout: self.bounds.timeout,
            on: self.bounds.on.clone(),
            text: self.text.clone(),
            cancelled: self.cancel.subscribe(),
            seat,
            kept: keep.then(|| Kept::new(self.bounds.names.clone(), &pool)),
        })?;
        self.last.store(Some(Arc::clone(stream.tracked())));
        Ok(stream)
    }

    /// What runs within this memory until `stop` is set, and asks what other processes counted or does not.
    pub(super) fn to_run(
        &self,
        memory: &Arc<RunPool>,
        stop: &Stop,
        counts: bool,
    ) -> Result<(Arc<dyn ExecutionPlan>, Arc<TaskContext>)> {
        let runtime = RuntimeEnv {
            memory_pool: Arc::clone(memory) as Arc<dyn MemoryPool>,
            ..RuntimeEnv::clone(&self.bounds.runtime)
        };
        let (plan, mut config) = self.in_batches()?;
        if !counts {
            config.set_extension(Arc::new(Uncounted));
        }
        // Whoever runs parts of it elsewhere learns at once that it is over.
        config.set_extension(Arc::new(stop.clone()));
        config.set_extension(Arc::new(SeenInRun::default()));
        Ok((plan, Arc::new(self.context(runtime, config))))
    }

    /// Ends all runs that go on at this moment, from any thread; their streams give a `Cancelled` error. Later runs are not touched.
    pub fn cancel(&self) {
        self.cancel
            .send_modify(|times| *times = times.wrapping_add(1));
    }

    /// How far the run is that began last; `None` before the first.
    #[must_use]
    pub fn progress(&self) -> Option<QueryProgress> {
        Some(progress(&self.last.load_full()?.plan()))
    }

    /// The most bytes that the run that began last used of its memory limit at once; 0 before the first. Tiles do not count.
    #[must_use]
    pub fn peak_memory_bytes(&self) -> u64 {
        let last = self.last.load_full();
        last.map_or(0, |run| run.peak_memory_bytes())
    }

    /// What the run did that began last, so far or until it ended; `None` before the first. Bytes of tiles that are here are worked out now.
    #[must_use]
    pub fn metrics(&self) -> Option<QueryMetrics> {
        Some(self.last.load_full()?.metrics())
    }

    /// Runs the query and gathers its batches.
    ///
    /// # Errors
    /// As [`Query::stream`]; `ResourcesExhausted` also when the answer has no room within the memory limit.
    pub async fn collect(&self) -> Result<Vec<RecordBatch>> {
        self.stream_to_keep()?.try_collect().await
    }

    /// What runs, and with which settings: those of the plan, with batches of fewer rows where long values are repeated.
    fn in_batches(&self) -> Result<(Arc<dyn ExecutionPlan>, SessionConfig)> {
        let (plan, config) = (Arc::clone(&self.plan), self.bounds.config.clone());
        let bound = self.bounds.memory_bound.map(|bound| bound.bytes);
        let limit = bound.unwrap_or_else(|| self.bounds.memory.limit());
        let rows = batch_rows(&plan, config.batch_size(), limit);
        if rows == config.batch_size() {
            return Ok((plan, config));
        }
        Ok((in_batches(plan, rows)?, config.with_batch_size(rows)))
    }

    /// What operators run with. Expressions hold their functions: only what lists them looks for them by name.
    fn context(&self, runtime: RuntimeEnv, config: SessionConfig) -> TaskContext {
        let listed = self.bounds.functions.as_deref();
        TaskContext::new(
            None,
            String::new(),
            config,
            listed.map_or_else(HashMap::new, |all| all.scalar_functions().clone()),
            listed.map_or_else(HashMap::new, |all| all.higher_order_functions().clone()),
            listed.map_or_else(HashMap::new, |all| all.aggregate_functions().clone()),
            listed.map_or_else(HashMap::new, |all| all.window_functions().clone()),
            Arc::new(runtime),
        )
    }
}
