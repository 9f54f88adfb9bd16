//! Stopping what members do for a statement that is over.
//!
//! Comes in: the name of a statement, as its coordinator draws it, and the connections by which it sends its parts. Goes out: a flag that all parts of the statement in this process look at, set once a connection
//! ends: with the statement, or with its coordinator. The engine lets go of parts then; a join that does not pause would not notice. Never here: looking at the flag (`query/exec/stop.rs`).

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Frame, SizeHint};
use tonic::body::Body;

use crate::error::{Error, Result};
use crate::query::Stop;

/// The engine lets go of parts some time after it has heard that they are over.
const TIMES: u8 = 3;

/// The header that names the statement of a part.
const STATEMENT: &str = "partgrid-statement";

/// The statements that this process does something for.
#[derive(Debug, Clone, Default)]
pub(super) struct Stops(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    known: Mutex<HashMap<String, Stop>>,
    /// How often those who ask are still told that a statement was over.
    over: AtomicU8,
}

impl Stops {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Stop>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a statement was over of late: since this was asked last, or the few times before.
    pub(super) fn was_any_over(&self) -> bool {
        let less = |left: u8| left.checked_sub(1);
        let told = self
            .0
            .over
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        told.is_ok()
    }

    /// A new statement: the headers that its parts carry, and what ends it when it is dropped.
    ///
    /// # Errors
    /// `Internal` when the operating system gives no random bytes.
    pub(super) fn statement(&self) -> Result<(HeaderMap, Ends)> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| {
            Error::internal("the operating system gave no random bytes").with_source(error)
        })?;
        let name = format!("{:032x}", u128::from_le_bytes(bytes));
        let mut headers = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_str(&name) {
            headers.insert(STATEMENT, value);
        }
        Ok((headers, self.ends(name)))
    }

    /// The flag of the statement that a part belongs to; one that nobody sets, if it names none.
    pub(super) fn of_part(&self, headers: &HeaderMap) -> Stop {
        match name_in(headers) {
            Some(name) => self.known().entry(name).or_default().clone(),
            None => Stop::default(),
        }
    }

    fn ends(&self, name: String) -> Ends {
        let _stop = self.known().entry(name.clone()).or_default();
        Ends {
            name,
            stops: self.clone(),
        }
    }

    /// The request, whose statement is over for this process when its body ends.
    pub(super) fn watched(&self, request: http::Request<Body>) -> http::Request<Body> {
        let Some(name) = name_in(request.headers()) else {
            return request;
        };
        let ends = self.ends(name);
        request.map(|body| Body::new(Watched { body, _ends: ends }))
    }
}

fn name_in(headers: &HeaderMap) -> Option<String> {
    Some(headers.get(STATEMENT)?.to_str().ok()?.to_owned())
}

/// Ends a statement when it is dropped.
pub(super) struct Ends {
    name: String,
    stops: Stops,
}

impl Drop for Ends {
    fn drop(&mut self) {
        if let Some(stop) = self.stops.known().remove(&self.name) {
            stop.set();
            self.stops.0.over.store(TIMES, Ordering::Release);
        }
    }
}

struct Watched {
    body: Body,
    _ends: Ends,
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, tonic::Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_over_when_its_end_is_dropped() {
        let stops = Stops::default();
        let (headers, ends) = stops.statement().unwrap();
        let stop = stops.of_part(&headers);
        assert!(stop.check().is_ok());
        let request = http::Request::builder().header(STATEMENT, headers[STATEMENT].clone());
        let request = stops.watched(request.body(Body::empty()).unwrap());
        drop(request);
        assert!(stop.check().is_err());
        drop(ends);
        assert!(stops.known().is_empty());
        assert!(stops.of_part(&HeaderMap::new()).check().is_ok());
    }
}
