//! Numbers of ours -> a managed tensor.
//!
//! Comes in: [`Numbers`], and what the consumer can take. Goes out: a tensor over the same memory, or over a copy of it. Never here: a tensor that does not say that it is
//! read-only, unless nobody else sees its memory.

#![expect(unsafe_code, reason = "a C callback gets a raw pointer back")]

use std::ffi::c_void;
use std::ptr::NonNull;

use super::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_VERSION, DLPackVersion,
    DLTensor, FLAG_IS_COPIED, FLAG_READ_ONLY, ManagedTensor,
};
use crate::error::{Error, Result};
use crate::grid::Numbers;

/// A tensor of the numbers. `max_version` is the newest version that the consumer takes; without one, or before 1.0, it gets the struct that cannot say "read-only", and
/// therefore only a copy.
///
/// # Errors
/// `Unsupported` when the consumer takes neither a read-only tensor nor a copy.
pub fn export_tensor(
    numbers: &Numbers,
    max_version: Option<(u32, u32)>,
    copy: bool,
) -> Result<ManagedTensor> {
    let versioned = max_version.is_some_and(|(major, _)| major >= DLPACK_VERSION.0);
    if !versioned && !copy {
        return Err(Error::unsupported(
            "Arrow memory is read-only, which DLPack can say since version 1.0, and the consumer takes an older one",
        )
        .with_hint("pass copy=True, or max_version=(1, 0) where the consumer takes it"));
    }
    let numbers = if copy {
        numbers.copied()
    } else {
        numbers.clone()
    };
    Ok(if versioned {
        let flags = if copy { FLAG_IS_COPIED } else { FLAG_READ_ONLY };
        let exported =
            Exported::leaked(numbers, |dl_tensor, manager_ctx| DLManagedTensorVersioned {
                version: DLPackVersion {
                    major: DLPACK_VERSION.0,
                    minor: DLPACK_VERSION.1,
                },
                manager_ctx,
                deleter: Some(release::<DLManagedTensorVersioned>),
                flags,
                dl_tensor,
            });
        // SAFETY: just made, and given to nobody else.
        unsafe { ManagedTensor::from_versioned(exported) }
    } else {
        let exported = Exported::leaked(numbers, |dl_tensor, manager_ctx| DLManagedTensor {
            dl_tensor,
            manager_ctx,
            deleter: Some(release::<DLManagedTensor>),
        });
        // SAFETY: as above.
        unsafe { ManagedTensor::from_plain(exported) }
    })
}

/// A struct that is handed out, with everything that its pointers lead to. Freed by `release`.
struct Exported<T> {
    managed: Option<T>,
    numbers: Numbers,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// The kinds of managed tensor, which know where `Exported` is.
trait Managed: Sized {
    fn context(&self) -> *mut c_void;
}

impl Managed for DLManagedTensor {
    fn context(&self) -> *mut c_void {
        self.manager_ctx
    }
}

impl Managed for DLManagedTensorVersioned {
    fn context(&self) -> *mut c_void {
        self.manager_ctx
    }
}

impl<T> Exported<T> {
    fn leaked(numbers: Numbers, make: impl FnOnce(DLTensor, *mut c_void) -> T) -> NonNull<T> {
        let element = numbers.element();
        let item_bytes = element.item_bytes();
        // A length is at most isize::MAX, since it is one of things in memory.
        let as_i64 = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let shape: Vec<i64> = numbers
            .shape()
            .iter()
            .map(|length| as_i64(*length))
            .collect();
        let strides = numbers.strides().iter();
        let strides: Vec<i64> = strides.map(|stride| as_i64(stride / item_bytes)).collect();
        let context = Box::into_raw(Box::new(Self {
            managed: None,
            numbers,
            shape,
            strides,
        }));
        // SAFETY: made on the line above, and known to nobody else yet.
        let exported = unsafe { &mut *context };
        let tensor = DLTensor {
            data: exported.numbers.as_ptr().cast_mut().cast(),
            device: DLDevice {
                device_type: 1,
                device_id: 0,
            },
            ndim: i32::try_from(exported.shape.len()).unwrap_or(0),
            dtype: DLDataType {
                code: match element.kind() {
                    'i' => 0,
                    'u' => 1,
                    _ => 2,
                },
                bits: u8::try_from(item_bytes * 8).unwrap_or(0),
                lanes: 1,
            },
            shape: exported.shape.as_mut_ptr(),
            strides: exported.strides.as_mut_ptr(),
            byte_offset: 0,
        };
        NonNull::from(exported.managed.insert(make(tensor, context.cast())))
    }
}

/// The deleter: frees what `leaked` made.
unsafe extern "C" fn release<T: Managed>(managed: *mut T) {
    // SAFETY: the consumer passes the struct that it got, which is not freed yet; null would be its mistake.
    let Some(managed) = (unsafe { managed.as_ref() }) else {
        return;
    };
    let context = managed.context().cast::<Exported<T>>();
    if !context.is_null() {
        // SAFETY: `leaked` put the box there, and the deleter is called once.
        drop(unsafe { Box::from_raw(context) });
    }
}
