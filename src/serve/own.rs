//! Actions of our own: uploads, loads, plans, what goes on.
//!
//! Comes in: the name of an action and its body. Goes out: its result, or that it is none of ours. Never here: what they do.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::{Any, Command};
use prost::Message;

use super::flight::{any_of, command, protocol};
use super::jobs;
#[cfg(feature = "distributed")]
use super::member;
use super::service::Service;
use crate::error::{Error, Result};
use crate::flight::messages::{
    BeginUpload, ExplainRequest, JobName, Named, PartTicket, RunName, Upload,
};
use crate::serve::door::call::Call;
use crate::serve::queries::answers::{Answer, Reader};
use crate::serve::queries::poll::WAIT;
use crate::serve::queries::running::Task;
use crate::serve::receive::upload::{self, Construction};
use crate::serve::watch::status;

/// Those by which a member deals tiles or files to others: their bodies may be as long as a message.
pub(super) const DEALT: [&str; 4] = ["TakeTiles", "WriteTiles", "ArrangeTiles", "ReadTiles"];

/// The body of its result, if it has one; `None` for another action.
///
/// # Errors
/// What stands in the way.
pub(super) async fn done(
    service: &Arc<Service>,
    call: &Call,
    name: &str,
    body: &[u8],
) -> Result<Option<Option<Vec<u8>>>> {
    let uploads = &service.answers.uploads;
    Ok(Some(match name {
        "BeginUpload" => {
            let wanted: BeginUpload = ours(body)?;
            let begun = Construction::begin(service, &call.caller, wanted)?;
            begun.check_durable(service).await?;
            let upload = upload::keep(service, call, begun)?.to_vec();
            Some(Upload { upload }.encode_to_vec())
        }
        "CommitUpload" => {
            let named: Upload = ours(body)?;
            let construction = upload::find(service, call, &named.upload)?;
            let committed = construction.commit(service, &call.caller).await?;
            // It may have been forgotten meanwhile: that takes nothing back.
            drop(uploads.remove(&call.caller, &named.upload));
            Some(committed.encode_to_vec())
        }
        "AbortUpload" => {
            let named: Upload = ours(body)?;
            uploads.remove(&call.caller, &named.upload)?.give_up();
            None
        }
        "Load" => {
            let begun = jobs::begin(service, call, ours(body)?)?;
            begun.asked_after(call);
            Some(JobName::of(begun.id).encode_to_vec())
        }
        "JobProgress" => {
            let named: JobName = ours(body)?;
            let job = service.jobs.find(&call.caller, named.job)?;
            job.asked_after(call);
            job.wait(Duration::from_millis(named.wait_millis).min(WAIT))
                .await;
            Some(job.progress(&call.caller).encode_to_vec())
        }
        "CancelJob" => {
            let named: JobName = ours(body)?;
            call.unless_late(service.jobs.cancel(&call.caller, named.job))?;
            None
        }
        "CancelRun" => {
            let named: RunName = ours(body)?;
            call.unless_late(service.running.cancel(&call.caller, named.run))?;
            None
        }
        "Explain" => Some(explained(service, call, ours(body)?).await?.into_bytes()),
        "Status" => Some(
            status::status(service, &call.caller)
                .to_string()
                .into_bytes(),
        ),
        #[cfg(feature = "distributed")]
        _ => return of_member(service, call, name, body).await,
        #[cfg(not(feature = "distributed"))]
        _ => return Ok(None),
    }))
}

/// As `done`, for what other members of a cluster ask.
#[cfg(feature = "distributed")]
async fn of_member(
    service: &Arc<Service>,
    call: &Call,
    name: &str,
    body: &[u8],
) -> Result<Option<Option<Vec<u8>>>> {
    Ok(Some(match name {
        "Part" => Some(member::part(service, call, &ours(body)?)?),
        "PartStatistics" => Some(member::statistics(service, call, &ours(body)?).await?),
        "PartSample" => Some(member::sample(service, call, ours(body)?).await?),
        "PartFiles" => Some(member::files(service, call, ours(body)?).await?),
        "Parts" => Some(member::parts(service, call)?),
        "Rebalance" => Some(member::rebalance(service, call, ours(body)?).await?),
        "TakeTiles" => Some(member::take(service, call, body).await?),
        "LeaveTiles" => {
            member::leave(service, call, &ours(body)?)?;
            None
        }
        "WriteTiles" => Some(member::write(service, call, body).await?),
        "ArrangeTiles" => Some(member::arrange(service, call, body).await?),
        "ReadTiles" => Some(member::read(service, call, body).await?),
        "LookAtCatalog" => {
            member::look(service, call).await?;
            None
        }
        _ => return Ok(None),
    }))
}

/// The plan of a query that has a ticket; run before that where that is wanted, as its caller, listed as long as it runs.
///
/// # Errors
/// `NotFound` for another's ticket; `Unsupported` for what has no plan; whatever stops the run.
async fn explained(service: &Service, call: &Call, wanted: ExplainRequest) -> Result<String> {
    let (tasks, reader) = tasks(service, call, &wanted.ticket)?;
    let task = tasks
        .first()
        .ok_or_else(|| Error::internal("a statement without a query"))?;
    if !wanted.analyze {
        return Ok(task.query.explain());
    }
    let guard = service.running.begin(&call.caller, task);
    let done = Box::pin(task.query.explain_analyze()).await;
    guard.end(done.as_ref().err());
    drop(reader);
    done
}

/// The queries behind a ticket, which is kept as long as somebody reads it.
fn tasks(service: &Service, call: &Call, ticket: &[u8]) -> Result<(Vec<Task>, Option<Reader>)> {
    let any = any_of(ticket)?;
    if let Some(part) = PartTicket::from_any(&any)? {
        let polled = service.answers.polled.find(&call.caller, &part.answer)?;
        return Ok((polled.tasks()?, None));
    }
    let Command::TicketStatementQuery(ticket) = command(any)? else {
        return Err(Error::unsupported("only queries have a plan"));
    };
    let tickets = &service.answers.tickets;
    match tickets.find(&call.caller, &ticket.statement_handle)? {
        Answer::Queries { tasks, readers, .. } => Ok((tasks, Some(Reader::of(&readers)))),
        Answer::Said { said, text } => {
            let session = service.session_of(&call.caller)?;
            let query = session.query_of_said(said, &service.query_options(call))?;
            Ok((vec![Task { query, text }], None))
        }
        Answer::Batch(_) => Err(Error::unsupported("only queries have a plan")),
    }
}

/// Our own request in a body.
fn ours<M: Named>(body: &[u8]) -> Result<M> {
    let any: Any = any_of(body)?;
    M::from_any(&any)?.ok_or_else(|| {
        protocol(format!(
            "the body must be a {}, it says that it is {:?}",
            M::NAME,
            any.type_url
        ))
    })
}
