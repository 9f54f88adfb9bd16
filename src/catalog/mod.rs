//! Grids that outlive the process: files of tiles, and manifests that say which make a grid.
//!
//! Comes in: grids under names. Goes out: the same grids after a restart, bit for bit, or an error that names the file. A grid is kept in steps: its tiles under names that nobody else uses, then a manifest
//! with the length and checksum of each, under the next number of its name, which only one writer can take. Whatever a crash leaves without a manifest does not exist. `store.rs` writes durably, `manifest.rs` is
//! what is written, `paths.rs` where, `write.rs` writes tiles, `tile.rs` reads them, `files.rs` removes what nobody needs any more, `sweep.rs` what was left. Several processes may share a catalog (`shared.rs`): each takes in what others have changed, a change to what
//! somebody else has changed meanwhile is refused, and what nobody names any more is removed after a grace. `health.rs` knows what is damaged and whether writes last. Never here: which grids are served, who may write.

mod files;
mod folder;
mod health;
#[cfg(test)]
mod hostile;
mod manifest;
mod objects;
mod paths;
mod shared;
mod store;
mod sweep;
mod tile;
mod write;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::Semaphore;

use crate::error::{Error, ErrorKind, Result};
use crate::grid::{GridBuilder, PartitionGrid, Tile};
use crate::share::told;

use files::Files;
pub use health::Fault;
use health::Health;
use manifest::{Contents, Manifest};
use paths::{MANIFESTS, TILES, folder_of, name_of, number_of};
pub use shared::Changed;
#[cfg(feature = "distributed")]
pub(crate) use shared::KeptFile;
use store::{Listed, Store};
use sweep::Dropped;
use tile::KeptTile;

/// Tiles that are written at a time are of so much memory together (one that is larger is written alone).
const WRITING_MEBIBYTES: u32 = 256;

/// How often a number is looked for that no other process takes meanwhile.
const ATTEMPTS: usize = 16;

/// Grids under names that outlive the process.
#[derive(Debug, Clone)]
pub struct Catalog {
    store: Arc<dyn Store>,
    files: Arc<Files>,
    /// Held while the number of a manifest is looked for and taken by this process.
    writing: Arc<tokio::sync::Mutex<()>>,
    /// A permit for each MiB of tiles that are being written.
    room: Arc<Semaphore>,
    /// The number of the manifest of each name that this process goes by.
    known: Arc<Mutex<BTreeMap<String, u64>>>,
    /// What says that tables were dropped, and may go some time.
    dropped: Arc<Dropped>,
    health: Arc<Health>,
    /// Whether tables that are damaged are left out of a catalog that is of this process alone.
    skips_damaged: bool,
}

impl Catalog {
    /// The catalog in a folder, which is made if it is not there, or under the URL of an object store. A folder belongs to one process at a time, and what a crash left behind is removed from it; under
    /// `shared://` and its absolute path, as on a file system of several hosts, it belongs to all who open it so, like an object store.
    ///
    /// # Errors
    /// `InvalidArgument` as [`Catalog::check_place`]; `Storage` when it cannot be had; `ResourcesExhausted` when another process has the folder.
    pub async fn open(url: &str) -> Result<Self> {
        Self::check_place(url)?;
        let store: Arc<dyn Store> = match url.split_once("://") {
            None => Arc::new(folder::Folder::open(url.as_ref(), false).await?),
            Some(("file", path)) => Arc::new(folder::Folder::open(path.as_ref(), false).await?),
            Some(("shared", path)) => Arc::new(folder::Folder::open(path.as_ref(), true).await?),
            Some(_) => Arc::new(objects::Objects::open(url)?),
        };
        let catalog = Self {
            files: Files::new(Arc::clone(&store), tile::cache()),
            store,
            writing: Arc::default(),
            room: Arc::new(Semaphore::new(WRITING_MEBIBYTES as usize)),
            known: Arc::default(),
            dropped: Arc::default(),
            health: Arc::default(),
            skips_damaged: false,
        };
        if catalog.store.is_ours_alone() {
            catalog.sweep().await?;
        }
        Ok(catalog)
    }

    /// Refuses what is no place of a catalog, whatever is there.
    ///
    /// # Errors
    /// `InvalidArgument` for a URL of a folder without its absolute path: members would have folders of their own.
    pub fn check_place(url: &str) -> Result<()> {
        match url.split_once("://") {
            Some((scheme @ ("file" | "shared"), path)) if !path.starts_with('/') => {
                let text = format!(
                    "a catalog under {scheme}:// must have the absolute path of a folder, got {url:?}"
                );
                let hint = format!("the folder /mnt/catalog is {scheme}:///mnt/catalog");
                Err(Error::invalid_argument(text).with_hint(hint))
            }
            _ => Ok(()),
        }
    }

    /// Whether tables that are damaged are left out ([`Catalog::damaged`]), and stand in the way of no other. Where other processes may have the catalog, too, they always are.
    #[must_use]
    pub fn with_skip_damaged(mut self, skips_damaged: bool) -> Self {
        self.skips_damaged = skips_damaged;
        self
    }

    /// Lets go of a folder, so that another process can have it. What is written later is an error.
    pub fn close(&self) {
        self.store.close();
    }

    /// Gives back the memory of what was forgotten; to be called now and then.
    pub fn tidy(&self) {
        self.files.tidy();
    }

    /// How many bytes of tiles it keeps in memory at most.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        let kibibytes = self.files.cache.policy().max_capacity();
        kibibytes.unwrap_or_default().saturating_mul(1024)
    }

    /// Where it is.
    #[must_use]
    pub fn place(&self) -> String {
        self.store.place()
    }

    /// All grids, by name. Their tiles are read when they are needed; that their files are there and as long as they should be is seen now.
    ///
    /// # Errors
    /// `InvalidData` for a manifest or file that is damaged or gone, with its name and the remedies. Such a table is left out where that is wanted ([`Catalog::with_skip_damaged`]), and where other processes may
    /// have the catalog, too: [`Catalog::changes`] tries again.
    pub async fn grids(&self) -> Result<BTreeMap<String, Arc<PartitionGrid>>> {
        let latest = self.latest().await?;
        // Manifests first: whatever they name was written before.
        let lengths = self.lengths().await?;
        let mut grids = BTreeMap::new();
        for (name, (number, path)) in latest {
            match self.whole(&name, &path, &lengths).await {
                Ok(grid) => {
                    self.mark_whole(&name);
                    self.known().insert(name.clone(), number);
                    grids.extend(grid.map(|grid| (name, grid)));
                }
                Err(error) => self.leave_out(&name, &path, error, lengths.keys())?,
            }
        }
        Ok(grids)
    }

    /// The files of tiles that are there, and how long they are.
    async fn lengths(&self) -> Result<BTreeMap<String, u64>> {
        let listed = self.store.list(TILES).await?.into_iter();
        Ok(listed.map(|file| (file.path, file.bytes)).collect())
    }

    /// The grid of a manifest, if all its files are there; `None` where it says that the table was dropped.
    async fn whole(
        &self,
        name: &str,
        path: &str,
        lengths: &BTreeMap<String, u64>,
    ) -> Result<Option<Arc<PartitionGrid>>> {
        let contents = self.contents(name, path).await?;
        // Before there are tiles: those of a grid that does not come about would take their files with them.
        self.files.name(name, contents.as_ref());
        let Some(contents) = contents else {
            return Ok(None);
        };
        contents.check_lengths(lengths)?;
        Ok(Some(Arc::new(self.grid(&contents)?)))
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a grid under a name, in place of one that has it. When this returns, it is there after a crash of the process or the machine. Gives the same grid, whose tiles know their files.
    ///
    /// # Errors
    /// Whatever stands in the way of reading its tiles and of writing, and `Storage` when another process has changed what the name stands for and this one has not heard of it ([`Catalog::changes`]); then
    /// the name keeps what it had.
    pub async fn keep(&self, name: &str, grid: &Arc<PartitionGrid>) -> Result<Arc<PartitionGrid>> {
        let (kept, files) = self.write_grid(grid).await?;
        let telling = Arc::clone(&kept);
        let statistics = tokio::task::spawn_blocking(move || told(&telling)).await;
        let statistics = statistics.map_err(|error| {
            Error::internal("a thread that works out statistics ended").with_source(error)
        })?;
        let contents = Contents::of(grid, files, &statistics?)?;
        if self.is_shared() && !self.files.are_named(&contents) {
            // What no name has may be collected, if it took long to write it all.
            contents.check_lengths(&self.lengths().await?)?;
        }
        if let Err(error) = self.put_manifest(name, Some(&contents)).await {
            // It may have been written all the same: its files stay until the next start.
            self.files.leave(&contents);
            return Err(error);
        }
        Ok(kept)
    }

    /// Whether all tiles of a grid are in this catalog.
    #[must_use]
    pub fn holds(&self, grid: &PartitionGrid) -> bool {
        let mut tiles = grid.tiles().iter();
        tiles.all(|tile| KeptTile::of(tile, &self.files).is_some())
    }

    /// Whether it has a table of this name with rows, as far as this process has heard.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.files.has_of(name)
    }

    /// Forgets the grid of a name, durably.
    ///
    /// # Errors
    /// Whatever stands in the way of writing; then the name keeps what it had.
    pub async fn drop_grid(&self, name: &str) -> Result<()> {
        let Ok(folder) = folder_of(name) else {
            // No table has such a name.
            return Ok(());
        };
        // Also one that this process has not heard of: that is said.
        let listed = self.noted(MANIFESTS, self.store.list(&folder).await)?;
        if !listed.iter().any(|file| number_of(&file.path).is_some()) {
            return Ok(());
        }
        self.put_manifest(name, None).await?;
        if self.store.is_ours_alone() {
            self.forget_dropped(SystemTime::now()).await;
        }
        Ok(())
    }

    async fn put_manifest(&self, name: &str, contents: Option<&Contents>) -> Result<()> {
        let _alone = self.writing.lock().await;
        self.check_whole(name)?;
        let folder = folder_of(name)?;
        for _ in 0..ATTEMPTS {
            let listed = self.noted(MANIFESTS, self.store.list(&folder).await)?;
            let numbers = listed.iter().filter_map(|file| number_of(&file.path));
            let latest = numbers.max().unwrap_or(0);
            if !self.store.is_ours_alone() {
                self.check_known(name, latest)?;
            }
            // Two who write at once take the same number, of which one is refused.
            let number = latest.saturating_add(1);
            let manifest = Manifest {
                name: name.to_owned(),
                number,
                contents: contents.cloned(),
            };
            let path = format!("{folder}/{:020}.json", manifest.number);
            let bytes = manifest.to_bytes()?;
            if self.put_once(&path, bytes).await? {
                self.known().insert(name.to_owned(), number);
                self.files.name(name, contents);
                self.forget_manifests(&listed, number).await;
                if contents.is_none() && self.store.is_ours_alone() {
                    self.dropped.add(path, SystemTime::now());
                }
                return Ok(());
            }
        }
        let text = format!(
            "the catalog refused {ATTEMPTS} times to take a manifest under a number that it does not have"
        );
        Err(Error::new(ErrorKind::Storage { retryable: true }, text)
            .with_file(format!("{}/{folder}", self.place())))
    }

    /// # Errors
    /// `Storage` when the latest manifest of a name is not the one that this process goes by.
    fn check_known(&self, name: &str, latest: u64) -> Result<()> {
        if self.known().get(name).copied().unwrap_or(0) == latest {
            return Ok(());
        }
        let text =
            format!("another process has changed the table {name:?} in the catalog meanwhile");
        Err(Error::new(ErrorKind::Storage { retryable: true }, text)
            .with_context("table", name)
            .with_hint("look what it is now, and do it again if that is still wanted"))
    }

    /// Removes those of a name that are older than the one of a number. What cannot be removed now is removed at the next start.
    async fn forget_manifests(&self, listed: &[Listed], number: u64) {
        if !self.store.is_ours_alone() {
            return;
        }
        for Listed { path, .. } in listed {
            let is_older = number_of(path).is_some_and(|older| older < number);
            if is_older && let Err(error) = self.store.remove(path).await {
                tracing::debug!(path, %error, "an old manifest stays");
            }
        }
    }

    /// The number and the path of the latest manifest of each name.
    async fn latest(&self) -> Result<BTreeMap<String, (u64, String)>> {
        let mut latest: BTreeMap<String, (u64, String)> = BTreeMap::new();
        for Listed { path, .. } in self.store.list(MANIFESTS).await? {
            let (Some(name), Some(number)) = (name_of(&path), number_of(&path)) else {
                continue;
            };
            let known = latest.get(&name).map_or(0, |(number, _)| *number);
            if number > known {
                latest.insert(name, (number, path));
            }
        }
        Ok(latest)
    }

    /// What a manifest says of a name.
    async fn contents(&self, name: &str, path: &str) -> Result<Option<Contents>> {
        let manifest = self.manifest(path).await?;
        match manifest.name == name {
            true => Ok(manifest.contents),
            false => Err(Error::invalid_data("the manifest is of another grid").with_file(path)),
        }
    }

    async fn manifest(&self, path: &str) -> Result<Manifest> {
        let bytes = self.store.read(path).await?;
        Manifest::read(&bytes).map_err(|error| error.with_file(format!("{}/{path}", self.place())))
    }

    fn grid(&self, contents: &Contents) -> Result<PartitionGrid> {
        let outline = contents.outline()?;
        let mut builder = GridBuilder::try_new(
            Arc::clone(&outline.schema),
            outline.rows.clone(),
            outline.columns.clone(),
        )?
        .with_order(outline.order.clone())?
        .with_id(outline.id);
        let mut heard = contents.statistics(&outline)?;
        for file in &contents.tiles {
            let schema = outline.band(&file.position)?;
            let data = Arc::new(KeptTile::new(&self.files, file.clone(), schema));
            let known = match (&mut heard, file.position.as_slice()) {
                (Some(heard), [row_band, band]) => {
                    heard.take(*row_band, outline.columns.interval(*band))
                }
                _ => Vec::new(),
            };
            builder.set(&file.position, Tile::with_statistics(data, known))?;
        }
        Ok(builder.build()?.with_loads(contents.loads()))
    }
}

/// The kind of an error of the file system.
fn failed(what: &str, error: std::io::Error, path: &str) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            ErrorKind::ResourcesExhausted
        }
        _ => ErrorKind::Storage { retryable: false },
    };
    Error::new(kind, format!("{what}: {error}"))
        .with_file(path)
        .with_source(error)
}
