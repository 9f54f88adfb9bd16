//! What other libraries see of a storage: the buffer interface, the array interfaces, DLPack, and what stencils of GT4Py ask for.
//!
//! Comes in: a storage. Goes out: views over its memory. Each view that may write, and that tells when it is done, keeps the storage from becoming part of a grid. Never here: copies that
//! nobody asked for.

use std::ffi::{CString, c_int};

use partgrid::device::dlpack::{DLDataType, DLDevice, Lent, Sharing, export_memory};
use partgrid::location::Device;
use partgrid::storage::Storage;
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use super::PyStorage;
use crate::argument::{Given, optional};
use crate::array::{check_stream, converted, refuse_devices};
use crate::buffer::{DEVICE, DeviceInfo, PLAIN_FLAGS, Request};
use crate::convert::import;
use crate::dlpack::capsule_of;
use crate::error::Outcome;
use crate::operators::as_numpy_does;
use crate::view::{Described, fill, release};

/// What consumers are told that want to write to a frozen storage.
const FROZEN: &str = "the storage belongs to a grid, which never changes: it is read-only";

/// The storage as a `numpy.ndarray` over the same memory.
pub(super) fn as_numpy<'py>(
    storage: &Bound<'py, PyStorage>,
    wanted_by: &str,
) -> PyResult<Bound<'py, PyAny>> {
    storage.get().check_host("numpy")?;
    import(storage.py(), "numpy", wanted_by)?.call_method1("asarray", (storage,))
}

as_numpy_does!(PyStorage, as_numpy);

impl PyStorage {
    fn check_host(&self, consumer: &str) -> PyResult<()> {
        if self.core.device() == Device::CPU {
            return Ok(());
        }
        Err(PyTypeError::new_err(format!(
            "{consumer} reads memory of the host, the storage is on {}\nhint: partgrid.storage.as_cupy(storage).get() copies it",
            self.core.device()
        )))
    }

    /// Refuses wishes of consumers of DLPack that memory of a GPU cannot meet.
    fn refuse_elsewhere(
        &self,
        stream: Option<&Bound<'_, PyAny>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<()> {
        check_stream(self.core.device(), stream)?;
        let own = self.__dlpack_device__();
        let text = match dl_device {
            Some(other) if other != own => {
                format!("dl_device must be {own:?}, where the storage is, got {other:?}")
            }
            _ if copy == Some(true) => {
                format!("a storage on {} gives no copies", self.core.device())
            }
            _ => return Ok(()),
        };
        let hint = "partgrid.storage.as_cupy(storage) copies with copy() and get()";
        Err(PyBufferError::new_err(format!("{text}\nhint: {hint}")))
    }

    /// An array interface, which is the same for numpy and for CUDA but for its name.
    fn interface<'py>(&self, py: Python<'py>, address: usize) -> PyResult<Bound<'py, PyDict>> {
        let plan = self.core.plan();
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", self.core.item().type_string())?;
        interface.set_item("shape", PyTuple::new(py, plan.shape())?)?;
        interface.set_item("strides", PyTuple::new(py, plan.strides())?)?;
        interface.set_item("data", (address, self.core.is_frozen()))?;
        if let Some(dtype) = &self.foreign {
            interface.set_item("descr", dtype.getattr(py, "descr")?)?;
        }
        Ok(interface)
    }

    /// What DLPack says of the storage, or of a copy of it.
    fn lent(&self, copy: bool) -> Outcome<Lent> {
        let item = self.core.item();
        let (code, bits) = item.dlpack_code().ok_or_else(|| {
            PyBufferError::new_err(format!(
                "DLPack has numbers and truth values, got {item}\nhint: numpy.asarray takes the storage as it is"
            ))
        })?;
        let dtype = DLDataType {
            code,
            bits,
            lanes: 1,
        };
        if copy {
            let copied = self.core.try_copy()?;
            let owner = Box::new(std::sync::Arc::clone(&copied));
            return Ok(lent(&copied, dtype, Sharing::Copied, owner));
        }
        Ok(match self.core.try_write() {
            Some(guard) => lent(&self.core, dtype, Sharing::Writable, Box::new(guard)),
            None => {
                let owner = Box::new(std::sync::Arc::clone(&self.core));
                lent(&self.core, dtype, Sharing::ReadOnly, owner)
            }
        })
    }
}

fn lent(
    storage: &Storage,
    dtype: DLDataType,
    sharing: Sharing,
    owner: Box<dyn std::any::Any + Send + Sync>,
) -> Lent {
    let plan = storage.plan();
    let item_bytes = plan.item_bytes();
    let strides = plan.strides().iter().map(|stride| stride / item_bytes);
    Lent {
        address: storage.as_ptr().cast(),
        byte_offset: 0,
        device: DLDevice::new(storage.device()),
        dtype,
        shape: plan.shape().to_vec(),
        strides: strides.collect(),
        sharing,
        owner,
    }
}

#[pymethods]
impl PyStorage {
    /// The labels of the dimensions: a tuple, as GT4Py reads it, that gives itself when it is called, as the specification has it. Missing where no `dims` were given.
    #[getter]
    fn __gt_dims__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.labels(py)? {
            Some(labels) => py
                .import("partgrid._storage")?
                .getattr("DimsTuple")?
                .call1((labels,)),
            None => Err(PyAttributeError::new_err(
                "the storage was made without dims=, so that stencils assume the order of their annotations",
            )),
        }
    }

    /// Where a stencil of GT4Py begins unless it is told otherwise: the aligned element, in the order I, J, K, then data, where it is zero.
    #[getter]
    fn __gt_origin__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.core.plan().origin())
    }

    /// The same under the name of the specification.
    #[getter]
    fn default_origin<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.__gt_origin__(py)
    }

    /// The array interface of NumPy, version 3. Missing where the memory is not the host's. Who keeps the address must not write any more when the storage becomes part of a grid.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.core.device() != Device::CPU {
            let text = format!("the memory is on {}, not the host's", self.core.device());
            return Err(PyAttributeError::new_err(text));
        }
        self.interface(py, self.core.as_ptr().addr())
    }

    /// The array interface of CUDA, version 3. Missing where CUDA cannot read the memory.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if !self.core.device().is_cuda_readable() {
            let text = format!("the memory is on {}, not CUDA's", self.core.device());
            return Err(PyAttributeError::new_err(text));
        }
        // The interface wants none where there is no element.
        let address = match self.core.plan().num_elements() {
            0 => 0,
            _ => self.core.as_ptr().addr(),
        };
        self.interface(py, address)
    }

    /// NumPy: the storage as a `numpy.ndarray` over the same memory, writable until the storage becomes part of a grid. Needs numpy.
    ///
    /// Args:
    ///     dtype: The wanted type; another than that of the elements makes a copy.
    ///     copy: `True` copies always, `None` when it must, `False` never.
    ///
    /// Raises:
    ///     ValueError: `copy=False`, and the type needs a copy.
    ///     TypeError: The memory is not the host's.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let view = as_numpy(slf, "__array__")?;
        converted(&import(slf.py(), "numpy", "__array__")?, &view, dtype, copy)
    }

    /// DLPack (array API 2023.12): a capsule over the same memory, or over a copy of it with `copy=True`.
    ///
    /// Args:
    ///     stream: `None` on the CPU, which has no streams; on a GPU any stream of CUDA, since what made the storage is done.
    ///     max_version: The newest version that the consumer takes. Versions before 1.0 cannot say that memory is read-only, and get only copies of a frozen storage.
    ///     dl_device: `None` or the device of the storage; `(1, 0)` is the CPU.
    ///     copy: `True` copies, on the CPU; `None` and `False` never do.
    ///
    /// Returns:
    ///     A capsule `dltensor_versioned`, or `dltensor` for versions before 1.0.
    ///
    /// Raises:
    ///     BufferError: The wish cannot be met.
    #[expect(
        clippy::too_many_arguments,
        reason = "the keyword arguments of the array API"
    )]
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<Given<(u32, u32)>>,
        dl_device: Option<Given<(i32, i32)>>,
        copy: Option<Given<bool>>,
    ) -> Outcome<Bound<'py, PyCapsule>> {
        let max_version = optional(max_version, "max_version")?;
        let dl_device = optional(dl_device, "dl_device")?;
        let copy = optional(copy, "copy")?;
        if self.core.device() == Device::CPU {
            refuse_devices(stream, dl_device)?;
        } else {
            self.refuse_elsewhere(stream.as_ref(), dl_device, copy)?;
        }
        let lent = self.lent(copy == Some(true))?;
        capsule_of(py, export_memory(lent, max_version))
    }

    /// The device of DLPack; `(1, 0)` is the CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        let device = DLDevice::new(self.core.device());
        (device.device_type, device.device_id)
    }

    /// The request flags that storages take: see `partgrid.buffer.supports`.
    #[classattr]
    fn __buffer_supported_flags__() -> c_int {
        PLAIN_FLAGS | DEVICE
    }

    #[expect(unsafe_code, reason = "the buffer interface fills a C struct")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let core = &slf.get().core;
        // SAFETY: the interpreter's own struct.
        let request = unsafe { Request::begin(view, flags) }?;
        let on_host = core.device() == Device::CPU;
        if !on_host && !request.knows_devices() {
            return Err(PyBufferError::new_err(format!(
                "the memory is on {}, not the host's; consumers that know devices ask as partgrid.buffer.get_buffer does",
                core.device()
            )));
        }
        let Some(format) = core.item().format() else {
            return Err(PyBufferError::new_err(format!(
                "the buffer interface has no format for {}\nhint: numpy.asarray takes the storage as it is",
                core.item()
            )));
        };
        let guard = core.try_write();
        let plan = core.plan();
        let described = Described {
            address: core.as_ptr(),
            format: CString::from(format),
            item_bytes: plan.item_bytes(),
            shape: plan.shape(),
            strides: plan.strides(),
            is_writable: guard.is_some(),
            read_only: FROZEN,
            device: (!on_host).then(|| {
                let device = DLDevice::new(core.device());
                DeviceInfo::at(device.device_type, device.device_id.into())
            }),
            held: guard.map(|guard| Box::new(guard) as Box<dyn std::any::Any>),
        };
        // SAFETY: the storage keeps its memory, which may be written as long as the guard lives.
        unsafe { fill(slf.clone().into_any(), request, described) }
    }

    #[expect(unsafe_code, reason = "gives back what __getbuffer__ leaked")]
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: the struct that `__getbuffer__` filled.
        unsafe { release(view) };
    }
}
