//! The `__partitioned__` dictionary, its handles and `get`.
//!
//! Every number comes from `partgrid::partitioned`. The draft of 2022-01-27 is followed to the letter; where it contradicts itself, both readings work: `get` takes one
//! handle and a sequence of them.

use std::sync::Arc;

use partgrid::error::{Error, ErrorKind};
use partgrid::grid::{GridId, PartitionGrid};
use partgrid::location::Location;
use partgrid::partitioned::{describe, location_parts};
use partgrid::share::{self, Handle, Incarnation};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

use crate::convert;
use crate::error::Outcome;
use crate::tile::PyTile;

/// `(IP, PID)`, with the device as third element unless it is host memory, which is the draft's default.
pub(crate) fn location_tuple<'py>(
    py: Python<'py>,
    location: &Location,
) -> Outcome<Bound<'py, PyTuple>> {
    let parts = location_parts(location);
    Ok(match parts.device {
        None => (parts.host, parts.process).into_pyobject(py)?,
        Some(device) => (parts.host, parts.process, device).into_pyobject(py)?,
    })
}

/// One handle for each tile, in row-major order.
pub(crate) fn handles(py: Python<'_>, grid: &Arc<PartitionGrid>) -> Outcome<Py<PyList>> {
    share::publish(grid);
    let list = PyList::empty(py);
    for position in grid.geometry().positions() {
        list.append(PyHandle {
            core: share::handle(grid, &position)?,
            _kept: Some(Arc::clone(grid)),
        })?;
    }
    Ok(list.unbind())
}

/// The dictionary of the draft.
pub(crate) fn dictionary<'py>(
    py: Python<'py>,
    grid: &PartitionGrid,
    handles: &Bound<'py, PyList>,
) -> Outcome<Bound<'py, PyDict>> {
    let described = describe(grid);
    let partitions = PyDict::new(py);
    for (partition, handle) in described.partitions.iter().zip(handles) {
        let entry = PyDict::new(py);
        entry.set_item("start", PyTuple::new(py, &partition.start)?)?;
        entry.set_item("shape", PyTuple::new(py, &partition.shape)?)?;
        entry.set_item("data", handle)?;
        let locations = PyList::empty(py);
        for location in &partition.locations {
            locations.append(location_tuple(py, location)?)?;
        }
        entry.set_item("location", locations)?;
        partitions.set_item(PyTuple::new(py, &partition.position)?, entry)?;
    }
    let result = PyDict::new(py);
    result.set_item("shape", PyTuple::new(py, &described.shape)?)?;
    result.set_item(
        "partition_tiling",
        PyTuple::new(py, &described.partition_tiling)?,
    )?;
    result.set_item("partitions", partitions)?;
    result.set_item("get", py.import("partgrid")?.getattr("get")?)?;
    Ok(result)
}

/// Names one tile of one grid, wherever it lives. Small, hashable, and pickles with the standard library; the data stays where it is.
///
/// A handle keeps its grid alive in the process that made it; a pickled one does not.
#[pyclass(name = "Handle", module = "partgrid", frozen, eq, hash)]
pub(crate) struct PyHandle {
    core: Handle,
    /// Keeps the grid alive. Not there in a handle that was unpickled.
    _kept: Option<Arc<PartitionGrid>>,
}

impl PartialEq for PyHandle {
    fn eq(&self, other: &Self) -> bool {
        self.core == other.core
    }
}

impl std::hash::Hash for PyHandle {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.core.hash(state);
    }
}

/// What a pickled handle carries: grid, position, incarnation, owner's address, process and device.
type Parts = (u128, Vec<usize>, u128, String, u32, String);

#[pymethods]
impl PyHandle {
    /// The position of the tile in its grid.
    #[getter]
    fn position<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.core.position)
    }

    /// The tile. Nothing is copied.
    ///
    /// Returns:
    ///     The tile that the handle names.
    ///
    /// Raises:
    ///     PartitionLostError: The grid lived in this process and is gone.
    ///     NotLocalError: The tile lives in another process.
    fn tile(&self) -> Outcome<PyTile> {
        share::open(&self.core)?;
        let grid = share::find(self.core.grid)
            .ok_or_else(|| Error::internal("an opened handle has a grid in this process"))?;
        PyTile::try_new(grid, self.core.position.clone())
    }

    /// Makes a handle from what another one pickled. Used by `pickle`.
    #[classmethod]
    fn _from_parts(_class: &Bound<'_, PyType>, parts: Parts) -> Outcome<Self> {
        let (grid, position, incarnation, host, process, device) = parts;
        let host = host
            .parse()
            .map_err(|_| Error::invalid_argument(format!("no IP address: {host}")))?;
        let core = Handle {
            grid: GridId::from_bits(grid),
            position,
            incarnation: Incarnation::from_bits(incarnation),
            owner: Location::new(host, process, device.parse()?),
        };
        Ok(Self { core, _kept: None })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Parts,))> {
        let core = &slf.get().core;
        let parts = (
            core.grid.bits(),
            core.position.clone(),
            core.incarnation.bits(),
            core.owner.host().to_string(),
            core.owner.process(),
            core.owner.device().to_string(),
        );
        Ok((slf.get_type().getattr("_from_parts")?, (parts,)))
    }

    fn __repr__(&self) -> Outcome<String> {
        let position = partgrid::error::format_position(&self.core.position);
        Ok(format!(
            "Handle {position} of grid {} at {}",
            self.core.grid, self.core.owner
        ))
    }
}

/// Turns handles of `__partitioned__` into data.
///
/// Args:
///     handles: One handle, a list or a tuple of them.
///
/// Returns:
///     For one handle a `pandas.DataFrame` with Arrow-backed columns (`pandas.ArrowDtype`) over the tile's own memory, which must not be written to. For a list a list,
///     for a tuple a tuple, in the same order. Nothing is copied or moved.
///
/// Raises:
///     ProtocolError: Something else than a handle was passed.
///     PartitionLostError: The grid lived in this process and is gone.
///     NotLocalError: The tile lives in another process.
///     ImportError: pandas or pyarrow is missing.
#[pyfunction]
pub(crate) fn get<'py>(handles: &Bound<'py, PyAny>) -> Outcome<Bound<'py, PyAny>> {
    let py = handles.py();
    if let Ok(handle) = handles.cast::<PyHandle>() {
        let tile = handle.get().tile()?.into_pyobject(py)?;
        return Ok(convert::to_pandas(tile.as_any())?);
    }
    if let Ok(list) = handles.cast::<PyList>() {
        let opened: Outcome<Vec<_>> = list.iter().map(|handle| get(&handle)).collect();
        return Ok(PyList::new(py, opened?)?.into_any());
    }
    if let Ok(tuple) = handles.cast::<PyTuple>() {
        let opened: Outcome<Vec<_>> = tuple.iter().map(|handle| get(&handle)).collect();
        return Ok(PyTuple::new(py, opened?)?.into_any());
    }
    let class = handles.get_type().qualname()?;
    let text = format!("a Handle, or a list or tuple of them, was expected, got {class}");
    Err(Error::new(ErrorKind::Protocol, text).into())
}
