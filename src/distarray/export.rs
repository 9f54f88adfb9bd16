//! One column of a grid as a distributed array of one dimension.
//!
//! Comes in: a grid and the name of a column of numbers. Goes out: a [`DistArray`] with one [`Section`] for each row band, which holds what the dictionary of
//! "Exporting a distributed array" needs: "__version__", "dim_data" and the bytes for "buffer". One tile counts as one process of the protocol, and its rank
//! is the row band. Never here: copying; columns that cannot be shared without copying or loss (they are refused, with the remedy); Python.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::Buffer;

use crate::distarray::dimension::DimData;
use crate::distarray::map::Map;
use crate::distarray::version::Version;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::{ElementType, PartitionGrid, Tile, value_bytes};

/// The version of the protocol that every section states.
pub const VERSION: &str = Version::V0_10.text();

/// One column as a distributed array.
#[derive(Debug, Clone)]
pub struct DistArray {
    /// The name of the column.
    pub column: String,
    /// What the elements are.
    pub element: ElementType,
    /// The number of elements of the whole array.
    pub size: u64,
    /// One for each rank, rank 0 first.
    pub sections: Vec<Section>,
}

/// The part of one rank.
#[derive(Debug, Clone)]
pub struct Section {
    /// The number of the part: the row band.
    pub rank: usize,
    /// "__version__": the version of the protocol.
    pub version: &'static str,
    /// "dim_data": one entry for each dimension, hence one.
    pub dim_data: Vec<DimData>,
    /// "buffer": the bytes of exactly the elements of this part, shared with the tile. Read-only, as all Arrow memory.
    pub buffer: Buffer,
    /// The number of elements of this part.
    pub len: usize,
}

/// Exports one column of numbers, without copying. Row bands become blocks of the sizes that they have.
///
/// # Errors
/// `NotFound` for an unknown column; `Unsupported` when the type has no element format of the protocol or is not stored as plain values; `InvalidData` when a
/// value is null; `NotLocal` when a tile is not in this process.
pub fn export(grid: &PartitionGrid, column: &str) -> Result<DistArray> {
    let number = grid.column_index(column)?;
    let field = grid.schema().field(number);
    let element = ElementType::try_from_arrow(field.data_type())
        .map_err(|error| error.with_column(column))?;
    let parts = open_column(grid, number).map_err(|error| error.with_column(column))?;
    check_nulls(&parts).map_err(|error| error.with_column(column))?;
    let map = Map::block(grid.rows());
    let sections = parts.iter().enumerate().map(|(rank, part)| {
        Ok(Section {
            rank,
            version: VERSION,
            dim_data: vec![map.dim_data(rank, Version::V0_10)?],
            buffer: value_bytes(&part.values, element),
            len: part.values.len(),
        })
    });
    Ok(DistArray {
        column: column.to_owned(),
        element,
        size: grid.num_rows(),
        sections: sections.collect::<Result<_>>()?,
    })
}

/// The values of the column within one tile.
struct Part {
    position: [usize; 2],
    values: ArrayRef,
}

fn open_column(grid: &PartitionGrid, number: usize) -> Result<Vec<Part>> {
    let located = grid.columns().locate(number as u64);
    let (band, local) = located.ok_or_else(|| Error::internal("a column lies in a column band"))?;
    let local = usize::try_from(local).unwrap_or(usize::MAX);
    let row_bands = 0..grid.rows().num_intervals();
    let parts = row_bands.map(|row_band| {
        let position = [row_band, band];
        let values = column_of(grid.tile(&position)?, local);
        let values = values.map_err(|error| error.with_position(&position))?;
        Ok(Part { position, values })
    });
    parts.collect()
}

fn column_of(tile: &Tile, local: usize) -> Result<ArrayRef> {
    let batch = tile.open()?;
    let column = batch.columns().get(local).cloned();
    column.ok_or_else(|| Error::internal("a tile has the columns of its column band"))
}

fn check_nulls(parts: &[Part]) -> Result<()> {
    let count: usize = parts.iter().map(|part| part.values.null_count()).sum();
    match parts.iter().find(|part| part.values.null_count() > 0) {
        None => Ok(()),
        Some(first) => Err(Error::new(
            ErrorKind::InvalidData,
            format!(
                "a distributed array has no nulls, the column has {count}, the first in this tile"
            ),
        )
        .with_position(&first.position)
        .with_hint("filter them out in SQL, or replace them with coalesce()")),
    }
}
