//! Memory to lay elements out in.
//!
//! Comes in: a number of bytes. Goes out: that much memory of the host, or the error that says why not. Memory of devices comes from other implementations of [`MemorySource`]. Never
//! here: where elements lie.

#![expect(
    unsafe_code,
    reason = "allocates memory that others write through its address"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::panic::RefUnwindSafe;
use std::ptr::NonNull;

use crate::error::{Error, ErrorKind, Result};
use crate::location::Device;
use crate::memory::check_may_have;

/// Where memory of the allocator begins at least; a plan moves on from there.
const HOST_ALIGNMENT: usize = 16;

/// From this size on the system is asked for large pages, of which fewer must come; numpy does the same.
const LARGE_PAGES_FROM_BYTES: usize = 4 << 20;

/// Memory that a storage lies in. It is freed when it is dropped.
pub trait Memory: fmt::Debug + Send + Sync + RefUnwindSafe {
    /// The address of the first byte, in the addresses of the device.
    fn as_ptr(&self) -> *mut u8;

    /// The number of bytes.
    fn num_bytes(&self) -> usize;

    /// Whose memory it is.
    fn device(&self) -> Device;

    /// Writes `pattern` over and over from the first byte of `range` to its end. Both lengths go into each other.
    ///
    /// # Errors
    /// `InvalidArgument` for a range that is not within the memory; what the device says.
    fn fill(&mut self, range: Range<usize>, pattern: &[u8]) -> Result<()>;
}

/// Where memory comes from: the host, or one device.
pub trait MemorySource: fmt::Debug {
    /// Whose memory it is.
    fn device(&self) -> Device;

    /// New memory, which nobody else has, of zeros or of no defined content.
    ///
    /// # Errors
    /// `ResourcesExhausted` when there is not as much.
    fn allocate(&self, num_bytes: usize, zeroed: bool) -> Result<Box<dyn Memory>>;
}

/// Memory of this process.
#[derive(Debug, Clone, Copy)]
pub struct Host;

impl MemorySource for Host {
    fn device(&self) -> Device {
        Device::CPU
    }

    fn allocate(&self, num_bytes: usize, zeroed: bool) -> Result<Box<dyn Memory>> {
        check_may_have(num_bytes, "a storage").map_err(|error| {
            error.with_hint(
                "make it smaller, or cut it into several storages that do not live at once",
            )
        })?;
        let memory = HostMemory::try_new(num_bytes, zeroed).ok_or_else(|| {
            Error::new(
                ErrorKind::ResourcesExhausted,
                format!("the system has no {num_bytes} bytes for a storage"),
            )
        })?;
        if num_bytes >= LARGE_PAGES_FROM_BYTES {
            advise_large_pages(&memory);
        }
        Ok(Box::new(memory))
    }
}

/// A wish, which the system may not grant.
#[cfg(target_os = "linux")]
fn advise_large_pages(memory: &HostMemory) {
    const PAGE_BYTES: usize = 4096;
    // The first page is that of the allocator too; the last one is advised with the others, as numpy does: pages with other advice at both ends would be three areas of memory in place of two, which takes time.
    let (start, num_bytes) = (memory.as_ptr(), memory.num_bytes());
    let before = start.addr().next_multiple_of(PAGE_BYTES) - start.addr();
    let within = num_bytes.saturating_sub(before);
    // SAFETY: these pages have some of the memory, and the advice changes nothing that is in them.
    unsafe {
        libc::madvise(
            start.wrapping_add(before).cast(),
            within,
            libc::MADV_HUGEPAGE,
        )
    };
}

#[cfg(not(target_os = "linux"))]
fn advise_large_pages(_: &HostMemory) {}

/// Bytes of the allocator of the system. It is that of numpy, so that what one has freed the other takes, and costs the same: large zeros are pages that come when they are first touched.
struct HostMemory {
    start: NonNull<u8>,
    layout: Layout,
}

impl HostMemory {
    /// `None` when there is no memory.
    fn try_new(num_bytes: usize, zeroed: bool) -> Option<Self> {
        let num_bytes = num_bytes.max(HOST_ALIGNMENT);
        let layout = Layout::from_size_align(num_bytes, HOST_ALIGNMENT).ok()?;
        let start = if zeroed {
            // SAFETY: the layout has at least one byte.
            unsafe { System.alloc_zeroed(layout) }
        } else {
            // SAFETY: as above.
            unsafe { System.alloc(layout) }
        };
        let start = NonNull::new(start)?;
        Some(Self { start, layout })
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `try_new` with this layout, and freed once.
        unsafe { System.dealloc(self.start.as_ptr(), self.layout) };
    }
}

// SAFETY: the bytes belong to this value; whoever reads or writes them through the address keeps to the rules of what hands the address out.
unsafe impl Send for HostMemory {}
// SAFETY: as above; a shared reference gives the address only.
unsafe impl Sync for HostMemory {}

impl fmt::Debug for HostMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} bytes of the host at {:?}",
            self.num_bytes(),
            self.as_ptr()
        )
    }
}

impl Memory for HostMemory {
    fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn num_bytes(&self) -> usize {
        self.layout.size()
    }

    fn device(&self) -> Device {
        Device::CPU
    }

    fn fill(&mut self, range: Range<usize>, pattern: &[u8]) -> Result<()> {
        check_fill(&range, pattern, self.num_bytes())?;
        // SAFETY: within the memory, as was just seen.
        let start = unsafe { self.as_ptr().add(range.start) }.cast::<MaybeUninit<u8>>();
        // SAFETY: these bytes belong to this value, which is borrowed exclusively; they may be undefined.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start, range.len()) };
        repeat(bytes, pattern);
        Ok(())
    }
}

/// Looks over what [`Memory::fill`] is given.
///
/// # Errors
/// `InvalidArgument` for a range that is not within so many bytes, and for a pattern that does not go into it.
pub fn check_fill(range: &Range<usize>, pattern: &[u8], num_bytes: usize) -> Result<()> {
    let is_within = range.start <= range.end && range.end <= num_bytes;
    if is_within && !pattern.is_empty() && range.len().is_multiple_of(pattern.len()) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "a pattern of {} bytes must fill whole bytes of the memory, got {range:?} of {num_bytes}",
        pattern.len()
    )))
}

/// Writes a pattern over and over. The loops over patterns of a known width become wide stores.
fn repeat(bytes: &mut [MaybeUninit<u8>], pattern: &[u8]) {
    fn fill<const WIDTH: usize>(bytes: &mut [MaybeUninit<u8>], pattern: [u8; WIDTH]) {
        bytes
            .as_chunks_mut::<WIDTH>()
            .0
            .fill(pattern.map(MaybeUninit::new));
    }
    match *pattern {
        [byte] => bytes.fill(MaybeUninit::new(byte)),
        [a, b] => fill(bytes, [a, b]),
        [a, b, c, d] => fill(bytes, [a, b, c, d]),
        [a, b, c, d, e, f, g, h] => fill(bytes, [a, b, c, d, e, f, g, h]),
        _ => {
            for chunk in bytes.chunks_mut(pattern.len()) {
                chunk.write_copy_of_slice(pattern);
            }
        }
    }
}
