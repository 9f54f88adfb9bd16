//! Grids that this process keeps open, and handles that name their tiles across process borders.
//!
//! Comes in: grids to publish, handles to open. Goes out: tiles, or the precise reason why there is none: the grid was dropped (`PartitionLost`), or it lives
//! in another process (`NotLocal`). Read on in `handle.rs` (what crosses the border). Never here: ownership of a grid (only weak references), a lock (a fork
//! may come at any moment, and the child would wait for it forever), data that changes hands.
//!
//! Grid ids are random and grids never change. So whoever has a grid of the right id has the right data, also a forked child with the memory of its parent.

mod handle;
#[cfg(feature = "parquet")]
mod map;

use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;

pub use handle::{Handle, Incarnation};
#[cfg(feature = "parquet")]
pub use map::map_unnamed;

use crate::error::{Error, ErrorKind, Result, format_position};
use crate::grid::{GridId, PartitionGrid, Tile};
use crate::location::Location;

const NUM_BUCKETS: usize = 1024;

/// The grids of one bucket; never changed, only replaced.
type Bucket = Vec<(GridId, Weak<PartitionGrid>)>;

/// The published grids, spread by id. `publish` replaces one bucket without what is dead in it, `find` reads one.
static BUCKETS: [ArcSwapOption<Bucket>; NUM_BUCKETS] =
    [const { ArcSwapOption::const_empty() }; NUM_BUCKETS];

/// Makes the grid known to `open` and `find` of this process, for as long as somebody else keeps it. Publishing again changes nothing.
///
/// Copies one bucket of 1024: constant time up to some thousand grids that live at once. The entries of dropped grids in that bucket go away with it.
pub fn publish(grid: &Arc<PartitionGrid>) {
    bucket(grid.id()).rcu(|old| {
        let old = old.as_deref().map_or(&[][..], Vec::as_slice);
        let others = old.iter().filter(|(_, known)| {
            known.strong_count() > 0 && !std::ptr::eq(known.as_ptr(), Arc::as_ptr(grid))
        });
        let mut kept: Bucket = others.cloned().collect();
        kept.push((grid.id(), Arc::downgrade(grid)));
        Some(Arc::new(kept))
    });
}

/// The published grid of the given id, unless it was dropped.
#[must_use]
pub fn find(id: GridId) -> Option<Arc<PartitionGrid>> {
    let entries = bucket(id).load();
    let mut same = entries.as_deref()?.iter().filter(|(known, _)| *known == id);
    same.find_map(|(_, grid)| grid.upgrade())
}

/// The handle of the tile at a position, owned by this process. Publishes the grid if it is not.
///
/// # Errors
/// `NotFound` for a position outside the grid, `Internal` when the operating system gives no random bytes.
pub fn handle(grid: &Arc<PartitionGrid>, position: &[usize]) -> Result<Handle> {
    grid.tile(position)?;
    Ok(of_here(grid)?(position.to_vec()))
}

/// The handles of all tiles in row-major order, owned by this process. Publishes the grid if it is not.
///
/// # Errors
/// `Internal` when the operating system gives no random bytes.
pub fn handles(grid: &Arc<PartitionGrid>) -> Result<impl Iterator<Item = Handle> + '_> {
    Ok(grid.geometry().positions().map(of_here(grid)?))
}

/// What makes handles of positions.
fn of_here(grid: &Arc<PartitionGrid>) -> Result<impl Fn(Vec<usize>) -> Handle + use<>> {
    if find(grid.id()).is_none() {
        publish(grid);
    }
    let (id, incarnation, owner) = (grid.id(), Incarnation::current()?, Location::here());
    Ok(move |position| Handle {
        grid: id,
        position,
        incarnation,
        owner: owner.clone(),
    })
}

/// The tile that a handle names.
///
/// # Errors
/// `PartitionLost` when this process gave the handle and the grid was dropped since; `NotLocal` when another process gave it and this one has not got the
/// grid; `NotFound` when the grid has no such position.
pub fn open(handle: &Handle) -> Result<Tile> {
    if let Some(grid) = find(handle.grid) {
        return grid.tile(&handle.position).cloned();
    }
    if handle.incarnation == Incarnation::current()? {
        return Err(lost(handle));
    }
    Err(not_local(handle))
}

fn lost(handle: &Handle) -> Error {
    let message = format!(
        "the grid was dropped, its tile is gone: grid {}",
        handle.grid
    );
    Error::new(ErrorKind::PartitionLost, message)
        .with_position(&handle.position)
        .with_hint("keep the grid, or the `__partitioned__` dictionary made from it, alive while handles are in use")
}

fn not_local(handle: &Handle) -> Error {
    let message = format!(
        "the tile lives in another process, {}, and this one ({}) has no copy of grid {}",
        handle.owner,
        Location::here(),
        handle.grid
    );
    let position = format_position(&handle.position);
    Error::new(ErrorKind::NotLocal, message)
        .with_position(&handle.position)
        .with_hint(format!(
            "open the handle in the process that made it, or send the batch of tile {position} itself; shared memory between processes is not built yet"
        ))
}

fn bucket(id: GridId) -> &'static ArcSwapOption<Bucket> {
    let [low, high, ..] = id.bits().to_le_bytes();
    let number = usize::from(u16::from_le_bytes([low, high])) % NUM_BUCKETS;
    // The remainder is always a bucket; the first one stands in for an index that the compiler cannot check.
    BUCKETS.get(number).unwrap_or(&BUCKETS[0])
}
