//! Tiles in the memory of this process.
//!
//! Comes in: a batch; or the same rows in memory that other processes read, too. Goes out: a tile that lies in the one or, from then on, in the other. Never here: how memory is shared.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;

use crate::error::Result;
use crate::grid::compact::compact;
use crate::grid::dense::dense_stride;
use crate::grid::tile::{ColumnBytes, TileData};
use crate::location::{Locality, Location};

/// Where the rows of a tile lie, with what must live as long as a tile lies there.
pub struct TileMemory {
    batch: RecordBatch,
    _kept: Option<Arc<dyn Any + Send + Sync>>,
}

impl fmt::Debug for TileMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.batch, formatter)
    }
}

impl TileMemory {
    /// The rows, and what is kept as long as a tile lies there.
    #[must_use]
    pub fn new(batch: RecordBatch, kept: Option<Arc<dyn Any + Send + Sync>>) -> Arc<Self> {
        Arc::new(Self { batch, _kept: kept })
    }

    /// The rows.
    #[must_use]
    pub fn batch(&self) -> &RecordBatch {
        &self.batch
    }
}

/// A tile in the memory of this process.
#[derive(Debug)]
pub struct MemoryTile {
    /// Replaced by `settle` alone, by the same rows.
    memory: ArcSwap<TileMemory>,
    bytes: ColumnBytes,
}

impl MemoryTile {
    /// Keeps the batch. Flat columns are shared, sliced nested ones are rebuilt from offset 0 (see [`compact`]).
    ///
    /// # Errors
    /// `Internal` when Arrow refuses a rebuilt column.
    pub fn try_new(batch: &RecordBatch) -> Result<Self> {
        Ok(Self {
            memory: ArcSwap::new(TileMemory::new(compact(batch)?, None)),
            bytes: ColumnBytes::new(batch.num_columns()),
        })
    }

    fn batch(&self) -> RecordBatch {
        self.memory.load().batch.clone()
    }
}

#[async_trait]
impl TileData for MemoryTile {
    fn schema(&self) -> SchemaRef {
        self.memory.load().batch.schema()
    }

    fn num_rows(&self) -> u64 {
        self.memory.load().batch.num_rows() as u64
    }

    fn memory_bytes(&self) -> u64 {
        self.bytes.all(|| Ok(self.batch()))
    }

    fn column_bytes(&self, columns: &[usize]) -> u64 {
        self.bytes.of(columns, || Ok(self.batch()))
    }

    fn locations(&self) -> Vec<Location> {
        vec![Location::here()]
    }

    fn locality(&self) -> Locality {
        Locality::Memory
    }

    fn open(&self) -> Result<RecordBatch> {
        Ok(self.batch())
    }

    /// Queries that read the memory of before do so to their end; then it goes. Columns that are one array stay one.
    fn settle(&self, memory: Arc<TileMemory>) {
        let is_array = |batch: &RecordBatch| dense_stride(batch.columns()).is_some();
        if is_array(&memory.batch) || !is_array(&self.batch()) {
            self.memory.store(memory);
        }
    }
}
