//! One tile: data behind a trait, and what is known of it.
//!
//! Comes in: data that implements [`TileData`]. Goes out: where it is, how big, its statistics, and the batch itself when it is here. Implementations stand where
//! data comes from; the one for memory is in `memory.rs`. Never here: how tiles form a grid, how they are queried.

use std::any::Any;
use std::collections::HashSet;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayData, ArrayRef, RecordBatch};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::{DataType, Field, SchemaRef};
use async_trait::async_trait;

use crate::error::{Error, Result};
use crate::grid::memory::{MemoryTile, TileMemory};
use crate::grid::statistics::{ColumnStatistics, column_statistics};
use crate::grid::unknown_column;
use crate::location::{Locality, Location};

/// The data of one tile, wherever it lives. Everything that reads tiles knows only this trait; who hands tiles to other libraries may ask for the type behind it.
#[async_trait]
pub trait TileData: Any + Debug + Send + Sync {
    /// The columns of the tile, in order.
    fn schema(&self) -> SchemaRef;

    /// The number of rows.
    fn num_rows(&self) -> u64;

    /// Bytes of the values, offsets and validity that belong to this tile, without what it shares with other slices of the same buffers.
    fn memory_bytes(&self) -> u64;

    /// Where the tile can be read without communication; this process first if it is among them.
    fn locations(&self) -> Vec<Location>;

    /// Whether the tile is read from a file or a store when it is opened. Nobody opens such a tile only to know more about it.
    fn is_lazy(&self) -> bool {
        false
    }

    /// How near the tile is: what must happen before it can be read.
    fn locality(&self) -> Locality {
        if self.is_lazy() {
            return Locality::File;
        }
        Locality::of(&self.locations())
    }

    /// How near the place is where the tile lies, for those who list tiles. Columns of a tile of another process that are kept here, to be read again, do not make it one of this process.
    fn home(&self) -> Locality {
        self.locality()
    }

    /// Whether nobody has the tile any more, as far as is known without asking anybody: reading it fails until its data is brought back. Its locations are then those where it was.
    fn is_lost(&self) -> bool {
        false
    }

    /// The tile as a batch, without copying.
    ///
    /// # Errors
    /// `NotLocal` when the bytes are not in this process; for a lazy tile whatever stands in the way of reading it.
    fn open(&self) -> Result<RecordBatch>;

    /// The given columns (indices in this tile) as a batch; a lazy tile reads no other.
    ///
    /// # Errors
    /// As of [`TileData::open`]; `InvalidArgument` for a column that does not exist.
    fn open_columns(&self, columns: &[usize]) -> Result<RecordBatch> {
        Ok(self.open()?.project(columns)?)
    }

    /// Bytes of the values of the given columns (indices in this tile), as [`TileData::memory_bytes`] counts them; 0 where they cannot be opened. Counting may look at every value of a text column.
    fn column_bytes(&self, columns: &[usize]) -> u64 {
        let opened = self.open_columns(columns);
        opened.map_or(0, |batch| slice_bytes(&batch))
    }

    /// The given columns (indices in this tile) as a batch, brought here if they live elsewhere.
    ///
    /// # Errors
    /// Whatever stands in the way of bringing them here; `InvalidArgument` for a column that does not exist.
    async fn fetch(&self, columns: &[usize]) -> Result<RecordBatch> {
        self.open_columns(columns)
    }

    /// Whether a row may hold one of these values (of the column's type) in a column (index in this tile), as far as that is known without reading the column: from bloom filters of
    /// files. `true` where nobody knows.
    ///
    /// # Errors
    /// Whatever stands in the way of asking; `InvalidArgument` for a column that does not exist.
    async fn may_hold(&self, column: usize, values: &ArrayRef) -> Result<bool> {
        let _ = (column, values);
        Ok(true)
    }

    /// Some rows and columns (indices in this tile) over the same memory, where the data has a way of its own for that.
    fn view(&self, rows: Range<usize>, columns: &[usize]) -> Option<Result<Arc<dyn TileData>>> {
        let _ = (rows, columns);
        None
    }

    /// By which name another process has the tile, of data that is the memory of one: a handle of `share`.
    fn owned_as(&self) -> Option<&(dyn Any + Send + Sync)> {
        None
    }

    /// Told that the same rows lie in `memory` now, where other processes read them: a tile that holds memory of its own keeps this one in its place, so that they are there once. Others drop it.
    fn settle(&self, memory: Arc<TileMemory>) {
        drop(memory);
    }
}

/// Bytes that the rows of a batch take in its buffers.
pub(crate) fn slice_bytes(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(array_bytes).sum()
}

pub(crate) fn array_bytes(column: &ArrayRef) -> u64 {
    let data = column.to_data();
    let known = data.get_slice_memory_size();
    let bytes = known.unwrap_or_else(|_| column.get_buffer_memory_size());
    (bytes + long_view_bytes(&data)) as u64
}

/// Bytes of the columns of a batch that never changes, each counted once: every query over a tile asks for some of them.
#[derive(Debug)]
pub(crate) struct ColumnBytes(Box<[OnceLock<u64>]>);

impl ColumnBytes {
    pub(crate) fn new(num_columns: usize) -> Self {
        Self((0..num_columns).map(|_| OnceLock::new()).collect())
    }

    /// Of all columns.
    pub(crate) fn all(&self, batch: impl Fn() -> Result<RecordBatch>) -> u64 {
        let all: Vec<usize> = (0..self.0.len()).collect();
        self.of(&all, batch)
    }

    /// Of some columns of the batch, which is opened where one was not counted before; 0 where it cannot be.
    pub(crate) fn of(&self, columns: &[usize], batch: impl Fn() -> Result<RecordBatch>) -> u64 {
        let each = columns.iter().filter_map(|column| {
            let known = self.0.get(*column)?;
            if let Some(bytes) = known.get() {
                return Some(*bytes);
            }
            let bytes = array_bytes(batch().ok()?.columns().get(*column)?);
            Some(*known.get_or_init(|| bytes))
        });
        each.sum()
    }
}

/// Bytes of the columns of `batch` that do not lie in the buffers of the same columns of `other`.
#[cfg(feature = "sql")]
pub(crate) fn bytes_apart(batch: &RecordBatch, other: &RecordBatch) -> u64 {
    let pairs = batch.columns().iter().zip(other.columns());
    let apart = pairs.filter(|(one, other)| !Arc::ptr_eq(one, other));
    let bytes = apart.map(|(one, other)| data_apart(&one.to_data(), &other.to_data()));
    bytes.sum::<usize>() as u64
}

#[cfg(feature = "sql")]
fn data_apart(data: &ArrayData, other: &ArrayData) -> usize {
    let addresses = |data: &ArrayData| -> HashSet<usize> {
        let validity = data.nulls().map(NullBuffer::buffer);
        let buffers = data.buffers().iter().chain(validity);
        // The allocation, wherever in it a slice begins.
        buffers
            .map(|buffer| buffer.data_ptr().addr().get())
            .collect()
    };
    let known = addresses(other);
    let validity = data.nulls().map(NullBuffer::buffer);
    let own = data.buffers().iter().chain(validity);
    let own = own.filter(|buffer| !known.contains(&buffer.data_ptr().addr().get()));
    let bytes: usize = own.map(Buffer::len).sum();
    let children = data.child_data().iter().zip(other.child_data());
    bytes
        + children
            .map(|(child, other)| data_apart(child, other))
            .sum::<usize>()
}

/// Bytes of the texts that views point to; Arrow's own count leaves them out.
fn long_view_bytes(data: &ArrayData) -> usize {
    let children = data.child_data().iter().map(long_view_bytes).sum();
    if !matches!(data.data_type(), DataType::Utf8View | DataType::BinaryView) {
        return children;
    }
    let views = data.buffers().first().map(Buffer::typed_data::<u128>);
    let views = views.and_then(|views| views.get(data.offset()..data.offset() + data.len()));
    // The length is in the lowest four bytes; up to twelve bytes lie in the view itself.
    let lengths = views.into_iter().flatten().map(|view| {
        let [first, second, third, fourth, ..] = view.to_le_bytes();
        u32::from_le_bytes([first, second, third, fourth])
    });
    let long = lengths.map(|length| if length > 12 { u64::from(length) } else { 0 });
    usize::try_from(long.sum::<u64>()).unwrap_or(usize::MAX)
}

/// Bytes of the allocations that a batch keeps alive, each counted once however many columns lie in it.
#[must_use]
pub fn held_bytes(batch: &RecordBatch) -> u64 {
    let mut seen = HashSet::new();
    let columns = batch.columns().iter();
    let bytes = columns.map(|column| unseen_bytes(&column.to_data(), &mut seen));
    bytes.sum::<usize>() as u64
}

fn unseen_bytes(data: &ArrayData, seen: &mut HashSet<usize>) -> usize {
    let validity = data.nulls().map(NullBuffer::buffer);
    let mut bytes = 0;
    for buffer in data.buffers().iter().chain(validity) {
        if seen.insert(buffer.data_ptr().addr().get()) {
            bytes += buffer.capacity();
        }
    }
    let children = data.child_data().iter();
    bytes
        + children
            .map(|child| unseen_bytes(child, seen))
            .sum::<usize>()
}

/// The data at one position of a grid, with its statistics.
#[derive(Debug, Clone)]
pub struct Tile {
    data: Arc<dyn TileData>,
    /// One for each column: filled at construction by whoever knows them, else by the first caller of `column_statistics`.
    statistics: Arc<[OnceLock<ColumnStatistics>]>,
}

impl Tile {
    /// A tile whose statistics are worked out when they are first asked for.
    #[must_use]
    pub fn new(data: Arc<dyn TileData>) -> Self {
        let num_columns = data.schema().fields().len();
        let unknown = std::iter::repeat_with(OnceLock::new);
        Self {
            statistics: unknown.take(num_columns).collect(),
            data,
        }
    }

    /// A tile of which some statistics are known already, one entry for each column, in order. The others are worked out when they are first asked for.
    #[must_use]
    pub fn with_statistics(
        data: Arc<dyn TileData>,
        statistics: impl IntoIterator<Item = Option<ColumnStatistics>>,
    ) -> Self {
        let tile = Self::new(data);
        for (slot, known) in tile.statistics.iter().zip(statistics) {
            if let Some(known) = known {
                slot.get_or_init(|| known);
            }
        }
        tile
    }

    /// A tile over a batch in memory.
    ///
    /// # Errors
    /// As [`MemoryTile::try_new`].
    pub fn try_from_batch(batch: &RecordBatch) -> Result<Self> {
        Ok(Self::new(Arc::new(MemoryTile::try_new(batch)?)))
    }

    /// The data.
    #[must_use]
    pub fn data(&self) -> &Arc<dyn TileData> {
        &self.data
    }

    /// The number of rows.
    #[must_use]
    pub fn num_rows(&self) -> u64 {
        self.data.num_rows()
    }

    /// Where the tile can be read without communication.
    #[must_use]
    pub fn locations(&self) -> Vec<Location> {
        self.data.locations()
    }

    /// The tile as a batch, without copying.
    ///
    /// # Errors
    /// `NotLocal` when the bytes are not in this process.
    pub fn open(&self) -> Result<RecordBatch> {
        self.data.open()
    }

    /// The number and the field of a column of this tile.
    ///
    /// # Errors
    /// `NotFound` with the nearest name as hint.
    pub fn column(&self, name: &str) -> Result<(usize, Field)> {
        let schema = self.data.schema();
        match schema.column_with_name(name) {
            Some((number, field)) => Ok((number, field.clone())),
            None => {
                let names = schema.fields().iter().map(|field| field.name().as_str());
                Err(unknown_column(name, names))
            }
        }
    }

    /// Exact statistics of a column of this tile, if they are known already.
    #[must_use]
    pub fn known_statistics(&self, column: usize) -> Option<&ColumnStatistics> {
        self.statistics.get(column)?.get()
    }

    /// Exact statistics of a column of this tile, worked out at need from values that are here; of a lazy tile, and of one elsewhere, only those that are known already.
    #[must_use]
    pub fn statistics_at_hand(&self, column: usize) -> Option<&ColumnStatistics> {
        if self.data.is_lazy() {
            return self.known_statistics(column);
        }
        self.column_statistics(column).ok()
    }

    /// Exact statistics of a column of this tile. Known ones are returned; those of a tile that is here are worked out once, which reads the column (a lazy tile is read whole).
    ///
    /// # Errors
    /// `NotFound` for a column that the tile does not have, `NotLocal` when nobody knows them and the bytes are not in this process.
    pub fn column_statistics(&self, column: usize) -> Result<&ColumnStatistics> {
        let no_column = || Error::not_found(format!("the tile has no column number {column}"));
        let slot = self.statistics.get(column).ok_or_else(no_column)?;
        if let Some(known) = slot.get() {
            return Ok(known);
        }
        let batch = self.open()?;
        let found = column_statistics(batch.columns().get(column).ok_or_else(no_column)?);
        Ok(slot.get_or_init(|| found))
    }
}
