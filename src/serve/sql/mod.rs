//! Flight SQL: commands -> answers.
//!
//! Comes in: a command. Goes out: a ticket for what it gives, its columns, or an answer that is made while the client asks how far it is. `metadata.rs` lists what there is, `info.rs`, `converts.rs` and `types.rs`
//! say what the server can do, `prepared.rs` keeps statements, `keys.rs` says that grids have no keys. Never here: what statements may do (`query::Statements`).

mod converts;
mod info;
mod keys;
pub(super) mod metadata;
pub(super) mod prepared;
mod types;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::sql::{Any, Command, ProstMessageExt, TicketStatementQuery};
use bytes::Bytes;
use tracing::Instrument;

use super::flight::protocol;
use super::service::Service;
use crate::error::{Error, Result};
use crate::flight::schema_bytes;
use crate::query::Parameters;
use crate::serve::door::call::Call;
use crate::serve::queries::answers::{Answer, Statement};
use crate::serve::queries::poll::Polled;
use crate::serve::queries::rows::columns_of;
use crate::serve::queries::running::Task;

/// What a command gives: a ticket for it, and its columns. A statement that names something does so now; its ticket gives a row that says what was done.
///
/// # Errors
/// As [`Session::sql_with`](crate::query::Session::sql_with); `Unsupported` for commands that the server does not have.
pub(super) async fn answer(
    service: &Service,
    call: &Call,
    command: Command,
) -> Result<(Any, SchemaRef)> {
    let Some(tasks) = tasks(service, call, &command).await? else {
        let schema = metadata::batch(service, call, &command).await?.schema();
        return Ok((command.into_any(), schema));
    };
    let schema = columns_of(&tasks)?;
    let answer = match tasks.as_slice() {
        // Few read what is said of a change: nothing else is kept of it.
        [task] if let Some(said) = task.query.said() => Answer::Said {
            said: said.clone(),
            text: Arc::clone(&task.text),
        },
        _ => Answer::of_queries(tasks, Arc::clone(&schema)),
    };
    let name = service.answers.tickets.keep(&call.caller, answer)?;
    let ticket = TicketStatementQuery {
        statement_handle: Bytes::copy_from_slice(&name),
    };
    Ok((ticket.as_any(), schema))
}

/// Begins the queries of a command, whose rows the server keeps; `None` for a command that asks for metadata.
///
/// # Errors
/// As [`answer`].
pub(super) async fn begin(
    service: &Service,
    call: &Call,
    command: &Command,
) -> Result<Option<Arc<Polled>>> {
    let Some(tasks) = tasks(service, call, command).await? else {
        return Ok(None);
    };
    let room = service.room(&call.caller);
    Polled::begin(tasks, &call.caller, &service.running, room).map(Some)
}

/// The queries of a command; `None` for one that asks for metadata.
async fn tasks(service: &Service, call: &Call, command: &Command) -> Result<Option<Vec<Task>>> {
    Ok(match command {
        Command::CommandStatementQuery(query) => {
            without_transaction(query.transaction_id.as_ref())?;
            let text: Arc<str> = Arc::from(query.query.as_str());
            let task = task(service, call, text, Parameters::default()).await?;
            Some(vec![task])
        }
        Command::CommandPreparedStatementQuery(query) => {
            let statements = &service.answers.statements;
            let statement = statements.find(&call.caller, &query.prepared_statement_handle)?;
            Some(prepared::tasks(service, call, &statement).await?)
        }
        _ => None,
    })
}

/// The query of a text.
pub(super) async fn task(
    service: &Service,
    call: &Call,
    text: Arc<str>,
    parameters: Parameters,
) -> Result<Task> {
    let session = service.session_of(&call.caller)?;
    let (running, caller) = (Arc::clone(&service.running), call.caller.clone());
    let shown = Arc::clone(&text);
    let options = service.query_options(call).with_watch(move |query| {
        let task = Task {
            query: query.clone(),
            text: Arc::clone(&shown),
        };
        Box::new(running.begin(&caller, &task))
    });
    let planning = Box::pin(session.sql_with(&text, parameters, &options));
    let query = planning.instrument(tracing::info_span!("plan")).await?;
    Ok(Task { query, text })
}

/// The columns that a command gives; runs nothing.
///
/// # Errors
/// As [`answer`].
pub(super) async fn schema(service: &Service, call: &Call, command: &Command) -> Result<Bytes> {
    let statement = match command {
        Command::CommandStatementQuery(query) => {
            without_transaction(query.transaction_id.as_ref())?;
            prepared::looked_up(service, call, &query.query).await?
        }
        Command::CommandPreparedStatementQuery(query) => {
            let statements = &service.answers.statements;
            statements.find(&call.caller, &query.prepared_statement_handle)?
        }
        other => {
            let batch = metadata::batch(service, call, other).await?;
            return schema_bytes(&batch.schema());
        }
    };
    schema_bytes(&columns(&statement))
}

/// The columns of a statement.
pub(super) fn columns(statement: &Statement) -> SchemaRef {
    match &statement.prepared {
        Some(prepared) => prepared.schema(),
        None => Arc::new(Schema::new(vec![Field::new(
            "status",
            DataType::Utf8,
            false,
        )])),
    }
}

/// # Errors
/// `Unsupported` for a transaction.
pub(super) fn without_transaction(id: Option<&Bytes>) -> Result<()> {
    match id.filter(|id| !id.is_empty()) {
        None => Ok(()),
        Some(_) => Err(no_transactions()),
    }
}

pub(super) fn no_transactions() -> Error {
    Error::unsupported("the server has no transactions: each statement takes effect by itself")
        .with_hint("switch autocommit on, and send no transaction")
}

/// What the server does not have.
pub(super) fn no_command(name: &str) -> Error {
    protocol(format!("the server does not answer {name} here"))
}
