//! The Distributed Array Protocol: `DistArray` and `Section` (here), what is wrong with the sections of others (`check.rs`), grids of them (`import.rs`).
//!
//! Every number comes from `partgrid::distarray`.

mod check;
mod import;
mod value;

use arrow::buffer::Buffer;
use partgrid::distarray::{DimData, Dist, DistArray, ElementType, Section};
use partgrid::grid::Numbers;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

pub(crate) use check::{PyFinding, validate};
pub(crate) use import::from_distarray;

use crate::array::PyArray;
use crate::error::Outcome;

/// A numeric column as a distributed array: one section for each tile, each a process of the protocol. Nothing is copied.
#[pyclass(name = "DistArray", module = "partgrid", frozen)]
pub(crate) struct PyDistArray {
    core: DistArray,
}

impl PyDistArray {
    pub(crate) fn new(core: DistArray) -> Self {
        Self { core }
    }
}

#[pymethods]
impl PyDistArray {
    /// The number of elements along each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, [self.core.size])
    }

    /// The format of one element as in the `struct` module (PEP 3118), for instance `d` for a 64-bit float. `numpy.dtype` takes it.
    #[getter]
    fn dtype(&self) -> char {
        self.core.element.format()
    }

    /// The name of the column.
    #[getter]
    fn column(&self) -> &str {
        &self.core.column
    }

    /// The sections, rank 0 first.
    #[getter]
    fn sections(&self) -> Vec<PySection> {
        let sections = self.core.sections.iter().cloned();
        sections
            .map(|core| PySection {
                core,
                element: self.core.element,
            })
            .collect()
    }

    fn __len__(&self) -> usize {
        self.core.sections.len()
    }

    fn __repr__(&self) -> String {
        let (column, size) = (&self.core.column, self.core.size);
        let (format, count) = (self.core.element.format(), self.core.sections.len());
        format!("DistArray `{column}` ({size},) of {format} in {count} sections")
    }
}

/// The part of a distributed array that one tile holds.
#[pyclass(name = "Section", module = "partgrid", frozen)]
pub(crate) struct PySection {
    core: Section,
    element: ElementType,
}

#[pymethods]
impl PySection {
    /// The rank of the section: its number along the rows of the grid.
    #[getter]
    fn rank(&self) -> usize {
        self.core.rank
    }

    /// The Distributed Array Protocol, version 0.10.0, section "Exporting a distributed array".
    ///
    /// Returns:
    ///     A fresh dictionary: `__version__`, `buffer` (an object with the buffer interface, read-only, over the tile's own memory) and `dim_data` (a tuple of one
    ///     dictionary).
    fn __distarray__<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyDict>> {
        let dimensions: Outcome<Vec<_>> = self
            .core
            .dim_data
            .iter()
            .map(|dimension| dimension_dict(py, dimension))
            .collect();
        let result = PyDict::new(py);
        result.set_item("__version__", self.core.version)?;
        result.set_item("buffer", self.buffer())?;
        result.set_item("dim_data", PyTuple::new(py, dimensions?)?)?;
        Ok(result)
    }

    /// The values, over the tile's own memory.
    #[getter]
    fn buffer(&self) -> PyArray {
        PyArray::new(Numbers::from_bytes(self.core.buffer.clone(), self.element))
    }

    fn __len__(&self) -> usize {
        self.core.len
    }

    fn __repr__(&self) -> String {
        let (rank, length) = (self.core.rank, self.core.len);
        format!(
            "Section {rank}: {length} elements of {}",
            self.element.format()
        )
    }
}

fn dimension_dict<'py>(py: Python<'py>, dimension: &DimData) -> Outcome<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    result.set_item("dist_type", dimension.dist_type())?;
    result.set_item("size", dimension.size)?;
    result.set_item("proc_grid_size", dimension.proc_grid_size)?;
    result.set_item("proc_grid_rank", dimension.proc_grid_rank)?;
    match &dimension.dist {
        Dist::Undistributed { .. } => {}
        Dist::Block { start, stop, .. } => {
            result.set_item("start", start)?;
            result.set_item("stop", stop)?;
        }
        Dist::Cyclic { start, block_size } => {
            result.set_item("start", start)?;
            if let Some(block_size) = block_size {
                result.set_item("block_size", block_size)?;
            }
        }
        Dist::Unstructured {
            indices,
            one_to_one,
        } => {
            let bytes = Buffer::from_vec(indices.to_vec());
            let numbers = Numbers::from_bytes(bytes, ElementType::Int64);
            result.set_item("indices", PyArray::new(numbers))?;
            if let Some(one_to_one) = one_to_one {
                result.set_item("one_to_one", one_to_one)?;
            }
        }
    }
    if let Some([left, right]) = dimension.padding() {
        result.set_item("padding", (left, right))?;
    }
    if let Some(periodic) = dimension.periodic {
        result.set_item("periodic", periodic)?;
    }
    Ok(result)
}
