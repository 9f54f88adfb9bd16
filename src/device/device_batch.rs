//! A batch in the memory of a device.
//!
//! Comes in: a device array of another library, or a batch of the host. Goes out: device arrays over the same memory, and columns copied to the host. What must be waited for is waited for
//! before the first copy. Never here: tiles, which device is copied how.
//!
//! Follows <https://arrow.apache.org/docs/format/CDeviceDataInterface.html>.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, BufferSpec, RecordBatch, RecordBatchOptions, layout};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema};

use crate::device::abi::ArrowDeviceArray;
use crate::device::convert::{convert, empty_fields, part};
use crate::device::engine::{DeviceBuffer, Event, copy_engine};
use crate::device::guard::contain;
use crate::device::import::import_schema;
use crate::device::node::{Node, broken, refused};
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
        let ordinal = u32::try_from(array.device_id).ok();
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
                return Err(broken("the rows of a batch cannot be null as a whole")
                    .with_hint("push the nulls of the struct down into its fields first"));
            }
            let start = node.offset() + self.rows.start;
            let chosen = held_columns.iter().zip(schema.fields());
            let chosen = chosen.map(|(number, field)| {
                let whole = convert(&node.child(*number)?, field.data_type());
                let column = whole.and_then(|whole| part(&whole, start, self.rows.len()));
                column.map_err(|error| error.with_column(field.name()))
            });
            chosen.collect()
        })?;
        RecordBatch::try_new_with_options(schema, copied, &options).map_err(refused)
    }

    /// The batch as schema and device array, over the same buffers.
    ///
    /// # Errors
    /// `Unsupported` when the C Data interface cannot carry the schema.
    pub fn export(&self) -> Result<(FFI_ArrowSchema, ArrowDeviceArray)> {
        let schema = FFI_ArrowSchema::try_from(self.schema.as_ref());
        let schema =
            schema.map_err(|error| Error::unsupported(error.to_string()).with_source(error))?;
        let owner: Owner = Arc::clone(&self.held.array) as _;
        let node = Node::root(&self.held.array, &Memory::Host)?;
        let children = self
            .columns
            .iter()
            .map(|column| Part::of_node(&node.child(*column)?));
        let children = children.collect::<Result<_>>()?;
        let start = node.offset() + self.rows.start;
        let rows = start..start + self.rows.len();
        let array = Part::of_columns(rows, children).into_c(&owner)?;
        let event = self.held.event.map_or(0, |event| event.0);
        Ok((
            schema,
            ArrowDeviceArray {
                array,
                device_id: self.held.device_id,
                device_type: self.held.device.device_type(),
                sync_event: std::ptr::with_exposed_provenance_mut(event),
                reserved: [0; 3],
            },
        ))
    }
}

impl Held {
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

/// Bytes of the buffers of an array and of those below it.
fn num_bytes(node: &Node<'_>, data_type: &DataType, memory: Option<&Memory>) -> Result<u64> {
    let layout = layout(data_type);
    let mut buffers = 0..node.num_buffers()?;
    let mut bytes = 0;
    if layout.can_contain_null_mask
        && let Some(index) = buffers.next()
        && node.handle(index) != 0
    {
        bytes += node.end().div_ceil(8) as u64;
    }
    // Text and lists have one offset more than values.
    let offsets = matches!(layout.buffers.as_slice(), [_, BufferSpec::VariableWidth])
        || matches!(
            data_type,
            DataType::List(_) | DataType::LargeList(_) | DataType::Map(..)
        );
    let num_values = node.end() + usize::from(offsets && node.end() > 0);
    let mut before = None;
    for (index, spec) in buffers.clone().zip(&layout.buffers) {
        bytes += match spec {
            BufferSpec::FixedWidth { byte_width, .. } => {
                before = Some((index, *byte_width));
                (num_values * byte_width) as u64
            }
            BufferSpec::BitMap => node.end().div_ceil(8) as u64,
            BufferSpec::VariableWidth => match (before, memory) {
                (Some((offsets, width)), Some(memory)) if node.end() > 0 => {
                    memory.number(node.handle(offsets), node.end() * width, width)?
                }
                _ => 0,
            },
            BufferSpec::AlwaysNull => 0,
        };
    }
    if layout.variadic
        && let (Some(memory), Some(lengths)) = (memory, buffers.last())
    {
        for number in 0..lengths.saturating_sub(2) {
            bytes += memory.number(node.handle(lengths), number * 8, 8)?;
        }
    }
    let below = types_below(data_type).into_iter().enumerate();
    for (index, data_type) in below {
        let child = match data_type {
            _ if node.has_dictionary() => node.dictionary()?,
            _ => node.child(index)?,
        };
        bytes += num_bytes(&child, data_type, memory)?;
    }
    Ok(bytes)
}

fn types_below(data_type: &DataType) -> Vec<&DataType> {
    match data_type {
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        DataType::Union(fields, _) => fields.iter().map(|(_, field)| field.data_type()).collect(),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => vec![field.data_type()],
        DataType::RunEndEncoded(ends, values) => vec![ends.data_type(), values.data_type()],
        DataType::Dictionary(_, values) => vec![values],
        _ => Vec::new(),
    }
}
