//! The `__partitioned__` dictionary: ours (here), its handles (`handle.rs`), its `get` (`get.rs`), those for consumers that do not follow the draft (`dialect.rs`), and those of others (`read.rs`, their data in `data.rs`).
//!
//! Every number comes from `partgrid::partitioned`, which also checks those of others. The draft of 2022-01-27 is followed to the letter; where it contradicts itself, both readings work:
//! `get` takes one handle and a sequence of them.

mod data;
mod dialect;
mod get;
mod handle;
mod read;

use std::sync::Arc;

use partgrid::grid::PartitionGrid;
use partgrid::location::Location;
use partgrid::partitioned::{DRAFT, Partitioned, Place, describe, location_parts};
use partgrid::share;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

pub(crate) use data::one_batch;
pub(crate) use dialect::{Wishes, partitioned};
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

/// One handle for each tile, in row-major order; of an SPMD program `None` for those of other ranks, as the draft recommends.
pub(crate) fn handles(py: Python<'_>, grid: &Arc<PartitionGrid>) -> Outcome<Py<PyList>> {
    let list = PyList::empty(py);
    for (number, handle) in share::handles(grid)?.enumerate() {
        let locals = grid.locals();
        let is_local = locals.is_none_or(|locals| locals.get(number) == Some(&true));
        match is_local {
            true => list.append(PyHandle::new(handle, grid))?,
            false => list.append(py.None())?,
        }
    }
    Ok(list.unbind())
}

/// The dictionary of the draft, with handles.
pub(crate) fn dictionary<'py>(
    py: Python<'py>,
    grid: &PartitionGrid,
    handles: &Bound<'py, PyList>,
) -> Outcome<Bound<'py, PyDict>> {
    let get = PyGet::new(DataKind::Pandas).into_pyobject(py)?;
    write(&describe(grid), handles, &get, grid)
}

/// A dictionary of these numbers, of one object for each entry, and of `get`.
fn write<'py>(
    described: &Partitioned,
    data: &Bound<'py, PyList>,
    get: &Bound<'py, PyAny>,
    grid: &PartitionGrid,
) -> Outcome<Bound<'py, PyDict>> {
    let py = data.py();
    let partitions = PyDict::new(py);
    let mut places = Places::default();
    for (partition, object) in described.partitions.iter().zip(data) {
        let entry = PyDict::new(py);
        entry.set_item(intern!(py, "start"), PyTuple::new(py, &partition.start)?)?;
        entry.set_item(intern!(py, "shape"), PyTuple::new(py, &partition.shape)?)?;
        entry.set_item(intern!(py, "data"), object)?;
        let locations = PyList::empty(py);
        for place in &partition.locations {
            locations.append(places.object(py, place)?)?;
        }
        entry.set_item(intern!(py, "location"), locations)?;
        partitions.set_item(PyTuple::new(py, &partition.position)?, entry)?;
    }
    let result = PyDict::new(py);
    result.set_item("shape", PyTuple::new(py, &described.shape)?)?;
    result.set_item(
        "partition_tiling",
        PyTuple::new(py, &described.partition_tiling)?,
    )?;
    result.set_item("partitions", partitions)?;
    if let Some(locals) = &described.locals {
        let positions: PyResult<Vec<_>> = locals.iter().map(|at| PyTuple::new(py, at)).collect();
        result.set_item("locals", positions?)?;
    }
    result.set_item("get", get)?;
    // Not in the draft; consumers leave keys alone that they do not know.
    result.set_item("schema", PySchema::new(Arc::clone(grid.schema())))?;
    result.set_item("version", DRAFT)?;
    Ok(result)
}

/// Locations as Python objects. Neighbours mostly share one, and it cannot be changed.
#[derive(Default)]
struct Places<'py> {
    last: Option<(Place, Bound<'py, PyAny>)>,
}

impl<'py> Places<'py> {
    fn object(&mut self, py: Python<'py>, place: &Place) -> Outcome<Bound<'py, PyAny>> {
        if let Some((known, object)) = &self.last
            && known == place
        {
            return Ok(object.clone());
        }
        let object = match place {
            Place::Process(location) => location_tuple(py, location)?.into_any(),
            Place::Rank(rank) => rank.into_pyobject(py).map_err(PyErr::from)?.into_any(),
            Place::Node(address) => PyString::new(py, address).into_any(),
        };
        self.last = Some((place.clone(), object.clone()));
        Ok(object)
    }
}

/// A grid as another library wants to see it: an object with `__partitioned__`, made by `Grid.partitioned`.
#[pyclass(name = "Partitioned", module = "partgrid", frozen)]
pub(crate) struct PyPartitioned {
    grid: Arc<PartitionGrid>,
    described: Partitioned,
    /// One for each entry.
    data: Py<PyList>,
    get: Py<PyAny>,
    /// What the repr says of it.
    label: String,
}

impl PyPartitioned {
    /// The draft, with another `get` than the property of the grid.
    pub(crate) fn with_get(
        py: Python<'_>,
        grid: &Arc<PartitionGrid>,
        handles: &Bound<'_, PyList>,
        kind: DataKind,
    ) -> PyResult<Self> {
        Ok(Self {
            described: describe(grid),
            grid: Arc::clone(grid),
            data: handles.clone().unbind(),
            get: Py::new(py, PyGet::new(kind))?.into_any(),
            label: format!("{:?}", kind.name()),
        })
    }
}

#[pymethods]
impl PyPartitioned {
    /// The dictionary, fresh at each access; what stands under `data` stays the same.
    #[getter]
    fn __partitioned__<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyDict>> {
        write(
            &self.described,
            self.data.bind(py),
            self.get.bind(py),
            &self.grid,
        )
    }

    fn __repr__(&self) -> String {
        let described = partgrid::grid::picture::summary(&self.grid);
        let first = described.lines().next().unwrap_or_default().to_owned();
        format!("Partitioned({}) of {first}", self.label)
    }
}
