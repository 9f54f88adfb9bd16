//! The batches of a run, as classes of Python hold them.
//!
//! Comes in: a stream. Goes out: the same, safe to look at from all threads. Never here: Python objects.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use partgrid::error::Result;

/// The batches of a run. Dropping them stops it.
pub(crate) struct Rows(
    /// Never locked: whoever polls has it alone. A class of Python must be safe to look at from all threads.
    Mutex<BoxStream<'static, Result<RecordBatch>>>,
);

impl From<BoxStream<'static, Result<RecordBatch>>> for Rows {
    fn from(batches: BoxStream<'static, Result<RecordBatch>>) -> Self {
        Self(Mutex::new(batches))
    }
}

impl Stream for Rows {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let batches = self.get_mut().0.get_mut();
        batches
            .unwrap_or_else(PoisonError::into_inner)
            .poll_next_unpin(context)
    }
}
