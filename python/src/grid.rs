//! `Grid` and `from_arrow`.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use partgrid::distarray::export;
use partgrid::error::Result as CoreResult;
use partgrid::grid::{Order, PartitionGrid, Ranks, picture};
use partgrid::load::{FileCompression, WriteOptions, write_grid};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyList, PySlice, PyTuple};
use pyo3_object_store::AnyObjectStore;

use crate::argument::{self, Given, Settings, optional};
use crate::capsule::{batches_of, c_stream, schema_capsule, stream_capsule};
use crate::convert;
use crate::device::{device_stream_capsule, refuse_reserved};
use crate::distarray::PyDistArray;
use crate::error::Outcome;
use crate::index::part;
use crate::numpy::{Wish, fill_value, to_numpy};
use crate::partitioned::{PyPartitioned, Wishes, dictionary, handles, partitioned};
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
    /// The communicator of the SPMD program of which the grid is a part.
    comm: Option<Py<PyAny>>,
}

impl PyGrid {
    pub(crate) fn new(core: PartitionGrid) -> Self {
        Self {
            core: Arc::new(core),
            handles: PyOnceLock::new(),
            comm: None,
        }
    }

    /// A grid of the ranks of a communicator.
    pub(crate) fn of_ranks(core: PartitionGrid, comm: Option<Py<PyAny>>) -> Self {
        Self {
            comm,
            ..Self::new(core)
        }
    }

    pub(crate) fn comm<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.comm.as_ref().map(|comm| comm.bind(py).clone())
    }

    pub(crate) fn core(&self) -> &Arc<PartitionGrid> {
        &self.core
    }

    pub(crate) fn handles<'py>(&self, py: Python<'py>) -> Outcome<&Bound<'py, PyList>> {
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

    /// In an SPMD program the number of this process; else `None`.
    #[getter]
    fn rank(&self) -> Option<usize> {
        self.core.ranks().map(Ranks::rank)
    }

    /// In an SPMD program how many ranks there are; else `None`.
    #[getter]
    fn num_ranks(&self) -> Option<usize> {
        self.core.ranks().map(Ranks::num_ranks)
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
    /// `(IP, PID)`. In an SPMD program `locals` has the positions of this rank, and the `data` of others is `None`; else there is no `locals`. The handles keep the grid alive in this process. Two keys are not in the draft: `schema`, a
    /// `Schema` with names and types, and `version`, the day of the draft.
    #[getter]
    fn __partitioned__<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyDict>> {
        dictionary(py, &self.core, self.handles(py)?)
    }

    /// The grid as an object with `__partitioned__` as one consumer wants it.
    ///
    /// `dialect="heat"` is for `heat.from_partitioned`: one tile for each rank, its values copied into one array, since HeAT writes into memory that is read-only. Each rank of an SPMD
    /// program (see `partgrid.engines.mpi`) must call it; an error of one is raised on all. `dialect="xgboost_ray"` is for `xgboost_ray.RayDMatrix` and `lightgbm_ray.RayDMatrix`: the rows
    /// as pandas frames in Ray's object store, where they are copied to, and where they stay as long as the object lives.
    ///
    /// Args:
    ///     data: What `get` gives: `"pandas"`, `"polars"`, `"pyarrow"`, `"arro3"`, `"numpy"` or `"tile"`; see `Get`. By default what the dialect has: `"pandas"`, for HeAT `"numpy"`.
    ///     dialect: `"draft"`, `"heat"` or `"xgboost_ray"`.
    ///     dtype: For HeAT: the type of the array; by default the one that `numpy.result_type` gives for the columns.
    ///     fill_null: For HeAT: the number that stands for nulls; without it they are refused.
    ///     copy: For HeAT: `False` gives views of dense tiles, which HeAT may write into.
    ///     num_actors: For xgboost_ray: the number of actors. Row bands are halved until there are as many, since an actor without any would train on all rows.
    ///
    /// Returns:
    ///     The object. It keeps the grid alive.
    ///
    /// Raises:
    ///     InvalidArgumentError: `data` or `dialect` is none of these, or an argument belongs to another dialect.
    ///     UnsupportedError: The consumer cannot hold the grid; the text says why.
    ///     InvalidDataError: For HeAT: a column has nulls and nothing stands for them, or a value that the type does not hold.
    ///     ValueError: `copy=False`, and a copy is needed.
    ///     ImportError: For xgboost_ray: Ray is missing.
    ///
    /// Warns:
    ///     UserWarning: There are fewer rows than actors; or ranks have other numbers of rows than HeAT would give them, and `balance_()` must be called on its array before others.
    #[expect(
        clippy::too_many_arguments,
        reason = "the keyword arguments that Python users expect"
    )]
    #[pyo3(signature = (data=None, *, dialect="draft", dtype=None, fill_null=None, copy=None, num_actors=None))]
    fn partitioned(
        slf: &Bound<'_, Self>,
        data: Option<&str>,
        dialect: &str,
        dtype: Option<&Bound<'_, PyAny>>,
        fill_null: Option<&Bound<'_, PyAny>>,
        copy: Option<bool>,
        num_actors: Option<Given<usize>>,
    ) -> Outcome<PyPartitioned> {
        let wishes = Wishes {
            data,
            dialect,
            dtype,
            fill_null,
            copy,
            num_actors: optional(num_actors, "num_actors")?,
        };
        partitioned(slf, &wishes)
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
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_pandas(slf.as_any())
    }

    /// The grid as a `polars.DataFrame`; polars copies strings into views of its own. Needs polars.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_polars(slf.as_any())
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
        let comm = self.comm(key.py()).map(Bound::unbind);
        if let Ok(pair) = key.cast::<PyTuple>() {
            let wrong = || {
                PyTypeError::new_err(
                    "two indices must be a slice of rows and names of columns, as in grid[10:20, [\"a\"]]; for several columns use grid[[\"a\", \"b\"]]",
                )
            };
            let (rows, columns): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
                pair.extract().map_err(|_| wrong())?;
            if !rows.is_instance_of::<PySlice>() || columns.is_instance_of::<PySlice>() {
                return Err(wrong().into());
            }
            let part = part(&part(&self.core, &rows)?, &columns)?;
            return Ok(Self::of_ranks(part, comm));
        }
        Ok(Self::of_ranks(part(&self.core, key)?, comm))
    }

    fn __repr__(&self) -> String {
        picture::summary(&self.core)
    }

    /// The grid for notebooks: a small picture of its tiles, and the columns.
    fn _repr_html_(&self) -> String {
        picture::html(&self.core)
    }
}

/// Makes a grid of any object with `__arrow_c_stream__` or `__arrow_c_array__`, one tile for each batch, without copying.
///
/// pyarrow tables and batches, polars, pandas 3, duckdb and arro3 frames have these methods. Objects that have only the methods for devices (`__arrow_c_device_stream__`,
/// `__arrow_c_device_array__`) are taken when their memory is that of the host. Sliced nested columns are the one exception: they are copied.
///
/// Args:
///     data: The object.
///
/// Returns:
///     A grid that shares the object's memory.
///
/// Raises:
///     ProtocolError: The object has none of these methods.
///     NotLocalError: Its memory is that of a device.
///     InvalidArgumentError: Two columns share a name.
///
/// Examples:
///     >>> import partgrid as pg, pyarrow as pa
///     >>> pg.from_arrow(pa.table({"a": [1, 2, 3]})).shape
///     (3, 1)
#[pyfunction]
pub(crate) fn from_arrow(data: &Bound<'_, PyAny>) -> Outcome<PyGrid> {
    if let Ok(grid) = data.cast::<PyGrid>() {
        return Ok(PyGrid::new(PartitionGrid::clone(grid.get().core())));
    }
    let (schema, batches) = batches_of(data)?;
    Ok(PyGrid::new(PartitionGrid::try_from_batches(
        schema, &batches,
    )?))
}
