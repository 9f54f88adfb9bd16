//! `Section`: the part of a distributed array that one rank has.
//!
//! Comes in: what the array knows of it, and its memory where that is in this process. Goes out: its dictionary, as the protocol has it. Never here: several sections.

use partgrid::distarray::{DimData, Version};
use partgrid::error::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::dictionary::dim_data;
use crate::convert;
use crate::error::Outcome;

/// The part of a distributed array that one rank has.
#[pyclass(name = "Section", module = "partgrid", frozen)]
pub(crate) struct PySection {
    pub(super) rank: usize,
    pub(super) version: Version,
    pub(super) dim_data: Vec<DimData>,
    pub(super) shape: Vec<u64>,
    pub(super) format: String,
    /// `None` when it is in another process.
    pub(super) buffer: Option<Py<PyAny>>,
}

impl PySection {
    /// The object with the elements.
    pub(super) fn memory(&self) -> Outcome<&Py<PyAny>> {
        let elsewhere = || {
            let text = "the section is in another process";
            Error::new(ErrorKind::NotLocal, text).with_context("rank", self.rank.to_string())
        };
        Ok(self.buffer.as_ref().ok_or_else(elsewhere)?)
    }
}

#[pymethods]
impl PySection {
    /// Refused: without this method numpy would make an array of one object.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__(
        &self,
        dtype: Option<Bound<'_, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'_, PyAny>> {
        drop((dtype, copy));
        Err(convert::refuse_numpy(
            "a section",
            "numpy.asarray takes section.buffer",
        ))
    }

    /// The rank of the section: its place in the process grid, row-major.
    #[getter]
    fn rank(&self) -> usize {
        self.rank
    }

    /// The number of elements of the buffer along each dimension, communication padding included.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// Whether the buffer is in this process.
    #[getter]
    fn is_local(&self) -> bool {
        self.buffer.is_some()
    }

    /// The Distributed Array Protocol, section "Exporting a distributed array".
    ///
    /// Returns:
    ///     A fresh dictionary: `__version__`, `buffer` (an object with the buffer interface, over the tile's own memory unless it was copied, and read-only then) and `dim_data` (a
    ///     tuple of one dictionary for each dimension).
    ///
    /// Raises:
    ///     NotLocalError: The section is in another process.
    fn __distarray__<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyDict>> {
        let result = PyDict::new(py);
        result.set_item("__version__", self.version.text())?;
        result.set_item("buffer", self.memory()?)?;
        result.set_item("dim_data", dim_data(py, &self.dim_data)?)?;
        Ok(result)
    }

    /// The elements.
    ///
    /// Raises:
    ///     NotLocalError: The section is in another process.
    #[getter]
    fn buffer(&self, py: Python<'_>) -> Outcome<Py<PyAny>> {
        Ok(self.memory()?.clone_ref(py))
    }

    /// The dictionaries of the dimensions, fresh at each access.
    #[getter(dim_data)]
    fn dictionaries<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyTuple>> {
        dim_data(py, &self.dim_data)
    }

    fn __len__(&self) -> usize {
        let first = self.shape.first().copied().unwrap_or(0);
        usize::try_from(first).unwrap_or(usize::MAX)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shape = self.shape(py)?.repr()?.to_string();
        let place = if self.is_local() {
            ""
        } else {
            ", in another process"
        };
        Ok(format!(
            "Section {}: {shape} of {}{place}",
            self.rank, self.format
        ))
    }
}
