//! What a server says of a grid -> a grid.
//!
//! Comes in: JSON of a server. Goes out: a grid whose tiles know where they are; that it is consistent is checked as for any grid. Never here: fetching.

use std::net::IpAddr;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
#[cfg(feature = "distributed")]
use arrow_flight::FlightInfo;
#[cfg(feature = "distributed")]
use bytes::Bytes;
#[cfg(feature = "distributed")]
use prost::Message;
use serde::Deserialize;

use super::connection::Client;
use super::tile::{Outline, ServedTile};
use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "distributed")]
use crate::flight::messages::{GridPart, GridParts, Named, RebalanceResult};
#[cfg(feature = "distributed")]
use crate::flight::schema_of;
use crate::grid::{Axis, GridBuilder, GridId, PartitionGrid, Tile};
use crate::location::{Locality, Location};
use crate::share::{Handle, Incarnation, find};

/// A grid as its server describes it.
#[derive(Debug, Deserialize)]
pub(super) struct Described {
    id: String,
    row_cuts: Vec<u64>,
    column_cuts: Vec<u64>,
    tiles: Vec<DescribedTile>,
    left_out: u64,
    owner: Option<Owner>,
}

#[derive(Debug, Deserialize)]
struct DescribedTile {
    position: Vec<usize>,
    rows: u64,
    bytes: u64,
    /// Host, process and device of each place where it can be read; older servers do not say it.
    #[serde(default)]
    at: Vec<(IpAddr, u64, String)>,
    /// How near it is to the server, or that nobody has it any more.
    #[serde(default)]
    locality: String,
}

impl DescribedTile {
    fn locations(&self) -> Result<Vec<Location>> {
        let at = self.at.iter();
        at.map(|(host, process, device)| Ok(Location::new(*host, *process, device.parse()?)))
            .collect()
    }
}

/// The process that has the tiles.
#[derive(Debug, Deserialize)]
struct Owner {
    host: IpAddr,
    pid: u64,
    incarnation: String,
}

#[cfg(feature = "distributed")]
impl Client {
    /// The parts of grids that a member has, and what it does.
    ///
    /// # Errors
    /// Whatever the server says; `Protocol` when it is no server of partgrid.
    pub(crate) async fn parts(&self) -> Result<GridParts> {
        let told = self.act("Parts", Vec::new()).await?;
        let told = told.first().ok_or_else(no_part)?;
        GridParts::decode(told.as_ref()).map_err(|_| no_part())
    }

    /// A part of a grid, of tiles that are fetched when they are read.
    ///
    /// # Errors
    /// `NotFound` when the member has no such part; as [`Client::grid`].
    pub(crate) async fn part(&self, part: &GridPart) -> Result<PartitionGrid> {
        let told = self.act("Part", part.to_bytes()).await?;
        let told = told.first().ok_or_else(no_part)?;
        let info = FlightInfo::decode(told.as_ref()).map_err(|_| no_part())?;
        let described = Described::read(&info.app_metadata)?;
        grid(self, described, schema_of(&info.schema)?)
    }

    /// What the member knows of the values in a part of a grid, in words of members.
    ///
    /// # Errors
    /// As [`Client::part`].
    pub(crate) async fn part_statistics(&self, part: &GridPart) -> Result<Bytes> {
        let told = self.act("PartStatistics", part.to_bytes()).await?;
        told.into_iter().next().ok_or_else(no_part)
    }

    /// Some rows of a part of a grid, in words of members; none where the member does not have them at hand.
    ///
    /// # Errors
    /// As [`Client::part`].
    pub(crate) async fn part_sample(&self, part: &GridPart) -> Result<Bytes> {
        let told = self.act("PartSample", part.to_bytes()).await?;
        told.into_iter().next().ok_or_else(no_part)
    }

    /// The files of a part of a grid whose tiles all members can read, in words of members.
    ///
    /// # Errors
    /// As [`Client::part`].
    pub(crate) async fn part_files(&self, part: &GridPart) -> Result<Bytes> {
        let told = self.act("PartFiles", part.to_bytes()).await?;
        told.into_iter().next().ok_or_else(no_part)
    }

    /// Has a member write tiles into the catalog, as members tell each other.
    ///
    /// # Errors
    /// Whatever the member says.
    pub(crate) async fn write_tiles(&self, message: Vec<u8>) -> Result<Bytes> {
        let told = self.act("WriteTiles", message).await?;
        told.into_iter().next().ok_or_else(no_part)
    }

    /// Has a member do its part of a load in another order, as members tell each other.
    ///
    /// # Errors
    /// Whatever the member says.
    pub(crate) async fn arrange_tiles(&self, message: Vec<u8>) -> Result<Bytes> {
        let told = self.act("ArrangeTiles", message).await?;
        told.into_iter().next().ok_or_else(no_part)
    }

    /// Has a member read tiles of files before anybody asks for them, as members tell each other.
    ///
    /// # Errors
    /// Whatever the member says.
    pub(crate) async fn read_tiles(&self, message: Vec<u8>) -> Result<Bytes> {
        let told = self.act("ReadTiles", message).await?;
        told.into_iter().next().ok_or_else(no_part)
    }

    /// Has a member take row bands, as members tell each other.
    ///
    /// # Errors
    /// Whatever the member says.
    pub(crate) async fn take_tiles(&self, message: Vec<u8>) -> Result<RebalanceResult> {
        let told = self.act("TakeTiles", message).await?;
        let told = told.first().ok_or_else(no_part)?;
        RebalanceResult::decode(told.as_ref()).map_err(|_| no_part())
    }

    /// Has a member let the parts of a deal go that this one is of.
    ///
    /// # Errors
    /// Whatever the member says.
    pub(crate) async fn leave_tiles(&self, part: &GridPart) -> Result<()> {
        self.act("LeaveTiles", part.to_bytes()).await.map(drop)
    }

    /// Has a member look at the catalog that it shares.
    ///
    /// # Errors
    /// Whatever the member says.
    pub(crate) async fn look_at_catalog(&self) -> Result<()> {
        self.act("LookAtCatalog", Vec::new()).await.map(drop)
    }
}

#[cfg(feature = "distributed")]
fn no_part() -> Error {
    let text = "a member speaks of its parts of grids in words that are not ours";
    Error::new(ErrorKind::Protocol, text)
}

impl Described {
    /// # Errors
    /// `Protocol` when it is no description.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|error| {
            let text = format!("the server describes its grid in words that are not ours: {error}");
            Error::new(ErrorKind::Protocol, text)
                .with_hint("other servers of Flight answer SQL; their tables have no tiles")
        })
    }

    fn owner(&self) -> Option<(Location, Incarnation)> {
        let owner = self.owner.as_ref()?;
        let bits = u128::from_str_radix(&owner.incarnation, 16).ok()?;
        let location = Location::new(owner.host, owner.pid, crate::location::Device::CPU);
        Some((location, Incarnation::from_bits(bits)))
    }
}

/// The grid, of tiles that are fetched when they are read. If this process has the very grid, that one.
///
/// # Errors
/// `Protocol` when the parts do not make a grid.
pub(super) fn grid(
    client: &Client,
    described: Described,
    schema: SchemaRef,
) -> Result<PartitionGrid> {
    let broken = |what: &str| {
        Error::new(
            ErrorKind::Protocol,
            format!("the server describes a grid that cannot be: {what}"),
        )
    };
    let bits = u128::from_str_radix(&described.id, 16).map_err(|_| broken("its id"))?;
    let id = GridId::from_bits(bits);
    if let Some(known) = find(id) {
        return Ok(PartitionGrid::clone(&known));
    }
    if described.left_out > 0 {
        return Err(Error::unsupported(format!(
            "the grid has {} more tiles than a server describes",
            described.left_out
        ))
        .with_hint("query it by SQL"));
    }
    let owner = described.owner();
    let answers = Arc::default();
    let cut = |cuts: Vec<u64>| Axis::try_new(cuts).map_err(|_| broken("its cuts"));
    let (rows, columns) = (cut(described.row_cuts)?, cut(described.column_cuts)?);
    let bands: Result<Vec<SchemaRef>> = columns
        .intervals()
        .map(|band| {
            let numbers: Vec<usize> = band.filter_map(|at| usize::try_from(at).ok()).collect();
            Ok(Arc::new(schema.project(&numbers)?))
        })
        .collect();
    let bands = bands?;
    let mut builder = GridBuilder::try_new(Arc::clone(&schema), rows, columns)?.with_id(id);
    for tile in described.tiles {
        let band = tile.position.get(1).and_then(|band| bands.get(*band));
        let outline = Outline {
            client: client.clone(),
            handle: owner.clone().map(|(owner, incarnation)| Handle {
                grid: id,
                position: tile.position.clone(),
                incarnation,
                owner,
            }),
            answers: Arc::clone(&answers),
            grid: id,
            position: tile.position.clone(),
            locations: tile
                .locations()
                .map_err(|_| broken("the place of a tile"))?,
            schema: Arc::clone(band.ok_or_else(|| broken("the position of a tile"))?),
            num_rows: tile.rows,
            memory_bytes: tile.bytes,
            is_lost: tile.locality == Locality::LOST,
            #[cfg(feature = "distributed")]
            is_in_memory: [Locality::Memory, Locality::Shared]
                .iter()
                .any(|locality| locality.name() == tile.locality),
        };
        let data = ServedTile::new(outline);
        builder.set(&tile.position, Tile::new(Arc::new(data)))?;
    }
    builder.build()
}
