//! The batches of a running query, pulled from a thread of Python.
//!
//! Comes in: a query. Goes out: an iterator that a C stream can pull from. It releases the GIL while it waits and obeys Ctrl-C. Never here: planning.
//!
//! A C stream has no way to carry an exception, and what a consumer makes of an error code hides it (pyarrow: `ArrowInvalid`). So when a signal handler raises while
//! a consumer pulls, the exception is put into the interpreter's queue of pending calls, which the main thread runs when a call returns or a loop turns, and the
//! consumer gets an empty batch: a loop in Python ends there, with the exception. A consumer that pulls on without going back to Python is told that the stream ended,
//! so that it returns, and what it made of the shortened stream never reaches anybody.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;
use futures::StreamExt;
use partgrid::client::Asked;
use partgrid::error::{Error, ErrorKind, Result};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::result::Bar;
use crate::rows::Rows;
use crate::runtime::{attached, drop_attached, poll_and_tick};

/// What the error says when a signal handler raised.
pub(crate) const INTERRUPTED: &str = "the query was interrupted";

/// Batches of a query that runs on the runtime. Dropping it stops the query.
pub(crate) struct QueryBatches {
    /// `None` after the end.
    stream: Option<Rows>,
    query: Asked,
    bar: Bar,
    pid: u32,
    /// Set when a signal handler raised; the flag in it when Python has seen the exception.
    interrupted: Option<Arc<AtomicBool>>,
}

impl QueryBatches {
    /// Reads a run of a query, and shows how far it is.
    pub(crate) fn new(stream: Rows, query: Asked, bar: Bar) -> Self {
        Self {
            stream: Some(stream),
            query,
            bar,
            interrupted: None,
            pid: std::process::id(),
        }
    }

    /// Stops the query.
    pub(crate) fn stop(&mut self) {
        drop_attached(self.stream.take());
    }

    fn pull(&mut self) -> Result<Option<RecordBatch>> {
        if self.pid != std::process::id() {
            return Err(Error::invalid_argument(
                "this stream was opened before a fork and its query runs in the parent",
            )
            .with_hint("run the query again in this process"));
        }
        if let Some(seen) = &self.interrupted {
            return if seen.load(Ordering::Acquire) {
                Err(Error::new(ErrorKind::Cancelled, INTERRUPTED))
            } else {
                Ok(None)
            };
        }
        let Some(stream) = self.stream.as_mut() else {
            return Ok(None);
        };
        let ending = || Error::internal("the interpreter is ending");
        let (bar, query) = (&self.bar, &self.query);
        let polled = attached(|py| poll_and_tick(py, stream.next(), || bar.show(py, query)));
        let polled = polled.ok_or_else(ending)?;
        match polled {
            Ok(batch) => batch.transpose(),
            Err(raised) => {
                // The query stops with its stream.
                self.stop();
                self.interrupted = Some(attached(|py| raise_soon(py, raised)).ok_or_else(ending)?);
                Ok(Some(RecordBatch::new_empty(self.query.schema())))
            }
        }
    }
}

impl Iterator for QueryBatches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let pulled = self.pull();
        if !matches!(pulled, Ok(Some(_))) && self.stream.is_some() {
            self.stop();
            // A bar that cannot be ended is no reason to lose the answer.
            attached(|py| drop(self.bar.close(py)));
        }
        pulled.transpose()
    }
}

impl Drop for QueryBatches {
    /// What waits in the stream may be an exception.
    fn drop(&mut self) {
        self.stop();
    }
}

/// An exception for the main thread, and the flag that says it was raised.
struct Pending {
    raised: PyErr,
    seen: Arc<AtomicBool>,
}

/// Raises an exception in the main thread when it next returns to Python.
#[expect(unsafe_code, reason = "pending calls exist only in the C interface")]
fn raise_soon(py: Python<'_>, raised: PyErr) -> Arc<AtomicBool> {
    let seen = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&seen);
    let argument = Box::into_raw(Box::new(Pending { raised, seen: flag }));
    // SAFETY: the callback takes the box back exactly once; the queue runs it at most once.
    let refused = unsafe { ffi::Py_AddPendingCall(Some(raise_now), argument.cast()) } != 0;
    if refused {
        // SAFETY: a refused call is never run, so the box is still ours.
        let pending = unsafe { Box::from_raw(argument) };
        pending.raised.write_unraisable(py, None);
        seen.store(true, Ordering::Release);
    }
    seen
}

#[expect(unsafe_code, reason = "the other half of raise_soon")]
extern "C" fn raise_now(argument: *mut c_void) -> c_int {
    // SAFETY: `raise_soon` passed a box of `Pending`, and this runs once.
    let pending = unsafe { Box::from_raw(argument.cast::<Pending>()) };
    pending.seen.store(true, Ordering::Release);
    // SAFETY: pending calls run on the main thread with the GIL held.
    pending.raised.restore(unsafe { Python::assume_attached() });
    -1
}
