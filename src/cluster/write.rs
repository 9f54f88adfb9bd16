//! Loads that all members share.
//!
//! Comes in: a grid of lazy tiles of files that every member reaches, which one member has planned. Goes out: the same grid in the catalog, each tile read from its file and written by the member where
//! placement puts it; nobody sees it before all tiles are there (the caller gives it its name). What a member that is lost has not written, others write. Never here: names, what is loaded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use prost::Message;

use super::Cluster;
use super::join::alive;
use super::leaf::seats;
use super::members::{Member, Members};
use super::message::{FORMAT, Write, Written};
use super::placement::owners;
use super::tiles::{broken, id_bits, id_bytes};
use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::{GridId, PartitionGrid};
use crate::load::file_bytes;
use crate::query::max_threads;

/// How many row bands a member is asked for at a time: so many are lost with it at most.
const ROW_BANDS_AT_ONCE: usize = 8;

/// How long is waited before a member is asked again, at first; it is asked four times at most.
const PAUSE: Duration = Duration::from_secs(1);

/// How far a load of all members is.
#[derive(Debug, Default)]
pub(crate) struct Writing {
    num_rows: AtomicU64,
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

    /// Row bands of a grid are in the catalog, as so many tiles.
    fn add(&self, grid: &PartitionGrid, row_bands: &[usize], num_tiles: usize) {
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

/// A load of all members.
struct Load<'a> {
    grid: &'a Arc<PartitionGrid>,
    members: &'a Arc<Members>,
    writing: &'a Writing,
}

/// What became of the row bands of one member.
struct Done {
    files: Vec<String>,
    /// Those that it has not written, and why it is taken for lost.
    left: Option<(Vec<usize>, Error)>,
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

    fn catalog(&self) -> Result<&Catalog> {
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
        let mut is_lost = vec![false; members.len()];
        let mut left: Vec<usize> = (0..grid.rows().num_intervals()).collect();
        let mut files = Vec::with_capacity(grid.tiles().len());
        while !left.is_empty() {
            let dealt = dealt(grid, &left, &members, &is_lost);
            left.clear();
            let load = Load {
                grid,
                members: &members,
                writing,
            };
            let working = members.iter().zip(&dealt);
            let working = working.map(|(member, bands)| self.write_at(member, bands, &load));
            for (number, done) in try_join_all(working).await?.into_iter().enumerate() {
                files.extend(done.files);
                if let (Some((more, error)), Some(is_lost), Some(member)) = (
                    done.left,
                    is_lost.get_mut(number),
                    members.iter().nth(number),
                ) {
                    tracing::warn!(member = member.uri(), row_bands = more.len(), %error, "a member was lost during a load, others take its part");
                    *is_lost = true;
                    left.extend(more);
                }
            }
        }
        Ok(files)
    }

    /// Has one member write row bands.
    async fn write_at(
        &self,
        member: &Member,
        row_bands: &[usize],
        load: &Load<'_>,
    ) -> Result<Done> {
        let Load {
            grid,
            members,
            writing,
        } = load;
        let codec = self.tile_codec(Some(members));
        let bands: Vec<usize> = (0..grid.columns().num_intervals()).collect();
        let mut files = Vec::new();
        for (number, some) in row_bands.chunks(ROW_BANDS_AT_ONCE).enumerate() {
            let message = Write {
                format: FORMAT,
                tiles: Some(codec.written(grid, some, &bands)?),
                grid: id_bytes(grid.id().bits()),
                row_bands: some.iter().map(|band| *band as u64).collect(),
            };
            let is_own = member.incarnation() == members.own().incarnation();
            let written = match is_own {
                true => self.written(message).await?,
                false => match self.ask(member, &message).await? {
                    Ok(written) => written,
                    Err(error) => {
                        let left = row_bands.get(number * ROW_BANDS_AT_ONCE..);
                        let left = Some((left.unwrap_or_default().to_vec(), error));
                        return Ok(Done { files, left });
                    }
                },
            };
            writing.add(grid, some, written.files.len());
            files.extend(written.files);
        }
        Ok(Done { files, left: None })
    }

    /// Asks a member, again where the network or a store failed; the inner error says that it is lost.
    ///
    /// # Errors
    /// That of a member that is there.
    async fn ask(&self, member: &Member, message: &Write) -> Result<Result<Written>> {
        let mut pause = PAUSE;
        loop {
            let asked = async {
                let client = self.reach.client(member.uri()).await?;
                client.write_tiles(message.encode_to_vec()).await
            };
            let error = match asked.await {
                Ok(answer) => {
                    let written = Written::decode(answer);
                    return written.map(Ok).map_err(|_| broken("what was written"));
                }
                Err(error) => error,
            };
            let (there, _) = alive(&self.reach, &[member.uri().to_owned()]).await;
            let lives = there.iter().map(Member::incarnation);
            if !lives.into_iter().any(|life| life == member.incarnation()) {
                return Ok(Err(error));
            }
            // Written a second time they have other names.
            let may_pass = matches!(error.kind(), ErrorKind::Storage { retryable: true });
            if !may_pass || pause > PAUSE * 4 {
                return Err(error.with_context("member", member.uri()));
            }
            tracing::warn!(member = member.uri(), %error, "a member could not write tiles, it is asked again");
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
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

/// The row bands of each member that is there: each with the first of its owners.
fn dealt(
    grid: &PartitionGrid,
    row_bands: &[usize],
    members: &Members,
    is_lost: &[bool],
) -> Vec<Vec<usize>> {
    let seats = seats(members, members.len());
    let mut dealt = vec![Vec::new(); members.len()];
    for row_band in row_bands {
        let owners = owners(grid.id().bits(), *row_band as u64, &seats, seats.len());
        let mut there = owners
            .into_iter()
            .filter(|owner| !is_lost.get(*owner).copied().unwrap_or(true));
        if let Some(bands) = there.next().and_then(|owner| dealt.get_mut(owner)) {
            bands.push(*row_band);
        }
    }
    dealt
}
