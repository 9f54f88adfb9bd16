//! The consumer's half: buffers of any producer, and `ExtendedBuffer`, which holds one.
//!
//! Comes in: objects with the buffer interface, ours or those of others. Goes out: what their buffers say, and where their memory is. Never here: a buffer of a device as a `memoryview`.

#![expect(unsafe_code, reason = "the buffer interface fills a C struct")]

use std::ffi::{CStr, c_char, c_int};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, PoisonError};

use partgrid::error::Error;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PyTuple};

use super::{COOKIE, DEVICE, DEVICE_NAME, DeviceInfo, Extended, PLAIN_FLAGS};
use crate::argument::{Given, optional};
use crate::error::Outcome;

/// The class attribute by which a type says which flags it supports.
const SUPPORTED_FLAGS: &str = "__buffer_supported_flags__";

/// Asks any object for a buffer, with the flag for devices. 0 when it is there; else -1, an exception is set, and the struct is zero.
///
/// # Safety
/// The interpreter must be attached, `object` an object, and `extended` a place for one struct, which need not be one yet.
pub(super) unsafe extern "C" fn request(
    object: *mut ffi::PyObject,
    extended: *mut Extended,
    flags: c_int,
) -> c_int {
    let mut zeroed = Extended::zeroed();
    zeroed.base.internal = std::ptr::without_provenance_mut(COOKIE);
    // SAFETY: a place for one struct.
    unsafe { extended.write(zeroed) };
    // SAFETY: as the caller vouches. The producer gets a pointer to the whole struct, of which this is the beginning.
    let code = unsafe { ffi::PyObject_GetBuffer(object, extended.cast(), flags | DEVICE) };
    // SAFETY: filled above, and by the producer.
    let filled = unsafe { &mut *extended };
    if code != 0 {
        *filled = Extended::zeroed();
        return -1;
    }
    if filled.base.internal.addr() == COOKIE {
        filled.base.internal = null_mut();
    }
    if filled.flags & DEVICE == 0 {
        // A producer that does not know the flag, or does not use it: memory of the CPU.
        filled.device = null();
        filled.device_info = null();
    }
    0
}

/// Gives a buffer back, and leaves zeros behind. Harmless a second time.
///
/// # Safety
/// The interpreter must be attached; `extended` must be a struct that `request` filled.
pub(super) unsafe extern "C" fn release(extended: *mut Extended) {
    // SAFETY: the beginning of the struct is what the producer filled; it does nothing where `obj` is null.
    unsafe { ffi::PyBuffer_Release(extended.cast()) };
    // SAFETY: as the caller vouches.
    unsafe { extended.write(Extended::zeroed()) };
}

/// Whether objects of a type take all of the flags, as far as the type says. Types that say nothing take those of Python before the draft.
pub(super) fn supported(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<bool> {
    // SAFETY: an object, and the interpreter is attached.
    if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } == 0 {
        return Ok(false);
    }
    let mask = object.get_type().getattr_opt(SUPPORTED_FLAGS)?;
    let known = match mask.map_or(Ok(0), |mask| mask.extract())? {
        // As of types that say nothing.
        0 => PLAIN_FLAGS,
        // Only `PyBUF_SIMPLE`, which is no flag at all; the sign is none either.
        ..0 => 0,
        mask => mask,
    };
    Ok(flags & !known == 0)
}

/// Flags as Python has them.
fn c_flags(flags: Option<Given<usize>>) -> Result<Option<c_int>, Error> {
    let Some(flags) = optional(flags, "flags")? else {
        return Ok(None);
    };
    let wrong =
        |_| Error::invalid_argument(format!("flags must be below 2 to the 31, got {flags}"));
    Ok(Some(c_int::try_from(flags).map_err(wrong)?))
}

/// Asks an object for its memory, wherever that is.
///
/// Args:
///     obj: An object with the buffer interface, of partgrid or of any library.
///     flags: Request flags as of `inspect.BufferFlags`; `partgrid.buffer.DEVICE` is added. By default `FULL_RO`.
///
/// Returns:
///     The buffer, held until `release` or the end of a `with` block. Nothing is copied.
///
/// Raises:
///     TypeError: The object has no buffer interface.
///     BufferError: The object has no buffer as the flags want it.
///
/// Examples:
///     >>> import partgrid as pg
///     >>> with pg.buffer.get_buffer(b"abc") as buffer:
///     ...     buffer.device, buffer.nbytes, buffer.memoryview().tolist()
///     (None, 3, [97, 98, 99])
#[pyfunction]
#[pyo3(signature = (obj, flags=None))]
pub(crate) fn get_buffer(
    obj: &Bound<'_, PyAny>,
    flags: Option<Given<usize>>,
) -> Outcome<PyExtendedBuffer> {
    let flags = c_flags(flags)?.unwrap_or(ffi::PyBUF_FULL_RO);
    // In a box, since producers may point into the struct.
    let mut held = Box::new(Held(Extended::zeroed()));
    // SAFETY: attached, an object, and a struct that is dropped once.
    if unsafe { request(obj.as_ptr(), &raw mut held.0, flags) } != 0 {
        return Err(PyErr::fetch(obj.py()).into());
    }
    Ok(PyExtendedBuffer {
        held: Mutex::new(Some(held)),
    })
}

/// Whether an object takes request flags, without asking it for a buffer (`PyObject_CheckBufferSupports` of the draft).
///
/// Args:
///     obj: Any object.
///     flags: Request flags as of `inspect.BufferFlags`, and `partgrid.buffer.DEVICE`.
///
/// Returns:
///     `False` without the buffer interface, and for flags that its type does not know. A type says which it knows by a class attribute `__buffer_supported_flags__`, an integer; one that has none,
///     or 0, knows those of Python, one that has -1 none of them. A request may still be refused: whether memory may be written, say, depends on the object.
///
/// Examples:
///     >>> import partgrid as pg
///     >>> pg.buffer.supports(pg.storage.zeros((3,)), pg.buffer.DEVICE), pg.buffer.supports(b"abc", pg.buffer.DEVICE)
///     (True, False)
#[pyfunction]
pub(crate) fn supports(obj: &Bound<'_, PyAny>, flags: Given<usize>) -> Outcome<bool> {
    let flags = c_flags(Some(flags))?.unwrap_or(0);
    Ok(supported(obj, flags)?)
}

/// A struct that a producer filled. Given back when it is dropped, which is always with the interpreter attached.
struct Held(Extended);

// SAFETY: moves between threads that have the interpreter; the producer's pointers stay valid until it is released, and `Mutex` lets one look at a time.
unsafe impl Send for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: attached, since only Python objects hold it; filled by `request`.
        unsafe { release(&raw mut self.0) };
    }
}

impl Held {
    fn list(&self, first: *const ffi::Py_ssize_t) -> Option<Vec<ffi::Py_ssize_t>> {
        let count = usize::try_from(self.0.base.ndim).unwrap_or(0);
        if first.is_null() {
            return None;
        }
        // SAFETY: not null, hence a list of `ndim` numbers until the buffer is released.
        Some(unsafe { std::slice::from_raw_parts(first, count) }.to_vec())
    }

    /// What our own description of devices says; `None` of those of others.
    fn info(&self) -> Option<DeviceInfo> {
        if text(self.0.device)? != DEVICE_NAME.to_string_lossy() || self.0.device_info.is_null() {
            return None;
        }
        // SAFETY: the name says what the pointer leads to, until the buffer is released.
        Some(unsafe { self.0.device_info.cast::<DeviceInfo>().read() })
    }
}

fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: not null, hence a text that ends with 0 until the buffer is released.
    let text = unsafe { CStr::from_ptr(pointer) };
    Some(text.to_string_lossy().into_owned())
}

/// A buffer of another object, in the memory of the host or of a device, as `partgrid.buffer.get_buffer` gives it. It keeps the memory until it is released.
///
/// Examples:
///     >>> import partgrid as pg
///     >>> buffer = pg.buffer.get_buffer(pg.storage.ones((2, 3)))
///     >>> buffer
///     ExtendedBuffer (2, 3) of 'd', writable, of the CPU
///     >>> buffer.release()
///     >>> buffer
///     ExtendedBuffer, released
#[pyclass(name = "ExtendedBuffer", module = "partgrid.buffer", frozen)]
pub(crate) struct PyExtendedBuffer {
    held: Mutex<Option<Box<Held>>>,
}

impl PyExtendedBuffer {
    fn with<T>(&self, look: impl FnOnce(&Held) -> T) -> PyResult<T> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.as_deref() {
            Some(held) => Ok(look(held)),
            None => Err(PyValueError::new_err("the buffer was released")),
        }
    }

    /// The object whose memory it is.
    fn owner<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let owner = self.with(|held| {
            // SAFETY: a reference that the struct holds, or null.
            unsafe { Bound::from_borrowed_ptr_or_opt(py, held.0.base.obj) }
        })?;
        owner.ok_or_else(|| {
            PyBufferError::new_err("the producer says of no object whose memory it is")
        })
    }
}

#[pymethods]
impl PyExtendedBuffer {
    /// The object whose memory it is.
    #[getter]
    fn obj<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.owner(py)
    }

    /// The address of the first element, or the handle of the memory where a driver knows it by one.
    #[getter]
    fn pointer(&self) -> PyResult<usize> {
        self.with(|held| held.0.base.buf.addr())
    }

    /// The bytes of the elements.
    #[getter]
    fn nbytes(&self) -> PyResult<isize> {
        self.with(|held| held.0.base.len)
    }

    /// The bytes of one element.
    #[getter]
    fn itemsize(&self) -> PyResult<isize> {
        self.with(|held| held.0.base.itemsize)
    }

    /// Whether the memory must not be written.
    #[getter]
    fn readonly(&self) -> PyResult<bool> {
        self.with(|held| held.0.base.readonly != 0)
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> PyResult<c_int> {
        self.with(|held| held.0.base.ndim)
    }

    /// The format of an element as in the `struct` module; `None` where the request had no `FORMAT`.
    #[getter]
    fn format(&self) -> PyResult<Option<String>> {
        self.with(|held| text(held.0.base.format))
    }

    /// The number of elements along each dimension; `None` where the request had no `ND`.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let shape = self.with(|held| held.list(held.0.base.shape))?;
        shape.map(|shape| PyTuple::new(py, shape)).transpose()
    }

    /// The bytes from one element to the next along each dimension; `None` where the request had no `STRIDES`.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let strides = self.with(|held| held.list(held.0.base.strides))?;
        strides.map(|strides| PyTuple::new(py, strides)).transpose()
    }

    /// The name by which the producer describes its device; `None` for memory of the CPU. That of partgrid is `partgrid.buffer.DEVICE_NAME`.
    #[getter]
    fn device(&self) -> PyResult<Option<String>> {
        self.with(|held| text(held.0.device))
    }

    /// Type and number of the device as DLPack has them; `None` for memory of the CPU, and where another library describes the device.
    #[getter]
    fn device_info(&self) -> PyResult<Option<(i32, i64)>> {
        let info = self.with(Held::info)?;
        Ok(info.map(|info| (info.device_type, info.device_id)))
    }

    /// The address of what to wait for before the memory is read, as `sync_event` of the Arrow C Device interface; 0 for nothing.
    #[getter]
    fn sync_event(&self) -> PyResult<usize> {
        let info = self.with(Held::info)?;
        Ok(info.map_or(0, |info| info.sync_event.addr()))
    }

    /// The bytes from `pointer` to the first element. Not 0 only where `pointer` is a handle.
    #[getter]
    fn byte_offset(&self) -> PyResult<u64> {
        let info = self.with(Held::info)?;
        Ok(info.map_or(0, |info| info.byte_offset))
    }

    /// Whether the buffer was released.
    #[getter]
    fn released(&self) -> bool {
        self.with(|_| ()).is_err()
    }

    /// The memory as a `memoryview`, which holds it on its own.
    ///
    /// Raises:
    ///     BufferError: It is that of a device, which this process cannot read.
    ///     ValueError: The buffer was released.
    fn memoryview<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        // Asks once more, and without the flag: a producer never gives memory of a device then.
        PyMemoryView::from(&self.owner(py)?)
    }

    /// Gives the buffer back to its producer. A second time does nothing.
    fn release(&self) {
        let held = self
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // The producer may run Python code, so not under the lock.
        drop(held);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Whoever looks at it now keeps it.
        let Ok(held) = self.held.try_lock() else {
            return Ok(());
        };
        let owner = held.as_ref().map(|held| &raw const held.0.base.obj);
        let Some(owner) = owner else {
            return Ok(());
        };
        // SAFETY: `Option<Py>` is a pointer to an object, or null, as the struct has it; the struct is not given back while it is locked.
        let owner = unsafe { &*owner.cast::<Option<Py<PyAny>>>() };
        visit.call(owner)
    }

    fn __clear__(&self) {
        self.release();
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().with(|_| ())?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.release();
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        if self.released() {
            return Ok("ExtendedBuffer, released".to_owned());
        }
        let shape = match self.shape(py)? {
            Some(shape) => shape.repr()?.to_string(),
            None => format!("of {} bytes", self.nbytes()?),
        };
        let format = match self.format()? {
            Some(format) => format!(" of '{format}'"),
            None => String::new(),
        };
        let access = if self.readonly()? {
            "read-only"
        } else {
            "writable"
        };
        let place = match (self.device_info()?, self.device()?) {
            (Some((kind, number)), _) => format!("device ({kind}, {number})"),
            (None, Some(name)) => format!("device {name}"),
            (None, None) => "the CPU".to_owned(),
        };
        Ok(format!(
            "ExtendedBuffer {shape}{format}, {access}, of {place}"
        ))
    }
}
