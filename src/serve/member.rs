//! What other members of a cluster ask of this server.
//!
//! Comes in: parts of plans, questions after parts of grids, tiles to take, to read or to write. Goes out: their answers, for those who may do all with all grids. Never here: what members do with one another (`cluster`).

use std::sync::Arc;

use prost::Message;
use tokio::task::JoinSet;
use tonic::{Code, Status};

use super::service::Service;
use super::tiles;
use crate::cluster::{Admit, BandThere, Cluster, GrpcService, tell_sample};
use crate::error::{Error, ErrorKind, Result};
use crate::flight::messages::{GridPart, GridParts, RebalanceRequest, RebalanceResult};
use crate::grid::{GridId, PartitionGrid};
use crate::serve::door::auth::{Caller, Scope};
use crate::serve::door::call::Call;
use crate::serve::watch::status::figures;
use crate::share::told;

/// # Errors
/// `PermissionDenied` for whoever may not do all with all grids.
pub(super) fn check(caller: &Caller) -> Result<()> {
    caller.require(Scope::Admin)?;
    match caller.patterns() {
        None => Ok(()),
        Some(_) => {
            let text = "members of a cluster need a token for all grids, this one is for some";
            Err(Error::new(ErrorKind::PermissionDenied, text))
        }
    }
}

/// Whether a caller may be another member of the cluster that this server is in.
pub(super) fn may_ask(service: &Service, caller: &Caller) -> bool {
    service.cluster.get().is_some() && check(caller).is_ok()
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

/// The parts of grids that it has, and what it does.
///
/// # Errors
/// `PermissionDenied` for those who may not ask, `NotFound` when it is no member.
pub(super) fn parts(service: &Service, call: &Call) -> Result<Vec<u8>> {
    let cluster = cluster(service, call)?;
    let told = GridParts {
        parts: cluster.own_parts(),
        figures: Some(cluster.own_figures(|| figures(service))),
    };
    Ok(told.encode_to_vec())
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

/// The files of one of them, if every member reads its tiles.
///
/// # Errors
/// As [`part`]; `NotFound` for one with tiles that only this member has.
pub(super) async fn files(service: &Service, call: &Call, part: GridPart) -> Result<Vec<u8>> {
    let cluster = Arc::clone(cluster(service, call)?);
    let grid = cluster.own_part(&part)?;
    // It may look at many files.
    let telling = service
        .work
        .spawn_blocking(move || cluster.tell_files(&grid));
    let told = telling.await;
    told.map_err(|error| Error::internal(format!("files could not be told: {error}")))?
}

/// One of them by its id, for members that fetch its tiles; or a grid that was made of parts and that a plan still reads, though its name has another one by now.
pub(super) fn part_with(service: &Service, call: &Call, id: GridId) -> Option<Arc<PartitionGrid>> {
    let cluster = cluster(service, call).ok()?;
    cluster.part_with(id).or_else(|| crate::share::find(id))
}

/// The same for clients: a part of the grid that has its name here and now, if they may see that.
pub(super) fn part_for(service: &Service, call: &Call, id: GridId) -> Option<Arc<PartitionGrid>> {
    let (name, whole, part) = service.cluster.get()?.part_in_use(id)?;
    let named = service.session_of(&call.caller).ok()?.grid(&name).ok()?;
    (named.id() == whole).then_some(part)
}

/// Where the row bands of a grid are that other members have, one by one.
pub(super) fn bands_there(
    service: &Service,
    grid: &Arc<PartitionGrid>,
) -> impl Fn(usize) -> Option<BandThere> + use<> {
    let members = service.cluster.get().map(|cluster| cluster.members());
    let grid = Arc::clone(grid);
    move |row_band| BandThere::find(members.as_deref()?, grid.row_band(row_band))
}

/// What a member does for others, not on the threads that speak with them; it ends when nobody waits for it.
async fn worked<T: Send + 'static>(
    service: &Service,
    doing: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let mut working = JoinSet::new();
    working.spawn_on(doing, &service.work);
    let done = working.join_next().await;
    let done = done.ok_or_else(|| Error::internal("a task that was begun is none"))?;
    done.map_err(|error| Error::internal(format!("what was asked could not be done: {error}")))?
}

/// Writes tiles into the catalog that another member has dealt to this one.
///
/// # Errors
/// As [`parts`]; whatever stands in the way of reading and writing them.
pub(super) async fn write(service: &Service, call: &Call, message: &[u8]) -> Result<Vec<u8>> {
    let (cluster, message) = (Arc::clone(cluster(service, call)?), message.to_vec());
    worked(service, async move { cluster.write_part(&message).await }).await
}

/// Does what another member has dealt to this one of a load in another order.
///
/// # Errors
/// As [`parts`]; whatever stands in the way of reading and writing.
pub(super) async fn arrange(service: &Service, call: &Call, message: &[u8]) -> Result<Vec<u8>> {
    let (cluster, message) = (Arc::clone(cluster(service, call)?), message.to_vec());
    worked(service, async move { cluster.arrange_part(&message).await }).await
}

/// Reads tiles of files that another member has dealt to this one, before anybody asks for them.
///
/// # Errors
/// As [`parts`]; whatever stands in the way of reading them.
pub(super) async fn read(service: &Service, call: &Call, message: &[u8]) -> Result<Vec<u8>> {
    let (cluster, message) = (Arc::clone(cluster(service, call)?), message.to_vec());
    worked(service, async move { cluster.read_part(&message).await }).await
}

/// Takes row bands that another member has dealt to this one.
///
/// # Errors
/// As [`parts`]; whatever stands in the way of reading them.
pub(super) async fn take(service: &Service, call: &Call, message: &[u8]) -> Result<Vec<u8>> {
    let (cluster, message) = (Arc::clone(cluster(service, call)?), message.to_vec());
    worked(service, async move { cluster.take(&message).await }).await
}

/// Lets go of what was taken, since others could not take theirs.
///
/// # Errors
/// As [`parts`].
pub(super) fn leave(service: &Service, call: &Call, part: &GridPart) -> Result<()> {
    cluster(service, call)?.leave(part);
    Ok(())
}

/// Spreads a grid over the members that are there.
///
/// # Errors
/// As [`parts`]; whatever stands in the way of it.
pub(super) async fn rebalance(
    service: &Service,
    call: &Call,
    wanted: RebalanceRequest,
) -> Result<Vec<u8>> {
    let cluster = Arc::clone(cluster(service, call)?);
    let moved = worked(service, async move {
        cluster.rebalance(&wanted.name, &wanted.without).await
    })
    .await?;
    let told = RebalanceResult {
        moved_bytes: moved.moved_bytes,
        moved_tiles: moved.moved_tiles,
        kept_tiles: moved.kept_tiles,
    };
    Ok(told.encode_to_vec())
}

/// Takes in what others have changed in the catalog.
///
/// # Errors
/// As [`parts`] and of the catalog.
pub(super) async fn look(service: &Service, call: &Call) -> Result<()> {
    cluster(service, call)?;
    super::shared::take_in(service).await
}
