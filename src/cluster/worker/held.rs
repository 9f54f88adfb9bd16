//! How many parts of statements this process holds for members.
//!
//! Comes in: a part that begins. Goes out: their number. A part counts until the engine has let go of its plan and of what that has in memory, which is some time after it is over. Never here: letting go of them (`worker/mod.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The parts that are held.
#[derive(Debug, Clone, Default)]
pub(in crate::cluster) struct Held(Arc<AtomicUsize>);

impl Held {
    /// One more, as long as what it gives is there.
    pub(in crate::cluster) fn one(&self) -> HeldPart {
        self.0.fetch_add(1, Ordering::AcqRel);
        HeldPart(self.clone())
    }

    pub(in crate::cluster) fn number(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// A part that is held: it goes with the settings of the part, which all that runs for it has.
#[derive(Debug)]
pub(in crate::cluster) struct HeldPart(Held);

impl Drop for HeldPart {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionConfig;

    use super::*;

    #[test]
    fn a_part_is_held_as_long_as_anybody_has_its_settings() {
        let held = Held::default();
        let settings = SessionConfig::new().with_extension(Arc::new(held.one()));
        let running = settings.clone();
        let _other = held.one();
        assert_eq!(held.number(), 2);
        drop(settings);
        assert_eq!(held.number(), 2);
        drop(running);
        assert_eq!(held.number(), 1);
    }
}
