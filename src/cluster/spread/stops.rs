//! Stopping what members do for a statement that is over.
//!
//! Comes in: the name of a statement, as its coordinator draws it, and the connections by which it sends its parts. Goes out: a flag that all parts of the statement in this process look at, set once a connection
//! ends: with the statement, or with its coordinator, who says no more once nobody wants rows. The engine lets go of parts then; a join that does not pause would not notice. Never here: looking at the flag (`query/exec/stop.rs`).

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body as _, Frame};
use tokio::sync::{mpsc, oneshot};
use tonic::Status;
use tonic::body::Body;

use crate::error::{Error, Result};
use crate::query::Stop;

/// Frames of a request that are read before somebody takes them.
const FRAMES_AHEAD: usize = 64;

/// The header that names the statement of a part.
const STATEMENT: &str = "partgrid-statement";

/// The statements that this process does something for.
#[derive(Debug, Clone, Default)]
pub(in crate::cluster) struct Stops(Arc<Mutex<HashMap<String, Stop>>>);

impl Stops {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Stop>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new statement of a run: the headers that its parts carry, what ends it when it is dropped, and the flag that its parts here look at. It ends with the run as well: at once, also where all threads are busy with its parts.
    ///
    /// # Errors
    /// `Internal` when the operating system gives no random bytes.
    pub(in crate::cluster) fn statement(&self, run: &Stop) -> Result<(HeaderMap, Ends, Stop)> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| {
            Error::internal("the operating system gave no random bytes").with_source(error)
        })?;
        let name = format!("{:032x}", u128::from_le_bytes(bytes));
        let mut headers = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_str(&name) {
            headers.insert(STATEMENT, value);
        }
        let stop = run.attempt();
        self.known().insert(name.clone(), stop.clone());
        Ok((headers, self.ends(name), stop))
    }

    /// The flag of the statement that a part belongs to; one that nobody sets, if it names none. It is set if the statement was over before the part began: nobody would end it.
    pub(in crate::cluster) fn of_part(&self, headers: &HeaderMap) -> Stop {
        let Some(name) = name_in(headers) else {
            return Stop::default();
        };
        let known = self.known().get(&name).cloned();
        known.unwrap_or_else(|| {
            let over = Stop::default();
            over.set();
            over
        })
    }

    fn ends(&self, name: String) -> Ends {
        let _stop = self.known().entry(name.clone()).or_default();
        Ends {
            name,
            stops: self.clone(),
        }
    }

    /// The request, whose statement is over for this process when its body ends or breaks off, or nobody reads it any more. It is read where this is called, which must be on threads that run no parts: those may all be busy with what is to end.
    pub(in crate::cluster) fn watched(&self, request: http::Request<Body>) -> http::Request<Body> {
        let Some(name) = name_in(request.headers()) else {
            return request;
        };
        let ends = self.ends(name);
        request.map(|body| {
            let (sender, frames) = mpsc::channel(FRAMES_AHEAD);
            let (_taken, taken) = oneshot::channel();
            tokio::spawn(pass(body, sender, taken, ends));
            Body::new(Passed { frames, _taken })
        })
    }
}

/// Whether a part says of which statement it is.
pub(in crate::cluster) fn is_of_statement(headers: &HeaderMap) -> bool {
    name_in(headers).is_some()
}

fn name_in(headers: &HeaderMap) -> Option<String> {
    Some(headers.get(STATEMENT)?.to_str().ok()?.to_owned())
}

/// Ends a statement when it is dropped.
pub(in crate::cluster) struct Ends {
    name: String,
    stops: Stops,
}

impl Drop for Ends {
    fn drop(&mut self) {
        if let Some(stop) = self.stops.known().remove(&self.name) {
            stop.set();
        }
    }
}

/// A frame of a body.
type Passing = std::result::Result<Frame<Bytes>, Status>;

/// Passes a body on; ends the statement with it, or once nobody takes it. Whoever takes it does not say when it is at its end: that may have to wait for a thread, and all of them for this.
async fn pass(
    body: Body,
    sender: mpsc::Sender<Passing>,
    taken: oneshot::Receiver<()>,
    _ends: Ends,
) {
    tokio::select! {
        _ = taken => {}
        () = all(body, sender) => {}
    }
}

/// Passes frames on until the body ends, or nobody takes them.
async fn all(mut body: Body, sender: mpsc::Sender<Passing>) {
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let passed = match frame {
            Ok(frame) => sender.send(Ok(frame)).await.is_ok(),
            Err(error) => {
                // Where nobody has read what came before, nobody reads this.
                drop(sender.try_send(Err(error)));
                false
            }
        };
        if !passed {
            return;
        }
    }
}

/// A body that is passed on.
struct Passed {
    frames: mpsc::Receiver<Passing>,
    _taken: oneshot::Sender<()>,
}

impl http_body::Body for Passed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Passing>> {
        self.frames.poll_recv(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits for what happens in other tasks.
    async fn until(holds: impl Fn() -> bool) {
        for _ in 0..1000 {
            if holds() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("what was waited for did not come");
    }

    #[tokio::test]
    async fn a_statement_is_over_when_its_end_is_dropped() {
        let stops = Stops::default();
        let (headers, ends, _) = stops.statement(&Stop::default()).unwrap();
        let stop = stops.of_part(&headers);
        assert!(stop.check().is_ok());
        let request = http::Request::builder().header(STATEMENT, headers[STATEMENT].clone());
        let request = stops.watched(request.body(Body::empty()).unwrap());
        drop(request);
        until(|| stop.check().is_err()).await;
        drop(ends);
        assert!(stops.known().is_empty());
        assert!(stops.of_part(&HeaderMap::new()).check().is_ok());
        // A part that comes late is over as well, and nothing is kept for it.
        assert!(stops.of_part(&headers).check().is_err());
        assert!(stops.known().is_empty());
    }

    /// A body that broke off: it has an end, and has not come to it.
    struct Reset;

    impl http_body::Body for Reset {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Passing>> {
            Poll::Ready(None)
        }
    }

    #[tokio::test]
    async fn a_statement_whose_coordinator_is_gone_or_has_said_all_is_over_though_nobody_reads() {
        for body in [Body::new(Reset), Body::empty()] {
            let stops = Stops::default();
            let (headers, _ends, _) = stops.statement(&Stop::default()).unwrap();
            let stop = stops.of_part(&headers);
            let request = http::Request::builder().header(STATEMENT, headers[STATEMENT].clone());
            let _unread = stops.watched(request.body(body).unwrap());
            until(|| stop.check().is_err()).await;
        }
    }

    #[test]
    fn a_run_ends_its_statements_and_is_not_ended_by_them() {
        let (stops, run) = (Stops::default(), Stop::default());
        let (first, ends, _) = stops.statement(&run).unwrap();
        let first = stops.of_part(&first);
        drop(ends);
        assert!(first.check().is_err() && run.check().is_ok());
        let (second, _ends, _) = stops.statement(&run).unwrap();
        let second = stops.of_part(&second);
        assert!(second.check().is_ok());
        run.set();
        assert!(second.check().is_err());
    }
}
