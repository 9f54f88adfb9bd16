//! The extended buffer protocol for extensions in C: a capsule with functions, so that they need neither our numbers nor the handshake.
//!
//! Comes in: nothing. Goes out: the capsule `partgrid.buffer.C_API`. Never here: what the functions do (`consume.rs`). docs/devices.md has the declarations in C.

#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::consume::{release, request, supported};
use super::{DeviceInfo, Extended};

/// Where `PyCapsule_Import` finds it.
const NAME: &CStr = c"partgrid.buffer.C_API";

/// The struct behind the capsule. Later versions put fields behind these.
#[repr(C)]
struct Interface {
    version: u32,
    /// The bytes of `Py_buffer_extended`, for a check.
    extended_bytes: u32,
    /// The bytes of the struct that `device_info` leads to.
    info_bytes: u32,
    get_buffer_ext: unsafe extern "C" fn(*mut ffi::PyObject, *mut Extended, c_int) -> c_int,
    release_ext: unsafe extern "C" fn(*mut Extended),
    supports: unsafe extern "C" fn(*mut ffi::PyObject, c_int) -> c_int,
}

#[expect(clippy::cast_possible_truncation, reason = "104 and 64")]
static INTERFACE: Interface = Interface {
    version: 1,
    extended_bytes: size_of::<Extended>() as u32,
    info_bytes: size_of::<DeviceInfo>() as u32,
    get_buffer_ext: request,
    release_ext: release,
    supports: c_supports,
};

/// 1 or 0; -1 with an exception when a type says nonsense about itself.
unsafe extern "C" fn c_supports(object: *mut ffi::PyObject, flags: c_int) -> c_int {
    // SAFETY: C calls this with the interpreter attached.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: an object that the caller holds during the call.
    let object = unsafe { Bound::from_borrowed_ptr(py, object) };
    match supported(&object, flags) {
        Ok(answer) => c_int::from(answer),
        Err(error) => {
            error.restore(py);
            -1
        }
    }
}

/// The capsule with the functions for extensions in C.
#[pyfunction]
#[pyo3(name = "_buffer_interface")]
pub(crate) fn buffer_interface(py: Python<'_>) -> PyResult<Bound<'_, PyCapsule>> {
    let pointer = NonNull::from(&INTERFACE).cast();
    // SAFETY: the struct is there for ever and never written.
    unsafe { PyCapsule::new_with_pointer(py, pointer, NAME) }
}
