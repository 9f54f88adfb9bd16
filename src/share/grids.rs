//! Whole grids in shared memory, and grids of the tiles of other processes.
//!
//! Comes in: a grid; or what another process said of one. Goes out: a grid of shared tiles; or one that opens the handles as it is read. Never here: memory, sockets.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};

use super::remote::{RemoteTile, handle_of};
use super::{Handle, find, publish};
use crate::error::{Error, Result};
use crate::grid::{Axis, GridBuilder, GridId, PartitionGrid, RowOrder, Tile};

/// A grid of the same tiles in shared memory. Each is copied once, lazy ones are read; those that are shared by this process already stay as they are, and those of other ranks stay where they
/// are. When the first grid is dropped, its memory is counted once, however many processes read it.
///
/// # Errors
/// `ResourcesExhausted` without room or descriptors; `Unsupported` for a type that Arrow IPC does not hold, and outside Linux; `NotLocal` for a tile on a device; with the position.
pub fn to_shared(grid: &PartitionGrid) -> Result<PartitionGrid> {
    crate::share::serve()?;
    let [rows, columns] = [grid.rows().clone(), grid.columns().clone()];
    let builder = GridBuilder::try_new(Arc::clone(grid.schema()), rows, columns)?;
    let mut builder = builder.with_order(grid.order().clone())?;
    if let Some(ranks) = grid.ranks() {
        builder = builder.with_ranks(ranks.clone())?;
    } else if let Some(locals) = grid.locals() {
        builder = builder.with_locals(locals)?;
    }
    let tiles = grid.geometry().positions().zip(grid.tiles());
    for (number, (position, tile)) in tiles.enumerate() {
        let locals = grid.locals();
        let is_here = locals.is_none_or(|locals| locals.get(number) == Some(&true));
        let shared = match is_here {
            true => tile_to_shared(tile).map_err(|error| error.with_position(&position))?,
            false => tile.clone(),
        };
        builder.set(&position, shared)?;
    }
    let shared = builder.build()?;
    name(&shared);
    Ok(shared)
}

#[cfg(target_os = "linux")]
fn tile_to_shared(tile: &Tile) -> Result<Tile> {
    use super::tile::{Mapped, Purpose, SharedTile};

    if own(tile).is_some() {
        return Ok(tile.clone());
    }
    let mapped = Mapped::publish(&tile.open()?, Purpose::Tile)?;
    super::broker::note(&mapped);
    let num_columns = tile.data().schema().fields().len();
    let known = (0..num_columns).map(|column| tile.known_statistics(column).cloned());
    let data = Arc::new(SharedTile::new(mapped));
    Ok(Tile::with_statistics(data, known))
}

/// The tile of a segment of this process.
#[cfg(target_os = "linux")]
fn own(tile: &Tile) -> Option<&super::tile::SharedTile> {
    let data: &dyn std::any::Any = tile.data().as_ref();
    let shared = data.downcast_ref::<super::tile::SharedTile>();
    shared.filter(|shared| shared.mapped().file.is_some())
}

/// Names the segments after the grid, for lists; the first name stays.
#[cfg(target_os = "linux")]
fn name(grid: &PartitionGrid) {
    for (position, tile) in grid.geometry().positions().zip(grid.tiles()) {
        if let Some(shared) = own(tile) {
            let named = || (grid.id(), position);
            shared.mapped().name.get_or_init(named);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn tile_to_shared(_: &Tile) -> Result<Tile> {
    Err(only_linux())
}

#[cfg(not(target_os = "linux"))]
fn name(_: &PartitionGrid) {}

#[cfg(not(target_os = "linux"))]
pub(super) fn only_linux() -> Error {
    Error::unsupported("memory is shared between processes on Linux only")
}

/// The grid `id`, of which another process has the tiles: a handle for each, in row-major order, with its bytes. If this process has the grid, that one; else one that opens a handle when its
/// tile is read for the first time.
///
/// # Errors
/// `InvalidArgument` when the parts do not make a grid.
pub fn attach(
    id: GridId,
    schema: SchemaRef,
    [rows, columns]: [Axis; 2],
    order: RowOrder,
    handles: Vec<(Handle, u64)>,
) -> Result<Arc<PartitionGrid>> {
    if let Some(grid) = find(id) {
        return Ok(grid);
    }
    let builder = GridBuilder::try_new(Arc::clone(&schema), rows.clone(), columns.clone())?;
    let mut builder = builder.with_id(id).with_order(order)?;
    let bands: Result<Vec<SchemaRef>> = columns
        .intervals()
        .map(|band| {
            let numbers: Vec<usize> = band.filter_map(|at| usize::try_from(at).ok()).collect();
            let part: Schema = schema.project(&numbers)?;
            Ok(Arc::new(part))
        })
        .collect();
    let bands = bands?;
    let mut handles = handles.into_iter();
    for (row_band, part) in rows.intervals().enumerate() {
        for (column_band, fields) in bands.iter().enumerate() {
            let missing = || Error::invalid_argument("a grid must have a handle for each tile");
            let (handle, bytes) = handles.next().ok_or_else(missing)?;
            let data = RemoteTile::new(handle, Arc::clone(fields), part.end - part.start, bytes);
            builder.set(&[row_band, column_band], Tile::new(Arc::new(data)))?;
        }
    }
    let grid = Arc::new(builder.build()?);
    publish(&grid);
    Ok(grid)
}

/// One handle for all where they differ only by their positions, which are those of the grid in row-major order; else as they are. [`spread`] undoes it.
#[must_use]
pub fn gathered(handles: Vec<Handle>, grid: &PartitionGrid) -> Vec<Handle> {
    let Some(first) = handles.first().cloned() else {
        return handles;
    };
    let positions = grid.geometry().positions();
    let is_plain = handles.iter().zip(positions).all(|(handle, position)| {
        *handle
            == Handle {
                position,
                ..first.clone()
            }
    });
    match is_plain {
        true => vec![first],
        false => handles,
    }
}

/// The handles of all positions, out of what [`gathered`] made of them.
#[must_use]
pub fn spread(handles: Vec<Handle>, axes: &[Axis; 2]) -> Vec<Handle> {
    let [rows, columns] = axes;
    let num_tiles = rows.num_intervals().saturating_mul(columns.num_intervals());
    match handles.as_slice() {
        [first] if num_tiles > 1 => {
            let row_bands = 0..rows.num_intervals();
            let positions = row_bands.flat_map(|row_band| {
                let column_bands = 0..columns.num_intervals();
                column_bands.map(move |column_band| vec![row_band, column_band])
            });
            let named = positions.map(|position| Handle {
                position,
                ..first.clone()
            });
            named.collect()
        }
        _ => handles,
    }
}

/// The handle of a single tile, and the grid that must be kept as long as the handle shall open: the tile's own handle if it has one, else that of a grid of this tile alone.
///
/// # Errors
/// As [`GridBuilder::try_new`].
pub fn keep(tile: &Tile) -> Result<(Handle, Option<Arc<PartitionGrid>>)> {
    if let Some(known) = handle_of(tile) {
        return Ok((known.clone(), None));
    }
    let schema = tile.data().schema();
    let rows = Axis::uncut(tile.num_rows());
    let columns = Axis::uncut(schema.fields().len() as u64);
    let mut builder = GridBuilder::try_new(schema, rows, columns)?;
    builder.set(&[0, 0], tile.clone())?;
    let grid = Arc::new(builder.build()?);
    Ok((super::handle(&grid, &[0, 0])?, Some(grid)))
}
