//! What other members of a cluster ask of this server.
//!
//! Comes in: parts of plans, questions after parts of grids. Goes out: their answers, for those who may do all with all grids. Never here: what members do with one another (`cluster`).

use std::sync::Arc;

use prost::Message;
use tokio::task::JoinSet;
use tonic::{Code, Status};

use super::auth::{Caller, Scope};
use super::call::Call;
use super::service::Service;
use super::tiles;
use crate::cluster::{Admit, Cluster, GrpcService, tell_sample};
use crate::error::{Error, ErrorKind, Result};
use crate::flight::messages::{GridPart, GridParts};
use crate::grid::{GridId, PartitionGrid};
use crate::share::told;

/// # Errors
/// `PermissionDenied` for whoever may not do all with all grids.
fn check(caller: &Caller) -> Result<()> {
    caller.require(Scope::Admin)?;
    match caller.patterns() {
        None => Ok(()),
        Some(_) => {
            let text = "members of a cluster need a token for all grids, this one is for some";
            Err(Error::new(ErrorKind::PermissionDenied, text))
        }
    }
}

/// The service by which other members send parts of plans, if this server is a member.
pub(super) fn parts_of_plans(service: &Arc<Service>) -> Option<impl GrpcService + use<>> {
    let door = Arc::clone(service);
    let admit: Admit = Arc::new(move |header| {
        let caller = door.admit(header);
        let caller = caller.map_err(|why| Status::new(Code::Unauthenticated, why))?;
        check(&caller).map_err(|error| Status::new(Code::PermissionDenied, error.message()))
    });
    let cluster = service.cluster.get()?;
    Some(cluster.service(admit, service.work.clone()))
}

/// This server as a member, for one who may ask it.
fn cluster<'a>(service: &'a Service, call: &Call) -> Result<&'a Arc<Cluster>> {
    check(&call.caller)?;
    service.cluster.get().ok_or_else(|| {
        let error = Error::not_found("this server is no member of a cluster");
        error.with_hint("start it with `partgrid serve --join`")
    })
}

/// The parts of grids that it has.
///
/// # Errors
/// `PermissionDenied` for those who may not ask, `NotFound` when it is no member.
pub(super) fn parts(service: &Service, call: &Call) -> Result<Vec<u8>> {
    let parts = cluster(service, call)?.own_parts();
    Ok(GridParts { parts }.encode_to_vec())
}

/// What is known of one of them.
///
/// # Errors
/// As [`parts`]; `NotFound` when it has no such part.
pub(super) fn part(service: &Service, call: &Call, part: &GridPart) -> Result<Vec<u8>> {
    let grid = cluster(service, call)?.own_part(part)?;
    Ok(tiles::info(service, &part.name, &grid)?.encode_to_vec())
}

/// What is known of the values of one of them.
///
/// # Errors
/// As [`part`].
pub(super) async fn statistics(service: &Service, call: &Call, part: &GridPart) -> Result<Vec<u8>> {
    let grid = cluster(service, call)?.own_part(part)?;
    // It may read all values.
    let telling = service.work.spawn_blocking(move || told(&grid));
    let told = telling.await;
    told.map_err(|error| Error::internal(format!("statistics could not be told: {error}")))?
}

/// Some rows of one of them.
///
/// # Errors
/// As [`part`].
pub(super) async fn sample(service: &Service, call: &Call, part: GridPart) -> Result<Vec<u8>> {
    let grid = cluster(service, call)?.own_part(&part)?;
    let telling = service
        .work
        .spawn_blocking(move || tell_sample(&grid, &part));
    let told = telling.await;
    told.map_err(|error| Error::internal(format!("a sample could not be told: {error}")))?
}

/// One of them by its id, for members that fetch its tiles.
pub(super) fn part_with(service: &Service, call: &Call, id: GridId) -> Option<Arc<PartitionGrid>> {
    cluster(service, call).ok()?.part_with(id)
}

/// Writes tiles into the catalog that another member has dealt to this one.
///
/// # Errors
/// As [`parts`]; whatever stands in the way of reading and writing them.
pub(super) async fn write(service: &Service, call: &Call, message: &[u8]) -> Result<Vec<u8>> {
    let (cluster, message) = (Arc::clone(cluster(service, call)?), message.to_vec());
    // Not on the threads that speak with others; it ends when nobody waits for it.
    let mut writing = JoinSet::new();
    writing.spawn_on(
        async move { cluster.write_part(&message).await },
        &service.work,
    );
    let written = writing.join_next().await;
    let written = written.ok_or_else(|| Error::internal("a task that was begun is none"))?;
    written.map_err(|error| Error::internal(format!("tiles could not be written: {error}")))?
}

/// Takes in what others have changed in the catalog.
///
/// # Errors
/// As [`parts`] and of the catalog.
pub(super) async fn look(service: &Service, call: &Call) -> Result<()> {
    cluster(service, call)?;
    super::shared::take_in(service).await
}
