//! The copy engine of CUDA, over the driver that is found when the program runs.
//!
//! Comes in: addresses on GPUs and bytes. Goes out: bytes and buffers on GPUs. Nothing of CUDA is needed to build, or to run without a GPU: the driver's library is loaded at the first copy.
//! All copies are done when a function returns, on the device too. Never here: Arrow.

#![expect(unsafe_code, reason = "calls the driver")]

use std::collections::BTreeMap;
use std::fmt::Display;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use cudarc::driver::{CudaContext, DriverError, result, sys};

use super::engine::{CopyEngine, DeviceBuffer, Event};
use crate::error::{Error, ErrorKind, Result};

/// So many bytes of a pattern are made on the host.
const BLOCK_BYTES: usize = 1 << 20;

/// The engine, once the driver was found.
pub(super) fn engine() -> Result<Arc<dyn CopyEngine>> {
    static ENGINE: OnceLock<Arc<Cuda>> = OnceLock::new();
    if let Some(engine) = ENGINE.get() {
        return Ok(Arc::clone(engine) as _);
    }
    // SAFETY: loads the library of the driver, whose initialisers are those of every CUDA program.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::not_found(
            "no CUDA driver: the library libcuda was not found on this machine",
        )
        .with_hint(
            "install the NVIDIA driver, and let LD_LIBRARY_PATH name the folder of libcuda.so",
        ));
    }
    result::init().map_err(|error| failed("starting the CUDA driver", error))?;
    Ok(Arc::clone(ENGINE.get_or_init(Arc::default)) as _)
}

#[derive(Debug, Default)]
struct Cuda {
    /// The primary context of each GPU that was used, which other libraries of the process share. Drivers of CUDA do not outlive a fork, so a lock does no harm here.
    contexts: Mutex<BTreeMap<u32, Arc<CudaContext>>>,
}

/// The context of a GPU, current on this thread until this is dropped; then the one that was before is again, on which the libraries of the caller may rely.
struct Bound {
    context: Arc<CudaContext>,
    before: sys::CUcontext,
}

impl Bound {
    fn of(context: &Arc<CudaContext>) -> std::result::Result<Self, DriverError> {
        let before = current()?;
        context.bind_to_thread()?;
        Ok(Self {
            context: Arc::clone(context),
            before,
        })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // SAFETY: the context that was current on this thread before, or none.
        if let Err(error) = unsafe { result::ctx::set_current(self.before) } {
            tracing::warn!(%error, "the context of CUDA that was current before is not any more");
        }
    }
}

/// The context that is current on this thread; null for none.
fn current() -> std::result::Result<sys::CUcontext, DriverError> {
    Ok(result::ctx::get_current()?.unwrap_or(std::ptr::null_mut()))
}

impl Cuda {
    /// The context of a GPU, current on this thread for a while.
    fn bound(&self, ordinal: u32) -> Result<Bound> {
        let using = |error| failed(format!("using kDLCUDA:{ordinal}"), error);
        let mut contexts = self
            .contexts
            .lock()
            .map_err(|_| Error::internal("a thread panicked while it opened a GPU"))?;
        if let Some(context) = contexts.get(&ordinal) {
            return Bound::of(context).map_err(using);
        }
        let count = result::device::get_count();
        let count = count.map_err(|error| failed("counting the GPUs", error))?;
        if i64::from(ordinal) >= i64::from(count) {
            return Err(Error::not_found(format!(
                "no kDLCUDA:{ordinal}: this machine has {count} GPUs, numbered from 0"
            )));
        }
        let number = usize::try_from(ordinal).map_err(|_| Error::internal("a GPU's number"))?;
        let before = current().map_err(using)?;
        // It is current from then on.
        let context = CudaContext::new(number);
        let context =
            context.map_err(|error| failed(format!("opening kDLCUDA:{ordinal}"), error))?;
        contexts.insert(ordinal, Arc::clone(&context));
        Ok(Bound { context, before })
    }
}

impl Cuda {
    /// Copies to memory of the host, of elements of one byte.
    fn copy_to<T>(&self, ordinal: u32, handle: usize, start: usize, out: &mut [T]) -> Result<()> {
        let _bound = self.bound(ordinal)?;
        let source = address(handle, start)?;
        // SAFETY: the producer vouches for the bytes behind the handle; the driver checks the address.
        let copied = unsafe { result::memcpy_dtoh_sync(out, source) };
        copied.map_err(|error| {
            let text = format!("copying {} bytes from kDLCUDA:{ordinal}", out.len());
            failed(text, error)
        })
    }
}

/// Memory on a GPU; dropping it frees it.
struct Allocation {
    context: Arc<CudaContext>,
    address: sys::CUdeviceptr,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let freed = Bound::of(&self.context).and_then(|_bound| {
            // SAFETY: `malloc_sync` gave the address in this context, and it is freed once.
            unsafe { result::free_sync(self.address) }
        });
        if let Err(error) = freed {
            tracing::warn!(%error, "memory of a GPU was not freed");
        }
    }
}

fn address(handle: usize, start: usize) -> Result<sys::CUdeviceptr> {
    let address = handle.checked_add(start).map(u64::try_from);
    address
        .and_then(std::result::Result::ok)
        .ok_or_else(|| Error::invalid_data("an address on a GPU must fit 64 bits"))
}

impl CopyEngine for Cuda {
    fn wait(&self, ordinal: u32, event: Event) -> Result<()> {
        let _bound = self.bound(ordinal)?;
        let place = std::ptr::with_exposed_provenance::<sys::CUevent>(event.0);
        // SAFETY: the Arrow C Device interface says that `sync_event` of a CUDA array points to a `cudaEvent_t`, which stays until the array is released.
        let event = unsafe { place.read_unaligned() };
        // SAFETY: an event of the driver, as above.
        let waited = unsafe { result::event::synchronize(event) };
        waited.map_err(|error| failed(format!("waiting for an event of kDLCUDA:{ordinal}"), error))
    }

    fn read(&self, ordinal: u32, handle: usize, start: usize, out: &mut [u8]) -> Result<()> {
        self.copy_to(ordinal, handle, start, out)
    }

    fn read_new<'a>(
        &self,
        ordinal: u32,
        handle: usize,
        start: usize,
        out: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8]> {
        self.copy_to(ordinal, handle, start, out)?;
        // SAFETY: the driver has written all of it.
        Ok(unsafe { out.assume_init_mut() })
    }

    fn write(&self, ordinal: u32, bytes: &[u8]) -> Result<DeviceBuffer> {
        let bound = self.bound(ordinal)?;
        let (address, buffer) = allocated(&bound, ordinal, bytes.len())?;
        // SAFETY: the allocation has as many bytes.
        let copied = unsafe { result::memcpy_htod_sync(address, bytes) };
        copied.and_then(|()| finished()).map_err(|error| {
            let text = format!("copying {} bytes to kDLCUDA:{ordinal}", bytes.len());
            failed(text, error)
        })?;
        Ok(buffer)
    }

    /// That of the context that is current on this thread, as libraries of CUDA set it.
    fn current(&self) -> Result<u32> {
        let asking = |error| failed("asking for the current GPU", error);
        if current().map_err(asking)?.is_null() {
            return Ok(0);
        }
        let mut device = 0;
        // SAFETY: there is a context, and the driver writes one number.
        let found = unsafe { sys::cuCtxGetDevice(&raw mut device) };
        found.result().map_err(asking)?;
        u32::try_from(device).map_err(|_| Error::internal("a GPU's number"))
    }

    fn allocate(&self, ordinal: u32, num_bytes: usize) -> Result<DeviceBuffer> {
        let bound = self.bound(ordinal)?;
        Ok(allocated(&bound, ordinal, num_bytes)?.1)
    }

    fn fill(&self, ordinal: u32, handle: usize, bytes: Range<usize>, pattern: &[u8]) -> Result<()> {
        let _bound = self.bound(ordinal)?;
        let start = address(handle, bytes.start)?;
        let filled = fill(start, bytes.len(), pattern).and_then(|()| finished());
        filled.map_err(|error| {
            let text = format!("filling {} bytes of kDLCUDA:{ordinal}", bytes.len());
            failed(text, error)
        })
    }
}

/// New memory in the context that is current, and its address.
fn allocated(
    bound: &Bound,
    ordinal: u32,
    num_bytes: usize,
) -> Result<(sys::CUdeviceptr, DeviceBuffer)> {
    // SAFETY: the context is current; the address is freed by `Allocation` alone.
    let address = unsafe { result::malloc_sync(num_bytes) };
    let address = address.map_err(|error| {
        let text = format!("allocating {num_bytes} bytes on kDLCUDA:{ordinal}");
        failed(text, error)
    })?;
    let allocation = Allocation {
        context: Arc::clone(&bound.context),
        address,
    };
    let handle = usize::try_from(address).map_err(|_| Error::internal("an address on a GPU"))?;
    let buffer = DeviceBuffer::new(handle, num_bytes, Box::new(allocation));
    Ok((address, buffer))
}

/// Waits for what is on its way: a copy from memory that is not pinned returns when the bytes are staged, one within the GPU at once.
fn finished() -> std::result::Result<(), DriverError> {
    // SAFETY: null is the stream that the calls were in.
    unsafe { result::stream::synchronize(std::ptr::null_mut()) }
}

/// Writes a pattern over and over: bytes that are all the same by the driver, others from a block that is brought there once and doubles from then on.
fn fill(
    start: sys::CUdeviceptr,
    num_bytes: usize,
    pattern: &[u8],
) -> std::result::Result<(), DriverError> {
    if num_bytes == 0 || pattern.is_empty() {
        return Ok(());
    }
    if let Some(byte) = pattern.first()
        && pattern.iter().all(|other| other == byte)
    {
        // SAFETY: the caller's memory, of as many bytes.
        return unsafe { result::memset_d8_sync(start, *byte, num_bytes) };
    }
    let block = pattern.repeat((BLOCK_BYTES / pattern.len()).max(1));
    let block = block.get(..num_bytes).unwrap_or(&block);
    // SAFETY: as above, and the block is not longer.
    unsafe { result::memcpy_htod_sync(start, block) }?;
    let mut done = block.len();
    while done < num_bytes {
        let next = done.min(num_bytes - done);
        // SAFETY: both runs lie in the caller's memory, and do not overlap.
        unsafe { result::memcpy_dtod_sync(start + done as u64, start, next) }?;
        done += next;
    }
    Ok(())
}

fn failed(doing: impl Display, error: DriverError) -> Error {
    let kind = match error.0 {
        sys::cudaError_enum::CUDA_ERROR_OUT_OF_MEMORY => ErrorKind::ResourcesExhausted,
        sys::cudaError_enum::CUDA_ERROR_NO_DEVICE => ErrorKind::NotFound,
        _ => ErrorKind::Storage { retryable: false },
    };
    let failed = Error::new(kind, format!("{doing} failed: {error}"));
    match hint(error) {
        Some(hint) => failed.with_hint(hint),
        None => failed,
    }
}

/// What helps where the driver is not the right one.
fn hint(error: DriverError) -> Option<&'static str> {
    match error.0 {
        sys::cudaError_enum::CUDA_ERROR_STUB_LIBRARY => Some(
            "the libcuda.so that was found is the stub of the toolkit, for linkers: let LD_LIBRARY_PATH name the folder of the driver's own before it",
        ),
        sys::cudaError_enum::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => Some(
            "the library of the driver and its kernel module have different versions: restart the machine, or install the driver again",
        ),
        sys::cudaError_enum::CUDA_ERROR_NO_DEVICE => Some(
            "nvidia-smi shows the GPUs that the driver finds; CUDA_VISIBLE_DEVICES may hide them",
        ),
        _ => None,
    }
}
