//! Who has a tile.
//!
//! Comes in: a tile of a grid, or those of a row band. Goes out: its handle, if another process has it, and whether that is a member; where clients find a row band that one member has. Never here: reaching that process.

use std::any::Any;

use super::MemberTile;
use crate::client::ServedTile;
use crate::cluster::members::Members;
use crate::grid::{GridId, Tile};
use crate::share::{Handle, RemoteTile};

/// The handle of a tile that another process has; `None` for those of this one, and for those that any process reads from their files.
pub(in crate::cluster) fn elsewhere(tile: &Tile) -> Option<&Handle> {
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
pub(in crate::cluster) fn was_in_memory(tile: &Tile) -> bool {
    let data: &dyn Any = tile.data().as_ref();
    let served = data.downcast_ref::<ServedTile>();
    served.is_some_and(ServedTile::was_in_memory)
}

/// The handle of a tile that another member has, or had.
pub(in crate::cluster) fn of_member(tile: &Tile) -> Option<&Handle> {
    member_tile(tile).map(MemberTile::handle)
}

/// The same with where that member answers.
pub(in crate::cluster) fn member_tile(tile: &Tile) -> Option<&MemberTile> {
    let data: &dyn Any = tile.data().as_ref();
    data.downcast_ref()
}

/// A row band that one other member has, as clients ask that one for it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BandThere {
    /// What the member says is its URI.
    pub(crate) uri: String,
    /// The part of the grid that it has.
    pub(crate) part: GridId,
    /// The number of the row band in that part.
    pub(crate) row_band: usize,
}

impl BandThere {
    /// Where a row band with these tiles is; `None` unless one other member, which is there now, has all of them as a row band of a part.
    pub(crate) fn find(members: &Members, tiles: &[Tile]) -> Option<Self> {
        let first = of_member(tiles.first()?)?;
        let [row_band, _] = *first.position.as_slice() else {
            return None;
        };
        let is_of_it = |(band, tile): (usize, &Tile)| {
            of_member(tile).is_some_and(|handle| {
                (handle.incarnation, handle.grid) == (first.incarnation, first.grid)
                    && handle.position == [row_band, band]
            })
        };
        let are_all = tiles.iter().enumerate().all(is_of_it);
        let number = members.number_of(first.incarnation).filter(|_| are_all)?;
        Some(Self {
            uri: members.iter().nth(number)?.name().to_owned(),
            part: first.grid,
            row_band,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::cluster::scale;
    use crate::cluster::{Cluster, ClusterOptions};
    use crate::error::ErrorKind;
    use crate::query::{Session, SessionOptions};

    #[tokio::test]
    async fn a_row_band_is_where_all_its_tiles_are_if_they_are_one_row_band_there() {
        let session = Session::try_new(&SessionOptions::default()).unwrap();
        let options = ClusterOptions::default();
        let cluster = Cluster::start(&session, "grpc://127.0.0.1:9", options).unwrap();
        let members = scale::members(cluster.members().own(), 3);
        let grid = scale::grid_at(&cluster.reach, &members, &[1, 2, 2]);
        let there = |row_band: usize| BandThere::find(&members, grid.row_band(row_band));
        let uris: Vec<&str> = members.names().collect();
        let found = |owner: usize, row_band| BandThere {
            uri: uris[owner].to_owned(),
            part: GridId::from_bits(owner as u128),
            row_band,
        };
        let all = [found(1, 0), found(2, 0), found(2, 1)];
        assert_eq!([0, 1, 2].map(|band| there(band).unwrap()), all);
        // Tiles of several row bands side by side, of a row band that has others before them, and of a member that is gone.
        let tile = |row_band: usize| grid.row_band(row_band)[0].clone();
        let find = |tiles: &[Tile]| BandThere::find(&members, tiles);
        assert_eq!(find(&[tile(1), tile(2)]), None);
        assert_eq!(find(&[tile(1), tile(1)]), None);
        assert_eq!(find(&[]), None);
        let fewer = Members::alone(cluster.members().own().clone());
        assert_eq!(BandThere::find(&fewer, grid.row_band(0)), None);
    }

    #[tokio::test]
    async fn who_is_no_member_and_was_waited_for_in_vain_is_not_waited_for_again_at_once() {
        let session = Session::try_new(&SessionOptions::default()).unwrap();
        let options = ClusterOptions::default();
        let cluster = Cluster::start(&session, "grpc://127.0.0.1:9", options).unwrap();
        let members = scale::members(cluster.members().own(), 2);
        let grid = scale::grid_at(&cluster.reach, &members, &[1]);
        let tile = grid.row_band(0)[0].clone();
        cluster.set_members(members.iter().cloned());
        cluster.set_members([]);
        let owner = of_member(&tile).unwrap().incarnation;
        assert!(cluster.reach.silent.add(owner, Instant::now()));
        // Nobody greets for it, so that a connection would be tried.
        let lost = tile.data().fetch(&[0]).await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::PartitionLost);
        let text = lost.to_string();
        assert!(text.contains("it is looked for meanwhile"), "{text}");
    }
}
