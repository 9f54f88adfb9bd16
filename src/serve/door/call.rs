//! One request: who asks, under which name, and what they are told when it fails.
//!
//! Comes in: a request of gRPC that passed the door. Goes out: a [`Call`]; errors as statuses, with their full text in the log under the name of the request. Never here: what is asked.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use futures::FutureExt;
use tonic::Status;
use tonic::codegen::http::Extensions;
use tonic::metadata::MetadataMap;
use tracing::{Instrument, Span};

use super::auth::{Caller, Scope};
use crate::error::{Error, ErrorKind, PATHS_START, Result};
use crate::flight::messages::torn;
use crate::flight::{ACK, ENDPOINTS, MEMORY_LIMIT, TIMEOUT, kind_name, status_saying};
use crate::query::RAISE_SPILL_LIMIT;
use crate::serve::receive::visit::{Connected, Visit};
use crate::serve::watch::counts::By;
use crate::serve::watch::traces::follow;

/// How many errors are kept for the page.
const RECENT_ERRORS: usize = 50;

/// The longest name that a client may give to a request.
const MAX_REQUEST_BYTES: usize = 64;

/// The longest text of an error that is sent, as gRPC writes it: clients refuse 8 KiB of trailers.
const MAX_ERROR_BYTES: usize = 2000;

/// What is said to those who run things themselves, and to clients, for whom it is a setting of the server.
const IN_SETTINGS: [(&str, &str); 3] = [
    (
        RAISE_SPILL_LIMIT,
        "ask the administrator to raise limits.spill, raise memory_limit",
    ),
    (
        "raise memory_limit, give spill_to= a folder, ",
        "ask the administrator to raise limits.memory, ",
    ),
    (
        ", whatever spill_to says: raise memory_limit, ",
        ": ask the administrator to raise limits.memory, ",
    ),
];

/// Who asks, and under which name.
#[derive(Debug, Clone)]
pub(in crate::serve) struct Call {
    pub(in crate::serve) caller: Caller,
    /// The name of the request: the client's, or a random one.
    pub(in crate::serve) request: Arc<str>,
    /// The name of the client's Flight session, if it has one.
    pub(in crate::serve) session: Option<Arc<str>>,
    /// What the client wants its queries to use at most.
    pub(in crate::serve) bounds: CallBounds,
    /// How many endpoints it wants of an answer, if it says so.
    pub(in crate::serve) endpoints: Option<Endpoints>,
    /// Which load the rows are that it sends, if it says so.
    pub(in crate::serve) load_id: Option<String>,
    /// What is to be so before they are acknowledged, if it says so.
    pub(in crate::serve) acknowledge: Option<String>,
    /// Its connection, where something is done that goes on beyond the request.
    pub(in crate::serve) connected: Option<Connected>,
    /// Lasts as long as anything is done for the request.
    pub(in crate::serve) span: Span,
    errors: Arc<RecentErrors>,
    /// Whether an error is for the caller alone.
    is_told_alone: Arc<AtomicBool>,
}

/// What a client wants its queries to use at most.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::serve) struct CallBounds {
    pub(in crate::serve) timeout: Option<Duration>,
    pub(in crate::serve) memory_limit_bytes: Option<usize>,
}

impl CallBounds {
    /// Those that a request says.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no number, and for none.
    pub(in crate::serve) fn of(metadata: &MetadataMap) -> Result<Self> {
        let text = |name: &str| metadata.get(name).map(|value| value.to_str().unwrap_or(""));
        let wrong = |name: &str| {
            Error::invalid_argument(format!("the header {name} must be a number more than 0"))
        };
        let timeout = text(TIMEOUT).map(|text| {
            let seconds = text.parse().ok().map(Duration::try_from_secs_f64);
            let timeout = seconds.and_then(|seconds| seconds.ok());
            timeout
                .filter(|timeout| !timeout.is_zero())
                .ok_or_else(|| wrong(TIMEOUT))
        });
        let bytes = text(MEMORY_LIMIT).map(|text| {
            let bytes = text.parse().ok().filter(|bytes| *bytes > 0);
            bytes.ok_or_else(|| wrong(MEMORY_LIMIT))
        });
        Ok(Self {
            timeout: timeout.transpose()?,
            memory_limit_bytes: bytes.transpose()?,
        })
    }
}

/// How many endpoints an answer of SQL has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::serve) enum Endpoints {
    /// One, from which rows come as they are found: many clients read only the first.
    #[default]
    One,
    /// One for each part of the answer, once all parts are there.
    Parts,
}

impl Endpoints {
    pub(in crate::serve) fn named(text: &str) -> Option<Self> {
        match text {
            "one" => Some(Self::One),
            "parts" => Some(Self::Parts),
            _ => None,
        }
    }

    /// Those that a request says, if it does.
    ///
    /// # Errors
    /// `InvalidArgument` for another text.
    pub(in crate::serve) fn of(metadata: &MetadataMap) -> Result<Option<Self>> {
        let Some(value) = metadata.get(ENDPOINTS) else {
            return Ok(None);
        };
        let text = value.to_str().unwrap_or("");
        let wrong = || {
            Error::invalid_argument(format!(
                "the header {ENDPOINTS} must be one or parts, got {text:?}"
            ))
        };
        Self::named(text).map(Some).ok_or_else(wrong)
    }
}

/// An error that somebody was told.
#[derive(Debug, Clone)]
pub(in crate::serve) struct Told {
    pub(in crate::serve) at: SystemTime,
    pub(in crate::serve) request: Arc<str>,
    pub(in crate::serve) caller: Arc<str>,
    pub(in crate::serve) kind: ErrorKind,
    pub(in crate::serve) message: String,
}

/// The errors of late, and how many of each kind there were.
#[derive(Debug)]
pub(in crate::serve) struct RecentErrors {
    told: Mutex<VecDeque<Told>>,
    pub(in crate::serve) by_kind: By,
    /// Set once the server ends what runs: who hears that something was cancelled is told why.
    pub(in crate::serve) is_ending: AtomicBool,
}

impl Default for RecentErrors {
    fn default() -> Self {
        Self {
            told: Mutex::default(),
            by_kind: By::of("kind", &[]),
            is_ending: AtomicBool::new(false),
        }
    }
}

impl RecentErrors {
    fn note(&self, told: Told) {
        self.by_kind.count(kind_name(told.kind));
        let mut recent = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == RECENT_ERRORS {
            recent.pop_front();
        }
        recent.push_back(told);
    }

    /// Those that a caller may see, the latest first: their own, or all for an administrator.
    pub(in crate::serve) fn seen_by(&self, caller: &Caller) -> Vec<Told> {
        let recent = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = |told: &&Told| caller.scope() == Scope::Admin || told.caller == *caller.name();
        recent.iter().rev().filter(seen).cloned().collect()
    }
}

impl Call {
    pub(in crate::serve) fn new(
        caller: Caller,
        request: Option<&str>,
        session: Option<Arc<str>>,
        errors: Arc<RecentErrors>,
    ) -> Self {
        Self {
            caller,
            request: request_name(request),
            session,
            bounds: CallBounds::default(),
            endpoints: None,
            load_id: None,
            acknowledge: None,
            connected: None,
            span: Span::none(),
            errors,
            is_told_alone: Arc::default(),
        }
    }

    /// The same, seen by those who log and trace, as a call of a method of Flight.
    pub(in crate::serve) fn of_method(
        mut self,
        method: &'static str,
        metadata: &MetadataMap,
    ) -> Self {
        self.span = tracing::info_span!(
            "request",
            otel.name = method,
            otel.kind = "server",
            otel.status_code = tracing::field::Empty,
            rpc.system = "grpc",
            rpc.service = "arrow.flight.protocol.FlightService",
            rpc.method = method,
            id = %self.request,
            caller = %self.caller.name(),
        );
        follow(&self.span, metadata);
        let said = metadata.get(ACK);
        // What is no text is no word of those that are known.
        self.acknowledge = said.map(|value| value.to_str().unwrap_or_default().to_owned());
        self
    }

    /// The same, on its connection.
    pub(in crate::serve) fn on(mut self, extensions: &Extensions) -> Self {
        self.connected = extensions.get().cloned();
        self
    }

    /// Its client waits for the end of something, and asks again: a server that stops lets it.
    pub(in crate::serve) fn asks_after(&self, what: &Visit) {
        if let Some(connected) = &self.connected {
            connected.asks_after(what);
        }
    }

    /// What comes of the work, as gRPC says it. A panic is a fault of the server that only this client hears of.
    pub(in crate::serve) async fn answer<T>(
        &self,
        work: impl Future<Output = Result<T>>,
    ) -> std::result::Result<tonic::Response<T>, Status> {
        let begun = Instant::now();
        let work = AssertUnwindSafe(work).catch_unwind();
        let done = work.instrument(self.span.clone()).await;
        let done = done.unwrap_or_else(|_| Err(Error::internal("the server panicked")));
        let mut response = tonic::Response::new(done.map_err(|error| self.status(&error))?);
        let millis = begun.elapsed().as_secs_f64() * 1e3;
        tracing::debug!(parent: &self.span, millis, "answered");
        if let Ok(name) = self.request.parse() {
            let metadata: &mut MetadataMap = response.metadata_mut();
            metadata.insert(crate::flight::REQUEST, name);
        }
        Ok(response)
    }

    /// The same; what a caller came too late for is none of the errors of the server.
    pub(in crate::serve) fn unless_late<T>(&self, done: Result<T>) -> Result<T> {
        let is_late = done
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::NotFound);
        self.is_told_alone.store(is_late, Ordering::Release);
        done
    }

    /// The error, and why something was cancelled where the server has ended it.
    fn with_reason(&self, error: &Error) -> Error {
        let is_ending = self.errors.is_ending.load(Ordering::Acquire);
        match error.kind() {
            ErrorKind::Cancelled if is_ending => {
                let text = format!("{}: the server stops", error.message());
                let error = error.clone().with_message(text);
                error.with_hint("ask again once it is back")
            }
            _ => error.clone(),
        }
    }

    /// The status that says an error to this caller; the full text goes to the log.
    pub(in crate::serve) fn status(&self, error: &Error) -> Status {
        let error = &self.with_reason(error);
        let text = told(&self.caller, &self.request, error);
        self.span.record("otel.status_code", "ERROR");
        tracing::info!(parent: &self.span, request = %self.request, caller = %self.caller.name(), kind = ?error.kind(), error = %error, "failed");
        if !self.is_told_alone.load(Ordering::Acquire) {
            self.errors.note(Told {
                at: SystemTime::now(),
                request: Arc::clone(&self.request),
                caller: Arc::clone(self.caller.name()),
                kind: error.kind(),
                message: text.clone(),
            });
        }
        status_saying(error, text, &self.request)
    }
}

/// What a caller is told of a request of a name: administrators all, others nothing of the paths and stores of the server, nor of the places that it loads from.
pub(in crate::serve) fn told(caller: &Caller, request: &str, error: &Error) -> String {
    told_beside(caller, request, error, &[])
}

/// The same of what a caller has asked for by paths: of files below these it is told which one it is.
pub(in crate::serve) fn told_beside(
    caller: &Caller,
    request: &str,
    error: &Error,
    paths: &[String],
) -> String {
    let is_below = |file: &str| {
        paths.iter().any(|path| {
            let rest = file.strip_prefix(path.trim_end_matches('/'));
            !path.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    let is_known = error.context("file").is_some_and(is_below);
    let error = &in_settings(error);
    let mut text = match error.kind() {
        _ if caller.scope() == Scope::Admin => error.to_string(),
        ErrorKind::Internal => {
            format!("a fault of the server; its log has more under the request {request}")
        }
        ErrorKind::Storage { .. } => format!(
            "the server could not read or write its storage; its log has more under the request {request}"
        ),
        _ => {
            let error = error.clone();
            let error = match is_known {
                true => error,
                false => error.without_context("file"),
            };
            let error = error.without_context("cause").without_context("allowed");
            let hint = error.hint().unwrap_or_default();
            match hint.contains(PATHS_START) {
                true => error.without_hint().to_string(),
                false => error.to_string(),
            }
        }
    };
    let mut written = 0;
    let too_long = text.char_indices().find(|(_, character)| {
        // gRPC writes what is not printable ASCII with three bytes for one.
        let is_plain = matches!(character, ' '..='~') && *character != '%';
        written += if is_plain {
            1
        } else {
            3 * character.len_utf8()
        };
        written > MAX_ERROR_BYTES
    });
    if let Some((cut, _)) = too_long {
        text.truncate(cut);
        text.push('…');
    }
    text
}

/// The error with the setting of the server where its hint names an argument of a session or a load of one's own.
fn in_settings(error: &Error) -> Error {
    let hint = error.hint().unwrap_or_default();
    let known = IN_SETTINGS.iter().find(|(words, _)| hint.contains(*words));
    match known {
        Some((words, instead)) => error.clone().with_hint(hint.replace(*words, instead)),
        None => error.clone(),
    }
}

/// A name that is safe to log: that of the client, if it is short and plain.
pub(in crate::serve) fn request_name(given: Option<&str>) -> Arc<str> {
    let is_plain = |name: &&str| {
        !name.is_empty()
            && name.len() <= MAX_REQUEST_BYTES
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte))
    };
    match given.filter(is_plain) {
        Some(name) => Arc::from(name),
        // A name that is not known by its number is still one to look for in the log.
        None => random_name().map_or_else(|_| Arc::from("unnamed"), |name| Arc::from(hex(&name))),
    }
}

/// 128 random bits that nobody can guess.
///
/// # Errors
/// `Internal` where the system has none to give.
pub(in crate::serve) fn random_name() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::internal("the system gives no random numbers").with_source(error)
    })?;
    Ok(bytes)
}

pub(in crate::serve) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that name something of the server.
///
/// # Errors
/// `NotFound` for another length.
pub(in crate::serve) fn name_of(bytes: &[u8], what: &str) -> Result<[u8; 16]> {
    bytes.try_into().map_err(|_| unknown(what))
}

/// Nothing of this name, for this caller.
pub(in crate::serve) fn unknown(what: &str) -> Error {
    Error::not_found(format!(
        "the server has no such {what}: it was closed, has expired, or belongs to somebody else"
    ))
    .with_hint("ask again for what it stood for")
}

/// A message of Flight SQL.
///
/// # Errors
/// `Protocol` when the bytes are not one.
pub(in crate::serve) fn message<M: prost::Message + Default>(
    bytes: &[u8],
    name: &str,
) -> Result<M> {
    M::decode(bytes).map_err(|error| torn(name, &error))
}
