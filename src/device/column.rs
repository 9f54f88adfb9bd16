//! One column in the memory of a device.
//!
//! Comes in: a column of a device batch. Goes out: a C array of it, and where its numbers lie, for whoever reads them on the device; copies on request. Nulls are counted, on the device only
//! where the producer does not say how many there are. Never here: protocols that hand the numbers out.

use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{FieldRef, SchemaRef};
use arrow::ffi::FFI_ArrowSchema;

use crate::device::abi::ArrowDeviceArray;
use crate::device::device_batch::DeviceBatch;
use crate::device::dlpack::DLDevice;
use crate::device::engine::Event;
use crate::device::node::broken;
use crate::error::{Error, Result};
use crate::grid::ElementType;
use crate::location::Device;

/// A column whose buffers lie on a device. They are never written.
#[derive(Debug)]
pub struct DeviceColumn {
    /// Of this column alone.
    batch: DeviceBatch,
    /// Set once they were counted.
    num_nulls: OnceLock<usize>,
}

/// Where the numbers of a column without nulls lie on a device: next to each other. Cheap to clone; keeps the memory.
#[derive(Debug, Clone)]
pub struct DeviceNumbers {
    batch: DeviceBatch,
    element: ElementType,
    /// What the driver knows the buffer by; 0 where there are no elements.
    handle: usize,
    /// Bytes from the beginning of the buffer to the first element.
    start: usize,
}

impl DeviceColumn {
    /// The only column of a batch.
    pub(super) fn new(batch: DeviceBatch) -> Self {
        Self {
            batch,
            num_nulls: OnceLock::new(),
        }
    }

    /// Name and type.
    ///
    /// # Errors
    /// `Internal` only.
    pub fn field(&self) -> Result<FieldRef> {
        let schema: SchemaRef = self.batch.schema();
        let field = schema.fields().first().map(Arc::clone);
        field.ok_or_else(|| Error::internal("a column without a field"))
    }

    /// The number of rows.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// Bytes of the buffers, as [`DeviceBatch::memory_bytes`] has them.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.batch.memory_bytes()
    }

    /// Where the buffers are.
    #[must_use]
    pub fn device(&self) -> Device {
        self.batch.device()
    }

    /// The same as DLPack has it.
    #[must_use]
    pub fn dlpack_device(&self) -> DLDevice {
        dlpack_device(&self.batch)
    }

    /// Waits for what the producer said, if it said something.
    ///
    /// # Errors
    /// As [`copy_engine`](super::copy_engine); whatever the driver says.
    pub fn wait(&self) -> Result<()> {
        if self.batch.event().is_some() {
            self.batch.memory()?;
        }
        Ok(())
    }

    /// The column as schema and device array, over the same buffers.
    ///
    /// # Errors
    /// `Unsupported` when the C Data interface cannot carry the type; `InvalidData` when the array contradicts itself.
    pub fn export(&self) -> Result<(FFI_ArrowSchema, ArrowDeviceArray)> {
        let schema = FFI_ArrowSchema::try_from(self.field()?.as_ref());
        let schema =
            schema.map_err(|error| Error::unsupported(error.to_string()).with_source(error))?;
        let array = self.batch.part(0)?.into_c(&self.batch.owner())?;
        Ok((schema, self.batch.on_device(array)))
    }

    /// Where the numbers lie.
    ///
    /// # Errors
    /// `Unsupported` when the column is no plain number; `InvalidData` when it has nulls, or the array contradicts itself; where the producer does not say how many nulls there are, what
    /// stands in the way of reading them.
    pub fn numbers(&self) -> Result<DeviceNumbers> {
        let field = self.field()?;
        let named = |error: Error| error.with_column(field.name());
        let element = ElementType::try_from_arrow(field.data_type()).map_err(named)?;
        let numbers = self.found(element).map_err(named)?;
        match self.num_nulls().map_err(named)? {
            0 => Ok(numbers),
            count => Err(named(
                Error::invalid_data(format!("an array has no nulls, the column has {count}"))
                    .with_hint(
                        "copy the tile to the host, where column(name, fill_null=...) has a value for them: to(\"kDLCPU\")",
                    ),
            )),
        }
    }

    fn found(&self, element: ElementType) -> Result<DeviceNumbers> {
        let layout = self.batch.part(0)?.fixed_width()?;
        let start = layout.offset.checked_mul(element.item_bytes());
        let start =
            start.ok_or_else(|| broken("a buffer must be smaller than the address space"))?;
        let (handle, start) = match (self.num_rows(), layout.values) {
            (0, _) => (0, 0),
            (_, 0) => return Err(broken("the buffer of the values is absent")),
            (_, handle) => (handle, start),
        };
        if handle.checked_add(start).is_none() {
            return Err(broken("a buffer must lie within the address space"));
        }
        Ok(DeviceNumbers {
            batch: self.batch.clone(),
            element,
            handle,
            start,
        })
    }

    /// How many values are null, of a column of a type with one buffer of values.
    fn num_nulls(&self) -> Result<usize> {
        if let Some(known) = self.num_nulls.get() {
            return Ok(*known);
        }
        let layout = self.batch.part(0)?.fixed_width()?;
        let count = match usize::try_from(layout.declared_nulls) {
            Ok(1..) if layout.validity == 0 => {
                return Err(broken(
                    "nulls are declared, and the validity bitmap is absent",
                ));
            }
            _ if layout.validity == 0 || self.num_rows() == 0 => 0,
            Ok(count) => count,
            Err(_) => self.count_nulls(layout.validity, layout.offset)?,
        };
        Ok(*self.num_nulls.get_or_init(|| count))
    }

    /// Copies the bitmap of the rows to the host, and counts.
    fn count_nulls(&self, validity: usize, first: usize) -> Result<usize> {
        let num_rows = self.num_rows();
        let bytes = first / 8..(first + num_rows).div_ceil(8);
        let bits = self.batch.memory()?.copied(validity, bytes)?;
        let bits = BooleanBuffer::new(bits, first % 8, num_rows);
        Ok(num_rows - bits.count_set_bits())
    }

    /// The column in the memory of this process.
    ///
    /// # Errors
    /// As [`DeviceBatch::copy_to_host`].
    pub fn copy_to_host(&self) -> Result<ArrayRef> {
        let column = self.host_batch()?.columns().first().map(Arc::clone);
        column.ok_or_else(|| Error::internal("a column without values"))
    }

    fn host_batch(&self) -> Result<RecordBatch> {
        self.batch.copy_to_host(&[0])
    }

    /// The column in buffers of its own on a device, by way of the host.
    ///
    /// # Errors
    /// As [`DeviceBatch::copy_to_host`] and [`DeviceBatch::try_copy_to`].
    pub fn copy_to(&self, device: Device) -> Result<Self> {
        DeviceBatch::try_copy_to(&self.host_batch()?, device)?.column(0)
    }
}

impl DeviceNumbers {
    /// What the numbers are.
    #[must_use]
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.batch.num_rows()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where they are.
    #[must_use]
    pub fn device(&self) -> Device {
        self.batch.device()
    }

    /// The same as DLPack has it, with the number that the producer gave.
    #[must_use]
    pub fn dlpack_device(&self) -> DLDevice {
        dlpack_device(&self.batch)
    }

    /// What whoever reads them must wait for first.
    #[must_use]
    pub fn event(&self) -> Option<Event> {
        self.batch.event()
    }

    /// The address of the first one, where handles are addresses; else the handle of the buffer. 0 of none.
    #[must_use]
    pub fn address(&self) -> usize {
        match self.device().has_addresses() {
            true => self.handle + self.start,
            false => self.handle,
        }
    }

    /// Bytes from `address` to the first one.
    #[must_use]
    pub fn byte_offset(&self) -> usize {
        match self.device().has_addresses() {
            true => 0,
            false => self.start,
        }
    }
}

fn dlpack_device(batch: &DeviceBatch) -> DLDevice {
    DLDevice {
        device_type: batch.device().device_type(),
        // -1 says that there is only one.
        device_id: i32::try_from(batch.device_id()).map_or(0, |number| number.max(0)),
    }
}
