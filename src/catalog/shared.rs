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
use futures::StreamExt;
use futures::future::{Either, select};
#[cfg(feature = "distributed")]
use futures::stream;

use super::Catalog;
use super::manifest::Contents;
#[cfg(feature = "distributed")]
use super::manifest::TileFile;
use super::paths::{MANIFESTS, TILES, is_probe, is_tile, name_of, number_of};
use super::store::Listed;
#[cfg(feature = "distributed")]
use super::tile::KeptTile;
use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "distributed")]
use crate::grid::Tile;
use crate::grid::{GridId, PartitionGrid};
#[cfg(feature = "distributed")]
use crate::share::told;

/// What is written to know what time it is.
const CLOCK: &str = "clock";

/// Where grids are named whose tiles are being written.
const WRITTEN: &str = "writing";

/// How many files are removed at a time.
#[cfg(feature = "distributed")]
const REMOVED_AT_ONCE: usize = 16;

/// How often that is said again, as long as it takes: much less than any grace.
const SAY: Duration = Duration::from_secs(60 * 60);

/// The file of a tile of a catalog, for another process that has the same catalog.
#[cfg(feature = "distributed")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptFile {
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) checksum: String,
}

/// What a name of the catalog stands for since another process has changed it.
#[derive(Debug)]
pub struct Changed {
    name: String,
    /// Those of its manifest; none where that is gone.
    number: Option<u64>,
    contents: Option<Contents>,
    grid: Option<Arc<PartitionGrid>>,
}

impl Changed {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The grid that it has now; `None` if it was dropped.
    #[must_use]
    pub fn grid(&self) -> Option<&Arc<PartitionGrid>> {
        self.grid.as_ref()
    }
}

impl Catalog {
    /// Whether other processes may have the same catalog.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        !self.store.is_ours_alone()
    }

    /// What other processes have kept and dropped; each is a change again until it is taken in ([`Catalog::take_in`]). A name that cannot be read is an error in its place, and stands in the way of no other.
    ///
    /// # Errors
    /// `Storage` when the catalog cannot be listed.
    pub async fn changes(&self) -> Result<Vec<Result<Changed>>> {
        // What this process is writing is no change.
        let _alone = self.writing.lock().await;
        let latest = self.latest().await?;
        let known = self.known().clone();
        let mut changes = Vec::new();
        for name in known.keys().filter(|name| !latest.contains_key(*name)) {
            changes.push(Ok(Changed {
                name: name.clone(),
                number: None,
                contents: None,
                grid: None,
            }));
        }
        let damaged = self.damaged_names();
        for name in damaged.iter().filter(|name| !latest.contains_key(*name)) {
            self.mark_whole(name);
        }
        // Of those that were seen to be damaged it is seen whether all files are there again.
        let lengths = match damaged.is_empty() {
            true => None,
            false => Some(self.lengths().await?),
        };
        for (name, (number, path)) in latest {
            let is_damaged = damaged.contains(&name);
            // A manifest that this process goes by is the latest again once a damaged one is gone.
            if known.get(&name) != Some(&number) || is_damaged {
                let lengths = lengths.as_ref().filter(|_| is_damaged);
                changes.push(self.changed(name, number, &path, lengths).await);
            }
        }
        Ok(changes)
    }

    async fn changed(
        &self,
        name: String,
        number: u64,
        path: &str,
        lengths: Option<&BTreeMap<String, u64>>,
    ) -> Result<Changed> {
        let made = async {
            let contents = self.contents(&name, path).await?;
            if let (Some(contents), Some(lengths)) = (&contents, lengths) {
                contents.check_lengths(lengths)?;
            }
            let grid = contents.as_ref().map(|contents| self.grid(contents));
            Ok::<_, Error>((grid.transpose()?.map(Arc::new), contents))
        };
        match made.await {
            Ok((grid, contents)) => {
                self.mark_whole(&name);
                Ok(Changed {
                    grid,
                    name,
                    number: Some(number),
                    contents,
                })
            }
            Err(error) => {
                let error = self.remedied(error, &name, path);
                // What cannot be read at this moment may be whole.
                let is_damage = [ErrorKind::InvalidData, ErrorKind::Unsupported];
                if is_damage.contains(&error.kind()) {
                    self.mark_damaged(&name, error.clone());
                }
                Err(error)
            }
        }
    }

    /// From now on this process goes by a change, and may change the name itself.
    pub fn take_in(&self, changed: &Changed) {
        self.files.name(&changed.name, changed.contents.as_ref());
        match changed.number {
            Some(number) => self.known().insert(changed.name.clone(), number),
            None => self.known().remove(&changed.name),
        };
    }

    /// Says that tiles of a grid are being written: none of them is removed before the grace is over from now on.
    ///
    /// # Errors
    /// Whatever stands in the way of writing.
    async fn say_writing(&self, grid: GridId) -> Result<()> {
        let said = self.store.now(&format!("{WRITTEN}/{grid}")).await;
        said.map(drop)
    }

    /// Does what writes tiles of a grid that has no name yet; while that lasts nobody removes them.
    pub(crate) async fn while_writing<T>(&self, grid: GridId, work: impl Future<Output = T>) -> T {
        let saying = async {
            loop {
                tokio::time::sleep(SAY).await;
                if let Err(error) = self.say_writing(grid).await {
                    tracing::warn!(%grid, %error, "the catalog was not told that a grid is still being written");
                }
            }
        };
        let (work, saying) = (std::pin::pin!(work), std::pin::pin!(saying));
        match select(work, saying).await {
            Either::Left((done, _)) => done,
            Either::Right((never, _)) => never,
        }
    }

    /// Removes what no name has had for longer than `grace`: files of tiles, manifests, what was left half written. Gives how many files that were. Several processes may do so at once.
    ///
    /// # Errors
    /// Whatever stands in the way of listing, reading and removing; `InvalidData` for a damaged manifest, then no tile is removed.
    pub async fn collect(&self, grace: Duration) -> Result<usize> {
        let now = self.store.now(CLOCK).await?;
        let is_over =
            |written: SystemTime| now.duration_since(written).is_ok_and(|age| age >= grace);
        let (saying, ended): (Vec<Listed>, Vec<Listed>) = self
            .store
            .list(WRITTEN)
            .await?
            .into_iter()
            .partition(|file| !is_over(file.written));
        let written: BTreeSet<&str> = saying.iter().filter_map(|file| last(&file.path)).collect();
        // Tiles first: whatever names them was written later, and is listed then.
        let tiles = self.store.list(TILES).await?;
        let (wanted, over) = self.named(&is_over).await?;
        let tiles = tiles
            .into_iter()
            .map(|file| (is_over(file.written), file.path));
        let tiles = tiles.filter(|(is_over, path)| {
            let grid = last(path).and_then(|name| name.split('-').next());
            let is_written = grid.is_some_and(|grid| written.contains(grid));
            *is_over && is_tile(path) && !is_written && !wanted.contains(path)
        });
        let tiles = tiles.map(|(_, path)| path);
        let ended = ended.into_iter().map(|file| file.path);
        let gone: Vec<String> = tiles.chain(over).chain(ended).collect();
        for path in &gone {
            self.store.remove(path).await?;
        }
        if let Some(before) = now.checked_sub(grace) {
            self.store.remove_torn(before).await?;
        }
        Ok(gone.len())
    }

    /// The files of tiles that a name has, or had until lately; and the manifests that count no more, of each name the oldest first: none counts again while others are removed.
    async fn named(
        &self,
        is_over: &impl Fn(SystemTime) -> bool,
    ) -> Result<(BTreeSet<String>, Vec<String>)> {
        let (mut wanted, mut over) = (BTreeSet::new(), Vec::new());
        let mut of_names: BTreeMap<String, Vec<(u64, Listed)>> = BTreeMap::new();
        for file in self.store.list(MANIFESTS).await? {
            if let (Some(name), Some(number)) = (name_of(&file.path), number_of(&file.path)) {
                of_names.entry(name).or_default().push((number, file));
            } else if is_probe(&file.path) && is_over(file.written) {
                over.push(file.path);
            }
        }
        for (name, mut manifests) in of_names {
            manifests.sort_by_key(|(number, _)| *number);
            let (mut next, mut of_name) = (None::<SystemTime>, Vec::new());
            for (_, file) in manifests.into_iter().rev() {
                // It counted until the next one was written. The latest stays, also where it says that the table was dropped: numbers go on from it.
                if next.replace(file.written).is_some_and(is_over) {
                    of_name.push(file.path);
                    continue;
                }
                let contents = self.contents(&name, &file.path).await?;
                let tiles = contents.into_iter().flat_map(|contents| contents.tiles);
                wanted.extend(tiles.map(|tile| tile.path));
            }
            over.extend(of_name.into_iter().rev());
        }
        Ok((wanted, over))
    }
}

/// The last part of a path.
fn last(path: &str) -> Option<&str> {
    path.rsplit('/').next()
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

    /// A tile that was written here, by whichever process, as [`Catalog::write`] said it, and its position; `schema` gives the columns at a position.
    ///
    /// # Errors
    /// `InvalidData` for what is no such line, as `schema`.
    pub(crate) fn written_tile(
        &self,
        written: &str,
        schema: impl FnOnce(&[usize]) -> Result<SchemaRef>,
    ) -> Result<(Vec<usize>, Tile)> {
        let file = serde_json::from_str::<TileFile>(written);
        let file = file.ok().filter(|file| is_tile(&file.path));
        let file = file.ok_or_else(|| {
            Error::invalid_data("what a member says of the file of a tile is none")
        })?;
        let schema = schema(&file.position)?;
        let position = file.position.clone();
        let data = KeptTile::new(&self.files, file, schema);
        Ok((position, Tile::new(Arc::new(data))))
    }

    /// Removes the files of tiles that no name has and none will have; what cannot be removed is so after the grace.
    pub(crate) async fn discard(&self, tiles: impl Iterator<Item = &Tile>) {
        let paths = tiles.filter_map(|tile| KeptTile::of(tile, &self.files));
        let removing = paths.map(|file| async move {
            self.files.cache.invalidate(&file.path);
            if let Err(error) = self.store.remove(&file.path).await {
                tracing::debug!(path = file.path, %error, "the file of a tile stays until the grace is over");
            }
        });
        let removing: Vec<_> = removing.collect();
        let removing = stream::iter(removing).buffer_unordered(REMOVED_AT_ONCE);
        removing.collect::<()>().await;
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

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn empty() -> Arc<PartitionGrid> {
        let schema = Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, true)]));
        Arc::new(PartitionGrid::try_from_batches(schema, &[]).unwrap())
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Runtime::new().unwrap()
    }

    #[test]
    fn manifests_go_the_oldest_first_and_the_latest_stays() {
        runtime().block_on(async {
            let catalog = Catalog::open("memory:///order").await.unwrap();
            catalog.keep("a", &empty()).await.unwrap();
            catalog.keep("a", &empty()).await.unwrap();
            catalog.drop_grid("a").await.unwrap();
            let (_, over) = catalog.named(&|_| true).await.unwrap();
            let numbers: Vec<_> = over.iter().filter_map(|path| number_of(path)).collect();
            assert_eq!(numbers, [1, 2]);
        });
    }

    #[test]
    fn a_file_that_was_written_to_see_whether_it_lasts_is_no_manifest_and_is_swept() {
        runtime().block_on(async {
            let catalog = Catalog::open("memory:///probe").await.unwrap();
            catalog.keep("a", &empty()).await.unwrap();
            let probe = super::super::paths::probe("0123456789abcdef");
            catalog.store.put_new(&probe, "".into()).await.unwrap();
            assert_eq!(catalog.grids().await.unwrap().len(), 1);
            assert_eq!(catalog.collect(Duration::from_secs(60)).await.unwrap(), 0);
            assert_eq!(catalog.collect(Duration::ZERO).await.unwrap(), 1);
            assert_eq!(catalog.store.list(MANIFESTS).await.unwrap().len(), 1);
        });
    }

    #[test]
    fn a_name_is_whole_again_once_a_damaged_manifest_is_gone() {
        runtime().block_on(async {
            let catalog = Catalog::open("memory:///harmed").await.unwrap();
            catalog.keep("a", &empty()).await.unwrap();
            let harmed = format!("{MANIFESTS}/a/{:020}.json", 2);
            catalog.store.put_new(&harmed, "".into()).await.unwrap();
            let mut changes = catalog.changes().await.unwrap();
            let error = changes.pop().unwrap().unwrap_err();
            assert!(error.hint().unwrap().contains("what it was before"));
            assert!(catalog.check_whole("a").is_err());
            catalog.store.remove(&harmed).await.unwrap();
            for changed in catalog.changes().await.unwrap() {
                catalog.take_in(&changed.unwrap());
            }
            catalog.check_whole("a").unwrap();
            assert!(catalog.changes().await.unwrap().is_empty());
            catalog.keep("a", &empty()).await.unwrap();
        });
    }

    #[test]
    fn a_name_that_is_used_again_has_other_numbers() {
        runtime().block_on(async {
            let (one, other) = (
                Catalog::open("memory:///again").await.unwrap(),
                Catalog::open("memory:///again").await.unwrap(),
            );
            one.keep("a", &empty()).await.unwrap();
            for changed in other.changes().await.unwrap() {
                other.take_in(&changed.unwrap());
            }
            one.drop_grid("a").await.unwrap();
            one.collect(Duration::ZERO).await.unwrap();
            one.keep("a", &empty()).await.unwrap();
            assert_eq!(one.known().get("a"), Some(&3));
            assert!(other.keep("a", &empty()).await.is_err());
        });
    }

    #[test]
    fn tiles_of_a_grid_that_is_being_written_stay() {
        runtime().block_on(async {
            let catalog = Catalog::open("memory:///writing").await.unwrap();
            let grids = [GridId::try_random().unwrap(), GridId::try_random().unwrap()];
            for grid in grids {
                let tile = format!("{TILES}/{grid}-0-0-0123456789abcdef.arrow");
                assert!(is_tile(&tile));
                catalog.store.put_new(&tile, "".into()).await.unwrap();
            }
            // Tiles are older than the grace, what is said is not.
            tokio::time::sleep(Duration::from_millis(1100)).await;
            catalog.say_writing(grids[0]).await.unwrap();
            assert_eq!(catalog.collect(Duration::from_secs(1)).await.unwrap(), 1);
            let left = catalog.store.list(TILES).await.unwrap();
            assert_eq!(left.len(), 1);
            assert!(left[0].path.contains(&grids[0].to_string()));
        });
    }
}
