//! Those who did not answer a moment ago.
//!
//! Comes in: the lives of members that let somebody wait in vain. Goes out: whether one did so lately, so that not everybody waits for it anew. Never here: waiting.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::share::Incarnation;

/// How long nobody waits for one again.
const SILENT: Duration = Duration::from_secs(10);

/// Who did not answer, and when.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Silent(Mutex<HashMap<Incarnation, Instant>>);

impl Silent {
    /// Those who are not to be waited for at this moment.
    fn known(&self, now: Instant) -> MutexGuard<'_, HashMap<Incarnation, Instant>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, since| now.saturating_duration_since(*since) < SILENT);
        known
    }

    pub(in crate::cluster) fn has(&self, member: Incarnation, now: Instant) -> bool {
        self.known(now).contains_key(&member)
    }

    /// Says whether it had answered so far.
    pub(in crate::cluster) fn add(&self, member: Incarnation, now: Instant) -> bool {
        self.known(now).insert(member, now).is_none()
    }

    /// It has answered after all.
    pub(in crate::cluster) fn remove(&self, member: Incarnation) {
        self.known(Instant::now()).remove(&member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_did_not_answer_is_not_waited_for_for_a_while() {
        let silent = Silent::default();
        let (member, other) = (Incarnation::from_bits(7), Incarnation::from_bits(8));
        let now = Instant::now();
        assert!(silent.add(member, now));
        assert!(silent.add(other, now + SILENT / 2));
        assert!(!silent.add(other, now + SILENT / 2));
        assert!(silent.has(member, now + SILENT - Duration::from_millis(1)));
        assert!(!silent.has(member, now + SILENT));
        assert!(silent.has(other, now + SILENT));
        // Nothing is kept of who may be waited for again.
        assert_eq!(silent.known(now + SILENT * 2).len(), 0);
    }

    #[test]
    fn who_answers_after_all_is_waited_for_again() {
        let (silent, member) = (Silent::default(), Incarnation::from_bits(7));
        let now = Instant::now();
        assert!(silent.add(member, now));
        silent.remove(member);
        assert!(!silent.has(member, now));
        assert!(silent.add(member, now));
    }
}
