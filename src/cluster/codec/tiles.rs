//! How tiles travel.
//!
//! Comes in: some row bands and column bands of a grid. Goes out: a message that names their tiles and has no data: those of processes by their handles, those of files by what they are made of, those of
//! the catalog by their files; and on the other side a grid of just those tiles: its own where it has them, such that it reads from where all members can, and such that can be fetched. The message of
//! another member is not believed: what does not fit together is an error. Never here: which tiles (`leaf.rs`).

use std::cmp::Ordering;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use super::message::{From, Kept, Run, Source, Tiles};
use crate::catalog::KeptFile;
use crate::cluster::members::Members;
use crate::cluster::members::channel::Reach;
use crate::cluster::tile::MemberTile;
use crate::cluster::tile::anywhere::Anywhere;
use crate::cluster::tile::outline::{Access, Outline};
use crate::cluster::tile::owner::{elsewhere, member_tile};
use crate::error::{Error, Result};
use crate::flight::{schema_bytes, schema_of};
use crate::grid::{Axis, GridBuilder, GridId, PartitionGrid, Tile};
use crate::load::{LineagePlace, LineageReader, Lineages};
use crate::location::{Device, Location};
use crate::share::{Handle, Incarnation, find, handle};

pub(in crate::cluster) fn broken(what: &str) -> Error {
    Error::invalid_data(format!(
        "a member sent a part of a plan that cannot be: {what}"
    ))
}

pub(in crate::cluster) fn id_bytes(bits: u128) -> Vec<u8> {
    bits.to_le_bytes().to_vec()
}

pub(in crate::cluster) fn id_bits(bytes: &[u8]) -> Result<u128> {
    let bytes: [u8; 16] = bytes.try_into().map_err(|_| broken("an id"))?;
    Ok(u128::from_le_bytes(bytes))
}

fn small(number: usize) -> Result<u32> {
    u32::try_from(number).map_err(|_| broken("a number"))
}

fn place(number: u64) -> Result<usize> {
    usize::try_from(number).map_err(|_| broken("a number"))
}

/// The columns of column bands, by their numbers in the grid.
pub(in crate::cluster) fn columns_of(grid: &PartitionGrid, bands: &[usize]) -> Vec<usize> {
    let intervals = bands
        .iter()
        .filter_map(|band| grid.columns().interval(*band));
    let numbers = intervals.flatten();
    numbers
        .filter_map(|number| usize::try_from(number).ok())
        .collect()
}

/// Writes tiles down, and reads them.
#[derive(Debug)]
pub(in crate::cluster) struct TileCodec {
    pub(in crate::cluster) reach: Arc<Reach>,
    /// The members of the query; without them nothing is written down.
    pub(in crate::cluster) members: Option<Arc<Members>>,
    pub(in crate::cluster) forbids_fetching: bool,
    pub(in crate::cluster) anywhere: Arc<Anywhere>,
    /// Whether tiles in memory are written down as what they were read from.
    pub(in crate::cluster) names_sources: bool,
}

impl TileCodec {
    /// The tiles of some row bands and column bands of a grid.
    pub(in crate::cluster) fn written(
        &self,
        grid: &Arc<PartitionGrid>,
        row_bands: &[usize],
        bands: &[usize],
    ) -> Result<Tiles> {
        let mut runs = Runs::default();
        for band in bands {
            let first = runs.all.len();
            for row_band in row_bands {
                let one = self.one(grid, &[*row_band, *band], &mut runs)?;
                runs.add(first, one);
            }
        }
        let schema = grid.schema().project(&columns_of(grid, bands))?;
        let columns = bands
            .iter()
            .filter_map(|band| grid.columns().interval(*band));
        let rows = row_bands.iter().map(|band| {
            let rows = grid.rows().interval(*band).unwrap_or_default();
            rows.end - rows.start
        });
        let catalog = self.anywhere.catalog.as_ref().filter(|_| runs.has_kept);
        Ok(Tiles {
            schema: schema_bytes(&schema)?.to_vec(),
            band_columns: columns.map(|band| band.end - band.start).collect(),
            band_rows: rows.collect(),
            sources: runs.sources,
            runs: runs.all,
            forbids_fetching: self.forbids_fetching,
            lineages: runs.lineages.all,
            catalog: catalog
                .map(crate::catalog::Catalog::place)
                .unwrap_or_default(),
        })
    }

    /// A run of one tile.
    fn one(&self, grid: &Arc<PartitionGrid>, position: &[usize], runs: &mut Runs) -> Result<Run> {
        let tile = grid.tile(position)?;
        let mut run = Run {
            tile_bytes: vec![tile.data().memory_bytes()],
            ..Run::default()
        };
        let catalog = self.anywhere.catalog.as_ref();
        if let Some(file) = catalog.and_then(|catalog| catalog.kept_file(tile)) {
            run.set_from(From::Catalog);
            run.kept.push(Kept {
                path: file.path,
                bytes: file.bytes,
                checksum: file.checksum,
            });
            runs.has_kept = true;
            return Ok(run);
        }
        let mut looker = match self.names_sources {
            true => self.anywhere.looker_at_sources(),
            false => self.anywhere.looker(),
        };
        if looker.has_file(tile)
            && let Some(at) = runs.lineages.place(tile)?
        {
            run.set_from(From::Files);
            (run.source, run.file) = (at.lineage, at.file);
            (run.row_band, run.column) = (at.task, at.first_column);
            return Ok(run);
        }
        let handle = match elsewhere(tile) {
            Some(handle) => handle.clone(),
            None => handle(grid, position)?,
        };
        let [row, column] = handle.position.as_slice() else {
            return Err(broken("a tile whose position is not of a frame"));
        };
        run.source = runs.source(&handle, member_tile(tile), self.members.as_deref())?;
        (run.row_band, run.column) = (*row as u64, *column as u64);
        Ok(run)
    }

    /// The grid of the tiles that are written down.
    pub(in crate::cluster) fn read(&self, message: &Tiles) -> Result<PartitionGrid> {
        let schema = schema_of(&message.schema)?;
        let columns = Axis::try_from_lengths(message.band_columns.iter().copied())?;
        if columns.extent() != schema.fields().len() as u64 {
            return Err(broken("the columns of its column bands"));
        }
        let bands = columns.intervals().map(|band| {
            let numbers: Vec<usize> = band.map(place).collect::<Result<_>>()?;
            Ok(Arc::new(schema.project(&numbers)?))
        });
        let bands: Vec<SchemaRef> = bands.collect::<Result<_>>()?;
        if message.band_rows.is_empty() {
            // A member that has no tile of the grid takes part nevertheless.
            return PartitionGrid::try_from_batches(schema, &[]);
        }
        let rows = Axis::try_from_lengths(message.band_rows.iter().copied())?;
        let num_row_bands = rows.num_intervals();
        // Each tile is there before room is made for all: a short message can speak of many places.
        let tiles = message.runs.iter().map(|run| run.tile_bytes.len());
        match tiles.sum::<usize>().cmp(&(num_row_bands * bands.len())) {
            Ordering::Less => return Err(broken("fewer tiles than places")),
            Ordering::Greater => return Err(broken("more tiles than places")),
            Ordering::Equal => {}
        }
        let mut bytes = message.runs.iter().flat_map(|run| &run.tile_bytes);
        if bytes
            .try_fold(0_u64, |sum, bytes| sum.checked_add(*bytes))
            .is_none()
        {
            return Err(broken("tiles of more bytes than there can be"));
        }
        let mut reading = Reading::of(self, message)?;
        let mut builder = GridBuilder::try_new(schema, rows, columns)?;
        let mut number = 0;
        for run in &message.runs {
            for further in 0..run.tile_bytes.len() {
                let (row_band, band) = (number % num_row_bands, number / num_row_bands);
                let schema = bands.get(band).ok_or_else(|| broken("a column band"))?;
                let rows = message.band_rows.get(row_band).copied().unwrap_or_default();
                let tile = reading.tile(run, further, (schema, rows))?;
                if tile.num_rows() != rows {
                    return Err(broken("a tile with other rows than it has here"));
                }
                builder.set(&[row_band, band], tile)?;
                number += 1;
            }
        }
        builder.build()
    }
}

/// Runs that are being written down, with what they refer to, each once.
#[derive(Default)]
struct Runs {
    all: Vec<Run>,
    lineages: Lineages,
    sources: Vec<Source>,
    places: HashMap<(GridId, Incarnation), u32>,
    has_kept: bool,
}

impl Runs {
    /// Adds a run of one tile, to the last one from `first` on if it goes on there.
    fn add(&mut self, first: usize, mut one: Run) {
        match self.all.get_mut(first..).and_then(<[Run]>::last_mut) {
            Some(run) if follows(run, &one) => {
                run.tile_bytes.append(&mut one.tile_bytes);
                run.kept.append(&mut one.kept);
            }
            _ => self.all.push(one),
        }
    }

    fn source(
        &mut self,
        handle: &Handle,
        of: Option<&MemberTile>,
        members: Option<&Members>,
    ) -> Result<u32> {
        let key = (handle.grid, handle.incarnation);
        if let Some(place) = self.places.get(&key) {
            return Ok(*place);
        }
        let members = members.ok_or_else(|| broken("a scan outside of a query"))?;
        let number = members.number_of(handle.incarnation);
        let member = number.and_then(|number| members.iter().nth(number));
        // Of one that is none any more errors say where it was; nobody asks there.
        let was = of.filter(|_| member.is_none()).map(MemberTile::member);
        let table = of.map(MemberTile::table);
        let place = small(self.sources.len())?;
        self.sources.push(Source {
            grid: id_bytes(handle.grid.bits()),
            incarnation: id_bytes(handle.incarnation.bits()),
            host: handle.owner.host().to_string(),
            process: handle.owner.process(),
            uri: member
                .map(|member| member.uri().to_owned())
                .unwrap_or_default(),
            table: table.unwrap_or_default().to_owned(),
            was: was.unwrap_or_default().to_owned(),
        });
        self.places.insert(key, place);
        Ok(place)
    }
}

/// Whether a run goes on with another one.
fn follows(run: &Run, next: &Run) -> bool {
    let is_alike = (run.from, run.source, run.file, run.column)
        == (next.from, next.source, next.file, next.column);
    let after = run.row_band.checked_add(run.tile_bytes.len() as u64);
    is_alike && (run.from() == From::Catalog || after == Some(next.row_band))
}

/// A grid of a process, looked up.
struct Known {
    grid: GridId,
    incarnation: Incarnation,
    owner: Location,
    /// All its tiles have the same ones, and the same name.
    uri: Arc<str>,
    was: Arc<str>,
    table: Arc<str>,
    /// If this process has it.
    here: Option<Arc<PartitionGrid>>,
}

fn known(source: &Source) -> Result<Known> {
    let grid = GridId::from_bits(id_bits(&source.grid)?);
    let host: IpAddr = source.host.parse().map_err(|_| broken("a host"))?;
    Ok(Known {
        grid,
        incarnation: Incarnation::from_bits(id_bits(&source.incarnation)?),
        owner: Location::new(host, source.process, Device::CPU),
        uri: source.uri.as_str().into(),
        was: source.was.as_str().into(),
        table: source.table.as_str().into(),
        here: find(grid),
    })
}

/// Tiles that are being read out of a message.
struct Reading<'a> {
    codec: &'a TileCodec,
    sources: Vec<Known>,
    lineages: Vec<LineageReader<'a>>,
    catalog: &'a str,
    forbids_fetching: bool,
}

impl<'a> Reading<'a> {
    fn of(codec: &'a TileCodec, message: &'a Tiles) -> Result<Self> {
        let places = &codec.anywhere.places;
        let lineages = message.lineages.iter();
        let lineages = lineages.map(|lineage| LineageReader::try_new(lineage, places));
        Ok(Self {
            codec,
            sources: message.sources.iter().map(known).collect::<Result<_>>()?,
            lineages: lineages.collect::<Result<_>>()?,
            catalog: &message.catalog,
            forbids_fetching: message.forbids_fetching,
        })
    }

    /// One tile of a run, with these columns and rows.
    fn tile(
        &mut self,
        run: &Run,
        further: usize,
        (schema, rows): (&SchemaRef, u64),
    ) -> Result<Tile> {
        let memory_bytes = run.tile_bytes.get(further).copied().unwrap_or_default();
        let row_band = run.row_band.saturating_add(further as u64);
        match From::try_from(run.from) {
            Ok(From::Process) => {
                let source = self.sources.get(run.source as usize);
                let source = source.ok_or_else(|| broken("the place of a source"))?;
                let outline = Outline {
                    handle: Handle {
                        grid: source.grid,
                        position: vec![place(row_band)?, place(run.column)?],
                        incarnation: source.incarnation,
                        owner: source.owner.clone(),
                    },
                    uri: Arc::clone(&source.uri),
                    was: Arc::clone(&source.was),
                    table: Arc::clone(&source.table),
                    schema: Arc::clone(schema),
                    num_rows: rows,
                    memory_bytes,
                    // It is another member's statement, which has been spread.
                    access: Access {
                        forbids_fetching: self.forbids_fetching,
                        is_near: false,
                    },
                };
                self.of_process(source, outline)
            }
            Ok(From::Files) => {
                let reader = self.lineages.get_mut(run.source as usize);
                let reader = reader.ok_or_else(|| broken("the place of a lineage"))?;
                let at = LineagePlace {
                    lineage: run.source,
                    file: run.file,
                    task: row_band,
                    first_column: run.column,
                };
                reader.tile(at, schema, memory_bytes)
            }
            Ok(From::Catalog) => {
                let kept = run
                    .kept
                    .get(further)
                    .ok_or_else(|| broken("the file of a tile"))?;
                self.of_catalog(kept, schema, (rows, memory_bytes))
            }
            Err(_) => Err(broken("where a tile comes from")),
        }
    }

    /// A tile by its name: this process's own, or one that can be fetched.
    fn of_process(&self, source: &Known, outline: Outline) -> Result<Tile> {
        let Some(grid) = &source.here else {
            let tile = MemberTile::new(outline, Arc::clone(&self.codec.reach));
            return Ok(Tile::new(Arc::new(tile)));
        };
        let tile = grid.tile(&outline.handle.position)?;
        match tile.data().schema().fields() == outline.schema.fields() {
            true => Ok(tile.clone()),
            false => Err(broken("a tile with other columns than it has here")),
        }
    }

    fn of_catalog(&self, kept: &Kept, schema: &SchemaRef, size: (u64, u64)) -> Result<Tile> {
        let catalog = self.codec.anywhere.catalog.as_ref();
        let catalog = catalog.filter(|catalog| catalog.place() == self.catalog);
        let catalog = catalog.ok_or_else(|| {
            let text = format!(
                "a tile is in a catalog that this member does not have: {}",
                self.catalog
            );
            Error::invalid_argument(text)
                .with_hint("start all members of a cluster with the same server.catalog")
        })?;
        let file = KeptFile {
            path: kept.path.clone(),
            bytes: kept.bytes,
            checksum: kept.checksum.clone(),
        };
        catalog.tile(file, schema, size)
    }
}
