//! A catalog that several servers have.
//!
//! Comes in: what others keep and drop. Goes out: the same names here, within seconds, or at once where they are members of one cluster; and nothing that no name has had for a day. Never here: the catalog.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::service::Service;
use crate::catalog::Catalog;
use crate::error::{Error, Result};

/// How often it is looked what others have changed.
const LOOK: Duration = Duration::from_secs(5);

/// How often what nobody names is removed, and how long that stays: readers have so much time.
const COLLECT: Duration = Duration::from_secs(60 * 60);
const GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// The catalog, if others may have it, too.
fn shared(service: &Service) -> Option<&Catalog> {
    service
        .catalog
        .as_ref()
        .filter(|catalog| catalog.is_shared())
}

/// Takes in what other processes have kept and dropped.
///
/// # Errors
/// As of the catalog.
pub(super) async fn take_in(service: &Service) -> Result<()> {
    let Some(catalog) = shared(service) else {
        return Ok(());
    };
    // What was heard is named before anybody else names or hears something later.
    let _turn = service.session.naming_turn().await;
    for (name, grid) in catalog.changes().await? {
        let own = service.session.named(&name);
        let is_kept = match &own {
            Ok(Some(own)) => catalog.holds(own),
            Ok(None) => true,
            Err(_) => false,
        };
        match (grid, is_kept) {
            (Some(grid), true) => service.session.register(&name, grid)?,
            (None, true) => {
                let _was_there = service.session.deregister(&name);
            }
            (_, false) => {
                tracing::warn!(
                    table = name,
                    "this server has a grid or view of its own under a name of the catalog"
                );
            }
        }
    }
    Ok(())
}

/// Looks again and again, as long as the service is there.
pub(super) async fn look(service: Weak<Service>) {
    let (mut said, mut collected) = (String::new(), None::<Instant>);
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(service) = service.upgrade() else {
            return;
        };
        let Some(catalog) = shared(&service) else {
            return;
        };
        let mut looked = take_in(&service).await;
        if looked.is_ok() && collected.is_none_or(|at| at.elapsed() >= COLLECT) {
            collected = Some(Instant::now());
            looked = catalog.collect(GRACE).await.map(|removed| {
                tracing::debug!(
                    removed,
                    "files that no grid of the catalog has any more were removed"
                );
            });
        }
        let now = looked
            .err()
            .as_ref()
            .map(Error::to_string)
            .unwrap_or_default();
        // What stays wrong is said once.
        if !now.is_empty() && now != said {
            tracing::warn!(error = now, "the catalog could not be looked over");
        }
        said = now;
    }
}

/// Tells the other members of the cluster that the catalog has changed, without waiting for them: they look by themselves, too.
#[cfg(feature = "distributed")]
pub(super) fn tell(service: &Arc<Service>) {
    let cluster = service.cluster.get();
    if let (Some(_), Some(cluster)) = (shared(service), cluster) {
        let cluster = Arc::clone(cluster);
        service
            .work
            .spawn(async move { cluster.tell_of_catalog().await });
    }
}

#[cfg(not(feature = "distributed"))]
pub(super) fn tell(_: &Arc<Service>) {}
