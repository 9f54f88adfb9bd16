//! Numbers and other memory of ours -> a managed tensor.
//!
//! Comes in: [`Numbers`] or other memory, and what the consumer can take. Goes out: a tensor over the same memory, or over a copy of it. Never here: a tensor of memory that must not
//! change and that does not say so.

#![expect(unsafe_code, reason = "a C callback gets a raw pointer back")]

use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;

use super::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_VERSION, DLPackVersion,
    DLTensor, FLAG_IS_COPIED, FLAG_READ_ONLY, ManagedTensor,
};
use crate::device::column::DeviceNumbers;
use crate::error::{Error, Result};
use crate::grid::{ElementType, Numbers};

/// Memory that a tensor shall describe.
#[derive(Debug)]
pub struct Lent {
    /// Where the first element is, or the handle of the memory.
    pub address: *mut c_void,
    /// Bytes from there to the first element.
    pub byte_offset: u64,
    /// Whose memory it is.
    pub device: DLDevice,
    /// What the elements are.
    pub dtype: DLDataType,
    /// The number of elements along each dimension.
    pub shape: Vec<usize>,
    /// Elements from one to the next along each dimension.
    pub strides: Vec<usize>,
    /// Who else uses the memory.
    pub sharing: Sharing,
    /// Dropped, on any thread, when the consumer is done.
    pub owner: Box<dyn Any + Send + Sync>,
}

/// Who else uses the memory of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Others, who rely on that it does not change.
    ReadOnly,
    /// Others, who know that it may change.
    Writable,
    /// Nobody: it was copied for the tensor.
    Copied,
}

/// A tensor of the numbers, which lie in memory of `device` that this process reads; a copy is in that of the CPU. `max_version` is the newest version that the consumer takes; without one, or before 1.0, it gets the struct that cannot say "read-only", and
/// therefore only a copy.
///
/// # Errors
/// `Unsupported` when the consumer takes neither a read-only tensor nor a copy.
pub fn export_tensor(
    numbers: &Numbers,
    device: DLDevice,
    max_version: Option<(u32, u32)>,
    copy: bool,
) -> Result<ManagedTensor> {
    let (sharing, device) = match copy {
        true => (Sharing::Copied, DLDevice::CPU),
        false => (Sharing::ReadOnly, device),
    };
    check_sharing(sharing, max_version)?;
    let numbers = if copy {
        numbers.copied()
    } else {
        numbers.clone()
    };
    export_memory(lent(numbers, device, sharing), max_version)
}

/// A tensor of numbers that were copied for it, in memory of the CPU.
///
/// # Errors
/// As [`export_memory`].
pub fn export_copy(numbers: Numbers, max_version: Option<(u32, u32)>) -> Result<ManagedTensor> {
    export_memory(lent(numbers, DLDevice::CPU, Sharing::Copied), max_version)
}

/// A tensor of numbers on a device. `sharing` says whether they were copied for it.
///
/// # Errors
/// As [`export_memory`].
pub fn export_device_tensor(
    numbers: DeviceNumbers,
    sharing: Sharing,
    max_version: Option<(u32, u32)>,
) -> Result<ManagedTensor> {
    let lent = Lent {
        address: std::ptr::with_exposed_provenance_mut(numbers.address()),
        byte_offset: numbers.byte_offset() as u64,
        device: numbers.dlpack_device(),
        dtype: data_type(numbers.element()),
        shape: vec![numbers.len()],
        strides: vec![1],
        sharing,
        owner: Box::new(numbers),
    };
    export_memory(lent, max_version)
}

fn lent(numbers: Numbers, device: DLDevice, sharing: Sharing) -> Lent {
    let element = numbers.element();
    let in_elements = numbers.strides().iter().map(|s| s / element.item_bytes());
    Lent {
        address: numbers.as_ptr().cast_mut().cast(),
        byte_offset: 0,
        device,
        dtype: data_type(element),
        shape: numbers.shape().to_vec(),
        strides: in_elements.collect(),
        sharing,
        owner: Box::new(numbers),
    }
}

fn data_type(element: ElementType) -> DLDataType {
    DLDataType {
        code: match element.kind() {
            'i' => 0,
            'u' => 1,
            _ => 2,
        },
        bits: u8::try_from(element.item_bytes() * 8).unwrap_or(0),
        lanes: 1,
    }
}

/// A tensor of memory. `max_version` is as for [`export_tensor`].
///
/// # Errors
/// `Unsupported` when the memory is read-only and the consumer takes only the struct that cannot say so.
pub fn export_memory(lent: Lent, max_version: Option<(u32, u32)>) -> Result<ManagedTensor> {
    check_sharing(lent.sharing, max_version)?;
    Ok(if takes_versions(max_version) {
        let flags = match lent.sharing {
            Sharing::ReadOnly => FLAG_READ_ONLY,
            Sharing::Writable => 0,
            Sharing::Copied => FLAG_IS_COPIED,
        };
        let exported = Exported::leaked(lent, |dl_tensor, manager_ctx| DLManagedTensorVersioned {
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
        let exported = Exported::leaked(lent, |dl_tensor, manager_ctx| DLManagedTensor {
            dl_tensor,
            manager_ctx,
            deleter: Some(release::<DLManagedTensor>),
        });
        // SAFETY: as above.
        unsafe { ManagedTensor::from_plain(exported) }
    })
}

fn takes_versions(max_version: Option<(u32, u32)>) -> bool {
    max_version.is_some_and(|(major, _)| major >= DLPACK_VERSION.0)
}

fn check_sharing(sharing: Sharing, max_version: Option<(u32, u32)>) -> Result<()> {
    if sharing != Sharing::ReadOnly || takes_versions(max_version) {
        return Ok(());
    }
    Err(Error::unsupported(
        "Arrow memory is read-only, which DLPack can say since version 1.0, and the consumer takes an older one",
    )
    .with_hint("pass copy=True, or max_version=(1, 0) where the consumer takes it"))
}

/// A struct that is handed out, with everything that its pointers lead to. Freed by `release`.
struct Exported<T> {
    managed: Option<T>,
    shape: Vec<i64>,
    strides: Vec<i64>,
    #[expect(
        dead_code,
        reason = "kept for the consumer, and dropped with the struct"
    )]
    owner: Box<dyn Any + Send + Sync>,
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
    fn leaked(lent: Lent, make: impl FnOnce(DLTensor, *mut c_void) -> T) -> NonNull<T> {
        // A length is at most isize::MAX, since it is one of things in memory.
        let as_i64 = |numbers: &[usize]| -> Vec<i64> {
            let number = |number: &usize| i64::try_from(*number).unwrap_or(i64::MAX);
            numbers.iter().map(number).collect()
        };
        let context = Box::into_raw(Box::new(Self {
            managed: None,
            shape: as_i64(&lent.shape),
            strides: as_i64(&lent.strides),
            owner: lent.owner,
        }));
        // SAFETY: made on the line above, and known to nobody else yet.
        let exported = unsafe { &mut *context };
        let tensor = DLTensor {
            data: lent.address,
            device: lent.device,
            ndim: i32::try_from(exported.shape.len()).unwrap_or(0),
            dtype: lent.dtype,
            shape: exported.shape.as_mut_ptr(),
            strides: exported.strides.as_mut_ptr(),
            byte_offset: lent.byte_offset,
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
