//! Grids as JSON, for clients and for the page.
//!
//! Comes in: a grid. Goes out: its id, cuts and tiles as JSON, without reading any tile. Never here: data.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::error::Result;
use crate::grid::{PartitionGrid, Tile};
use crate::location::{Locality, Location};
use crate::share::{Incarnation, lend, serve};

/// Tiles that clients are told of.
pub(super) const MAX_TILES: usize = 100_000;

/// The id, cuts, and each tile's rows, bytes, locality and locations, in row-major order.
pub(super) fn grid(name: &str, grid: &PartitionGrid, max_tiles: usize) -> Value {
    let positions = grid.geometry().positions().zip(grid.tiles());
    let tiles: Vec<Value> = positions
        .take(max_tiles)
        .map(|(position, tile)| {
            let data = tile.data();
            let found = data.locations();
            let locations: Vec<String> = found.iter().map(ToString::to_string).collect();
            json!({
                "position": position,
                "rows": data.num_rows(),
                "bytes": data.memory_bytes(),
                "locality": locality(tile),
                "location": locations,
                "at": found.iter().map(place).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "name": name,
        "id": grid.id().to_string(),
        "row_cuts": grid.rows().cuts(),
        "column_cuts": grid.columns().cuts(),
        "tiles": tiles,
        "left_out": grid.tiles().len().saturating_sub(max_tiles),
    })
}

/// How near that is where a tile lies, in one word, or that nobody has it any more.
pub(super) fn locality(tile: &Tile) -> &'static str {
    match tile.data().is_lost() {
        true => Locality::LOST,
        false => tile.data().home().name(),
    }
}

/// A location for programs; `location` has it in words.
fn place(location: &Location) -> Value {
    let device = location.device().to_string();
    json!([location.host().to_string(), location.process(), device])
}

/// As [`grid`], with what clients of this user and host need to map the tiles instead of fetching them. Copies that have to be made for them may have `max_copied_bytes` together.
pub(in crate::serve) fn grid_to_share(
    name: &str,
    shared: &Arc<PartitionGrid>,
    max_copied_bytes: u64,
) -> Value {
    let mut described = grid(name, shared, MAX_TILES);
    match owner(shared, max_copied_bytes) {
        Ok(owner) => {
            if let Some(object) = described.as_object_mut() {
                object.insert("owner".to_owned(), owner);
            }
        }
        Err(error) => tracing::debug!(%error, "tiles are fetched, not mapped"),
    }
    described
}

fn owner(grid: &Arc<PartitionGrid>, max_copied_bytes: u64) -> Result<Value> {
    serve()?;
    lend(grid, max_copied_bytes);
    let here = Location::here();
    Ok(json!({
        "host": here.host().to_string(),
        "pid": here.process(),
        "incarnation": Incarnation::current()?.to_string(),
    }))
}
