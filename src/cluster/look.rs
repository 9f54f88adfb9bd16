//! A look at the members that a statement asks for whose rows are gone.
//!
//! Comes in: that it asks. Goes out: names that stand for what the members have by then. Never here: the look of every second, which is the same (`mod.rs`); what becomes of the statement (`query/running/anew.rs`).

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Cluster;

/// How long a statement waits for a look.
const WAIT: Duration = Duration::from_secs(3);

impl Cluster {
    /// As [`Cluster::refresh`]. One look is enough for all whose rows were gone before it. While somebody hangs, for whom each look waits, nobody waits for a look.
    pub(super) async fn look_for_statement(&self) {
        let now = Instant::now();
        let Some(own) = self.own.upgrade() else {
            return;
        };
        if self.hangs.load(Ordering::Relaxed) {
            return;
        }
        let looking = async move {
            let mut last = own.finding.lock().await;
            match last.is_some_and(|last| last > now) {
                true => Ok(()),
                false => own.look_now(&mut last).await,
            }
        };
        // It goes on to its end, whoever waits for it.
        let looking = self.runtime.spawn(looking);
        match tokio::time::timeout(WAIT, looking).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => {
                tracing::debug!(%error, "a look for a statement did not see all");
            }
            Ok(Err(error)) => tracing::debug!(%error, "a look for a statement ended"),
            Err(_) => tracing::debug!("a look for a statement takes long"),
        }
    }
}
