//! DLPack: tensors in and out, without copying where that is possible.
//!
//! Comes in: numbers of ours, or a managed tensor of another library. Goes out: a managed tensor, or Arrow columns. Read on in `export.rs` and `import.rs`; here are the
//! structs and [`ManagedTensor`], which releases a tensor exactly once. Never here: capsules.
//!
//! Follows `dlpack.h` 1.0 to 1.3 <https://dmlc.github.io/dlpack/latest/c_api.html>.

#![expect(
    unsafe_code,
    reason = "DLPack hands over raw pointers and a C callback that frees them"
)]

mod export;
mod import;

use std::ffi::c_void;
use std::ptr::NonNull;

pub use export::{Lent, Sharing, export_copy, export_device_tensor, export_memory, export_tensor};
pub use import::import_tensor;

use crate::location::Device;

/// The newest version of the ABI that is written here.
pub const DLPACK_VERSION: (u32, u32) = (1, 0);

/// Set in `flags`: the memory may not be written.
pub const FLAG_READ_ONLY: u64 = 1 << 0;

/// Set in `flags`: the producer made a copy for this tensor.
pub const FLAG_IS_COPIED: u64 = 1 << 1;

/// Where a tensor is.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DLDevice {
    /// Which kind of memory; 1 is that of the CPU.
    pub device_type: i32,
    /// Which device of the kind.
    pub device_id: i32,
}

impl DLDevice {
    /// The memory of the CPU.
    pub const CPU: Self = Self {
        device_type: 1,
        device_id: 0,
    };

    /// A device, which has the number 0 where none is known.
    #[must_use]
    pub fn new(device: Device) -> Self {
        let ordinal = device.ordinal().unwrap_or(0);
        Self {
            device_type: device.device_type(),
            device_id: i32::try_from(ordinal).unwrap_or(i32::MAX),
        }
    }
}

/// What the elements of a tensor are.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DLDataType {
    /// 0 signed, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 boolean.
    pub code: u8,
    /// Bits of one lane.
    pub bits: u8,
    /// The number of lanes of a vector type, 1 for plain numbers.
    pub lanes: u16,
}

/// A plain tensor.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DLTensor {
    /// The memory; the first element is `byte_offset` behind it.
    pub data: *mut c_void,
    /// Where it is.
    pub device: DLDevice,
    /// The number of dimensions.
    pub ndim: i32,
    /// What the elements are.
    pub dtype: DLDataType,
    /// `ndim` lengths.
    pub shape: *mut i64,
    /// `ndim` strides in elements; null when the elements lie in C order without gaps.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// A tensor and how to release it, as DLPack had it before version 1.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// What the deleter needs.
    pub manager_ctx: *mut c_void,
    /// Called once by whoever took the tensor.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// A version of the ABI.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DLPackVersion {
    /// Another one is another layout.
    pub major: u32,
    /// A higher one knows more, in the same layout.
    pub minor: u32,
}

/// A tensor and how to release it, since version 1.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// The version of the struct.
    pub version: DLPackVersion,
    /// What the deleter needs.
    pub manager_ctx: *mut c_void,
    /// Called once by whoever took the tensor.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
    /// [`FLAG_READ_ONLY`], [`FLAG_IS_COPIED`].
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

#[derive(Debug, Clone, Copy)]
enum Pointer {
    Plain(NonNull<DLManagedTensor>),
    Versioned(NonNull<DLManagedTensorVersioned>),
}

/// A managed tensor that belongs to whoever holds this; dropping it releases the tensor.
#[derive(Debug)]
pub struct ManagedTensor(Pointer);

// SAFETY: DLPack wants deleters that may be called on any thread; the structs are only read.
unsafe impl Send for ManagedTensor {}
// SAFETY: as above.
unsafe impl Sync for ManagedTensor {}

impl ManagedTensor {
    /// Takes over a tensor as DLPack had it before version 1.
    ///
    /// # Safety
    /// The pointer must be to a tensor that nobody else will release, with a deleter that may be called on any thread.
    #[must_use]
    pub unsafe fn from_plain(tensor: NonNull<DLManagedTensor>) -> Self {
        Self(Pointer::Plain(tensor))
    }

    /// Takes over a tensor as DLPack has it since version 1.
    ///
    /// # Safety
    /// As [`ManagedTensor::from_plain`].
    #[must_use]
    pub unsafe fn from_versioned(tensor: NonNull<DLManagedTensorVersioned>) -> Self {
        Self(Pointer::Versioned(tensor))
    }

    /// Whether it is one as DLPack has it since version 1.
    #[must_use]
    pub fn is_versioned(&self) -> bool {
        matches!(self.0, Pointer::Versioned(_))
    }

    /// Gives the struct away: whoever gets it must call its deleter.
    #[must_use]
    pub fn into_raw(self) -> NonNull<c_void> {
        let pointer = self.0;
        std::mem::forget(self);
        match pointer {
            Pointer::Plain(tensor) => tensor.cast(),
            Pointer::Versioned(tensor) => tensor.cast(),
        }
    }

    /// The version, where the struct has one.
    fn version(&self) -> Option<DLPackVersion> {
        match self.0 {
            Pointer::Plain(_) => None,
            Pointer::Versioned(tensor) => {
                // SAFETY: the struct is there until it is released, which only dropping does; its head is the same in all versions.
                let tensor = unsafe { tensor.as_ref() };
                Some(tensor.version)
            }
        }
    }

    fn tensor(&self) -> DLTensor {
        match self.0 {
            // SAFETY: the struct is there until it is released, which only dropping does.
            Pointer::Plain(tensor) => unsafe { tensor.as_ref() }.dl_tensor,
            // SAFETY: as above.
            Pointer::Versioned(tensor) => unsafe { tensor.as_ref() }.dl_tensor,
        }
    }
}

impl Drop for ManagedTensor {
    fn drop(&mut self) {
        match self.0 {
            Pointer::Plain(tensor) => {
                // SAFETY: not released yet: this value owns the tensor, and is dropped once.
                let deleter = unsafe { tensor.as_ref() }.deleter;
                if let Some(deleter) = deleter {
                    // SAFETY: as above; a deleter gets the struct that it came with.
                    unsafe { deleter(tensor.as_ptr()) };
                }
            }
            Pointer::Versioned(tensor) => {
                // SAFETY: as above.
                let deleter = unsafe { tensor.as_ref() }.deleter;
                if let Some(deleter) = deleter {
                    // SAFETY: as above.
                    unsafe { deleter(tensor.as_ptr()) };
                }
            }
        }
    }
}

/// The name of a device for messages.
fn device_name(device: DLDevice) -> String {
    let ordinal = u32::try_from(device.device_id).ok();
    match Device::try_new(device.device_type, ordinal) {
        Ok(known) => known.to_string(),
        Err(_) => format!("device type {}", device.device_type),
    }
}
