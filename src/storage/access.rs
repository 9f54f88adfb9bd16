//! Who may write to a storage.
//!
//! Comes in: consumers that want to write, and the wish to make a grid of the storage, which must never change again. Goes out: guards, or the refusal. Never here: locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Storage;
use crate::error::{Error, Result};

/// In place of a number of writers: there will be none any more.
const FROZEN: usize = usize::MAX;

/// The number of those that may write, or `FROZEN`.
#[derive(Debug)]
pub(super) struct Access(AtomicUsize);

impl Access {
    pub(super) fn writable() -> Self {
        Self(AtomicUsize::new(0))
    }

    pub(super) fn frozen() -> Self {
        Self(AtomicUsize::new(FROZEN))
    }

    fn enter(&self) -> bool {
        let more = |count| match count {
            FROZEN => None,
            count => Some(count + 1),
        };
        let entered = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        entered.is_ok()
    }

    /// Whether it was not frozen before; `Err` with the number of those that may write.
    fn freeze(&self) -> Result<bool, usize> {
        let frozen = self
            .0
            .compare_exchange(0, FROZEN, Ordering::AcqRel, Ordering::Acquire);
        match frozen {
            Ok(_) => Ok(true),
            Err(FROZEN) => Ok(false),
            Err(count) => Err(count),
        }
    }
}

/// Somebody may write to a storage, which lives as long as this does.
#[derive(Debug)]
pub struct WriteGuard(Arc<Storage>);

impl Drop for WriteGuard {
    fn drop(&mut self) {
        self.0.access.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Storage {
    /// The right to write to the elements until the guard is dropped; `None` when they belong to a grid.
    #[must_use]
    pub fn try_write(self: &Arc<Self>) -> Option<WriteGuard> {
        self.access.enter().then(|| WriteGuard(Arc::clone(self)))
    }

    /// Whether the elements belong to a grid and can never be written any more.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.access.0.load(Ordering::Acquire) == FROZEN
    }

    /// Ends all writing for good, if `work` succeeds, which may rely on it already.
    ///
    /// # Errors
    /// `InvalidArgument` while somebody may write; those of `work`.
    pub(super) fn frozen_for<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let refused = |count| {
            Error::invalid_argument(format!(
                "a storage becomes part of a grid, which never changes, when nothing can write to it any more; {count} of its views can"
            ))
            .with_hint("delete the arrays and memoryviews over it first, or copy it: pg.from_numpy(numpy.array(storage, order=\"F\"))")
        };
        let is_new = self.access.freeze().map_err(refused)?;
        let done = work();
        if is_new && done.is_err() {
            // Nobody has seen the memory as part of a grid.
            self.access.0.store(0, Ordering::Release);
        }
        done
    }
}
