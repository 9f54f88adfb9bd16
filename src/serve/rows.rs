//! Answers -> batches, within what one answer may be.
//!
//! Comes in: what a ticket stands for. Goes out: a stream of batches; the query is listed while it runs, stops when the stream is dropped, and ends in an error past the limit. Never here: messages.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use tracing::Span;

use super::answers::Answer;
use super::auth::Caller;
use super::options::Limits;
use super::running::{Guard, Running, Task};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::slice_bytes;
use crate::query::BatchStream;

/// Batches of one answer.
pub(super) struct Rows {
    pub(super) schema: SchemaRef,
    pub(super) batches: BoxStream<'static, Result<RecordBatch>>,
}

/// The batches of an answer for a caller.
pub(super) fn rows(
    answer: Answer,
    caller: &Caller,
    running: &Arc<Running>,
    mut room: Room,
) -> Rows {
    match answer {
        Answer::Batch(batch) => Rows {
            schema: batch.schema(),
            batches: stream::iter([Ok(batch)]).boxed(),
        },
        Answer::Queries { tasks, schema } => {
            let (caller, running) = (caller.clone(), Arc::clone(running));
            let each = stream::iter(tasks).map(move |task| {
                Ok::<_, Error>(stream::unfold(
                    Step::Begin(Box::new(task), caller.clone(), Arc::clone(&running)),
                    step,
                ))
            });
            let bounded = each.try_flatten().map(move |batch| {
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
pub(super) struct Room {
    max_bytes: u64,
    max_rows: u64,
    /// Whether the bytes are bounded for the caller, and not for all.
    is_of_caller: bool,
    bytes: u64,
    rows: u64,
}

impl Room {
    /// That of an answer of which nothing was given yet, for a caller that may have so many bytes, if it has a limit of its own.
    pub(super) fn of(limits: &Limits, own_bytes: Option<u64>) -> Self {
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
