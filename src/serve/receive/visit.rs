//! Connections, as what outlives a request knows them.
//!
//! Comes in: connections that begin and end, who works on something over them, and what their clients ask after. Goes out: the moment at which nobody has been there for a while, or nothing is asked after any more. Never here: what they work on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep;

/// How long a client may take from one question to the next.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(500);

/// Something that others wait for the end of, such as a connection or a load. It ends when somebody says so, or when it is dropped.
#[derive(Debug, Default)]
pub(in crate::serve) struct Visit(watch::Sender<bool>);

impl Visit {
    /// Somebody who knows whether it has ended.
    pub(in crate::serve) fn visitor(&self) -> Visitor {
        Visitor(self.0.subscribe())
    }

    /// It has ended.
    pub(in crate::serve) fn end(&self) {
        self.0.send_replace(true);
    }
}

/// Knows whether a [`Visit`] has ended.
#[derive(Debug, Clone)]
pub(in crate::serve) struct Visitor(watch::Receiver<bool>);

impl Visitor {
    fn is_there(&self) -> bool {
        !*self.0.borrow() && self.0.has_changed().is_ok()
    }

    /// Waits for the end.
    pub(in crate::serve) async fn gone(mut self) {
        // One that was dropped has ended as well.
        drop(self.0.wait_for(|has_ended| *has_ended).await);
    }
}

/// A connection, as the requests on it know it. Cheap to clone.
#[derive(Debug, Clone)]
pub(in crate::serve) struct Connected {
    /// Knows whether it is still there.
    pub(super) visitor: Visitor,
    /// What its client wants to hear the end of.
    asked_after: Arc<Visitors>,
}

impl Connected {
    pub(in crate::serve) fn by(visit: &Visit) -> Self {
        Self {
            visitor: visit.visitor(),
            asked_after: Arc::default(),
        }
    }

    /// Its client wants to hear the end of something, and asks again and again.
    pub(in crate::serve) fn asks_after(&self, what: &Visit) {
        self.asked_after.add(&what.visitor());
    }

    /// Waits until all has ended that its client asked after, and the client has had the time to hear that.
    pub(in crate::serve) async fn heard_all(&self) {
        let was_asked = self.asked_after.was_there_within(BETWEEN_QUESTIONS);
        if was_asked {
            self.asked_after.gone_for(BETWEEN_QUESTIONS).await;
        }
    }
}

/// Those who work on one thing, or things that one waits for.
#[derive(Debug, Default)]
pub(super) struct Visitors(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    there: Vec<Visitor>,
    /// How often somebody came.
    num_came: u64,
    /// When somebody came last.
    came: Option<Instant>,
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
        known.came = Some(Instant::now());
        let is_known = |other: &Visitor| other.0.same_channel(&visitor.0);
        if !known.there.iter().any(is_known) {
            known.there.push(visitor.clone());
        }
    }

    /// Whether somebody is there, or came of late.
    fn was_there_within(&self, time: Duration) -> bool {
        let known = self.known();
        !known.there.is_empty() || known.came.is_some_and(|came| came.elapsed() < time)
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

    #[tokio::test]
    async fn a_client_hears_the_end_of_what_it_asked_after() {
        let connection = Visit::default();
        let connected = Connected::by(&connection);
        // Nothing was asked: nothing is waited for.
        let begun = Instant::now();
        connected.heard_all().await;
        assert!(begun.elapsed() < BETWEEN_QUESTIONS);
        let load = Visit::default();
        connected.asks_after(&load);
        let mut heard = pin!(connected.heard_all());
        assert!(heard.as_mut().now_or_never().is_none(), "it goes on");
        load.end();
        let ended = Instant::now();
        heard.await;
        assert!(ended.elapsed() >= BETWEEN_QUESTIONS, "it may ask once more");
        assert!(!load.visitor().is_there());
    }
}
