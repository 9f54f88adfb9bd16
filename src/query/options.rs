//! What a session, and one run of a query, may use.
//!
//! Comes in: settings. Goes out: the same, checked; what nobody set follows `PARTGRID_MAX_THREADS` and the machine. Never here: keeping to them.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::error::{Error, Result};
use crate::memory::default_memory_limit_bytes;
use crate::query::messages::limits::{LimitNames, MemoryBound, TimeLimit, Whose};
use crate::query::running::allowance::Allowance;
use crate::query::running::answer::Query;

/// The environment variable that says on how many threads queries run.
pub const MAX_THREADS_VARIABLE: &str = "PARTGRID_MAX_THREADS";

/// More threads than this serve nobody.
const MAX_THREADS: usize = 1024;

/// The most that files of queries have together, unless somebody says otherwise.
const SPILL_LIMIT_BYTES: u64 = 100 << 30;

/// At least so many queries run at once unless somebody says otherwise, also on machines with fewer cores.
const LEAST_QUERIES: usize = 4;

/// The number of threads that `PARTGRID_MAX_THREADS` allows at this moment; the number of cores without it, or when it is no number from 1 to 1024.
#[must_use]
pub fn max_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let said = std::env::var(MAX_THREADS_VARIABLE).ok();
    said.and_then(|text| threads_in(&text)).unwrap_or(cores)
}

fn threads_in(text: &str) -> Option<usize> {
    let threads = text.trim().parse::<usize>().ok();
    threads.filter(|threads| (1..=MAX_THREADS).contains(threads))
}

/// Whether the environment says a number of threads, if it says anything when a session is made.
///
/// # Errors
/// `InvalidArgument` when it does not.
fn check_variable() -> Result<()> {
    match std::env::var(MAX_THREADS_VARIABLE) {
        Ok(text) if !text.is_empty() && threads_in(&text).is_none() => {
            Err(Error::invalid_argument(format!(
                "{MAX_THREADS_VARIABLE} must be a whole number from 1 to {MAX_THREADS}, got `{text}`"
            )))
        }
        _ => Ok(()),
    }
}

/// Settings of a [`Session`](super::Session).
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    pub(super) threads: Option<usize>,
    pub(super) memory_limit_bytes: Option<usize>,
    pub(super) query_memory_limit_bytes: Option<usize>,
    pub(super) spill_to: Option<PathBuf>,
    pub(super) spill_limit_bytes: Option<u64>,
    pub(super) timeout: Option<Duration>,
    pub(super) max_queries: Option<usize>,
    pub(super) max_waiting: Option<usize>,
    pub(super) runtime: Option<Handle>,
    pub(super) limit_names: Option<LimitNames>,
}

impl SessionOptions {
    /// Into how many shares a scan, join or aggregate is spread, at most 1024; by default what [`max_threads`] says when a query is planned.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Bytes that sorts, joins, aggregates and kept answers of this session may use together before they spill or are refused; by default 80 % of the machine or
    /// control group.
    #[must_use]
    pub fn with_memory_limit_bytes(mut self, bytes: usize) -> Self {
        self.memory_limit_bytes = Some(bytes);
        self
    }

    /// The part of it that one query may use; by default all.
    #[must_use]
    pub fn with_query_memory_limit_bytes(mut self, bytes: usize) -> Self {
        self.query_memory_limit_bytes = Some(bytes);
        self
    }

    /// The folder in which queries make their temporary files; made if it is not there. By default that of the system. The files have no name: nothing is left of them when the query
    /// ends, however the process ends.
    #[must_use]
    pub fn with_spill_to(mut self, folder: impl Into<PathBuf>) -> Self {
        self.spill_to = Some(folder.into());
        self
    }

    /// The bytes that the temporary files of all queries may have together at any time; 100 GiB by default. A query that wants more fails.
    #[must_use]
    pub fn with_spill_limit_bytes(mut self, bytes: u64) -> Self {
        self.spill_limit_bytes = Some(bytes);
        self
    }

    /// How long a query may take, waiting for its turn included; for ever by default.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How many queries run at once; others wait for their turn, in the order in which they came. By default as many as there are threads, and at least four.
    #[must_use]
    pub fn with_max_queries(mut self, queries: usize) -> Self {
        self.max_queries = Some(queries);
        self
    }

    /// How many queries wait for their turn before others are refused; without it, all wait.
    #[must_use]
    pub fn with_max_waiting(mut self, queries: usize) -> Self {
        self.max_waiting = Some(queries);
        self
    }

    /// The runtime on whose threads queries run, in place of the caller's: operators keep threads busy, and whoever speaks with others wants threads of their own.
    #[must_use]
    pub fn with_runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// The limits are set by others than those who ask, such as by the settings of a server: messages name these, in place of arguments. Limits of a single query are of whoever asks in any case.
    #[must_use]
    pub fn with_limit_names(mut self, names: LimitNames) -> Self {
        self.limit_names = Some(names);
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.threads.is_none() {
            check_variable()?;
        }
        self.check_values()
    }

    fn check_values(&self) -> Result<()> {
        let too_small =
            |name: &str| Error::invalid_argument(format!("{name} must be at least 1, got 0"));
        match self {
            Self {
                threads: Some(0), ..
            } => Err(too_small("threads")),
            Self {
                threads: Some(threads),
                ..
            } if *threads > MAX_THREADS => Err(Error::invalid_argument(format!(
                "threads must be at most {MAX_THREADS}, got {threads}"
            ))),
            Self {
                memory_limit_bytes: Some(0),
                ..
            } => Err(too_small("memory_limit")),
            Self {
                query_memory_limit_bytes: Some(0),
                ..
            } => Err(too_small("query_memory_limit")),
            Self {
                spill_limit_bytes: Some(0),
                ..
            } => Err(too_small("spill_limit")),
            Self {
                max_queries: Some(0),
                ..
            } => Err(too_small("max_queries")),
            _ => Ok(()),
        }
    }

    pub(super) fn threads_now(&self) -> usize {
        self.threads.unwrap_or_else(max_threads)
    }

    pub(super) fn memory_limit(&self) -> usize {
        self.memory_limit_bytes
            .unwrap_or_else(default_memory_limit_bytes)
    }

    /// How long a query may take.
    pub(super) fn time_limit(&self, query: &QueryOptions) -> Option<TimeLimit> {
        let setting = self.limit_names.map(|names| names.timeout);
        let asked = query.timeout.map(|time| TimeLimit {
            time,
            setting: None,
        });
        asked.or_else(|| self.timeout.map(|time| TimeLimit { time, setting }))
    }

    /// What a query may use of the memory limit; all of it for `None`.
    pub(super) fn query_bound(&self, query: &QueryOptions) -> Option<MemoryBound> {
        let bound = |bytes, of| MemoryBound { bytes, of };
        let setting = self.limit_names.map(|names| names.query_memory);
        let asked = query.memory_limit_bytes;
        let asked = asked.map(|bytes| bound(bytes, Whose::Query(None)));
        let own = self.query_memory_limit_bytes;
        let own = asked.or(own.map(|bytes| bound(bytes, Whose::Query(setting))));
        let shared = query.allowance.as_ref().and_then(Allowance::limit_bytes);
        let shared = shared.map(|bytes| bound(bytes, Whose::Caller));
        own.into_iter()
            .chain(shared)
            .min_by_key(|least| least.bytes)
    }

    pub(super) fn spill_limit(&self) -> usize {
        let bytes = self.spill_limit_bytes.unwrap_or(SPILL_LIMIT_BYTES);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    pub(super) fn queries_at_once(&self) -> usize {
        let by_threads = || self.threads_now().max(LEAST_QUERIES);
        self.max_queries.unwrap_or_else(by_threads)
    }
}

/// Settings of one query, in place of those of its session.
#[derive(Debug, Clone, Default)]
pub struct QueryOptions {
    pub(super) timeout: Option<Duration>,
    pub(super) memory_limit_bytes: Option<usize>,
    pub(super) threads: Option<usize>,
    pub(super) statements: Statements,
    pub(super) watch: Option<Watch>,
    pub(super) leaves_counts: bool,
    pub(super) allowance: Option<Allowance>,
}

/// Hears of the query of a statement that makes a table.
#[derive(Clone)]
pub(super) struct Watch(Arc<Begun>);

/// Says that a query begins.
type Begun = dyn Fn(&Query) -> Box<dyn Watched> + Send + Sync;

/// A query that is watched. One that is dropped before it hears of an end was given up.
pub trait Watched: Send {
    /// Hears that the table has its name, or why it has none.
    fn end(&self, failed: Option<&Error>);
}

impl Watch {
    /// Says that the query begins.
    pub(super) fn begun(&self, query: &Query) -> Box<dyn Watched> {
        (self.0)(query)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Watch")
    }
}

/// What statements may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Statements {
    /// Read, without looking at settings of the engine.
    Read,
    /// Also name grids and views: `CREATE TABLE … AS`, `CREATE VIEW`, `DROP`.
    Tables,
    /// Also keep statements under names of SQL (`PREPARE`), and look at settings.
    #[default]
    All,
}

impl QueryOptions {
    /// How long each run may take, waiting for its turn included.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Bytes that sorts, joins, aggregates and a kept answer of this query may use, within the limit of the session.
    #[must_use]
    pub fn with_memory_limit_bytes(mut self, bytes: usize) -> Self {
        self.memory_limit_bytes = Some(bytes);
        self
    }

    /// Into how many shares this query is spread.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Has `watch` hear of the query behind a statement that makes a table, which runs before the statement gives anything; what it gives hears how that ended.
    #[must_use]
    pub fn with_watch(
        mut self,
        watch: impl Fn(&Query) -> Box<dyn Watched> + Send + Sync + 'static,
    ) -> Self {
        self.watch = Some(Watch(Arc::new(watch)));
        self
    }

    /// The query is one of those that share these limits, within its own and those of the session.
    #[must_use]
    pub fn with_allowance(mut self, allowance: Allowance) -> Self {
        self.allowance = Some(allowance);
        self
    }

    /// Has other processes that take part keep what they counted to themselves, where nobody will ask for it: it is missing in [`Query::metrics`](super::Query::metrics), and the rows are over with the last one instead of with
    /// the last count.
    #[must_use]
    pub fn without_counts(mut self) -> Self {
        self.leaves_counts = true;
        self
    }

    /// What the statement may do; by default all that the session can.
    #[must_use]
    pub fn with_statements(mut self, statements: Statements) -> Self {
        self.statements = statements;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        let session = SessionOptions {
            threads: self.threads,
            memory_limit_bytes: self.memory_limit_bytes,
            ..SessionOptions::default()
        };
        session.check_values()
    }
}
