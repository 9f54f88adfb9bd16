//! The producer's half of the handshake.
//!
//! Comes in: what the interpreter passes to `__getbuffer__`. Goes out: whether the struct is an extended one, and the extension filled. Never here: a byte behind a plain struct.

#![expect(unsafe_code, reason = "the buffer interface fills a C struct")]

use std::ffi::c_int;
use std::ptr::{NonNull, null, null_mut};

use partgrid::device::DeviceNumbers;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::{COOKIE, DEVICE, DEVICE_NAME, DeviceInfo, Extended, INFO_VERSION};

/// What a consumer asks for.
pub(crate) struct Request {
    view: NonNull<ffi::Py_buffer>,
    /// The same struct, of a consumer that has an extended one.
    extended: Option<NonNull<Extended>>,
    pub(crate) flags: c_int,
}

impl Request {
    /// Clears what must be clear also after an error: `obj`, and the number of the handshake, so that no stale memory ever holds it.
    ///
    /// # Errors
    /// `BufferError` when there is no struct.
    ///
    /// # Safety
    /// `view` is what the interpreter passed to `__getbuffer__`, and is used by nobody else until the request is done.
    pub(crate) unsafe fn begin(view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<Self> {
        let mut view =
            NonNull::new(view).ok_or_else(|| PyBufferError::new_err("the view is null"))?;
        // SAFETY: the caller vouches for the struct.
        let fields = unsafe { view.as_mut() };
        // Not looked at without the flag: it means nothing before the call, unless the consumer says so.
        let is_extended = flags & DEVICE != 0 && fields.internal.addr() == COOKIE;
        fields.internal = null_mut();
        fields.obj = null_mut();
        let extended = is_extended.then(|| view.cast());
        Ok(Self {
            view,
            extended,
            flags,
        })
    }

    /// Whether the consumer can be told of a device.
    pub(crate) fn knows_devices(&self) -> bool {
        self.extended.is_some()
    }

    /// The plain struct.
    ///
    /// # Safety
    /// One reference at a time, and none while the extension is written.
    pub(crate) unsafe fn view(&mut self) -> &mut ffi::Py_buffer {
        // SAFETY: valid for the call, as the caller of `begin` vouched.
        unsafe { self.view.as_mut() }
    }

    /// Tells a consumer that has an extended struct where the memory is: nowhere but here without `info`, which stays until the buffer is released.
    pub(crate) fn tell(&mut self, info: Option<NonNull<DeviceInfo>>) {
        let Some(mut extended) = self.extended else {
            return;
        };
        // SAFETY: the consumer vouched by the handshake that its struct is an extended one, and nobody else has a reference.
        let extended = unsafe { extended.as_mut() };
        extended.flags = DEVICE;
        extended.ext_flags = 0;
        extended.device = info.map_or(null(), |_| DEVICE_NAME.as_ptr());
        extended.device_info = info.map_or(null(), |info| info.as_ptr().cast_const().cast());
    }
}

impl DeviceInfo {
    /// Where numbers on a device are.
    pub(crate) fn of(numbers: &DeviceNumbers) -> Self {
        let device = numbers.dlpack_device();
        let event = numbers.event().map_or(0, |event| event.0);
        Self {
            sync_event: std::ptr::with_exposed_provenance_mut(event),
            byte_offset: numbers.byte_offset() as u64,
            ..Self::at(device.device_type, device.device_id.into())
        }
    }

    /// Memory that may be read at once.
    pub(crate) fn at(device_type: i32, device_id: i64) -> Self {
        Self {
            version: INFO_VERSION,
            device_type,
            device_id,
            sync_event: null_mut(),
            byte_offset: 0,
            reserved: [0; 4],
        }
    }
}
