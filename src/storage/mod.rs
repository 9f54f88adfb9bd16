//! Laid-out, aligned memory for stencils, as "Storage Allocation and Interfaces" of GT4Py has it.
//!
//! Comes in: shape, type of the elements, and the parameters of the specification. Goes out: a [`Storage`]: writable memory whose elements lie as the [`Plan`] says. Read on in
//! `dims.rs` (labels), `backend.rs` (presets), `parameters.rs`, `plan.rs` (pure arithmetic), `item.rs` (types), `memory.rs`, `access.rs` (who may write), `recent.rs` (what is used again), `copy.rs`, `band.rs`
//! (storages and dense bands of grids). Never here: Python; the drivers of devices, which implement [`MemorySource`].

mod access;
mod backend;
mod band;
mod copy;
mod dims;
mod item;
mod memory;
mod parameters;
mod plan;
mod recent;

use std::sync::Arc;

pub use access::WriteGuard;
pub use backend::Backend;
pub use dims::{Dim, Dims};
pub use item::{Foreign, Item};
pub use memory::{Host, Memory, MemorySource, check_fill};
pub use parameters::Parameters;
pub use plan::{Place, Plan, layout_of};
pub use recent::Handle;

use crate::error::{Error, Result};
use crate::location::Device;
use access::Access;

/// What is in a new storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill<'a> {
    /// Anything.
    Undefined,
    /// Bytes of zero.
    Zeros,
    /// The bytes of one element, in all of them.
    Item(&'a [u8]),
}

/// Memory whose elements lie as a plan says.
///
/// Who holds the address may read and write the elements as long as the storage lives; [`Storage::try_write`] keeps it from becoming part of a grid meanwhile.
#[derive(Debug)]
pub struct Storage {
    item: Item,
    plan: Arc<Plan>,
    /// Bytes from the beginning of the memory to the first element.
    offset: usize,
    memory: Box<dyn Memory>,
    access: Access,
}

impl Storage {
    /// A new storage in memory of `source`.
    ///
    /// # Errors
    /// `ResourcesExhausted` when there is not as much memory; `Unsupported` when the source is not where the plan wants the storage; `InvalidArgument` for a value of another width
    /// than the elements.
    pub fn try_new(
        plan: impl Into<Arc<Plan>>,
        item: Item,
        fill: Fill<'_>,
        source: &dyn MemorySource,
    ) -> Result<Arc<Self>> {
        let plan = plan.into();
        let item_bytes = item.item_bytes();
        if item_bytes != plan.item_bytes() {
            return Err(Error::invalid_argument(format!(
                "the plan must be of the {item_bytes} bytes of {item}, it is of {}",
                plan.item_bytes()
            )));
        }
        if (plan.place() == Place::Host) != (source.device() == Device::CPU) {
            return Err(no_gpu());
        }
        let fill = match fill {
            Fill::Item(value) if value.len() != item_bytes => {
                return Err(Error::invalid_argument(format!(
                    "the value must have the {item_bytes} bytes of {item}, got {}",
                    value.len()
                )));
            }
            Fill::Item(value) if value.iter().all(|byte| *byte == 0) => Fill::Zeros,
            other => other,
        };
        let mut memory = source.allocate(plan.num_bytes(), fill == Fill::Zeros)?;
        let offset = plan.offset(memory.as_ptr().addr());
        if let Fill::Item(value) = fill {
            memory.fill(offset..offset + plan.span_bytes(), value)?;
        }
        Ok(Arc::new(Self {
            item,
            plan,
            offset,
            memory,
            access: Access::writable(),
        }))
    }

    /// What the elements are.
    #[must_use]
    pub fn item(&self) -> &Item {
        &self.item
    }

    /// Where they lie, relative to the first one.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The address of the first element, in the addresses of its device.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr().wrapping_add(self.offset)
    }

    /// Whose memory it is.
    #[must_use]
    pub fn device(&self) -> Device {
        self.memory.device()
    }

    /// The bytes of the elements, without what lies between them.
    #[must_use]
    pub fn num_bytes(&self) -> usize {
        self.plan.num_elements() * self.item.item_bytes()
    }
}

/// The refusal of memory of a GPU where no driver of one is.
#[must_use]
pub fn no_gpu() -> Error {
    Error::unsupported(
        "device=\"gpu\" and the backends for GPUs need memory of a GPU, and this process reaches none",
    )
    .with_hint("leave device out, or take a backend for the CPU, such as \"gt:cpu_ifirst\"")
}
