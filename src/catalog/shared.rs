//! One catalog of several processes.
//!
//! Comes in: what others have written since, tiles that travel by the names of their files, tiles of a load that several members write. Goes out: the names that have changed, tiles over the same files,
//! a manifest once all files of a grid are there. What nobody names any more is removed after a grace, by the clock of the place: whoever still reads it has had that time. Never here: who the others are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

#[cfg(feature = "distributed")]
use arrow::datatypes::SchemaRef;

#[cfg(feature = "distributed")]
use super::manifest::{Contents, TileFile};
use super::store::Listed;
#[cfg(feature = "distributed")]
use super::tile::KeptTile;
use super::{Catalog, MANIFESTS, TILES, is_tile, name_of, number_of};
#[cfg(feature = "distributed")]
use crate::error::Error;
use crate::error::Result;
use crate::grid::PartitionGrid;
#[cfg(feature = "distributed")]
use crate::grid::{GridId, Tile};
#[cfg(feature = "distributed")]
use crate::share::told;

/// What is written to know what time it is.
const CLOCK: &str = "clock";

/// The file of a tile of a catalog, for another process that has the same catalog.
#[cfg(feature = "distributed")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptFile {
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) checksum: String,
}

/// A name of the catalog, and the grid that it has now; `None` if it was dropped.
pub type Changed = (String, Option<Arc<PartitionGrid>>);

impl Catalog {
    /// Whether other processes may have the same catalog.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        !self.store.is_ours_alone()
    }

    /// What other processes have kept and dropped since this was asked last, or the grids were.
    ///
    /// # Errors
    /// As [`Catalog::grids`]; then what could not be read is a change again the next time.
    pub async fn changes(&self) -> Result<Vec<Changed>> {
        // What this process is writing is no change.
        let _alone = self.writing.lock().await;
        let latest = self.latest().await?;
        let known = self.known().clone();
        let mut changes = Vec::new();
        for (name, (number, path)) in &latest {
            if known.get(name) == Some(number) {
                continue;
            }
            let contents = self.contents(name, path).await?;
            let grid = contents.as_ref().map(|contents| self.grid(contents));
            let grid = grid.transpose()?.map(Arc::new);
            self.files.name(name, contents.as_ref());
            self.known().insert(name.clone(), *number);
            changes.push((name.clone(), grid));
        }
        for name in known.keys().filter(|name| !latest.contains_key(*name)) {
            self.files.name(name, None);
            self.known().remove(name);
            changes.push((name.clone(), None));
        }
        Ok(changes)
    }

    /// Removes what no name has had for longer than `grace`: files of tiles, manifests, what was left half written. Gives how many files that were. Several processes may do so at once.
    ///
    /// # Errors
    /// Whatever stands in the way of listing, reading and removing; `InvalidData` for a damaged manifest, then no tile is removed.
    pub async fn collect(&self, grace: Duration) -> Result<usize> {
        let now = self.store.now(CLOCK).await?;
        let is_over =
            |written: SystemTime| now.duration_since(written).is_ok_and(|age| age >= grace);
        // Tiles first: whatever names them was written later, and is listed then.
        let tiles = self.store.list(TILES).await?;
        let (wanted, over) = self.named(&is_over).await?;
        let tiles = tiles.into_iter().filter(|file| {
            is_tile(&file.path) && is_over(file.written) && !wanted.contains(&file.path)
        });
        let gone: Vec<String> = tiles.map(|file| file.path).chain(over).collect();
        for path in &gone {
            self.store.remove(path).await?;
        }
        if let Some(before) = now.checked_sub(grace) {
            self.store.remove_torn(before).await?;
        }
        Ok(gone.len())
    }

    /// The files of tiles that a name has, or had until lately; and the manifests that count no more.
    async fn named(
        &self,
        is_over: &impl Fn(SystemTime) -> bool,
    ) -> Result<(BTreeSet<String>, Vec<String>)> {
        let mut of_names: BTreeMap<String, Vec<(u64, Listed)>> = BTreeMap::new();
        for file in self.store.list(MANIFESTS).await? {
            if let (Some(name), Some(number)) = (name_of(&file.path), number_of(&file.path)) {
                of_names.entry(name).or_default().push((number, file));
            }
        }
        let (mut wanted, mut over) = (BTreeSet::new(), Vec::new());
        for (name, mut manifests) in of_names {
            manifests.sort_by_key(|(number, _)| *number);
            let mut next: Option<SystemTime> = None;
            for (_, file) in manifests.into_iter().rev() {
                // It counted until the next one was written.
                let is_latest = next.is_none();
                let counted_until = next.replace(file.written);
                if counted_until.is_some_and(is_over) {
                    over.push(file.path);
                    continue;
                }
                let contents = self.contents(&name, &file.path).await?;
                let is_dropped = contents.is_none();
                let tiles = contents.into_iter().flat_map(|contents| contents.tiles);
                wanted.extend(tiles.map(|tile| tile.path));
                if is_latest && is_dropped && is_over(file.written) {
                    over.push(file.path);
                }
            }
        }
        Ok((wanted, over))
    }
}

#[cfg(feature = "distributed")]
impl Catalog {
    /// The file of a tile of this catalog, if other processes can read it.
    pub(crate) fn kept_file(&self, tile: &Tile) -> Option<KeptFile> {
        let file = KeptTile::of(tile, &self.files).filter(|_| self.is_shared())?;
        Some(KeptFile {
            path: file.path.clone(),
            bytes: file.bytes,
            checksum: file.checksum.clone(),
        })
    }

    /// The tile of a file that another process has named.
    ///
    /// # Errors
    /// `InvalidData` for what is no file of a tile.
    pub(crate) fn tile(
        &self,
        file: KeptFile,
        schema: &SchemaRef,
        (rows, memory_bytes): (u64, u64),
    ) -> Result<Tile> {
        if !is_tile(&file.path) {
            return Err(Error::invalid_data("this is no file of a tile").with_file(file.path));
        }
        let file = TileFile {
            position: Vec::new(),
            path: file.path,
            bytes: file.bytes,
            checksum: file.checksum,
            rows,
            memory_bytes,
        };
        let data = KeptTile::new(&self.files, file, Arc::clone(schema));
        Ok(Tile::new(Arc::new(data)))
    }

    /// Writes a tile of a grid that has no manifest yet, and says what [`Catalog::assemble`] must know of it.
    ///
    /// # Errors
    /// Whatever stands in the way of reading the tile and of writing.
    pub(crate) async fn write(
        &self,
        grid: GridId,
        position: &[usize],
        tile: &Tile,
    ) -> Result<String> {
        let (file, _) = self.write_tile(grid, position, tile).await?;
        serde_json::to_string(&file).map_err(|error| {
            Error::internal("the file of a tile is not to be written as JSON").with_source(error)
        })
    }

    /// The grid of tiles that were written here, in any order, by this process or others. It has no name before it is kept ([`Catalog::keep`]), which writes none of them again.
    ///
    /// # Errors
    /// `InvalidData` when a tile is missing or has other rows than the grid says.
    pub(crate) fn assemble(
        &self,
        grid: &PartitionGrid,
        written: &[String],
    ) -> Result<PartitionGrid> {
        let files = written.iter().map(|file| {
            serde_json::from_str::<TileFile>(file).map_err(|error| {
                Error::invalid_data("what a member says of the file of a tile is none")
                    .with_source(error)
            })
        });
        let mut files: Vec<TileFile> = files.collect::<Result<_>>()?;
        files.sort_by(|one, other| one.position.cmp(&other.position));
        let positions = grid.geometry().positions().zip(grid.tiles());
        let are_all = files.len() == grid.tiles().len()
            && files.iter().zip(positions).all(|(file, (position, tile))| {
                file.position == position && file.rows == tile.num_rows() && is_tile(&file.path)
            });
        if !are_all {
            let text = "the tiles that were written are not those of the grid";
            return Err(Error::invalid_data(text));
        }
        self.grid(&Contents::of(grid, files, &told(grid)?)?)
    }
}
