//! Tiles in the memory of a device.
//!
//! Comes in: tiles and device batches. Goes out: tiles that say where they are, are never opened as if they were here, and copy the columns that somebody fetches. Never here: how a device
//! is copied from.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;

use crate::device::device_batch::DeviceBatch;
use crate::device::readable::ReadableTile;
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
        Err(not_readable(self.batch.device()))
    }

    async fn fetch(&self, columns: &[usize]) -> Result<RecordBatch> {
        self.batch.copy_to_host(columns)
    }

    fn view(&self, rows: Range<usize>, columns: &[usize]) -> Option<Result<Arc<dyn TileData>>> {
        let view = self.batch.view(rows, columns);
        Some(view.map(|batch| Arc::new(Self::new(batch)) as _))
    }
}

pub(super) fn not_readable(device: Device) -> Error {
    Error::new(
        ErrorKind::NotLocal,
        format!("the tile is in the memory of {device}, which this process cannot read"),
    )
    .with_hint("copy it to the host first: to(\"kDLCPU\")")
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
    let is_there = match readable_device(tile) {
        Some(at) => at.device_type() == device.device_type(),
        None => is_there && !tile.data().is_lazy(),
    };
    if is_there {
        return Ok(tile.clone());
    }
    let num_columns = tile.data().schema().fields().len();
    let columns: Vec<usize> = (0..num_columns).collect();
    let batch = tile.data().fetch(&columns).await?;
    let known = (0..num_columns).map(|column| tile.known_statistics(column).cloned());
    if device.device_type() == Device::CPU.device_type() {
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

/// A batch for each row band of a grid on one type of device, from the first row to the last, over the same buffers; `None` when no tile is on a device. Column bands come side by side.
///
/// # Errors
/// `Unsupported` when some tiles are on another type of device or on the host, or those of one row band on several devices; else as [`DeviceBatch::try_beside`]; with the position.
pub fn device_row_bands(grid: &PartitionGrid) -> Result<Option<(Device, Vec<DeviceBatch>)>> {
    let batches: Vec<Option<&DeviceBatch>> = grid.tiles().iter().map(batch_of).collect();
    let Some(device) = batches.iter().flatten().next().map(|batch| batch.device()) else {
        return Ok(None);
    };
    let bands = batches.chunks(grid.columns().num_intervals().max(1));
    let bands = bands.enumerate().map(|(row_band, tiles)| {
        beside(device, tiles).map_err(|error| error.with_position(&[row_band, 0]))
    });
    Ok(Some((device, bands.collect::<Result<_>>()?)))
}

/// Whose memory a tile is in that this process reads like its own, where it is not the CPU's.
#[must_use]
pub fn readable_device(tile: &Tile) -> Option<Device> {
    let data: &dyn Any = tile.data().as_ref();
    data.downcast_ref::<ReadableTile>()
        .map(ReadableTile::device)
}

fn batch_of(tile: &Tile) -> Option<&DeviceBatch> {
    let data: &dyn Any = tile.data().as_ref();
    data.downcast_ref::<DeviceTile>().map(DeviceTile::batch)
}

/// The tiles of one row band side by side, all on the type of `device`.
fn beside(device: Device, tiles: &[Option<&DeviceBatch>]) -> Result<DeviceBatch> {
    let mut batches = Vec::with_capacity(tiles.len());
    for tile in tiles {
        let at = tile.map_or(Device::CPU, DeviceBatch::device);
        match tile {
            Some(batch) if at.device_type() == device.device_type() => {
                batches.push(DeviceBatch::clone(batch));
            }
            _ => {
                return Err(Error::unsupported(format!(
                    "the tiles of a device stream must be on one type of device, got {device} and {at}"
                ))
                .with_hint(
                    "take the tiles one by one, or copy the grid to one device first, such as to(\"kDLCPU\")",
                ));
            }
        }
    }
    DeviceBatch::try_beside(batches)
}
