//! Who may write to a storage.
//!
//! Comes in: consumers that want to write, and the wish to make a grid of the storage, which must never change again. Goes out: guards, or the refusal. Never here: locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Storage;
use crate::error::{Error, Result};

/// In place of a number of writers: there will be none any more.
const FROZEN: usize = usize::MAX;

/// From this number on what is above it counts those that make grids of the storage and are not done: meanwhile nobody may write.
const FREEZING: usize = 1 << (usize::BITS - 1);

/// The number of those that may write, or that of those that make grids, or `FROZEN`.
#[derive(Debug)]
pub(super) struct Access(AtomicUsize);

impl Access {
    pub(super) fn writable() -> Self {
        Self(AtomicUsize::new(0))
    }

    pub(super) fn frozen() -> Self {
        Self(AtomicUsize::new(FROZEN))
    }

    /// Whether nobody writes and no grid has it.
    pub(super) fn is_unused(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    fn change(&self, change: impl FnMut(usize) -> Option<usize>) -> Result<usize, usize> {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, change)
    }

    fn enter(&self) -> bool {
        let more = |count| (count < FREEZING).then(|| count + 1);
        self.change(more).is_ok()
    }

    /// Begins to end all writing; `Err` with the number of those that may write.
    fn freeze(&self) -> Result<(), usize> {
        let begun = self.change(|count| match count {
            0 => Some(FREEZING + 1),
            FROZEN => Some(FROZEN),
            count => (count > FREEZING).then(|| count + 1),
        });
        begun.map(drop)
    }

    /// Ends all writing for good, or leaves that to others who have begun, too.
    fn end(&self, is_done: bool) {
        let ended = self.change(|count| {
            Some(match count {
                FROZEN => FROZEN,
                _ if is_done => FROZEN,
                count if count > FREEZING + 1 => count - 1,
                // Nobody has seen the memory as part of a grid.
                _ => 0,
            })
        });
        debug_assert!(ended.is_ok());
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
        self.access.0.load(Ordering::Acquire) >= FREEZING
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
        self.access.freeze().map_err(refused)?;
        let done = work();
        self.access.end(done.is_ok());
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_fails_to_make_a_grid_leaves_that_of_another_alone() {
        let access = Access::writable();
        access.freeze().unwrap();
        access.freeze().unwrap();
        assert!(!access.enter());
        access.end(true);
        access.end(false);
        assert!(!access.enter());
        assert_eq!(access.0.into_inner(), FROZEN);
    }

    #[test]
    fn writing_goes_on_once_all_have_failed_and_not_before() {
        let access = Access::writable();
        access.freeze().unwrap();
        access.freeze().unwrap();
        access.end(false);
        assert!(!access.enter());
        access.end(false);
        assert!(access.enter());
        assert_eq!(access.freeze(), Err(1));
    }
}
