//! `Session` and `sql`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use partgrid::error::{Error, ErrorKind};
use partgrid::grid::PartitionGrid;
use partgrid::query::{Parameters, QueryOptions, Session, SessionOptions};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyString, PyType};

use crate::argument::{Count, Given, Seconds, Size, optional, volatile};
use crate::capsule::remedy;
use crate::error::Outcome;
use crate::frames::grid_of_capsules;
use crate::function::{aggregate, scalar};
use crate::grid::PyGrid;
use crate::parameters::parameters;
use crate::partitioned::from_partitioned;
use crate::prepared::PyPrepared;
use crate::result::PyQuery;
use crate::runtime::wait;
use crate::variables::{Variable, meant};

/// Grids under names, for SQL.
///
/// Safe to use from several threads, and in a forked child, which gets an engine of its own over the same names.
///
/// SQL reads grids, and names what it reads: `CREATE VIEW name AS …`, `CREATE TABLE name AS …` (a grid, which `grid` gives), `PREPARE`, `EXECUTE`, `DEALLOCATE`, `DROP`, `SHOW TABLES`,
/// `DESCRIBE name`, `information_schema`. `tiles('name')` is a table of the tiles of a grid: where they are, how large, what values they hold. Nothing that SQL can say changes grids,
/// files or settings.
///
/// Args:
///     threads: Into how many shares a query is spread, at most 1024; by default `PARTGRID_MAX_THREADS` as it is when a query is planned, and the number of cores without it.
///     memory_limit: Bytes, or a text such as `"512MB"`, that sorts, joins, aggregates and kept answers may use together before they spill to disk or are refused; by default 80 % of the
///         machine or control group. Buffers of registered grids do not count.
///     query_memory_limit: The part of it that one query may use; all by default.
///     spill_to: A folder for the temporary files of queries; made if it is not there. By default that of the system. The files have no name: nothing is left of them when a query ends, however
///         the process ends.
///     spill_limit: Bytes, or a text such as `"20GB"`, that these files may have together; 100 GiB by default. A query that wants more fails.
///     timeout: Seconds that a query may take, waiting for its turn included; for ever by default, and for `float("inf")`.
///     max_queries: How many queries run at once; others wait for their turn, first come, first served. By default as many as there are threads, and at least 4. A query that finds no
///         memory while others run is begun again when it is alone.
///
/// Raises:
///     InvalidArgumentError: A number is 0, `threads` is more than 1024, or a limit is no size.
///     StorageError: The folder `spill_to` cannot be made.
///
/// Examples:
///     >>> import partgrid as pg
///     >>> session = pg.Session()
///     >>> session.register("airlines", pg.read_parquet("data/airlines.parquet"))
///     >>> session.sql("SELECT name FROM airlines WHERE carrier = $1", ["DL"]).to_arrow()["name"].to_pylist()
///     ['Delta Air Lines Inc.']
#[pyclass(name = "Session", module = "partgrid", frozen, weakref)]
pub(crate) struct PySession {
    /// The engine and the process that made it; a forked child makes its own over the same names. Read and replaced without a lock, so that a fork at any moment is harmless.
    engine: ArcSwap<(u32, Session)>,
}

impl PySession {
    fn try_new(options: &SessionOptions) -> Outcome<Self> {
        let session = Session::try_new(options)?;
        Ok(Self {
            engine: ArcSwap::from_pointee((std::process::id(), session)),
        })
    }

    fn engine(&self) -> Outcome<Session> {
        let engine = self.engine.load_full();
        if engine.0 == std::process::id() {
            return Ok(engine.1.clone());
        }
        let session = engine.1.try_again()?;
        self.engine
            .store(Arc::new((std::process::id(), session.clone())));
        Ok(session)
    }

    fn plan(
        &self,
        py: Python<'_>,
        query: String,
        params: Parameters,
        options: QueryOptions,
    ) -> Outcome<PyQuery> {
        let session = self.engine()?;
        let text = query.clone();
        let planned = wait(py, async move {
            Box::pin(session.sql_with(&text, params, &options)).await
        })?;
        Ok(PyQuery::new(query, planned))
    }
}

/// The limits of one query.
pub(crate) fn options(
    timeout: Option<Given<Seconds>>,
    memory_limit: Option<Given<Size>>,
    threads: Option<Given<Count>>,
) -> Outcome<QueryOptions> {
    let mut options = QueryOptions::default();
    if let Some(limit) = optional(timeout, "timeout")?.and_then(|timeout| timeout.limit) {
        options = options.with_timeout(limit);
    }
    if let Some(size) = optional(memory_limit, "memory_limit")? {
        options = options.with_memory_limit_bytes(word(size.0));
    }
    if let Some(threads) = optional(threads, "threads")? {
        options = options.with_threads(word(threads.0));
    }
    Ok(options)
}

/// What no machine can address is more than enough.
fn word(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[pymethods]
impl PySession {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    #[pyo3(signature = (*, threads=None, memory_limit=None, query_memory_limit=None, spill_to=None, spill_limit=None, timeout=None, max_queries=None))]
    fn new(
        threads: Option<Given<Count>>,
        memory_limit: Option<Given<Size>>,
        query_memory_limit: Option<Given<Size>>,
        spill_to: Option<Given<std::path::PathBuf>>,
        spill_limit: Option<Given<Size>>,
        timeout: Option<Given<Seconds>>,
        max_queries: Option<Given<Count>>,
    ) -> Outcome<Self> {
        let mut options = SessionOptions::default();
        if let Some(threads) = optional(threads, "threads")? {
            options = options.with_threads(word(threads.0));
        }
        if let Some(size) = optional(memory_limit, "memory_limit")? {
            options = options.with_memory_limit_bytes(word(size.0));
        }
        if let Some(size) = optional(query_memory_limit, "query_memory_limit")? {
            options = options.with_query_memory_limit_bytes(word(size.0));
        }
        if let Some(folder) = optional(spill_to, "spill_to")? {
            options = options.with_spill_to(folder);
        }
        if let Some(size) = optional(spill_limit, "spill_limit")? {
            options = options.with_spill_limit_bytes(size.0);
        }
        if let Some(limit) = optional(timeout, "timeout")?.and_then(|timeout| timeout.limit) {
            options = options.with_timeout(limit);
        }
        if let Some(queries) = optional(max_queries, "max_queries")? {
            options = options.with_max_queries(word(queries.0));
        }
        Self::try_new(&options)
    }

    /// Puts a grid under a name, in place of one that had it. Nothing is copied.
    ///
    /// SQL folds names without quotes to lower case, and then also finds the only name that differs in case.
    ///
    /// Args:
    ///     name: The table name.
    ///     data: A grid, or any object with `__arrow_c_stream__`, `__arrow_c_array__` (pyarrow, polars, pandas 3, duckdb, a result of SQL) or `__partitioned__` (Modin, Dask, HeAT), of which a
    ///         grid is made as `from_arrow` and `from_partitioned` do. A stream is read whole, now. Labels of rows of a pandas frame are columns if they have names, and are left away if they have none.
    ///
    /// Raises:
    ///     InvalidArgumentError: The name is empty, or two columns share a name.
    ///     ProtocolError: `data` has none of these methods.
    fn register(&self, name: Given<String>, data: &Bound<'_, PyAny>) -> Outcome<()> {
        let grid = grid_of(data, "data")?;
        Ok(self.engine()?.register(&name.named("name")?, grid)?)
    }

    /// Takes a name away.
    ///
    /// Args:
    ///     name: The name of a grid or view.
    ///
    /// Returns:
    ///     Whether there was one.
    fn deregister(&self, name: Given<String>) -> Outcome<bool> {
        Ok(self.engine()?.deregister(&name.named("name")?))
    }

    /// The names of grids and views, sorted.
    #[getter]
    fn tables(&self) -> Outcome<Vec<String>> {
        Ok(self.engine()?.tables())
    }

    /// The grid under a name: one that was registered, or that `CREATE TABLE … AS` made.
    ///
    /// Args:
    ///     name: The table name.
    ///
    /// Returns:
    ///     The grid. Nothing is copied.
    ///
    /// Raises:
    ///     NotFoundError: There is no such table.
    ///     QueryError: It is a view, which has no grid.
    fn grid(&self, name: Given<String>) -> Outcome<PyGrid> {
        let grid = self.engine()?.grid(&name.named("name")?)?;
        Ok(PyGrid::new(PartitionGrid::clone(&grid)))
    }

    /// Checks and plans one statement. One that reads (SELECT, WITH, VALUES, EXPLAIN, DESCRIBE, SHOW, EXECUTE) runs when its result is asked for; one that names something (CREATE VIEW,
    /// CREATE TABLE … AS, DROP, PREPARE, DEALLOCATE) takes effect now, and its result is one text, `status`.
    ///
    /// Args:
    ///     query: The SQL text, at most 262,144 bytes, expressions at most 500 operators deep.
    ///     params: Values for its parameters: a list for `$1`, `$2` or `?`, a dict for `$name`. None, bool, int, float, str, bytes, date, time, datetime, timedelta, Decimal, UUID, lists of
    ///         these, and scalars of numpy and pyarrow, which keep their type. Values never become SQL text.
    ///     timeout: Seconds that each run may take, in place of that of the session.
    ///     memory_limit: Bytes, or a text such as `"512MB"`, that each run may use.
    ///     threads: Into how many shares the query is spread.
    ///
    /// Returns:
    ///     A result that has not run yet.
    ///
    /// Raises:
    ///     QueryError: The SQL is wrong; it shows the place, and names what is near. Or values and parameters do not fit.
    ///     InvalidArgumentError: A value of `params` has no type in Arrow, or a limit is 0.
    ///     ResourcesExhaustedError: The text is longer or deeper than allowed.
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    #[pyo3(signature = (query, params=None, *, timeout=None, memory_limit=None, threads=None))]
    fn sql(
        &self,
        py: Python<'_>,
        query: Given<String>,
        params: Option<&Bound<'_, PyAny>>,
        timeout: Option<Given<Seconds>>,
        memory_limit: Option<Given<Size>>,
        threads: Option<Given<Count>>,
    ) -> Outcome<PyQuery> {
        let limits = options(timeout, memory_limit, threads)?;
        self.plan(py, query.named("query")?, parameters(params)?, limits)
    }

    /// Looks up the names of a statement that reads, to run it again and again with other values for its parameters.
    ///
    /// Args:
    ///     query: The SQL text, with parameters `$1`, `$2`, or `?`, or `$name`.
    ///
    /// Returns:
    ///     The prepared statement.
    ///
    /// Raises:
    ///     QueryError: The SQL is wrong, or does not read.
    ///
    /// Examples:
    ///     >>> import partgrid as pg
    ///     >>> session = pg.Session()
    ///     >>> session.register("airlines", pg.read_parquet("data/airlines.parquet"))
    ///     >>> by_code = session.prepare("SELECT name FROM airlines WHERE carrier = $code")
    ///     >>> [by_code.sql({"code": code}).to_arrow()["name"][0].as_py() for code in ["AA", "DL"]]
    ///     ['American Airlines Inc.', 'Delta Air Lines Inc.']
    fn prepare(&self, py: Python<'_>, query: Given<String>) -> Outcome<PyPrepared> {
        let query = query.named("query")?;
        let session = self.engine()?;
        let prepared = wait(py, async move { Box::pin(session.prepare(&query)).await })?;
        Ok(PyPrepared::new(prepared))
    }

    /// Lets SQL call a function of Python, in place of one that had its name. Needs pyarrow.
    ///
    /// It is called on the threads that run a query, with one pyarrow array for each argument, thousands of rows at a time, and gives an array of the same length: a pyarrow array, or any
    /// object with `__arrow_c_array__` or `__arrow_c_stream__` (polars), or a list or numpy array, which are copied. Arrays share the memory of the query. What it raises
    /// ends the query, and is raised as it is.
    ///
    /// Args:
    ///     name: The name in SQL, which folds names without quotes to lower case.
    ///     function: What to call. Without arguments, it gets the number of rows.
    ///     arguments: The types of the arguments: pyarrow types or their names. Values of other types are cast where SQL does so by itself.
    ///     returns: The type of the values.
    ///     volatile: Whether equal arguments may give other values; such a function is called for every row, and never before the query runs.
    ///
    /// Raises:
    ///     InvalidArgumentError: The name is empty, `function` cannot be called, or a type is none.
    ///
    /// Examples:
    ///     >>> import partgrid as pg, pyarrow.compute as pc
    ///     >>> session = pg.Session()
    ///     >>> session.register_function("initials", lambda name: pc.utf8_slice_codeunits(name, 0, 2), ["string"], "string")
    ///     >>> session.sql("SELECT initials('Delta') AS i").to_arrow()["i"].to_pylist()
    ///     ['De']
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    #[pyo3(signature = (name, function, arguments, returns, *, volatile: "bool" = false))]
    fn register_function(
        &self,
        py: Python<'_>,
        name: Given<String>,
        function: &Bound<'_, PyAny>,
        arguments: &Bound<'_, PyAny>,
        returns: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = volatile)] volatile: bool,
    ) -> Outcome<()> {
        let name = name.named("name")?;
        let module = py.import("partgrid._functions")?;
        let types = module.call_method1("types", (arguments, returns))?;
        let caller = module.call_method1("Scalar", (&name, function, &types))?;
        let function = scalar(name, caller.unbind(), &types, volatile)?;
        self.engine()?.register_function(function);
        Ok(())
    }

    /// Lets SQL call an aggregate of Python, in place of one that had its name. Needs pyarrow.
    ///
    /// Each group of rows is an object of the class. `update(*arrays)` takes rows in, one pyarrow array for each argument; `merge(other)` takes in another object that got other rows of the
    /// group; `evaluate()` gives the value. Attributes must be such that `pickle` takes them. What it raises ends the query, and is raised as it is.
    ///
    /// Args:
    ///     name: The name in SQL, which folds names without quotes to lower case.
    ///     group: The class, which is called without arguments.
    ///     arguments: The types of the arguments: pyarrow types or their names.
    ///     returns: The type of the value.
    ///
    /// Raises:
    ///     InvalidArgumentError: The name is empty, the class lacks a method, or a type is none.
    ///
    /// Examples:
    ///     >>> import partgrid as pg, pyarrow as pa
    ///     >>> class Longest:
    ///     ...     length = 0
    ///     ...     def update(self, texts): self.length = max([self.length, *map(len, texts.to_pylist())])
    ///     ...     def merge(self, other): self.length = max(self.length, other.length)
    ///     ...     def evaluate(self): return self.length
    ///     >>> session = pg.Session()
    ///     >>> session.register_aggregate("longest", Longest, [pa.string()], pa.int64())
    ///     >>> session.register("t", pa.table({"s": ["a", "bcd"]}))
    ///     >>> session.sql("SELECT longest(s) AS n FROM t").to_arrow()["n"].to_pylist()
    ///     [3]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn register_aggregate(
        &self,
        py: Python<'_>,
        name: Given<String>,
        group: &Bound<'_, PyAny>,
        arguments: &Bound<'_, PyAny>,
        returns: &Bound<'_, PyAny>,
    ) -> Outcome<()> {
        let name = name.named("name")?;
        let module = py.import("partgrid._functions")?;
        let types = module.call_method1("types", (arguments, returns))?;
        let caller = module.call_method1("Aggregate", (&name, group, &types))?;
        let function = aggregate(name, caller.unbind(), &types)?;
        self.engine()?.register_function(function);
        Ok(())
    }

    /// Bytes that the running queries of this session use at this moment, as far as they are counted.
    #[getter]
    fn memory_bytes(&self) -> Outcome<usize> {
        Ok(self.engine()?.memory_bytes())
    }

    fn __repr__(&self) -> Outcome<String> {
        let tables = self.tables()?;
        if tables.is_empty() {
            return Ok("Session without grids".to_owned());
        }
        Ok(format!("Session with {}", tables.join(", ")))
    }
}

/// Runs SQL over grids: those passed by name, and variables of the caller.
///
/// A table of another name is the variable of that name where this is called, of the function first, then of its module, if it is a table: a grid, a result, a frame.
///
/// Args:
///     query: The SQL text.
///     params: Values for its parameters: a list for `$1`, `$2` or `?`, a dict for `$name`; see `Session.sql`.
///     grids: A grid for each table name, or any object with `__arrow_c_stream__`, `__arrow_c_array__` or `__partitioned__`.
///
/// Returns:
///     A result that has not run yet.
///
/// Raises:
///     QueryError: The SQL is wrong.
///     ProtocolError: A table has none of these methods.
///
/// Examples:
///     >>> import partgrid as pg
///     >>> flights = pg.read_parquet("data/flights")
///     >>> pg.sql("SELECT max(distance) AS miles FROM flights WHERE month = $1", [7]).to_arrow()["miles"].to_pylist()
///     [4983.0]
///     >>> pg.sql("SELECT count(*) AS n FROM f WHERE month = 7", f=flights).to_arrow()["n"].to_pylist()
///     [29425]
#[pyfunction]
#[pyo3(signature = (query, params=None, **grids))]
pub(crate) fn sql(
    py: Python<'_>,
    query: Given<String>,
    params: Option<&Bound<'_, PyAny>>,
    grids: Option<&Bound<'_, PyDict>>,
) -> Outcome<PyQuery> {
    let session = PySession::try_new(&SessionOptions::default())?;
    for (name, data) in grids.into_iter().flatten() {
        let name: String = name.extract()?;
        let is_value = data.is_instance_of::<PyInt>()
            || data.is_instance_of::<PyFloat>()
            || data.is_instance_of::<PyString>();
        if is_value {
            let class = data.get_type().qualname()?;
            let text = format!("{name} must be a table, got {class}");
            let error = Error::new(ErrorKind::Protocol, text);
            return Err(error.with_hint("values are given as params=[…], and settings to a session: pg.Session().sql(…, threads=1)").into());
        }
        session.engine()?.register(&name, grid_of(&data, &name)?)?;
    }
    let query = query.named("query")?;
    let params = parameters(params)?;
    loop {
        let planned = session.plan(py, query.clone(), params.clone(), QueryOptions::default());
        let error = match planned {
            Ok(planned) => return Ok(planned),
            Err(error) => error.into_core(),
        };
        let Variable { name, value } = meant(py, error, &session.tables()?)?;
        session.engine()?.register(&name, grid_of(&value, &name)?)?;
    }
}

/// A frame of pandas as a table whose columns do not go by what its labels happen to be; others as they are.
fn with_its_labels<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let modules = py.import("sys")?.getattr("modules")?;
    let Ok(pandas) = modules.get_item("pandas") else {
        return Ok(object.clone());
    };
    // While it is being imported it has no such class.
    let frame = pandas.getattr("DataFrame");
    match frame.and_then(|frame| object.is_instance(&frame)) {
        Ok(true) => py
            .import("partgrid._frames")?
            .call_method1("as_table", (object,)),
        _ => Ok(object.clone()),
    }
}

/// Methods by which an object is a table.
const OF_TABLES: [&str; 5] = [
    "__partitioned__",
    "__arrow_c_stream__",
    "__arrow_c_array__",
    "__arrow_c_device_array__",
    "__arrow_c_device_stream__",
];

/// Whether [`grid_of`] makes a grid of an object.
pub(crate) fn is_table(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if object.is_instance_of::<PyType>() {
        return Ok(false);
    }
    let mut methods = OF_TABLES.iter();
    methods.try_fold(false, |is, method| Ok(is || object.hasattr(*method)?))
}

/// The grid that was passed under a name, or one over the object.
pub(crate) fn grid_of(object: &Bound<'_, PyAny>, name: &str) -> Outcome<Arc<PartitionGrid>> {
    if let Ok(grid) = object.cast::<PyGrid>() {
        return Ok(Arc::clone(grid.get().core()));
    }
    let object = &with_its_labels(object)?;
    // What is spread over processes comes as tiles that say where they are.
    if object.hasattr("__partitioned__")? {
        return Ok(Arc::clone(from_partitioned(object, None, None)?.core()));
    }
    if is_table(object)? {
        return Ok(Arc::new(grid_of_capsules(object, None)?));
    }
    let class = object.get_type().qualname()?;
    let text = format!(
        "{name} must be a grid, or an object with __arrow_c_stream__ or __partitioned__, got {class}"
    );
    Err(Error::new(ErrorKind::Protocol, text)
        .with_hint(remedy(object)?)
        .into())
}
