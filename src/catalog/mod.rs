//! Grids that outlive the process: files of tiles, and manifests that say which make a grid.
//!
//! Comes in: grids under names. Goes out: the same grids after a restart, bit for bit, or an error that names the file. A grid is kept in steps: its tiles under names that nobody else uses, then a manifest
//! with the length and checksum of each, under the next number of its name, which only one writer can take. Whatever a crash leaves without a manifest does not exist. `store.rs` writes durably, `manifest.rs` is
//! what is written, `tile.rs` reads, `files.rs` removes what nobody needs any more. Several processes may share a catalog (`shared.rs`): each takes in what others have changed, a change to what
//! somebody else has changed meanwhile is refused, and what nobody names any more is removed after a grace. Never here: which grids are served, who may write.

mod files;
mod folder;
mod manifest;
mod objects;
mod shared;
mod store;
mod tile;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::error::{Error, ErrorKind, Result};
use crate::grid::{GridBuilder, GridId, PartitionGrid, Tile};
use crate::share::{ipc, told};

use files::Files;
use manifest::{Contents, Manifest, TileFile, checksum};
pub use shared::Changed;
#[cfg(feature = "distributed")]
pub(crate) use shared::KeptFile;
use store::{Listed, Store};
use tile::KeptTile;

/// Where manifests and tiles are, within the catalog.
const MANIFESTS: &str = "grids";
const TILES: &str = "tiles";

/// How often a number is looked for that no other process takes meanwhile.
const ATTEMPTS: usize = 16;

/// The longest name that file systems take.
const MAX_FOLDER_BYTES: usize = 255;

/// What stays as it is in the name of a folder.
const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// Grids under names that outlive the process.
#[derive(Debug, Clone)]
pub struct Catalog {
    store: Arc<dyn Store>,
    files: Arc<Files>,
    /// Held while the number of a manifest is looked for and taken by this process.
    writing: Arc<tokio::sync::Mutex<()>>,
    /// The number of the manifest of each name that this process goes by.
    known: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Catalog {
    /// The catalog in a folder, which is made if it is not there, or under the URL of an object store. A folder belongs to one process at a time, and what a crash left behind is removed from it; under
    /// `shared://` and its absolute path, as on a file system of several hosts, it belongs to all who open it so, like an object store.
    ///
    /// # Errors
    /// `Storage` when it cannot be had; `ResourcesExhausted` when another process has the folder.
    pub async fn open(url: &str) -> Result<Self> {
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
            known: Arc::default(),
        };
        if catalog.store.is_ours_alone() {
            catalog.sweep().await?;
        }
        Ok(catalog)
    }

    /// Lets go of a folder, so that another process can have it. What is written later is an error.
    pub fn close(&self) {
        self.store.close();
    }

    /// Gives back the memory of what was forgotten; to be called now and then.
    pub fn tidy(&self) {
        self.files.tidy();
    }

    /// Where it is.
    #[must_use]
    pub fn place(&self) -> String {
        self.store.place()
    }

    /// All grids, by name. Their tiles are read when they are needed; that their files are there and as long as they should be is seen now.
    ///
    /// # Errors
    /// `InvalidData` for a manifest or file that is damaged or gone, with its name.
    pub async fn grids(&self) -> Result<BTreeMap<String, Arc<PartitionGrid>>> {
        let mut grids = BTreeMap::new();
        let listed = self.store.list(TILES).await?.into_iter();
        let lengths: BTreeMap<String, u64> = listed.map(|file| (file.path, file.bytes)).collect();
        for (name, (number, path)) in self.latest().await? {
            let contents = self.contents(&name, &path).await?;
            self.known().insert(name.clone(), number);
            if let Some(contents) = &contents {
                contents.check_lengths(&lengths)?;
                let grid = Arc::new(self.grid(contents)?);
                self.files.name(&name, Some(contents));
                grids.insert(name, grid);
            }
        }
        Ok(grids)
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
        let (rows, columns) = (grid.rows().clone(), grid.columns().clone());
        let builder = GridBuilder::try_new(Arc::clone(grid.schema()), rows, columns)?;
        let mut builder = builder.with_order(grid.order().clone())?.with_id(grid.id());
        let mut files = Vec::with_capacity(grid.tiles().len());
        for (position, tile) in grid.geometry().positions().zip(grid.tiles()) {
            // It may be in this catalog already: rows are appended to what stays.
            let (file, tile) = match KeptTile::of(tile, &self.files) {
                Some(known) => (known.clone().at(&position), tile.clone()),
                None => self.write_tile(grid.id(), &position, tile).await?,
            };
            files.push(file);
            builder.set(&position, tile)?;
        }
        let kept = Arc::new(builder.build()?);
        let telling = Arc::clone(&kept);
        let statistics = tokio::task::spawn_blocking(move || told(&telling)).await;
        let statistics = statistics.map_err(|error| {
            Error::internal("a thread that works out statistics ended").with_source(error)
        })?;
        let contents = Contents::of(grid, files, &statistics?)?;
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

    /// Forgets the grid of a name, durably.
    ///
    /// # Errors
    /// Whatever stands in the way of writing; then the name keeps what it had.
    pub async fn drop_grid(&self, name: &str) -> Result<()> {
        // Also one that this process has not heard of: that is said.
        match self.latest().await?.contains_key(name) {
            true => self.put_manifest(name, None).await,
            false => Ok(()),
        }
    }

    async fn write_tile(
        &self,
        grid: GridId,
        position: &[usize],
        tile: &Tile,
    ) -> Result<(TileFile, Tile)> {
        let schema = tile.data().schema();
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let batch = tile.data().fetch(&all).await;
        let batch = batch.map_err(|error| error.with_position(position))?;
        let encoded = batch.clone();
        let written = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            ipc::write(&encoded, &[], &mut bytes)?;
            let sum = checksum(&bytes);
            Ok::<_, Error>((bytes, sum))
        });
        let written = written.await.map_err(|error| {
            Error::internal("a thread that wrote a tile ended").with_source(error)
        })?;
        let (bytes, sum) = written.map_err(|error| error.with_position(position))?;
        let place: Vec<String> = position.iter().map(ToString::to_string).collect();
        let file = TileFile {
            position: position.to_vec(),
            path: format!("{TILES}/{grid}-{}-{}.arrow", place.join("-"), unique()?),
            bytes: bytes.len() as u64,
            checksum: sum,
            rows: tile.num_rows(),
            memory_bytes: tile.data().memory_bytes(),
        };
        if !self.store.put_new(&file.path, Bytes::from(bytes)).await? {
            return Err(Error::internal("a name that is drawn at random was taken"));
        }
        let data = KeptTile::with_batch(&self.files, file.clone(), batch);
        let num_columns = schema.fields().len();
        let known = (0..num_columns).map(|column| tile.known_statistics(column).cloned());
        Ok((file, Tile::with_statistics(Arc::new(data), known)))
    }

    async fn put_manifest(&self, name: &str, contents: Option<&Contents>) -> Result<()> {
        let _alone = self.writing.lock().await;
        let encoded = utf8_percent_encode(name, &PLAIN).to_string();
        if encoded.len() > MAX_FOLDER_BYTES {
            let text = format!(
                "the name is too long for a catalog: as the name of a folder it may have {MAX_FOLDER_BYTES} bytes, it has {}",
                encoded.len()
            );
            return Err(Error::invalid_argument(text).with_context("table", name));
        }
        let folder = format!("{MANIFESTS}/{encoded}");
        for _ in 0..ATTEMPTS {
            let listed = self.store.list(&folder).await?;
            let numbers = listed.iter().filter_map(|file| number_of(&file.path));
            let latest = numbers.max().unwrap_or(0);
            if !self.store.is_ours_alone() {
                self.check_known(name, latest)?;
            }
            let manifest = Manifest {
                name: name.to_owned(),
                number: latest + 1,
                contents: contents.cloned(),
            };
            let path = format!("{folder}/{:020}.json", manifest.number);
            let bytes = manifest.to_bytes()?;
            if self.put_once(&path, bytes).await? {
                self.known().insert(name.to_owned(), manifest.number);
                self.files.name(name, contents);
                self.forget_manifests(&listed, manifest.number).await;
                return Ok(());
            }
        }
        let text = format!(
            "the catalog refused {ATTEMPTS} times to take a manifest under a number that it does not have"
        );
        Err(Error::new(ErrorKind::Storage { retryable: true }, text)
            .with_file(format!("{}/{folder}", self.place())))
    }

    /// Puts what nobody else writes with the same bytes; one whose answer was lost finds itself.
    async fn put_once(&self, path: &str, bytes: Bytes) -> Result<bool> {
        let put = self.store.put_new(path, bytes.clone()).await;
        if matches!(put, Ok(true)) {
            return put;
        }
        let there = self.store.read(path).await;
        match there.is_ok_and(|there| there == bytes) {
            true => Ok(true),
            false => put,
        }
    }

    /// # Errors
    /// `Storage` when the latest manifest of a name is not the one that this process goes by.
    fn check_known(&self, name: &str, latest: u64) -> Result<()> {
        let known = self.known().get(name).copied().unwrap_or(0);
        // Of a name that was dropped long ago nothing is left.
        if known == latest || latest == 0 {
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
        builder.build()
    }

    /// Removes files of tiles that no manifest names, and manifests that are not the latest of their name.
    async fn sweep(&self) -> Result<()> {
        let latest = self.latest().await?;
        let mut wanted = BTreeSet::new();
        for (_, path) in latest.values() {
            // A damaged manifest is said when grids are asked for; until then nothing is removed.
            let Ok(manifest) = self.manifest(path).await else {
                return Ok(());
            };
            let tiles = manifest
                .contents
                .into_iter()
                .flat_map(|contents| contents.tiles);
            wanted.extend(tiles.map(|tile| tile.path));
        }
        let current: BTreeSet<&String> = latest.values().map(|(_, path)| path).collect();
        for Listed { path, .. } in self.store.list(MANIFESTS).await? {
            let is_manifest = number_of(&path).is_some() && name_of(&path).is_some();
            if is_manifest && !current.contains(&path) {
                self.store.remove(&path).await?;
            }
        }
        for Listed { path, .. } in self.store.list(TILES).await? {
            if is_tile(&path) && !wanted.contains(&path) {
                self.store.remove(&path).await?;
            }
        }
        Ok(())
    }
}

/// A name that nobody else draws.
fn unique() -> Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::internal("the operating system gave no random bytes").with_source(error)
    })?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}

fn number_of(path: &str) -> Option<u64> {
    let (_, file) = path.rsplit_once('/')?;
    file.strip_suffix(".json")?.parse().ok()
}

/// Whether it is a name that only we give.
fn is_tile(path: &str) -> bool {
    let is_hex = |part: Option<&str>, length: usize| {
        part.is_some_and(|part| {
            part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    };
    let is_number = |part: Option<&str>| part.is_some_and(|part| part.parse::<usize>().is_ok());
    let name = path
        .strip_prefix(TILES)
        .and_then(|rest| rest.strip_prefix('/'));
    let Some(name) = name.and_then(|name| name.strip_suffix(".arrow")) else {
        return false;
    };
    let mut parts = name.split('-');
    is_hex(parts.next(), 32)
        && is_number(parts.next())
        && is_number(parts.next())
        && is_hex(parts.next(), 16)
        && parts.next().is_none()
}

fn name_of(path: &str) -> Option<String> {
    let rest = path.strip_prefix(MANIFESTS)?.strip_prefix('/')?;
    let (folder, _) = rest.split_once('/')?;
    let name = percent_decode_str(folder).decode_utf8().ok()?;
    Some(name.into_owned())
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
