//! Connections, as what outlives a request knows them.
//!
//! Comes in: connections that begin and end, and who works on something over them. Goes out: the moment at which nobody has been there for a while. Never here: what they work on.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

/// Something that others wait for the end of, such as a connection. It ends when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Visit(watch::Sender<()>);

impl Visit {
    /// Somebody who knows whether it has ended.
    pub(super) fn visitor(&self) -> Visitor {
        Visitor(self.0.subscribe())
    }
}

/// Knows whether a [`Visit`] has ended.
#[derive(Debug, Clone)]
pub(super) struct Visitor(watch::Receiver<()>);

impl Visitor {
    fn is_there(&self) -> bool {
        self.0.has_changed().is_ok()
    }

    /// Waits for the end.
    pub(super) async fn gone(mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

/// Those who work on one thing.
#[derive(Debug, Default)]
pub(super) struct Visitors(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    there: Vec<Visitor>,
    /// How often somebody came.
    num_came: u64,
}

impl Visitors {
    fn known(&self) -> MutexGuard<'_, Known> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.there.retain(Visitor::is_there);
        known
    }

    /// Somebody comes, perhaps again.
    pub(super) fn add(&self, visitor: &Visitor) {
        let mut known = self.known();
        known.num_came += 1;
        let is_known = |other: &Visitor| other.0.same_channel(&visitor.0);
        if !known.there.iter().any(is_known) {
            known.there.push(visitor.clone());
        }
    }

    /// Waits until nobody has been there for a while, and nobody came meanwhile.
    pub(super) async fn gone_for(&self, grace: Duration) {
        loop {
            let (there, num_came) = {
                let known = self.known();
                (known.there.clone(), known.num_came)
            };
            if there.is_empty() {
                sleep(grace).await;
                if self.known().num_came == num_came {
                    return;
                }
            }
            for visitor in there {
                visitor.gone().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Instant;

    use futures::FutureExt;

    use super::*;

    const GRACE: Duration = Duration::from_millis(100);

    #[tokio::test]
    async fn nobody_is_given_up_who_is_there_or_comes_back_in_time() {
        let visitors = Visitors::default();
        let (first, other) = (Visit::default(), Visit::default());
        visitors.add(&first.visitor());
        visitors.add(&first.visitor());
        assert_eq!(visitors.known().there.len(), 1);
        let mut gone = pin!(visitors.gone_for(GRACE));
        sleep(2 * GRACE).await;
        assert!(gone.as_mut().now_or_never().is_none(), "it is there");
        drop(first);
        let begun = Instant::now();
        assert!(gone.as_mut().now_or_never().is_none());
        // Comes and goes at once: the time begins anew.
        visitors.add(&other.visitor());
        drop(other);
        gone.await;
        assert!(begun.elapsed() >= 2 * GRACE);
    }
}
