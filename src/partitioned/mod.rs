//! The `__partitioned__` draft as plain data.
//!
//! Comes in: a grid. Goes out: a [`Partitioned`] with every number of the draft's dictionary: "shape", "partition_tiling" and, under "partitions", for each
//! position "start", "shape" and "location". Whoever writes the dictionary adds "data" (a handle or the batch) and "get". The other way: `check.rs` says whether the numbers of
//! somebody else's dictionary make a grid, `import.rs` makes one of them and the data. `dialect.rs`: dictionaries for consumers that do not follow the draft. Never here: Python.
//!
//! Section names are those of the draft of the Partitioned Protocol, `Partitioned.md`.

mod check;
mod dialect;
mod import;

pub use check::{Checked, Claim, ClaimedPartition, check, entry_path, fault};
pub use dialect::{describe_for_heat, describe_for_xgboost_ray, is_balanced_for_heat};
pub use import::{FrameKeys, Part, import};

use std::ops::Range;

use crate::grid::{PartitionGrid, Tile};
use crate::location::{Device, Location};

/// The state of the draft that is followed, for the extra key "version": the day of its last change.
pub const DRAFT: &str = "2022-01-27";

/// The dictionary of the draft (section "Partitioned Protocol"), without "get".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partitioned {
    /// Section "shape": the number of elements along each dimension (rows, columns).
    pub shape: Vec<u64>,
    /// Section "partition_tiling": the number of partitions along each dimension.
    pub partition_tiling: Vec<usize>,
    /// Section "partitions": one entry for each position, in row-major order.
    pub partitions: Vec<Partition>,
    /// Section "locals": in an SPMD program the positions whose data is here. Otherwise there "must not" be any.
    pub locals: Option<Vec<Vec<usize>>>,
}

/// One entry of "partitions", without "data".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// The key of the entry: the position in the partition grid.
    pub position: Vec<usize>,
    /// Section "start": the global index of the first element along each dimension.
    pub start: Vec<u64>,
    /// Section "shape" of a partition: the number of elements along each dimension.
    pub shape: Vec<u64>,
    /// Section "location": where the data can be read without communication, each place once, this process first. Empty when no process holds the data yet.
    pub locations: Vec<Place>,
}

impl Partition {
    /// The global rows of the partition.
    #[must_use]
    pub fn rows(&self) -> Range<u64> {
        let start = self.start.first().copied().unwrap_or(0);
        start..start.saturating_add(self.shape.first().copied().unwrap_or(1))
    }
}

/// One of the locations of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// As the draft has it: address and process.
    Process(Location),
    /// As HeAT has it: the number of a rank.
    Rank(usize),
    /// As xgboost_ray has it: the address of a node.
    Node(String),
}

/// A location as the draft writes it (section "location"): `(IP, PID[, device])`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocationParts {
    /// "IP": the address of the node in the network.
    pub host: String,
    /// "PID": the id that the operating system gave the process.
    pub process: u64,
    /// "device": the DLPack name of the device; absent for host memory, which is the default (`kDLCPU`). Present it would promise that the data "exposes
    /// dlpack".
    pub device: Option<String>,
}

/// Describes every tile of a grid. The work is linear in the number of tiles; no tile is opened.
#[must_use]
pub fn describe(grid: &PartitionGrid) -> Partitioned {
    let geometry = grid.geometry();
    let here = Location::here();
    let tiles = geometry.positions().zip(grid.tiles());
    let partitions = tiles.map(|(position, tile)| describe_tile(grid, position, tile, &here));
    let locals = grid.locals().map(|locals| {
        let positions = geometry.positions().zip(locals);
        let here = positions.filter(|(_, is_local)| **is_local);
        here.map(|(position, _)| position).collect()
    });
    Partitioned {
        shape: geometry.shape(),
        partition_tiling: geometry.tiling(),
        partitions: partitions.collect(),
        locals,
    }
}

fn describe_tile(
    grid: &PartitionGrid,
    position: Vec<usize>,
    tile: &Tile,
    here: &Location,
) -> Partition {
    let axes = grid.geometry().axes().iter().zip(&position);
    let intervals = axes.filter_map(|(axis, at)| axis.interval(*at));
    let (start, shape) = intervals
        .map(|interval| (interval.start, interval.end - interval.start))
        .unzip();
    Partition {
        position,
        start,
        shape,
        locations: distinct(tile.locations(), here),
    }
}

/// Each location once, `here` first, the others in the order of the tile.
fn distinct(locations: Vec<Location>, here: &Location) -> Vec<Place> {
    let mut kept: Vec<Location> = Vec::with_capacity(locations.len());
    for location in locations {
        if !kept.contains(&location) {
            kept.push(location);
        }
    }
    kept.sort_by_key(|location| location != here);
    kept.into_iter().map(Place::Process).collect()
}

/// The parts of the tuple that the draft wants for a location.
#[must_use]
pub fn location_parts(location: &Location) -> LocationParts {
    let device = location.device();
    LocationParts {
        host: location.host().to_string(),
        process: location.process(),
        device: (device != Device::CPU).then(|| device.to_string()),
    }
}
