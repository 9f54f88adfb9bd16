//! Memory of a GPU for storages.
//!
//! Comes in: a number of bytes. Goes out: that much memory of the GPU that the calling thread works with, by the engine of CUDA. Never here: where elements lie, memory of the host.

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use partgrid::device::{CopyEngine, DeviceBuffer, copy_engine};
use partgrid::error::Result;
use partgrid::location::Device;
use partgrid::storage::{Memory, MemorySource, check_fill, no_gpu};

/// The type of device that the specification means by `"gpu"`: CUDA.
const CUDA: i32 = 2;

/// The GPU that the calling thread works with.
#[derive(Debug)]
pub(super) struct Gpu {
    ordinal: u32,
    engine: Arc<dyn CopyEngine>,
}

impl Gpu {
    /// The GPU, if there is one.
    pub(super) fn try_new() -> Result<Self> {
        let found = copy_engine(Device::try_new(CUDA, None)?);
        let engine = found.map_err(|error| no_gpu().with_source(error))?;
        Ok(Self {
            ordinal: engine.current()?,
            engine,
        })
    }
}

impl MemorySource for Gpu {
    fn device(&self) -> Device {
        Device::try_new(CUDA, Some(self.ordinal)).unwrap_or(Device::CPU)
    }

    fn allocate(&self, num_bytes: usize, zeroed: bool) -> Result<Box<dyn Memory>> {
        // The driver gives no memory without bytes, and each storage has an address of its own.
        let num_bytes = num_bytes.max(1);
        let buffer = self.engine.allocate(self.ordinal, num_bytes)?;
        if zeroed {
            let handle = buffer.handle();
            self.engine.fill(self.ordinal, handle, 0..num_bytes, &[0])?;
        }
        Ok(Box::new(OnGpu {
            device: self.device(),
            ordinal: self.ordinal,
            engine: AssertUnwindSafe(Arc::clone(&self.engine)),
            buffer: AssertUnwindSafe(buffer),
        }))
    }
}

/// Memory of one storage. The engine and the buffer hold nothing that a panic could leave half done.
#[derive(Debug)]
struct OnGpu {
    device: Device,
    ordinal: u32,
    engine: AssertUnwindSafe<Arc<dyn CopyEngine>>,
    buffer: AssertUnwindSafe<DeviceBuffer>,
}

impl Memory for OnGpu {
    fn as_ptr(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.buffer.handle())
    }

    fn num_bytes(&self) -> usize {
        self.buffer.num_bytes()
    }

    fn device(&self) -> Device {
        self.device
    }

    fn fill(&mut self, range: Range<usize>, pattern: &[u8]) -> Result<()> {
        check_fill(&range, pattern, self.num_bytes())?;
        let handle = self.buffer.handle();
        self.engine.fill(self.ordinal, handle, range, pattern)
    }
}
