//! Storages: laid-out, aligned memory for stencils. What callers pass is read in `arguments.rs` and `dtype.rs`, storages are made in `make.rs` (in memory of a GPU: `gpu.rs`), `interfaces.rs` is what other libraries see
//! of them, `band.rs` makes grids of them.
//!
//! Where elements lie is decided by `partgrid::storage`.

mod arguments;
mod band;
mod dtype;
mod gpu;
mod interfaces;
mod make;

use std::sync::Arc;

use partgrid::storage::{Handle, Place, Storage};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyTuple};

use crate::convert::import;
use crate::error::Outcome;

pub(crate) use arguments::Labels;
pub(crate) use band::from_storage;
pub(crate) use make::{empty, empty_like, full, full_like, ones, ones_like, zeros, zeros_like};

/// Memory whose elements lie as a stencil wants them: shape, layout and alignment are chosen when it is made, by `partgrid.storage.empty` and its siblings.
///
/// `numpy.asarray`, `memoryview`, `numpy.from_dlpack` and stencils of GT4Py read and write it where it lies; the memory lives as long as the storage or anything made of it. Indexing is
/// numpy's. A storage that became part of a grid (`partgrid.from_storage`), or that is a view of one (`Tile.storage`), is frozen: from then on all views are read-only.
///
/// Examples:
///     >>> import numpy as np, partgrid as pg
///     >>> field = pg.storage.zeros((4, 3, 2), backend="gt:cpu_ifirst", dims="IJK")
///     >>> field
///     Storage (4, 3, 2) of float64, layout (2, 1, 0), dims ('I', 'J', 'K')
///     >>> field[1:3, 0, 0] = 7.0
///     >>> np.asarray(field).sum()
///     np.float64(14.0)
#[pyclass(name = "Storage", module = "partgrid.storage", frozen, weakref)]
pub(crate) struct PyStorage {
    core: Handle,
    /// The `numpy.dtype`, where only numpy knows the type.
    foreign: Option<Py<PyAny>>,
}

impl PyStorage {
    fn new(core: Arc<Storage>, foreign: Option<Py<PyAny>>) -> Self {
        Self {
            core: core.into(),
            foreign,
        }
    }

    /// A view of memory of a grid.
    pub(crate) fn of_grid(core: Storage) -> Self {
        Self::new(Arc::new(core), None)
    }

    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let dims = self.core.plan().dims();
        dims.map(|dims| PyTuple::new(py, dims.labels().collect::<Vec<_>>()))
            .transpose()
    }
}

#[pymethods]
impl PyStorage {
    /// The number of elements along each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.core.plan().shape())
    }

    /// The bytes from one element to the next along each dimension.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.core.plan().strides())
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.core.plan().shape().len()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.core.plan().num_elements()
    }

    /// The bytes of one element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.core.plan().item_bytes()
    }

    /// The bytes of the elements, without what lies between them.
    #[getter]
    fn nbytes(&self) -> usize {
        self.core.num_bytes()
    }

    /// The type of the elements, a `numpy.dtype`. Needs numpy.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.foreign {
            Some(dtype) => Ok(dtype.bind(py).clone()),
            None => {
                let numpy = import(py, "numpy", "Storage.dtype")?;
                numpy.call_method1("dtype", (self.core.item().type_string(),))
            }
        }
    }

    /// The address of the first element.
    #[getter]
    fn address(&self) -> usize {
        self.core.as_ptr().addr()
    }

    /// For each dimension the rank of its stride, 0 being the largest.
    #[getter]
    fn layout<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.core.plan().layout())
    }

    /// The labels of the dimensions, or `None` where none were given.
    #[getter]
    fn dims<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.labels(py)
    }

    /// The element that is aligned.
    #[getter]
    fn aligned_index<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.core.plan().aligned_index())
    }

    /// The bytes of which the address of that element is a multiple.
    #[getter]
    fn alignment_size(&self) -> usize {
        self.core.plan().alignment_size()
    }

    /// `"gpu"` for memory of an accelerator, `None` for that of the host.
    #[getter]
    fn device(&self) -> Option<&'static str> {
        match self.core.plan().place() {
            Place::Gpu => Some("gpu"),
            Place::Host => None,
        }
    }

    /// Whether the memory belongs to a grid, so that nobody can write to it any more.
    #[getter]
    fn is_frozen(&self) -> bool {
        self.core.is_frozen()
    }

    fn __len__(slf: &Bound<'_, Self>) -> PyResult<usize> {
        match slf.get().core.plan().shape().first() {
            Some(extent) => Ok(*extent),
            None => Err(pyo3::exceptions::PyTypeError::new_err(
                "a storage without dimensions has no length",
            )),
        }
    }

    /// What numpy gives for the key: an element, or a view of several. Needs numpy.
    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        interfaces::as_numpy(slf, "indexing a storage")?.get_item(key)
    }

    /// Writes elements, as numpy does. Needs numpy.
    fn __setitem__(
        slf: &Bound<'_, Self>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        interfaces::as_numpy(slf, "indexing a storage")?.set_item(key, value)
    }

    /// What numpy gives for each index of the first dimension. Needs numpy.
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyIterator>> {
        interfaces::as_numpy(slf, "iterating over a storage")?.try_iter()
    }

    /// A copy: pickled, and copied, a storage is one with the same values, laid out by the same parameters, and not frozen. Needs numpy.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let plan = slf.get().core.plan();
        let array = interfaces::as_numpy(slf, "pickling a storage")?;
        let parameters = PyDict::new(py);
        parameters.set_item("aligned_index", plan.aligned_index())?;
        parameters.set_item("alignment_size", plan.alignment_size())?;
        parameters.set_item("device", slf.get().device())?;
        parameters.set_item("dims", slf.get().labels(py)?)?;
        parameters.set_item("layout", plan.layout())?;
        let restored = py.import("partgrid._storage")?.getattr("restored")?;
        let parts = (array.call_method0("copy")?, parameters);
        (restored, parts).into_pyobject(py)
    }

    fn __repr__(&self, py: Python<'_>) -> Outcome<String> {
        let plan = self.core.plan();
        let mut text = format!(
            "Storage {} of {}, layout {}",
            self.shape(py)?.repr()?,
            self.core.item(),
            self.layout(py)?.repr()?
        );
        if let Some(labels) = self.labels(py)? {
            text += &format!(", dims {}", labels.repr()?);
        }
        if plan.alignment_size() > 1 {
            let index = self.aligned_index(py)?;
            text += &format!(
                ", {} aligned to {} bytes",
                index.repr()?,
                plan.alignment_size()
            );
        }
        if plan.place() == Place::Gpu {
            text += &format!(", on {}", self.core.device());
        }
        if self.core.is_frozen() {
            text += ", frozen";
        }
        Ok(text)
    }
}
