//! The structs of the Arrow C Device interface.
//!
//! Comes in, goes out: bytes as C has them. Never here: what they mean for us (`on_device.rs`).
//!
//! Follows "Structure definitions" of <https://arrow.apache.org/docs/format/CDeviceDataInterface.html>.

#![expect(unsafe_code, reason = "calls the callback that releases a stream")]

use std::ffi::{c_char, c_int, c_void};

use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema};

/// The device type of the CPU.
pub const ARROW_DEVICE_CPU: i32 = 1;

/// A C array and where its buffers are.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowDeviceArray {
    /// The array; releasing it releases the whole struct.
    pub array: FFI_ArrowArray,
    /// Which device of the type; -1 where that means nothing.
    pub device_id: i64,
    /// The kind of memory, numbered as DLPack does.
    pub device_type: i32,
    /// What to wait for before the buffers may be read; null for nothing.
    pub sync_event: *mut c_void,
    /// Zero.
    pub reserved: [i64; 3],
}

// SAFETY: the array may be sent, and `sync_event` is never followed.
unsafe impl Send for ArrowDeviceArray {}

impl ArrowDeviceArray {
    /// A released array, for a producer to fill.
    #[must_use]
    pub fn empty() -> Self {
        Self::on_cpu(FFI_ArrowArray::empty())
    }

    /// An array in the memory of the CPU.
    #[must_use]
    pub fn on_cpu(array: FFI_ArrowArray) -> Self {
        Self {
            array,
            device_id: -1,
            device_type: ARROW_DEVICE_CPU,
            sync_event: std::ptr::null_mut(),
            reserved: [0; 3],
        }
    }

    /// Moves the struct out of a place in memory and leaves a released one behind.
    ///
    /// # Safety
    /// `place` must be valid for reading and writing, and hold a properly filled struct.
    #[must_use]
    pub unsafe fn from_raw(place: *mut Self) -> Self {
        // SAFETY: as the caller vouches.
        unsafe { std::ptr::replace(place, Self::empty()) }
    }
}

/// A stream of such arrays, all on one kind of device.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowDeviceArrayStream {
    /// The kind of memory of every array.
    pub device_type: i32,
    /// Fills in the schema of the arrays.
    pub get_schema: Option<unsafe extern "C" fn(*mut Self, *mut FFI_ArrowSchema) -> c_int>,
    /// Fills in the next array; a released one at the end.
    pub get_next: Option<unsafe extern "C" fn(*mut Self, *mut ArrowDeviceArray) -> c_int>,
    /// The text of the last error.
    pub get_last_error: Option<unsafe extern "C" fn(*mut Self) -> *const c_char>,
    /// Frees everything and sets itself to null.
    pub release: Option<unsafe extern "C" fn(*mut Self)>,
    /// The producer's own.
    pub private_data: *mut c_void,
}

// SAFETY: as for `FFI_ArrowArrayStream`: a stream may move to another thread, and is used by one at a time.
unsafe impl Send for ArrowDeviceArrayStream {}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<FFI_ArrowArray>() == 80);
    assert!(std::mem::offset_of!(ArrowDeviceArray, device_id) == 80);
    assert!(std::mem::offset_of!(ArrowDeviceArray, device_type) == 88);
    assert!(std::mem::offset_of!(ArrowDeviceArray, sync_event) == 96);
    assert!(std::mem::offset_of!(ArrowDeviceArray, reserved) == 104);
    assert!(size_of::<ArrowDeviceArray>() == 128);
    assert!(std::mem::offset_of!(ArrowDeviceArrayStream, get_schema) == 8);
    assert!(size_of::<ArrowDeviceArrayStream>() == 48);
};

impl ArrowDeviceArrayStream {
    /// A released stream.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            device_type: ARROW_DEVICE_CPU,
            get_schema: None,
            get_next: None,
            get_last_error: None,
            release: None,
            private_data: std::ptr::null_mut(),
        }
    }

    /// Moves the struct out of a place in memory and leaves a released one behind.
    ///
    /// # Safety
    /// As [`ArrowDeviceArray::from_raw`].
    #[must_use]
    pub unsafe fn from_raw(place: *mut Self) -> Self {
        // SAFETY: as the caller vouches.
        unsafe { std::ptr::replace(place, Self::empty()) }
    }
}

impl Drop for ArrowDeviceArrayStream {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: a stream that is not released may be released by its own callback, once.
            unsafe { release(self) };
        }
    }
}
