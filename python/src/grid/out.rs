//! Grids to files, and to frames and arrays of other libraries.
//!
//! Comes in: a grid, and what is wanted of it. Goes out: objects over the same memory where the library has the type. Never here: protocols (`protocols.rs`).

use partgrid::device::grid_to;
use partgrid::grid::Order;
use partgrid::load::write_grid;
use partgrid::location::Device;
use pyo3::prelude::*;
use pyo3_object_store::AnyObjectStore;

use super::PyGrid;
use crate::argument::{self, Given, Settings, optional};
use crate::convert;
use crate::error::Outcome;
use crate::numpy::{Wish, fill_value, to_numpy};
use crate::runtime::wait;
use crate::wishes::{Names, Target, WriteWishes};

#[pymethods]
impl PyGrid {
    /// Writes the grid as Parquet files, one for each row band, named `part-00000.parquet` and so on in the order of the rows.
    ///
    /// All files or none: they are written into a hidden folder beside the other, flushed to the disk, and become visible in one step, as do those that replace others. Only
    /// where that cannot be (other files lie in the folder, it is a mount point) they are moved one by one, and moved back after an error. In an object store each becomes
    /// visible when it is whole, and those that replace others are called otherwise (`part-00000-1f0c22d8.parquet`): after an error they are taken away again, and the others are as they were.
    ///
    /// Args:
    ///     url: The folder, or a URL as `read_parquet` takes it. It is made if it is not there.
    ///     partition_by: A name or a list of names of columns of integers, dates or texts (or dictionaries of them): the rows of each combination of their values come into a folder `name=value` of their own. Folder names
    ///         have no types: integers come back as int64, and texts that all look like integers or dates as those, unless two of them are one number.
    ///     compression: `"zstd"`, `"snappy"`, `"lz4"`, `"gzip"`, `"brotli"` or `"none"`, in any case; `None` is `"none"`.
    ///     file_per_tile: Whether each tile gets a file, with the columns of its column band only: files for other programs, since `read_parquet` wants all columns in each file.
    ///     overwrite: Whether to replace the files `part-….parquet` in the folder and in its folders `name=value`. Without it a folder with data files is refused, and one with other data files always.
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
        url: Given<Target>,
        partition_by: Option<Given<Names>>,
        #[pyo3(from_py_with = argument::compression)] compression: &str,
        #[pyo3(from_py_with = argument::file_per_tile)] file_per_tile: bool,
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
        let options = wishes.into_options()?.with_file_per_tile(file_per_tile);
        wait(py, write_grid(&self.core, &url, &options))
    }

    /// The grid with its tiles in the memory of a device.
    ///
    /// Args:
    ///     device: Such as `"kDLCUDA:0"`, or `"kDLCPU"` for the memory of this process.
    ///
    /// Returns:
    ///     A grid of the same cuts. Each tile is copied whole, one after the other; tiles that are there already are shared, and those of other ranks stay where they are.
    ///
    /// Raises:
    ///     UnsupportedError: Nothing copies to such a device; `register_copy_engine` takes what does.
    ///     NotFoundError: The driver of the device is not on this machine, or the device is not.
    ///     ResourcesExhaustedError: The device has no room.
    ///
    /// Examples:
    ///     >>> import partgrid as pg, pyarrow as pa
    ///     >>> pg.from_arrow(pa.table({"a": [1, 2]})).to("cuda")
    ///     Traceback (most recent call last):
    ///     partgrid.errors.InvalidArgumentError: device must be a device such as 'kDLCPU' or 'kDLCUDA:0', got 'cuda'
    ///     hint: device='kDLCUDA:0'
    fn to(&self, py: Python<'_>, device: Given<Device>) -> Outcome<Self> {
        let device = device.named("device")?;
        let moved = wait(py, grid_to(&self.core, device))?;
        let comm = self.comm.as_ref().map(|comm| comm.clone_ref(py));
        Ok(Self::of_ranks(moved, comm))
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
        convert::to_polars(slf.as_any(), slf.get().core.schema())
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

    /// NumPy: what `to_numpy` gives, in C order where it is copied. Needs numpy.
    ///
    /// Args:
    ///     dtype: The type of the array; by default the one that `numpy.result_type` gives for the columns.
    ///     copy: `True` copies always, `None` when it must, `False` never.
    ///
    /// Raises:
    ///     UnsupportedError: A column has a type that is no plain number.
    ///     InvalidDataError: A column has nulls, or a value that the type does not hold.
    ///     ValueError: `copy=False`, and a copy is needed.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> Outcome<Bound<'py, PyAny>> {
        let wish = Wish {
            dtype,
            fill: None,
            order: Order::Rows,
            copy,
        };
        to_numpy(py, &self.core, &wish)
    }
}
