//! Whether the catalog and the grids of a cluster are as they should be, for those who ask, and before anything is done for nothing.
//!
//! Comes in: what the catalog and the cluster know of themselves. Goes out: lines for monitors, errors for the page, refusals of names and of what could not be kept. Never here: the catalog.

use std::sync::Arc;
use std::time::Duration;

use crate::catalog::{Catalog, Fault};
#[cfg(feature = "distributed")]
use crate::error::Error;
use crate::error::Result;
use crate::serve::door::auth::{Caller, Scope};
use crate::serve::door::call::Told;
use crate::serve::service::Service;

/// How often it is tried at most whether a catalog can be written again, because somebody looks.
const PAUSE: Duration = Duration::from_secs(5);

/// What is said to those whose work would not last.
pub(in crate::serve) const NOTHING_BEGUN: &str = "nothing was begun: the server cannot keep anything at this moment, and tries again whenever it is asked to";

/// What others than administrators are told of a list of members that cannot be read.
#[cfg(feature = "distributed")]
const UNREAD: &str =
    "the list of members of this server cannot be read; administrators are told why";

/// What they are told of one that does not name it.
#[cfg(feature = "distributed")]
const WITHOUT_OWN: &str =
    "the list of members of this server does not name it; administrators are told more";

/// Who is named as the caller of what nobody called for.
const NOBODY: &str = "server";

/// # Errors
/// `InvalidData` for the name of a table that is damaged: it is not to be lost because somebody takes its name.
pub(in crate::serve) fn check_whole(service: &Service, name: &str) -> Result<()> {
    let catalog = service.catalog.as_ref();
    catalog.map_or(Ok(()), |catalog| catalog.check_whole(name))
}

/// Where the last write of the catalog failed, tries another one before anything is sent or read that could not be kept.
///
/// # Errors
/// Why it cannot be written.
pub(in crate::serve) async fn check_durable(service: &Service) -> Result<()> {
    let failing = |catalog: &&Catalog| catalog.failing().is_some();
    let Some(catalog) = service.catalog.as_ref().filter(failing) else {
        return Ok(());
    };
    let tried = catalog.try_writing().await;
    tried.map_err(|error| error.with_hint(NOTHING_BEGUN))
}

/// Has whoever asks for a table that is damaged told so.
pub(in crate::serve) fn leave_out(service: &Service) {
    if let Some(catalog) = &service.catalog {
        let damaged = catalog.damaged().into_keys().collect();
        service.session.leave_out(&damaged);
    }
}

/// Whether what is acknowledged as durable lasts, as far as is known; `None` without a catalog. Where it does not, it is tried again without being waited for.
pub(super) fn is_durable(service: &Service) -> Option<bool> {
    let catalog = service.catalog.as_ref()?;
    let is_failing = catalog.failing().is_some();
    if is_failing {
        let catalog = catalog.clone();
        service
            .work
            .spawn(async move { catalog.try_again(PAUSE).await });
    }
    Some(!is_failing)
}

/// How many tables of the catalog are left out.
pub(super) fn num_damaged(service: &Service) -> usize {
    let catalog = service.catalog.as_ref();
    catalog.map_or(0, |catalog| catalog.damaged().len())
}

/// What a monitor is told that shows no token: no names, no causes.
pub(super) fn lines(service: &Service) -> String {
    match is_durable(service) {
        None => String::new(),
        Some(is_durable) => {
            let durable = if is_durable { "yes" } else { "no" };
            let damaged = num_damaged(service);
            format!("durable: {durable}\ndamaged: {damaged}\n")
        }
    }
}

/// What is wrong as long as it is, as a caller may see it: administrators all, others that tables are left out, or are not whole, which they may see.
pub(super) fn faults(service: &Service, caller: &Caller) -> Vec<Told> {
    let mut faults = of_catalog(service, caller);
    faults.extend(of_cluster(service, caller));
    faults
}

/// Grids of all members of which parts are missing, or contradict each other, and a list of members that cannot be read, or does not name this server. Why that is so, administrators are told: it names files of the server.
#[cfg(feature = "distributed")]
fn of_cluster(service: &Service, caller: &Caller) -> Vec<Told> {
    let Some(cluster) = service.cluster.get() else {
        return Vec::new();
    };
    let told = |since, error: &Error, message: String| Told {
        at: since,
        request: Arc::from(""),
        caller: Arc::from(NOBODY),
        kind: error.kind(),
        message,
    };
    let lists = [
        (cluster.unread_list(), UNREAD),
        (cluster.list_without_own(), WITHOUT_OWN),
    ];
    let lists = lists.into_iter().filter_map(|(wrong, briefly)| {
        let wrong = wrong?;
        let message = match caller.scope() == Scope::Admin {
            true => crate::serve::door::call::told(caller, "", &wrong.error),
            false => briefly.to_owned(),
        };
        Some(told(wrong.since, &wrong.error, message))
    });
    let lacking = cluster.incomplete().into_iter();
    let lacking = lacking.filter(|(name, _)| caller.may_see(name));
    let lacking = lacking.map(|(_, lacking)| {
        let message = crate::serve::door::call::told(caller, "", &lacking.error);
        told(lacking.since, &lacking.error, message)
    });
    lists.chain(lacking).collect()
}

#[cfg(not(feature = "distributed"))]
fn of_cluster(_: &Service, _: &Caller) -> Vec<Told> {
    Vec::new()
}

fn of_catalog(service: &Service, caller: &Caller) -> Vec<Told> {
    let Some(catalog) = &service.catalog else {
        return Vec::new();
    };
    let is_admin = caller.scope() == Scope::Admin;
    let told = |fault: Fault, message: String| Told {
        at: fault.since,
        request: Arc::from(""),
        caller: Arc::from(NOBODY),
        kind: fault.error.kind(),
        message,
    };
    let failing = catalog.failing().filter(|_| is_admin).map(|fault| {
        let message = format!("nothing is durable at this moment: {}", fault.error);
        told(fault, message)
    });
    let damaged = catalog.damaged().into_iter();
    let damaged = damaged.filter(|(name, _)| caller.may_see(name));
    let damaged = damaged.map(|(name, fault)| {
        let message = match is_admin {
            true => format!("the table {name:?} is left out: {}", fault.error),
            false => format!("the table {name:?} is damaged, and left out"),
        };
        told(fault, message)
    });
    failing.into_iter().chain(damaged).collect()
}
