//! Tiles in the memory of a device.
//!
//! Comes in: tiles and device batches. Goes out: tiles that say where they are, are never opened as if they were here, and copy the columns that somebody fetches. Never here: how a device
//! is copied from.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;

use crate::device::device_batch::DeviceBatch;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::{GridBuilder, PartitionGrid, Tile, TileData};
use crate::location::{Device, Location, host_address};

/// The data of a tile on a device.
#[derive(Debug)]
pub struct DeviceTile {
    batch: DeviceBatch,
}

impl DeviceTile {
    /// A tile of a batch on a device.
    #[must_use]
    pub fn new(batch: DeviceBatch) -> Self {
        Self { batch }
    }

    /// The batch.
    #[must_use]
    pub fn batch(&self) -> &DeviceBatch {
        &self.batch
    }
}

#[async_trait]
impl TileData for DeviceTile {
    fn schema(&self) -> SchemaRef {
        self.batch.schema()
    }

    fn num_rows(&self) -> u64 {
        self.batch.num_rows() as u64
    }

    fn memory_bytes(&self) -> u64 {
        self.batch.memory_bytes()
    }

    fn locations(&self) -> Vec<Location> {
        let process = std::process::id().into();
        vec![Location::new(host_address(), process, self.batch.device())]
    }

    fn open(&self) -> Result<RecordBatch> {
        let device = self.batch.device();
        Err(Error::new(
            ErrorKind::NotLocal,
            format!("the tile is in the memory of {device}, which this process cannot read"),
        )
        .with_hint("copy it to the host first: to(\"kDLCPU\")"))
    }

    async fn fetch(&self, columns: &[usize]) -> Result<RecordBatch> {
        self.batch.copy_to_host(columns)
    }

    fn view(&self, rows: Range<usize>, columns: &[usize]) -> Option<Result<Arc<dyn TileData>>> {
        let view = self.batch.view(rows, columns);
        Some(view.map(|batch| Arc::new(Self::new(batch)) as _))
    }
}

/// The tile in the memory of a device; the same one if it is there. Known statistics are kept.
///
/// # Errors
/// As [`DeviceBatch::try_copy_to`], and whatever stands in the way of reading the tile.
pub async fn tile_to(tile: &Tile, device: Device) -> Result<Tile> {
    let wanted = device.ordinal().unwrap_or(0);
    let is_there = tile.locations().iter().any(|location| {
        let at = location.device();
        at.device_type() == device.device_type() && at.ordinal().unwrap_or(0) == wanted
    });
    if is_there && !tile.data().is_lazy() {
        return Ok(tile.clone());
    }
    let num_columns = tile.data().schema().fields().len();
    let columns: Vec<usize> = (0..num_columns).collect();
    let batch = tile.data().fetch(&columns).await?;
    let known = (0..num_columns).map(|column| tile.known_statistics(column).cloned());
    if device == Device::CPU {
        let data = Tile::try_from_batch(&batch)?;
        return Ok(Tile::with_statistics(Arc::clone(data.data()), known));
    }
    let batch = DeviceBatch::try_copy_to(&batch, device)?;
    Ok(Tile::with_statistics(
        Arc::new(DeviceTile::new(batch)),
        known,
    ))
}

/// A grid of the same tiles in the memory of a device. Tiles that are there already are shared, and those of other ranks stay where they are.
///
/// # Errors
/// As [`tile_to`], with the position of the tile.
pub async fn grid_to(grid: &PartitionGrid, device: Device) -> Result<PartitionGrid> {
    let [rows, columns] = [grid.rows().clone(), grid.columns().clone()];
    let mut builder = GridBuilder::try_new(Arc::clone(grid.schema()), rows, columns)?
        .with_order(grid.order().clone())?;
    if let Some(locals) = grid.locals() {
        builder = builder.with_locals(locals)?;
    }
    if let Some(ranks) = grid.ranks() {
        builder = builder.with_ranks(ranks.clone())?;
    }
    for (number, position) in grid.geometry().positions().enumerate() {
        let tile = grid.tile(&position)?;
        let elsewhere = grid
            .locals()
            .is_some_and(|locals| locals.get(number) == Some(&false));
        let moved = match elsewhere {
            true => Ok(tile.clone()),
            false => tile_to(tile, device).await,
        };
        builder.set(
            &position,
            moved.map_err(|error| error.with_position(&position))?,
        )?;
    }
    builder.build()
}
