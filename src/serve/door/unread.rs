//! Requests that are no messages of their methods.
//!
//! Comes in: what the library of gRPC says of a request that it cannot read, which it takes for a fault of the server. Goes out: the same as a fault of the request, in our words. Never here: requests that can be read, those that are refused on their way (`arriving.rs`).

use tonic::{Code, Status};

use crate::error::Error;
use crate::flight::REQUEST;
use crate::serve::flight::protocol;

/// With what the library begins where the bytes of a message are none.
const TORN: &str = "failed to decode Protobuf message";

/// With what it begins where there is no message, or none in the frame that gRPC puts around it.
const UNFRAMED: [&str; 4] = [
    "protocol error",
    "Missing request message",
    "Unexpected EOF decoding stream",
    "Error decompressing",
];

/// What is wrong with a request, if a status says that it could not be read.
pub(in crate::serve) fn unreadable(status: &Status) -> Option<Error> {
    // What we say has the name of its request.
    if status.code() != Code::Internal || status.metadata().contains_key(REQUEST) {
        return None;
    }
    let text = status.message();
    // Members of clusters say before it what they wanted to read.
    let why = match text.split_once(TORN) {
        Some((_, why)) => why.trim_start_matches(": "),
        None if UNFRAMED.iter().any(|begin| text.starts_with(begin)) => text,
        None => return None,
    };
    Some(protocol(format!(
        "the request is no message of its method: {why}"
    )))
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::error::ErrorKind;
    use crate::flight::status_of;

    #[test]
    fn what_the_library_cannot_read_is_a_fault_of_the_request() {
        let torn = arrow_flight::Ticket::decode(&b"\x0a\xff"[..]).expect_err("it is cut");
        let said = unreadable(&Status::internal(torn.to_string())).expect("it was not read");
        assert_eq!(said.kind(), ErrorKind::Protocol);
        let text = said.message();
        assert!(text.starts_with("the request is no message of its method: "));
        assert!(!text.contains(TORN), "{text}");
        assert!(unreadable(&Status::internal("Missing request message.")).is_some());
        assert!(unreadable(&Status::internal("the server panicked")).is_none());
        assert!(unreadable(&Status::not_found(TORN)).is_none());
        let ours = status_of(ErrorKind::Internal, torn.to_string(), "r1");
        assert!(unreadable(&ours).is_none());
    }
}
