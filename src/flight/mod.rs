//! What servers and their clients say to each other, over Arrow Flight.
//!
//! Comes in: batches, errors, names of tiles. Goes out: the messages of the protocol, and back. Read on in `messages.rs` (what is ours within Flight), `options.rs` (sessions), `encode.rs` (batches -> messages; `lean/`: with nothing but their rows), `guard.rs`
//! and `decode.rs` (messages of strangers -> batches), `status.rs` (errors). Never here: connections, who may do what.

mod decode;
mod encode;
mod guard;
#[cfg(test)]
mod hostile;
mod lean;
pub(crate) mod messages;
pub(crate) mod options;
mod status;

pub(crate) use decode::{Decoded, Decoder, schema_of};
pub(crate) use encode::{Compression, Pieces, encoded, of_flight, pieces, schema_bytes};
pub(crate) use guard::Bounds;
#[cfg(feature = "serve")]
pub(crate) use status::{ACK, LOAD_ID};
pub(crate) use status::{
    ENDPOINTS, MEMORY_LIMIT, REQUEST, TIMEOUT, TOKEN_EXPIRED, TOKEN_UNKNOWN, error_of, kind_name,
    kind_named, status_of, status_saying, told,
};

/// The most bytes of one message of a stream of batches that is sent, roughly: a batch that is larger goes in several.
pub(crate) const MESSAGE_BYTES: usize = 2 * 1024 * 1024;
