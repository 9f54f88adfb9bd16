//! `Tile`.

use std::sync::{Arc, OnceLock, Weak};

use partgrid::device::{readable_device, tile_to};
use partgrid::error::format_position;
use partgrid::grid::{FillValue, Numbers, PartitionGrid, Region, Tile, picture};
use partgrid::location::{Device, Location};
use partgrid::share::{self, Handle};
use partgrid::storage::Storage;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::argument::{Given, optional};
use crate::array::PyArray;
use crate::capsule::{array_capsules, schema_capsule};
use crate::column::PyDeviceColumn;
use crate::convert;
use crate::device::{
    device_array_capsules, device_batch, device_capsules, refuse_cast, refuse_reserved,
};
use crate::error::Outcome;
use crate::numpy::fill_value;
use crate::partitioned::location_tuple;
use crate::runtime::{Aside, wait};
use crate::storage::{Labels, PyStorage};

/// The data at one position of a grid: a contiguous Arrow record batch that lives somewhere.
///
/// A tile shares the memory of its grid and keeps it alive. Pickles with the standard library, without data: another process can open it as long as this tile, or
/// the grid that it was taken from, is there. Any library that takes `__arrow_c_array__` or `__arrow_c_device_array__` reads it without copying.
#[pyclass(name = "Tile", module = "partgrid", frozen, weakref)]
pub(crate) struct PyTile {
    tile: Aside<Tile>,
    position: Vec<usize>,
    region: Region,
    /// The grid that it was taken from, as long as somebody has that.
    grid: Weak<PartitionGrid>,
    /// Its handle, once it was pickled or if it came by one, and the grid that must be kept for it.
    handle: OnceLock<(Handle, Option<Aside<Arc<PartitionGrid>>>)>,
}

impl PyTile {
    pub(crate) fn new(tile: Tile, position: Vec<usize>, region: Region) -> Self {
        Self {
            tile: Aside::new(tile),
            position,
            region,
            grid: Weak::new(),
            handle: OnceLock::new(),
        }
    }

    /// The same tile, known by this handle, for which `grid` is kept.
    pub(crate) fn with_handle(self, handle: Handle, grid: Option<Arc<PartitionGrid>>) -> Self {
        self.handle.get_or_init(|| (handle, grid.map(Aside::new)));
        self
    }

    pub(crate) fn tile(&self) -> &Tile {
        &self.tile
    }

    pub(crate) fn place(&self) -> &[usize] {
        &self.position
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// The handle by which another process opens the tile as long as this object, or the grid that it was taken from, is there.
    pub(crate) fn handle(&self) -> Outcome<&Handle> {
        if let Some((handle, _)) = self.handle.get() {
            return Ok(handle);
        }
        let (handle, grid) = match self.grid.upgrade() {
            Some(grid) => (share::handle(&grid, &self.position)?, Some(grid)),
            None => share::keep(&self.tile)?,
        };
        let (handle, _) = self.handle.get_or_init(|| (handle, grid.map(Aside::new)));
        Ok(handle)
    }

    pub(crate) fn try_new(grid: &Arc<PartitionGrid>, position: Vec<usize>) -> Outcome<Self> {
        let region = grid.geometry().region(&position)?;
        let tile = grid.tile(&position)?.clone();
        Ok(Self {
            grid: Arc::downgrade(grid),
            ..Self::new(tile, position, region)
        })
    }

    /// All columns as one array.
    fn numbers(&self, py: Python<'_>, fill: Option<FillValue>) -> Outcome<Numbers> {
        let tile = &self.tile;
        let columns: Vec<usize> = (0..tile.data().schema().fields().len()).collect();
        let batch = wait(py, tile.data().fetch(&columns))?;
        Ok(py.detach(|| Numbers::try_from_batch(&batch, fill))?)
    }

    fn locations(&self) -> Outcome<Vec<Location>> {
        Ok(self.tile.locations())
    }
}

#[pymethods]
impl PyTile {
    /// The position in the grid: row band, column band.
    #[getter]
    fn position<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.position)
    }

    /// The global index of the first row and of the first column.
    #[getter]
    fn start<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.region.start())
    }

    /// The number of rows and columns.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.region.shape())
    }

    /// Where the tile can be read without communication, this process first: a list of `(IP, PID)` or `(IP, PID, device)`.
    #[getter]
    pub(crate) fn location<'py>(&self, py: Python<'py>) -> Outcome<Vec<Bound<'py, PyTuple>>> {
        let locations = self.locations()?;
        locations
            .iter()
            .map(|location| location_tuple(py, location))
            .collect()
    }

    /// The names of the columns, in order.
    #[getter]
    fn columns(&self) -> Outcome<Vec<String>> {
        let schema = self.tile.data().schema();
        Ok(schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect())
    }

    /// The bytes of the tile, without what it shares with others.
    #[getter]
    fn nbytes(&self) -> Outcome<u64> {
        Ok(self.tile.data().memory_bytes())
    }

    /// One column as an array, or where it is on a device, without copying.
    ///
    /// Args:
    ///     name: The name of an integer or float column; of a tile on a device, of any.
    ///     fill_null: The number that stands for nulls; the values are copied only when there are some. It must be a value of the column's type exactly. Not of a tile on a device.
    ///
    /// Returns:
    ///     The column in one dimension. Of a lazy tile only this column is read. Of a tile on a device a `DeviceColumn`, which is not copied here unless `to("kDLCPU")` of it asks for that.
    ///
    /// Raises:
    ///     NotFoundError: There is no such column.
    ///     UnsupportedError: The column has a type that is no plain number; the text says what to cast. Or `fill_null` of a tile on a device.
    ///     InvalidDataError: The column has nulls, and nothing stands for them.
    ///     InvalidArgumentError: The type does not hold `fill_null` exactly.
    ///     NotLocalError: The bytes are not in this process.
    #[pyo3(signature = (name, *, fill_null=None) -> "Array | DeviceColumn")]
    fn column<'py>(
        &self,
        py: Python<'py>,
        name: Given<String>,
        fill_null: Option<&Bound<'_, PyAny>>,
    ) -> Outcome<Bound<'py, PyAny>> {
        let name = name.named("name")?;
        let fill = fill_value(fill_null)?;
        let tile = &self.tile;
        let (number, field) = tile.column(&name)?;
        if let Some(batch) = device_batch(tile) {
            return PyDeviceColumn::of_tile(py, batch.column(number)?, fill.is_some());
        }
        let batch = wait(py, tile.data().fetch(&[number]))?;
        let column = batch.column(0);
        let has_nulls = column.null_count() > 0;
        let array = PyArray::new(py.detach(|| Numbers::try_from_column(&field, column, fill))?);
        // Nulls are filled in a copy.
        let array = match readable_device(tile).filter(|_| !has_nulls) {
            Some(device) => array.on(device),
            None => array,
        };
        Ok(array.into_pyobject(py)?.into_any())
    }

    /// All columns as one array of rows x columns, without copying.
    ///
    /// Args:
    ///     fill_null: The number that stands for nulls; the values are copied only when there are some. It must be a value of the columns' type exactly.
    ///
    /// Returns:
    ///     The array, each column contiguous.
    ///
    /// Raises:
    ///     UnsupportedError: The columns do not make one array: they must be numbers of one type as `dense=` of the load places them, or a single column.
    ///     InvalidDataError: A column has nulls, and nothing stands for them.
    ///     InvalidArgumentError: The type does not hold `fill_null` exactly.
    ///     NotLocalError: The bytes are not in this process.
    ///
    /// Examples:
    ///     >>> import partgrid as pg
    ///     >>> grid = pg.read_parquet("data/flights", columns=["hour", "minute"], dense=["hour", "minute"])
    ///     >>> grid.tile(0).array()
    ///     Array (27004, 2) of int8, read-only
    #[pyo3(signature = (*, fill_null=None))]
    fn array(&self, py: Python<'_>, fill_null: Option<&Bound<'_, PyAny>>) -> Outcome<PyArray> {
        Ok(PyArray::new(self.numbers(py, fill_value(fill_null)?)?))
    }

    /// All columns as one frozen storage of rows x columns, without copying, as `array` has them: for stencils that read it.
    ///
    /// Args:
    ///     dims: What the two dimensions mean to stencils, such as `("I", "K")`; by default nothing is said.
    ///
    /// Returns:
    ///     The storage, which is read-only. It is aligned to 64 bytes where the columns are.
    ///
    /// Raises:
    ///     UnsupportedError: The columns do not make one array: they must be numbers of one type as `dense=` of the load places them, or a single column.
    ///     InvalidDataError: A column has nulls.
    ///     InvalidArgumentError: There are no such labels, or not two.
    ///     NotLocalError: The bytes are not in this process.
    ///
    /// Examples:
    ///     >>> import partgrid as pg
    ///     >>> grid = pg.read_parquet("data/flights", columns=["hour", "minute"], dense=["hour", "minute"])
    ///     >>> grid.tile(0).storage(dims=("I", "J"))
    ///     Storage (27004, 2) of int8, layout (1, 0), dims ('I', 'J'), (0, 0) aligned to 64 bytes, frozen
    #[pyo3(signature = (*, dims=None))]
    fn storage(&self, py: Python<'_>, dims: Option<Given<Labels>>) -> Outcome<PyStorage> {
        let dims = optional(dims, "dims")?.map(Labels::dims).transpose()?;
        let numbers = self.numbers(py, None)?;
        Ok(PyStorage::of_grid(Storage::try_over(numbers, dims)?))
    }

    /// The tile as a `pyarrow.RecordBatch`, without copying. Needs pyarrow.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_arrow_batch(slf.as_any())
    }

    /// The tile as a `pandas.DataFrame` of Arrow-backed columns, without copying. Needs pandas and pyarrow.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_pandas(slf.as_any())
    }

    /// The tile as a `polars.DataFrame`; polars copies strings into views of its own. Needs polars.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let schema = slf.get().tile().data().schema();
        convert::to_polars(slf.as_any(), &schema)
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
            "a tile",
            "numpy.asarray takes tile.column(name), tile.array() of a dense tile, and a grid",
        ))
    }

    /// The Arrow PyCapsule interface: schema and array of the batch, without copying.
    ///
    /// Args:
    ///     requested_schema: A schema capsule with the same column names; values are cast to its types.
    ///
    /// Raises:
    ///     NotLocalError: The bytes are not in this process.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> Outcome<Bound<'py, PyTuple>> {
        let tile = &self.tile;
        let batch = py.detach(|| tile.open())?;
        array_capsules(py, &batch, requested_schema)
    }

    /// The tile in the memory of a device.
    ///
    /// Args:
    ///     device: Such as `"kDLCUDA:0"`, or `"kDLCPU"` for the memory of this process.
    ///
    /// Returns:
    ///     A tile at the same position. All columns are copied, and nothing when it is there already.
    ///
    /// Raises:
    ///     UnsupportedError: Nothing copies to such a device; `register_copy_engine` takes what does.
    ///     NotFoundError: The driver of the device is not on this machine, or the device is not.
    ///     ResourcesExhaustedError: The device has no room.
    fn to(&self, py: Python<'_>, device: Given<Device>) -> Outcome<Self> {
        let device = device.named("device")?;
        let tile = wait(py, tile_to(&self.tile, device))?;
        Ok(Self::new(tile, self.position.clone(), self.region.clone()))
    }

    /// The Arrow PyCapsule interface for devices: schema and array of the batch where it is, without copying.
    ///
    /// Args:
    ///     requested_schema: A schema capsule with the same column names; values are cast to its types. Not of a tile on a device.
    ///     kwargs: Reserved by the interface.
    ///
    /// Raises:
    ///     NotImplementedError: A keyword argument other than `None`.
    ///     UnsupportedError: A requested schema of a tile on a device.
    ///     NotLocalError: The bytes are not in this process.
    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> Outcome<Bound<'py, PyTuple>> {
        refuse_reserved(kwargs)?;
        let tile = &self.tile;
        if let Some(device) = device_batch(tile) {
            refuse_cast(requested_schema)?;
            return device_capsules(py, py.detach(|| device.export())?);
        }
        let batch = py.detach(|| tile.open())?;
        device_array_capsules(py, &batch, requested_schema)
    }

    /// The Arrow PyCapsule interface: the schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.tile.data().schema())
    }

    /// The number of rows.
    fn __len__(&self) -> Outcome<usize> {
        Ok(usize::try_from(self.tile.num_rows()).map_err(PyErr::from)?)
    }

    fn __repr__(&self) -> Outcome<String> {
        let locations: Vec<String> = self.locations()?.iter().map(ToString::to_string).collect();
        Ok(format!(
            "Tile {} {} {} at {}",
            format_position(&self.position),
            self.region,
            picture::bytes(self.nbytes()?),
            locations.join(", ")
        ))
    }
}
