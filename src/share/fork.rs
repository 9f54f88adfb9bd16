//! What a forked child does not have of its parent.
//!
//! Comes in: a descriptor, state. Goes out: a [`Descriptor`] that is closed in every child as soon as it is forked, so that the end of the process ends its connections, whoever else lives
//! on; state [`OfProcess`] that a child does not see. Never here: locks; the handler of a fork runs where nothing but system calls may be made.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use arc_swap::{ArcSwapOption, Guard};

use crate::error::{Error, ErrorKind, Result};

/// How many sockets a process may have for sharing, listening one and connections together.
const NUM_SLOTS: usize = 1024;

const EMPTY: RawFd = -1;

/// The descriptors to close in a child.
static SLOTS: [AtomicI32; NUM_SLOTS] = [const { AtomicI32::new(EMPTY) }; NUM_SLOTS];

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// A descriptor of the process that made it, and of no other.
#[derive(Debug)]
pub(super) struct Descriptor {
    descriptor: ManuallyDrop<OwnedFd>,
    slot: &'static AtomicI32,
    process: u32,
}

impl Descriptor {
    /// Takes the descriptor.
    ///
    /// # Errors
    /// `ResourcesExhausted` when the process has too many.
    pub(super) fn try_new(descriptor: OwnedFd) -> Result<Self> {
        register();
        let number = descriptor.as_raw_fd();
        let free = |slot: &&AtomicI32| {
            let taken = slot.compare_exchange(EMPTY, number, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        };
        let slot = SLOTS.iter().find(free).ok_or_else(|| {
            let text = format!("a process may share with {NUM_SLOTS} others at a time");
            Error::new(ErrorKind::ResourcesExhausted, text)
        })?;
        Ok(Self {
            descriptor: ManuallyDrop::new(descriptor),
            slot,
            process: std::process::id(),
        })
    }

    /// Whether this process made it. In a forked child its number may belong to something else.
    pub(super) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// The descriptor, for system calls.
    ///
    /// # Errors
    /// `Internal` in a forked child.
    pub(super) fn get(&self) -> Result<BorrowedFd<'_>> {
        match self.is_ours() {
            true => Ok(self.descriptor.as_fd()),
            false => Err(Error::internal("a connection of the parent was used")),
        }
    }
}

impl Drop for Descriptor {
    #[expect(unsafe_code, reason = "in a forked child the number is not ours")]
    fn drop(&mut self) {
        if self.is_ours() {
            // First, so that no child closes the number when it has become another's.
            self.slot.store(EMPTY, Ordering::Release);
            // SAFETY: not used any more.
            unsafe { ManuallyDrop::drop(&mut self.descriptor) };
        }
    }
}

#[expect(unsafe_code, reason = "only the C library tells of forks")]
fn register() {
    if REGISTERED.swap(true, Ordering::AcqRel) {
        return;
    }
    // SAFETY: the handler makes system calls only, and is never unloaded: Python does not unload extensions.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(close_all)) } != 0;
    if failed {
        // Children would keep connections until they end themselves; the next caller tries again.
        REGISTERED.store(false, Ordering::Release);
    }
}

/// Runs in a child, before anything else does.
#[expect(unsafe_code, reason = "closes by number")]
extern "C" fn close_all() {
    for slot in &SLOTS {
        let number = slot.swap(EMPTY, Ordering::AcqRel);
        if number != EMPTY {
            // SAFETY: the child has the number from its parent, and whoever owned it there leaves it alone here.
            unsafe { libc::close(number) };
        }
    }
}

/// State of one process. A forked child begins with none: that of its parent, whose locks may be held by threads that the child does not have, is left alone.
pub(super) struct OfProcess<T>(ArcSwapOption<(u32, T)>);

impl<T> OfProcess<T> {
    pub(super) const fn new() -> Self {
        Self(ArcSwapOption::const_empty())
    }

    /// The state of this process, made now if there is none.
    pub(super) fn get(&self, make: impl FnOnce() -> T) -> Arc<(u32, T)> {
        let process = std::process::id();
        let known = self.0.load();
        if let Some(state) = known.as_ref().filter(|state| state.0 == process) {
            return Arc::clone(state);
        }
        let fresh = Arc::new((process, make()));
        // Two threads may be here at once: the first to store wins, the other takes what it finds.
        let before = self.0.compare_and_swap(&known, Some(Arc::clone(&fresh)));
        match Guard::into_inner(before) {
            Some(state) if state.0 == process => state,
            parent => {
                std::mem::forget(parent);
                fresh
            }
        }
    }
}
