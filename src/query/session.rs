//! Grids under names, and queries over them.
//!
//! Comes in: grids, functions, SQL text. Goes out: a [`Query`], which runs each time its stream is asked for. Statements that name something (`CREATE VIEW`, `CREATE TABLE … AS`, `DROP`,
//! `PREPARE`) take effect at once. Never here: checks of the text, planning rules, reading.

use std::sync::Arc;
#[cfg(feature = "distributed")]
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::CatalogProvider;
#[cfg(feature = "distributed")]
use datafusion::config::ConfigOptions;
use datafusion::execution::SessionState;
#[cfg(feature = "distributed")]
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::prelude::{SessionConfig, SessionContext};

use super::cache::{CachedPlan, Question, reads_grids_only};
use super::engine;
use super::error::{is_a_view, no_grid};
use super::function::{Function, Kind};
use super::names::{CATALOG, Catalog, Known, Names, Table, state_of};
use super::naming::Naming;
use super::options::{QueryOptions, SessionOptions};
use super::parameters::Parameters;
use super::planner::{Planned, Planner};
use super::prepared::Prepared;
#[cfg(feature = "distributed")]
use super::spread::Spread;
use super::spread::Spreader;
use super::table::GridTable;
use super::tiles::Tiles;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::PartitionGrid;
use crate::query::functions;
use crate::query::functions::coerced::coerced;
use crate::query::functions::growing::bounded;
use crate::query::messages::faults::own_text;
use crate::query::messages::limits::TimeLimit;
use crate::query::running::anew::Anew;
use crate::query::running::answer::{Bounds, Query};
#[cfg(feature = "distributed")]
use crate::query::running::bounds::RunPool;
use crate::query::running::bounds::{Queue, SessionMemory};
use crate::query::running::physical::Physical;

/// Of the memory of a query, each thread's sort keeps one such part for merging what it spilled.
const SORT_PARTS: usize = 8;

/// What a sort keeps for merging when memory is plenty.
const SORT_RESERVATION_BYTES: usize = 10 * 1024 * 1024;

/// The memory of a thread for each row of a batch, below which batches become smaller than the default of 8,192 rows.
const BATCH_ROW_BYTES: usize = 4096;

/// Batches are never smaller than this on account of memory.
const LEAST_BATCH_ROWS: usize = 256;

/// Grids under names, with one memory limit. Cheap to clone: clones share all.
#[derive(Clone)]
pub struct Session {
    options: SessionOptions,
    context: SessionContext,
    pub(super) planner: Planner,
    pub(super) names: Names,
    memory: Arc<SessionMemory>,
    /// What the files of queries have.
    pub(super) spilled: Arc<SessionMemory>,
    queue: Queue,
    pub(super) naming: Naming,
    pub(super) spreader: Spreader,
    num_functions_given: Arc<AtomicU64>,
}

/// What sessions over the same names may have in common.
struct Shared {
    planner: Planner,
    memory: Arc<SessionMemory>,
    spilled: Arc<SessionMemory>,
    queue: Queue,
    naming: Naming,
    spreader: Spreader,
}

impl Shared {
    fn new(options: &SessionOptions) -> Self {
        let queue = Queue::new(options.queries_at_once(), options.max_waiting);
        Self {
            planner: Planner::new(),
            memory: Arc::new(SessionMemory::of_session(options)),
            spilled: Arc::new(SessionMemory::new(options.spill_limit())),
            queue,
            naming: Naming::default(),
            spreader: Spreader::default(),
        }
    }
}

impl Session {
    /// A session without grids.
    ///
    /// # Errors
    /// `InvalidArgument` for zero or more than 1024 threads, a limit of zero bytes and no query at once, `Storage` when no file can be made in the folder to spill to.
    pub fn try_new(options: &SessionOptions) -> Result<Self> {
        Self::over(options, Names::default(), Shared::new(options))
    }

    /// A session of its own over the same names: what is registered in one is known to the other. For a process that was forked, in which the first one has no threads; takes no
    /// lock of the first one.
    ///
    /// # Errors
    /// `Storage` when no file can be made in the folder to spill to.
    pub fn try_again(&self) -> Result<Self> {
        Self::over(
            &self.options,
            self.names.clone(),
            Shared::new(&self.options),
        )
    }

    /// A session that sees, and may make, only those grids and views for whose names `may_see` holds. It shares all else with this one: memory, turns, functions.
    ///
    /// # Errors
    /// `Storage` when no file can be made in the folder to spill to.
    pub fn seeing(&self, may_see: impl Fn(&str) -> bool + Send + Sync + 'static) -> Result<Self> {
        let shared = Shared {
            planner: self.planner.clone(),
            memory: Arc::clone(&self.memory),
            spilled: Arc::clone(&self.spilled),
            queue: self.queue.clone(),
            naming: self.naming.clone(),
            spreader: self.spreader.clone(),
        };
        Self::over(&self.options, self.names.seeing(may_see), shared)
    }

    fn over(options: &SessionOptions, names: Names, shared: Shared) -> Result<Self> {
        options.check()?;
        let limit = options.memory_limit();
        let catalog = Arc::new(Catalog::new(names.clone()));
        // A query that may use less makes no larger values, also where the planner folds constants.
        let each = options.query_memory_limit_bytes.unwrap_or(limit).min(limit);
        let state = engine::state(options, each, &shared.spilled)?;
        state.catalog_list().register_catalog(
            CATALOG.to_owned(),
            Arc::clone(&catalog) as Arc<dyn CatalogProvider>,
        );
        let functions = bounded(&state, each).into_iter().chain(coerced(&state));
        let functions: Vec<_> = functions.collect();
        let context = SessionContext::new_with_state(state);
        for function in functions {
            context.register_udf(function);
        }
        functions::add_to(&context);
        let tiles = Tiles {
            names: names.clone(),
        };
        context.register_udtf("tiles", Arc::new(tiles));
        catalog.plan_views_with(state_of(context.state_weak_ref(), |state| {
            state.read().clone()
        }));
        let session = Self {
            options: options.clone(),
            context,
            planner: shared.planner,
            names,
            memory: shared.memory,
            spilled: shared.spilled,
            queue: shared.queue,
            naming: shared.naming,
            spreader: shared.spreader,
            num_functions_given: Arc::default(),
        };
        for function in session.names.now().functions.values() {
            session.add(function);
        }
        Ok(session)
    }

    /// Puts a grid under a name, in place of one that had it. Nothing is copied. SQL folds names without quotes to lower case, and then also finds the only name that differs
    /// in case.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty name.
    pub fn register(&self, name: &str, grid: Arc<PartitionGrid>) -> Result<()> {
        if name.is_empty() {
            return Err(Error::invalid_argument("a table name must not be empty"));
        }
        let table = Table::Grid(Arc::new(GridTable::new(grid)));
        self.names
            .change(|known| known.tables.insert(name.to_owned(), table.clone()));
        Ok(())
    }

    /// As [`Session::register`], for a grid whose tiles are elsewhere, with some of its rows to plan by, in columns that are named by their numbers.
    #[cfg(feature = "distributed")]
    pub(crate) fn register_sampled(
        &self,
        name: &str,
        grid: Arc<PartitionGrid>,
        sample: Option<RecordBatch>,
    ) {
        let table = Table::Grid(Arc::new(GridTable::with_sample(grid, sample)));
        self.names
            .change(|known| known.tables.insert(name.to_owned(), table.clone()));
    }

    /// The grid under exactly this name; `None` when nothing has it.
    ///
    /// # Errors
    /// `Query` when it is the name of a view.
    pub fn named(&self, name: &str) -> Result<Option<Arc<PartitionGrid>>> {
        match self.names.now().tables.get(name) {
            None => Ok(None),
            Some(Table::Grid(table)) => Ok(Some(Arc::clone(table.grid()))),
            Some(Table::View(_)) => Err(is_a_view(name)),
        }
    }

    /// Takes the name of a grid or view away; says whether there was one.
    #[must_use]
    pub fn deregister(&self, name: &str) -> bool {
        self.names
            .change(|known| known.tables.remove(name))
            .is_some()
    }

    /// Lets SQL call a function, in place of one that had its name.
    pub fn register_function(&self, function: Function) {
        self.add(&function);
        let name = function.name().to_owned();
        self.names
            .change(|known| known.functions.insert(name.clone(), function.clone()));
    }

    fn add(&self, function: &Function) {
        match &function.0 {
            Kind::Scalar(scalar) => self.context.register_udf(scalar.as_ref().clone()),
            Kind::Aggregate(aggregate) => self.context.register_udaf(aggregate.as_ref().clone()),
        }
        // Whoever sees the new number sees the function.
        self.num_functions_given.fetch_add(1, Ordering::AcqRel);
    }

    /// The names of grids and views, sorted.
    #[must_use]
    pub fn tables(&self) -> Vec<String> {
        self.names.now().tables.keys().cloned().collect()
    }

    /// The names of all functions that SQL can call, sorted.
    #[must_use]
    pub fn functions(&self) -> Vec<String> {
        let state = self.context.state();
        let scalar = state.scalar_functions().keys();
        let all = scalar
            .chain(state.aggregate_functions().keys())
            .chain(state.window_functions().keys());
        let mut names: Vec<String> = all.chain(state.table_functions().keys()).cloned().collect();
        names.sort();
        names.dedup();
        names
    }

    /// The grid under a name: one that was registered, or that `CREATE TABLE … AS` made.
    ///
    /// # Errors
    /// `NotFound` when there is none; `Query` for a view, which has no grid.
    pub fn grid(&self, name: &str) -> Result<Arc<PartitionGrid>> {
        self.names.grid(name).ok_or_else(|| {
            let known = self.names.now();
            match known.table(name) {
                Some(_) => is_a_view(name),
                None => no_grid(name, &known),
            }
        })
    }

    /// Bytes that the queries of this session use at this moment, as far as they are counted.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory.used()
    }

    /// The most bytes that they may use together.
    #[must_use]
    pub fn memory_limit_bytes(&self) -> usize {
        self.memory.limit()
    }
}

impl Session {
    /// Checks and plans a statement that only reads; runs nothing yet. One that names something takes effect now. Needs a tokio runtime.
    ///
    /// # Errors
    /// `Query` for wrong SQL, `ResourcesExhausted` for SQL past the limits of [`MAX_SQL_BYTES`](super::MAX_SQL_BYTES) and
    /// [`MAX_EXPRESSION_DEPTH`](super::MAX_EXPRESSION_DEPTH).
    pub async fn sql(&self, text: &str) -> Result<Query> {
        self.sql_with(text, Parameters::default(), &QueryOptions::default())
            .await
    }

    /// As [`Session::sql`], with values for the parameters of the statement, and limits of its own.
    ///
    /// # Errors
    /// As [`Session::sql`]; also `Query` when values and parameters do not fit, `InvalidArgument` for limits of 0.
    pub async fn sql_with(
        &self,
        text: &str,
        parameters: Parameters,
        options: &QueryOptions,
    ) -> Result<Query> {
        options.check()?;
        let question = self.question(text, options);
        let known = self.names.now();
        let again = (parameters.clone(), options);
        let anew = Anew::of_text(self, &known, &question.text, again);
        if parameters.is_empty()
            && let Some(found) = known.plans.get(&question)
        {
            let CachedPlan {
                plan,
                config,
                shown,
            } = found;
            let query = self.query(&known, plan.into(), config, options);
            return Ok(query.with_text(shown).planned_by(anew));
        }
        let state = self.state(options);
        let config = state.config().clone();
        let text = Arc::clone(&question.text);
        match Box::pin(self.planned(state, question, parameters, options)).await? {
            Planned::Rows(plan) => {
                let shown = own_text(&text, &self.names.now());
                let query = self.query(&known, plan, config, options);
                Ok(query.with_text(shown).planned_by(anew))
            }
            Planned::Change(change) => {
                let done = Box::pin(self.change(change, &config, options)).await?;
                let schema = Schema::new(vec![Field::new("status", DataType::Utf8, false)]);
                let status = Arc::new(StringArray::from(vec![done.said]));
                let batch = RecordBatch::try_new(Arc::new(schema), vec![status])?;
                let query = self.query_of_said(batch, options)?;
                Ok(query.that_wrote(done.written_rows))
            }
        }
    }

    /// Looks up the names of a statement that reads, so that it can be run again and again with other values.
    ///
    /// # Errors
    /// As [`Session::sql`].
    pub async fn prepare(&self, text: &str) -> Result<Prepared> {
        let prepared = self.prepare_any(text, &QueryOptions::default()).await?;
        prepared.ok_or_else(|| {
            let text = "only statements that read can be prepared";
            Error::new(ErrorKind::Query, text)
        })
    }

    /// As [`Session::prepare`]; `None` for a statement that changes what names stand for, which is checked and no more.
    ///
    /// # Errors
    /// As [`Session::sql_with`].
    pub async fn prepare_any(
        &self,
        text: &str,
        options: &QueryOptions,
    ) -> Result<Option<Prepared>> {
        let looked = Box::pin(self.looked(self.question(text, options), options)).await?;
        Ok(looked.map(|looked| Prepared::new(self.clone(), looked)))
    }

    fn question(&self, text: &str, options: &QueryOptions) -> Question {
        Question {
            text: Arc::from(text),
            told: Arc::default(),
            asks: false,
            threads: self.threads(options),
            memory_limit: self.planned_limit(options),
            may: options.statements,
            moment: self.spreader.moment(),
            pid: std::process::id(),
        }
    }

    pub(super) fn timeout(&self, options: &QueryOptions) -> Option<TimeLimit> {
        self.options.time_limit(options)
    }

    fn threads(&self, options: &QueryOptions) -> usize {
        options
            .threads
            .unwrap_or_else(|| self.options.threads_now())
    }

    /// The memory that a plan may count on.
    fn planned_limit(&self, options: &QueryOptions) -> usize {
        let bound = self.options.query_bound(options);
        bound.map_or_else(|| self.memory.limit(), |bound| bound.bytes)
    }

    /// What plans are made with: the names, functions and threads of this moment.
    pub(super) fn state(&self, options: &QueryOptions) -> SessionState {
        let mut state = self.context.state();
        let threads = self.threads(options);
        if state.config().target_partitions() != threads {
            let config = state.config_mut().options_mut();
            config.execution.target_partitions = threads;
        }
        let limit = self.planned_limit(options);
        let config = state.config_mut().options_mut();
        let of_thread = limit / threads.max(1);
        // All sorts of a plan keep this much each and never spill it; with the default of 10 MiB, a small limit would have nothing left to sort in.
        config.execution.sort_spill_reservation_bytes =
            SORT_RESERVATION_BYTES.min(of_thread / SORT_PARTS);
        // What merges holds a batch of each file that was spilled; of wide rows, a few must have room.
        let rows = (of_thread / BATCH_ROW_BYTES).max(LEAST_BATCH_ROWS);
        if rows < state.config().batch_size() {
            let config = state.config().clone().with_batch_size(rows);
            *state.config_mut() = config;
        }
        self.spreader.tell(state.config_mut());
        state
    }

    /// Spreads plans over grids of several processes, as long as `spread` is there.
    #[cfg(feature = "distributed")]
    pub(crate) fn spread_by(&self, spread: Weak<dyn Spread>) {
        self.spreader.set(spread);
        // Plans that were kept are of whoever spread before.
        self.names.change(|_| ());
    }

    /// What parts of plans of other processes run with: the functions and settings of this session.
    #[cfg(feature = "distributed")]
    pub(crate) fn engine(&self) -> SessionState {
        self.context.state()
    }

    /// The settings of it.
    #[cfg(feature = "distributed")]
    pub(crate) fn engine_settings(&self) -> Arc<ConfigOptions> {
        let state = self.context.state_ref();
        Arc::clone(state.read().config().options())
    }

    /// How many functions it was given: with another number it has others.
    #[cfg(feature = "distributed")]
    pub(crate) fn num_functions_given(&self) -> u64 {
        self.num_functions_given.load(Ordering::Acquire)
    }

    /// Counts memory against the limit of this session.
    #[cfg(feature = "distributed")]
    pub(crate) fn pool(&self) -> Arc<dyn MemoryPool> {
        Arc::new(RunPool::new(&self.memory, None))
    }

    /// The query of a plan that was made when the names stood for `known`.
    pub(super) fn query(
        &self,
        known: &Arc<Known>,
        Physical {
            plan, own_plans, ..
        }: Physical,
        config: SessionConfig,
        options: &QueryOptions,
    ) -> Query {
        let bounds = Bounds {
            config,
            runtime: self.context.runtime_env(),
            memory: Arc::clone(&self.memory),
            queue: self.queue.clone(),
            planner: self.planner.clone(),
            names: self.names.clone(),
            known: Arc::downgrade(known),
            timeout: self.timeout(options),
            on: self.options.runtime.clone(),
            memory_bound: self.options.query_bound(options),
            functions: (!reads_grids_only(&plan)).then(|| self.context.task_ctx()),
            leaves_counts: options.leaves_counts,
            allowance: options.allowance.clone(),
        };
        Query::new(plan, own_plans, bounds)
    }
}
