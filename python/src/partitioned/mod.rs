//! The `__partitioned__` dictionary: ours (here), its handles (`handle.rs`), its `get` (`get.rs`), and those of others (`read.rs`, their data in `data.rs`).
//!
//! Every number comes from `partgrid::partitioned`, which also checks those of others. The draft of 2022-01-27 is followed to the letter; where it contradicts itself, both readings work:
//! `get` takes one handle and a sequence of them.

mod data;
mod get;
mod handle;
mod read;

use std::sync::Arc;

use partgrid::grid::PartitionGrid;
use partgrid::location::Location;
use partgrid::partitioned::{DRAFT, describe, location_parts};
use partgrid::share;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

pub(crate) use data::one_batch;
pub(crate) use get::{DataKind, PyGet};
pub(crate) use handle::PyHandle;
pub(crate) use read::from_partitioned;

use crate::error::Outcome;
use crate::schema::PySchema;

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
        list.append(PyHandle::try_new(grid, &position)?)?;
    }
    Ok(list.unbind())
}

/// The dictionary of the draft.
pub(crate) fn dictionary<'py>(
    py: Python<'py>,
    grid: &PartitionGrid,
    handles: &Bound<'py, PyList>,
    kind: DataKind,
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
    result.set_item("get", PyGet::new(kind))?;
    // Not in the draft; consumers leave keys alone that they do not know.
    result.set_item("schema", PySchema::new(Arc::clone(grid.schema())))?;
    result.set_item("version", DRAFT)?;
    Ok(result)
}

/// A grid as other libraries are to see it: an object with `__partitioned__`, made by `Grid.partitioned`.
#[pyclass(name = "Partitioned", module = "partgrid", frozen)]
pub(crate) struct PyPartitioned {
    grid: Arc<PartitionGrid>,
    handles: Py<PyList>,
    kind: DataKind,
}

impl PyPartitioned {
    pub(crate) fn new(grid: Arc<PartitionGrid>, handles: Py<PyList>, kind: DataKind) -> Self {
        Self {
            grid,
            handles,
            kind,
        }
    }
}

#[pymethods]
impl PyPartitioned {
    /// The dictionary, fresh at each access; its handles stay the same.
    #[getter]
    fn __partitioned__<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyDict>> {
        dictionary(py, &self.grid, self.handles.bind(py), self.kind)
    }

    fn __repr__(&self) -> String {
        let described = partgrid::grid::picture::summary(&self.grid);
        let first = described.lines().next().unwrap_or_default().to_owned();
        format!("Partitioned({:?}) of {first}", self.kind.name())
    }
}
