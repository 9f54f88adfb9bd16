//! Where the import reads the buffers of a C array from: the memory of this process, or a device.
//!
//! Comes in: what a C struct gives for a buffer, and how many bytes it must have. Goes out: those bytes, shared where this process can read them and copied where it cannot. Never
//! here: what the bytes mean.

#![expect(
    unsafe_code,
    reason = "the C Data interface hands over raw pointers; memory that is written at once is not zeroed before"
)]

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow::buffer::Buffer;
use arrow::ffi::FFI_ArrowArray;

use crate::device::engine::CopyEngine;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::check_may_have;

/// Bytes as Arrow wants them aligned.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line {
    _bytes: [MaybeUninit<u8>; 64],
}

/// Room for a copy of what lies on a device, which may have more memory than the host.
fn room(num_bytes: usize) -> Result<Vec<Line>> {
    let what = "a copy of what is on a device";
    check_may_have(num_bytes, what).map_err(fewer)?;
    let mut lines: Vec<Line> = Vec::new();
    lines
        .try_reserve_exact(num_bytes.div_ceil(size_of::<Line>()))
        .map_err(|_| {
            let text = format!("the system has no {num_bytes} bytes for {what}");
            fewer(Error::new(ErrorKind::ResourcesExhausted, text))
        })?;
    Ok(lines)
}

fn fewer(error: Error) -> Error {
    error.with_hint("copy fewer columns, or slices of the rows one after the other")
}

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
    /// Some bytes of a buffer.
    pub(super) fn bytes(
        &self,
        pointer: NonNull<u8>,
        bytes: Range<usize>,
        owner: &Arc<FFI_ArrowArray>,
    ) -> Result<Buffer> {
        match self {
            Self::Host => {
                let owner = Arc::clone(owner);
                // SAFETY: the producer promises so many readable bytes that do not change until the tree is released, which `owner` does after the last buffer is gone.
                let whole = unsafe { Buffer::from_custom_allocation(pointer, bytes.end, owner) };
                Ok(whole.slice_with_length(bytes.start, bytes.len()))
            }
            Self::Device { .. } => self.copied(pointer.addr().get(), bytes),
        }
    }

    /// A copy of some bytes of a buffer of a device.
    pub(super) fn copied(&self, handle: usize, bytes: Range<usize>) -> Result<Buffer> {
        let Self::Device { engine, ordinal } = self else {
            return Err(Error::internal("a device without an engine"));
        };
        let len = bytes.len();
        let mut copy = room(len)?;
        let place = copy.as_mut_ptr().cast::<MaybeUninit<u8>>();
        // SAFETY: there is room for so many bytes, and nobody else has it.
        let out = unsafe { std::slice::from_raw_parts_mut(place, len) };
        let written = engine.read_new(*ordinal, handle, bytes.start, out)?;
        let start = NonNull::from(&mut *written).cast::<u8>();
        if (start.as_ptr().addr(), written.len()) != (place.addr(), len) {
            return Err(Error::internal("an engine filled other memory"));
        }
        // SAFETY: all bytes were written, as was just seen, and the lines are kept by the buffer, which alone has them.
        Ok(unsafe { Buffer::from_custom_allocation(start, len, Arc::new(copy)) })
    }

    /// Whether bytes are copied, so that only those should be asked for that somebody needs.
    pub(super) fn is_copied(&self) -> bool {
        matches!(self, Self::Device { .. })
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
