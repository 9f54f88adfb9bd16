//! The other side: opens handles of another process of this host.
//!
//! Comes in: a handle. Goes out: its tile over the owner's memory, mapped and not copied; or, within seconds, the reason why not. One connection for each owner, as long as anything of it is
//! in use: when it ends, so do the leases, and what is mapped stays. Never here: descriptors that are not sealed; connections of a parent in a forked child.

use std::collections::HashMap;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use memmap2::Mmap;

use super::fork::{Descriptor, OfProcess};
use super::handle::{Handle, Incarnation};
use super::segment;
use super::socket;
use super::tile::{Mapped, SharedTile};
use super::wire::{Grant, MAX_PACKET_BYTES, Reply, Request, strange};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::GridId;
use crate::location::Location;

/// How long an owner may take to accept, and to greet.
const GREETING: Duration = Duration::from_secs(5);

/// How long an owner may be silent afterwards; it says every second that it works.
const SILENCE: Duration = Duration::from_secs(5);

static READER: OfProcess<Owners> = OfProcess::new();

type Owners = Mutex<HashMap<Incarnation, Arc<Owner>>>;

/// A grid, and a position in it.
type Key = (GridId, Vec<usize>);

/// Another process, as this one knows it.
#[derive(Default)]
struct Owner {
    /// Locked by whoever asks, from the question to the answer.
    connection: Mutex<Weak<Connection>>,
    /// What is open.
    tiles: Mutex<HashMap<Key, Weak<SharedTile>>>,
}

struct Connection {
    socket: Descriptor,
    /// Not after an answer that did not come, or made no sense: a late one would be taken for the next.
    in_order: AtomicBool,
    /// Leases that ended while there was no room for a packet.
    ended: Mutex<Vec<u64>>,
}

/// What the mapped memory keeps: when it goes, the owner is told.
struct Lease {
    connection: ManuallyDrop<Arc<Connection>>,
    number: u64,
}

/// The memory of a segment, and the lease. The memory goes first.
struct Leased {
    memory: Mmap,
    _lease: Lease,
}

impl AsRef<[u8]> for Leased {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

/// Why a question has no answer.
enum Fault {
    /// The connection ended.
    Ended,
    /// Anything else.
    Other(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tile of a handle of another process, which is asked if the tile is not open already.
///
/// # Errors
/// `PartitionLost` when the owner has ended, or has dropped the grid; `NotLocal` when it is on another host; `PermissionDenied` when it is another user's; `ResourcesExhausted` when it does
/// not answer; `InvalidData` and `Protocol` when what it sends is not what partgrid sends; and whatever it has to say itself.
pub(super) fn acquire(handle: &Handle) -> Result<Arc<SharedTile>> {
    let owner = owner_of(handle.incarnation);
    let key = (handle.grid, handle.position.clone());
    let known = || locked(&owner.tiles).get(&key).and_then(Weak::upgrade);
    if let Some(tile) = known() {
        return Ok(tile);
    }
    let mut connection = locked(&owner.connection);
    // Somebody else may have opened it while this thread waited.
    if let Some(tile) = known() {
        return Ok(tile);
    }
    let usable = connection.upgrade();
    let usable = usable.filter(|known| known.in_order.load(Ordering::Acquire));
    let used_before = usable.is_some();
    let found = match usable {
        Some(known) => asked(&known, handle),
        None => fresh(handle, &mut connection),
    };
    let found = match found {
        // It may have been ended for a reason of its own.
        Err(Fault::Ended) if used_before => fresh(handle, &mut connection),
        found => found,
    };
    let tile = Arc::new(found.map_err(|fault| match fault {
        Fault::Ended => super::gone(handle),
        Fault::Other(error) => error,
    })?);
    let mut tiles = locked(&owner.tiles);
    tiles.retain(|_, tile| tile.strong_count() > 0);
    tiles.insert(key, Arc::downgrade(&tile));
    Ok(tile)
}

fn owner_of(incarnation: Incarnation) -> Arc<Owner> {
    let state = READER.get(Owners::default);
    let mut owners = locked(&state.1);
    owners.retain(|known, owner| {
        let is_used = || locked(&owner.connection).strong_count() > 0;
        *known == incarnation || Arc::strong_count(owner) > 1 || is_used()
    });
    Arc::clone(owners.entry(incarnation).or_default())
}

/// Asks by a new connection.
fn fresh(handle: &Handle, known: &mut Weak<Connection>) -> Result<SharedTile, Fault> {
    let socket = greeted(handle.incarnation, GREETING)?;
    socket::set_patience(&socket, SILENCE, GREETING)?;
    let connection = Arc::new(Connection {
        socket,
        in_order: AtomicBool::new(true),
        ended: Mutex::default(),
    });
    *known = Arc::downgrade(&connection);
    asked(&connection, handle)
}

/// A socket at whose other end is the owner.
fn greeted(incarnation: Incarnation, patience: Duration) -> Result<Descriptor, Fault> {
    let socket = socket::connect(&incarnation.socket_name(), patience)?.ok_or(Fault::Ended)?;
    socket::same_user(&socket)?;
    let proof = match greet(&socket, patience) {
        Ok(proof) => proof,
        Err(error) if error.kind() == ErrorKind::PartitionLost => {
            return Err(Fault::Ended);
        }
        Err(error) => return Err(Fault::Other(error)),
    };
    if proof != incarnation.proof() {
        let text = "it is not the process that gave the handle";
        return Err(Fault::Other(strange(text)));
    }
    Ok(socket)
}

/// Says hello to the owner of a handle, which has so long to accept, and as long to greet.
///
/// # Errors
/// As [`acquire`].
#[cfg(feature = "serve")]
pub(super) fn answers(handle: &Handle, patience: Duration) -> Result<()> {
    match greeted(handle.incarnation, patience) {
        Ok(_) => Ok(()),
        Err(Fault::Ended) => Err(super::gone(handle)),
        Err(Fault::Other(error)) => Err(error),
    }
}

/// Says hello, and returns what the owner says to prove itself.
///
/// # Errors
/// `PartitionLost` when the connection ends; else as [`acquire`].
pub(super) fn greet(socket: &Descriptor, patience: Duration) -> Result<u64> {
    socket::set_patience(socket, patience, patience)?;
    match ask(socket, &Request::Hello)? {
        Reply::Hello { proof } => Ok(proof),
        Reply::Failure(error) => Err(error),
        _ => Err(strange("no greeting")),
    }
}

/// Sends a request and waits for the first reply.
pub(super) fn ask(socket: &Descriptor, request: &Request) -> Result<Reply> {
    socket::send(socket, &request.bytes(), None, true).map_err(|error| ended_or(&error))?;
    Ok(next_reply(socket)?.0)
}

/// The next reply, with what came with it.
pub(super) fn next_reply(socket: &Descriptor) -> Result<(Reply, Vec<OwnedFd>)> {
    let mut packet = vec![0; MAX_PACKET_BYTES];
    let received = socket::receive(socket, &mut packet);
    let (length, descriptors) = received.map_err(|error| ended_or(&error))?;
    match packet.get(..length) {
        Some([]) | None => Err(ended()),
        Some(bytes) => Ok((Reply::read(bytes)?, descriptors)),
    }
}

fn ended() -> Error {
    Error::new(
        ErrorKind::PartitionLost,
        "the connection to the owner ended",
    )
}

fn ended_or(error: &io::Error) -> Error {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
    match error.kind() {
        BrokenPipe | ConnectionReset | NotConnected => ended(),
        io::ErrorKind::InvalidData => strange(&error.to_string()),
        _ => socket::failed(error),
    }
}

fn asked(connection: &Arc<Connection>, handle: &Handle) -> Result<SharedTile, Fault> {
    let result = exchange(connection, handle);
    if !matches!(result, Ok(Answer::Refused(_) | Answer::Tile(..))) {
        connection.in_order.store(false, Ordering::Release);
    }
    match result? {
        Answer::Ended => Err(Fault::Ended),
        Answer::Refused(error) => Err(Fault::Other(error)),
        Answer::Tile(grant, descriptors) => Ok(opened(connection, grant, descriptors, handle)?),
    }
}

enum Answer {
    Tile(Grant, Vec<OwnedFd>),
    Refused(Error),
    Ended,
}

fn exchange(connection: &Connection, handle: &Handle) -> Result<Answer> {
    connection.tell_ended();
    let request = Request::Acquire {
        grid: handle.grid,
        position: handle.position.clone(),
    };
    let is_end = |error: &Error| error.kind() == ErrorKind::PartitionLost;
    let sent = socket::send(&connection.socket, &request.bytes(), None, true);
    match sent.map_err(|error| ended_or(&error)) {
        Err(error) if is_end(&error) => return Ok(Answer::Ended),
        sent => sent?,
    }
    loop {
        let (reply, descriptors) = match next_reply(&connection.socket) {
            Err(error) if is_end(&error) => return Ok(Answer::Ended),
            received => received?,
        };
        match reply {
            Reply::Working => {}
            Reply::Segment(grant) => return Ok(Answer::Tile(grant, descriptors)),
            Reply::Failure(error) => return Ok(Answer::Refused(error)),
            _ => return Err(strange("no tile")),
        }
    }
}

fn opened(
    connection: &Arc<Connection>,
    grant: Grant,
    mut descriptors: Vec<OwnedFd>,
    handle: &Handle,
) -> Result<SharedTile> {
    // From here on the lease ends whenever this goes.
    let lease = Lease {
        connection: ManuallyDrop::new(Arc::clone(connection)),
        number: grant.lease,
    };
    let (Some(descriptor), true) = (descriptors.pop(), descriptors.is_empty()) else {
        return Err(strange("a tile comes with one descriptor"));
    };
    let kept = |memory| {
        Bytes::from_owner(Leased {
            memory,
            _lease: lease,
        })
    };
    let content = segment::receive(descriptor, grant.segment_bytes, kept)?;
    let owner = Location::clone(&handle.owner);
    SharedTile::received(Mapped::received(content, owner), grant.part, grant.start)
}

impl Connection {
    /// Tells the owner of leases that ended, if there is room for a packet; else the next caller does.
    fn tell_ended(&self) {
        let mut ended = locked(&self.ended);
        if ended.is_empty() {
            return;
        }
        let kept = ended.len().saturating_sub(Request::MAX_RELEASED);
        let part = ended.split_off(kept);
        let packet = Request::Release(part.clone()).bytes();
        if socket::send(&self.socket, &packet, None, false).is_err() {
            ended.extend(part);
        }
    }
}

impl Drop for Lease {
    #[expect(
        unsafe_code,
        reason = "the connection of a parent stays as it is, locks and all"
    )]
    fn drop(&mut self) {
        if !self.connection.socket.is_ours() {
            return;
        }
        // SAFETY: not used any more.
        let connection = unsafe { ManuallyDrop::take(&mut self.connection) };
        // The last lease ends with the connection.
        if Arc::strong_count(&connection) > 1 {
            locked(&connection.ended).push(self.number);
            connection.tell_ended();
        }
    }
}
