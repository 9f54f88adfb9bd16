//! Who copies between the memory of a device and that of the host.
//!
//! Comes in: engines of this crate (CUDA) and of whoever embeds it. Goes out: the engine of a device, or an error that says what there is. The list is kept in an atomic pointer, so that
//! a fork at any moment is harmless. Never here: what the bytes mean (`on_host.rs`, `tree.rs`).

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;

use crate::error::{Error, ErrorKind, Result};
use crate::location::Device;

/// Copies between the memory of one type of device and that of the host. A handle is what the buffer pointer of an Arrow C Device array holds: an address for CUDA, an object for
/// OpenCL; nobody but the engine looks into it.
pub trait CopyEngine: Debug + Send + Sync {
    /// Waits until the work behind the event is done.
    ///
    /// # Errors
    /// Whatever the driver says.
    fn wait(&self, ordinal: u32, event: Event) -> Result<()>;

    /// Fills `out` with the bytes of a buffer from byte `start` on, and returns when they are there.
    ///
    /// # Errors
    /// Whatever the driver says.
    fn read(&self, ordinal: u32, handle: usize, start: usize, out: &mut [u8]) -> Result<()>;

    /// The same into memory whose content is not defined yet, of which this gives back all, with the bytes. By default it is zeroed before, which an engine can spare.
    ///
    /// # Errors
    /// Whatever the driver says.
    #[expect(unsafe_code, reason = "bytes that were zeroed are defined")]
    fn read_new<'a>(
        &self,
        ordinal: u32,
        handle: usize,
        start: usize,
        out: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8]> {
        out.fill(MaybeUninit::new(0));
        // SAFETY: all of it was written on the line before.
        let out = unsafe { out.assume_init_mut() };
        self.read(ordinal, handle, start, out)?;
        Ok(out)
    }

    /// A new buffer on the device with these bytes (never none), there when this returns.
    ///
    /// # Errors
    /// `ResourcesExhausted` when the device has no room; whatever the driver says.
    fn write(&self, ordinal: u32, bytes: &[u8]) -> Result<DeviceBuffer>;

    /// The number of the device that the calling thread works with, where its driver knows such a thing; else 0.
    ///
    /// # Errors
    /// Whatever the driver says.
    fn current(&self) -> Result<u32> {
        Ok(0)
    }

    /// A new buffer on the device of so many bytes (never none), whose content is not defined.
    ///
    /// # Errors
    /// `ResourcesExhausted` when the device has no room; `Unsupported` unless the engine has its own way.
    fn allocate(&self, ordinal: u32, num_bytes: usize) -> Result<DeviceBuffer> {
        Err(copies_only(ordinal, num_bytes))
    }

    /// Writes `pattern` over and over into these bytes of a buffer of [`CopyEngine::allocate`], and returns when they are there. Both lengths go into each other.
    ///
    /// # Errors
    /// Whatever the driver says; `Unsupported` unless the engine has its own way.
    fn fill(&self, ordinal: u32, handle: usize, bytes: Range<usize>, pattern: &[u8]) -> Result<()> {
        let _ = (handle, pattern);
        Err(copies_only(ordinal, bytes.len()))
    }
}

fn copies_only(ordinal: u32, num_bytes: usize) -> Error {
    Error::unsupported(format!(
        "the engine of device {ordinal} only copies, it lays out no memory of its own ({num_bytes} bytes were wanted)"
    ))
}

/// What must happen before a device array may be read: the `sync_event` of the Arrow C Device interface, a pointer to an event of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event(pub usize);

/// A buffer on a device; dropping it frees it.
pub struct DeviceBuffer {
    handle: usize,
    num_bytes: usize,
    /// Frees the buffer when it is dropped.
    _owner: Box<dyn Send + Sync>,
}

impl DeviceBuffer {
    /// A buffer that is freed when `owner` is dropped.
    #[must_use]
    pub fn new(handle: usize, num_bytes: usize, owner: Box<dyn Send + Sync>) -> Self {
        Self {
            handle,
            num_bytes,
            _owner: owner,
        }
    }

    /// What the driver knows it by.
    #[must_use]
    pub fn handle(&self) -> usize {
        self.handle
    }

    /// The number of bytes.
    #[must_use]
    pub fn num_bytes(&self) -> usize {
        self.num_bytes
    }
}

impl Debug for DeviceBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DeviceBuffer")
            .field("handle", &self.handle)
            .field("num_bytes", &self.num_bytes)
            .finish_non_exhaustive()
    }
}

type Engines = BTreeMap<i32, Arc<dyn CopyEngine>>;

/// The engines that were registered, by device type.
static REGISTERED: LazyLock<ArcSwap<Engines>> = LazyLock::new(ArcSwap::default);

/// The device type of CUDA.
const CUDA: i32 = 2;

/// Lets tiles be copied to and from the devices of a type, in place of an engine that had it.
///
/// # Errors
/// `InvalidArgument` for the CPU, which needs none.
pub fn register_copy_engine(device: Device, engine: Arc<dyn CopyEngine>) -> Result<()> {
    if device.is_host_readable() {
        return Err(Error::invalid_argument(format!(
            "the memory of {device} is read without an engine"
        )));
    }
    REGISTERED.rcu(|engines| {
        let mut engines = Engines::clone(engines);
        engines.insert(device.device_type(), Arc::clone(&engine));
        engines
    });
    Ok(())
}

/// The engine of a device.
///
/// # Errors
/// `Unsupported` when there is none, `NotFound` when its driver is not on this machine.
pub fn copy_engine(device: Device) -> Result<Arc<dyn CopyEngine>> {
    let engines = REGISTERED.load();
    if let Some(engine) = engines.get(&device.device_type()) {
        return Ok(Arc::clone(engine));
    }
    #[cfg(feature = "cuda")]
    if device.device_type() == CUDA {
        return super::cuda::engine();
    }
    let built_in = cfg!(feature = "cuda").then_some(CUDA);
    let known = engines.keys().copied().chain(built_in);
    let known = known.filter_map(|number| Device::try_new(number, None).ok());
    let known: Vec<String> = known.map(|device| device.to_string()).collect();
    Err(Error::new(
        ErrorKind::Unsupported,
        format!(
            "nothing copies to and from {device}; there are engines for {}",
            known.join(", ")
        ),
    )
    .with_hint(match device.is_host_readable() {
        true => "its driver makes such memory, and what lies there is taken as it is",
        false => "register an engine that uses the driver of the device",
    }))
}
