//! Tiles that all members reach, read before anybody asks for them.
//!
//! Comes in: the members of a moment, the grids of the session. Goes out: the tiles of the shared catalog that placement gives this member, or of which it is to have a copy, in its memory, as far as there is room:
//! when a member is lost, those who are next have them already, or read them at once. Of lazy grids of files that all reach, which the others do not know, this member tells each which tiles it is to read. Of parts of such files that
//! it contributed, or that it has since a member was lost, it reads all, since others have it read them. Never here: other tiles that members contribute (`copies.rs`), files that only this member reaches.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use prost::Message;
use tokio::task::AbortHandle;

use crate::catalog::Catalog;
use crate::cluster::Cluster;
use crate::cluster::codec::message::{FORMAT, HasRead, ReadAhead};
use crate::cluster::codec::tiles::{TileCodec, broken};
use crate::cluster::members::{Member, Members};
use crate::cluster::placement::leaf::seats;
use crate::cluster::placement::owners;
use crate::error::Result;
use crate::grid::{GridId, PartitionGrid, Tile};
use crate::load::read_ahead;

/// How many row bands of files a member is told to read at a time.
const ROW_BANDS_AT_ONCE: usize = 8;

/// How often files that could not be read are tried again, and how long is waited first; twice as long each time.
const ATTEMPTS: u32 = 6;
const PAUSE: Duration = Duration::from_secs(1);

/// The part of the memory of queries that this member takes for its own tiles of lazy grids.
const MEMORY_PART: u64 = 4;

/// What is read ahead, and what was looked at last.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Ahead {
    /// How many members are to have each tile; none are read ahead with 0.
    replicas: usize,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    members: Option<Arc<Members>>,
    grids: Vec<GridId>,
    reading: Option<AbortHandle>,
}

impl Drop for Last {
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}

impl Ahead {
    pub(in crate::cluster) fn new(replicas: usize) -> Self {
        Self {
            replicas,
            last: Mutex::default(),
        }
    }
}

/// What one member reads ahead.
struct Reading {
    codec: TileCodec,
    members: Arc<Members>,
    grids: Vec<Arc<PartitionGrid>>,
    /// Parts of files that this member serves.
    parts: Vec<Arc<PartitionGrid>>,
    replicas: usize,
    /// The most bytes of its own tiles of lazy grids.
    limit_bytes: u64,
}

impl Cluster {
    /// Begins to read what this member is to have, if the members or the grids are others than before.
    pub(in crate::cluster) fn read_ahead(&self) {
        let replicas = self.ahead.replicas;
        let anywhere = &self.anywhere;
        if replicas == 0 || !anywhere.is_any() {
            return;
        }
        let tables = self.session.tables().into_iter();
        let grids = tables.filter_map(|name| self.session.grid(&name).ok());
        let grids: Vec<Arc<PartitionGrid>> = grids.collect();
        let parts = self.serves_of_files();
        let ids = grids.iter().chain(&parts).map(|grid| grid.id());
        let ids: Vec<GridId> = ids.collect();
        let members = self.members();
        let last = self.ahead.last.lock();
        let mut last = last.unwrap_or_else(PoisonError::into_inner);
        if last.grids == ids && last.members.as_ref() == Some(&members) {
            return;
        }
        let reading = Reading {
            codec: self.tile_codec(Some(&members)),
            members: Arc::clone(&members),
            grids,
            parts,
            replicas,
            limit_bytes: self.session.memory_limit_bytes() as u64 / MEMORY_PART,
        };
        let reading = self.runtime.spawn(reading.read()).abort_handle();
        // The one before goes by what is no more.
        if let Some(before) = last.reading.replace(reading) {
            before.abort();
        }
        last.members = Some(members);
        last.grids = ids;
    }

    /// Reads tiles of files that another member has dealt to this one, to be kept for those who ask; says whether there was room for all.
    ///
    /// # Errors
    /// `InvalidData` for a message that cannot be, whatever stands in the way of reading.
    pub(crate) async fn read_part(&self, message: &[u8]) -> Result<Vec<u8>> {
        let message = ReadAhead::decode(message).map_err(|_| broken("its bytes"))?;
        if message.format != FORMAT {
            return Err(broken("tiles in the format of another version"));
        }
        let tiles = message.tiles.ok_or_else(|| broken("no tiles"))?;
        let part = self.tile_codec(None).read(&tiles)?;
        let mut has_room = true;
        for tile in part.tiles() {
            has_room = has_room && read_ahead(tile).await?;
        }
        Ok(HasRead { has_room }.encode_to_vec())
    }
}

impl Reading {
    async fn read(self) {
        if let Some(catalog) = &self.codec.anywhere.catalog {
            self.read_catalog(catalog).await;
        }
        let anywhere = &self.codec.anywhere;
        let grids = self.grids.iter();
        let of_files: Vec<&Arc<PartitionGrid>> = grids
            .filter(|grid| {
                let mut looker = anywhere.looker();
                grid.num_rows() > 0 && grid.tiles().iter().all(|tile| looker.has_file(tile))
            })
            .collect();
        let mut pause = PAUSE;
        for _ in 0..ATTEMPTS {
            if self.read_files(&of_files).await {
                return;
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    /// The row bands of a grid that each member is to have.
    fn row_bands(&self, grid: &PartitionGrid) -> Vec<Vec<usize>> {
        let seats = seats(&self.members, self.members.len());
        let mut dealt = vec![Vec::new(); seats.len()];
        for row_band in 0..grid.rows().num_intervals() {
            for owner in owners(grid.id().bits(), row_band as u64, &seats, self.replicas) {
                if let Some(bands) = dealt.get_mut(owner) {
                    bands.push(row_band);
                }
            }
        }
        dealt
    }

    async fn read_catalog(&self, catalog: &Catalog) {
        let mut room = catalog.kept_bytes();
        let grids = self.grids.iter();
        for grid in grids.filter(|grid| catalog.holds(grid)) {
            // This process is the first of its members.
            for row_band in self.row_bands(grid).into_iter().next().unwrap_or_default() {
                for tile in grid.row_band(row_band) {
                    let bytes = tile.data().memory_bytes();
                    let Some(left) = room.checked_sub(bytes) else {
                        tracing::info!(grid = %grid.id(), row_band, "there is no room to read more of the catalog ahead");
                        return;
                    };
                    room = left;
                    let columns: Vec<usize> = (0..tile.data().schema().fields().len()).collect();
                    if tile.data().is_lazy()
                        && let Err(error) = tile.data().fetch(&columns).await
                    {
                        // Whoever asks for it is told.
                        tracing::debug!(grid = %grid.id(), row_band, %error, "a tile could not be read ahead");
                    }
                }
            }
        }
    }

    /// Has each member read its tiles of lazy grids of files, and reads parts of files; says whether none of them failed.
    async fn read_files(&self, grids: &[&Arc<PartitionGrid>]) -> bool {
        let room = Room::new(self.limit_bytes);
        let mut is_done = true;
        for grid in grids {
            let dealt = self.row_bands(grid);
            let members = self.members.iter().zip(&dealt).enumerate();
            let each = members.map(|(number, (member, row_bands))| {
                let room = &room;
                async move {
                    match number {
                        0 => read_own(grid, row_bands, room).await,
                        _ => self.have_read(grid, row_bands, member).await,
                    }
                }
            });
            for read in join_all(each).await {
                if let Err(error) = read {
                    // Whoever asks for them is told.
                    tracing::debug!(grid = %grid.id(), %error, "tiles of files could not be read ahead");
                    is_done = false;
                }
            }
        }
        for part in &self.parts {
            let all: Vec<usize> = (0..part.rows().num_intervals()).collect();
            if let Err(error) = read_own(part, &all, &room).await {
                tracing::debug!(part = %part.id(), %error, "tiles of files could not be read ahead");
                is_done = false;
            }
        }
        is_done
    }

    /// Has another member read row bands, as far as it has room.
    async fn have_read(
        &self,
        grid: &Arc<PartitionGrid>,
        row_bands: &[usize],
        member: &Member,
    ) -> Result<()> {
        let bands: Vec<usize> = (0..grid.columns().num_intervals()).collect();
        for some in row_bands.chunks(ROW_BANDS_AT_ONCE) {
            let message = ReadAhead {
                format: FORMAT,
                tiles: Some(self.codec.written(grid, some, &bands)?),
            };
            let client = self.codec.reach.client(member.uri()).await?;
            let told = client.read_tiles(message.encode_to_vec()).await?;
            let told = HasRead::decode(told).map_err(|_| broken("what was read"))?;
            if !told.has_room {
                tracing::info!(grid = %grid.id(), member = member.uri(), "a member has no room to read more files ahead");
                return Ok(());
            }
        }
        Ok(())
    }
}

/// What is left for tiles of this process, each counted once: those of a part are tiles of its grid as well.
struct Room {
    /// The bytes, and the addresses of the tiles that were counted.
    left: Mutex<(u64, HashSet<usize>)>,
}

impl Room {
    fn new(limit_bytes: u64) -> Self {
        Self {
            left: Mutex::new((limit_bytes, HashSet::new())),
        }
    }

    /// Takes the bytes of a tile, if there are as many.
    fn take(&self, tile: &Tile) -> bool {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let (bytes, counted) = &mut *left;
        let name = Arc::as_ptr(tile.data()).cast::<()>().addr();
        if counted.contains(&name) {
            return true;
        }
        let Some(rest) = bytes.checked_sub(tile.data().memory_bytes()) else {
            return false;
        };
        *bytes = rest;
        counted.insert(name)
    }
}

/// Reads row bands of a lazy grid of this process, as far as there is room for all such grids and in what keeps those of this one.
async fn read_own(grid: &PartitionGrid, row_bands: &[usize], room: &Room) -> Result<()> {
    let tiles = row_bands.iter().flat_map(|band| grid.row_band(*band));
    for tile in tiles.filter(|tile| tile.data().is_lazy()) {
        if !room.take(tile) {
            tracing::info!(grid = %grid.id(), "there is no room to read more files ahead");
            return Ok(());
        }
        if !read_ahead(tile).await? {
            tracing::info!(grid = %grid.id(), "a lazy grid has no room to read more of its files ahead");
            return Ok(());
        }
    }
    Ok(())
}
