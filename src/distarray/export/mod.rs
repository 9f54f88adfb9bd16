//! Columns of a grid as a distributed array.
//!
//! Comes in: a grid, the names of columns of numbers, wishes. Goes out: a [`DistArray`] with one [`Section`] for each tile (or each rank), which holds what the dictionary of "Exporting a
//! distributed array" needs. One column is one dimension, several are two. Tiles are shared where they lie as an array does. Read on in `column.rs` (columns that are no numbers yet),
//! `section.rs` (tiles -> elements), `owners.rs` (one section for each rank), `copied.rs` (what was copied, and why), `moved.rs` (other distributions). Never here: nulls and values that change in silence, Python.

mod column;
mod copied;
mod moved;
mod owners;
mod section;

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};

pub use self::copied::{Copied, Reason};
use self::owners::owners;
use self::section::numbers;
use crate::distarray::dimension::DimData;
use crate::distarray::distribution::Distribution;
use crate::distarray::map::Map;
use crate::distarray::version::Version;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::{Axis, ElementType, FillValue, Numbers, PartitionGrid, check_chosen};

/// Which columns become an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns<'a> {
    /// One, in one dimension.
    One(&'a str),
    /// Any number, in two dimensions: rows and columns.
    Several(&'a [String]),
}

/// What one section is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Parts {
    /// One tile.
    #[default]
    Tiles,
    /// All tiles of one rank of an SPMD program; of other grids all tiles.
    Ranks,
}

/// How columns become an array.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExportOptions {
    /// In whose words the dictionaries are.
    pub version: Version,
    /// What the sections are.
    pub parts: Parts,
    /// The type of the elements; without it that of the column, or the one that [`ElementType::promoted`] gives for several. With it also times, booleans, decimals and dictionaries of
    /// numbers are taken.
    pub element: Option<ElementType>,
    /// What stands for nulls; without it they are refused.
    pub fill: Option<FillValue>,
    /// Whether values are copied: always, never, or (without it) where they must be.
    pub copy: Option<bool>,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            version: Version::V0_10,
            parts: Parts::Tiles,
            element: None,
            fill: None,
            copy: None,
        }
    }
}

/// Columns as a distributed array.
#[derive(Debug, Clone)]
pub struct DistArray {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// What the elements are.
    pub element: ElementType,
    /// In whose words the dictionaries are.
    pub version: Version,
    /// How the array lies on the ranks.
    pub distribution: Distribution,
    /// One for each rank, rank 0 first.
    pub sections: Vec<Section>,
    /// What was copied, and why.
    pub copies: Vec<Copied>,
}

/// The part of one rank.
#[derive(Debug, Clone)]
pub struct Section {
    /// The number of the part: its place in the process grid, row-major.
    pub rank: usize,
    /// "__version__": the version of the protocol.
    pub version: Version,
    /// "dim_data": one entry for each dimension.
    pub dim_data: Vec<DimData>,
    /// "buffer": the elements. `None` when they are in another process.
    pub numbers: Option<Numbers>,
    /// Whether the elements are in memory of their own. Otherwise they share that of a tile, which must not change.
    pub is_copy: bool,
}

/// Exports columns of numbers. Row bands become blocks of the sizes that they have, and so do the runs of columns that lie in one column band.
///
/// # Errors
/// `NotFound` for an unknown column; `Unsupported` when a type has no element format of the protocol, when a copy is needed and refused, or when ranks share row bands; `InvalidData` when a
/// value is null, or not held by the type of the elements; `InvalidArgument` when that type does not hold what stands for nulls, or for no columns; `NotLocal` when a tile of a grid
/// of no SPMD program is not in this process.
pub fn export(
    grid: &PartitionGrid,
    columns: Columns<'_>,
    options: &ExportOptions,
) -> Result<DistArray> {
    let names = match columns {
        Columns::One(name) => vec![name.to_owned()],
        Columns::Several(names) => names.to_vec(),
    };
    check_chosen(grid.schema(), "columns", &names)?;
    let chosen = grid.select(&names)?;
    let element = column::element_of(chosen.schema().fields(), options.element)?;
    section::gather(element, options).check_fill(element)?;
    let (mut maps, parts) = match options.parts {
        Parts::Tiles => tiles_of(&chosen),
        Parts::Ranks => rank_of(&chosen)?,
    };
    let flat = matches!(columns, Columns::One(_));
    if flat {
        maps.truncate(1);
    }
    let distribution = Distribution::try_new(maps)?;
    let opened = open_all(&chosen, &parts, options).map_err(|error| match columns {
        Columns::One(name) if error.context("column").is_none() => error.with_column(name),
        _ => error,
    })?;
    let mut sections = Vec::with_capacity(opened.len());
    let mut copies = Vec::new();
    for (rank, batches) in opened.into_iter().enumerate() {
        // Of several tiles it is not known which one was at fault.
        let position = match parts.get(rank).and_then(Option::as_deref) {
            Some([position]) => Some(position),
            _ => None,
        };
        let made = batches.map(|batches| numbers(&batches, element, options));
        let made = made.transpose().map_err(|error| match position {
            Some(position) => error.with_position(position),
            None => error,
        })?;
        let (numbers, reasons) = made.unzip();
        let numbers = numbers.map(|each| if flat { each.flattened() } else { each });
        let is_copy = reasons.as_ref().is_some_and(|reasons| !reasons.is_empty());
        for reason in reasons.unwrap_or_default() {
            let bytes = numbers.as_ref().map_or(0, Numbers::num_bytes);
            Copied::add(&mut copies, reason, bytes as u64);
        }
        sections.push(Section {
            rank,
            version: options.version,
            dim_data: distribution.dim_data(rank, options.version)?,
            numbers,
            is_copy,
        });
    }
    Ok(DistArray {
        columns: names,
        element,
        version: options.version,
        distribution,
        sections,
        copies,
    })
}

/// The tiles of each section by their positions; `None` for a section of another process.
type Sections = Vec<Option<Vec<[usize; 2]>>>;

fn tiles_of(grid: &PartitionGrid) -> (Vec<Map>, Sections) {
    let maps = [grid.rows(), grid.columns()].map(Map::block);
    let positions = (0..grid.rows().num_intervals())
        .flat_map(|row_band| (0..grid.columns().num_intervals()).map(move |band| [row_band, band]));
    let parts = positions.enumerate().map(|(number, position)| {
        let is_here = grid
            .locals()
            .is_none_or(|locals| locals.get(number) == Some(&true));
        is_here.then(|| vec![position])
    });
    (maps.to_vec(), parts.collect())
}

fn rank_of(grid: &PartitionGrid) -> Result<(Vec<Map>, Sections)> {
    let owners = owners(grid)?;
    let columns = Axis::uncut(grid.columns().extent());
    let parts = owners.bands.iter().enumerate().map(|(rank, bands)| {
        let tiles = || bands.iter().map(|row_band| [*row_band, 0]).collect();
        (rank == owners.rank).then(tiles)
    });
    let parts = parts.collect();
    Ok((vec![owners.rows, Map::block(&columns)], parts))
}

/// The batches of all sections of this process, without nulls unless something stands for them.
fn open_all(
    grid: &PartitionGrid,
    parts: &Sections,
    options: &ExportOptions,
) -> Result<Vec<Option<Vec<RecordBatch>>>> {
    let opened = parts.iter().map(|part| {
        let tiles = part.as_deref();
        let opened = tiles.map(|tiles| open(grid, tiles, options.parts));
        opened.transpose()
    });
    let opened: Vec<Option<Vec<RecordBatch>>> = opened.collect::<Result<_>>()?;
    if options.fill.is_none() {
        check_nulls(grid, parts, &opened)?;
    }
    Ok(opened)
}

/// The batches of a section: its tile, or the row bands of its rank.
fn open(grid: &PartitionGrid, tiles: &[[usize; 2]], parts: Parts) -> Result<Vec<RecordBatch>> {
    let batches = tiles.iter().map(|position| {
        let batch = match parts {
            Parts::Tiles => grid.tile(position)?.open(),
            Parts::Ranks => grid.open_row_band(position[0]),
        };
        batch.map_err(|error| error.with_position(position))
    });
    let batches: Vec<RecordBatch> = batches.collect::<Result<_>>()?;
    Ok(match batches.is_empty() {
        true => vec![RecordBatch::new_empty(Arc::clone(grid.schema()))],
        false => batches,
    })
}

/// Refuses columns with nulls, with their number in all tiles of this process and the first tile.
fn check_nulls(
    grid: &PartitionGrid,
    parts: &Sections,
    opened: &[Option<Vec<RecordBatch>>],
) -> Result<()> {
    let tiles = parts.iter().flatten().flatten();
    let batches = opened.iter().flatten().flatten();
    for field in grid.schema().fields() {
        let mut count = 0;
        let mut first = None;
        for (position, batch) in tiles.clone().zip(batches.clone()) {
            let column = batch.column_by_name(field.name());
            let nulls = column.map_or(0, |column| column.logical_null_count());
            if nulls > 0 {
                first = first.or(Some(position));
                count += nulls;
            }
        }
        if let Some(position) = first {
            let text = format!(
                "a distributed array has no nulls, the column has {count}, the first in this tile"
            );
            return Err(Error::new(ErrorKind::InvalidData, text)
                .with_position(position)
                .with_column(field.name())
                .with_hint(
                    "give a value for them with fill_null=, or replace them with coalesce() in SQL",
                ));
        }
    }
    Ok(())
}
