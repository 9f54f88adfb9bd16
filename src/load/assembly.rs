//! Decoded columns -> tiles -> the grid.
//!
//! Comes in: the columns of row bands, in any order. Goes out: a grid of which every tile is one batch, contiguous in each column, in memory or spilled to a file. With a
//! filter only the wanted rows, and no row band without rows. Tiles that an earlier load has finished are taken from its folder. Never here: decoding, where tiles stay.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use futures::{StreamExt, stream};

use super::bands::Band;
use super::budget::{Budget, Reservation};
use super::checkpoint::{Checkpoint, TileKey};
use super::error::blocking;
use super::keep::Keeper;
use super::layout::{Plan, ReadTask};
use super::progress::Counters;
use crate::error::{Error, Result};
use crate::grid::{Axis, GridBuilder, PartitionGrid, Tile, dense, held_bytes};

/// Columns of one row band that were decoded together; the wanted rows of them.
pub(super) struct Part {
    pub(super) task: usize,
    pub(super) num_rows: u64,
    pub(super) columns: Vec<Decoded>,
}

/// A decoded column.
pub(super) struct Decoded {
    pub(super) column: usize,
    pub(super) values: ArrayRef,
    /// That of all columns that were decoded with it, in one of them.
    pub(super) reservation: Option<Reservation>,
}

/// A grid of one empty tile for each column band.
pub(super) fn empty_grid(plan: &Plan) -> Result<PartitionGrid> {
    let batch = RecordBatch::new_empty(plan.columns.visible_schema());
    let mut builder = GridBuilder::try_new(batch.schema(), Axis::uncut(0), column_axis(plan)?)?;
    for (place, band) in plan.bands.iter().enumerate() {
        let columns: Vec<usize> = band.columns.clone().collect();
        builder.set(
            &[0, place],
            Tile::try_from_batch(&batch.project(&columns)?)?,
        )?;
    }
    builder.build()
}

pub(super) fn column_axis(plan: &Plan) -> Result<Axis> {
    Axis::try_from_lengths(plan.bands.iter().map(|band| band.columns.len() as u64))
}

/// One row band in the making.
#[derive(Debug)]
struct RowBand {
    /// After the filter, once it is known.
    num_rows: u64,
    /// How many columns each column band still waits for.
    missing: Vec<usize>,
    /// One for each column band.
    tiles: Vec<Option<Tile>>,
}

/// The tiles that are finished, and the columns of those that are not.
pub(super) struct Assembly<'a> {
    plan: &'a Plan,
    counters: &'a Counters,
    keeper: Keeper,
    checkpoint: Option<Arc<Checkpoint>>,
    /// One for each column of each row band, until its tile is made.
    columns: Vec<Option<Decoded>>,
    row_bands: Vec<RowBand>,
}

impl<'a> Assembly<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        keeper: Keeper,
        checkpoint: Option<Checkpoint>,
        counters: &'a Counters,
    ) -> Self {
        let width = plan.columns.schema.fields().len();
        let row_band = |task: &ReadTask| RowBand {
            num_rows: task.num_rows,
            missing: plan.bands.iter().map(|band| band.columns.len()).collect(),
            tiles: vec![None; plan.bands.len()],
        };
        Self {
            plan,
            counters,
            keeper,
            checkpoint: checkpoint.map(Arc::new),
            columns: std::iter::repeat_with(|| None)
                .take(plan.tasks.len() * width)
                .collect(),
            row_bands: plan.tasks.iter().map(row_band).collect(),
        }
    }

    /// Takes the tiles that an earlier load has finished.
    pub(super) async fn resume(&mut self, concurrency: usize) -> Result<()> {
        let Some(checkpoint) = self.checkpoint.clone() else {
            return Ok(());
        };
        let budget = Arc::clone(self.keeper.budget());
        let plan = self.plan;
        let mut found = std::pin::pin!(
            stream::iter(0..plan.tasks.len())
                .map(|task| finished(plan, task, &checkpoint, &budget))
                .buffered(concurrency)
                .enumerate()
        );
        while let Some((task, tiles)) = found.next().await {
            for (band, batch, reservation) in tiles? {
                self.take_finished(task, band, batch, reservation).await?;
            }
            if self.missing(task).is_none() {
                let width = plan.columns.schema.fields().len();
                self.count_bytes(task, plan.columns.num_visible..width);
            }
        }
        Ok(())
    }

    async fn take_finished(
        &mut self,
        task: usize,
        band: usize,
        batch: RecordBatch,
        mut reservation: Reservation,
    ) -> Result<()> {
        let wrong = || Error::internal("a finished tile has no place");
        let num_rows = batch.num_rows() as u64;
        let batch = self.batch(batch.columns().to_vec(), band, num_rows)?;
        reservation.settle(held_bytes(&batch));
        let row_band = self.row_bands.get_mut(task).ok_or_else(wrong)?;
        *row_band.missing.get_mut(band).ok_or_else(wrong)? = 0;
        row_band.num_rows = batch.num_rows() as u64;
        self.counters.resumed_tiles.add(1);
        let columns = self.plan.bands.get(band).map(|band| band.columns.clone());
        self.count_bytes(task, columns.ok_or_else(wrong)?);
        self.place(task, band, batch, vec![reservation]).await
    }

    /// Counts columns that need not be read.
    fn count_bytes(&self, task: usize, columns: std::ops::Range<usize>) {
        if let Some(task) = self.plan.tasks.get(task) {
            let bytes = columns.map(|column| self.plan.sizes(task, column).file_bytes);
            self.counters.num_bytes.add(bytes.sum());
        }
    }

    /// Which columns of a row band must be read; nothing when its tiles are there. A row band without columns must still be filtered.
    pub(super) fn missing(&self, task: usize) -> Option<Vec<usize>> {
        let row_band = self.row_bands.get(task)?;
        let bands = self.plan.bands.iter().zip(&row_band.missing);
        let missing = bands.filter(|(_, missing)| **missing > 0);
        let columns: Vec<usize> = missing.flat_map(|(band, _)| band.columns.clone()).collect();
        let is_there = row_band.tiles.iter().all(Option::is_some);
        (!is_there).then_some(columns)
    }

    /// Takes columns that were decoded together, and makes the tiles that they complete.
    pub(super) async fn add(&mut self, part: Part) -> Result<()> {
        let bytes: usize = part
            .columns
            .iter()
            .map(|decoded| decoded.values.get_array_memory_size())
            .sum();
        let row_band = self.row_bands.get_mut(part.task);
        row_band.ok_or_else(lost)?.num_rows = part.num_rows;
        if self.plan.columns.num_visible == 0 {
            return self.make(part.task, 0).await;
        }
        for mut decoded in part.columns {
            if let Some(reservation) = &mut decoded.reservation {
                reservation.settle(bytes as u64);
            }
            self.add_column(part.task, decoded).await?;
        }
        Ok(())
    }

    async fn add_column(&mut self, task: usize, decoded: Decoded) -> Result<()> {
        let column = decoded.column;
        let in_band = |band: &Band| band.columns.contains(&column);
        let band = self.plan.bands.iter().position(in_band).ok_or_else(lost)?;
        let width = self.plan.columns.schema.fields().len();
        let slot = self.columns.get_mut(task * width + column);
        *slot.ok_or_else(lost)? = Some(decoded);
        let row_band = self.row_bands.get_mut(task).ok_or_else(lost)?;
        let missing = row_band.missing.get_mut(band).ok_or_else(lost)?;
        *missing -= 1;
        if *missing > 0 {
            return Ok(());
        }
        self.make(task, band).await
    }

    async fn make(&mut self, task: usize, band: usize) -> Result<()> {
        let columns = self.plan.bands.get(band).map(|band| band.columns.clone());
        let columns = self.take(task, columns.unwrap_or_default())?;
        let num_rows = self.row_bands.get(task).map_or(0, |band| band.num_rows);
        let (values, reservations) = parted(columns);
        let batch = self.batch(values, band, num_rows)?;
        self.set(task, band, batch, reservations).await
    }

    /// Takes decoded columns of a row band out.
    fn take(&mut self, task: usize, columns: std::ops::Range<usize>) -> Result<Vec<Decoded>> {
        let width = self.plan.columns.schema.fields().len();
        let taken = columns.map(|column| {
            let slot = self.columns.get_mut(task * width + column);
            let decoded = slot.and_then(Option::take);
            decoded.ok_or_else(|| Error::internal("a tile lacks a column"))
        });
        taken.collect()
    }

    /// The batch of a tile.
    fn batch(&self, values: Vec<ArrayRef>, band: usize, num_rows: u64) -> Result<RecordBatch> {
        let band = self.plan.bands.get(band);
        let band = band.ok_or_else(|| Error::internal("a column band is missing"))?;
        let columns: Vec<usize> = band.columns.clone().collect();
        let schema = Arc::new(self.plan.columns.schema.project(&columns)?);
        let num_rows = usize::try_from(num_rows).unwrap_or(usize::MAX);
        let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
        let batch = RecordBatch::try_new_with_options(schema, values, &options)?;
        if band.dense { dense(&batch) } else { Ok(batch) }
    }

    /// A tile that was just made.
    async fn set(
        &mut self,
        task: usize,
        band: usize,
        batch: RecordBatch,
        reservations: Vec<Reservation>,
    ) -> Result<()> {
        if let Some(checkpoint) = self.checkpoint.clone()
            && let Some(key) = key(self.plan, task, band, &checkpoint)
        {
            let batch = batch.clone();
            blocking(move || checkpoint.save(&key, &batch)).await?;
        }
        self.place(task, band, batch, reservations).await
    }

    async fn place(
        &mut self,
        task: usize,
        band: usize,
        batch: RecordBatch,
        reservations: Vec<Reservation>,
    ) -> Result<()> {
        let num_rows = batch.num_rows() as u64;
        self.counters.tile_bytes.add(held_bytes(&batch));
        let tile = self.keeper.keep(batch, reservations).await?;
        self.counters.num_tiles.add(1);
        if band == 0 {
            self.counters.num_rows.add(num_rows);
        }
        let row_band = self.row_bands.get_mut(task);
        let slot = row_band.and_then(|row_band| row_band.tiles.get_mut(band));
        *slot.ok_or_else(|| Error::internal("a tile has no place"))? = Some(tile);
        Ok(())
    }

    /// The grid of all tiles, and what keeps them.
    pub(super) fn grid(self) -> Result<(PartitionGrid, Keeper)> {
        let plan = self.plan;
        if let Some(checkpoint) = &self.checkpoint {
            let tasks = 0..plan.tasks.len();
            let places = tasks.flat_map(|task| (0..plan.bands.len()).map(move |band| (task, band)));
            let used = places.filter_map(|(task, band)| key(plan, task, band, checkpoint));
            checkpoint.tidy(&used.collect::<Vec<TileKey>>())?;
        }
        let filtered = plan.filter.is_some();
        let kept = |row_band: &RowBand| !filtered || row_band.num_rows > 0;
        let row_bands: Vec<RowBand> = self.row_bands.into_iter().filter(kept).collect();
        if row_bands.is_empty() {
            return Ok((empty_grid(plan)?, self.keeper));
        }
        let rows = Axis::try_from_lengths(row_bands.iter().map(|row_band| row_band.num_rows))?;
        let schema = plan.columns.visible_schema();
        let mut builder = GridBuilder::try_new(schema, rows, column_axis(plan)?)?;
        for (place, row_band) in row_bands.into_iter().enumerate() {
            for (band, tile) in row_band.tiles.into_iter().enumerate() {
                if let Some(tile) = tile {
                    builder.set(&[place, band], tile)?;
                }
            }
        }
        Ok((builder.build()?, self.keeper))
    }
}

fn lost() -> Error {
    Error::internal("a decoded column has no place")
}

fn key(plan: &Plan, task: usize, band: usize, checkpoint: &Checkpoint) -> Option<TileKey> {
    checkpoint.key(plan, plan.tasks.get(task)?, plan.bands.get(band)?)
}

/// The tiles of a row band that an earlier load has finished: column band, batch, leave to hold it.
async fn finished(
    plan: &Plan,
    task: usize,
    checkpoint: &Arc<Checkpoint>,
    budget: &Arc<Budget>,
) -> Result<Vec<(usize, RecordBatch, Reservation)>> {
    let mut tiles = Vec::new();
    for band in 0..plan.bands.len() {
        let key = key(plan, task, band, checkpoint);
        let Some((key, bytes)) = key.and_then(|key| {
            let bytes = checkpoint.size_bytes(&key)?;
            Some((key, bytes))
        }) else {
            continue;
        };
        let reservation = budget.reserve(bytes).await?;
        let checkpoint = Arc::clone(checkpoint);
        let loaded = blocking(move || checkpoint.load(&key)).await?;
        tiles.extend(loaded.map(|batch| (band, batch, reservation)));
    }
    Ok(tiles)
}

fn parted(columns: Vec<Decoded>) -> (Vec<ArrayRef>, Vec<Reservation>) {
    let mut reservations = Vec::new();
    let values = columns.into_iter().map(|column| {
        reservations.extend(column.reservation);
        column.values
    });
    (values.collect(), reservations)
}
