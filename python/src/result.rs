//! `Result`: a planned query and its answer.

use std::sync::OnceLock;

use arrow::array::RecordBatch;
use futures::stream::{self, BoxStream};
use partgrid::client::Asked;
use partgrid::error::Error;
use partgrid::grid::PartitionGrid;
use partgrid::load::write_batches;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3_object_store::AnyObjectStore;

use crate::argument::{self, Given, Settings};
use crate::capsule::{schema_capsule, stream_capsule};
use crate::convert;
use crate::error::Outcome;
use crate::function::PyArguments;
use crate::grid::PyGrid;
use crate::metrics::{PyQueryMetrics, PyQueryProgress};
use crate::runtime::{Shared, runtime, wait, wait_and_tick};
use crate::schema::PySchema;
use crate::shown::{html, shown};
use crate::stream::QueryBatches;
use crate::wishes::{Names, Target, WriteWishes};

/// How many rows the repr of a result shows.
const SHOWN_ROWS: usize = 10;

/// How a run begins.
type Start = fn(&Asked) -> Result<BoxStream<'static, Result<RecordBatch, Error>>, Error>;

/// The result of a SQL query, worked out when it is asked for.
///
/// `to_arrow`, `to_pandas`, `to_polars` and any library that takes `__arrow_c_stream__` read it batch by batch as it is found. Its repr and `len` run it once and keep
/// the answer.
#[pyclass(name = "Result", module = "partgrid", frozen, weakref)]
pub(crate) struct PyQuery {
    text: String,
    query: Asked,
    /// The process that planned it.
    pid: u32,
    /// The answer, once something needed it whole.
    collected: OnceLock<Vec<RecordBatch>>,
}

impl PyQuery {
    pub(crate) fn new(text: String, query: impl Into<Asked>) -> Self {
        Self {
            text,
            query: query.into(),
            pid: std::process::id(),
            collected: OnceLock::new(),
        }
    }

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
        let batches = self.shown(py, async move { query.collect().await })?;
        Ok(self.collected.get_or_init(|| batches))
    }

    /// Waits for a run of the query, with a bar where a person sees it.
    fn shown<T: Send>(
        &self,
        py: Python<'_>,
        run: impl Future<Output = Result<T, Error>> + Send,
    ) -> Outcome<T> {
        let bar = Bar::new(py)?;
        let done = wait_and_tick(py, run, || bar.show(py, &self.query));
        bar.close(py)?;
        done
    }

    /// A capsule of the kept answer, or of a run that begins now.
    fn capsule<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        start: Start,
    ) -> Outcome<Bound<'py, PyCapsule>> {
        let schema = self.query.schema();
        if let Some(batches) = self.collected.get() {
            let batches = batches.clone().into_iter().map(Ok);
            return stream_capsule(py, schema, batches, requested_schema);
        }
        let batches = self.run(py, start)?;
        stream_capsule(py, schema, batches, requested_schema)
    }

    /// A run that begins now.
    fn run(&self, py: Python<'_>, start: Start) -> Outcome<QueryBatches> {
        self.check_process()?;
        let stream = {
            let _entered = runtime()?.enter();
            start(&self.query)?
        };
        let bar = Bar::new(py)?;
        Ok(QueryBatches::new(stream.into(), self.query.clone(), bar))
    }

    fn num_rows(&self, py: Python<'_>) -> Outcome<usize> {
        Ok(self.collected(py)?.iter().map(RecordBatch::num_rows).sum())
    }

    /// The first rows as a table of text, and a line that says what is left out.
    fn table(&self, py: Python<'_>, most_rows: usize) -> Outcome<String> {
        let batches = self.collected(py)?;
        Ok(shown(&self.query.schema(), batches, most_rows)?)
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

    /// The columns of the answer, without running the query.
    #[getter]
    fn schema(&self) -> PySchema {
        PySchema::new(self.query.schema())
    }

    /// The physical plan, one operator a line. `GridScanExec` says how many tiles are read, of how many.
    ///
    /// Args:
    ///     analyze: Whether to run the query first, drop its rows, and show what each operator counted.
    #[pyo3(signature = (*, analyze: "bool" = false))]
    fn explain(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = argument::analyze)] analyze: bool,
    ) -> Outcome<String> {
        if let (Asked::Here(query), false) = (&self.query, analyze) {
            return Ok(query.explain());
        }
        self.check_process()?;
        let query = self.query.clone();
        self.shown(py, async move { query.explain(analyze).await })
    }

    /// Ends all runs that go on at this moment, from any thread: whoever waits for them gets a `CancelledError`. Later runs are not touched, and an answer that is kept stays.
    fn cancel(&self, py: Python<'_>) -> Outcome<()> {
        if let Asked::Here(query) = &self.query {
            query.cancel();
            return Ok(());
        }
        self.check_process()?;
        let query = self.query.clone();
        wait(py, async move { query.cancel().await })
    }

    /// How far the run is that began last; `None` before the first. May be asked from another thread.
    fn progress(&self) -> Option<PyQueryProgress> {
        self.query.progress().map(PyQueryProgress::from)
    }

    /// What the run did that began last, so far or until it ended; `None` before the first. May be asked from another thread.
    ///
    /// Examples:
    ///     >>> import partgrid as pg
    ///     >>> result = pg.read_parquet("data/flights").sql("SELECT avg(dep_delay) FROM self WHERE month = 7")
    ///     >>> result.metrics is None
    ///     True
    ///     >>> metrics = result.collect().metrics
    ///     >>> metrics.read_tiles, metrics.tiles, metrics.copied_bytes
    ///     (1, 12, 0)
    ///     >>> metrics.groups["memory"]["rows"]
    ///     29425
    #[getter]
    fn metrics(&self) -> Option<PyQueryMetrics> {
        self.query.metrics().map(PyQueryMetrics::from)
    }

    /// Runs the query now and keeps the answer, so that nothing runs it again.
    ///
    /// Returns:
    ///     The same result.
    ///
    /// Raises:
    ///     ResourcesExhaustedError: The query ran out of memory or time, or its answer has no room within the memory limit.
    ///     CancelledError: `cancel` was called.
    fn collect(slf: &Bound<'_, Self>) -> Outcome<Py<Self>> {
        slf.get().collected(slf.py())?;
        Ok(slf.clone().unbind())
    }

    /// The answer batch by batch. The query starts now, runs a few batches ahead, and stops when the iterator is dropped. Needs pyarrow.
    ///
    /// Returns:
    ///     An iterator of `pyarrow.RecordBatch`.
    ///
    /// Examples:
    ///     >>> import partgrid as pg
    ///     >>> result = pg.sql("SELECT * FROM f", f=pg.read_parquet("data/flights"))
    ///     >>> sum(batch.num_rows for batch in result.stream())
    ///     336776
    fn stream(&self, py: Python<'_>) -> Outcome<PyStream> {
        Ok(PyStream {
            batches: self.run(py, Asked::stream)?,
        })
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
        convert::to_arrow(Kept::of(slf)?.as_any())
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
        convert::to_labelled_pandas(Kept::of(slf)?.as_any(), &slf.get().query.schema(), index)
    }

    /// The answer as a `polars.DataFrame`. Needs polars.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_polars(Kept::of(slf)?.as_any(), &slf.get().query.schema())
    }

    /// Refused: without this method numpy would make an array of one object.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__(
        &self,
        dtype: Option<Bound<'_, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'_, PyAny>> {
        drop((dtype, copy));
        Err(convert::refuse_numpy(
            "a result of SQL",
            "numpy.asarray(result.to_grid())",
        ))
    }

    /// The answer as a grid, one tile for each batch, in the memory of this process.
    fn to_grid(&self, py: Python<'_>) -> Outcome<PyGrid> {
        let batches = self.collected(py)?;
        let grid = PartitionGrid::try_from_batches(self.query.schema(), batches)?;
        Ok(PyGrid::new(grid))
    }

    /// Writes the answer as Parquet files while it is found, named `part-00000.parquet` and so on in the order of the rows: an answer may be larger than memory.
    ///
    /// A file has 1,048,576 rows or so, fewer where rows are long. A run of so many for each core is in memory at a time, outside the memory limit of the session; with `partition_by` another 256 MiB of rows are gathered, so that each folder has few files.
    ///
    /// All files or none, as `Grid.write_parquet` writes them: after an error, or where the query is cancelled, none is left, and those that were to be replaced are there as before.
    ///
    /// Args:
    ///     url: The folder, or a URL as `read_parquet` takes it. It is made if it is not there.
    ///     partition_by: A name or a list of names of columns of integers, dates or texts (or dictionaries of them): the rows of each combination of their values come into a folder `name=value` of their own. Folder names have no types: integers
    ///         come back as int64, and texts that all look like integers or dates as those, unless two of them are one number.
    ///     compression: `"zstd"`, `"snappy"`, `"lz4"`, `"gzip"`, `"brotli"` or `"none"`, in any case; `None` is `"none"`.
    ///     overwrite: Whether to replace the files `part-….parquet` in the folder and in its folders `name=value`, which the query may read. Without it a folder with data files is refused, and one with other data files
    ///         always.
    ///     storage_options: Settings for the store of the URL, as `read_parquet` takes them.
    ///     store: A store built with obstore; `url` is then a path in it.
    ///
    /// Returns:
    ///     The number of files.
    ///
    /// Raises:
    ///     InvalidArgumentError: The folder holds data files, two columns have one name, or an argument makes no sense.
    ///     NotFoundError: A name in `partition_by` does not exist.
    ///     UnsupportedError: Parquet has no such type.
    ///     StorageError: The file system or store failed.
    ///     ResourcesExhaustedError: The query ran out of memory or time.
    ///     CancelledError: `cancel` was called.
    ///
    /// Examples:
    ///     >>> import partgrid as pg, tempfile
    ///     >>> late = pg.read_parquet("data/flights").sql("SELECT * FROM self WHERE dep_delay > 600 ORDER BY dep_delay")
    ///     >>> with tempfile.TemporaryDirectory() as folder:
    ///     ...     late.write_parquet(folder + "/late"), pg.read_parquet(folder + "/late").shape
    ///     (1, (40, 19))
    #[expect(
        clippy::too_many_arguments,
        reason = "the keyword arguments that Python users expect"
    )]
    #[pyo3(signature = (url, *, partition_by=None, compression: "str | None" = "zstd", overwrite: "bool" = false, storage_options=None, store=None))]
    fn write_parquet(
        &self,
        py: Python<'_>,
        url: Given<Target>,
        partition_by: Option<Given<Names>>,
        #[pyo3(from_py_with = argument::compression)] compression: &str,
        #[pyo3(from_py_with = argument::overwrite)] overwrite: bool,
        storage_options: Option<Given<Settings>>,
        store: Option<Given<AnyObjectStore>>,
    ) -> Outcome<u64> {
        let wishes = WriteWishes {
            partition_by,
            compression,
            overwrite,
            storage_options,
            store,
        };
        let url = wishes.place(url)?;
        let options = wishes.into_options()?;
        let schema = self.query.schema();
        if let Some(batches) = self.collected.get() {
            let batches = stream::iter(batches.clone().into_iter().map(Ok));
            return wait(py, write_batches(schema, batches, &url, &options));
        }
        self.check_process()?;
        let query = self.query.clone();
        self.shown(py, async move {
            write_batches(schema, query.stream()?, &url, &options).await
        })
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
        self.capsule(py, requested_schema, Asked::stream)
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

    /// The first rows for notebooks, as the repr has them.
    fn _repr_html_(&self, py: Python<'_>) -> Outcome<String> {
        let batches = self.collected(py)?;
        Ok(html(&self.query.schema(), batches, SHOWN_ROWS)?)
    }
}

/// A result for a reader who keeps the whole answer, which then counts against the memory limit.
#[pyclass(name = "_Kept", module = "partgrid", frozen)]
pub(crate) struct Kept {
    result: Py<PyQuery>,
}

impl Kept {
    fn of<'py>(result: &Bound<'py, PyQuery>) -> PyResult<Bound<'py, Self>> {
        let kept = Self {
            result: result.clone().unbind(),
        };
        Bound::new(result.py(), kept)
    }
}

#[pymethods]
impl Kept {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> Outcome<Bound<'py, PyCapsule>> {
        self.result
            .get()
            .capsule(py, requested_schema, Asked::stream_to_keep)
    }
}

/// A bar of `partgrid._progress`, if a person sees one.
pub(crate) struct Bar(Option<Shared>);

impl Bar {
    fn new(py: Python<'_>) -> PyResult<Self> {
        let bar = py
            .import("partgrid._progress")?
            .call_method1("bar", (py.None(),))?;
        Ok(Self((!bar.is_none()).then(|| Shared::new(bar.unbind()))))
    }

    /// Shows how far a query is.
    pub(crate) fn show(&self, py: Python<'_>, query: &Asked) -> PyResult<()> {
        let (Some(bar), Some(core)) = (&self.0, query.progress()) else {
            return Ok(());
        };
        bar.bind(py)
            .call_method1("show", (PyQueryProgress::from(core),))
            .map(drop)
    }

    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        match &self.0 {
            Some(bar) => bar.bind(py).call_method0("close").map(drop),
            None => Ok(()),
        }
    }
}

/// The batches of a result, made by `Result.stream`. For one thread at a time.
#[pyclass(name = "ResultStream", module = "partgrid")]
pub(crate) struct PyStream {
    batches: QueryBatches,
}

#[pymethods]
impl PyStream {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> Outcome<Option<Bound<'py, PyAny>>> {
        let Some(batch) = self.batches.next().transpose()? else {
            return Ok(None);
        };
        let batch = Bound::new(py, PyArguments::new(batch))?;
        Ok(Some(convert::to_arrow_batch(batch.as_any())?))
    }

    /// Stops the query; there are no more batches.
    fn close(&mut self) {
        self.batches.stop();
    }

    /// `with` closes it at the end.
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&mut self, _exception: &Bound<'_, PyAny>) {
        self.close();
    }
}
