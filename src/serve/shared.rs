//! A catalog that several servers have.
//!
//! Comes in: what others keep and drop. Goes out: the same names here, within seconds, or at once where they are members of one cluster; and nothing that no name has had for a day. Never here: the catalog.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::service::Service;
use crate::catalog::{Catalog, Changed};
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
/// As of the catalog, once all other names were taken in; `InvalidArgument` when a grid or view of this process has the name of one of the catalog.
pub(super) async fn take_in(service: &Service) -> Result<()> {
    let Some(catalog) = shared(service) else {
        return Ok(());
    };
    // What was heard is named before anybody else names or hears something later.
    let _turn = service.session.naming_turn().await;
    let mut failed = Ok(());
    for changed in catalog.changes().await? {
        let taken = changed.and_then(|changed| take_in_one(service, catalog, &changed));
        failed = failed.and(taken);
    }
    super::health::leave_out(service);
    failed
}

fn take_in_one(service: &Service, catalog: &Catalog, changed: &Changed) -> Result<()> {
    let (session, name) = (&service.session, changed.name());
    let is_own = match session.named(name) {
        Ok(Some(own)) => !catalog.holds(&own),
        Ok(None) => false,
        Err(_) => true,
    };
    match changed.grid() {
        // It is not known here then: whoever changes the name here is told so.
        Some(_) if is_own => {
            let text = "this server has a grid or view of its own under the name of a table of the catalog, which cannot be seen here";
            return Err(Error::invalid_argument(text)
                .with_context("table", name)
                .with_hint("drop it here, or give it another name"));
        }
        Some(grid) => session.register(name, Arc::clone(grid))?,
        None if is_own => {}
        None => {
            let _was_there = session.deregister(name);
        }
    }
    catalog.take_in(changed);
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
