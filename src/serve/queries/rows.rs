//! Answers -> batches, within what one answer may be.
//!
//! Comes in: what a ticket stands for. Goes out: a stream of batches; the query is listed while it runs, stops when the stream is dropped, and ends in an error past the limit. Never here: messages.

use std::fmt::Display;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use tracing::Span;

use super::answers::{Answer, Reader};
use super::running::{Guard, Running, Task};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::slice_bytes;
use crate::query::BatchStream;
use crate::serve::door::auth::Caller;
use crate::serve::options::Limits;

/// Batches of one answer.
pub(in crate::serve) struct Rows {
    pub(in crate::serve) schema: SchemaRef,
    pub(in crate::serve) batches: BoxStream<'static, Result<RecordBatch>>,
}

/// The columns of queries whose rows make one answer. One that has no nulls with some values may have them with others.
///
/// # Errors
/// `Query` for columns of other types with other values, `Internal` for no query.
pub(in crate::serve) fn columns_of(tasks: &[Task]) -> Result<SchemaRef> {
    let mut schemas = tasks.iter().map(|task| task.query.schema());
    let first = schemas.next();
    let first = first.ok_or_else(|| Error::internal("a statement without a query"))?;
    let mut fields: Vec<FieldRef> = first.fields().iter().cloned().collect();
    for schema in schemas {
        if schema.fields().len() != fields.len() {
            let (first, other) = (fields.len(), schema.fields().len());
            return Err(other_columns("the number of columns", first, other));
        }
        for (field, other) in fields.iter_mut().zip(schema.fields()) {
            if field.data_type() != other.data_type() {
                let what = format!("the type of {:?}", field.name());
                let (first, other) = (field.data_type(), other.data_type());
                return Err(other_columns(&what, first, other));
            }
            if other.is_nullable() && !field.is_nullable() {
                *field = Arc::new(field.as_ref().clone().with_nullable(true));
            }
        }
    }
    Ok(Arc::new(Schema::new_with_metadata(
        fields,
        first.metadata().clone(),
    )))
}

fn other_columns(what: &str, first: impl Display, other: impl Display) -> Error {
    let text = format!("{what} must be the same with all values, got {first} and {other}");
    Error::new(ErrorKind::Query, text)
        .with_hint("cast the value (`CAST($1 AS …)`), or run the statement with each by itself")
}

/// The batches of an answer for a caller.
pub(in crate::serve) fn rows(
    answer: Answer,
    caller: &Caller,
    running: &Arc<Running>,
    mut room: Room,
) -> Rows {
    match answer {
        Answer::Batch(batch) | Answer::Said { said: batch, .. } => Rows {
            schema: batch.schema(),
            batches: stream::iter([Ok(batch)]).boxed(),
        },
        Answer::Queries {
            tasks,
            schema,
            readers,
        } => {
            let reader = Reader::of(&readers);
            let (caller, running) = (caller.clone(), Arc::clone(running));
            let each = stream::iter(tasks).map(move |task| {
                Ok::<_, Error>(stream::unfold(
                    Step::Begin(Box::new(task), caller.clone(), Arc::clone(&running)),
                    step,
                ))
            });
            let bounded = each.try_flatten().map(move |batch| {
                let _reader = &reader;
                let batch = batch?;
                room.take(&batch)?;
                Ok(batch)
            });
            Rows {
                schema,
                batches: bounded.boxed(),
            }
        }
    }
}

/// What an answer may still have.
#[derive(Debug, Clone, Copy)]
pub(in crate::serve) struct Room {
    max_bytes: u64,
    max_rows: u64,
    /// Whether the bytes are bounded for the caller, and not for all.
    is_of_caller: bool,
    bytes: u64,
    rows: u64,
}

impl Room {
    /// That of an answer of which nothing was given yet, for a caller that may have so many bytes, if it has a limit of its own.
    pub(in crate::serve) fn of(limits: &Limits, own_bytes: Option<u64>) -> Self {
        let of_caller = own_bytes.filter(|own| *own < limits.answer_bytes);
        Self {
            max_bytes: of_caller.unwrap_or(limits.answer_bytes),
            is_of_caller: of_caller.is_some(),
            max_rows: limits.answer_rows,
            bytes: 0,
            rows: 0,
        }
    }

    /// Counts a batch.
    ///
    /// # Errors
    /// `ResourcesExhausted` when it is too much.
    pub(super) fn take(&mut self, batch: &RecordBatch) -> Result<()> {
        self.bytes += slice_bytes(batch);
        self.rows += batch.num_rows() as u64;
        let setting = match self.is_of_caller {
            true => "`answer` of the token",
            false => "limits.answer",
        };
        let (what, most, setting) = if self.bytes > self.max_bytes {
            ("bytes", self.max_bytes, setting)
        } else if self.rows > self.max_rows {
            ("rows", self.max_rows, "limits.answer_rows")
        } else {
            return Ok(());
        };
        let text = format!("the answer has more {what} than the {most} that the server gives");
        let hint = format!(
            "select fewer columns or rows, aggregate, or ask the administrator to raise {setting}"
        );
        Err(Error::new(ErrorKind::ResourcesExhausted, text).with_hint(hint))
    }
}

enum Step {
    Begin(Box<Task>, Caller, Arc<Running>),
    Running(BatchStream, Guard, Span),
    Ended,
}

/// The next batch of a query, begun when it is asked for.
async fn step(step: Step) -> Option<(Result<RecordBatch>, Step)> {
    let (mut batches, guard, span) = match step {
        Step::Ended => return None,
        Step::Running(batches, guard, span) => (batches, guard, span),
        Step::Begin(task, caller, running) => {
            let guard = running.begin(&caller, &task);
            match task.query.stream() {
                Ok(batches) => {
                    let span = tracing::info_span!("query", number = guard.run.id);
                    (batches, guard, span)
                }
                Err(error) => {
                    guard.end(Some(&error));
                    return Some((Err(error), Step::Ended));
                }
            }
        }
    };
    match batches.next().await {
        None => {
            guard.end(None);
            None
        }
        Some(Ok(batch)) => {
            guard.count(batch.num_rows());
            Some((Ok(batch), Step::Running(batches, guard, span)))
        }
        Some(Err(error)) => {
            guard.end(Some(&error));
            Some((Err(error), Step::Ended))
        }
    }
}
