//! `Grid`.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use partgrid::distarray::export;
use partgrid::error::Result as CoreResult;
use partgrid::grid::{Order, PartitionGrid, picture};
use partgrid::load::{FileCompression, WriteOptions, write_grid};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyList, PyTuple};
use pyo3_object_store::AnyObjectStore;

use crate::argument::{self, Given, Settings, optional};
use crate::capsule::{c_stream, schema_capsule, stream_capsule};
use crate::convert;
use crate::device::{device_stream_capsule, refuse_reserved};
use crate::distarray::PyDistArray;
use crate::error::Outcome;
use crate::index::indexed;
use crate::numpy::{Wish, fill_value, to_numpy};
use crate::partitioned::{DataKind, PyPartitioned, dictionary, handles};
use crate::query::{PyQuery, sql};
use crate::runtime::wait;
use crate::tile::PyTile;
use crate::wishes::{Names, text_of};

/// A dataframe cut into a grid of tiles: axis 0 is rows, axis 1 columns. Never changes; what looks like a change makes a new grid that shares the tiles.
///
/// Made by `read_parquet`, `from_arrow`, `Result.to_grid`, or by indexing another grid: `grid["a"]` and `grid[["a", "b"]]` are grids of these columns, `grid[10:20]` is
/// a grid of these rows, `grid[10:20, ["a"]]` of both. Nothing is copied by any of them.
#[pyclass(name = "Grid", module = "partgrid", frozen)]
pub(crate) struct PyGrid {
    core: Arc<PartitionGrid>,
    /// The handles of all tiles, made once so that they keep their identity.
    handles: PyOnceLock<Py<PyList>>,
}

impl PyGrid {
    pub(crate) fn new(core: PartitionGrid) -> Self {
        Self {
            core: Arc::new(core),
            handles: PyOnceLock::new(),
        }
    }

    pub(crate) fn core(&self) -> &Arc<PartitionGrid> {
        &self.core
    }

    fn handles<'py>(&self, py: Python<'py>) -> Outcome<&Bound<'py, PyList>> {
        let made = || handles(py, &self.core);
        Ok(self.handles.get_or_try_init(py, made)?.bind(py))
    }

    /// The row bands as batches, opened when they are asked for.
    fn row_bands(&self) -> impl Iterator<Item = CoreResult<RecordBatch>> + Send + use<> {
        let grid = Arc::clone(&self.core);
        let bands = 0..grid.rows().num_intervals();
        bands.map(move |row_band| grid.open_row_band(row_band))
    }

    fn make_tile(&self, position: Vec<usize>) -> Outcome<PyTile> {
        PyTile::try_new(Arc::clone(&self.core), position)
    }
}

#[pymethods]
impl PyGrid {
    /// Rows and columns.
    #[getter]
    fn shape(&self) -> (u64, usize) {
        (self.core.num_rows(), self.core.num_columns())
    }

    /// The number of tiles along rows and columns.
    #[getter]
    fn tiling(&self) -> (usize, usize) {
        (
            self.core.rows().num_intervals(),
            self.core.columns().num_intervals(),
        )
    }

    /// The cut points of the rows and of the columns: they start at 0 and end with the shape.
    #[getter]
    fn cuts<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyTuple>)> {
        Ok((
            PyTuple::new(py, self.core.rows().cuts())?,
            PyTuple::new(py, self.core.columns().cuts())?,
        ))
    }

    /// The names of the columns, in order.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let fields = self.core.schema().fields();
        fields.iter().map(|field| field.name().clone()).collect()
    }

    /// The schema as a `pyarrow.Schema`. Needs pyarrow; other libraries take the grid itself, which has `__arrow_c_schema__`.
    #[getter]
    fn schema<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_arrow_schema(slf.as_any())
    }

    /// The columns by which rows are sorted, with their directions; empty when nothing is known.
    ///
    /// Holds from the first row to the last; of a grid with `partitioned_by`, within each row band. Nulls come last in either direction.
    ///
    /// Examples:
    ///     >>> import partgrid as pg
    ///     >>> pg.read_parquet("data/flights", columns=["day"], sort_by=("day", "descending")).sorted_by
    ///     [('day', 'descending')]
    #[getter]
    fn sorted_by(&self) -> Vec<(String, &'static str)> {
        let columns = self.core.order().sorted_by.iter();
        let pairs = columns.map(|column| {
            let direction = if column.descending {
                "descending"
            } else {
                "ascending"
            };
            (column.name.clone(), direction)
        });
        pairs.collect()
    }

    /// The columns whose values decide in which row band a row is; empty when nothing is known.
    ///
    /// Of n row bands it is number `h % n`, where `h` is the XXH64 (seed 0) of the values in Arrow's row format.
    #[getter]
    fn partitioned_by(&self) -> Vec<String> {
        self.core.order().partitioned_by.clone()
    }

    /// The bytes of all tiles together, without what they share with others.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.core.memory_bytes()
    }

    /// All tiles in row-major order.
    #[getter]
    fn tiles(&self) -> Outcome<Vec<PyTile>> {
        self.core
            .geometry()
            .positions()
            .map(|position| self.make_tile(position))
            .collect()
    }

    /// The tile at a position.
    ///
    /// Args:
    ///     row_band: The number along the rows.
    ///     column_band: The number along the columns.
    ///
    /// Returns:
    ///     The tile, which shares the grid's memory.
    ///
    /// Raises:
    ///     NotFoundError: The position lies outside the grid.
    ///     InvalidArgumentError: A number is negative, or no whole number.
    #[pyo3(signature = (row_band, column_band: "int" = 0))]
    fn tile(
        &self,
        row_band: Given<usize>,
        #[pyo3(from_py_with = argument::column_band)] column_band: usize,
    ) -> Outcome<PyTile> {
        self.make_tile(vec![row_band.named("row_band")?, column_band])
    }

    /// The `__partitioned__` protocol (draft of 2022-01-27), exactly: a fresh plain dictionary at each access.
    ///
    /// `shape`, `partition_tiling`, `partitions` (every position, with `start`, `shape`, `data`, `location`) and `get`. `data` is a handle that pickles with the standard
    /// library; `get` takes one handle, a list or a tuple and returns `pandas.DataFrame` objects over the tile's memory, without copying. `location` is a list of
    /// `(IP, PID)`. There is no `locals`, since this is not a rank of an SPMD program. The handles keep the grid alive in this process. Two keys are not in the draft: `schema`, a
    /// `Schema` with names and types, and `version`, the day of the draft.
    #[getter]
    fn __partitioned__<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyDict>> {
        dictionary(py, &self.core, self.handles(py)?, DataKind::Pandas)
    }

    /// The grid as an object with `__partitioned__` whose `get` gives data of a library of your choice.
    ///
    /// Args:
    ///     data: `"pandas"`, `"polars"`, `"pyarrow"`, `"arro3"`, `"numpy"` or `"tile"`; see `Get`.
    ///
    /// Returns:
    ///     The object. It keeps the grid alive.
    ///
    /// Raises:
    ///     InvalidArgumentError: `data` is none of these.
    #[pyo3(signature = (data="pandas"))]
    fn partitioned(&self, py: Python<'_>, data: &str) -> Outcome<PyPartitioned> {
        let kind = DataKind::from_name(data)?;
        let handles = self.handles(py)?.clone().unbind();
        Ok(PyPartitioned::new(Arc::clone(&self.core), handles, kind))
    }

    /// Writes the grid as Parquet files, one for each row band, named `part-00000.parquet` and so on in the order of the rows.
    ///
    /// All files or none: they are written into a hidden folder beside the other, flushed to the disk, and become visible in one step, as do those that replace others. Only
    /// where that cannot be (other files lie in the folder, it is a mount point) they are moved one by one, and moved back after an error. In an object store each becomes
    /// visible when it is whole; after an error those are taken away again, but others that had their names are gone.
    ///
    /// Args:
    ///     url: The folder, or a URL as `read_parquet` takes it. It is made if it is not there.
    ///     partition_by: A name or a list of names of columns of integers, dates or texts: the rows of each combination of their values come into a folder `name=value` of their own. Folder names
    ///         have no types: integers come back as int64, and texts that all look like integers or dates as those.
    ///     compression: `"zstd"`, `"snappy"`, `"lz4"`, `"gzip"`, `"brotli"` or `"none"`, in any case; `None` is `"none"`.
    ///     file_per_tile: Whether each tile gets a file, with the columns of its column band only: files for other programs, since `read_parquet` wants all columns in each file.
    ///     overwrite: Whether to replace the files `part-….parquet` in the folder and below it. Without it a folder with data files is refused, and one with other data files always.
    ///     storage_options: Settings for the store of the URL, as `read_parquet` takes them.
    ///     store: A store built with obstore; `url` is then a path in it.
    ///
    /// Returns:
    ///     The number of files.
    ///
    /// Raises:
    ///     InvalidArgumentError: The folder holds data files, or an argument makes no sense.
    ///     NotFoundError: A name in `partition_by` does not exist.
    ///     UnsupportedError: Parquet has no such type.
    ///     StorageError: The file system or store failed.
    #[expect(
        clippy::too_many_arguments,
        reason = "the keyword arguments that Python users expect"
    )]
    #[pyo3(signature = (url, *, partition_by=None, compression: "str | None" = "zstd", file_per_tile: "bool" = false, overwrite: "bool" = false, storage_options=None, store=None))]
    fn write_parquet(
        &self,
        py: Python<'_>,
        url: Given<PathBuf>,
        partition_by: Option<Given<Names>>,
        #[pyo3(from_py_with = argument::compression)] compression: &str,
        #[pyo3(from_py_with = argument::file_per_tile)] file_per_tile: bool,
        #[pyo3(from_py_with = argument::overwrite)] overwrite: bool,
        storage_options: Option<Given<Settings>>,
        store: Option<Given<AnyObjectStore>>,
    ) -> Outcome<u64> {
        let partition_by = optional(partition_by, "partition_by")?;
        let settings = optional(storage_options, "storage_options")?;
        let mut options = WriteOptions::default()
            .with_compression(FileCompression::from_name(&compression.to_lowercase())?)
            .with_partition_by(partition_by.map(|names| names.0).unwrap_or_default())
            .with_file_per_tile(file_per_tile)
            .with_overwrite(overwrite)
            .with_storage_options(settings.into_iter().flatten().collect());
        if let Some(store) = optional(store, "store")? {
            options = options.with_store(store.into_dyn());
        }
        let url = text_of(url.named("url")?)?;
        wait(py, write_grid(&self.core, &url, &options))
    }

    /// A numeric column as sections of the Distributed Array Protocol (version 0.10.0), one for each tile, without copying.
    ///
    /// Args:
    ///     column: The name of an integer or float column without nulls.
    ///
    /// Returns:
    ///     The distributed array: one block-distributed dimension, cut where the grid cuts its rows.
    ///
    /// Raises:
    ///     NotFoundError: There is no such column.
    ///     UnsupportedError: The column has a type that is no plain number; the text says what to cast.
    ///     InvalidDataError: The column has nulls; the text says how many, and the first tile with one.
    ///
    /// Examples:
    ///     >>> import partgrid as pg
    ///     >>> array = pg.read_parquet("data/flights").distarray("distance")
    ///     >>> array.shape, len(array.sections)
    ///     ((336776,), 12)
    ///     >>> array.sections[0].__distarray__()["dim_data"][0]["stop"]
    ///     27004
    fn distarray(&self, column: Given<String>) -> Outcome<PyDistArray> {
        let column = column.named("column")?;
        Ok(PyDistArray::new(export(&self.core, &column)?))
    }

    /// Runs SQL over this grid under the name `self`.
    ///
    /// Args:
    ///     query: The SQL text, for instance `SELECT carrier, count(*) FROM self GROUP BY carrier`.
    ///
    /// Returns:
    ///     A result that has not run yet.
    ///
    /// Raises:
    ///     QueryError: The SQL is wrong.
    fn sql(slf: &Bound<'_, Self>, query: Given<String>) -> Outcome<PyQuery> {
        let grids = PyDict::new(slf.py());
        grids.set_item("self", slf)?;
        sql(slf.py(), query, Some(&grids))
    }

    /// The grid as a `pyarrow.Table`, one chunk for each row band, without copying. Needs pyarrow.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_arrow(slf.as_any())
    }

    /// The grid as a `pandas.DataFrame` of Arrow-backed columns, without copying. Needs pandas and pyarrow.
    ///
    /// Args:
    ///     index: A name or a list of names of columns that become the row labels, as `from_pandas(index="keep")` made columns of them. By default rows are numbered.
    ///
    /// Returns:
    ///     The frame.
    ///
    /// Raises:
    ///     NotFoundError: There is no such column.
    ///
    /// Examples:
    ///     >>> import pandas as pd, partgrid as pg
    ///     >>> grid = pg.from_pandas(pd.DataFrame({"v": [1, 2]}, index=pd.Index(["x", "y"], name="k")), index="keep")
    ///     >>> grid.to_pandas(index="k").loc["y", "v"]
    ///     2
    #[pyo3(signature = (*, index=None))]
    fn to_pandas<'py>(
        slf: &Bound<'py, Self>,
        index: Option<Given<Names>>,
    ) -> Outcome<Bound<'py, PyAny>> {
        convert::to_labelled_pandas(slf.as_any(), slf.get().core.schema(), index)
    }

    /// The grid as a `polars.DataFrame`; polars copies strings into views of its own. Needs polars.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_polars(slf.as_any())
    }

    /// The grid as a `dask.dataframe.DataFrame`: one partition for each row band, of Arrow-backed columns, with row numbers as labels. Needs dask and pandas.
    ///
    /// Tiles are opened when dask computes. In this process nothing is copied; for workers that are other processes the tiles are written as Arrow IPC and go along. Rows are numbered
    /// through the whole frame; divisions are known unless a row band is empty.
    ///
    /// Examples:
    ///     >>> import partgrid as pg
    ///     >>> pg.read_parquet("data/flights").to_dask().npartitions  # doctest: +SKIP
    ///     12
    fn to_dask<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_engine("partgrid.engines.dask", "to_dask", slf.as_any())
    }

    /// The grid as a `modin.pandas.DataFrame` of Arrow-backed columns: one of its partitions for each tile, with row numbers as labels. Needs Modin on Ray or Dask.
    ///
    /// Every tile is copied to the workers of Modin's engine, and a lazy one is read.
    ///
    /// Raises:
    ///     UnsupportedError: Modin runs on another engine.
    fn to_modin<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_engine("partgrid.engines.modin", "to_modin", slf.as_any())
    }

    /// The grid as one 2-D `numpy.ndarray` of rows x columns. Needs numpy.
    ///
    /// A copy that may be written, unless the grid is one tile whose columns lie in one allocation (a single column, or as `dense=` of a load places them): that is a read-only
    /// view of the tile's memory. Values are never rounded: one that the type of the array does not hold exactly is an error.
    ///
    /// Args:
    ///     columns: The names of integer and float columns; by default all.
    ///     dtype: The type of the array; by default the one that `numpy.result_type` gives for the columns.
    ///     fill_null: The number that stands for nulls. It must be a value of the array's type exactly.
    ///     order: `"F"` puts the elements of a column next to each other, as Arrow does, `"C"` those of a row.
    ///     copy: `True` copies always, `None` when it must, `False` never.
    ///
    /// Returns:
    ///     The array.
    ///
    /// Raises:
    ///     NotFoundError: There is no such column.
    ///     UnsupportedError: A column has a type that is no plain number; the text says what to cast.
    ///     InvalidDataError: A column has nulls and nothing stands for them, or a value that the type does not hold.
    ///     InvalidArgumentError: The type is no plain number, or does not hold `fill_null` exactly.
    ///     ValueError: `copy=False`, and a copy is needed.
    ///
    /// Examples:
    ///     >>> import partgrid as pg
    ///     >>> flights = pg.read_parquet("data/flights")
    ///     >>> flights.to_numpy(["dep_delay", "distance"], fill_null=float("nan")).shape
    ///     (336776, 2)
    #[expect(
        clippy::too_many_arguments,
        reason = "the keyword arguments that Python users expect"
    )]
    #[pyo3(signature = (columns=None, *, dtype=None, fill_null=None, order="F", copy=None))]
    fn to_numpy<'py>(
        &self,
        py: Python<'py>,
        columns: Option<Given<Vec<String>>>,
        dtype: Option<&Bound<'py, PyAny>>,
        fill_null: Option<&Bound<'py, PyAny>>,
        order: &str,
        copy: Option<bool>,
    ) -> Outcome<Bound<'py, PyAny>> {
        let wish = Wish {
            dtype,
            fill: fill_value(fill_null)?,
            order: Order::from_letter(order)?,
            copy,
        };
        match optional(columns, "columns")? {
            Some(columns) => to_numpy(py, &self.core.select(&columns)?, &wish),
            None => to_numpy(py, &self.core, &wish),
        }
    }

    /// The Arrow PyCapsule interface: a stream of one batch for each row band, without copying.
    ///
    /// Args:
    ///     requested_schema: A schema capsule with the same column names; values are cast to its types.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> Outcome<Bound<'py, PyCapsule>> {
        let schema = Arc::clone(self.core.schema());
        stream_capsule(py, schema, self.row_bands(), requested_schema)
    }

    /// The Arrow PyCapsule interface for devices: the same stream, of memory of the CPU.
    ///
    /// Args:
    ///     requested_schema: A schema capsule with the same column names; values are cast to its types.
    ///     kwargs: Reserved by the interface.
    ///
    /// Raises:
    ///     NotImplementedError: A keyword argument other than `None`.
    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> Outcome<Bound<'py, PyCapsule>> {
        refuse_reserved(kwargs)?;
        let schema = Arc::clone(self.core.schema());
        device_stream_capsule(py, c_stream(schema, self.row_bands(), requested_schema)?)
    }

    /// The Arrow PyCapsule interface: the schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyCapsule>> {
        schema_capsule(py, self.core.schema())
    }

    /// The number of rows.
    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.core.num_rows())?)
    }

    /// Iterating would have to choose between rows, columns and tiles.
    #[classattr]
    #[pyo3(name = "__iter__")]
    fn iterate() -> Option<()> {
        None
    }

    fn __contains__(&self, column: &str) -> bool {
        self.core.column_index(column).is_ok()
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> Outcome<Self> {
        Ok(Self::new(indexed(&self.core, key)?))
    }

    fn __repr__(&self) -> String {
        picture::summary(&self.core)
    }

    /// The grid for notebooks: a small picture of its tiles, and the columns.
    fn _repr_html_(&self) -> String {
        picture::html(&self.core)
    }
}
