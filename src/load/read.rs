//! A plan -> tiles -> the grid.
//!
//! Comes in: what to read and where to cut. Goes out: a grid of which every tile is one batch, contiguous in each column. The unit of work is one column of one row band:
//! every core has one to decode, and only a little more than the columns being decoded is in memory besides the tiles. Never here: where to cut, how to decode.

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
use super::schema::Origin;
use super::sizes::byte_ranges;
use super::spill::spill;
use crate::error::{Error, Result};
use crate::grid::{
    Axis, ColumnStatistics, GridBuilder, PartitionGrid, Tile, column_statistics, dense,
};

/// How many row bands of remote files are fetched before they are decoded.
const FETCHED_AHEAD: usize = 4;

/// How many columns wait for a core, so that none is idle between two.
const NEXT: usize = 2;

/// For how many tiles in the making the memory limit leaves room.
const TILES_AT_WORK: u64 = 8;

/// One column of one row band, ready to be decoded.
struct Unit {
    task: usize,
    column: usize,
    pages: Option<Pages>,
}

/// A decoded column.
struct Decoded {
    task: usize,
    column: usize,
    values: ArrayRef,
    reservation: Reservation,
    file_bytes: u64,
}

/// Reads all tiles and puts them together.
pub(super) async fn grid(
    plan: Plan,
    options: &LoadOptions,
    counters: &Counters,
) -> Result<PartitionGrid> {
    if plan.tasks.is_empty() {
        return empty(&plan);
    }
    let plan = Arc::new(plan);
    let budget = Arc::new(Budget::new(options.memory_limit_bytes()));
    let mut assembly = Assembly::new(&plan, &budget, options.spill_to());
    assembly.add_tiles_without_columns(counters).await?;
    let mut columns = std::pin::pin!(columns(&plan, &budget, options.concurrency()));
    while let Some(decoded) = columns.try_next().await? {
        assembly.add(decoded, counters).await?;
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
fn columns(
    plan: &Arc<Plan>,
    budget: &Arc<Budget>,
    concurrency: usize,
) -> impl Stream<Item = Result<Decoded>> {
    let (opened, decoded) = (Arc::clone(plan), Arc::clone(plan));
    let budget = Arc::clone(budget);
    stream::iter(0..plan.tasks.len())
        .map(move |task| units(Arc::clone(&opened), task))
        .buffered(FETCHED_AHEAD)
        .map_ok(|units| stream::iter(units.into_iter().map(Ok)))
        .try_flatten()
        .map_ok(move |unit| decode(Arc::clone(&decoded), Arc::clone(&budget), unit))
        .try_buffer_unordered(concurrency + NEXT)
}

/// The columns of one row band, the largest first, so that the last to end are small.
async fn units(plan: Arc<Plan>, number: usize) -> Result<Vec<Unit>> {
    let (task, file, footer) = parts(&plan, number)?;
    let names = plan.columns.read_names();
    let fields = footer.schema().fields().iter().enumerate();
    let wanted = fields.filter(|(_, field)| names.contains(field.name().as_str()));
    let roots: Vec<usize> = wanted.map(|(root, _)| root).collect();
    let ranges = byte_ranges(footer, task.row_groups.clone(), &roots);
    let pages = pages(file, &ranges).await?;
    let fields = plan.columns.schema.fields().iter();
    let origins = fields.zip(&plan.columns.origins).enumerate();
    let mut units: Vec<Unit> = origins
        .map(|(column, (field, origin))| {
            let in_file = footer.schema().index_of(field.name()).is_ok();
            let read = in_file && !matches!(origin, Origin::Folder(_));
            Unit {
                task: number,
                column,
                pages: read.then(|| pages.clone()),
            }
        })
        .collect();
    units.sort_by_key(|unit| std::cmp::Reverse(plan.sizes(task, unit.column).decoded_bytes));
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

async fn decode(plan: Arc<Plan>, budget: Arc<Budget>, unit: Unit) -> Result<Decoded> {
    let (task, ..) = parts(&plan, unit.task)?;
    let sizes = plan.sizes(task, unit.column);
    let reservation = budget.reserve(sizes.decoded_bytes).await?;
    let (number, column) = (unit.task, unit.column);
    let values = blocking(move || {
        let (task, file, footer) = parts(&plan, unit.task)?;
        let field = plan.columns.schema.fields().get(unit.column);
        let origin = plan.columns.origins.get(unit.column);
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
        contained(&file.name, || work.decode(unit.pages))
    })
    .await?;
    Ok(Decoded {
        task: number,
        column,
        values,
        reservation,
        file_bytes: sizes.file_bytes,
    })
}

/// The tiles that are finished, and the columns of those that are not.
struct Assembly<'a> {
    plan: &'a Plan,
    spill_to: Option<&'a Path>,
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
    fn new(plan: &'a Plan, budget: &'a Budget, spill_to: Option<&'a Path>) -> Self {
        let num_tasks = plan.tasks.len();
        let slots = |count: usize| std::iter::repeat_with(|| None).take(count);
        let widths = plan.bands.iter().map(|band| band.columns.len());
        let widths: Vec<usize> = widths.collect();
        Self {
            plan,
            spill_to,
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

    /// Takes a column, and makes its tile if it was the last.
    async fn add(&mut self, mut decoded: Decoded, counters: &Counters) -> Result<()> {
        counters.num_bytes.add(decoded.file_bytes);
        let bytes = decoded.values.get_array_memory_size();
        let lost = || Error::internal("a decoded column has no place");
        let (task, column) = (decoded.task, decoded.column);
        let in_band = |band: &Band| band.columns.contains(&column);
        let band = self.plan.bands.iter().position(in_band).ok_or_else(lost)?;
        let width = self.plan.columns.schema.fields().len();
        let reservation = &mut decoded.reservation;
        reservation.settle(bytes as u64);
        *self
            .columns
            .get_mut(task * width + column)
            .ok_or_else(lost)? = Some(decoded);
        let missing = self
            .missing
            .get_mut(task * self.plan.bands.len() + band)
            .ok_or_else(lost)?;
        *missing -= 1;
        let complete = *missing == 0;
        if complete {
            self.make_tile(task, band, counters).await?;
        }
        Ok(())
    }

    /// The tiles of a load of no columns: they only count rows.
    async fn add_tiles_without_columns(&mut self, counters: &Counters) -> Result<()> {
        if self.plan.columns.schema.fields().is_empty() {
            for task in 0..self.plan.tasks.len() {
                self.make_tile(task, 0, counters).await?;
            }
        }
        Ok(())
    }

    async fn make_tile(&mut self, task: usize, number: usize, counters: &Counters) -> Result<()> {
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
        let reservations = columns.into_iter().map(|column| column.reservation);
        let tile = self
            .keep_or_spill(batch, reservations.collect(), counters)
            .await?;
        counters.num_tiles.add(1);
        counters.tile_bytes.add(tile.data().memory_bytes());
        if number == 0 {
            counters.num_rows.add(num_rows);
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
        counters: &Counters,
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
        counters.spilled_tiles.add(1);
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
