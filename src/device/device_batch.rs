//! A batch in the memory of a device.
//!
//! Comes in: a device array of another library, or a batch of the host. Goes out: device arrays over the same memory, and columns copied to the host. What must be waited for is waited for
//! before the first copy. Never here: tiles, which device is copied how.
//!
//! Follows <https://arrow.apache.org/docs/format/CDeviceDataInterface.html>.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema};

use crate::device::abi::ArrowDeviceArray;
use crate::device::column::DeviceColumn;
use crate::device::convert::{convert, empty_fields};
use crate::device::count::num_bytes;
use crate::device::engine::{DeviceBuffer, Event, copy_engine};
use crate::device::guard::contain;
use crate::device::import::import_schema;
use crate::device::node::{Node, broken, check_part, refused};
use crate::device::on_host::Memory;
use crate::device::tree::{Owner, Part};
use crate::error::{Error, ErrorKind, Result};
use crate::location::Device;

/// Rows and columns whose buffers lie on a device. They are never written.
#[derive(Debug, Clone)]
pub struct DeviceBatch {
    held: Arc<Held>,
    schema: SchemaRef,
    /// Which of the columns that are held.
    columns: Arc<[usize]>,
    /// Which of the rows that are held.
    rows: Range<usize>,
}

/// What came from a producer, or was copied: whole.
#[derive(Debug)]
struct Held {
    array: Arc<FFI_ArrowArray>,
    schema: SchemaRef,
    device: Device,
    /// As the producer gave it.
    device_id: i64,
    event: Option<Event>,
    /// Whether the event has been waited for.
    ready: AtomicBool,
    /// Of each column.
    memory_bytes: OnceLock<Vec<u64>>,
}

impl DeviceBatch {
    /// Takes over a device array, which is released when the batch and all that was exported from it are gone. Nothing is read.
    ///
    /// # Errors
    /// `Unsupported` for a device that the interface does not define, else as [`import_batch`](super::import_batch).
    pub fn try_import(array: ArrowDeviceArray, schema: &FFI_ArrowSchema) -> Result<Self> {
        let schema = import_schema(schema)?;
        // -1 says that there is only one.
        let ordinal = u32::try_from(array.device_id).ok();
        if ordinal.is_none_or(|number| i32::try_from(number).is_err()) && array.device_id != -1 {
            return Err(broken(format!(
                "the number of a device must be -1 or one of 32 bits from 0 on, got {}",
                array.device_id
            )));
        }
        let device = Device::try_new(array.device_type, ordinal).map_err(|_| {
            Error::unsupported(format!(
                "the Arrow C Device interface defines no device type {}",
                array.device_type
            ))
        })?;
        let event = array.sync_event.expose_provenance();
        let (device_id, owner) = (array.device_id, Arc::new(array.array));
        let node = Node::root(&owner, &Memory::Host)?;
        let num_rows = node.len();
        if num_rows > 0 {
            node.expect(1, schema.fields().len())?;
            for number in 0..schema.fields().len() {
                check_part(node.offset(), num_rows, node.child(number)?.len())?;
            }
        }
        Ok(Self::whole(
            num_rows,
            Held {
                schema,
                device,
                device_id,
                event: (event != 0).then_some(Event(event)),
                ready: AtomicBool::new(event == 0),
                memory_bytes: OnceLock::new(),
                array: owner,
            },
        ))
    }

    /// Copies a batch to a device.
    ///
    /// # Errors
    /// As [`copy_engine`]; `ResourcesExhausted` when the device has no room; whatever the driver says.
    pub fn try_copy_to(batch: &RecordBatch, device: Device) -> Result<Self> {
        let engine = copy_engine(device)?;
        let ordinal = device.ordinal().unwrap_or(0);
        let device = Device::try_new(device.device_type(), Some(ordinal))?;
        let mut buffers: Vec<DeviceBuffer> = Vec::new();
        let mut memory_bytes = Vec::new();
        let mut columns = Vec::new();
        for (column, field) in batch.columns().iter().zip(batch.schema_ref().fields()) {
            let first = buffers.len();
            let mut put = |bytes: &[u8]| {
                let buffer = engine.write(ordinal, bytes)?;
                let handle = buffer.handle();
                buffers.push(buffer);
                Ok(handle)
            };
            let put = Part::put(&column.to_data(), &mut put);
            columns.push(put.map_err(|error| error.with_column(field.name()))?);
            let bytes = buffers.iter().skip(first).map(DeviceBuffer::num_bytes);
            memory_bytes.push(bytes.sum::<usize>() as u64);
        }
        let owner: Owner = Arc::new(buffers);
        let array = Part::of_columns(0..batch.num_rows(), columns).into_c(&owner)?;
        Ok(Self::whole(
            batch.num_rows(),
            Held {
                schema: batch.schema(),
                array: Arc::new(array),
                device,
                device_id: i64::from(ordinal),
                event: None,
                ready: AtomicBool::new(true),
                memory_bytes: OnceLock::from(memory_bytes),
            },
        ))
    }

    fn whole(num_rows: usize, held: Held) -> Self {
        let schema = Arc::clone(&held.schema);
        Self {
            columns: (0..schema.fields().len()).collect(),
            rows: 0..num_rows,
            held: Arc::new(held),
            schema,
        }
    }

    /// Some rows and columns of the batch, over the same buffers.
    ///
    /// # Errors
    /// `InvalidArgument` for rows or columns that the batch does not have.
    pub fn view(&self, rows: Range<usize>, columns: &[usize]) -> Result<Self> {
        if rows.start > rows.end || rows.end > self.num_rows() {
            return Err(Error::invalid_argument(format!(
                "rows must lie within 0..{}, got {rows:?}",
                self.num_rows()
            )));
        }
        Ok(Self {
            held: Arc::clone(&self.held),
            schema: Arc::new(self.schema.project(columns)?),
            columns: self.held_columns(columns)?.into(),
            rows: self.rows.start + rows.start..self.rows.start + rows.end,
        })
    }

    /// The same columns under the names of another schema, see [`named`](crate::grid::named), over the same buffers.
    ///
    /// # Errors
    /// `InvalidArgument` when the schema has other types, or another number of columns.
    pub fn under(&self, schema: &SchemaRef) -> Result<Self> {
        let types = |schema: &SchemaRef| -> Vec<DataType> {
            let fields = schema.fields().iter();
            fields.map(|field| field.data_type().clone()).collect()
        };
        if types(schema) != types(&self.schema) {
            return Err(Error::invalid_argument(
                "another schema must have the types of the columns",
            ));
        }
        let schema = Arc::clone(schema);
        Ok(Self {
            schema,
            ..self.clone()
        })
    }

    /// The numbers of columns among those that are held.
    fn held_columns(&self, columns: &[usize]) -> Result<Vec<usize>> {
        let known = columns.iter().map(|number| self.columns.get(*number));
        let known: Option<Vec<usize>> = known.map(Option::<&usize>::copied).collect();
        known.ok_or_else(|| {
            Error::invalid_argument(format!(
                "columns must be numbers below {}, got {columns:?}",
                self.columns.len()
            ))
        })
    }

    /// The columns.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The number of rows.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        self.rows.len()
    }

    /// Where the buffers are.
    #[must_use]
    pub fn device(&self) -> Device {
        self.held.device
    }

    /// Bytes of the buffers of the columns, of the rows their part, as far as they are known: without an engine for the device, those of texts and the like are not, since their number
    /// lies on the device.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let whole = self.held.memory_bytes.get_or_init(|| self.held.count());
        let chosen = self.columns.iter().filter_map(|column| whole.get(*column));
        let bytes = chosen.map(|bytes| u128::from(*bytes)).sum::<u128>() * self.rows.len() as u128;
        let held_rows = u128::try_from(self.held.array.length).unwrap_or(0);
        u64::try_from(bytes.checked_div(held_rows).unwrap_or(0)).unwrap_or(u64::MAX)
    }

    /// Copies columns (by number, in the given order) to the host.
    ///
    /// # Errors
    /// As [`copy_engine`]; `InvalidArgument` for a column that does not exist; whatever the driver says; `InvalidData` when the array contradicts itself.
    pub fn copy_to_host(&self, columns: &[usize]) -> Result<RecordBatch> {
        let schema = Arc::new(self.schema.project(columns)?);
        let held_columns = self.held_columns(columns)?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.num_rows()));
        let memory = self.held.memory()?;
        let copied = contain(ErrorKind::InvalidData, "copying from a device", || {
            let node = Node::root(&self.held.array, &memory)?;
            if node.len() == 0 {
                return empty_fields(&node, schema.fields());
            }
            if node.nulls()?.is_some() {
                return Err(null_rows());
            }
            let start = node.offset() + self.rows.start;
            let chosen = held_columns.iter().zip(schema.fields());
            let chosen = chosen.map(|(number, field)| {
                let child = node.child(*number)?;
                let rows = child.part(start, self.rows.len());
                let column = rows.and_then(|rows| convert(&rows, field.data_type()));
                column.map_err(|error| error.with_column(field.name()))
            });
            chosen.collect()
        })?;
        RecordBatch::try_new_with_options(schema, copied, &options).map_err(refused)
    }

    /// Batches on one device side by side, over their buffers. Nothing is copied; when several have something to wait for, that is waited for now, since an array says one thing only.
    ///
    /// # Errors
    /// `InvalidArgument` without batches, and for batches of different numbers of rows; `Unsupported` for batches on several devices; what stands in the way of waiting.
    pub fn try_beside(batches: Vec<Self>) -> Result<Self> {
        let Some(first) = batches.first() else {
            return Err(Error::invalid_argument("no batches to put side by side"));
        };
        if batches.len() == 1 {
            return Ok(first.clone());
        }
        let (num_rows, device, device_id) = (first.num_rows(), first.device(), first.device_id());
        for other in &batches {
            if other.num_rows() != num_rows {
                return Err(Error::invalid_argument(format!(
                    "batches side by side must have the same number of rows, got {num_rows} and {}",
                    other.num_rows()
                )));
            }
            if (other.device(), other.device_id()) != (device, device_id) {
                return Err(Error::unsupported(format!(
                    "batches side by side must be on one device, got {device} and {}",
                    other.device()
                ))
                .with_hint("copy them to one device first, such as to(\"kDLCPU\")"));
            }
        }
        let event = one_event(&batches)?;
        let mut parts = Vec::new();
        let mut fields = Vec::new();
        for batch in &batches {
            for number in 0..batch.columns.len() {
                parts.push(batch.part(number)?);
            }
            fields.extend(batch.schema.fields().iter().map(Arc::clone));
        }
        let owner: Owner = Arc::new(batches);
        let array = Part::of_columns(0..num_rows, parts).into_c(&owner)?;
        Ok(Self::whole(
            num_rows,
            Held {
                schema: Arc::new(Schema::new(fields)),
                array: Arc::new(array),
                device,
                device_id,
                event,
                ready: AtomicBool::new(event.is_none()),
                memory_bytes: OnceLock::new(),
            },
        ))
    }

    /// One column (by number), over the same buffers.
    ///
    /// # Errors
    /// `InvalidArgument` for a column that does not exist.
    pub fn column(&self, number: usize) -> Result<DeviceColumn> {
        Ok(DeviceColumn::new(self.view(0..self.num_rows(), &[number])?))
    }

    /// The tree of a column, of the rows of the batch alone.
    pub(super) fn part(&self, number: usize) -> Result<Part> {
        self.held.refuse_null_rows()?;
        let root = Node::root(&self.held.array, &Memory::Host)?;
        let held = self.held_columns(&[number])?;
        let node = root.child(held.first().copied().unwrap_or(0))?;
        Part::of_node(&node)?.sliced(root.offset() + self.rows.start, self.rows.len())
    }

    /// The number of the device, as the producer gave it.
    #[must_use]
    pub fn device_id(&self) -> i64 {
        self.held.device_id
    }

    /// What whoever reads the buffers must wait for first.
    #[must_use]
    pub fn event(&self) -> Option<Event> {
        self.held.event
    }

    /// The memory of the device, once what must be waited for is done.
    pub(super) fn memory(&self) -> Result<Memory> {
        self.held.memory()
    }

    /// The batch as schema and device array, over the same buffers.
    ///
    /// # Errors
    /// `Unsupported` when the C Data interface cannot carry the schema; `InvalidData` when rows are null as a whole.
    pub fn export(&self) -> Result<(FFI_ArrowSchema, ArrowDeviceArray)> {
        let schema = FFI_ArrowSchema::try_from(self.schema.as_ref());
        let schema =
            schema.map_err(|error| Error::unsupported(error.to_string()).with_source(error))?;
        self.held.refuse_null_rows()?;
        let owner = self.owner();
        let node = Node::root(&self.held.array, &Memory::Host)?;
        let children = self
            .columns
            .iter()
            .map(|column| Part::of_node(&node.child(*column)?));
        let children = children.collect::<Result<_>>()?;
        let start = node.offset() + self.rows.start;
        let rows = start..start + self.rows.len();
        let array = Part::of_columns(rows, children).into_c(&owner)?;
        Ok((schema, self.on_device(array)))
    }

    /// What keeps the buffers.
    pub(super) fn owner(&self) -> Owner {
        Arc::clone(&self.held.array) as _
    }

    /// A C array over the buffers, with where they are.
    pub(super) fn on_device(&self, array: FFI_ArrowArray) -> ArrowDeviceArray {
        let event = self.held.event.map_or(0, |event| event.0);
        ArrowDeviceArray {
            array,
            device_id: self.held.device_id,
            device_type: self.held.device.device_type(),
            sync_event: std::ptr::with_exposed_provenance_mut(event),
            reserved: [0; 3],
        }
    }
}

/// What to wait for before all batches may be read: the one event that there is, or none after waiting for several.
fn one_event(batches: &[DeviceBatch]) -> Result<Option<Event>> {
    let mut events = batches.iter().filter_map(DeviceBatch::event);
    let Some(first) = events.next() else {
        return Ok(None);
    };
    if events.all(|event| event == first) {
        return Ok(Some(first));
    }
    for batch in batches.iter().filter(|batch| batch.event().is_some()) {
        batch.memory()?;
    }
    Ok(None)
}

fn null_rows() -> Error {
    broken("the rows of a batch cannot be null as a whole")
        .with_hint("push the nulls of the struct down into its fields first")
}

impl Held {
    /// Refuses nulls of the struct around the columns, which would be lost when these are handed out without it. Reads them only when the producer does not say how many there are.
    fn refuse_null_rows(&self) -> Result<()> {
        let node = Node::root(&self.array, &Memory::Host)?;
        if node.num_buffers()? == 0 || node.handle(0) == 0 || node.declared_nulls() == 0 {
            return Ok(());
        }
        let memory = self.memory()?;
        match Node::root(&self.array, &memory)?.nulls()? {
            None => Ok(()),
            Some(_) => Err(null_rows()),
        }
    }

    /// The memory of the device, when it may be read.
    fn memory(&self) -> Result<Memory> {
        let engine = copy_engine(self.device)?;
        let ordinal = self.device.ordinal().unwrap_or(0);
        if let Some(event) = self.event
            && !self.ready.load(Ordering::Acquire)
        {
            engine.wait(ordinal, event)?;
            self.ready.store(true, Ordering::Release);
        }
        Ok(Memory::Device { engine, ordinal })
    }

    /// Bytes of each column.
    fn count(&self) -> Vec<u64> {
        let memory = self.memory().ok();
        let bytes = |index: usize, data_type: &DataType| -> Result<u64> {
            let node = Node::root(&self.array, &Memory::Host)?;
            num_bytes(&node.child(index)?, data_type, memory.as_ref())
        };
        let fields = self.schema.fields().iter().enumerate();
        let fields = fields.map(|(index, field)| bytes(index, field.data_type()).unwrap_or(0));
        fields.collect()
    }
}
