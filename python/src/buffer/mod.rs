//! The extended buffer protocol: memory of devices under the buffer interface. Producers are served in `produce.rs` and `view.rs`, consumers in `consume.rs`; `interface.rs` is for extensions in C.
//!
//! Comes in, goes out: the structs here, as C has them. Never here: memory of a device where a consumer would take it for that of the host.
//!
//! Follows the draft "Extended buffer protocol PEP draft for device memory support", in a form that today's CPython bears: the struct is one of its own, since that of `Py_buffer` is fixed, and a
//! consumer says that it has one by a number in `internal`. Without that number every producer here behaves as if the flag were not passed, since Python itself passes any flag on with a plain struct.

mod consume;
mod interface;
mod produce;

use std::ffi::{CStr, c_char, c_int, c_void};

use pyo3::ffi;

pub(crate) use consume::{PyExtendedBuffer, get_buffer, supports};
pub(crate) use interface::buffer_interface;
pub(crate) use produce::Request;

/// The request flag `PyBUF_DEVICE`, to which the draft gives no number: far from all that Python uses, and below the sign.
pub(crate) const DEVICE: c_int = 0x1000_0000;

/// What a consumer puts into `internal` before it asks, to say that its struct is an [`Extended`] one: "PartGrid" in ASCII.
pub(crate) const COOKIE: usize = 0x5061_7274_4772_6964;

/// The name of our description of devices: `device_info` is a [`DeviceInfo`].
pub(crate) const DEVICE_NAME: &CStr = c"partgrid:dlpack-device";

/// The same as Python has it.
pub(crate) const DEVICE_TEXT: &str = match DEVICE_NAME.to_str() {
    Ok(text) => text,
    Err(_) => "",
};

/// The version of [`DeviceInfo`].
pub(crate) const INFO_VERSION: u32 = 1;

/// The flags of `Py_buffer` that Python knows.
pub(crate) const PLAIN_FLAGS: c_int =
    ffi::PyBUF_FULL | ffi::PyBUF_C_CONTIGUOUS | ffi::PyBUF_F_CONTIGUOUS | ffi::PyBUF_ANY_CONTIGUOUS;

/// `Py_buffer` and what the draft puts behind it.
#[repr(C)]
pub(crate) struct Extended {
    pub(crate) base: ffi::Py_buffer,
    /// Which of the requested flags were used. To be looked at before what follows.
    pub(crate) flags: c_int,
    pub(crate) ext_flags: c_int,
    /// Null for memory of the CPU, else a name that ends with 0.
    pub(crate) device: *const c_char,
    /// What the name says, until the buffer is released.
    pub(crate) device_info: *const c_void,
}

/// Where the memory is, in the numbers of DLPack and the Arrow C Device interface.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceInfo {
    /// 1. Later versions change nothing of these fields.
    pub(crate) version: u32,
    pub(crate) device_type: i32,
    pub(crate) device_id: i64,
    /// What to wait for before reading, as `sync_event` of the Arrow C Device interface; null for nothing.
    pub(crate) sync_event: *mut c_void,
    /// Bytes from `buf` to the first element, where `buf` is no address but a handle of the driver.
    pub(crate) byte_offset: u64,
    /// Zero.
    pub(crate) reserved: [u64; 4],
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<ffi::Py_buffer>() == 80);
    assert!(std::mem::offset_of!(Extended, flags) == 80);
    assert!(std::mem::offset_of!(Extended, ext_flags) == 84);
    assert!(std::mem::offset_of!(Extended, device) == 88);
    assert!(std::mem::offset_of!(Extended, device_info) == 96);
    assert!(size_of::<Extended>() == 104);
    assert!(std::mem::offset_of!(DeviceInfo, sync_event) == 16);
    assert!(std::mem::offset_of!(DeviceInfo, byte_offset) == 24);
    assert!(size_of::<DeviceInfo>() == 64);
};

impl Extended {
    /// All zero, as a consumer must have it before it asks.
    pub(crate) const fn zeroed() -> Self {
        Self {
            base: ffi::Py_buffer::new(),
            flags: 0,
            ext_flags: 0,
            device: std::ptr::null(),
            device_info: std::ptr::null(),
        }
    }
}
