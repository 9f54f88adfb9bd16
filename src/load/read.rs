//! A plan -> tiles -> the grid.
//!
//! Comes in: what to read and where to cut. Goes out: a grid of which every tile is one batch, contiguous in each column. The unit of work is one column of one row band (or
//! some small ones): every core has one to decode, and only a little more than the columns being decoded is in memory besides the tiles. Never here: where to cut, how to decode.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use futures::{Stream, StreamExt, TryStreamExt, stream};

use super::bands::Band;
use super::budget::{Budget, Reservation};
use super::decode::ColumnWork;
use super::error::{blocking, contained};
use super::input::{Pages, pages};
use super::layout::{Plan, ReadTask};
use super::options::LoadOptions;
use super::progress::Counters;
use super::sizes::{Sizes, byte_ranges};
use super::spill::spill;
use crate::error::{Error, Result};
use crate::grid::{
    Axis, ColumnStatistics, GridBuilder, PartitionGrid, Tile, column_statistics, dense,
};

/// How many row bands of remote files are fetched before they are decoded.
const FETCHED_AHEAD: usize = 4;

/// Columns are decoded together until they are about so large.
const UNIT_BYTES: u64 = 2 << 20;

/// How many units wait for a core, so that none is idle between two.
const NEXT: usize = 2;

/// For how many tiles in the making the memory limit leaves room.
const TILES_AT_WORK: u64 = 8;

/// Some columns of one row band, ready to be decoded.
struct Unit {
    task: usize,
    columns: Vec<usize>,
    pages: Pages,
    sizes: Sizes,
}

/// A decoded column.
struct Decoded {
    task: usize,
    column: usize,
    values: ArrayRef,
    /// That of the whole unit, in one of its columns.
    reservation: Option<Reservation>,
}

/// Reads all tiles and puts them together.
pub(super) async fn grid(
    plan: Plan,
    options: &LoadOptions,
    counters: &Arc<Counters>,
) -> Result<PartitionGrid> {
    if plan.tasks.is_empty() {
        return empty(&plan);
    }
    let plan = Arc::new(plan);
    let budget = Arc::new(Budget::new(options.memory_limit_bytes()));
    let mut assembly = Assembly::new(&plan, &budget, options.spill_to(), counters);
    assembly.add_tiles_without_columns().await?;
    let mut units = std::pin::pin!(decoded(&plan, &budget, counters, options.concurrency()));
    while let Some(unit) = units.try_next().await? {
        assembly.add(unit).await?;
    }
    assembly.grid()
}

/// A grid of one empty tile for each column band.
fn empty(plan: &Plan) -> Result<PartitionGrid> {
    let batch = RecordBatch::new_empty(Arc::clone(&plan.columns.schema));
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

fn column_axis(plan: &Plan) -> Result<Axis> {
    Axis::try_from_lengths(plan.bands.iter().map(|band| band.columns.len() as u64))
}

/// All columns of all row bands, decoded, about in order.
fn decoded(
    plan: &Arc<Plan>,
    budget: &Arc<Budget>,
    counters: &Arc<Counters>,
    concurrency: usize,
) -> impl Stream<Item = Result<Vec<Decoded>>> {
    let (opened, plan) = (Arc::clone(plan), Arc::clone(plan));
    let (budget, counters) = (Arc::clone(budget), Arc::clone(counters));
    stream::iter(0..plan.tasks.len())
        .map(move |task| units(Arc::clone(&opened), task))
        .buffered(FETCHED_AHEAD)
        .map_ok(|units| stream::iter(units.into_iter().map(Ok)))
        .try_flatten()
        .map_ok(move |unit| {
            let (plan, budget) = (Arc::clone(&plan), Arc::clone(&budget));
            decode(plan, budget, Arc::clone(&counters), unit)
        })
        .try_buffer_unordered(concurrency + NEXT)
}

/// The columns of one row band, the largest first, so that the last to end are small. Small ones share a unit.
async fn units(plan: Arc<Plan>, number: usize) -> Result<Vec<Unit>> {
    let (task, file, footer) = parts(&plan, number)?;
    let names = plan.columns.read_names();
    let fields = footer.schema().fields().iter().enumerate();
    let wanted = fields.filter(|(_, field)| names.contains(field.name().as_str()));
    let roots: Vec<usize> = wanted.map(|(root, _)| root).collect();
    let ranges = byte_ranges(footer, task.row_groups.clone(), &roots);
    let pages = pages(file, &ranges).await?;
    let columns = 0..plan.columns.schema.fields().len();
    let mut columns: Vec<(usize, Sizes)> = columns
        .map(|column| (column, plan.sizes(task, column)))
        .collect();
    columns.sort_by_key(|(_, sizes)| std::cmp::Reverse(sizes.decoded_bytes));
    let mut units: Vec<Unit> = Vec::new();
    for (column, sizes) in columns {
        match units.last_mut() {
            Some(unit) if unit.sizes.decoded_bytes < UNIT_BYTES => {
                unit.columns.push(column);
                unit.sizes = unit.sizes.plus(sizes);
            }
            _ => units.push(Unit {
                task: number,
                columns: vec![column],
                pages: pages.clone(),
                sizes,
            }),
        }
    }
    Ok(units)
}

fn parts(
    plan: &Plan,
    number: usize,
) -> Result<(
    &ReadTask,
    &super::source::SourceFile,
    &super::footer::Footer,
)> {
    let missing = || Error::internal("a read task names a file that is not there");
    let task = plan.tasks.get(number).ok_or_else(missing)?;
    let file = plan.files.get(task.file).ok_or_else(missing)?;
    let footer = plan.footers.get(task.file).ok_or_else(missing)?;
    Ok((task, file, footer))
}

async fn decode(
    plan: Arc<Plan>,
    budget: Arc<Budget>,
    counters: Arc<Counters>,
    unit: Unit,
) -> Result<Vec<Decoded>> {
    let sizes = unit.sizes;
    let mut reservation = Some(budget.reserve(sizes.decoded_bytes).await?);
    let number = unit.task;
    let decoded = blocking(move || {
        let (_, file, _) = parts(&plan, unit.task)?;
        contained(&file.name, || decode_columns(&plan, &unit))
    })
    .await?;
    counters.num_bytes.add(sizes.file_bytes);
    let columns = decoded.into_iter().map(|(column, values)| Decoded {
        task: number,
        column,
        values,
        reservation: reservation.take(),
    });
    Ok(columns.collect())
}

fn decode_columns(plan: &Plan, unit: &Unit) -> Result<Vec<(usize, ArrayRef)>> {
    let (task, file, footer) = parts(plan, unit.task)?;
    let columns = unit.columns.iter().map(|column| {
        let field = plan.columns.schema.fields().get(*column);
        let origin = plan.columns.origins.get(*column);
        let (Some(field), Some(origin)) = (field, origin) else {
            return Err(Error::internal("a unit names a column that is not there"));
        };
        let work = ColumnWork {
            file,
            footer,
            task,
            field,
            origin,
        };
        Ok((*column, work.decode(&unit.pages)?))
    });
    columns.collect()
}

/// The tiles that are finished, and the columns of those that are not.
struct Assembly<'a> {
    plan: &'a Plan,
    spill_to: Option<&'a Path>,
    counters: &'a Counters,
    /// One for each column of each row band, until its tile is made.
    columns: Vec<Option<Decoded>>,
    /// How many columns each tile still waits for; row-major.
    missing: Vec<usize>,
    /// Row-major.
    tiles: Vec<Option<Tile>>,
    /// What the tiles in memory use.
    held: Vec<Reservation>,
    held_bytes: u64,
    /// How much tiles may use before they are spilled.
    room_bytes: u64,
}

impl<'a> Assembly<'a> {
    fn new(
        plan: &'a Plan,
        budget: &Budget,
        spill_to: Option<&'a Path>,
        counters: &'a Counters,
    ) -> Self {
        let num_tasks = plan.tasks.len();
        let slots = |count: usize| std::iter::repeat_with(|| None).take(count);
        let widths = plan.bands.iter().map(|band| band.columns.len());
        let widths: Vec<usize> = widths.collect();
        Self {
            plan,
            spill_to,
            counters,
            columns: slots(num_tasks * plan.columns.schema.fields().len()).collect(),
            missing: (0..num_tasks).flat_map(|_| widths.clone()).collect(),
            tiles: std::iter::repeat_with(|| None)
                .take(num_tasks * plan.bands.len())
                .collect(),
            held: Vec::new(),
            held_bytes: 0,
            room_bytes: room_bytes(plan, budget),
        }
    }

    /// Takes the columns of a unit, and makes the tiles that they complete.
    async fn add(&mut self, unit: Vec<Decoded>) -> Result<()> {
        let bytes: usize = unit
            .iter()
            .map(|decoded| decoded.values.get_array_memory_size())
            .sum();
        for mut decoded in unit {
            if let Some(reservation) = &mut decoded.reservation {
                reservation.settle(bytes as u64);
            }
            self.add_column(decoded).await?;
        }
        Ok(())
    }

    async fn add_column(&mut self, decoded: Decoded) -> Result<()> {
        let lost = || Error::internal("a decoded column has no place");
        let (task, column) = (decoded.task, decoded.column);
        let in_band = |band: &Band| band.columns.contains(&column);
        let band = self.plan.bands.iter().position(in_band).ok_or_else(lost)?;
        let width = self.plan.columns.schema.fields().len();
        let slot = self.columns.get_mut(task * width + column);
        *slot.ok_or_else(lost)? = Some(decoded);
        let tile = task * self.plan.bands.len() + band;
        let missing = self.missing.get_mut(tile).ok_or_else(lost)?;
        *missing -= 1;
        let complete = *missing == 0;
        if complete {
            self.make_tile(task, band).await?;
        }
        Ok(())
    }

    /// The tiles of a load of no columns: they only count rows.
    async fn add_tiles_without_columns(&mut self) -> Result<()> {
        if self.plan.columns.schema.fields().is_empty() {
            for task in 0..self.plan.tasks.len() {
                self.make_tile(task, 0).await?;
            }
        }
        Ok(())
    }

    async fn make_tile(&mut self, task: usize, number: usize) -> Result<()> {
        let lost = || Error::internal("a tile lacks a column");
        let band = self.plan.bands.get(number).ok_or_else(lost)?;
        let num_rows = self.plan.tasks.get(task).ok_or_else(lost)?.num_rows;
        let width = self.plan.columns.schema.fields().len();
        let mut columns = Vec::with_capacity(band.columns.len());
        for column in band.columns.clone() {
            let slot = self.columns.get_mut(task * width + column);
            columns.push(slot.and_then(Option::take).ok_or_else(lost)?);
        }
        let wanted: Vec<usize> = band.columns.clone().collect();
        let schema = Arc::new(self.plan.columns.schema.project(&wanted)?);
        let mut batch = batch_of(schema, &columns, num_rows)?;
        if band.dense {
            batch = dense(&batch)?;
        }
        let reservations = columns.into_iter().filter_map(|column| column.reservation);
        let tile = self.keep_or_spill(batch, reservations.collect()).await?;
        self.counters.num_tiles.add(1);
        self.counters.tile_bytes.add(tile.data().memory_bytes());
        if number == 0 {
            self.counters.num_rows.add(num_rows);
        }
        let place = task * self.plan.bands.len() + number;
        *self.tiles.get_mut(place).ok_or_else(lost)? = Some(tile);
        Ok(())
    }

    /// A tile in memory while there is room besides the work, else in a file if there may be one.
    async fn keep_or_spill(
        &mut self,
        batch: RecordBatch,
        reservations: Vec<Reservation>,
    ) -> Result<Tile> {
        let bytes = batch.get_array_memory_size() as u64;
        let Some(folder) = self
            .spill_to
            .filter(|_| self.held_bytes + bytes > self.room_bytes)
        else {
            self.held_bytes += bytes;
            self.held.extend(reservations);
            return Tile::try_from_batch(&batch);
        };
        self.counters.spilled_tiles.add(1);
        let folder = folder.to_owned();
        blocking(move || {
            // Nobody wants to read the file back for them.
            let statistics: Vec<ColumnStatistics> =
                batch.columns().iter().map(column_statistics).collect();
            let spilled = spill(&batch, &folder)?;
            drop((batch, reservations));
            let statistics = statistics.into_iter().map(Some);
            Ok(Tile::with_statistics(Arc::new(spilled), statistics))
        })
        .await
    }

    fn grid(self) -> Result<PartitionGrid> {
        let plan = self.plan;
        let rows = Axis::try_from_lengths(plan.tasks.iter().map(|task| task.num_rows))?;
        let schema = Arc::clone(&plan.columns.schema);
        let mut builder = GridBuilder::try_new(schema, rows, column_axis(plan)?)?;
        let width = plan.bands.len();
        for (place, tile) in self.tiles.into_iter().enumerate() {
            if let Some(tile) = tile {
                builder.set(&[place / width, place % width], tile)?;
            }
        }
        builder.build()
    }
}

/// The limit without what is needed for tiles in the making.
fn room_bytes(plan: &Plan, budget: &Budget) -> u64 {
    let width = plan.columns.schema.fields().len();
    let bytes_of = |task: &ReadTask| {
        let columns = (0..width).map(|column| plan.sizes(task, column).decoded_bytes);
        columns.fold(0, u64::saturating_add)
    };
    let largest = plan.tasks.iter().map(bytes_of).max().unwrap_or(0);
    let limit = budget.limit_bytes();
    limit - largest.saturating_mul(TILES_AT_WORK).min(limit / 2)
}

fn batch_of(schema: SchemaRef, columns: &[Decoded], num_rows: u64) -> Result<RecordBatch> {
    let values: Vec<ArrayRef> = columns
        .iter()
        .map(|column| Arc::clone(&column.values))
        .collect();
    let num_rows = usize::try_from(num_rows).unwrap_or(usize::MAX);
    let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
    Ok(RecordBatch::try_new_with_options(schema, values, &options)?)
}
