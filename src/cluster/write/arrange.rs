//! Loads in another order of rows that all members share: sorted, or partitioned by hash.
//!
//! Comes in: a grid of lazy tiles of files that every member reaches, the wanted order. Goes out: a grid of the same rows in the catalog, which has no name yet. Members tell keys of some rows, by which groups of rows are
//! cut; each reads its row bands and writes the rows of each group apart, as pieces; then each brings its groups into order and writes their tiles. Pieces are removed at the end. Never here: which rows go where
//! (`load`), who does what (`deal.rs`), what each does (`pieces.rs`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::datatypes::Schema;
use prost::Message;

use super::deal::{Doing, Work};
use super::{ROW_BANDS_AT_ONCE, Writing};
use crate::catalog::Catalog;
use crate::cluster::Cluster;
use crate::cluster::codec::message::{Arrange, Arranged, FORMAT, Step};
use crate::cluster::codec::tiles::{TileCodec, broken, columns_of, id_bytes};
use crate::cluster::members::Members;
use crate::error::{Error, Result};
use crate::grid::{Axis, GridBuilder, GridId, PartitionGrid, Tile};
use crate::load::{Arrangement, Cut};
use crate::share::Heard;

/// A load, at the member that was asked.
struct Load<'a> {
    catalog: &'a Catalog,
    grid: &'a Arc<PartitionGrid>,
    members: Arc<Members>,
    codec: TileCodec,
    writing: &'a Writing,
    /// Under which pieces are written, and the tiles of the new grid.
    pieces: GridId,
    id: GridId,
}

/// The pieces of each group, by the row bands that they came from.
type Pieces = BTreeMap<usize, BTreeMap<usize, Tile>>;

/// The row bands of one group in the end.
struct Group {
    lengths: Vec<u64>,
    /// Row band by row band.
    tiles: Vec<Tile>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn inner<T>(of: Mutex<T>) -> T {
    of.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// Has all members bring the rows of a grid into an order, and write them into the catalog; gives the grid of what was written, which has no name yet.
    ///
    /// # Errors
    /// The first that stands in the way of reading or writing, at whichever member; then nothing has changed but files that the catalog removes after its grace.
    pub(crate) async fn arrange(
        &self,
        grid: &Arc<PartitionGrid>,
        wanted: Arrangement,
        writing: &Writing,
    ) -> Result<PartitionGrid> {
        let members = self.members();
        let load = Load {
            catalog: self.catalog()?,
            grid,
            codec: self.tile_codec(Some(&members)),
            members,
            writing,
            pieces: GridId::try_random()?,
            id: GridId::try_random()?,
        };
        writing.add_to_arrange(grid.num_rows());
        let arranging = Box::pin(self.arranged(&load, wanted));
        let arranging = load.catalog.while_writing(load.id, arranging);
        load.catalog.while_writing(load.pieces, arranging).await
    }

    async fn arranged(&self, load: &Load<'_>, wanted: Arrangement) -> Result<PartitionGrid> {
        let wanted = match wanted.cut_by().is_empty() {
            true => wanted,
            false => {
                let keys = self.keys(load, &wanted).await?;
                wanted.with_keys(keys)
            }
        };
        let pieces = Mutex::new(Pieces::new());
        let scattered = self.scatter(load, &wanted, &pieces).await;
        let pieces = inner(pieces);
        let groups = match scattered {
            Ok(()) => self.gather_groups(load, &wanted, &pieces).await,
            Err(error) => Err(error),
        };
        let tiles = pieces.values().flat_map(BTreeMap::values);
        load.catalog.discard(tiles).await;
        load.assembled(&wanted, groups?)
    }

    /// Keys of some rows of all row bands.
    async fn keys(&self, load: &Load<'_>, wanted: &Arrangement) -> Result<Vec<Cut>> {
        let grid = load.grid;
        let bands = wanted.cut_by().into_iter().map(|name| {
            let column = grid.column_index(name)?;
            let place = grid.columns().locate(column as u64);
            let (band, _) = place.ok_or_else(|| Error::internal("a column in no column band"))?;
            Ok(band)
        });
        let mut bands: Vec<usize> = bands.collect::<Result<_>>()?;
        bands.sort_unstable();
        bands.dedup();
        let num_row_bands = grid.rows().num_intervals();
        let message = |row_bands: &[usize]| {
            let message = Arrange {
                most_keys: wanted.keys_each(num_row_bands),
                ..load.message(Step::Keys, wanted, row_bands)
            };
            let tiles = Some(load.codec.written(grid, row_bands, &bands)?);
            Ok(Arrange { tiles, ..message }.encode_to_vec())
        };
        let keys = Mutex::new(Vec::new());
        let done = |_: &[usize], said: &[u8]| {
            locked(&keys).extend(said_by(said)?.keys);
            Ok(())
        };
        let work = Work {
            doing: Doing::Arrange,
            placement: grid.id().bits(),
            at_once: ROW_BANDS_AT_ONCE,
            message: &message,
            done: &done,
        };
        let all = (0..num_row_bands).collect();
        self.by_all(&load.members, &work, all).await?;
        Ok(inner(keys))
    }

    /// Has each member write the rows of its row bands as pieces; `pieces` has those that were written also where another failed.
    async fn scatter(
        &self,
        load: &Load<'_>,
        wanted: &Arrangement,
        pieces: &Mutex<Pieces>,
    ) -> Result<()> {
        let grid = load.grid;
        let bands: Vec<usize> = (0..grid.columns().num_intervals()).collect();
        let message = |row_bands: &[usize]| {
            let message = Arrange {
                grid: id_bytes(load.pieces.bits()),
                tiles: Some(load.codec.written(grid, row_bands, &bands)?),
                ..load.message(Step::Scatter, wanted, row_bands)
            };
            Ok(message.encode_to_vec())
        };
        let done = |row_bands: &[usize], said: &[u8]| {
            let mut num_rows = 0;
            for file in said_by(said)?.files {
                let written = load
                    .catalog
                    .written_tile(&file, |_| Ok(Arc::clone(grid.schema())));
                let (position, tile) = written?;
                match position.as_slice() {
                    [band, group] if row_bands.contains(band) && *group < wanted.num_groups() => {
                        num_rows += tile.num_rows();
                        let mut pieces = locked(pieces);
                        pieces.entry(*group).or_default().insert(*band, tile);
                    }
                    _ => return Err(broken("the position of a piece")),
                }
            }
            let rows = row_bands
                .iter()
                .filter_map(|band| grid.rows().interval(*band));
            if num_rows != rows.map(|rows| rows.end - rows.start).sum::<u64>() {
                return Err(broken("pieces of other rows than it was told to read"));
            }
            load.writing.add(grid, row_bands, 0);
            Ok(())
        };
        let work = Work {
            doing: Doing::Arrange,
            placement: grid.id().bits(),
            at_once: ROW_BANDS_AT_ONCE,
            message: &message,
            done: &done,
        };
        let all = (0..grid.rows().num_intervals()).collect();
        self.by_all(&load.members, &work, all).await
    }

    /// Has each member bring its groups into order.
    async fn gather_groups(
        &self,
        load: &Load<'_>,
        wanted: &Arrangement,
        pieces: &Pieces,
    ) -> Result<BTreeMap<usize, Group>> {
        let message = |groups: &[usize]| {
            let [group] = groups else {
                return Err(Error::internal("several groups at a time"));
            };
            let tiles: Vec<&Tile> = pieces
                .get(group)
                .into_iter()
                .flat_map(BTreeMap::values)
                .collect();
            let of_group = Arc::new(load.of_pieces(&tiles)?);
            let bands: Vec<usize> = (0..tiles.len()).collect();
            let message = Arrange {
                grid: id_bytes(load.id.bits()),
                tiles: Some(load.codec.written(&of_group, &bands, &[0])?),
                band_columns: lengths(load.grid.columns()),
                ..load.message(Step::Gather, wanted, groups)
            };
            Ok(message.encode_to_vec())
        };
        let groups = Mutex::new(BTreeMap::new());
        let done = |numbers: &[usize], said: &[u8]| {
            let group = load.group(said_by(said)?)?;
            load.writing
                .add_arranged(group.lengths.iter().sum(), group.tiles.len());
            locked(&groups).extend(numbers.iter().copied().zip([group]));
            Ok(())
        };
        let work = Work {
            doing: Doing::Arrange,
            placement: load.id.bits(),
            at_once: 1,
            message: &message,
            done: &done,
        };
        let all = (0..wanted.num_groups()).collect();
        self.by_all(&load.members, &work, all).await?;
        Ok(inner(groups))
    }
}

fn said_by(said: &[u8]) -> Result<Arranged> {
    Arranged::decode(said).map_err(|_| broken("what was arranged"))
}

pub(in crate::cluster) fn lengths(axis: &Axis) -> Vec<u64> {
    let intervals = axis.intervals();
    intervals.map(|each| each.end - each.start).collect()
}

impl Load<'_> {
    fn message(&self, step: Step, wanted: &Arrangement, numbers: &[usize]) -> Arrange {
        Arrange {
            format: FORMAT,
            step: step as i32,
            wanted: Some(wanted.clone()),
            numbers: numbers.iter().map(|number| *number as u64).collect(),
            ..Arrange::default()
        }
    }

    /// Pieces one below the other.
    fn of_pieces(&self, tiles: &[&Tile]) -> Result<PartitionGrid> {
        let schema = Arc::clone(self.grid.schema());
        if tiles.is_empty() {
            return PartitionGrid::try_from_batches(schema, &[]);
        }
        let rows = Axis::try_from_lengths(tiles.iter().map(|tile| tile.num_rows()))?;
        let columns = Axis::uncut(schema.fields().len() as u64);
        let mut builder = GridBuilder::try_new(schema, rows, columns)?;
        for (row_band, tile) in tiles.iter().enumerate() {
            builder.set(&[row_band, 0], (*tile).clone())?;
        }
        builder.build()
    }

    /// The schema of a column band.
    fn band_schema(&self, band: usize) -> Result<Arc<Schema>> {
        let columns = columns_of(self.grid, &[band]);
        Ok(Arc::new(self.grid.schema().project(&columns)?))
    }

    /// What a member has written of a group.
    fn group(&self, said: Arranged) -> Result<Group> {
        let schema = self.grid.schema();
        let columns = self.grid.columns();
        let mut heard = match said.lengths.is_empty() {
            true => None,
            false => Some(Heard::read(&said.statistics, schema, said.lengths.len())?),
        };
        let mut tiles = BTreeMap::new();
        for file in &said.files {
            let of_band = |position: &[usize]| match position {
                [_, band] => self.band_schema(*band),
                _ => Err(broken("the position of a tile")),
            };
            let (position, tile) = self.catalog.written_tile(file, of_band)?;
            let [row_band, band] = position.as_slice() else {
                return Err(broken("the position of a tile"));
            };
            if said.lengths.get(*row_band) != Some(&tile.num_rows()) {
                return Err(broken("a tile of other rows than its row band"));
            }
            let known = heard.as_mut().map_or_else(Vec::new, |heard| {
                heard.take(*row_band, columns.interval(*band))
            });
            let tile = Tile::with_statistics(Arc::clone(tile.data()), known);
            tiles.insert((*row_band, *band), tile);
        }
        if tiles.len() != said.lengths.len() * columns.num_intervals() {
            return Err(broken("fewer tiles than places"));
        }
        Ok(Group {
            lengths: said.lengths,
            tiles: tiles.into_values().collect(),
        })
    }

    /// The groups one below the other.
    fn assembled(
        &self,
        wanted: &Arrangement,
        groups: BTreeMap<usize, Group>,
    ) -> Result<PartitionGrid> {
        let lengths = groups
            .values()
            .flat_map(|group| group.lengths.iter().copied());
        let rows = Axis::try_from_lengths(lengths)?;
        if rows.extent() != self.grid.num_rows() {
            return Err(broken("groups of other rows than those of the load"));
        }
        let columns = self.grid.columns().clone();
        let num_bands = columns.num_intervals().max(1);
        let schema = Arc::clone(self.grid.schema());
        let builder = GridBuilder::try_new(schema, rows, columns)?;
        let mut builder = builder.with_order(wanted.order())?.with_id(self.id);
        let tiles = groups.into_values().flat_map(|group| group.tiles);
        for (number, tile) in tiles.enumerate() {
            builder.set(&[number / num_bands, number % num_bands], tile)?;
        }
        builder.build()
    }
}
