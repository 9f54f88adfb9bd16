//! `get`: handles -> data of the library that was asked for.

use partgrid::error::{Error, ErrorKind};
use partgrid::grid::{Order, PartitionGrid};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple, PyType};

use crate::argument::Given;
use crate::convert;
use crate::error::Outcome;
use crate::numpy::{Wish, to_numpy};
use crate::partitioned::PyHandle;

/// What a handle becomes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DataKind {
    Pandas,
    Polars,
    PyArrow,
    NumPy,
    Arro3,
    Tile,
}

impl DataKind {
    const ALL: [Self; 6] = [
        Self::Pandas,
        Self::Polars,
        Self::PyArrow,
        Self::NumPy,
        Self::Arro3,
        Self::Tile,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pandas => "pandas",
            Self::Polars => "polars",
            Self::PyArrow => "pyarrow",
            Self::NumPy => "numpy",
            Self::Arro3 => "arro3",
            Self::Tile => "tile",
        }
    }

    pub(crate) fn from_name(name: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| {
            let names = Self::ALL.map(|kind| format!("{:?}", kind.name()));
            Error::invalid_argument(format!(
                "data must be one of {}, got {name:?}",
                names.join(", ")
            ))
        })
    }
}

/// Turns handles of `__partitioned__` into data. `partgrid.get` is the one for pandas.
///
/// Call it with one handle, a list or a tuple of them; for a list it returns a list, for a tuple a tuple, in the same order. It pickles with the standard library. Handles of other processes
/// of this user and host are opened in shared memory, see `Handle.tile`.
///
/// Args:
///     data: `"pandas"`: a `pandas.DataFrame` with Arrow-backed columns (`pandas.ArrowDtype`); `"polars"`: a `polars.DataFrame`; `"pyarrow"`: a `pyarrow.RecordBatch`; `"arro3"`: an
///         `arro3.core.RecordBatch`; `"numpy"`: a two-dimensional array of rows and columns, copied unless the tile is dense; `"tile"`: a `partgrid.Tile`. All but numpy's copies are over the
///         tile's own memory, which must not be written to; polars copies strings into views of its own.
///
/// Raises:
///     InvalidArgumentError: `data` is none of these.
///     ProtocolError: It was called with something else than a handle.
///     PartitionLostError: The grid was dropped, or its process has ended.
///     NotLocalError: The tile lives on another host.
///     ImportError: The library is missing.
///
/// Examples:
///     >>> import partgrid as pg, pyarrow as pa
///     >>> grid = pg.from_arrow(pa.table({"a": [1, 2]}))
///     >>> part = grid.__partitioned__
///     >>> pg.Get("tile")(part["partitions"][(0, 0)]["data"]).shape
///     (2, 1)
#[pyclass(
    name = "Get",
    module = "partgrid",
    frozen,
    eq,
    hash,
    skip_from_py_object
)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PyGet {
    kind: DataKind,
}

impl PyGet {
    pub(crate) fn new(kind: DataKind) -> Self {
        Self { kind }
    }

    fn open<'py>(self, handle: &Bound<'py, PyHandle>) -> Outcome<Bound<'py, PyAny>> {
        let tile = handle.get().tile(handle.py())?;
        let schema = tile.tile().data().schema();
        let tile = tile.into_pyobject(handle.py())?.into_any();
        Ok(match self.kind {
            DataKind::Pandas => convert::to_pandas(&tile)?,
            DataKind::Polars => convert::to_polars(&tile, &schema)?,
            DataKind::PyArrow => convert::to_arrow_batch(&tile)?,
            DataKind::NumPy => ndarray_of(handle)?,
            DataKind::Arro3 => convert::to_arro3(&tile)?,
            DataKind::Tile => tile,
        })
    }
}

/// The tile of a handle as a two-dimensional array.
fn ndarray_of<'py>(handle: &Bound<'py, PyHandle>) -> Outcome<Bound<'py, PyAny>> {
    let batch = handle.get().batch(handle.py())?;
    let grid = PartitionGrid::try_from_batches(batch.schema(), &[batch])?;
    let wish = Wish {
        dtype: None,
        fill: None,
        order: Order::from_letter("F")?,
        copy: None,
    };
    to_numpy(handle.py(), &grid, &wish)
}

#[pymethods]
impl PyGet {
    #[new]
    fn make(data: Given<String>) -> Outcome<Self> {
        Ok(Self::new(DataKind::from_name(&data.named("data")?)?))
    }

    /// What a handle becomes.
    #[getter]
    fn data(&self) -> &'static str {
        self.kind.name()
    }

    fn __call__<'py>(&self, handles: &Bound<'py, PyAny>) -> Outcome<Bound<'py, PyAny>> {
        let py = handles.py();
        if let Ok(handle) = handles.cast::<PyHandle>() {
            return self.open(handle);
        }
        if let Ok(list) = handles.cast::<PyList>() {
            let opened: Outcome<Vec<_>> = list.iter().map(|each| self.__call__(&each)).collect();
            return Ok(PyList::new(py, opened?)?.into_any());
        }
        if let Ok(tuple) = handles.cast::<PyTuple>() {
            let opened: Outcome<Vec<_>> = tuple.iter().map(|each| self.__call__(&each)).collect();
            return Ok(PyTuple::new(py, opened?)?.into_any());
        }
        let class = handles.get_type().qualname()?;
        let text = format!("a Handle, or a list or tuple of them, was expected, got {class}");
        Err(Error::new(ErrorKind::Protocol, text).into())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, (&'static str,)) {
        (slf.get_type(), (slf.get().kind.name(),))
    }

    fn __repr__(&self) -> String {
        format!("Get({:?})", self.kind.name())
    }
}
