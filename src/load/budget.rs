//! The memory of one load.
//!
//! Comes in: a limit, wishes for bytes. Goes out: leave to use them, when there is room. Who asks waits while others are at work; when nobody is, room can only come
//! from spilling, and the wish is refused. Never here: allocation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::error::{Error, ErrorKind, Result};

/// The bytes that a load may use, and those that it uses.
#[derive(Debug)]
pub(super) struct Budget {
    limit_bytes: u64,
    /// Whether one wish that is larger than the limit is granted when nobody is at work.
    lets_one: bool,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    used_bytes: u64,
    /// Reservations of work that is not done yet.
    at_work: usize,
}

/// Bytes that are in use; given back when dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
    at_work: bool,
}

impl Budget {
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            lets_one: false,
            state: Mutex::default(),
            freed: Notify::new(),
        }
    }

    /// The same, but one wish at a time may be larger than the limit, for work that cannot be made smaller.
    #[cfg(feature = "distributed")]
    pub(super) fn letting_one(limit_bytes: u64) -> Self {
        Self {
            lets_one: true,
            ..Self::new(limit_bytes)
        }
    }

    pub(super) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    #[cfg(test)]
    fn used_bytes(&self) -> u64 {
        self.state().used_bytes
    }

    /// Reserves bytes for work, once there is room.
    pub(super) async fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Reservation> {
        loop {
            let freed = self.freed.notified();
            {
                let mut state = self.state();
                let after = state.used_bytes.saturating_add(bytes);
                let is_let = self.lets_one && state.at_work == 0;
                if after <= self.limit_bytes || is_let {
                    state.used_bytes = after;
                    state.at_work += 1;
                    return Ok(Reservation {
                        budget: Arc::clone(self),
                        bytes,
                        at_work: true,
                    });
                }
                if state.at_work == 0 {
                    return Err(self.exhausted(bytes, state.used_bytes));
                }
            }
            freed.await;
        }
    }

    fn exhausted(&self, wanted: u64, used: u64) -> Error {
        let text = format!(
            "the load needs more memory than its limit of {} bytes: {used} bytes are in use, {wanted} more are needed",
            self.limit_bytes
        );
        Error::new(ErrorKind::ResourcesExhausted, text).with_hint(
            "raise memory_limit, give spill_to= a folder, load fewer columns, or choose a smaller tile_rows",
        )
    }

    /// The one place that locks; a panic elsewhere leaves the numbers as they are.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// The work is done and holds `bytes` from now on, which may be more than was reserved: they are there already.
    pub(super) fn settle(&mut self, bytes: u64) {
        let mut state = self.budget.state();
        state.used_bytes = state
            .used_bytes
            .saturating_sub(self.bytes)
            .saturating_add(bytes);
        self.bytes = bytes;
        if std::mem::take(&mut self.at_work) {
            state.at_work -= 1;
        }
        drop(state);
        self.budget.freed.notify_waiters();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.settle(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wishes_wait_for_room_and_are_refused_when_none_can_come() {
        let budget = Arc::new(Budget::new(100));
        let mut first = budget.reserve(80).await.unwrap();
        let waiting = tokio::spawn({
            let budget = Arc::clone(&budget);
            async move { budget.reserve(50).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        first.settle(40);
        let second = waiting.await.unwrap().unwrap();
        assert_eq!(budget.used_bytes(), 90);
        drop(second);
        let error = budget.reserve(61).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourcesExhausted);
        drop(first);
        assert_eq!(budget.used_bytes(), 0);
    }
}
