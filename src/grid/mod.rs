//! The central noun: a frame cut into a grid of tiles.
//!
//! Comes in: tiles through a [`GridBuilder`]. Goes out: a [`PartitionGrid`] that never changes: schema, one axis for rows and one for columns, one tile for each
//! position. [`Numbers`] are the same memory as n-d arrays. Read on in `axis.rs` (one dimension), `geometry.rs` (their product), `region.rs`, `tile.rs`, `order.rs`, `build.rs`, `names.rs`, `cells.rs`,
//! `ranks.rs` (SPMD programs); arrays of numbers: `element.rs`, `numbers.rs`, `gather.rs`. Never here: IO, global state, SQL.

mod absent;
mod axis;
mod build;
mod cells;
mod compact;
mod dense;
mod element;
mod gather;
mod geometry;
mod loads;
mod memory;
mod names;
mod numbers;
mod order;
pub mod picture;
mod ranks;
mod region;
mod statistics;
mod tile;
mod view;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};

pub use absent::AbsentTile;
pub use axis::Axis;
pub use build::GridBuilder;
pub(crate) use cells::{fields_of, fitted, unite};
pub use compact::compact;
#[cfg(feature = "parquet")]
pub(crate) use dense::not_dense;
pub use dense::{dense, dense_stride};
pub use element::ElementType;
pub(crate) use gather::exactly;
pub use gather::{FillValue, Gather, Order};
pub use geometry::Geometry;
pub use loads::LoadMark;
pub use memory::{MemoryTile, TileMemory};
pub use names::{named, named_batches};
pub use numbers::{Numbers, is_packed};
pub use order::{RowOrder, SortColumn};
pub use ranks::{Outline, RankPart, Ranks};
pub use region::Region;
pub use statistics::{ColumnStatistics, column_statistics};
#[cfg(feature = "sql")]
pub(crate) use statistics::{FIRST_ROWS, ascends, can_ascend};
pub use tile::{Tile, TileData, held_bytes};
#[cfg(feature = "parquet")]
pub(crate) use view::chosen;

#[cfg(feature = "serve")]
pub(crate) use tile::array_bytes;
#[cfg(feature = "sql")]
pub(crate) use tile::bytes_apart;
pub(crate) use tile::{ColumnBytes, slice_bytes};

use crate::error::{Error, Result};

/// The random name of a grid: no two grids share one, on any machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GridId(u128);

impl GridId {
    /// The id with the given 128 bits, as read from a handle.
    #[must_use]
    pub fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The 128 bits.
    #[must_use]
    pub fn bits(self) -> u128 {
        self.0
    }

    pub(crate) fn try_random() -> Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| {
            Error::internal("the operating system gave no random bytes").with_source(error)
        })?;
        Ok(Self(u128::from_le_bytes(bytes)))
    }
}

impl fmt::Display for GridId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

/// A frame cut into rectangular tiles: dimension 0 is rows, dimension 1 columns. Immutable; what looks like a change makes a new grid that shares tiles.
#[derive(Clone)]
pub struct PartitionGrid {
    id: GridId,
    schema: SchemaRef,
    /// Two axes: rows, columns. The last column cut equals the number of fields of the schema.
    geometry: Geometry,
    /// Row-major, one for each position. Only `GridBuilder` fills it.
    tiles: Vec<Tile>,
    order: RowOrder,
    /// In an SPMD program: whether this process has each tile, row-major.
    locals: Option<Arc<[bool]>>,
    ranks: Option<Ranks>,
    /// Which loads made it, for those who ask whether theirs did.
    loads: Arc<[LoadMark]>,
}

impl PartitionGrid {
    /// The random name of this grid.
    #[must_use]
    pub fn id(&self) -> GridId {
        self.id
    }

    /// All columns in order, with metadata.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What is known of the order of the rows.
    #[must_use]
    pub fn order(&self) -> &RowOrder {
        &self.order
    }

    /// In an SPMD program: whether this process has each tile, in row-major order.
    #[must_use]
    pub fn locals(&self) -> Option<&[bool]> {
        self.locals.as_deref()
    }

    /// In an SPMD program whose ranks are known: which has which tile.
    #[must_use]
    pub fn ranks(&self) -> Option<&Ranks> {
        self.ranks.as_ref()
    }

    /// Axes, positions and regions.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The axis of rows.
    #[must_use]
    pub fn rows(&self) -> &Axis {
        let [rows, _] = self.axes();
        rows
    }

    /// The axis of columns; its intervals are the column bands.
    #[must_use]
    pub fn columns(&self) -> &Axis {
        let [_, columns] = self.axes();
        columns
    }

    fn axes(&self) -> &[Axis; 2] {
        static NONE: std::sync::LazyLock<[Axis; 2]> =
            std::sync::LazyLock::new(|| [Axis::uncut(0), Axis::uncut(0)]);
        self.geometry.axes().try_into().unwrap_or(&NONE)
    }

    /// The number of rows.
    #[must_use]
    pub fn num_rows(&self) -> u64 {
        self.rows().extent()
    }

    /// The number of columns.
    #[must_use]
    pub fn num_columns(&self) -> usize {
        self.schema.fields().len()
    }

    /// All tiles in row-major order.
    #[must_use]
    pub fn tiles(&self) -> &[Tile] {
        &self.tiles
    }

    /// The tile at a position `[row band, column band]`.
    ///
    /// # Errors
    /// `NotFound` for a position outside the grid.
    pub fn tile(&self, position: &[usize]) -> Result<&Tile> {
        let flat_index = self.geometry.flat_index(position)?;
        self.tiles
            .get(flat_index)
            .ok_or_else(|| Error::internal("a checked position has a tile"))
    }

    /// The tiles of one row band, first column band first; none past the last row band.
    #[must_use]
    pub fn row_band(&self, row_band: usize) -> &[Tile] {
        let width = self.columns().num_intervals();
        let start = row_band.saturating_mul(width);
        self.tiles.get(start..start + width).unwrap_or(&[])
    }

    /// The number of a column.
    ///
    /// # Errors
    /// `NotFound` with the nearest name as hint.
    pub fn column_index(&self, name: &str) -> Result<usize> {
        self.schema.index_of(name).map_err(|_| {
            let names = self
                .schema
                .fields()
                .iter()
                .map(|field| field.name().as_str());
            unknown_column(name, names)
        })
    }

    /// Bytes of all tiles together.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.tiles
            .iter()
            .map(|tile| tile.data().memory_bytes())
            .sum()
    }

    /// The given columns, in the given order, as a grid that shares the tiles. All row bands stay, also empty ones. Neighbours that come from one column band stay in one.
    ///
    /// # Errors
    /// `NotFound` for an unknown name, `InvalidArgument` for a name given twice.
    pub fn select(&self, names: &[impl AsRef<str>]) -> Result<Self> {
        let wanted: Result<Vec<usize>> = names
            .iter()
            .map(|name| self.column_index(name.as_ref()))
            .collect();
        let all = 0..self.rows().num_intervals();
        self.view(all, 0..self.num_rows(), &wanted?)
    }

    /// The rows of a range as a grid that shares the tiles; row bands outside the range are dropped.
    ///
    /// # Errors
    /// `InvalidArgument` when the range ends past the last row or before it starts.
    pub fn slice(&self, rows: Range<u64>) -> Result<Self> {
        if rows.start > rows.end || rows.end > self.num_rows() {
            return Err(Error::invalid_argument(format!(
                "rows must be a range within 0..{}, got {}..{}",
                self.num_rows(),
                rows.start,
                rows.end
            )));
        }
        let all: Vec<usize> = (0..self.num_columns()).collect();
        let kept = self.rows().overlapping(rows.clone());
        let kept = if kept.is_empty() { 0..1 } else { kept };
        self.view(kept, rows, &all)
    }

    /// The rows of a range, which lie in the row bands `kept`, and the given columns.
    fn view(&self, kept: Range<usize>, rows: Range<u64>, columns: &[usize]) -> Result<Self> {
        let runs = self.column_runs(columns);
        let parts: Vec<Range<u64>> = kept
            .clone()
            .map(|band| clipped(self.rows().interval(band).unwrap_or(0..0), &rows))
            .collect();
        let row_axis = Axis::try_from_lengths(parts.iter().map(|part| part.end - part.start))?;
        let column_axis = Axis::try_from_lengths(runs.iter().map(|(_, run)| run.len() as u64))?;
        let schema = Arc::new(self.schema.project(columns)?);
        let is_kept = |name: &str| schema.column_with_name(name).is_some();
        let order = self.order.of_part(is_kept, &rows, self.num_rows());
        let mut builder = GridBuilder::try_new(schema, row_axis, column_axis)?.with_order(order)?;
        let mut sources = Vec::with_capacity(parts.len() * runs.len());
        for (row_band, (source_band, part)) in kept.zip(parts).enumerate() {
            for (column_band, (source_column, run)) in runs.iter().enumerate() {
                let source = [source_band, *source_column];
                sources.push(self.geometry.flat_index(&source)?);
                let tile = self.tile(&source)?;
                builder.set(&[row_band, column_band], view::view(tile, &part, run)?)?;
            }
        }
        if let Some(ranks) = &self.ranks {
            builder = builder.with_ranks(ranks.of_tiles(&sources))?;
        } else if let Some(locals) = &self.locals {
            let local = |source: &usize| locals.get(*source).copied().unwrap_or(false);
            builder = builder.with_locals(sources.iter().map(local).collect::<Vec<_>>())?;
        }
        builder.build()
    }

    /// Groups column numbers into runs that come from one column band: the band, and the columns within it.
    fn column_runs(&self, columns: &[usize]) -> Vec<(usize, Vec<usize>)> {
        let mut runs: Vec<(usize, Vec<usize>)> = Vec::new();
        for column in columns {
            let Some((band, local)) = self.columns().locate(*column as u64) else {
                continue;
            };
            let local = usize::try_from(local).unwrap_or(usize::MAX);
            match runs.last_mut() {
                Some((last, run)) if *last == band => run.push(local),
                _ => runs.push((band, vec![local])),
            }
        }
        if runs.is_empty() {
            runs.push((0, Vec::new()));
        }
        runs
    }

    /// The batch of one row band with all column bands side by side, without copying, in the grid's schema.
    ///
    /// # Errors
    /// `NotFound` past the last row band, `NotLocal` when a tile of it is not in this process.
    pub fn open_row_band(&self, row_band: usize) -> Result<RecordBatch> {
        let tiles = self.row_band(row_band).iter().map(Tile::open);
        self.join_row_band(row_band, &tiles.collect::<Result<Vec<_>>>()?)
    }

    /// The batches of the tiles of one row band side by side, without copying, in the grid's schema. For whoever fetched the tiles.
    ///
    /// # Errors
    /// `NotFound` past the last row band; as [`RecordBatch::try_new`] for batches of other tiles.
    pub fn join_row_band(&self, row_band: usize, tiles: &[RecordBatch]) -> Result<RecordBatch> {
        let rows = self.rows().interval(row_band);
        let rows = rows.ok_or_else(|| Error::not_found(format!("no row band {row_band}")))?;
        let columns = tiles
            .iter()
            .flat_map(RecordBatch::columns)
            .cloned()
            .collect();
        let num_rows = usize::try_from(rows.end - rows.start).ok();
        let options = arrow::array::RecordBatchOptions::new().with_row_count(num_rows);
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            columns,
            &options,
        )?)
    }
}

impl fmt::Debug for PartitionGrid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, columns) = (self.num_rows(), self.num_columns());
        write!(formatter, "PartitionGrid {} {rows} x {columns}", self.id)
    }
}

/// The part of `interval` within `rows`, counted from the start of the interval.
fn clipped(interval: Range<u64>, rows: &Range<u64>) -> Range<u64> {
    let start = rows.start.clamp(interval.start, interval.end);
    let stop = rows.end.clamp(start, interval.end);
    start - interval.start..stop - interval.start
}

/// Checks that columns, named by the argument `argument`, can be told from the others of a frame.
///
/// # Errors
/// `NotFound` with the nearest name as hint; `InvalidArgument` without a name, and for one given twice.
pub fn check_chosen(schema: &Schema, argument: &str, names: &[String]) -> Result<()> {
    if names.is_empty() {
        return Err(Error::invalid_argument(format!(
            "{argument} must name at least one column, got none"
        )));
    }
    let known = || schema.fields().iter().map(|field| field.name().as_str());
    for (number, name) in names.iter().enumerate() {
        if !known().any(|known| known == name) {
            return Err(unknown_column(name, known()));
        }
        if names.iter().take(number).any(|earlier| earlier == name) {
            let text = format!("{argument} must name each column once");
            return Err(Error::invalid_argument(text).with_column(name));
        }
    }
    Ok(())
}

/// `NotFound` for a column, with the nearest existing name as hint.
pub(crate) fn unknown_column<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let known: Vec<&str> = known.collect();
    let error = Error::not_found(format!("no column `{name}`")).with_column(name);
    let near = known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), *candidate))
        .min();
    match near {
        Some((distance, candidate)) if distance <= name.chars().count() / 3 => {
            error.with_hint(format!("did you mean `{candidate}`?"))
        }
        _ => error.with_hint(format!("the columns are {}", known.join(", "))),
    }
}
