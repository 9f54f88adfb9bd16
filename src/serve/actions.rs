//! Actions of Flight.
//!
//! Comes in: the name of an action and its body. Goes out: its results. Only those that are listed here are known. Never here: what lies behind them.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionCancelQueryResult, ActionClosePreparedStatementRequest,
    ActionCreatePreparedStatementRequest, Any, ProstMessageExt,
};
use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus,
    FlightEndpoint, FlightInfo, RenewFlightEndpointRequest, Result as ActionResult,
};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use prost::Message;
use tonic::{Response, Status};

use super::flight::{any_of, check_size, endpoint, protocol};
use super::own;
use super::service::Service;
use super::sql::{no_transactions, prepared, without_transaction};
use crate::error::{Error, Result};
use crate::flight::messages::{Named, PartTicket, PollCommand};
use crate::flight::options::{
    CloseSessionResult, GetSessionOptionsResult, SetSessionOptionsRequest, SetSessionOptionsResult,
};
use crate::serve::door::call::{Call, message};
use crate::serve::queries::answers::Answer;

/// The names and what they do.
const KNOWN: [(&str, &str); 29] = [
    (
        "CreatePreparedStatement",
        "Looks a statement up, to be run with values.",
    ),
    ("ClosePreparedStatement", "Forgets a prepared statement."),
    ("CancelQuery", "Ends a query (before CancelFlightInfo was)."),
    ("CancelFlightInfo", "Ends a query, and forgets its answer."),
    ("RenewFlightEndpoint", "Keeps an answer longer."),
    (
        "SetSessionOptions",
        "Sets timeout, memory_limit, compression and endpoints for the queries of a client.",
    ),
    ("GetSessionOptions", "Gives what was set."),
    ("CloseSession", "Forgets what was set."),
    (
        "BeginUpload",
        "Begins a grid under construction (partgrid).",
    ),
    (
        "CommitUpload",
        "Puts a grid whose tiles are all there under its name (partgrid).",
    ),
    (
        "AbortUpload",
        "Forgets a grid under construction (partgrid).",
    ),
    (
        "Load",
        "Begins to load files that the server can reach (partgrid).",
    ),
    ("JobProgress", "Says how far a load is (partgrid)."),
    ("CancelJob", "Ends a load (partgrid)."),
    (
        "Status",
        "Says which grids there are and what runs, as JSON (partgrid).",
    ),
    ("CancelRun", "Ends a query that Status lists (partgrid)."),
    (
        "Explain",
        "Gives the plan of a query that was looked up, as text (partgrid).",
    ),
    (
        "Parts",
        "Lists the parts of grids that a member of a cluster has (partgrid).",
    ),
    ("Part", "Says what is known of one of them (partgrid)."),
    (
        "PartStatistics",
        "Says what is known of the values in one of them (partgrid).",
    ),
    ("PartSample", "Gives some rows of one of them (partgrid)."),
    (
        "PartFiles",
        "Says from which files members read one of them (partgrid).",
    ),
    (
        "WriteTiles",
        "Has a member of a cluster write tiles into the catalog (partgrid).",
    ),
    (
        "ReadTiles",
        "Has a member of a cluster read tiles of files before anybody asks for them (partgrid).",
    ),
    (
        "ArrangeTiles",
        "Has a member of a cluster bring rows of a load into an order (partgrid).",
    ),
    (
        "Rebalance",
        "Spreads a grid of a cluster over the members that are there (partgrid).",
    ),
    (
        "TakeTiles",
        "Has a member of a cluster take tiles of others as parts of a grid (partgrid).",
    ),
    (
        "LeaveTiles",
        "Has a member of a cluster let go of what it took (partgrid).",
    ),
    (
        "LookAtCatalog",
        "Has a member of a cluster take in what others have changed in the catalog (partgrid).",
    ),
];

/// What was asked not to be: they have names of their own, so that clients know it is no slip.
const TRANSACTIONS: [&str; 4] = [
    "BeginTransaction",
    "EndTransaction",
    "BeginSavepoint",
    "EndSavepoint",
];

/// Those that begin something.
const BEGIN: [&str; 4] = [
    "CreatePreparedStatement",
    "BeginUpload",
    "Load",
    "Rebalance",
];

/// Whether an action begins something.
pub(super) fn begins(action: &Action) -> bool {
    BEGIN.contains(&action.r#type.as_str())
}

/// All actions that a client may ask for.
pub(super) fn known() -> Vec<ActionType> {
    let each = KNOWN.iter().map(|(name, description)| ActionType {
        r#type: (*name).to_owned(),
        description: (*description).to_owned(),
    });
    each.collect()
}

type Results = BoxStream<'static, std::result::Result<ActionResult, Status>>;

/// Does one.
///
/// # Errors
/// What stands in the way, as a status.
pub(super) async fn act(
    service: &Arc<Service>,
    call: &Call,
    action: Action,
) -> std::result::Result<Response<Results>, Status> {
    let mut cookie = None;
    let mut response = call
        .answer(async {
            let body = done(service, call, &action, &mut cookie).await?;
            let results = body.map(|body| Ok(ActionResult { body: body.into() }));
            Ok(stream::iter(results).boxed() as Results)
        })
        .await?;
    if let Some(cookie) = cookie.and_then(|cookie: String| cookie.parse().ok()) {
        response.metadata_mut().insert("set-cookie", cookie);
    }
    Ok(response)
}

/// The body of its result, if it has one, and a cookie to set.
async fn done(
    service: &Arc<Service>,
    call: &Call,
    action: &Action,
    cookie: &mut Option<String>,
) -> Result<Option<Vec<u8>>> {
    let body = &action.body;
    let name = action.r#type.as_str();
    if !own::DEALT.contains(&name) {
        check_size(body)?;
    }
    if let Some(done) = own::done(service, call, name, body).await? {
        return Ok(done);
    }
    if let Some((done, named)) = session(service, call, name, body)? {
        *cookie = named;
        return Ok(Some(done));
    }
    Ok(match name {
        "CreatePreparedStatement" => {
            let request: ActionCreatePreparedStatementRequest = unpacked(body)?;
            without_transaction(request.transaction_id.as_ref())?;
            let created = prepared::create(service, call, &request.query).await?;
            Some(created.as_any().encode_to_vec())
        }
        "ClosePreparedStatement" => {
            let request: ActionClosePreparedStatementRequest = unpacked(body)?;
            let statements = &service.answers.statements;
            statements.remove(&call.caller, &request.prepared_statement_handle)?;
            None
        }
        "CancelQuery" => {
            let request: ActionCancelQueryRequest = unpacked(body)?;
            let info: FlightInfo = message(&request.info, "FlightInfo")?;
            cancel(service, call, &info)?;
            let result = ActionCancelQueryResult { result: 1 };
            Some(result.as_any().encode_to_vec())
        }
        "CancelFlightInfo" => {
            let request: CancelFlightInfoRequest = message(body, "CancelFlightInfoRequest")?;
            let info = request
                .info
                .ok_or_else(|| protocol("no FlightInfo to cancel"))?;
            cancel(service, call, &info)?;
            let result = CancelFlightInfoResult {
                status: CancelStatus::Cancelled as i32,
            };
            Some(result.encode_to_vec())
        }
        "RenewFlightEndpoint" => {
            let request: RenewFlightEndpointRequest = message(body, "RenewFlightEndpointRequest")?;
            Some(renewed(service, call, request.endpoint)?.encode_to_vec())
        }
        name if TRANSACTIONS.contains(&name) => return Err(no_transactions()),
        "CreatePreparedSubstraitPlan" => {
            let text = "the server takes no plans of Substrait: send SQL";
            return Err(Error::unsupported(text));
        }
        other => return Err(unknown(other)),
    })
}

fn unknown(name: &str) -> Error {
    let names: Vec<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
    let text = format!("the server has no action {name:?}");
    Error::unsupported(text).with_hint(format!("the actions are {}", names.join(", ")))
}

/// What an action about a client's session answers, and the cookie to set.
type OfSession = (Vec<u8>, Option<String>);

/// An action about a client's session; `None` for another one.
fn session(service: &Service, call: &Call, name: &str, body: &[u8]) -> Result<Option<OfSession>> {
    let sessions = &service.client_sessions;
    Ok(Some(match name {
        "SetSessionOptions" => {
            let request: SetSessionOptionsRequest = message(body, "SetSessionOptionsRequest")?;
            let (named, errors) = sessions.set(call, request.session_options)?;
            let result = SetSessionOptionsResult { errors };
            (result.encode_to_vec(), Some(named))
        }
        "GetSessionOptions" => {
            let session_options = sessions.said(call);
            let result = GetSessionOptionsResult { session_options };
            (result.encode_to_vec(), None)
        }
        "CloseSession" => {
            sessions.close(call);
            (CloseSessionResult { status: 1 }.encode_to_vec(), None)
        }
        _ => return Ok(None),
    }))
}

/// The request of Flight SQL in a body.
fn unpacked<M: ProstMessageExt>(body: &[u8]) -> Result<M> {
    let any: Any = any_of(body)?;
    let request = any
        .unpack::<M>()
        .map_err(|error| protocol(error.to_string()))?;
    request.ok_or_else(|| {
        protocol(format!(
            "the body must be a {}, it says that it is {:?}",
            M::type_url(),
            any.type_url
        ))
    })
}

/// What the endpoints of an answer stand for.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Stands {
    Ticket(Vec<u8>),
    Answer(Vec<u8>),
}

fn stands(endpoint: &FlightEndpoint) -> Result<Option<Stands>> {
    let Some(ticket) = &endpoint.ticket else {
        return Ok(None);
    };
    let any = any_of(&ticket.ticket)?;
    if let Some(part) = PartTicket::from_any(&any)? {
        return Ok(Some(Stands::Answer(part.answer)));
    }
    let query = any.unpack::<arrow_flight::sql::TicketStatementQuery>();
    let query = query.map_err(|error| protocol(error.to_string()))?;
    Ok(query.map(|query| Stands::Ticket(query.statement_handle.to_vec())))
}

/// Ends what the endpoints stand for, and forgets it.
fn cancel(service: &Service, call: &Call, info: &FlightInfo) -> Result<()> {
    let descriptor = info.flight_descriptor.as_ref();
    let polled = match descriptor {
        Some(descriptor) if !descriptor.cmd.is_empty() => {
            let any = any_of(&descriptor.cmd)?;
            PollCommand::from_any(&any)?
        }
        _ => None,
    };
    // Several parts are of one answer.
    let mut all: BTreeSet<Stands> = polled
        .map(|polled| Stands::Answer(polled.answer))
        .into_iter()
        .collect();
    for endpoint in &info.endpoint {
        all.extend(stands(endpoint)?);
    }
    if all.is_empty() {
        return Err(Error::unsupported(
            "there is nothing to cancel: only queries run",
        ));
    }
    let answers = &service.answers;
    for one in all {
        match one {
            Stands::Ticket(name) => {
                if let Answer::Queries { tasks, .. } =
                    answers.tickets.remove(&call.caller, &name)?
                {
                    tasks.iter().for_each(|task| task.query.cancel());
                }
            }
            Stands::Answer(name) => answers.polled.remove(&call.caller, &name)?.cancel(),
        }
    }
    Ok(())
}

/// The endpoint with a later end: each use of an answer keeps it longer.
fn renewed(
    service: &Service,
    call: &Call,
    wanted: Option<FlightEndpoint>,
) -> Result<FlightEndpoint> {
    let wanted = wanted.ok_or_else(|| protocol("no endpoint to renew"))?;
    let ticket = wanted.ticket.as_ref().map(|ticket| ticket.ticket.to_vec());
    match stands(&wanted)? {
        Some(Stands::Ticket(name)) => drop(service.answers.tickets.find(&call.caller, &name)?),
        Some(Stands::Answer(name)) => drop(service.answers.polled.find(&call.caller, &name)?),
        None => return Err(Error::unsupported("this endpoint does not expire")),
    }
    Ok(endpoint(service, ticket.unwrap_or_default(), true))
}
