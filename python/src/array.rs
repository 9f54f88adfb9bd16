//! `Array`: numbers of ours as other libraries take them.
//!
//! Comes in: [`Numbers`]. Goes out: a view (read-only, but of memory that was made for it) under the buffer interface (PEP 3118, n-d), the array interface, `__array__` and DLPack. The view keeps the memory
//! alive. Never here: copies that nobody asked for.

use std::ffi::{CString, c_int};

use partgrid::device::dlpack::DLDevice;
use partgrid::grid::{ElementType, Numbers};
use partgrid::location::Device;
use pyo3::exceptions::{
    PyAttributeError, PyBufferError, PyNotImplementedError, PyTypeError, PyValueError,
};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyIterator, PyMemoryView, PyTuple};

use crate::argument::{Given, optional, shown};
use crate::buffer::{DEVICE, DeviceInfo, PLAIN_FLAGS, Request};
use crate::convert::import;
use crate::dlpack::tensor_capsule;
use crate::error::Outcome;
use crate::operators::as_numpy_does;
use crate::runtime::Aside;
use crate::view::{Described, fill, release};

/// A view of numbers in Arrow memory: a column, a dense tile as rows x columns, or a section of a distributed array. It keeps the memory alive. Read-only, except for sections that were copied.
///
/// `memoryview`, `numpy.asarray`, `numpy.from_dlpack`, `torch.from_dlpack` and everything else that takes a buffer or DLPack reads it without copying.
///
/// Examples:
///     >>> import partgrid as pg
///     >>> distance = pg.read_parquet("data/flights").tile(0).column("distance")
///     >>> distance
///     Array (27004,) of float64, read-only
///     >>> memoryview(distance)[:2].tolist()
///     [1400.0, 1416.0]
#[pyclass(name = "Array", module = "partgrid", frozen)]
pub(crate) struct PyArray {
    numbers: Aside<Numbers>,
    /// The memory belongs to this array alone, and Python may write into it.
    is_writable: bool,
    /// Whose memory it is: of the CPU, or such as this process reads like that, for instance pinned by CUDA.
    device: Device,
}

impl PyArray {
    pub(crate) fn new(numbers: Numbers) -> Self {
        Self {
            numbers: Aside::new(numbers),
            is_writable: false,
            device: Device::CPU,
        }
    }

    /// The same in memory of a device that this process reads.
    pub(crate) fn on(self, device: Device) -> Self {
        Self { device, ..self }
    }

    /// Of memory that nobody else has.
    pub(crate) fn writable(numbers: Numbers) -> Self {
        Self {
            numbers: Aside::new(numbers),
            is_writable: true,
            device: Device::CPU,
        }
    }

    fn device_info(&self) -> Option<DeviceInfo> {
        let device = DLDevice::new(self.device);
        (self.device != Device::CPU)
            .then(|| DeviceInfo::at(device.device_type, device.device_id.into()))
    }

    /// The array interface, which is the same for numpy and for CUDA but for its name.
    fn interface<'py>(&self, py: Python<'py>, address: usize) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", self.numbers.element().type_string())?;
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("strides", self.strides(py)?)?;
        interface.set_item("data", (address, !self.is_writable))?;
        Ok(interface)
    }
}

/// Whether `memoryview` says of a key or a format that it does not know it.
fn is_not_known(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyNotImplementedError>(py)
}

/// The array as a `numpy.ndarray` over the same memory.
fn as_numpy<'py>(array: &Bound<'py, PyArray>, wanted_by: &str) -> PyResult<Bound<'py, PyAny>> {
    ndarray(&import(array.py(), "numpy", wanted_by)?, array)
}

as_numpy_does!(PyArray, as_numpy);

#[pymethods]
impl PyArray {
    /// The number of elements along each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.numbers.shape())
    }

    /// The bytes from one element to the next along each dimension.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.numbers.strides())
    }

    /// The format of one element as in the `struct` module (PEP 3118), for instance `d` for a 64-bit float. `numpy.dtype` takes it.
    #[getter]
    fn dtype(&self) -> char {
        self.numbers.element().format()
    }

    /// The bytes of the elements, without what lies between them.
    #[getter]
    fn nbytes(&self) -> usize {
        self.numbers.num_bytes()
    }

    /// The address of the first element.
    #[getter]
    fn address(&self) -> usize {
        self.numbers.as_ptr().addr()
    }

    fn __len__(&self) -> usize {
        self.numbers.shape().first().copied().unwrap_or(0)
    }

    /// An element, or a slice as a `memoryview`. What `memoryview` does not know, as rows of a table, 16-bit floats and lists of places, is what numpy gives.
    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match PyMemoryView::from(slf)?.get_item(key) {
            Err(error) if is_not_known(slf.py(), &error) => {
                as_numpy(slf, "this key of an Array")?.get_item(key)
            }
            found => found,
        }
    }

    /// The elements of one dimension; of several, what numpy gives for each index of the first one.
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyIterator>> {
        let numbers = &slf.get().numbers;
        match numbers.shape().len() == 1 && numbers.element() != ElementType::Float16 {
            true => PyMemoryView::from(slf)?.try_iter(),
            false => as_numpy(slf, "iterating over this Array")?.try_iter(),
        }
    }

    /// A copy of the numbers: pickled, and copied deeply, an `Array` is a `numpy.ndarray`. Needs numpy.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let numpy = import(slf.py(), "numpy", "pickling an Array")?;
        let copy = numpy.call_method1("array", (ndarray(&numpy, slf)?,))?;
        copy.call_method0("__reduce__")
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shape = self.shape(py)?.repr()?;
        let access = if self.is_writable { "" } else { ", read-only" };
        Ok(format!(
            "Array {shape} of {}{access}",
            self.numbers.element()
        ))
    }

    /// NumPy: the numbers as a `numpy.ndarray` over the same memory, read-only as this array is; a writable one with `copy=True`. Needs numpy.
    ///
    /// Args:
    ///     dtype: The wanted type; another than that of the numbers makes a copy.
    ///     copy: `True` copies always, `None` when it must, `False` never.
    ///
    /// Raises:
    ///     ValueError: `copy=False`, and the type needs a copy.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let numpy = import(slf.py(), "numpy", "__array__")?;
        converted(&numpy, &ndarray(&numpy, slf)?, dtype, copy)
    }

    /// The array interface of NumPy, version 3.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.interface(py, self.address())
    }

    /// The array interface of CUDA, version 3. Missing unless CUDA reads the memory, such as it has pinned.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if !self.device.is_cuda_readable() {
            let text = format!("the memory is on {}, not CUDA's", self.device);
            return Err(PyAttributeError::new_err(text));
        }
        // The interface wants none where there is no element.
        let address = match self.numbers.num_bytes() {
            0 => 0,
            _ => self.address(),
        };
        self.interface(py, address)
    }

    /// The request flags that arrays take: see `partgrid.buffer.supports`.
    #[classattr]
    fn __buffer_supported_flags__() -> c_int {
        PLAIN_FLAGS | DEVICE
    }

    /// DLPack (array API 2023.12): a capsule over the same memory, or over a copy of it with `copy=True`.
    ///
    /// Args:
    ///     stream: `None`, since the CPU has no streams.
    ///     max_version: The newest version that the consumer takes. Versions before 1.0 cannot say that memory is read-only, and get copies only.
    ///     dl_device: `None`, the device of the array, or `(1, 0)`, the CPU, which reads it.
    ///     copy: `True` copies; `None` and `False` never do.
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
        let own = DLDevice::new(self.device);
        let wanted = dl_device.filter(|wanted| *wanted != (own.device_type, own.device_id));
        let device = match wanted.or((self.device == Device::CPU).then_some((1, 0))) {
            // The CPU, since it is wanted or because there is nothing else.
            Some(_) => {
                refuse_devices(stream, wanted)?;
                DLDevice::CPU
            }
            None => {
                check_stream(self.device, stream.as_ref())?;
                own
            }
        };
        tensor_capsule(py, &self.numbers, device, max_version, copy == Some(true))
    }

    /// The device of DLPack: `(1, 0)`, the CPU, unless the memory was pinned by CUDA or the like.
    fn __dlpack_device__(&self) -> (i32, i32) {
        let device = DLDevice::new(self.device);
        (device.device_type, device.device_id)
    }

    #[expect(unsafe_code, reason = "the buffer interface fills a C struct")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        // SAFETY: the interpreter's own struct.
        let request = unsafe { Request::begin(view, flags) }?;
        let array = slf.get();
        let numbers = &array.numbers;
        let described = Described {
            address: numbers.as_ptr().cast_mut(),
            format: CString::new(numbers.element().format().to_string())?,
            item_bytes: numbers.element().item_bytes(),
            shape: numbers.shape(),
            strides: numbers.strides(),
            is_writable: array.is_writable,
            read_only: "Arrow memory is read-only",
            device: array.device_info(),
            held: None,
        };
        // SAFETY: the array keeps the numbers, which this process reads, and those it says are writable belong to it alone.
        unsafe { fill(slf.clone().into_any(), request, described) }
    }

    #[expect(unsafe_code, reason = "gives back what __getbuffer__ leaked")]
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: the struct that `__getbuffer__` filled.
        unsafe { release(view) };
    }
}

/// The numbers as a `numpy.ndarray` over the same memory, under the name that numpy has for their type (`q` and `l` are two types of one size there).
pub(crate) fn ndarray<'py>(
    numpy: &Bound<'py, PyModule>,
    array: &Bound<'py, PyArray>,
) -> PyResult<Bound<'py, PyAny>> {
    let name = array.get().numbers.element().type_string();
    let view = numpy.call_method1(
        "asarray",
        (array.py().get_type::<PyMemoryView>().call1((array,))?,),
    )?;
    view.call_method1("view", (name,))
}

/// What `__array__` gives of a view: itself, or a copy in the wanted type.
pub(crate) fn converted<'py>(
    numpy: &Bound<'py, PyModule>,
    view: &Bound<'py, PyAny>,
    dtype: Option<Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let ours = view.getattr("dtype")?;
    let wanted = match dtype {
        Some(dtype) => numpy.getattr("dtype")?.call1((dtype,))?,
        None => ours.clone(),
    };
    match (copy, wanted.eq(&ours)?) {
        (None | Some(false), true) => Ok(view.clone()),
        (Some(false), false) => Err(PyValueError::new_err(format!(
            "{ours} cannot become {wanted} without a copy\nhint: numpy.asarray(array, dtype=...) copies where it must"
        ))),
        _ => view.call_method1("astype", (wanted,)),
    }
}

/// Refuses a stream that a consumer of DLPack cannot mean; whether something must be waited for.
pub(crate) fn check_stream(device: Device, stream: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
    let Some(stream) = stream else {
        return Ok(true);
    };
    let number: i128 = stream
        .extract()
        .map_err(|_| wrong_stream(stream, "an integer or None"))?;
    let is_meant = match device.device_type() {
        _ if number == -1 => return Ok(false),
        2 | 3 | 13 => number > 0,
        10 | 11 => number == 0 || number > 2,
        _ => false,
    };
    match (is_meant, device.device_type()) {
        (true, _) => Ok(true),
        (false, 2 | 3 | 13) => Err(wrong_stream(
            stream,
            "-1, 1, 2 or the address of a stream of CUDA",
        )),
        (false, 10 | 11) => Err(wrong_stream(
            stream,
            "-1, 0 or the address of a stream of ROCm",
        )),
        (false, _) => Err(wrong_stream(
            stream,
            "None or -1, since the device has no streams",
        )),
    }
}

fn wrong_stream(stream: &Bound<'_, PyAny>, allowed: &str) -> PyErr {
    PyBufferError::new_err(format!("stream must be {allowed}, got {}", shown(stream)))
}

/// Refuses wishes of consumers of DLPack that memory of the CPU cannot meet.
pub(crate) fn refuse_devices(
    stream: Option<Bound<'_, PyAny>>,
    dl_device: Option<(i32, i32)>,
) -> PyResult<()> {
    if let Some(stream) = stream {
        return Err(PyBufferError::new_err(format!(
            "stream must be None for memory of the CPU, got {}",
            stream.repr()?
        )));
    }
    match dl_device {
        None | Some((1, 0)) => Ok(()),
        Some((kind, number)) => Err(PyBufferError::new_err(format!(
            "dl_device must be (1, 0), the CPU, got ({kind}, {number})\nhint: take it here and copy it there"
        ))),
    }
}
