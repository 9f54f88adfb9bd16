//! A catalog that several servers have.
//!
//! Comes in: what others keep and drop. Goes out: the same names here, within seconds, or before whoever changed them hears that it was done where they are members of one cluster; and nothing that no name has had for a day.
//! Never here: the catalog.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

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

/// Looks at what others have changed, one at a time: many may ask for one at the same moment, and one that begins after they asked is as good as one for each.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// How many were asked for.
    asked: AtomicU64,
    /// How many of these had been when the last one began that went well; locked by the one that goes on.
    seen: Mutex<u64>,
}

/// Takes in what other processes have kept and dropped until this was asked for.
///
/// # Errors
/// As of the catalog, once all other names were taken in; `InvalidArgument` when a grid or view of this process has the name of one of the catalog.
pub(super) async fn take_in(service: &Service) -> Result<()> {
    let Some(catalog) = shared(service) else {
        return Ok(());
    };
    let looks = &service.looks;
    let own = looks.asked.fetch_add(1, Ordering::AcqRel) + 1;
    let mut seen = looks.seen.lock().await;
    if *seen >= own {
        return Ok(());
    }
    // What was heard is named before anybody else names or hears something later.
    let _turn = service.session.naming_turn().await;
    let asked = looks.asked.load(Ordering::Acquire);
    look_over(service, catalog).await?;
    *seen = asked;
    Ok(())
}

/// As [`take_in`], for whoever has the turn to give names.
async fn look_over(service: &Service, catalog: &Catalog) -> Result<()> {
    let mut failed = Ok(());
    for changed in catalog.changes().await? {
        let taken = changed.and_then(|changed| take_in_one(service, catalog, &changed));
        failed = failed.and(taken);
    }
    crate::serve::watch::health::leave_out(service);
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

/// Tells the other members of the cluster that the catalog has changed, and waits a moment until they have taken that in: whoever changed it may ask any of them next.
#[cfg(feature = "distributed")]
pub(super) async fn tell(service: &Service) {
    if let Some(cluster) = service.cluster.get() {
        cluster.tell_of_catalog().await;
    }
}

#[cfg(not(feature = "distributed"))]
pub(super) async fn tell(_: &Service) {}
