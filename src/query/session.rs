//! Grids under names, and queries over them.
//!
//! Comes in: grids, SQL text. Goes out: a [`Query`], which runs each time its stream is asked for. Never here: checks of the text, planning rules, reading.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::TableReference;
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt;

use super::plan::join_order::JoinOrder;
use super::plan::narrow::NarrowDecimals;
use super::plan::pause::PauseOften;
use super::plan::settings::for_tiles;
use super::planner::Planner;
use super::run::BatchStream;
use super::table::GridTable;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::PartitionGrid;
use crate::memory::default_memory_limit_bytes;

/// Where DataFusion keeps the grids.
const CATALOG: &str = "partgrid";
const SCHEMA: &str = "public";

/// How many names of the greatest memory users an out-of-memory error lists.
const NAMED_CONSUMERS: std::num::NonZeroUsize = std::num::NonZeroUsize::MIN;

/// More threads than this serve nobody.
const MAX_THREADS: usize = 1024;

/// Settings of a [`Session`].
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    threads: Option<usize>,
    memory_limit_bytes: Option<usize>,
}

impl SessionOptions {
    /// Into how many shares a scan, join or aggregate is spread, at most 1024; by default the number of cores.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Bytes that sorts, joins and aggregates of this session may use together before they spill; by default 80 % of the machine or control group.
    #[must_use]
    pub fn with_memory_limit_bytes(mut self, bytes: usize) -> Self {
        self.memory_limit_bytes = Some(bytes);
        self
    }

    fn check(&self) -> Result<()> {
        match (self.threads, self.memory_limit_bytes) {
            (Some(0), _) => Err(Error::invalid_argument("threads must be at least 1, got 0")),
            (Some(threads), _) if threads > MAX_THREADS => Err(Error::invalid_argument(format!(
                "threads must be at most {MAX_THREADS}, got {threads}"
            ))),
            (_, Some(0)) => Err(Error::invalid_argument(
                "memory_limit must be at least 1, got 0",
            )),
            _ => Ok(()),
        }
    }
}

/// Grids under names, with one memory limit.
pub struct Session {
    context: SessionContext,
    planner: Planner,
}

impl Session {
    /// A session without grids.
    ///
    /// # Errors
    /// `InvalidArgument` for zero or more than 1024 threads and a limit of zero bytes, `Storage` when there is no folder to spill to.
    pub fn try_new(options: &SessionOptions) -> Result<Self> {
        options.check()?;
        let mut config = for_tiles(SessionConfig::new())
            .with_information_schema(false)
            .with_default_catalog_and_schema(CATALOG, SCHEMA);
        // Without a zone, TIMESTAMP WITH TIME ZONE loses its offset, and a comparison reads it in the zone of the column: hours off, silently.
        config.options_mut().execution.time_zone = Some("UTC".to_owned());
        if let Some(threads) = options.threads {
            config = config.with_target_partitions(threads);
        }
        let limit = options
            .memory_limit_bytes
            .unwrap_or_else(default_memory_limit_bytes);
        let pool = TrackConsumersPool::new(FairSpillPool::new(limit), NAMED_CONSUMERS);
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(pool))
            .build_arc()?;
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_default_features()
            .with_optimizer_rule(Arc::new(JoinOrder))
            .with_physical_optimizer_rule(Arc::new(NarrowDecimals))
            .with_physical_optimizer_rule(Arc::new(PauseOften))
            .build();
        Ok(Self {
            context: SessionContext::new_with_state(state),
            planner: Planner::new(),
        })
    }

    /// Puts a grid under a name, in place of one that had it. Nothing is copied. SQL folds names without quotes to lower case.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty name.
    pub fn register(&self, name: &str, grid: Arc<PartitionGrid>) -> Result<()> {
        if name.is_empty() {
            return Err(Error::invalid_argument("a table name must not be empty"));
        }
        let table = TableReference::bare(name);
        self.context.deregister_table(table.clone())?;
        self.context
            .register_table(table, Arc::new(GridTable::new(grid)))?;
        Ok(())
    }

    /// Takes a name away; says whether there was one.
    ///
    /// # Errors
    /// `Internal` when DataFusion's catalog fails.
    pub fn deregister(&self, name: &str) -> Result<bool> {
        Ok(self
            .context
            .deregister_table(TableReference::bare(name))?
            .is_some())
    }

    /// Checks and plans a statement that only reads; runs nothing yet. Needs a tokio runtime.
    ///
    /// # Errors
    /// `Query` for wrong SQL, `ResourcesExhausted` for SQL past the limits of [`MAX_SQL_BYTES`](super::MAX_SQL_BYTES) and
    /// [`MAX_EXPRESSION_DEPTH`](super::MAX_EXPRESSION_DEPTH).
    pub async fn sql(&self, text: &str) -> Result<Query> {
        let planned = self.planner.plan(self.context.state(), text.to_owned());
        let plan = planned.await.map_err(|error| self.with_tables(error))?;
        Ok(Query {
            plan,
            context: self.context.task_ctx(),
        })
    }
}

impl Session {
    /// The names under which grids are registered, sorted.
    #[must_use]
    pub fn tables(&self) -> Vec<String> {
        let catalog = self.context.catalog(CATALOG);
        let schema = catalog.and_then(|catalog| catalog.schema(SCHEMA));
        let mut names = schema
            .map(|schema| schema.table_names())
            .unwrap_or_default();
        names.sort();
        names
    }

    /// An error about an unknown table, with the tables that there are.
    fn with_tables(&self, error: Error) -> Error {
        let prefix = format!("table '{CATALOG}.{SCHEMA}.");
        let name = error.message().strip_prefix(&prefix);
        let Some(name) = name.and_then(|rest| rest.strip_suffix("' not found")) else {
            return error;
        };
        let message = format!("no table `{name}`");
        let better = Error::new(ErrorKind::Query, message).with_context("table", name);
        let tables = self.tables();
        let folded = tables.iter().find(|table| table.to_lowercase() == *name);
        better.with_hint(match folded {
            Some(table) => format!("names without quotes fold to lower case, write \"{table}\""),
            None if tables.is_empty() => "no grid is registered".to_owned(),
            None => format!("the tables are {}", tables.join(", ")),
        })
    }
}

/// A planned query.
#[derive(Clone)]
pub struct Query {
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
}

impl Query {
    /// The columns of the result.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        self.plan.schema()
    }

    /// The physical plan as text, one operator a line.
    #[must_use]
    pub fn explain(&self) -> String {
        displayable(self.plan.as_ref()).indent(false).to_string()
    }

    /// Runs the query from the start. Dropping the stream stops it. Needs a tokio runtime.
    ///
    /// # Errors
    /// Now: when an operator refuses to start. Later, in the stream: whatever stops the query.
    pub fn stream(&self) -> Result<BatchStream> {
        BatchStream::start(Arc::clone(&self.plan), Arc::clone(&self.context))
    }

    /// Runs the query and gathers its batches.
    ///
    /// # Errors
    /// As [`Query::stream`].
    pub async fn collect(&self) -> Result<Vec<RecordBatch>> {
        self.stream()?.try_collect().await
    }
}
