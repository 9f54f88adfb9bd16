//! Grids under names, and queries over them.
//!
//! Comes in: grids, functions, SQL text. Goes out: a [`Query`], which runs each time its stream is asked for. Statements that name something (`CREATE VIEW`, `CREATE TABLE … AS`, `DROP`,
//! `PREPARE`) take effect at once. Never here: checks of the text, planning rules, reading.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::CatalogProvider;
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::optimizer::{Analyzer, AnalyzerRule};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};

use super::aliases;
use super::answer::{Bounds, Query};
use super::bounds::{Queue, SessionMemory};
use super::cache::{CachedPlan, Question, reads_grids_only};
use super::error::no_table;
use super::faults::own_text;
use super::function::{Function, Kind};
use super::growing::bounded;
use super::names::{CATALOG, Catalog, Names, SCHEMA, Table, state_of};
use super::options::{QueryOptions, SessionOptions};
use super::parameters::Parameters;
use super::plan::copies::CountCopies;
use super::plan::exact;
use super::plan::join_order::JoinOrder;
use super::plan::meaning::Meaning;
use super::plan::narrow::Arithmetic;
use super::plan::one_step::OneStep;
use super::plan::pause::PauseOften;
use super::plan::settings::for_tiles;
use super::plan::types::{Operations, Types, with_operations};
use super::planner::{Looked, Planned, Planner, within};
use super::spill::SpillFolder;
use super::statement::{Change, constant};
use super::table::GridTable;
use super::tiles::Tiles;
use super::{extremes, sums};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::PartitionGrid;

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
    planner: Planner,
    names: Names,
    memory: Arc<SessionMemory>,
    queue: Queue,
}

impl Session {
    /// A session without grids.
    ///
    /// # Errors
    /// `InvalidArgument` for zero or more than 1024 threads, a limit of zero bytes and no query at once, `Storage` when no file can be made in the folder to spill to.
    pub fn try_new(options: &SessionOptions) -> Result<Self> {
        Self::over(options, Names::default())
    }

    /// A session of its own over the same names: what is registered in one is known to the other. For a process that was forked, in which the first one has no threads; takes no
    /// lock of the first one.
    ///
    /// # Errors
    /// `Storage` when no file can be made in the folder to spill to.
    pub fn try_again(&self) -> Result<Self> {
        Self::over(&self.options, self.names.clone())
    }

    fn over(options: &SessionOptions, names: Names) -> Result<Self> {
        options.check()?;
        let limit = options.memory_limit();
        let catalog = Arc::new(Catalog::new(names.clone()));
        let state = state(options, limit)?;
        state.catalog_list().register_catalog(
            CATALOG.to_owned(),
            Arc::clone(&catalog) as Arc<dyn CatalogProvider>,
        );
        let growing = bounded(&state, limit);
        let context = SessionContext::new_with_state(state);
        for function in growing {
            context.register_udf(function);
        }
        aliases::add_to(&context);
        sums::add_to(&context);
        extremes::add_to(&context);
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
            planner: Planner::new(),
            names,
            memory: Arc::new(SessionMemory::new(limit)),
            queue: Queue::new(options.queries_at_once()),
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
    /// `Query` when there is none; a view has no grid.
    pub fn grid(&self, name: &str) -> Result<Arc<PartitionGrid>> {
        self.names.grid(name).ok_or_else(|| {
            let known = self.names.now();
            match known.table(name) {
                Some(_) => Error::new(ErrorKind::Query, format!("`{name}` is a view"))
                    .with_context("table", name)
                    .with_hint("CREATE TABLE … AS SELECT * FROM it makes a grid"),
                None => no_table(name, &known),
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
        if parameters.is_empty()
            && let Some(found) = self.names.now().plans.get(&question)
        {
            let CachedPlan {
                plan,
                config,
                shown,
            } = found;
            return Ok(self.query(plan, config, options).with_text(shown));
        }
        let (state, names) = (self.state(options), self.names.clone());
        let config = state.config().clone();
        let text = Arc::clone(&question.text);
        let planning = self.planner.plan(state, names, question, parameters);
        match within(self.timeout(options), planning).await? {
            Planned::Rows { plan, .. } => {
                let shown = own_text(&text, &self.names.now());
                Ok(self.query(plan, config, options).with_text(shown))
            }
            Planned::Change(change) => {
                let done = Box::pin(self.change(change, &config, options)).await?;
                let schema = Schema::new(vec![Field::new("status", DataType::Utf8, false)]);
                let status = Arc::new(StringArray::from(vec![done]));
                let batch = RecordBatch::try_new(Arc::new(schema), vec![status])?;
                Ok(self.query(constant(&batch)?, config, options))
            }
        }
    }

    /// Looks up the names of a statement that reads, so that it can be run again and again with other values.
    ///
    /// # Errors
    /// As [`Session::sql`].
    pub async fn prepare(&self, text: &str) -> Result<Prepared> {
        let state = self.state(&QueryOptions::default());
        let names = self.names.clone();
        let looking = self.planner.prepare(state, names, Arc::from(text));
        let looked = within(self.options.timeout, looking).await?;
        Ok(Prepared {
            session: self.clone(),
            looked: Arc::new(looked),
        })
    }

    fn question(&self, text: &str, options: &QueryOptions) -> Question {
        Question {
            text: Arc::from(text),
            threads: self.threads(options),
            memory_limit: self.planned_limit(options),
            pid: std::process::id(),
        }
    }

    fn timeout(&self, options: &QueryOptions) -> Option<Duration> {
        options.timeout.or(self.options.timeout)
    }

    fn threads(&self, options: &QueryOptions) -> usize {
        options
            .threads
            .unwrap_or_else(|| self.options.threads_now())
    }

    /// The memory that a plan may count on.
    fn planned_limit(&self, options: &QueryOptions) -> usize {
        self.query_limit(options)
            .unwrap_or_else(|| self.memory.limit())
    }

    /// What plans are made with: the names, functions and threads of this moment.
    fn state(&self, options: &QueryOptions) -> SessionState {
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
        state
    }

    fn query_limit(&self, options: &QueryOptions) -> Option<usize> {
        options
            .memory_limit_bytes
            .or(self.options.query_memory_limit_bytes)
    }

    fn query(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: SessionConfig,
        options: &QueryOptions,
    ) -> Query {
        let bounds = Bounds {
            config,
            runtime: self.context.runtime_env(),
            memory: Arc::clone(&self.memory),
            queue: self.queue.clone(),
            names: self.names.clone(),
            timeout: self.timeout(options),
            memory_limit_bytes: self.query_limit(options),
            functions: (!reads_grids_only(&plan)).then(|| self.context.task_ctx()),
        };
        Query::new(plan, bounds)
    }

    /// Does it, and says what was done.
    async fn change(
        &self,
        change: Change,
        config: &SessionConfig,
        options: &QueryOptions,
    ) -> Result<String> {
        match change {
            Change::Nothing(why) => Ok(why),
            Change::View { name, view } => {
                self.names.change(|known| {
                    known
                        .tables
                        .insert(name.clone(), Table::View(Arc::clone(&view)))
                });
                Ok(format!("view {name}"))
            }
            Change::Drop { name } => {
                self.names.change(|known| known.tables.remove(&name));
                Ok(format!("dropped {name}"))
            }
            Change::Prepare { name, statement } => {
                self.names
                    .change(|known| known.prepared.insert(name.clone(), Arc::clone(&statement)));
                Ok(format!("prepared {name}"))
            }
            Change::Deallocate { name } => {
                self.names.change(|known| known.prepared.remove(&name));
                Ok(format!("deallocated {name}"))
            }
            Change::Table {
                name,
                plan,
                or_replace,
            } => {
                let query = self.query(plan, config.clone(), options);
                let grid =
                    PartitionGrid::try_from_batches(query.schema(), &query.collect().await?)?;
                let rows = grid.num_rows();
                let table = Table::Grid(Arc::new(GridTable::new(Arc::new(grid))));
                let taken = self.names.change(|known| {
                    let taken = !or_replace && known.tables.contains_key(&name);
                    if !taken {
                        known.tables.insert(name.clone(), table.clone());
                    }
                    taken
                });
                if taken {
                    let text = format!("somebody else made a table `{name}` meanwhile");
                    return Err(Error::new(ErrorKind::Query, text).with_context("table", name));
                }
                Ok(format!(
                    "table {name}, {}",
                    crate::grid::picture::counted(rows, "row")
                ))
            }
        }
    }
}

/// A statement whose names were looked up, and whose parameters wait for values.
#[derive(Clone)]
pub struct Prepared {
    session: Session,
    looked: Arc<Looked>,
}

impl Prepared {
    /// The SQL text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.looked.statement.text
    }

    /// The parameters, sorted, with the types that their places suggest; values of other types are cast as SQL casts by itself.
    ///
    /// # Errors
    /// `Query` when one parameter stands in places of different types.
    pub fn parameters(&self) -> Result<Vec<(String, Option<DataType>)>> {
        let mut parameters: Vec<_> = self
            .looked
            .plan
            .get_parameter_types()?
            .into_iter()
            .collect();
        parameters.sort_by(|(one, _), (other, _)| (one.len(), one).cmp(&(other.len(), other)));
        Ok(parameters)
    }

    /// The query with values for the parameters; runs nothing yet. Needs a tokio runtime.
    ///
    /// # Errors
    /// As [`Session::sql_with`].
    pub async fn query(&self, parameters: Parameters, options: &QueryOptions) -> Result<Query> {
        options.check()?;
        let session = &self.session;
        let state = session.state(options);
        let config = state.config().clone();
        let (names, looked) = (session.names.clone(), Arc::clone(&self.looked));
        let shown = own_text(&looked.statement.text, &names.now());
        let planning = session.planner.execute(state, names, looked, parameters);
        let plan = within(session.timeout(options), planning).await?;
        Ok(session.query(plan, config, options).with_text(shown))
    }
}

fn state(options: &SessionOptions, limit: usize) -> Result<SessionState> {
    let mut config = for_tiles(SessionConfig::new())
        .with_information_schema(true)
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        .with_target_partitions(options.threads_now());
    let settings = config.options_mut();
    // Without a zone, TIMESTAMP WITH TIME ZONE loses its offset, and a comparison reads it in the zone of the column: hours off, silently.
    settings.execution.time_zone = Some("UTC".to_owned());
    settings.sql_parser.collect_spans = true;
    // DataFusion's optimizer simplifies expressions after it has noted whether they can be null (`x IS NOT TRUE`), and then holds that against them.
    settings.execution.skip_physical_aggregate_schema_check = true;
    let spill = SpillFolder::try_new(options.spill_to.as_deref())?;
    let disk = DiskManagerBuilder::default().with_temp_file_factory(Arc::new(spill));
    let runtime = RuntimeEnvBuilder::new()
        .with_disk_manager_builder(disk)
        .with_memory_limit(limit, 1.0)
        .build_arc()?;
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> =
        vec![Arc::new(CountCopies), Arc::new(Types)];
    rules.extend(Analyzer::new().rules);
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .with_analyzer_rules(rules)
        .with_analyzer_rule(Arc::new(Meaning { limit }))
        .with_optimizer_rules(exact::rules())
        .with_optimizer_rule(Arc::new(JoinOrder))
        .with_physical_optimizer_rule(Arc::new(OneStep))
        .with_physical_optimizer_rule(Arc::new(Arithmetic))
        .with_physical_optimizer_rule(Arc::new(PauseOften))
        .build();
    with_operations(state, Operations::default())
}
