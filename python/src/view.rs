//! The buffer interface (PEP 3118) over memory that a description says all about.
//!
//! Comes in: an address, a format, shape and strides, whether it is memory of a device, and the request of a consumer. Goes out: the C struct filled, or the `BufferError` that says what the memory is
//! not. Never here: whose memory it is.

#![expect(unsafe_code, reason = "the buffer interface fills a C struct")]

use std::any::Any;
use std::ffi::{CString, c_int};

use std::ptr::NonNull;

use partgrid::grid::{Order, is_packed};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::buffer::{DeviceInfo, Request};

/// What a consumer gets to know.
pub(crate) struct Described<'a> {
    /// Of the first element.
    pub(crate) address: *mut u8,
    pub(crate) format: CString,
    pub(crate) item_bytes: usize,
    pub(crate) shape: &'a [usize],
    /// In bytes.
    pub(crate) strides: &'a [usize],
    pub(crate) is_writable: bool,
    /// What is said to consumers that want to write where they may not.
    pub(crate) read_only: &'static str,
    /// Where the memory is, if not on the CPU.
    pub(crate) device: Option<DeviceInfo>,
    /// Dropped when the consumer releases the view.
    pub(crate) held: Option<Box<dyn Any>>,
}

/// What one view needs until it is released.
struct View {
    format: CString,
    shape: Vec<ffi::Py_ssize_t>,
    strides: Vec<ffi::Py_ssize_t>,
    device: Option<DeviceInfo>,
    #[expect(dead_code, reason = "dropped with the view")]
    held: Option<Box<dyn Any>>,
}

/// Fills the struct of a consumer, which keeps `owner` alive.
///
/// # Safety
/// The memory is there as long as `owner` is, and may be written if it is said to be writable. Whoever is asked without an extended struct vouches that this process can read it.
pub(crate) unsafe fn fill(
    owner: Bound<'_, PyAny>,
    mut request: Request,
    described: Described<'_>,
) -> PyResult<()> {
    let flags = request.flags;
    refuse_flags(&described, flags)?;
    let num_elements: usize = described.shape.iter().product();
    let state = Box::new(View {
        format: described.format,
        shape: signed(described.shape)?,
        strides: signed(described.strides)?,
        device: described.device,
        held: described.held,
    });
    let num_bytes = ffi::Py_ssize_t::try_from(num_elements * described.item_bytes)?;
    let item_bytes = ffi::Py_ssize_t::try_from(described.item_bytes)?;
    let num_dimensions = c_int::try_from(state.shape.len())?;
    // Nothing fails from here on.
    let state = Box::into_raw(state);
    // SAFETY: the box was just leaked and is given back in `release`.
    let fields = unsafe { &mut *state };
    request.tell(fields.device.as_mut().map(NonNull::from));
    // SAFETY: the only reference.
    let view = unsafe { request.view() };
    view.buf = described.address.cast();
    view.len = num_bytes;
    view.itemsize = item_bytes;
    view.readonly = c_int::from(!described.is_writable);
    // Without a shape the consumer sees bytes.
    view.ndim = if wants(flags, ffi::PyBUF_ND) {
        num_dimensions
    } else {
        1
    };
    view.suboffsets = std::ptr::null_mut();
    let asked = |flag: c_int, list: &mut Vec<ffi::Py_ssize_t>| {
        // Without dimensions there is no list.
        if wants(flags, flag) && !list.is_empty() {
            list.as_mut_ptr()
        } else {
            std::ptr::null_mut()
        }
    };
    view.shape = asked(ffi::PyBUF_ND, &mut fields.shape);
    view.strides = asked(ffi::PyBUF_STRIDES, &mut fields.strides);
    view.format = if wants(flags, ffi::PyBUF_FORMAT) {
        fields.format.as_ptr().cast_mut()
    } else {
        std::ptr::null_mut()
    };
    view.internal = state.cast();
    view.obj = owner.into_ptr();
    Ok(())
}

/// Gives back what [`fill`] leaked.
///
/// # Safety
/// `view` is what the interpreter passed to `__releasebuffer__`.
pub(crate) unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: the interpreter passes the struct that `fill` filled, once.
    let Some(view) = (unsafe { view.as_mut() }) else {
        return;
    };
    if !view.internal.is_null() {
        // SAFETY: `internal` holds the box that `fill` leaked.
        drop(unsafe { Box::from_raw(view.internal.cast::<View>()) });
        view.internal = std::ptr::null_mut();
    }
}

fn signed(sizes: &[usize]) -> PyResult<Vec<ffi::Py_ssize_t>> {
    let signed = sizes.iter().map(|size| ffi::Py_ssize_t::try_from(*size));
    Ok(signed.collect::<Result<_, _>>()?)
}

fn wants(flags: c_int, flag: c_int) -> bool {
    flags & flag == flag
}

/// What copies an array into C order without gaps.
const IN_C: &str = "numpy.ascontiguousarray(array)";

/// Refuses what the memory cannot be for this consumer (PEP 3118, "Contiguity requests").
fn refuse_flags(described: &Described<'_>, flags: c_int) -> PyResult<()> {
    if wants(flags, ffi::PyBUF_WRITABLE) && !described.is_writable {
        let copied = if wants(flags, ffi::PyBUF_C_CONTIGUOUS) || !wants(flags, ffi::PyBUF_STRIDES) {
            "numpy.array(array, order=\"C\")"
        } else if wants(flags, ffi::PyBUF_F_CONTIGUOUS) {
            "numpy.array(array, order=\"F\")"
        } else {
            "numpy.array(array)"
        };
        return refused(described.read_only, copied);
    }
    let packed = |order| {
        let (shape, strides) = (described.shape, described.strides);
        is_packed(shape, strides, described.item_bytes, order)
    };
    let (in_c, in_fortran) = (packed(Order::Rows), packed(Order::Columns));
    if wants(flags, ffi::PyBUF_C_CONTIGUOUS) && !in_c {
        return refused("the array does not lie in C order without gaps", IN_C);
    }
    if wants(flags, ffi::PyBUF_F_CONTIGUOUS) && !in_fortran {
        let text = "the array does not lie in Fortran order without gaps";
        return refused(text, "numpy.asfortranarray(array)");
    }
    if wants(flags, ffi::PyBUF_ANY_CONTIGUOUS) && !in_c && !in_fortran {
        return refused("the array has gaps between its columns", IN_C);
    }
    if !wants(flags, ffi::PyBUF_STRIDES) && !in_c {
        return refused(
            "the array has strides, which this consumer does not take",
            IN_C,
        );
    }
    Ok(())
}

fn refused(text: &str, copied: &str) -> PyResult<()> {
    let text = format!("{text}\nhint: copy it: {copied}");
    Err(PyBufferError::new_err(text))
}
