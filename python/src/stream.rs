//! The batches of a running query, pulled from a thread of Python.
//!
//! Comes in: a query. Goes out: an iterator that a C stream can pull from. It releases the GIL while it waits and obeys Ctrl-C. Never here: planning.
//!
//! A C stream has no way to carry an exception, and what a consumer makes of an error code hides it (pyarrow: `ArrowInvalid`). So when a signal handler raises while
//! a consumer pulls, the exception is put into the interpreter's queue of pending calls, which runs before the next instruction of the main thread, and the stream
//! ends; what the consumer made of the shortened stream never reaches anybody.

use std::ffi::{c_int, c_void};

use arrow::array::RecordBatch;
use futures::StreamExt;
use partgrid::error::{Error, Result};
use partgrid::query::Query;
use pyo3::ffi;
use pyo3::prelude::*;
use tokio::sync::mpsc::{self, Receiver};

use crate::runtime::{attached, poll_until_ready, runtime};

/// How many finished batches wait for a slow consumer.
const BATCHES_AHEAD: usize = 2;

/// Batches of a query that runs on the runtime. Dropping it stops the query.
pub(crate) struct QueryBatches {
    /// `None` after the end.
    receiver: Option<Receiver<Result<RecordBatch>>>,
    pid: u32,
}

impl QueryBatches {
    /// Starts the query.
    pub(crate) fn start(query: &Query) -> Result<Self> {
        let runtime = runtime()?;
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let query = query.clone();
        runtime.spawn(async move {
            let produce = async {
                let mut stream = match query.stream() {
                    Ok(stream) => stream,
                    Err(error) => return drop(sender.send(Err(error)).await),
                };
                while let Some(batch) = stream.next().await {
                    if sender.send(batch).await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! {
                () = produce => {}
                () = sender.closed() => {}
            }
        });
        Ok(Self {
            receiver: Some(receiver),
            pid: std::process::id(),
        })
    }

    fn pull(&mut self) -> Result<Option<RecordBatch>> {
        if self.pid != std::process::id() {
            return Err(Error::invalid_argument(
                "this stream was opened before a fork and its query runs in the parent",
            )
            .with_hint("run the query again in this process"));
        }
        let Some(receiver) = self.receiver.as_mut() else {
            return Ok(None);
        };
        let pulled = attached(|py| match poll_until_ready(py, receiver.recv()) {
            Ok(batch) => batch.transpose(),
            Err(raised) => {
                raise_soon(py, raised);
                Ok(None)
            }
        });
        pulled.unwrap_or_else(|| Err(Error::internal("the interpreter is ending")))
    }
}

impl Iterator for QueryBatches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let pulled = self.pull();
        if !matches!(pulled, Ok(Some(_))) {
            self.receiver = None;
        }
        pulled.transpose()
    }
}

/// Raises an exception in the main thread before its next instruction.
#[expect(unsafe_code, reason = "pending calls exist only in the C interface")]
fn raise_soon(py: Python<'_>, raised: PyErr) {
    let argument = Box::into_raw(Box::new(raised));
    // SAFETY: the callback takes the box back exactly once; the queue runs it at most once.
    let refused = unsafe { ffi::Py_AddPendingCall(Some(raise_now), argument.cast()) } != 0;
    if refused {
        // SAFETY: a refused call is never run, so the box is still ours.
        let raised = unsafe { Box::from_raw(argument) };
        raised.write_unraisable(py, None);
    }
}

#[expect(unsafe_code, reason = "the other half of raise_soon")]
extern "C" fn raise_now(argument: *mut c_void) -> c_int {
    // SAFETY: `raise_soon` passed a box of `PyErr`, and this runs once.
    let raised = unsafe { Box::from_raw(argument.cast::<PyErr>()) };
    // SAFETY: pending calls run on the main thread with the GIL held.
    raised.restore(unsafe { Python::assume_attached() });
    -1
}
