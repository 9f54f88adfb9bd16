//! The owner's side: hands segments to other processes, and keeps what they lease.
//!
//! Comes in: connections of processes of the same user. Goes out: descriptors of segments; a tile in private memory is copied into one, once for all who lease it at a time. Starts with the
//! first handle that leaves the process: one thread that accepts, and one for each reader. A lease ends when the reader says so, or when its connection ends, however that comes about.
//! Never here: what keeps a grid alive; anything of a parent in a forked child.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::fork::{Descriptor, OfProcess};
use super::handle::Incarnation;
use super::socket::{self, Peer};
use super::tile::{Mapped, Purpose, SharedTile};
use super::wire::{Grant, MAX_PACKET_BYTES, Reply, Request, strange};
use super::{SharedSegment, find, lent};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::{GridId, Tile, TileData, TileMemory};

/// A process may have so many readers at a time.
const MAX_READERS: usize = 512;

/// How long a reader may take for its first words, and for taking an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a reader that waits hears that its tile is on the way.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// How long nobody is accepted when there are no descriptors.
const PAUSE: Duration = Duration::from_millis(10);

/// Tiles that lie in segments keep these for the next reader, with a descriptor each, up to one of so many that the process may have; of others the next reader takes a new segment.
const DESCRIPTORS_SHARE: u64 = 4;

const FOREVER: Duration = Duration::ZERO;

static BROKER: OfProcess<Arc<Broker>> = OfProcess::new();

/// What the threads of this process share. A forked child has its own, so that its locks are never held by a thread that it does not have.
#[derive(Default)]
struct Broker {
    started: Mutex<bool>,
    num_readers: AtomicUsize,
    next_lease: AtomicU64,
    leases: Mutex<HashMap<u64, Lease>>,
    /// Copies of tiles in private memory, by the address of the tile, which is taken as long as the entry is there.
    copies: Mutex<HashMap<usize, Arc<Slot>>>,
    /// Bytes of lent tiles of which copies are in the making.
    copying_bytes: AtomicU64,
    /// All segments that were made here and are still there.
    segments: Mutex<Vec<Weak<Mapped>>>,
}

/// A reader's right to a segment.
struct Lease {
    mapped: Arc<Mapped>,
    reader: u32,
}

/// Bytes that count as copied as long as it is there.
struct Copying<'a> {
    all: &'a AtomicU64,
    bytes: u64,
}

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Where the copy of one tile is kept.
struct Slot {
    tile: Weak<dyn TileData>,
    /// Locked while the copy is made, so that it is made once.
    copy: Mutex<Weak<Mapped>>,
}

/// Lets other processes of this user open the handles of this one. Does nothing the second time.
///
/// # Errors
/// `Storage` or `ResourcesExhausted` when the system gives no socket or thread.
pub(super) fn serve() -> Result<()> {
    let state = BROKER.get(Arc::default);
    let broker = Arc::clone(&state.1);
    let mut started = locked(&broker.started);
    if *started {
        return Ok(());
    }
    let incarnation = Incarnation::current()?;
    let socket = socket::listen(&incarnation.socket_name())?;
    let accepting = Arc::clone(&broker);
    let run = move || accepting.accept(&socket, incarnation);
    start_thread("partgrid-share", run)?;
    *started = true;
    Ok(())
}

/// Takes note of a segment of this process, for lists.
pub(super) fn note(mapped: &Arc<Mapped>) {
    BROKER.get(Arc::default).1.note(mapped);
}

/// Bytes of copies of lent tiles that are there beside these.
pub(super) fn copied_bytes() -> u64 {
    BROKER.get(Arc::default).1.copied_bytes()
}

fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let made = thread::Builder::new().name(name.to_owned()).spawn(run);
    made.map(drop).map_err(|error| {
        let text = format!("no thread could be started: {error}");
        Error::new(ErrorKind::ResourcesExhausted, text).with_source(error)
    })
}

/// What a panic left is whole: every change of these maps is one call.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Broker {
    fn accept(self: &Arc<Self>, listening: &Descriptor, incarnation: Incarnation) {
        while listening.is_ours() {
            let Ok(accepted) = socket::accept(listening) else {
                // No descriptors are left for the moment.
                thread::sleep(PAUSE);
                continue;
            };
            let taken = Descriptor::try_new(accepted).and_then(|socket| {
                let peer = socket::same_user(&socket)?;
                Ok((socket, peer))
            });
            // Another user's is closed at once.
            let Ok((socket, peer)) = taken else {
                continue;
            };
            self.num_readers.fetch_add(1, Ordering::AcqRel);
            let reader = Reader {
                broker: Arc::clone(self),
                socket,
                peer,
            };
            if self.num_readers.load(Ordering::Acquire) > MAX_READERS {
                let text = format!("the owner shares with {MAX_READERS} processes already");
                reader.refuse(Error::new(ErrorKind::ResourcesExhausted, text));
                continue;
            }
            // Dropped, which ends the connection, when there is no thread.
            drop(start_thread("partgrid-lease", move || {
                reader.serve(incarnation);
            }));
        }
    }

    fn note(&self, mapped: &Arc<Mapped>) {
        let mut segments = locked(&self.segments);
        segments.retain(|segment| segment.strong_count() > 0);
        segments.push(Arc::downgrade(mapped));
    }

    /// The segment of a tile in private memory, copied now unless somebody leases it.
    fn copy_of(&self, tile: &Tile, grid: GridId, position: &[usize]) -> Result<Arc<Mapped>> {
        let slot = self.slot(tile.data());
        let mut copy = locked(&slot.copy);
        if let Some(mapped) = copy.upgrade() {
            return Ok(mapped);
        }
        let most = lent(grid);
        let purpose = most.map_or(Purpose::Copy, |_| Purpose::Lent);
        let bytes = tile.data().memory_bytes();
        let _copying = most.map(|most| self.copying(bytes, most)).transpose()?;
        let mapped = Mapped::publish(&tile.open()?, purpose)?;
        mapped.name.get_or_init(|| (grid, position.to_vec()));
        self.note(&mapped);
        *copy = Arc::downgrade(&mapped);
        if purpose == Purpose::Lent {
            self.settle(tile, &mapped);
        }
        Ok(mapped)
    }

    /// Has a tile lie in its segment, if it can, in place of its own memory.
    fn settle(&self, tile: &Tile, mapped: &Arc<Mapped>) {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let most = limit.unwrap_or(u64::MAX) / DESCRIPTORS_SHARE;
        let is_kept = (locked(&self.segments).len() as u64) < most;
        let kept = is_kept.then(|| Arc::clone(mapped) as Arc<dyn Any + Send + Sync>);
        let memory = TileMemory::new(mapped.content.batch.clone(), kept);
        mapped.settled.get_or_init(|| Arc::downgrade(&memory));
        tile.data().settle(memory);
    }

    /// Leave to copy a lent tile.
    ///
    /// # Errors
    /// `ResourcesExhausted` when copies of lent tiles would have more than they may.
    fn copying(&self, bytes: u64, most: u64) -> Result<Copying<'_>> {
        let all = &self.copying_bytes;
        let others = all.fetch_add(bytes, Ordering::AcqRel);
        let copying = Copying { all, bytes };
        let copied = self.copied_bytes().saturating_add(others);
        if copied.saturating_add(bytes) <= most {
            return Ok(copying);
        }
        let text = format!(
            "copies of tiles that processes of this host read may have {most} bytes, they have {copied}, and this one {bytes}"
        );
        Err(Error::new(ErrorKind::ResourcesExhausted, text).with_hint(
            "try again once others have let go of theirs, or raise limits.grids of the server",
        ))
    }

    fn copied_bytes(&self) -> u64 {
        let segments = locked(&self.segments);
        let segments = segments.iter().filter_map(Weak::upgrade);
        let lent = segments.filter(|mapped| mapped.purpose == Purpose::Lent && mapped.is_copy());
        lent.map(|mapped| mapped.content.segment_bytes).sum()
    }

    fn slot(&self, tile: &Arc<dyn TileData>) -> Arc<Slot> {
        let mut copies = locked(&self.copies);
        copies.retain(|_, slot| slot.tile.strong_count() > 0);
        let address = Arc::as_ptr(tile).addr();
        let slot = copies.entry(address).or_insert_with(|| {
            let copy = Mutex::new(Weak::new());
            let tile = Arc::downgrade(tile);
            Arc::new(Slot { tile, copy })
        });
        Arc::clone(slot)
    }

    fn list(&self) -> Vec<SharedSegment> {
        let segments: Vec<Arc<Mapped>> = {
            let segments = locked(&self.segments);
            segments.iter().filter_map(Weak::upgrade).collect()
        };
        let leases = locked(&self.leases);
        let entry = |mapped: &Arc<Mapped>| {
            let same = leases
                .values()
                .filter(|lease| Arc::ptr_eq(&lease.mapped, mapped));
            let mut readers: Vec<u32> = same.map(|lease| lease.reader).collect();
            readers.sort_unstable();
            let (grid, position) = mapped.name.get().cloned().unzip();
            SharedSegment {
                grid: grid.unwrap_or_else(|| GridId::from_bits(0)),
                position: position.unwrap_or_default(),
                segment_bytes: mapped.content.segment_bytes,
                is_copy: mapped.is_copy(),
                readers,
            }
        };
        segments.iter().map(entry).collect()
    }
}

/// One connection.
struct Reader {
    broker: Arc<Broker>,
    socket: Descriptor,
    peer: Peer,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.broker.num_readers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Reader {
    fn refuse(&self, error: Error) {
        drop(socket::set_patience(&self.socket, PATIENCE, PATIENCE));
        drop(self.reply(&Reply::Failure(error), None));
    }

    fn serve(self, incarnation: Incarnation) {
        let mut leases = HashSet::new();
        // An error ends the connection, and with it the leases.
        drop(self.answer_all(incarnation, &mut leases));
        let mut all = locked(&self.broker.leases);
        let ended: Vec<Lease> = leases
            .iter()
            .filter_map(|lease| all.remove(lease))
            .collect();
        drop(all);
        // Unmapped without the lock.
        drop(ended);
    }

    fn answer_all(&self, incarnation: Incarnation, leases: &mut HashSet<u64>) -> Result<()> {
        socket::set_patience(&self.socket, PATIENCE, PATIENCE)?;
        let mut packet = vec![0; MAX_PACKET_BYTES];
        match self.next(&mut packet) {
            Ok(Some(Request::Hello)) => {}
            Ok(_) => return Err(strange("no greeting")),
            Err(error) => {
                self.refuse(error.clone());
                return Err(error);
            }
        }
        let proof = incarnation.proof();
        self.reply(&Reply::Hello { proof }, None)?;
        socket::set_patience(&self.socket, FOREVER, PATIENCE)?;
        while let Some(request) = self.next(&mut packet)? {
            match request {
                Request::Hello => return Err(strange("two greetings")),
                Request::Acquire { grid, position } => match self.acquire(grid, &position) {
                    Ok((mapped, grant)) => {
                        leases.insert(grant.lease);
                        self.hand_over(&mapped, grant)?;
                    }
                    Err(error) => {
                        let error = error.with_position(&position);
                        self.reply(&Reply::Failure(error), None)?;
                    }
                },
                Request::Release(ended) => self.release(&ended, leases),
                Request::List => self.list()?,
            }
        }
        Ok(())
    }

    /// The next request; `None` at the end of the connection.
    fn next(&self, packet: &mut [u8]) -> Result<Option<Request>> {
        let received = socket::receive(&self.socket, packet);
        let (length, descriptors) = received.map_err(|error| socket::failed(&error))?;
        drop(descriptors);
        match packet.get(..length) {
            Some([]) | None => Ok(None),
            Some(bytes) => Request::read(bytes).map(Some),
        }
    }

    fn reply(&self, reply: &Reply, descriptor: Option<BorrowedFd<'_>>) -> Result<()> {
        let sent = socket::send(&self.socket, &reply.bytes(), descriptor, true);
        sent.map_err(|error| socket::failed(&error))
    }

    fn acquire(&self, id: GridId, position: &[usize]) -> Result<(Arc<Mapped>, Grant)> {
        let grid = find(id).ok_or_else(|| super::dropped(id))?;
        let tile = grid.tile(position)?;
        let data: &dyn Any = tile.data().as_ref();
        let own = data.downcast_ref::<SharedTile>();
        let own = own.filter(|tile| tile.mapped().file.is_some());
        let part = own.and_then(|tile| Some((tile.mapped(), tile.wire_part()?)));
        let (mapped, part) = match part {
            Some((mapped, part)) => (Arc::clone(mapped), part),
            None => (self.copied(tile, id, position)?, None),
        };
        let lease = self.broker.next_lease.fetch_add(1, Ordering::Relaxed);
        let entry = Lease {
            mapped: Arc::clone(&mapped),
            reader: self.peer.process,
        };
        locked(&self.broker.leases).insert(lease, entry);
        let grant = Grant {
            lease,
            segment_bytes: mapped.content.segment_bytes,
            start: grid.geometry().region(position)?.start().to_vec(),
            part,
        };
        Ok((mapped, grant))
    }

    /// Copies on another thread, and tells the reader meanwhile that it goes on.
    fn copied(&self, tile: &Tile, grid: GridId, position: &[usize]) -> Result<Arc<Mapped>> {
        thread::scope(|scope| {
            let (sender, receiver) = sync_channel(1);
            let copy = move || {
                let copied = self.broker.copy_of(tile, grid, position);
                drop(sender.send(copied));
            };
            let thread = thread::Builder::new().name("partgrid-copy".to_owned());
            let copying = thread.spawn_scoped(scope, copy).map_err(|error| {
                let text = format!("no thread could be started: {error}");
                Error::new(ErrorKind::ResourcesExhausted, text)
            })?;
            loop {
                match receiver.recv_timeout(HEARTBEAT) {
                    Ok(copied) => return copied,
                    // A reader that went away is noticed when it is answered.
                    Err(RecvTimeoutError::Timeout) => drop(self.reply(&Reply::Working, None)),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            drop(copying.join());
            Err(Error::internal("copying a tile gave up"))
        })
    }

    fn hand_over(&self, mapped: &Mapped, grant: Grant) -> Result<()> {
        let file = mapped.file.as_ref();
        let file = file.ok_or_else(|| Error::internal("a segment of this process has a file"))?;
        self.reply(&Reply::Segment(grant), Some(file.as_fd()))
    }

    fn release(&self, ended: &[u64], leases: &mut HashSet<u64>) {
        let own = ended.iter().filter(|lease| leases.remove(lease));
        let own: Vec<u64> = own.copied().collect();
        let mut all = locked(&self.broker.leases);
        let ended: Vec<Lease> = own.iter().filter_map(|lease| all.remove(lease)).collect();
        drop(all);
        // Unmapped without the lock.
        drop(ended);
    }

    fn list(&self) -> Result<()> {
        for segment in self.broker.list() {
            self.reply(&Reply::Entry(segment), None)?;
        }
        self.reply(&Reply::End, None)
    }
}
