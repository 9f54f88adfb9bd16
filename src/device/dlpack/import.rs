//! A managed tensor of another library -> Arrow columns.
//!
//! Comes in: a [`ManagedTensor`]. Goes out: columns over its memory or copies, see `strided.rs`; the tensor is released when the last of them is gone, or here when nothing
//! shares it. Never here: a tensor of a device that this process cannot read.

#![expect(unsafe_code, reason = "reads lengths and strides through raw pointers")]

use std::sync::Arc;

use arrow::array::ArrayRef;

use super::{DLDataType, DLPACK_VERSION, DLTensor, ManagedTensor, device_name};
use crate::device::node::broken;
use crate::device::strided::{ElementKind, Strided, import_strided, wrong_dimensions};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::ElementType;
use crate::location::Device;

/// The columns of a tensor of integers, floats or booleans in one or two dimensions.
///
/// # Errors
/// `NotLocal` for a device that this process cannot read; `Unsupported` for other elements or a newer ABI; `InvalidArgument` for other than one or two dimensions;
/// `InvalidData` when the struct contradicts itself. The tensor is released then.
pub fn import_tensor(tensor: ManagedTensor) -> Result<Vec<ArrayRef>> {
    if let Some(version) = tensor.version()
        && version.major != DLPACK_VERSION.0
    {
        return Err(Error::unsupported(format!(
            "a DLPack tensor must be of version 1, got {}.{}",
            version.major, version.minor
        ))
        .with_hint("ask the producer for max_version=(1, 0)"));
    }
    let memory = describe(&tensor.tensor())?;
    // SAFETY: the producer of a managed tensor vouches for its elements until it is released, which the owner does when it is dropped.
    unsafe { import_strided(&memory, Arc::new(tensor)) }
}

fn describe(tensor: &DLTensor) -> Result<Strided> {
    let known = Device::try_new(tensor.device.device_type, None);
    if !known.is_ok_and(Device::is_host_readable) {
        return Err(Error::new(
            ErrorKind::NotLocal,
            format!(
                "the tensor is in the memory of {}, which this process cannot read",
                device_name(tensor.device)
            ),
        )
        .with_hint("copy it to the CPU first"));
    }
    let kind = element_kind(tensor.dtype)?;
    let num_dimensions = usize::try_from(tensor.ndim).map_err(|_| {
        broken(format!(
            "ndim of a DLPack tensor must be 0 or more, got {}",
            tensor.ndim
        ))
    })?;
    if !matches!(num_dimensions, 1 | 2) {
        return Err(wrong_dimensions(num_dimensions as u64));
    }
    let shape = list(tensor.shape, num_dimensions)
        .ok_or_else(|| broken("a DLPack tensor must have a shape"))?;
    let shape: Vec<usize> = shape
        .iter()
        .map(|length| usize::try_from(*length))
        .collect::<Result<_, _>>()
        .map_err(|_| {
            broken(format!(
                "the shape of a DLPack tensor must be 0 or more, got {shape:?}"
            ))
        })?;
    let item_bytes = isize::from(tensor.dtype.bits / 8);
    let strides = match list(tensor.strides, num_dimensions) {
        Some(strides) => in_bytes(&strides, item_bytes),
        None => in_c_order(&shape, item_bytes),
    };
    let strides = strides
        .ok_or_else(|| broken("the strides of a DLPack tensor must fit the address space"))?;
    let address = tensor.data.cast::<u8>().cast_const();
    let address = match usize::try_from(tensor.byte_offset) {
        _ if address.is_null() => address,
        Ok(offset) if address.addr().checked_add(offset).is_some() => address.wrapping_add(offset),
        _ => {
            return Err(broken(format!(
                "byte_offset of a DLPack tensor must fit the address space, got {}",
                tensor.byte_offset
            )));
        }
    };
    Ok(Strided {
        address,
        kind,
        shape,
        strides,
    })
}

fn element_kind(dtype: DLDataType) -> Result<ElementKind> {
    let DLDataType { code, bits, lanes } = dtype;
    let element = |kind: char| match bits % 8 {
        0 => ElementType::of_kind(kind, usize::from(bits / 8)),
        _ => None,
    };
    let kind = match (code, lanes) {
        (0, 1) => element('i').map(ElementKind::Number),
        (1, 1) => element('u').map(ElementKind::Number),
        (2, 1) => element('f').map(ElementKind::Number),
        (6, 1) if bits == 8 => Some(ElementKind::Bool),
        _ => None,
    };
    kind.ok_or_else(|| {
        let name = match code {
            0 => "int",
            1 => "uint",
            2 => "float",
            3 => "opaque handle",
            4 => "bfloat",
            5 => "complex",
            6 => "bool",
            _ => "type code",
        };
        let name = if code > 6 { format!("{name} {code}, bits {bits}") } else { format!("{name}{bits}") };
        Error::unsupported(format!(
            "columns are made of tensors of int8 to int64, uint8 to uint64, float16 to float64 or bool, got {name} x {lanes}"
        ))
        .with_hint("convert the tensor first, for instance to float64")
    })
}

/// The numbers behind a pointer of the struct; `None` when it is null.
fn list(pointer: *const i64, length: usize) -> Option<Vec<i64>> {
    if pointer.is_null() {
        return None;
    }
    let numbers = (0..length).map(|index| {
        let slot = pointer.wrapping_add(index);
        // SAFETY: not null, hence a list of `ndim` numbers, as the producer vouches.
        unsafe { slot.read_unaligned() }
    });
    Some(numbers.collect())
}

fn in_bytes(strides: &[i64], item_bytes: isize) -> Option<Vec<isize>> {
    let in_bytes = |stride: &i64| isize::try_from(*stride).ok()?.checked_mul(item_bytes);
    strides.iter().map(in_bytes).collect()
}

fn in_c_order(shape: &[usize], item_bytes: isize) -> Option<Vec<isize>> {
    match shape {
        [_, columns] => Some(vec![
            isize::try_from(*columns).ok()?.checked_mul(item_bytes)?,
            item_bytes,
        ]),
        _ => Some(vec![item_bytes]),
    }
}
