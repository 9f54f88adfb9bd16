//! Where the import reads the buffers of a C array from: the memory of this process, or a device.
//!
//! Comes in: what a C struct gives for a buffer, and how many bytes it must have. Goes out: those bytes, shared where this process can read them and copied where it cannot. Never
//! here: what the bytes mean.

#![expect(unsafe_code, reason = "the C Data interface hands over raw pointers")]

use std::ptr::NonNull;
use std::sync::Arc;

use arrow::buffer::{Buffer, MutableBuffer};
use arrow::ffi::FFI_ArrowArray;

use crate::device::engine::CopyEngine;
use crate::error::Result;

/// Where buffers are.
pub(super) enum Memory {
    /// This process reads them.
    Host,
    /// An engine copies them.
    Device {
        engine: Arc<dyn CopyEngine>,
        ordinal: u32,
    },
}

impl Memory {
    /// The first bytes of a buffer.
    pub(super) fn bytes(
        &self,
        pointer: NonNull<u8>,
        num_bytes: usize,
        owner: &Arc<FFI_ArrowArray>,
    ) -> Result<Buffer> {
        match self {
            Self::Host => {
                let owner = Arc::clone(owner);
                // SAFETY: the producer promises `num_bytes` readable bytes that do not change until the tree is released, which `owner` does after the last buffer is gone.
                Ok(unsafe { Buffer::from_custom_allocation(pointer, num_bytes, owner) })
            }
            Self::Device { engine, ordinal } => {
                let mut copy = MutableBuffer::from_len_zeroed(num_bytes);
                engine.read(*ordinal, pointer.addr().get(), 0, copy.as_slice_mut())?;
                Ok(copy.into())
            }
        }
    }
}

impl Memory {
    /// A number of four or eight bytes of a buffer of a device, from byte `start` on; 0 for the memory of this process.
    pub(super) fn number(&self, handle: usize, start: usize, width: usize) -> Result<u64> {
        let Self::Device { engine, ordinal } = self else {
            return Ok(0);
        };
        if width == 4 {
            let mut bytes = [0; 4];
            engine.read(*ordinal, handle, start, &mut bytes)?;
            return Ok(u32::from_ne_bytes(bytes).into());
        }
        let mut bytes = [0; 8];
        engine.read(*ordinal, handle, start, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}
