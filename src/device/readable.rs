//! Tiles in memory of a device that this process reads like its own, such as CUDA has pinned.
//!
//! Comes in: batches of the host over such memory. Goes out: tiles as of the host, which remember whose memory it is. Never here: waiting for a device.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;

use crate::device::tile::not_readable;
use crate::error::Result;
use crate::grid::{MemoryTile, TileData};
use crate::location::{Device, Location};

/// The data of a tile in such memory: a tile as of the host, whose arrays tell other libraries where they are.
#[derive(Debug)]
pub struct ReadableTile {
    data: Arc<dyn TileData>,
    device: Device,
}

impl ReadableTile {
    /// A tile of a batch in memory of such a device.
    ///
    /// # Errors
    /// `NotLocal` when this process cannot read it; `Internal` when Arrow refuses a column that had to be rebuilt.
    pub fn try_new(batch: &RecordBatch, device: Device) -> Result<Self> {
        if !device.is_host_readable() {
            return Err(not_readable(device));
        }
        let data: Arc<dyn TileData> = Arc::new(MemoryTile::try_new(batch)?);
        Ok(Self { data, device })
    }

    /// Whose memory it is.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }
}

#[async_trait]
impl TileData for ReadableTile {
    fn schema(&self) -> SchemaRef {
        self.data.schema()
    }

    fn num_rows(&self) -> u64 {
        self.data.num_rows()
    }

    fn memory_bytes(&self) -> u64 {
        self.data.memory_bytes()
    }

    fn locations(&self) -> Vec<Location> {
        self.data.locations()
    }

    fn open(&self) -> Result<RecordBatch> {
        self.data.open()
    }

    fn view(&self, rows: Range<usize>, columns: &[usize]) -> Option<Result<Arc<dyn TileData>>> {
        let part = self.data.open().and_then(|batch| {
            let batch = batch.project(columns)?;
            Self::try_new(&batch.slice(rows.start, rows.len()), self.device)
        });
        Some(part.map(|part| Arc::new(part) as _))
    }
}
