//! `SectionBuffer`: one column of one tile under the buffer interface.
//!
//! Comes in: an Arrow buffer of numbers. Goes out: a read-only, one-dimensional, contiguous view under PEP 3118. The view keeps the memory alive. Never here: copies.

use std::ffi::{CString, c_int};

use arrow::buffer::Buffer;
use partgrid::distarray::ElementType;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// A read-only view of the numbers of one column of one tile. `memoryview`, `numpy.asarray` and everything else that takes a buffer reads it without copying.
#[pyclass(name = "SectionBuffer", module = "partgrid", frozen)]
pub(crate) struct PySectionBuffer {
    buffer: Buffer,
    element: ElementType,
    length: usize,
}

impl PySectionBuffer {
    pub(crate) fn new(buffer: Buffer, element: ElementType, length: usize) -> Self {
        Self {
            buffer,
            element,
            length,
        }
    }
}

/// What one view needs until it is released.
struct View {
    format: CString,
    shape: ffi::Py_ssize_t,
    stride: ffi::Py_ssize_t,
}

#[pymethods]
impl PySectionBuffer {
    /// The address of the first element.
    #[getter]
    fn address(&self) -> usize {
        self.buffer.as_ptr() as usize
    }

    fn __len__(&self) -> usize {
        self.length
    }

    fn __repr__(&self) -> String {
        format!(
            "SectionBuffer of {} x {}, read-only",
            self.length,
            self.element.format()
        )
    }

    #[expect(unsafe_code, reason = "the buffer interface fills a C struct")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        // SAFETY: the interpreter passes a struct to fill, or null by mistake.
        let Some(view) = (unsafe { view.as_mut() }) else {
            return Err(PyBufferError::new_err("the view is null"));
        };
        view.obj = std::ptr::null_mut();
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err(
                "Arrow memory is read-only\nhint: copy it: numpy.array(buffer)",
            ));
        }
        let this = slf.get();
        let item_bytes = ffi::Py_ssize_t::try_from(this.element.item_bytes())?;
        let shape = ffi::Py_ssize_t::try_from(this.length)?;
        let wants = |flag: c_int| flags & flag == flag;
        let state = Box::new(View {
            format: CString::new(this.element.format().to_string())?,
            shape,
            stride: item_bytes,
        });
        view.buf = this.buffer.as_ptr().cast_mut().cast();
        view.len = shape * item_bytes;
        view.readonly = 1;
        view.itemsize = item_bytes;
        view.ndim = 1;
        view.suboffsets = std::ptr::null_mut();
        let state = Box::into_raw(state);
        // SAFETY: the box was just leaked and is given back in `__releasebuffer__`.
        let fields = unsafe { &mut *state };
        view.format = if wants(ffi::PyBUF_FORMAT) {
            fields.format.as_ptr().cast_mut()
        } else {
            std::ptr::null_mut()
        };
        view.shape = if wants(ffi::PyBUF_ND) {
            &raw mut fields.shape
        } else {
            std::ptr::null_mut()
        };
        view.strides = if wants(ffi::PyBUF_STRIDES) {
            &raw mut fields.stride
        } else {
            std::ptr::null_mut()
        };
        view.internal = state.cast();
        view.obj = slf.into_any().into_ptr();
        Ok(())
    }

    #[expect(unsafe_code, reason = "gives back what __getbuffer__ leaked")]
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: the interpreter passes the struct that `__getbuffer__` filled, once.
        let Some(view) = (unsafe { view.as_mut() }) else {
            return;
        };
        if !view.internal.is_null() {
            // SAFETY: `internal` holds the box that `__getbuffer__` leaked.
            drop(unsafe { Box::from_raw(view.internal.cast::<View>()) });
            view.internal = std::ptr::null_mut();
        }
    }
}
