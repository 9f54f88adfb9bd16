//! Bytes of clients that are no grid yet.
//!
//! Comes in: how many bytes somebody has sent. Goes out: a [`Held`], which counts them as long as it is there, or a refusal. Never here: what they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, ErrorKind, Result};
use crate::query::{Allowance, Taken};
use crate::serve::door::auth::Caller;
use crate::serve::service::Service;

/// Bytes that count as long as it is there.
#[derive(Debug)]
pub(in crate::serve) struct Held {
    bytes: u64,
    of: Arc<AtomicU64>,
    most_bytes: u64,
    /// Within what its caller may use, where that counts.
    own: Option<(Allowance, Taken)>,
}

impl Held {
    /// Other bytes in place of those that it has.
    ///
    /// # Errors
    /// `ResourcesExhausted` when these are more, and all together would be more than the memory of queries, or those of the caller more than it may use; then nothing has changed.
    pub(in crate::serve) fn resize(&mut self, bytes: u64) -> Result<()> {
        self.resize_own(bytes)?;
        let (before, most) = (self.bytes, self.most_bytes);
        let within = |held: u64| {
            let all = held.saturating_sub(before).saturating_add(bytes);
            (bytes <= before || all <= most).then_some(all)
        };
        let held = &self.of;
        if held
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, within)
            .is_ok()
        {
            self.bytes = bytes;
            return Ok(());
        }
        // Fewer bytes are never too many.
        self.resize_own(before)?;
        let text = format!("what clients are sending may have {most} bytes together, got more");
        Err(Error::new(ErrorKind::ResourcesExhausted, text).with_hint("try again later"))
    }

    fn resize_own(&mut self, bytes: u64) -> Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        match &mut self.own {
            Some((allowance, taken)) => allowance.resize(taken, bytes),
            None => Ok(()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl Service {
    /// Counts rows that a client sent, until the guard is dropped.
    ///
    /// # Errors
    /// As [`Held::resize`].
    pub(super) fn hold(&self, caller: &Caller, bytes: u64) -> Result<Held> {
        self.uploaded_bytes.inc_by(bytes);
        let mut held = self.hold_nothing(Some(caller));
        held.resize(bytes)?;
        Ok(held)
    }

    /// To count what comes of somebody, of which nothing is there yet; without a caller for all together alone.
    pub(in crate::serve) fn hold_nothing(&self, caller: Option<&Caller>) -> Held {
        let own = caller.map(|caller| {
            let allowance = self.accounts.of(caller).allowance;
            let taken = allowance.take_nothing();
            (allowance, taken)
        });
        Held {
            bytes: 0,
            of: Arc::clone(&self.held),
            most_bytes: self.limits.memory_bytes as u64,
            own,
        }
    }

    /// Bytes that clients sent and that are no grids yet.
    pub(in crate::serve) fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::Acquire)
    }
}
