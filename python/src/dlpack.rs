//! DLPack capsules in and out, and `from_dlpack`.
//!
//! Comes in: numbers of ours, or an object with `__dlpack__`. Goes out: capsules named as the DLPack Python specification says, or a grid. Never here: reading of tensors,
//! which `partgrid::device::dlpack` does.

#![expect(
    unsafe_code,
    reason = "a DLPack capsule holds a pointer whose owner depends on the name of the capsule"
)]

use std::ffi::CStr;
use std::ptr::NonNull;

use partgrid::device::dlpack::{
    DLDevice, DLPACK_VERSION, ManagedTensor, export_tensor, import_tensor,
};
use partgrid::error::{Error, ErrorKind};
use partgrid::grid::{Numbers, PartitionGrid};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyDict};

use crate::argument::{Given, optional};
use crate::error::{Outcome, buffer_error};
use crate::grid::PyGrid;
use crate::numpy::refuse_masked;

const PLAIN: &CStr = c"dltensor";
const USED_PLAIN: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";

/// A capsule with a tensor of the numbers, or of a copy of them.
pub(crate) fn tensor_capsule<'py>(
    py: Python<'py>,
    numbers: &Numbers,
    device: DLDevice,
    max_version: Option<(u32, u32)>,
    copy: bool,
) -> Outcome<Bound<'py, PyCapsule>> {
    let tensor = py.detach(|| export_tensor(numbers, device, max_version, copy));
    capsule_of(py, tensor)
}

/// A capsule with a tensor; errors become those that consumers expect.
pub(crate) fn capsule_of(
    py: Python<'_>,
    tensor: Result<ManagedTensor, Error>,
) -> Outcome<Bound<'_, PyCapsule>> {
    let tensor = tensor.map_err(|error| buffer_error(py, &error))?;
    let name = if tensor.is_versioned() {
        VERSIONED
    } else {
        PLAIN
    };
    let pointer = tensor.into_raw();
    // SAFETY: the pointer is to a tensor that `release_unused` releases unless a consumer has taken it.
    let capsule = unsafe {
        PyCapsule::new_with_pointer_and_destructor(py, pointer, name, Some(release_unused))
    };
    if capsule.is_err() {
        // SAFETY: no capsule came to own it.
        drop(unsafe { owned(name, pointer.cast()) });
    }
    Ok(capsule?)
}

/// The destructor of our capsules: a consumer that took the tensor has renamed the capsule.
unsafe extern "C" fn release_unused(capsule: *mut ffi::PyObject) {
    for name in [VERSIONED, PLAIN] {
        // SAFETY: the interpreter passes the capsule that it destroys.
        if unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) } == 0 {
            continue;
        }
        // SAFETY: valid under this name, as was just seen.
        let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) };
        if let Some(pointer) = NonNull::new(pointer) {
            // SAFETY: `tensor_capsule` put the tensor there, and nobody has taken it.
            drop(unsafe { owned(name, pointer) });
        }
    }
}

/// # Safety
/// The pointer must be to a tensor of the kind that `name` says, which nobody else releases.
unsafe fn owned(name: &CStr, pointer: NonNull<std::ffi::c_void>) -> ManagedTensor {
    if name == VERSIONED {
        // SAFETY: as the caller vouches.
        unsafe { ManagedTensor::from_versioned(pointer.cast()) }
    } else {
        // SAFETY: as the caller vouches.
        unsafe { ManagedTensor::from_plain(pointer.cast()) }
    }
}

/// Takes the tensor out of a capsule, which is renamed so that its destructor leaves the tensor alone.
fn take_tensor(capsule: &Bound<'_, PyAny>) -> Outcome<ManagedTensor> {
    let wrong = || {
        Error::new(
            ErrorKind::Protocol,
            format!(
                "__dlpack__ must return a PyCapsule named \"dltensor_versioned\" or \"dltensor\" that nobody has used, got {capsule}"
            ),
        )
    };
    let capsule = capsule.cast::<PyCapsule>().map_err(|_| wrong())?;
    let names = [(VERSIONED, USED_VERSIONED), (PLAIN, USED_PLAIN)];
    let name = names
        .into_iter()
        .find(|(name, _)| capsule.is_valid_checked(Some(name)));
    let (name, used) = name.ok_or_else(wrong)?;
    let pointer = capsule.pointer_checked(Some(name))?;
    // SAFETY: a capsule, and a name that lives for ever.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) } != 0 {
        return Err(PyErr::fetch(capsule.py()).into());
    }
    // SAFETY: a capsule of this name holds such a tensor; under its new name it does not release it any more.
    Ok(unsafe { owned(name, pointer) })
}

/// Makes a grid of one tile of any tensor with `__dlpack__` in the memory of the CPU: numpy, torch, jax, tensorflow, ...
///
/// A tensor of one dimension becomes one column, one of two dimensions a column for each index of the second. Columns whose elements are neighbours in memory share it, all
/// others are copied; booleans become bits. Shared memory must not change while the grid lives.
///
/// Args:
///     tensor: An object with `__dlpack__` and `__dlpack_device__`: integers, floats up to 64 bits, or booleans.
///     names: The names of the columns, by default `column_0`, `column_1` and so on.
///
/// Returns:
///     The grid. It keeps the tensor's memory alive.
///
/// Raises:
///     ProtocolError: The object has no `__dlpack__`.
///     NotLocalError: The tensor is in the memory of a device.
///     UnsupportedError: Its elements have no Arrow type.
///     InvalidArgumentError: It has other than one or two dimensions, or names do not fit.
///     InvalidDataError: The tensor contradicts itself.
///
/// Examples:
///     >>> import numpy as np, partgrid as pg
///     >>> pg.from_dlpack(np.arange(6.0).reshape(3, 2), names=["a", "b"]).columns
///     ['a', 'b']
#[pyfunction]
#[pyo3(signature = (tensor, names=None))]
pub(crate) fn from_dlpack(
    tensor: &Bound<'_, PyAny>,
    names: Option<Given<Vec<String>>>,
) -> Outcome<PyGrid> {
    let names = optional(names, "names")?;
    let py = tensor.py();
    refuse_masked(tensor)?;
    if !tensor.hasattr("__dlpack__")? {
        let class = tensor.get_type().qualname()?;
        return Err(Error::new(
            ErrorKind::Protocol,
            format!("an object with __dlpack__ was expected, got {class}"),
        )
        .with_hint("numpy, torch, jax and tensorflow arrays have it; from_numpy and from_arrow take other objects")
        .into());
    }
    let options = PyDict::new(py);
    options.set_item("max_version", DLPACK_VERSION)?;
    let capsule = match tensor.call_method("__dlpack__", (), Some(&options)) {
        // Producers from before version 1.0 do not know the argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => tensor.call_method0("__dlpack__"),
        result => result,
    }?;
    let taken = take_tensor(&capsule)?;
    let grid = py.detach(|| PartitionGrid::try_from_columns(import_tensor(taken)?, names));
    Ok(PyGrid::new(grid?))
}
