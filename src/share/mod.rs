//! Grids that this process keeps open, handles that name their tiles across process borders, and memory that processes share.
//!
//! Comes in: grids to publish, handles to open. Goes out: tiles, of this process or over the memory of another one of this host, or the precise reason why there is none: the grid was
//! dropped or its process ended (`PartitionLost`), or it lives on another host (`NotLocal`). Read on in `handle.rs` (what crosses the border), `remote.rs` (tiles by their handles), `segment.rs`
//! (the memory), `broker.rs` (its owner), `reader.rs` (the others), `grids.rs` (whole grids). Never here: ownership of a grid (only weak references), a lock that a fork could leave locked (the
//! child would wait for it forever), memory that somebody can still change.
//!
//! Grid ids are random and grids never change. So whoever has a grid of the right id has the right data, also a forked child with the memory of its parent.

mod grids;
mod handle;
#[cfg(test)]
#[cfg(all(feature = "serve", target_os = "linux"))]
mod hostile;
#[cfg(any(feature = "parquet", target_os = "linux"))]
pub(crate) mod ipc;
#[cfg(feature = "parquet")]
mod map;
mod remote;
#[cfg(feature = "serve")]
mod statistics;

#[cfg(target_os = "linux")]
mod broker;
#[cfg(target_os = "linux")]
mod fork;
#[cfg(target_os = "linux")]
mod listing;
#[cfg(target_os = "linux")]
mod reader;
#[cfg(target_os = "linux")]
mod sealed;
#[cfg(target_os = "linux")]
mod segment;
#[cfg(target_os = "linux")]
mod socket;
#[cfg(target_os = "linux")]
mod tile;
#[cfg(target_os = "linux")]
mod wire;

use std::sync::{Arc, Weak};
#[cfg(feature = "serve")]
use std::time::Duration;

use arc_swap::ArcSwapOption;

pub use grids::{attach, gathered, keep, spread, to_shared};
pub use handle::{Handle, Incarnation};
#[cfg(any(feature = "parquet", target_os = "linux"))]
pub use ipc::schema_of_stream;
#[cfg(feature = "parquet")]
pub use map::map_unnamed;
pub use remote::RemoteTile;
#[cfg(feature = "serve")]
pub(crate) use statistics::{Heard, told};
#[cfg(target_os = "linux")]
pub use tile::SharedTile;

use crate::error::{Error, ErrorKind, Result, format_position};
use crate::grid::{GridId, PartitionGrid, Region, Tile};
use crate::location::Location;

const NUM_BUCKETS: usize = 1024;

/// A grid that others may ask for.
#[derive(Debug, Clone)]
struct Published {
    id: GridId,
    grid: Weak<PartitionGrid>,
    /// Of a grid that is lent: how many bytes copies of such tiles may have.
    lent: Option<u64>,
}

/// The grids of one bucket; never changed, only replaced.
type Bucket = Vec<Published>;

/// The published grids, spread by id. `publish` replaces one bucket without what is dead in it, `find` reads one.
static BUCKETS: [ArcSwapOption<Bucket>; NUM_BUCKETS] =
    [const { ArcSwapOption::const_empty() }; NUM_BUCKETS];

/// Makes the grid known to `open` and `find` of this process, for as long as somebody else keeps it. Publishing again changes nothing.
///
/// Copies one bucket of 1024: constant time up to some thousand grids that live at once. The entries of dropped grids in that bucket go away with it.
pub fn publish(grid: &Arc<PartitionGrid>) {
    published(grid, None);
}

/// As [`publish`], of a grid that others shall read for long: a tile in private memory that another process opens lies in shared memory from then on, and not in two places; what this process hands out of
/// it later has other addresses. Where that cannot be (tiles of files, for one) others read copies, as of any grid; those of lent grids may have `max_copied_bytes` together.
pub fn lend(grid: &Arc<PartitionGrid>, max_copied_bytes: u64) {
    published(grid, Some(max_copied_bytes));
}

fn published(grid: &Arc<PartitionGrid>, lent: Option<u64>) {
    bucket(grid.id()).rcu(|old| {
        let old = old.as_deref().map_or(&[][..], Vec::as_slice);
        let is_it = |known: &Published| std::ptr::eq(known.grid.as_ptr(), Arc::as_ptr(grid));
        let before = old.iter().find(|known| is_it(known));
        let entry = Published {
            id: grid.id(),
            grid: Arc::downgrade(grid),
            lent: lent.or_else(|| before?.lent),
        };
        let others = old
            .iter()
            .filter(|known| known.grid.strong_count() > 0 && !is_it(known));
        Some(Arc::new(others.cloned().chain([entry]).collect::<Bucket>()))
    });
}

/// The published grid of the given id, unless it was dropped.
#[must_use]
pub fn find(id: GridId) -> Option<Arc<PartitionGrid>> {
    let entries = bucket(id).load();
    let mut same = entries.as_deref()?.iter().filter(|known| known.id == id);
    same.find_map(|known| known.grid.upgrade())
}

/// Of a grid that is lent: how many bytes copies of such tiles may have.
#[cfg(target_os = "linux")]
fn lent(id: GridId) -> Option<u64> {
    let entries = bucket(id).load();
    let mut same = entries.as_deref()?.iter().filter(|known| known.id == id);
    same.find_map(|known| known.lent.filter(|_| known.grid.strong_count() > 0))
}

/// Bytes of copies of tiles of lent grids ([`lend`]) that other processes have open, and that are in memory beside these.
#[must_use]
pub fn copied_bytes() -> u64 {
    #[cfg(target_os = "linux")]
    return broker::copied_bytes();
    #[cfg(not(target_os = "linux"))]
    0
}

/// The handle of the tile at a position: owned by this process, or the one by which this process has the tile. Publishes the grid if it is not.
///
/// # Errors
/// `NotFound` for a position outside the grid, `Internal` when the operating system gives no random bytes.
pub fn handle(grid: &Arc<PartitionGrid>, position: &[usize]) -> Result<Handle> {
    let tile = grid.tile(position)?;
    Ok(of_here(grid)?(position.to_vec(), tile))
}

/// The handles of all tiles in row-major order, as [`handle`] gives them. Publishes the grid if it is not.
///
/// # Errors
/// `Internal` when the operating system gives no random bytes.
pub fn handles(grid: &Arc<PartitionGrid>) -> Result<impl Iterator<Item = Handle> + '_> {
    let here = of_here(grid)?;
    let tiles = grid.geometry().positions().zip(grid.tiles());
    Ok(tiles.map(move |(position, tile)| here(position, tile)))
}

/// The owner of a tile of this process, in whose memory it is: that of a device, where it is there.
fn of_tile(owner: &Location, tile: &Tile) -> Location {
    let devices = tile
        .locations()
        .into_iter()
        .map(|location| location.device());
    match devices
        .into_iter()
        .find(|device| !device.is_host_readable())
    {
        Some(device) => Location::new(owner.host(), owner.process(), device),
        None => owner.clone(),
    }
}

/// What makes handles of positions and tiles.
fn of_here(grid: &Arc<PartitionGrid>) -> Result<impl Fn(Vec<usize>, &Tile) -> Handle + use<>> {
    if find(grid.id()).is_none() {
        publish(grid);
    }
    let (id, incarnation, owner) = (grid.id(), Incarnation::current()?, Location::here());
    Ok(move |position, tile: &Tile| match remote::handle_of(tile) {
        // Of a grid that was attached: its owner has it at the same position.
        Some(known) if known.grid == id => known.clone(),
        _ => Handle {
            grid: id,
            position,
            incarnation,
            owner: of_tile(&owner, tile),
        },
    })
}

/// The tile that a handle names: of this process, or, mapped and not copied, of another one of this user and host.
///
/// The other process must let its handles be opened ([`serve`]). A tile that is not in shared memory there ([`to_shared`]) is copied once, for all who read it at a time. What is open stays
/// readable when the other process ends.
///
/// # Errors
/// `PartitionLost` when the grid was dropped or its process ended; `NotLocal` when it is on another host; `NotFound` when the grid has no such position; `ResourcesExhausted` when the other
/// process does not answer within seconds; `PermissionDenied` when it is another user's; `InvalidData` or `Protocol` when what it sends is not safe to read.
pub fn open(handle: &Handle) -> Result<Tile> {
    Ok(open_region(handle)?.0)
}

/// As [`open`], with the place of the tile in its grid.
///
/// # Errors
/// As [`open`].
pub fn open_region(handle: &Handle) -> Result<(Tile, Region)> {
    if let Some(grid) = find(handle.grid) {
        let tile = grid.tile(&handle.position)?.clone();
        return Ok((tile, grid.geometry().region(&handle.position)?));
    }
    acquire(handle)
}

/// The tile of a handle whose grid is in another process, whatever this one has under its id.
///
/// # Errors
/// As [`open`].
pub(crate) fn acquire(handle: &Handle) -> Result<(Tile, Region)> {
    if handle.incarnation == Incarnation::current()? {
        return Err(dropped(handle.grid).with_position(&handle.position));
    }
    elsewhere(handle)
}

#[cfg(target_os = "linux")]
fn elsewhere(handle: &Handle) -> Result<(Tile, Region)> {
    let tile = reader::acquire(handle)?;
    let region = tile.region().cloned();
    let region = region.ok_or_else(|| Error::internal("a tile of another process has a region"))?;
    Ok((Tile::new(tile), region))
}

#[cfg(not(target_os = "linux"))]
fn elsewhere(handle: &Handle) -> Result<(Tile, Region)> {
    Err(not_local(handle))
}

/// How long an owner may take to answer where something else can be done without it.
#[cfg(feature = "serve")]
pub(crate) const GLANCE: Duration = Duration::from_millis(500);

/// Looks whether the owner of a handle answers here, so that processes like this one can open it; takes twice its patience at most.
///
/// # Errors
/// `PartitionLost` when it is not there, also for who is in another namespace of networks; `PermissionDenied` when it is another user's; `ResourcesExhausted` when it does not answer in time; `NotLocal` outside Linux.
#[cfg(feature = "serve")]
pub(crate) fn answers(handle: &Handle, patience: Duration) -> Result<()> {
    #[cfg(target_os = "linux")]
    return reader::answers(handle, patience);
    #[cfg(not(target_os = "linux"))]
    {
        let _none_is_needed = patience;
        Err(not_local(handle))
    }
}

/// Lets other processes of this user and host open the handles of this one, from now on. Starts a thread, once; whoever sends a handle away calls it before.
///
/// # Errors
/// `Storage` or `ResourcesExhausted` when the system gives no socket or thread. Outside Linux it does nothing, and handles open where they were made.
pub fn serve() -> Result<()> {
    #[cfg(target_os = "linux")]
    broker::serve()?;
    Ok(())
}

/// A process that shares tiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharingProcess {
    /// Its id; 0 when it is in a namespace that this process does not see.
    pub process: u32,
    /// The segments that it has made and that are still there; `None` when it does not answer.
    pub segments: Option<Vec<SharedSegment>>,
}

/// One segment of shared memory, as its owner lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedSegment {
    /// The grid for which it was made.
    pub grid: GridId,
    /// The position in that grid.
    pub position: Vec<usize>,
    /// Its bytes, once, however many processes map it.
    pub segment_bytes: u64,
    /// Whether it is a copy of a tile in private memory, which goes when nobody leases it any more.
    pub is_copy: bool,
    /// The ids of the processes that lease it beside its owner, once for each lease.
    pub readers: Vec<u32>,
}

/// The processes of this user on this host that let their handles be opened.
///
/// # Errors
/// `Storage` or `ResourcesExhausted` when the system does not tell; `Unsupported` outside Linux.
pub fn sharing_processes() -> Result<Vec<SharingProcess>> {
    #[cfg(target_os = "linux")]
    return listing::sharing_processes();
    #[cfg(not(target_os = "linux"))]
    Err(grids::only_linux())
}

/// This process had the grid and has it no more.
fn dropped(grid: GridId) -> Error {
    let message = format!("the grid was dropped, its tile is gone: grid {grid}");
    Error::new(ErrorKind::PartitionLost, message)
        .with_hint("keep the grid, or the `__partitioned__` dictionary made from it, alive while handles are in use")
}

/// Nobody answers under the name of the owner.
#[cfg(target_os = "linux")]
fn gone(handle: &Handle) -> Error {
    if handle.owner.host() != crate::location::host_address() {
        return not_local(handle);
    }
    let message = format!(
        "the process that had the tile has ended, or cannot be reached from here: {}, grid {}",
        handle.owner, handle.grid
    );
    Error::new(ErrorKind::PartitionLost, message)
        .with_position(&handle.position)
        .with_hint("make the grid again in a process that lives as long as its handles; processes in other network namespaces (containers) do not see each other")
}

fn not_local(handle: &Handle) -> Error {
    let message = format!(
        "the tile lives in another process, {}, and this one ({}) has no copy of grid {}",
        handle.owner,
        Location::here(),
        handle.grid
    );
    let position = format_position(&handle.position);
    Error::new(ErrorKind::NotLocal, message)
        .with_position(&handle.position)
        .with_hint(format!(
            "open the handle in the process that made it, or in another one on its host, or send the batch of tile {position} itself"
        ))
}

fn bucket(id: GridId) -> &'static ArcSwapOption<Bucket> {
    let [low, high, ..] = id.bits().to_le_bytes();
    let number = usize::from(u16::from_le_bytes([low, high])) % NUM_BUCKETS;
    // The remainder is always a bucket; the first one stands in for an index that the compiler cannot check.
    BUCKETS.get(number).unwrap_or(&BUCKETS[0])
}
