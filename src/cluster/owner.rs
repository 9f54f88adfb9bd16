//! Who has a tile.
//!
//! Comes in: a tile of a grid. Goes out: its handle, if another process has it, and whether that is a member. Never here: reaching that process.

use std::any::Any;

use super::tile::MemberTile;
use crate::client::ServedTile;
use crate::grid::Tile;
use crate::share::{Handle, RemoteTile};

/// The handle of a tile that another process has; `None` for those of this one, and for those that any process reads from their files.
pub(super) fn elsewhere(tile: &Tile) -> Option<&Handle> {
    let data: &dyn Any = tile.data().as_ref();
    if let Some(tile) = data.downcast_ref::<MemberTile>() {
        return Some(tile.handle());
    }
    if let Some(tile) = data.downcast_ref::<ServedTile>() {
        return tile.handle();
    }
    data.downcast_ref::<RemoteTile>().map(RemoteTile::handle)
}

/// Whether the memory of the process that has a tile, as that describes it, is where the tile lies.
pub(super) fn was_in_memory(tile: &Tile) -> bool {
    let data: &dyn Any = tile.data().as_ref();
    let served = data.downcast_ref::<ServedTile>();
    served.is_some_and(ServedTile::was_in_memory)
}

/// The handle of a tile that another member has, or had.
pub(super) fn of_member(tile: &Tile) -> Option<&Handle> {
    member_tile(tile).map(MemberTile::handle)
}

/// The same with where that member answers.
pub(super) fn member_tile(tile: &Tile) -> Option<&MemberTile> {
    let data: &dyn Any = tile.data().as_ref();
    data.downcast_ref()
}
