//! `Session`, `Result` and `sql`.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use partgrid::error::Error;
use partgrid::grid::PartitionGrid;
use partgrid::query::{Query, Session, SessionOptions};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::argument::{self, Count, Given, Size, optional};
use crate::capsule::{schema_capsule, stream_capsule};
use crate::convert;
use crate::error::Outcome;
use crate::grid::PyGrid;
use crate::runtime::wait;
use crate::stream::QueryBatches;
use crate::wishes::Names;

/// How many rows the repr of a result shows.
const SHOWN_ROWS: usize = 10;

/// Grids under names, for SQL.
///
/// Safe to use from several threads, and in a forked child, which gets an engine of its own over the same grids.
///
/// Args:
///     threads: Into how many shares a query is spread, at most 1024; by default the number of cores.
///     memory_limit: Bytes, or a text such as `"512MB"`, that sorts, joins and aggregates may use together before they spill to disk; by default 80 % of the machine or control group.
///
/// Raises:
///     InvalidArgumentError: `threads` is 0 or more than 1024, or `memory_limit` is no size.
///
/// Examples:
///     >>> import partgrid as pg
///     >>> session = pg.Session()
///     >>> session.register("airlines", pg.read_parquet("data/airlines.parquet"))
///     >>> session.sql("SELECT count(*) AS n FROM airlines").to_arrow()["n"].to_pylist()
///     [16]
#[pyclass(name = "Session", module = "partgrid", frozen)]
pub(crate) struct PySession {
    options: SessionOptions,
    /// By name. Read and replaced without a lock, so that a fork at any moment is harmless.
    grids: ArcSwap<HashMap<String, Arc<PartitionGrid>>>,
    /// The engine and the process that made it; a forked child makes its own from `grids`.
    engine: ArcSwap<(u32, Session)>,
}

impl PySession {
    fn try_new(options: SessionOptions) -> Outcome<Self> {
        let session = Session::try_new(&options)?;
        Ok(Self {
            options,
            grids: ArcSwap::default(),
            engine: ArcSwap::from_pointee((std::process::id(), session)),
        })
    }

    fn add(&self, name: &str, grid: &PyGrid) -> Outcome<()> {
        self.engine()?.1.register(name, Arc::clone(grid.core()))?;
        self.grids.rcu(|grids| {
            let mut grids = HashMap::clone(grids);
            grids.insert(name.to_owned(), Arc::clone(grid.core()));
            grids
        });
        Ok(())
    }

    fn engine(&self) -> Outcome<Arc<(u32, Session)>> {
        let engine = self.engine.load_full();
        if engine.0 == std::process::id() {
            return Ok(engine);
        }
        let session = Session::try_new(&self.options)?;
        for (name, grid) in self.grids.load().iter() {
            session.register(name, Arc::clone(grid))?;
        }
        let engine = Arc::new((std::process::id(), session));
        self.engine.store(Arc::clone(&engine));
        Ok(engine)
    }

    fn plan(&self, py: Python<'_>, query: Given<String>) -> Outcome<PyQuery> {
        let query = query.named("query")?;
        let engine = self.engine()?;
        let text = query.clone();
        let planned = wait(py, async move { engine.1.sql(&text).await })?;
        Ok(PyQuery {
            text: query,
            query: planned,
            pid: std::process::id(),
            collected: OnceLock::new(),
        })
    }
}

#[pymethods]
impl PySession {
    #[new]
    #[pyo3(signature = (*, threads=None, memory_limit=None))]
    fn new(threads: Option<Given<Count>>, memory_limit: Option<Given<Size>>) -> Outcome<Self> {
        let mut options = SessionOptions::default();
        // What no machine can address is more than enough.
        let word = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        if let Some(threads) = optional(threads, "threads")? {
            options = options.with_threads(word(threads.0));
        }
        if let Some(size) = optional(memory_limit, "memory_limit")? {
            options = options.with_memory_limit_bytes(word(size.0));
        }
        Self::try_new(options)
    }

    /// Puts a grid under a name, in place of one that had it. Nothing is copied.
    ///
    /// SQL folds names without quotes to lower case.
    ///
    /// Args:
    ///     name: The table name.
    ///     grid: The grid.
    ///
    /// Raises:
    ///     InvalidArgumentError: The name is empty.
    ///     ProtocolError: `grid` is no grid.
    #[pyo3(signature = (name, grid: "Grid"))]
    fn register(&self, name: Given<String>, grid: &Bound<'_, PyAny>) -> Outcome<()> {
        self.add(&name.named("name")?, grid_of(grid, "grid")?.get())
    }

    /// Takes a name away.
    ///
    /// Args:
    ///     name: The table name.
    ///
    /// Returns:
    ///     Whether there was a grid under the name.
    fn deregister(&self, name: Given<String>) -> Outcome<bool> {
        let name = name.named("name")?;
        self.grids.rcu(|grids| {
            let mut grids = HashMap::clone(grids);
            grids.remove(&name);
            grids
        });
        Ok(self.engine()?.1.deregister(&name)?)
    }

    /// The names of the registered grids, sorted.
    #[getter]
    fn tables(&self) -> Vec<String> {
        let mut names: Vec<String> = self.grids.load().keys().cloned().collect();
        names.sort();
        names
    }

    /// Checks and plans one statement that reads (SELECT, WITH, VALUES, EXPLAIN, DESCRIBE). It runs when its result is asked for.
    ///
    /// Args:
    ///     query: The SQL text, at most 262,144 bytes, expressions at most 500 operators deep.
    ///
    /// Returns:
    ///     A result that has not run yet.
    ///
    /// Raises:
    ///     QueryError: The SQL is wrong; an unknown column names the near one.
    ///     ResourcesExhaustedError: The text is longer or deeper than allowed.
    fn sql(&self, py: Python<'_>, query: Given<String>) -> Outcome<PyQuery> {
        self.plan(py, query)
    }

    fn __repr__(&self) -> String {
        let tables = self.tables();
        if tables.is_empty() {
            return "Session without grids".to_owned();
        }
        format!("Session with {}", tables.join(", "))
    }
}

/// Runs SQL over grids passed by name.
///
/// Args:
///     query: The SQL text.
///     grids: A grid for each table name.
///
/// Returns:
///     A result that has not run yet.
///
/// Raises:
///     QueryError: The SQL is wrong.
///
/// Examples:
///     >>> import partgrid as pg
///     >>> flights = pg.read_parquet("data/flights")
///     >>> pg.sql("SELECT max(distance) AS miles FROM flights", flights=flights).to_arrow()["miles"].to_pylist()
///     [4983.0]
#[pyfunction]
#[pyo3(signature = (query, **grids))]
pub(crate) fn sql(
    py: Python<'_>,
    query: Given<String>,
    grids: Option<&Bound<'_, PyDict>>,
) -> Outcome<PyQuery> {
    let session = PySession::try_new(SessionOptions::default())?;
    for (name, grid) in grids.into_iter().flatten() {
        let name: String = name.extract()?;
        session.add(&name, grid_of(&grid, &name)?.get())?;
    }
    session.plan(py, query)
}

/// The grid that was passed under a name.
fn grid_of<'a, 'py>(object: &'a Bound<'py, PyAny>, name: &str) -> Outcome<&'a Bound<'py, PyGrid>> {
    let Ok(grid) = object.cast::<PyGrid>() else {
        let class = object.get_type().qualname()?;
        return Err(Error::new(
            partgrid::error::ErrorKind::Protocol,
            format!("{name} must be a Grid, got {class}"),
        )
        .with_hint("partgrid.from_arrow(…) makes a grid of any Arrow object without copying")
        .into());
    };
    Ok(grid)
}

/// The result of a SQL query, worked out when it is asked for.
///
/// `to_arrow`, `to_pandas`, `to_polars` and any library that takes `__arrow_c_stream__` read it batch by batch as it is found. Its repr and `len` run it once and keep
/// the answer.
#[pyclass(name = "Result", module = "partgrid", frozen)]
pub(crate) struct PyQuery {
    text: String,
    query: Query,
    /// The process that planned it.
    pid: u32,
    /// The answer, once something needed it whole.
    collected: OnceLock<Vec<RecordBatch>>,
}

impl PyQuery {
    fn check_process(&self) -> Outcome<()> {
        if self.pid == std::process::id() {
            return Ok(());
        }
        Err(
            Error::invalid_argument("this result was planned before a fork, in the parent process")
                .with_hint("call sql() again in this process")
                .into(),
        )
    }

    fn collected(&self, py: Python<'_>) -> Outcome<&Vec<RecordBatch>> {
        if let Some(batches) = self.collected.get() {
            return Ok(batches);
        }
        self.check_process()?;
        let query = self.query.clone();
        let batches = wait(py, async move { query.collect().await })?;
        Ok(self.collected.get_or_init(|| batches))
    }

    fn num_rows(&self, py: Python<'_>) -> Outcome<usize> {
        Ok(self.collected(py)?.iter().map(RecordBatch::num_rows).sum())
    }

    /// The first rows as a table of text, and a line that says what is left out.
    fn table(&self, py: Python<'_>, most_rows: usize) -> Outcome<String> {
        let num_rows = self.num_rows(py)?;
        let mut left = most_rows;
        let mut shown = vec![RecordBatch::new_empty(self.query.schema())];
        for batch in self.collected(py)? {
            shown.push(batch.slice(0, batch.num_rows().min(left)));
            left = left.saturating_sub(batch.num_rows());
        }
        let table = pretty_format_batches(&shown)?;
        let rows = if num_rows == 1 { "row" } else { "rows" };
        Ok(if num_rows > most_rows {
            format!("{table}\n{num_rows} {rows}, the first {most_rows} shown")
        } else {
            format!("{table}\n{num_rows} {rows}")
        })
    }
}

#[pymethods]
impl PyQuery {
    /// The names of the columns, in order.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let schema = self.query.schema();
        schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    }

    /// The SQL text.
    #[getter]
    fn query(&self) -> &str {
        &self.text
    }

    /// The physical plan, one operator a line. `GridScanExec` says how many tiles are read, of how many.
    fn explain(&self) -> String {
        self.query.explain()
    }

    /// Prints the first rows.
    ///
    /// Args:
    ///     rows: How many rows at most.
    #[pyo3(signature = (rows: "int" = SHOWN_ROWS))]
    fn show(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = argument::rows)] rows: usize,
    ) -> Outcome<()> {
        let table = self.table(py, rows)?;
        let print = py.import("builtins")?.getattr("print")?;
        print.call1((table,))?;
        Ok(())
    }

    /// The answer as a `pyarrow.Table`. Needs pyarrow.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_arrow(slf.as_any())
    }

    /// The answer as a `pandas.DataFrame` of Arrow-backed columns. Needs pandas and pyarrow.
    ///
    /// Args:
    ///     index: A name or a list of names of columns that become the row labels. By default rows are numbered.
    ///
    /// Returns:
    ///     The frame.
    ///
    /// Raises:
    ///     NotFoundError: There is no such column.
    #[pyo3(signature = (*, index=None))]
    fn to_pandas<'py>(
        slf: &Bound<'py, Self>,
        index: Option<Given<Names>>,
    ) -> Outcome<Bound<'py, PyAny>> {
        convert::to_labelled_pandas(slf.as_any(), &slf.get().query.schema(), index)
    }

    /// The answer as a `polars.DataFrame`. Needs polars.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_polars(slf.as_any())
    }

    /// The answer as a grid, one tile for each batch, in the memory of this process.
    fn to_grid(&self, py: Python<'_>) -> Outcome<PyGrid> {
        let batches = self.collected(py)?;
        let grid = PartitionGrid::try_from_batches(self.query.schema(), batches)?;
        Ok(PyGrid::new(grid))
    }

    /// The Arrow PyCapsule interface: a stream of batches as they are found. The query starts now and stops when the stream is dropped.
    ///
    /// Args:
    ///     requested_schema: A schema capsule with the same column names; values are cast to its types.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> Outcome<Bound<'py, PyCapsule>> {
        let schema = self.query.schema();
        if let Some(batches) = self.collected.get() {
            let batches = batches.clone().into_iter().map(Ok);
            return stream_capsule(py, schema, batches, requested_schema);
        }
        self.check_process()?;
        let batches = QueryBatches::start(&self.query)?;
        stream_capsule(py, schema, batches, requested_schema)
    }

    /// The Arrow PyCapsule interface: the schema of the answer.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.query.schema())
    }

    fn __len__(&self, py: Python<'_>) -> Outcome<usize> {
        self.num_rows(py)
    }

    fn __repr__(&self, py: Python<'_>) -> Outcome<String> {
        self.table(py, SHOWN_ROWS)
    }
}
