//! Errors <-> statuses of gRPC.
//!
//! Comes in: an [`Error`], or what another side sent. Goes out: a status whose metadata keep the kind, so that both sides speak of the same kinds. Never here: what may be told to whom.

use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use crate::error::{Error, ErrorKind};

/// Where the kind of an error stands.
const KIND: &str = "x-partgrid-kind";

/// Where it stands that an error is about a file or a folder.
const ABOUT: &str = "x-partgrid-about";
const PATH: &str = "path";

/// Where the name of a request stands.
pub(crate) const REQUEST: &str = "x-request-id";

/// What is said to those whose token is not good: clients have a remedy for each.
pub(crate) const TOKEN_EXPIRED: &str = "the token has expired";
pub(crate) const TOKEN_UNKNOWN: &str = "the token is not one of this server";

/// Where a client says what its queries may use: seconds, bytes.
pub(crate) const TIMEOUT: &str = "x-partgrid-timeout";
pub(crate) const MEMORY_LIMIT: &str = "x-partgrid-memory-limit";

/// Where a client says how many endpoints an answer is to have: `one`, `parts`.
pub(crate) const ENDPOINTS: &str = "x-partgrid-endpoints";

/// Where a client that sends rows says which load it is, so that it may repeat it.
#[cfg(feature = "serve")]
pub(crate) const LOAD_ID: &str = "x-partgrid-load-id";

/// Where such a client says what it waits for: `durable`, `memory`.
#[cfg(feature = "serve")]
pub(crate) const ACK: &str = "x-partgrid-ack";

/// Each kind, its name on the wire, and the code for those who know only codes.
const KINDS: [(ErrorKind, &str, Code); 15] = [
    (
        ErrorKind::InvalidArgument,
        "invalid-argument",
        Code::InvalidArgument,
    ),
    (
        ErrorKind::InvalidData,
        "invalid-data",
        Code::InvalidArgument,
    ),
    (ErrorKind::Protocol, "protocol", Code::InvalidArgument),
    (ErrorKind::NotFound, "not-found", Code::NotFound),
    (
        ErrorKind::PermissionDenied,
        "permission-denied",
        Code::PermissionDenied,
    ),
    (ErrorKind::NotLocal, "not-local", Code::FailedPrecondition),
    (ErrorKind::PartitionLost, "partition-lost", Code::NotFound),
    (ErrorKind::WorkerLost, "worker-lost", Code::Unavailable),
    (ErrorKind::Unsupported, "unsupported", Code::Unimplemented),
    (
        ErrorKind::ResourcesExhausted,
        "resources-exhausted",
        Code::ResourceExhausted,
    ),
    (
        ErrorKind::Storage { retryable: true },
        "storage-retryable",
        Code::Unavailable,
    ),
    (
        ErrorKind::Storage { retryable: false },
        "storage",
        Code::Internal,
    ),
    (ErrorKind::Query, "query", Code::InvalidArgument),
    // Somebody else ended it: clients take `Cancelled` for their own Ctrl-C.
    (ErrorKind::Cancelled, "cancelled", Code::Aborted),
    (ErrorKind::Internal, "internal", Code::Internal),
];

/// The status that says this.
pub(crate) fn status_of(kind: ErrorKind, text: impl Into<String>, request: &str) -> Status {
    let (name, code) = named(kind);
    let mut metadata = MetadataMap::new();
    metadata.insert(KIND, MetadataValue::from_static(name));
    if let Ok(request) = request.parse() {
        metadata.insert(REQUEST, request);
    }
    Status::with_metadata(code, text, metadata)
}

/// The status that says an error, in the words of `text`: what it is about is known also where the text does not name it.
pub(crate) fn status_saying(error: &Error, text: impl Into<String>, request: &str) -> Status {
    let mut status = status_of(error.kind(), text, request);
    if error.is_about_path() {
        let metadata = status.metadata_mut();
        metadata.insert(ABOUT, MetadataValue::from_static(PATH));
    }
    status
}

/// The error that a status says. One of another server, without a kind, has that of its code.
pub(crate) fn error_of(status: &Status) -> Error {
    let name = status.metadata().get(KIND);
    let name = name.and_then(|name| name.to_str().ok());
    let kind = name.and_then(kind_named);
    let kind = kind.unwrap_or_else(|| kind_of(status.code()));
    let error = told(kind, status.message());
    let about = status.metadata().get(ABOUT);
    let error = match about.is_some_and(|about| about.as_bytes() == PATH.as_bytes()) {
        true => error.with_path_untold(),
        false => error,
    };
    let request = status.metadata().get(REQUEST);
    match request.and_then(|request| request.to_str().ok()) {
        Some(request) => error.with_context("request", request),
        None => error,
    }
}

fn named(kind: ErrorKind) -> (&'static str, Code) {
    let known = KINDS.iter().find(|(known, _, _)| *known == kind);
    known.map_or(("internal", Code::Internal), |(_, name, code)| {
        (*name, *code)
    })
}

/// The name of a kind on the wire.
pub(crate) fn kind_name(kind: ErrorKind) -> &'static str {
    named(kind).0
}

/// The kind of a name on the wire.
pub(crate) fn kind_named(name: &str) -> Option<ErrorKind> {
    let known = KINDS.iter().find(|(_, known, _)| *known == name);
    known.map(|(kind, _, _)| *kind)
}

/// The error whose text another side wrote; its last line may be a hint, and what stands before it the place in a statement.
pub(crate) fn told(kind: ErrorKind, text: &str) -> Error {
    let (text, hint) = match text.rsplit_once("\nhint: ") {
        Some((text, hint)) => (text, Some(hint)),
        None => (text, None),
    };
    let error = match text.split_once("\nline ") {
        Some((message, place)) => Error::new(kind, message).with_place(format!("line {place}")),
        None => Error::new(kind, text),
    };
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

fn kind_of(code: Code) -> ErrorKind {
    match code {
        Code::InvalidArgument | Code::OutOfRange => ErrorKind::InvalidArgument,
        Code::NotFound => ErrorKind::NotFound,
        Code::PermissionDenied | Code::Unauthenticated => ErrorKind::PermissionDenied,
        Code::ResourceExhausted | Code::DeadlineExceeded => ErrorKind::ResourcesExhausted,
        Code::Unimplemented => ErrorKind::Unsupported,
        Code::Cancelled | Code::Aborted => ErrorKind::Cancelled,
        Code::Unavailable => ErrorKind::Storage { retryable: true },
        Code::DataLoss => ErrorKind::InvalidData,
        _ => ErrorKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_about_a_file_is_one_there_too_though_its_path_is_not_told() {
        let missing = Error::not_found("no such file").with_file("/a.parquet");
        let again = error_of(&status_saying(&missing, "no such file", "r1"));
        assert_eq!(
            (again.kind(), again.is_about_path()),
            (missing.kind(), true)
        );
        assert!(!again.to_string().contains("a.parquet"), "{again}");
        let other = Error::not_found("no such table");
        assert!(!error_of(&status_saying(&other, "no such table", "r1")).is_about_path());
    }

    #[test]
    fn what_is_told_of_a_statement_is_what_was_wrong_with_it() {
        let error = Error::new(ErrorKind::Query, "no column `a` (column: a)")
            .with_place("line 1, column 8:\n  SELECT a\n         ^")
            .with_hint("did you mean `b`?");
        let status = status_of(error.kind(), error.to_string(), "r1");
        let again = error_of(&status);
        assert_eq!((again.place(), again.hint()), (error.place(), error.hint()));
        let text = again.to_string();
        assert!(
            text.starts_with("no column `a` (column: a) (request: r1)\nline 1, column 8:\n"),
            "{text}"
        );
    }
}
