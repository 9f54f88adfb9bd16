//! Streams of clients that break off.
//!
//! Comes in: the body of a request. Goes out: the same, and whether it broke off: hyper and tonic give a stream that its client resets the end of one that is whole, and half of a table would be taken for all of it. Never here: what is
//! in the stream.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tonic::body::Body;
use tonic::codegen::http::Request;

/// Whether what a client sends broke off, so far.
#[derive(Debug, Clone, Default)]
pub(in crate::serve) struct BrokenOff(Arc<AtomicBool>);

impl BrokenOff {
    pub(in crate::serve) fn is_so(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The request, with a [`BrokenOff`] among its extensions.
pub(super) fn watched(request: Request<Body>) -> Request<Body> {
    let broken = BrokenOff::default();
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(broken.clone());
    Request::from_parts(parts, Body::new(Watched { body, broken }))
}

struct Watched {
    body: Body,
    broken: BrokenOff,
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let next = ready!(Pin::new(&mut self.body).poll_frame(context));
        // hyper gives a stream that was reset no error but an end; it has not come to its end then.
        let is_whole = match &next {
            Some(Ok(_)) => true,
            Some(Err(_)) => false,
            None => self.body.is_end_stream(),
        };
        if !is_whole {
            self.broken.0.store(true, Ordering::Release);
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
