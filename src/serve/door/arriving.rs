//! Bodies of requests, as they come in.
//!
//! Comes in: a request of somebody who may come in, of which nothing but the headers was read. Goes out: the same, whose body ends with an error once it is longer than its method needs, does not move on, or is more than clients may send at
//! the time; what of it lies in memory is counted until the request was answered. Never here: who may come in, what the messages say.

use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::Request;

use super::auth::Caller;
use super::framing::{Framing, Refused};
use crate::error::{Error, ErrorKind, Result};
use crate::flight::{REQUEST, status_of};
use crate::serve::flight::{IN_ROWS, MAX_COMMAND_BYTES, protocol};
use crate::serve::receive::held::Held;
use crate::serve::service::Service;

/// With what the paths of Flight begin.
const FLIGHT: &str = "/arrow.flight.protocol.FlightService/";

/// What a message may have around a command or a ticket: what says which it is.
const AROUND_BYTES: u64 = 64 * 1024;

/// So many bytes of a request are not counted: whoever uses all that they may can still say that something is to end.
const UNCOUNTED_BYTES: u64 = 64 * 1024;

/// What a method takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One message that says what to do.
    Command,
    /// One message with tiles or files that a member has dealt to another one.
    Dealt,
    /// Messages with rows, as long as a client has some.
    Rows,
    /// What members say to each other as long as a statement runs.
    Parts,
}

impl Kind {
    fn of(service: &Service, caller: &Caller, path: &str) -> Self {
        match path.strip_prefix(FLIGHT) {
            None => Self::Parts,
            Some("DoPut" | "DoExchange") => Self::Rows,
            Some("DoAction") if is_member(service, caller) => Self::Dealt,
            Some(_) => Self::Command,
        }
    }

    /// How the messages may be.
    fn framing(self, message_bytes: u64) -> Framing {
        match self {
            Self::Command => Framing::of(MAX_COMMAND_BYTES as u64 + AROUND_BYTES),
            Self::Dealt => Framing::of(message_bytes),
            // What comes with the rows is looked at before it is read: many small parts take much more memory than bytes.
            Self::Rows => Framing::of(message_bytes).with_descriptors(MAX_COMMAND_BYTES as u64),
            // Those who may send them are trusted, and what comes is counted.
            Self::Parts => Framing::of(u64::from(u32::MAX)),
        }
    }

    /// Whether there is one message, and nothing behind it.
    fn is_single(self) -> bool {
        matches!(self, Self::Command | Self::Dealt)
    }

    /// How many times the silence is waited for what is missing.
    fn patience(self) -> u32 {
        match self {
            Self::Command => 1,
            // A client that has gone is found out before: its connection is closed, and it is told nothing.
            Self::Dealt | Self::Rows | Self::Parts => 2,
        }
    }

    /// What is said of what is too long, or no message.
    fn refused(self, most_bytes: u64, why: Refused) -> Error {
        let (text, hint) = match (self, why) {
            (_, Refused::Torn) => {
                return protocol("the request is no message of its method: a field is none");
            }
            (_, Refused::Descriptor(bytes)) => (
                format!("a descriptor may have {MAX_COMMAND_BYTES} bytes, got {bytes}"),
                IN_ROWS,
            ),
            (Self::Command, Refused::Message(bytes)) => (
                format!(
                    "a command, a ticket or the body of an action may have {MAX_COMMAND_BYTES} bytes, got a request of {bytes}"
                ),
                IN_ROWS,
            ),
            (_, Refused::Message(bytes)) => (
                format!("a message may have {most_bytes} bytes, got {bytes}"),
                "send smaller messages: fewer rows each",
            ),
        };
        Error::new(ErrorKind::ResourcesExhausted, text).with_hint(hint)
    }
}

/// Whether a caller may be another member of the cluster of this server.
#[cfg(feature = "distributed")]
fn is_member(service: &Service, caller: &Caller) -> bool {
    crate::serve::member::may_ask(service, caller)
}

#[cfg(not(feature = "distributed"))]
fn is_member(_service: &Service, _caller: &Caller) -> bool {
    false
}

/// The request with a body that is bounded, and what counts it as long as it is there.
pub(super) fn bounded(
    service: &Arc<Service>,
    caller: &Caller,
    request: Request<Body>,
) -> (Request<Body>, Counted) {
    let kind = Kind::of(service, caller, request.uri().path());
    let counted = Counted {
        service: Arc::clone(service),
        // What members use of each other counts for all together.
        caller: (kind != Kind::Parts).then(|| caller.clone()),
        held: Arc::default(),
        why: Arc::default(),
    };
    let arriving = |body| Arriving {
        body,
        kind,
        framing: kind.framing(service.limits.message_bytes as u64),
        bytes: 0,
        first_bytes: None,
        counted: counted.clone(),
        silence: service.limits.silence,
        heard: Instant::now(),
        overdue: None,
        is_refused: false,
    };
    let request = request.map(|body| Body::new(arriving(body)));
    (request, counted)
}

/// Counts what of a request lies in memory, and says why its body was refused: what reads it hears a text of that only. Clones are the same.
#[derive(Clone)]
pub(in crate::serve) struct Counted {
    service: Arc<Service>,
    caller: Option<Caller>,
    held: Arc<Mutex<Option<Held>>>,
    why: Arc<OnceLock<Error>>,
}

impl Counted {
    pub(in crate::serve) fn refusal(&self) -> Option<Error> {
        self.why.get().cloned()
    }

    fn set(&self, bytes: u64) -> Result<()> {
        let bytes = bytes.saturating_sub(UNCOUNTED_BYTES);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes == 0 && held.is_none() {
            return Ok(());
        }
        let held = held.get_or_insert_with(|| self.service.hold_nothing(self.caller.as_ref()));
        held.resize(bytes)
    }
}

struct Arriving {
    body: Body,
    kind: Kind,
    framing: Framing,
    /// All that came.
    bytes: u64,
    /// Of the first message, once it is whole and until somebody asks for more: what it says is done before.
    first_bytes: Option<u64>,
    counted: Counted,
    silence: Duration,
    /// When the request began, or, where it may be long, when something came last.
    heard: Instant,
    overdue: Option<Pin<Box<Sleep>>>,
    is_refused: bool,
}

impl Arriving {
    /// Looks at what came, and counts what of it is not given away.
    fn take(&mut self, bytes: &Bytes) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.kind != Kind::Command {
            self.heard = Instant::now();
        }
        let most = self.framing.most_bytes();
        let passed = self.framing.pass(bytes);
        passed.map_err(|why| self.kind.refused(most, why))?;
        if self.kind.is_single() {
            let is_more = self.framing.num_whole() > 1
                || (self.framing.num_whole() == 1 && self.framing.begun_bytes() > 0);
            return match is_more {
                true => Err(protocol("the request is more than one message")),
                false => self.counted.set(self.bytes),
            };
        }
        self.first_bytes = self.framing.first_len().or(self.first_bytes);
        let first = self.first_bytes.unwrap_or(0);
        self.counted
            .set(first.saturating_add(self.framing.begun_bytes()))
    }

    /// Whether something is missing that should have come by now.
    fn is_overdue(&mut self, context: &mut Context<'_>) -> bool {
        let is_awaited = match self.kind {
            Kind::Command | Kind::Dealt => true,
            Kind::Rows => self.framing.begun_bytes() > 0,
            // Members see to it themselves that the others are there.
            Kind::Parts => false,
        };
        if !is_awaited {
            return false;
        }
        let until = self.heard + self.kind.patience() * self.silence;
        let overdue = self
            .overdue
            .get_or_insert_with(|| Box::pin(sleep_until(until)));
        if overdue.deadline() != until {
            overdue.as_mut().reset(until);
        }
        overdue.as_mut().poll(context).is_ready()
    }

    fn refused(&mut self, error: Error) -> Poll<Option<std::result::Result<Frame<Bytes>, Status>>> {
        self.is_refused = true;
        let mut status = status_of(error.kind(), error.message(), "");
        // Whoever answers says it again, in the name of the request.
        status.metadata_mut().remove(REQUEST);
        // It is refused once.
        self.counted.why.get_or_init(|| error);
        Poll::Ready(Some(Err(status)))
    }
}

fn too_slow(silence: Duration) -> Error {
    let text = format!(
        "the request did not come whole within limits.silence, which is {} seconds",
        silence.as_secs_f64()
    );
    Error::new(ErrorKind::ResourcesExhausted, text)
        .with_hint("send it again, at once, or ask the administrator to raise limits.silence")
}

impl http_body::Body for Arriving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Status>>> {
        if self.is_refused {
            return Poll::Ready(None);
        }
        if !self.kind.is_single() && self.first_bytes.take().is_some() {
            // Fewer bytes are never too many.
            drop(self.counted.set(self.framing.begun_bytes()));
        }
        let next = Pin::new(&mut self.body).poll_frame(context);
        if next.is_pending() && self.is_overdue(context) {
            let error = too_slow(self.silence);
            return self.refused(error);
        }
        let next = ready!(next);
        if let Some(Ok(frame)) = &next
            && let Some(bytes) = frame.data_ref()
            && let Err(error) = self.take(bytes)
        {
            return self.refused(error);
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.is_refused || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
