//! Grids that outlive the process: files of tiles, and manifests that say which make a grid.
//!
//! Comes in: grids under names. Goes out: the same grids after a restart, bit for bit, or an error that names the file. A grid is kept in steps: its tiles under names that nobody else uses, then a manifest
//! with the length and checksum of each, under the next number of its name, which only one writer can take. Whatever a crash leaves without a manifest does not exist. `store.rs` writes durably, `manifest.rs` is
//! what is written, `tile.rs` reads, `files.rs` removes what nobody needs any more. Never here: which grids are served, who may write.

mod files;
mod folder;
mod manifest;
mod objects;
mod store;
mod tile;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::error::{Error, ErrorKind, Result};
use crate::grid::{GridBuilder, PartitionGrid, Tile};
use crate::share::ipc;

use files::Files;
use manifest::{Contents, Manifest, TileFile, checksum};
use store::Store;
use tile::KeptTile;

/// Where manifests and tiles are, within the catalog.
const MANIFESTS: &str = "grids";
const TILES: &str = "tiles";

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
}

impl Catalog {
    /// The catalog in a folder, which is made if it is not there, or under the URL of an object store. A folder belongs to one process at a time. What a crash left behind is removed from a folder.
    ///
    /// # Errors
    /// `Storage` when it cannot be had; `ResourcesExhausted` when another process has the folder.
    pub async fn open(url: &str) -> Result<Self> {
        let store: Arc<dyn Store> = match url.split_once("://") {
            None => Arc::new(folder::Folder::open(url.as_ref()).await?),
            Some(("file", path)) => Arc::new(folder::Folder::open(path.as_ref()).await?),
            Some(_) => Arc::new(objects::Objects::open(url)?),
        };
        let catalog = Self {
            files: Files::new(Arc::clone(&store), tile::cache()),
            store,
            writing: Arc::default(),
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
        let lengths: BTreeMap<String, u64> = self.store.list(TILES).await?.into_iter().collect();
        for (name, path) in self.latest().await? {
            let manifest = self.manifest(&path).await?;
            if manifest.name != name {
                return Err(Error::invalid_data("the manifest is of another grid").with_file(path));
            }
            if let Some(contents) = &manifest.contents {
                contents.check_lengths(&lengths)?;
                let grid = Arc::new(self.grid(contents)?);
                self.files.name(&name, Some(contents));
                grids.insert(name, grid);
            }
        }
        Ok(grids)
    }

    /// Keeps a grid under a name, in place of one that has it. When this returns, it is there after a crash of the process or the machine. Gives the same grid, whose tiles know their files.
    ///
    /// # Errors
    /// Whatever stands in the way of reading its tiles and of writing; then the name keeps what it had.
    pub async fn keep(&self, name: &str, grid: &Arc<PartitionGrid>) -> Result<Arc<PartitionGrid>> {
        let (rows, columns) = (grid.rows().clone(), grid.columns().clone());
        let builder = GridBuilder::try_new(Arc::clone(grid.schema()), rows, columns)?;
        let mut builder = builder.with_order(grid.order().clone())?.with_id(grid.id());
        let mut files = Vec::with_capacity(grid.tiles().len());
        for (position, tile) in grid.geometry().positions().zip(grid.tiles()) {
            // It may be in this catalog already: rows are appended to what stays.
            let (file, tile) = match KeptTile::of(tile, &self.files) {
                Some(known) => (known.clone().at(&position), tile.clone()),
                None => self.write_tile(grid, &position, tile).await?,
            };
            files.push(file);
            builder.set(&position, tile)?;
        }
        let kept = Arc::new(builder.build()?);
        let contents = Contents::of(grid, files)?;
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
        let is_known = self.latest().await?.contains_key(name);
        match is_known {
            true => self.put_manifest(name, None).await,
            false => Ok(()),
        }
    }

    async fn write_tile(
        &self,
        grid: &PartitionGrid,
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
        let mut unique = [0; 8];
        getrandom::fill(&mut unique).map_err(|error| {
            Error::internal("the operating system gave no random bytes").with_source(error)
        })?;
        let place: Vec<String> = position.iter().map(ToString::to_string).collect();
        let unique = u64::from_le_bytes(unique);
        let file = TileFile {
            position: position.to_vec(),
            path: format!(
                "{TILES}/{}-{}-{unique:016x}.arrow",
                grid.id(),
                place.join("-")
            ),
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
        loop {
            let known = self.store.list(&folder).await?;
            let numbers = known.iter().filter_map(|(path, _)| number_of(path));
            let number = numbers.max().unwrap_or(0) + 1;
            let manifest = Manifest {
                name: name.to_owned(),
                number,
                contents: contents.cloned(),
            };
            let path = format!("{folder}/{number:020}.json");
            // Another process may have taken the number.
            if self.store.put_new(&path, manifest.to_bytes()?).await? {
                self.files.name(name, contents);
                self.forget_manifests(&known, number).await;
                return Ok(());
            }
        }
    }

    /// Removes those of a name that are older than the one of a number. What cannot be removed now is removed at the next start.
    async fn forget_manifests(&self, known: &[(String, u64)], number: u64) {
        if !self.store.is_ours_alone() {
            return;
        }
        for (path, _) in known {
            let is_older = number_of(path).is_some_and(|older| older < number);
            if is_older && let Err(error) = self.store.remove(path).await {
                tracing::debug!(path, %error, "an old manifest stays");
            }
        }
    }

    /// The path of the latest manifest of each name.
    async fn latest(&self) -> Result<BTreeMap<String, String>> {
        let mut latest: BTreeMap<String, (u64, String)> = BTreeMap::new();
        for (path, _) in self.store.list(MANIFESTS).await? {
            let (Some(name), Some(number)) = (name_of(&path), number_of(&path)) else {
                continue;
            };
            let known = latest.get(&name).map_or(0, |(number, _)| *number);
            if number > known {
                latest.insert(name, (number, path));
            }
        }
        Ok(latest
            .into_iter()
            .map(|(name, (_, path))| (name, path))
            .collect())
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
        for file in &contents.tiles {
            let schema = outline.band(&file.position)?;
            let data = KeptTile::new(&self.files, file.clone(), schema);
            builder.set(&file.position, Tile::new(Arc::new(data)))?;
        }
        builder.build()
    }

    /// Removes files of tiles that no manifest names, and manifests that are not the latest of their name.
    async fn sweep(&self) -> Result<()> {
        let latest = self.latest().await?;
        let mut wanted = BTreeSet::new();
        for path in latest.values() {
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
        let current: BTreeSet<&String> = latest.values().collect();
        for (path, _) in self.store.list(MANIFESTS).await? {
            let is_manifest = number_of(&path).is_some() && name_of(&path).is_some();
            if is_manifest && !current.contains(&path) {
                self.store.remove(&path).await?;
            }
        }
        for (path, _) in self.store.list(TILES).await? {
            if is_tile(&path) && !wanted.contains(&path) {
                self.store.remove(&path).await?;
            }
        }
        Ok(())
    }
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
