//! `DeviceColumn`: a column of a tile on a device, as other libraries take it where it is.
//!
//! Comes in: a column of a device batch. Goes out: Arrow C Device capsules, DLPack tensors, the array interface of CUDA, extended buffers; copies only where they are asked for. Never here: memory
//! of a device where a consumer would take it for that of the host.

use std::ffi::{CString, c_int};

use partgrid::device::dlpack::{Sharing, export_copy, export_device_tensor};
use partgrid::device::{DeviceColumn, DeviceNumbers};
use partgrid::error::{Error, ErrorKind, Result as CoreResult};
use partgrid::grid::Numbers;
use partgrid::location::Device;
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::argument::{Given, optional};
use crate::array::{PyArray, check_stream};
use crate::buffer::{DEVICE, DeviceInfo, PLAIN_FLAGS, Request};
use crate::capsule::field_capsule;
use crate::device::{device_capsules, refuse_cast, refuse_reserved};
use crate::dlpack::capsule_of;
use crate::error::{Outcome, Raised, buffer_error};
use crate::runtime::Aside;
use crate::view::{Described, fill, release};

/// A column of a tile in the memory of a device, as `Tile.column` gives it. It keeps the memory, which is read-only.
///
/// Libraries of the device take it where it is: by `__arrow_c_device_array__` (any type), by DLPack, and where CUDA reads the memory by `__cuda_array_interface__` (numbers without nulls). What would read
/// the memory on the host is refused; `to("kDLCPU")` copies it.
///
/// Examples:
///     >>> import partgrid as pg, pyarrow as pa
///     >>> pg.from_arrow(pa.table({"n": [1, 2, 3]})).to("kDLCUDA:0").tile(0).column("n")  # doctest: +SKIP
///     DeviceColumn 'n' (3,) of Int64 on kDLCUDA:0
#[pyclass(name = "DeviceColumn", module = "partgrid", frozen)]
pub(crate) struct PyDeviceColumn {
    column: Aside<DeviceColumn>,
}

impl PyDeviceColumn {
    fn new(column: DeviceColumn) -> Self {
        Self {
            column: Aside::new(column),
        }
    }

    /// A column of a tile, unless its nulls should be filled.
    pub(crate) fn of_tile(
        py: Python<'_>,
        column: DeviceColumn,
        fills: bool,
    ) -> Outcome<Bound<'_, PyAny>> {
        if fills {
            let text = format!(
                "the nulls of a column are filled on the host only, this one is on {}",
                column.device()
            );
            let hint = "copy the tile to the host first: to(\"kDLCPU\")";
            return Err(Error::unsupported(text).with_hint(hint).into());
        }
        Ok(Self::new(column).into_pyobject(py)?.into_any())
    }

    fn numbers(&self, py: Python<'_>) -> CoreResult<DeviceNumbers> {
        py.detach(|| self.column.numbers())
    }

    /// The numbers for consumers that expect a `BufferError`.
    fn buffer_numbers(&self, py: Python<'_>) -> PyResult<DeviceNumbers> {
        let numbers = self.numbers(py);
        numbers.map_err(|error| buffer_error(py, &error))
    }

    fn not_here(&self, consumer: &str) -> String {
        format!(
            "{consumer} reads memory of the host, the column is in that of {}\nhint: {}",
            self.column.device(),
            match self
                .column
                .field()
                .map(|field| field.data_type().is_numeric())
            {
                Ok(true) => "copy it: column.to(\"kDLCPU\")",
                _ => "copy its tile: tile.to(\"kDLCPU\")",
            }
        )
    }

    /// The column as an array of the host.
    fn on_host(&self) -> CoreResult<Numbers> {
        let field = self.column.field()?;
        Numbers::try_from_column(&field, &self.column.copy_to_host()?, None)
    }
}

#[pymethods]
impl PyDeviceColumn {
    /// The name of the column.
    #[getter]
    fn name(&self) -> Outcome<String> {
        Ok(self.column.field()?.name().clone())
    }

    /// The device, such as `kDLCUDA:0`.
    #[getter]
    fn device(&self) -> String {
        self.column.device().to_string()
    }

    /// The number of rows, in a tuple.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, [self.column.num_rows()])
    }

    /// The bytes from one element to the next, in a tuple.
    ///
    /// Raises:
    ///     UnsupportedError: The column is no plain number; the text says what to cast.
    ///     InvalidDataError: The column has nulls.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyTuple>> {
        let item_bytes = self.numbers(py)?.element().item_bytes();
        Ok(PyTuple::new(py, [item_bytes])?)
    }

    /// The bytes of the column's buffers, as far as they are known.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.column.memory_bytes())
    }

    /// The format of one element as in the `struct` module (PEP 3118), for instance `d` for a 64-bit float.
    ///
    /// Raises:
    ///     UnsupportedError: The column is no plain number; the text says what to cast.
    ///     InvalidDataError: The column has nulls.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> Outcome<char> {
        Ok(self.numbers(py)?.element().format())
    }

    /// The address of the first element; where the driver knows memory by handles, that of the buffer.
    ///
    /// Raises:
    ///     UnsupportedError: The column is no plain number; the text says what to cast.
    ///     InvalidDataError: The column has nulls.
    #[getter]
    fn address(&self, py: Python<'_>) -> Outcome<usize> {
        Ok(self.numbers(py)?.address())
    }

    /// The column in the memory of a device, or of the host.
    ///
    /// Args:
    ///     device: Such as `"kDLCUDA:0"`, or `"kDLCPU"` for the memory of this process.
    ///
    /// Returns:
    ///     For `"kDLCPU"` an `Array`, else a `DeviceColumn`: a copy, unless it is there already.
    ///
    /// Raises:
    ///     UnsupportedError: Nothing copies to or from such a device; or the column is no plain number, and an `Array` is wanted (copy the tile then).
    ///     InvalidDataError: The column has nulls, and an `Array` is wanted.
    ///     NotFoundError: The driver of the device is not on this machine, or the device is not.
    ///     ResourcesExhaustedError: The device has no room.
    #[pyo3(signature = (device) -> "Array | DeviceColumn")]
    fn to<'py>(slf: &Bound<'py, Self>, device: Given<Device>) -> Outcome<Bound<'py, PyAny>> {
        let py = slf.py();
        let (this, column) = (slf.get(), &slf.get().column);
        let wanted = device.named("device")?;
        let place = |device: Device| (device.device_type(), device.ordinal().unwrap_or(0));
        if place(wanted) == place(column.device()) {
            return Ok(slf.clone().into_any());
        }
        if wanted.device_type() == Device::CPU.device_type() {
            let numbers = py.detach(|| this.on_host())?;
            return Ok(PyArray::new(numbers).into_pyobject(py)?.into_any());
        }
        let column = py.detach(|| column.copy_to(wanted))?;
        Ok(Self::new(column).into_pyobject(py)?.into_any())
    }

    fn __len__(&self) -> usize {
        self.column.num_rows()
    }

    fn __repr__(&self) -> Outcome<String> {
        let field = self.column.field()?;
        Ok(format!(
            "DeviceColumn '{}' ({},) of {} on {}",
            field.name(),
            self.column.num_rows(),
            field.data_type(),
            self.column.device()
        ))
    }

    /// Refused: numpy reads memory of the host.
    ///
    /// Raises:
    ///     TypeError: Always, with the remedy. Without this method numpy would make an array of one object.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        drop((dtype, copy));
        Err(PyTypeError::new_err(self.not_here("numpy")))
    }

    /// The array interface of CUDA, version 3. What must be waited for has been waited for when this returns.
    ///
    /// Raises:
    ///     AttributeError: CUDA does not read the memory, or the column has nulls or is no plain number; the text says what to cast. So `hasattr` tells whether there is one.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyDict>> {
        let device = self.column.device();
        if !device.is_cuda_readable() {
            let text = format!("the memory is on {device}, not CUDA's");
            return Err(PyAttributeError::new_err(text).into());
        }
        let numbers = py.detach(|| {
            self.column.wait()?;
            self.column.numbers()
        });
        let numbers = numbers.map_err(|error| match error.kind() {
            ErrorKind::Unsupported | ErrorKind::InvalidData => {
                Raised::from(PyAttributeError::new_err(error.to_string()))
            }
            _ => error.into(),
        })?;
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", numbers.element().type_string())?;
        interface.set_item("shape", (numbers.len(),))?;
        interface.set_item("strides", py.None())?;
        interface.set_item("data", (numbers.address(), true))?;
        Ok(interface)
    }

    /// DLPack (array API 2023.12): a capsule over the same memory. Copied only with `copy=True`, or for another device.
    ///
    /// Args:
    ///     stream: For CUDA and ROCm the stream that will use the memory, as the array API numbers them; `-1` does not wait for the producer's work. `None` for devices without streams. The producer is
    ///         waited for on the host, which is right for any stream.
    ///     max_version: The newest version that the consumer takes. Versions before 1.0 cannot say that memory is read-only, and get copies only.
    ///     dl_device: `None`, the device of the column, or `(1, 0)`, the CPU, which gets a copy.
    ///     copy: `True` copies, on the device by way of the host; `None` copies only for the CPU; `False` never.
    ///
    /// Returns:
    ///     A capsule `dltensor_versioned`, or `dltensor` for versions before 1.0.
    ///
    /// Raises:
    ///     BufferError: The wish cannot be met, or the column is no plain number, or has nulls.
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
        let column = &self.column;
        let waits = check_stream(column.device(), stream.as_ref())?;
        let own = self.__dlpack_device__();
        match dl_device {
            Some((1, 0)) if copy == Some(false) => Err(PyBufferError::new_err(format!(
                "memory of {} comes to the CPU only as a copy, which copy=False forbids",
                column.device()
            ))
            .into()),
            Some((1, 0)) => capsule_of(
                py,
                py.detach(|| export_copy(self.on_host()?, max_version)),
            ),
            Some(other) if other != own => Err(PyBufferError::new_err(format!(
                "dl_device must be {own:?}, where the column is, or (1, 0), the CPU, got {other:?}\nhint: column.to(device) copies it to other devices"
            ))
            .into()),
            _ => capsule_of(
                py,
                py.detach(|| {
                    if copy == Some(true) {
                        let numbers = column.copy_to(column.device())?.numbers()?;
                        return export_device_tensor(numbers, Sharing::Copied, max_version);
                    }
                    let numbers = column.numbers()?;
                    if waits {
                        column.wait()?;
                    }
                    export_device_tensor(numbers, Sharing::ReadOnly, max_version)
                }),
            ),
        }
    }

    /// The device of DLPack: type and number, as the producer gave them.
    fn __dlpack_device__(&self) -> (i32, i32) {
        let device = self.column.dlpack_device();
        (device.device_type, device.device_id)
    }

    /// The Arrow PyCapsule interface for devices: schema and array of the column where it is, without copying.
    ///
    /// Args:
    ///     requested_schema: Refused unless `None`: a cast would need the device.
    ///     kwargs: Reserved by the interface.
    ///
    /// Raises:
    ///     NotImplementedError: A keyword argument other than `None`.
    ///     UnsupportedError: A requested schema.
    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> Outcome<Bound<'py, PyTuple>> {
        refuse_reserved(kwargs)?;
        refuse_cast(requested_schema)?;
        device_capsules(py, py.detach(|| self.column.export())?)
    }

    /// The Arrow PyCapsule interface: name and type.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyCapsule>> {
        field_capsule(py, self.column.field()?.as_ref())
    }

    /// The request flags that it takes: see `partgrid.buffer.supports`. A request must be for a consumer that knows devices.
    #[classattr]
    fn __buffer_supported_flags__() -> c_int {
        (PLAIN_FLAGS | DEVICE) & !ffi::PyBUF_WRITABLE
    }

    #[expect(unsafe_code, reason = "the buffer interface fills a C struct")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        // SAFETY: the interpreter's own struct.
        let request = unsafe { Request::begin(view, flags) }?;
        if !request.knows_devices() {
            let text = slf.get().not_here("the buffer interface");
            return Err(PyBufferError::new_err(format!(
                "{text}; consumers that know devices ask as partgrid.buffer.get_buffer does"
            )));
        }
        let numbers = slf.get().buffer_numbers(slf.py())?;
        let item_bytes = numbers.element().item_bytes();
        let described = Described {
            address: std::ptr::with_exposed_provenance_mut(numbers.address()),
            format: CString::new(numbers.element().format().to_string())?,
            item_bytes,
            shape: &[numbers.len()],
            strides: &[item_bytes],
            is_writable: false,
            read_only: "Arrow memory is read-only",
            device: Some(DeviceInfo::of(&numbers)),
            held: None,
        };
        // SAFETY: the column keeps the memory, and the consumer has an extended struct.
        unsafe { fill(slf.clone().into_any(), request, described) }
    }

    #[expect(unsafe_code, reason = "gives back what __getbuffer__ leaked")]
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: the struct that `__getbuffer__` filled.
        unsafe { release(view) };
    }
}
