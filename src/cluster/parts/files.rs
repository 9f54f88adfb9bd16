//! Parts whose tiles every member reads from files.
//!
//! Comes in: parts of grids of all. Goes out: whether all their tiles are of files that every member reaches, or were read from such, which files these are, and on the other side the same part over them, without a row: a copy that costs nothing,
//! and reads the rows again once the member is lost that contributed the part. The message of another member is not believed. Never here: who has such copies (`copies.rs`), reading.

use std::sync::Arc;

use prost::Message;

use crate::cluster::Cluster;
use crate::cluster::codec::message::Tiles;
use crate::cluster::codec::tiles::{TileCodec, broken};
use crate::error::{Error, Result};
use crate::grid::{GridBuilder, PartitionGrid, Tile};

impl Cluster {
    /// Whether every member reads all tiles of a part from files, or could, if they were not in memory here.
    pub(in crate::cluster) fn is_of_files(&self, part: &PartitionGrid) -> bool {
        let mut looker = self.anywhere.looker_at_sources();
        let is_any = part.num_rows() > 0 && self.anywhere.is_any();
        is_any && part.tiles().iter().all(|tile| looker.has(tile))
    }

    /// The parts of files that this member serves, originals and copies: the others have it read their rows, also where all tiles of a grid are here, which only this member deals out.
    pub(in crate::cluster) fn serves_of_files(&self) -> Vec<Arc<PartitionGrid>> {
        let own = self.members().own().incarnation();
        let parts = self.parts();
        let all = parts.own.values().chain(parts.copies.values());
        let served = all.filter(|(part, _)| {
            let made = parts.made.get(&part.name).filter(|_| part.is_of_files);
            made.is_some_and(|made| made.of.contains(&(part.id.clone(), own)))
        });
        served.map(|(_, grid)| Arc::clone(grid)).collect()
    }

    /// The files of the tiles of a part.
    ///
    /// # Errors
    /// `NotFound` for a part with tiles that only this member has.
    pub(crate) fn tell_files(&self, part: &Arc<PartitionGrid>) -> Result<Vec<u8>> {
        if !self.is_of_files(part) {
            return Err(Error::not_found("the part has tiles that are of no files"));
        }
        let row_bands: Vec<usize> = (0..part.rows().num_intervals()).collect();
        let bands: Vec<usize> = (0..part.columns().num_intervals()).collect();
        let codec = TileCodec {
            names_sources: true,
            ..self.tile_codec(None)
        };
        let tiles = codec.written(part, &row_bands, &bands)?;
        Ok(tiles.encode_to_vec())
    }

    /// A part over the files that another member has told, with the statistics of its tiles as they are `there`.
    ///
    /// # Errors
    /// `InvalidData` for a message that is of no such part, `PermissionDenied` for files that this member is not to read.
    pub(in crate::cluster) fn over_files(
        &self,
        there: &PartitionGrid,
        told: &[u8],
    ) -> Result<PartitionGrid> {
        let tiles = Tiles::decode(told).map_err(|_| broken("its bytes"))?;
        if !tiles.sources.is_empty() {
            return Err(broken("a tile of a process in place of one of a file"));
        }
        let read = self.tile_codec(None).read(&tiles)?;
        let is_like = read.schema().fields() == there.schema().fields()
            && read.rows() == there.rows()
            && read.columns() == there.columns();
        if !is_like {
            return Err(broken("files of another part"));
        }
        let (rows, columns) = (there.rows().clone(), there.columns().clone());
        let mut builder = GridBuilder::try_new(Arc::clone(there.schema()), rows, columns)?;
        let pairs = read.tiles().iter().zip(there.tiles());
        for (position, (tile, known)) in there.geometry().positions().zip(pairs) {
            let num_columns = known.data().schema().fields().len();
            let known = (0..num_columns).map(|column| known.known_statistics(column).cloned());
            let tile = Tile::with_statistics(Arc::clone(tile.data()), known);
            builder.set(&position, tile)?;
        }
        builder.build()
    }
}
