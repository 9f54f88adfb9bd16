//! `Tile`.

use std::sync::Arc;

use partgrid::error::format_position;
use partgrid::grid::{PartitionGrid, Region, picture};
use partgrid::location::Location;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::capsule::{array_capsules, schema_capsule};
use crate::convert;
use crate::error::Outcome;
use crate::partitioned::location_tuple;

/// The data at one position of a grid: a contiguous Arrow record batch that lives somewhere.
///
/// A tile shares the memory of its grid and keeps it alive. Any library that takes `__arrow_c_array__` reads it without copying.
#[pyclass(name = "Tile", module = "partgrid", frozen)]
pub(crate) struct PyTile {
    grid: Arc<PartitionGrid>,
    position: Vec<usize>,
    region: Region,
}

impl PyTile {
    pub(crate) fn try_new(grid: Arc<PartitionGrid>, position: Vec<usize>) -> Outcome<Self> {
        let region = grid.geometry().region(&position)?;
        Ok(Self {
            grid,
            position,
            region,
        })
    }

    fn locations(&self) -> Outcome<Vec<Location>> {
        Ok(self.grid.tile(&self.position)?.locations())
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
    fn location<'py>(&self, py: Python<'py>) -> Outcome<Vec<Bound<'py, PyTuple>>> {
        let locations = self.locations()?;
        locations
            .iter()
            .map(|location| location_tuple(py, location))
            .collect()
    }

    /// The names of the columns, in order.
    #[getter]
    fn columns(&self) -> Outcome<Vec<String>> {
        let schema = self.grid.tile(&self.position)?.data().schema();
        Ok(schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect())
    }

    /// The bytes of the tile, without what it shares with others.
    #[getter]
    fn nbytes(&self) -> Outcome<u64> {
        Ok(self.grid.tile(&self.position)?.data().memory_bytes())
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
        convert::to_polars(slf.as_any())
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
        let tile = self.grid.tile(&self.position)?;
        let batch = py.detach(|| tile.open())?;
        array_capsules(py, &batch, requested_schema)
    }

    /// The Arrow PyCapsule interface: the schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.grid.tile(&self.position)?.data().schema())
    }

    /// The number of rows.
    fn __len__(&self) -> Outcome<usize> {
        Ok(usize::try_from(self.grid.tile(&self.position)?.num_rows()).map_err(PyErr::from)?)
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
