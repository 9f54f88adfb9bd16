//! Answers -> batches, within what one answer may be.
//!
//! Comes in: what a ticket stands for. Goes out: a stream of batches; the query is listed while it runs, stops when the stream is dropped, and ends in an error past the limit. Never here: messages.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::answers::Answer;
use super::auth::Caller;
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
    max_bytes: u64,
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
            let mut sent = 0;
            let bounded = each.try_flatten().map(move |batch| {
                let batch = batch?;
                sent += slice_bytes(&batch);
                if sent > max_bytes {
                    return Err(too_large(max_bytes));
                }
                Ok(batch)
            });
            Rows {
                schema,
                batches: bounded.boxed(),
            }
        }
    }
}

pub(super) fn too_large(max_bytes: u64) -> Error {
    let text = format!("the answer has more bytes than the {max_bytes} that the server gives");
    Error::new(ErrorKind::ResourcesExhausted, text)
        .with_hint("select fewer columns or rows, aggregate, or ask the administrator to raise limits.answer_bytes")
}

enum Step {
    Begin(Box<Task>, Caller, Arc<Running>),
    Running(BatchStream, Guard),
    Ended,
}

/// The next batch of a query, begun when it is asked for.
async fn step(step: Step) -> Option<(Result<RecordBatch>, Step)> {
    let (mut batches, guard) = match step {
        Step::Ended => return None,
        Step::Running(batches, guard) => (batches, guard),
        Step::Begin(task, caller, running) => {
            let guard = running.begin(&caller, &task);
            match task.query.stream() {
                Ok(batches) => (batches, guard),
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
            Some((Ok(batch), Step::Running(batches, guard)))
        }
        Some(Err(error)) => {
            guard.end(Some(&error));
            Some((Err(error), Step::Ended))
        }
    }
}
