//! Prepared statements.
//!
//! Comes in: a text, then values for its parameters. Goes out: the statement looked up once; a query for each set of values. Never here: SQL's own PREPARE, which clients may not use.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use arrow_flight::sql::ActionCreatePreparedStatementResult;
use bytes::Bytes;

use super::super::service::Service;
use super::{columns, task};
use crate::error::{Error, ErrorKind, Result};
use crate::flight::schema_bytes;
use crate::query::Parameters;
use crate::serve::door::call::Call;
use crate::serve::queries::answers::Statement;
use crate::serve::queries::running::Task;

/// How many sets of values one statement takes at a time.
const MAX_SETS: usize = 10_000;

/// The statement of a text, with its names looked up if it reads.
///
/// # Errors
/// As [`Session::prepare`](crate::query::Session::prepare).
pub(in super::super) async fn looked_up(
    service: &Service,
    call: &Call,
    text: &str,
) -> Result<Statement> {
    let session = service.session_of(&call.caller)?;
    let options = service.query_options(call);
    let prepared = Box::pin(session.prepare_any(text, &options)).await?;
    Ok(Statement {
        text: Arc::from(text),
        prepared: prepared.map(Arc::new),
        bound: Vec::new(),
    })
}

/// Keeps the statement of a text for a caller.
///
/// # Errors
/// As [`looked_up`].
pub(in super::super) async fn create(
    service: &Service,
    call: &Call,
    text: &str,
) -> Result<ActionCreatePreparedStatementResult> {
    let statement = looked_up(service, call, text).await?;
    let dataset_schema = schema_bytes(&columns(&statement))?;
    let parameter_schema = match &statement.prepared {
        Some(prepared) => {
            let fields = prepared.parameters()?.into_iter().map(|(name, data_type)| {
                let name = name.trim_start_matches('$');
                Field::new(name, data_type.unwrap_or(DataType::Null), true)
            });
            schema_bytes(&Schema::new(fields.collect::<Vec<_>>()))?
        }
        None => Bytes::new(),
    };
    let name = service.answers.statements.keep(&call.caller, statement)?;
    Ok(ActionCreatePreparedStatementResult {
        prepared_statement_handle: Bytes::copy_from_slice(&name),
        dataset_schema,
        parameter_schema,
    })
}

/// The sets of values of batches, one for each row. Columns whose names are all parameters (`$name`) go by name, others in order.
///
/// # Errors
/// `ResourcesExhausted` for too many.
pub(in super::super) fn sets(batches: &[RecordBatch]) -> Result<Vec<Parameters>> {
    let num_rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    if num_rows > MAX_SETS {
        let text = format!("a statement takes {MAX_SETS} sets of values at a time, got {num_rows}");
        return Err(Error::new(ErrorKind::ResourcesExhausted, text)
            .with_hint("ingest the rows as a table, and join"));
    }
    let mut sets = Vec::with_capacity(num_rows);
    for batch in batches {
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter().map(|column| column.slice(row, 1));
            sets.push(Parameters::InOrder(values.collect()));
        }
    }
    Ok(sets)
}

/// The values by the names of their columns, where all begin with `$` or the statement has parameters of such names.
fn named(statement: &Statement, schema: &Schema, set: Parameters) -> Result<Parameters> {
    let says_names = schema
        .fields()
        .iter()
        .all(|field| field.name().starts_with('$'));
    if let (true, Parameters::InOrder(values)) = (says_names, &set) {
        let names = schema
            .fields()
            .iter()
            .map(|field| field.name().trim_start_matches('$'));
        let pairs = names.map(str::to_owned).zip(values.iter().cloned());
        return Ok(Parameters::ByName(pairs.collect()));
    }
    let (Some(prepared), Parameters::InOrder(values)) = (&statement.prepared, &set) else {
        return Ok(set);
    };
    let wanted = prepared.parameters()?;
    let fields = schema.fields().iter().map(|field| field.name());
    let is_named = !wanted.is_empty()
        && wanted.len() == values.len()
        && wanted
            .iter()
            .all(|(name, _)| name.trim_start_matches('$').parse::<usize>().is_err());
    if !is_named {
        return Ok(set);
    }
    let pairs = fields.map(|name| name.trim_start_matches('$').to_owned());
    Ok(Parameters::ByName(
        pairs.zip(values.iter().cloned()).collect(),
    ))
}

/// Keeps values for the next run of a statement.
///
/// # Errors
/// `NotFound` for another's statement; as [`sets`].
pub(in super::super) fn bind(
    service: &Service,
    call: &Call,
    handle: &Bytes,
    batches: &[RecordBatch],
) -> Result<()> {
    let statements = &service.answers.statements;
    let mut statement = statements.find(&call.caller, handle)?;
    let mut bound = Vec::new();
    for batch in batches {
        for set in sets(std::slice::from_ref(batch))? {
            bound.push(named(&statement, &batch.schema(), set)?);
        }
    }
    if bound.len() > MAX_SETS {
        sets(batches)?;
    }
    statement.bound = bound;
    statements.replace(&call.caller, handle, statement)
}

/// The queries of a statement: one for each set of values, or one.
///
/// # Errors
/// As [`Prepared::query`](crate::query::Prepared::query).
pub(in super::super) async fn tasks(
    service: &Service,
    call: &Call,
    statement: &Statement,
) -> Result<Vec<Task>> {
    let sets = match statement.bound.as_slice() {
        [] => vec![Parameters::default()],
        bound => bound.to_vec(),
    };
    let options = service.query_options(call);
    let is_one = sets.len() == 1;
    let mut tasks = Vec::with_capacity(sets.len());
    for parameters in sets {
        let text = Arc::clone(&statement.text);
        let task = match &statement.prepared {
            Some(prepared) => Task {
                query: Box::pin(prepared.query(parameters, &options)).await?,
                text,
            },
            None => task(service, call, text, parameters).await?,
        };
        tasks.push(match is_one {
            true => task,
            // Rows of one answer are of one version of each grid.
            false => Task {
                query: task.query.planned_once(),
                ..task
            },
        });
    }
    Ok(tasks)
}
