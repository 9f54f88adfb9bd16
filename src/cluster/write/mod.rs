//! Loads that all members share.
//!
//! Comes in: a grid of lazy tiles of files that every member reaches, which one member has planned. Goes out: the same grid in the catalog, each tile read from its file and written by the member where
//! placement puts it; nobody sees it before all tiles are there (the caller gives it its name). Never here: names, what is loaded, who writes what (`deal.rs`), in another order (`arrange.rs`).

pub(super) mod arrange;
pub(super) mod deal;
pub(super) mod pieces;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::{StreamExt, TryStreamExt, stream};
use prost::Message;

use super::Cluster;
use super::codec::message::{FORMAT, Write, Written};
use super::codec::tiles::{broken, id_bits, id_bytes};
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::grid::{GridId, PartitionGrid};
use crate::load::file_bytes;
use crate::query::max_threads;
use deal::{Doing, Work};

/// How many row bands a member is asked for at a time.
pub(super) const ROW_BANDS_AT_ONCE: usize = 8;

/// How far a load of all members is.
#[derive(Debug, Default)]
pub(crate) struct Writing {
    num_rows: AtomicU64,
    /// Of those, rows that are to lie in another order, and those that do.
    rows_to_arrange: AtomicU64,
    arranged_rows: AtomicU64,
    num_tiles: AtomicU64,
    num_bytes: AtomicU64,
}

impl Writing {
    /// Rows and tiles that are in the catalog, and the bytes of the files that they were read from.
    pub(crate) fn so_far(&self) -> (u64, u64, u64) {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (rows, tiles) = (read(&self.num_rows), read(&self.num_tiles));
        (rows, tiles, read(&self.num_bytes))
    }

    /// Rows that are to be brought into an order, and those that were.
    pub(crate) fn arranged_so_far(&self) -> (u64, u64) {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        (read(&self.rows_to_arrange), read(&self.arranged_rows))
    }

    /// So many rows are to be brought into an order.
    pub(super) fn add_to_arrange(&self, num_rows: u64) {
        self.rows_to_arrange.fetch_add(num_rows, Ordering::Relaxed);
    }

    /// So many rows lie in order in the catalog, as so many tiles.
    pub(super) fn add_arranged(&self, num_rows: u64, num_tiles: usize) {
        self.arranged_rows.fetch_add(num_rows, Ordering::Relaxed);
        self.num_tiles
            .fetch_add(num_tiles as u64, Ordering::Relaxed);
    }

    /// Row bands of a grid are in the catalog, as so many tiles.
    pub(super) fn add(&self, grid: &PartitionGrid, row_bands: &[usize], num_tiles: usize) {
        let rows = row_bands
            .iter()
            .filter_map(|band| grid.rows().interval(*band));
        let rows: u64 = rows.map(|rows| rows.end - rows.start).sum();
        let tiles = row_bands.iter().flat_map(|band| grid.row_band(*band));
        let bytes: u64 = tiles.map(file_bytes).sum();
        self.num_rows.fetch_add(rows, Ordering::Relaxed);
        self.num_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.num_tiles
            .fetch_add(num_tiles as u64, Ordering::Relaxed);
    }
}

impl Cluster {
    /// Whether a load is for all members: there are several, they share a catalog, and every tile is of a file that all of them reach.
    pub(crate) fn shares(&self, grid: &PartitionGrid) -> bool {
        self.may_share() && grid.num_rows() > 0 && self.anywhere.has_all(grid)
    }

    /// Whether there are several members that share a catalog.
    pub(crate) fn may_share(&self) -> bool {
        self.members().len() > 1 && self.anywhere.catalog.is_some()
    }

    /// Whether all members reach what is below a path or URL.
    pub(crate) fn reaches(&self, source: &str) -> bool {
        crate::load::is_allowed(&self.anywhere.places, source)
    }

    pub(super) fn catalog(&self) -> Result<&Catalog> {
        let catalog = self.anywhere.catalog.as_ref();
        catalog.ok_or_else(|| {
            Error::invalid_argument("this member has no catalog that others have, too")
                .with_hint("start all members with the same server.catalog")
        })
    }

    /// Has all members write the tiles of a grid into the catalog; gives the grid of what was written, which has no name yet.
    ///
    /// # Errors
    /// The first that stands in the way of reading or writing, at whichever member; then nothing has changed but files that the catalog removes after its grace.
    pub(crate) async fn write(
        &self,
        grid: &Arc<PartitionGrid>,
        writing: &Writing,
    ) -> Result<PartitionGrid> {
        let catalog = self.catalog()?;
        let files = catalog.while_writing(grid.id(), self.files_of(grid, writing));
        catalog.assemble(grid, &files.await?)
    }

    async fn files_of(&self, grid: &Arc<PartitionGrid>, writing: &Writing) -> Result<Vec<String>> {
        let members = self.members();
        let codec = self.tile_codec(Some(&members));
        let bands: Vec<usize> = (0..grid.columns().num_intervals()).collect();
        let message = |row_bands: &[usize]| {
            let message = Write {
                format: FORMAT,
                tiles: Some(codec.written(grid, row_bands, &bands)?),
                grid: id_bytes(grid.id().bits()),
                row_bands: row_bands.iter().map(|band| *band as u64).collect(),
            };
            Ok(message.encode_to_vec())
        };
        let files = Mutex::new(Vec::with_capacity(grid.tiles().len()));
        let done = |row_bands: &[usize], said: &[u8]| {
            let written = Written::decode(said).map_err(|_| broken("what was written"))?;
            writing.add(grid, row_bands, written.files.len());
            let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
            files.extend(written.files);
            Ok(())
        };
        let work = Work {
            doing: Doing::Write,
            placement: grid.id().bits(),
            at_once: ROW_BANDS_AT_ONCE,
            message: &message,
            done: &done,
        };
        let all = (0..grid.rows().num_intervals()).collect();
        self.by_all(&members, &work, all).await?;
        Ok(files.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes tiles that another member has dealt to this one; gives what it must know of their files.
    ///
    /// # Errors
    /// `InvalidData` for a message that cannot be, whatever stands in the way of reading and writing.
    pub(crate) async fn write_part(&self, message: &[u8]) -> Result<Vec<u8>> {
        let message = Write::decode(message).map_err(|_| broken("its bytes"))?;
        if message.format != FORMAT {
            return Err(broken("tiles in the format of another version"));
        }
        Ok(self.written(message).await?.encode_to_vec())
    }

    async fn written(&self, message: Write) -> Result<Written> {
        let catalog = self.catalog()?;
        let tiles = message.tiles.ok_or_else(|| broken("no tiles"))?;
        let part = self.tile_codec(None).read(&tiles)?;
        let id = GridId::from_bits(id_bits(&message.grid)?);
        if part.rows().num_intervals() != message.row_bands.len() {
            return Err(broken("the positions of tiles"));
        }
        let positions = message.row_bands.iter().flat_map(|row_band| {
            let bands = 0..part.columns().num_intervals();
            bands.map(|band| vec![usize::try_from(*row_band).unwrap_or(usize::MAX), band])
        });
        let each = positions
            .zip(part.tiles().iter().cloned())
            .map(|(position, tile)| async move {
                let written = catalog.write(id, &position, &tile).await;
                written.map_err(|error| error.with_position(&position))
            });
        let each: Vec<_> = each.collect();
        let files = stream::iter(each).buffer_unordered(max_threads());
        Ok(Written {
            files: files.try_collect().await?,
        })
    }
}
