//! What another server holds, as if it were here.
//!
//! Comes in: the URI of a server. Goes out: a [`Client`]: its grids as grids whose tiles are fetched when they are read (mapped, where the server is on this host and of this user), answers of its SQL, uploads. Read on in
//! `connection.rs` (the channel; `address.rs`, `unreached.rs`, `options.rs` with `trusted.rs`, `session.rs`), `query.rs` (SQL; `asked.rs` for those who do not mind where it runs), `tile.rs` (tiles elsewhere), `upload.rs`, `job.rs` (loads of the server), `status.rs` (what it
//! does at this moment), `tables.rs` (its names), `rebalance.rs` (rows dealt out anew). Never here: what servers do.

mod address;
mod asked;
mod connection;
mod describe;
mod job;
mod options;
mod query;
mod rebalance;
mod session;
mod status;
mod tables;
mod tile;
mod trusted;
mod unreached;
mod upload;

#[cfg(feature = "distributed")]
pub(crate) use address::Waits;
#[cfg(feature = "cli")]
pub(crate) use address::check_uri;
pub use asked::Asked;
pub use connection::Client;
pub use job::{RemoteJob, RemoteLoad};
pub use options::ClientOptions;
pub use query::RemoteQuery;
pub use rebalance::Rebalanced;
pub use status::{
    AwayMember, IncompleteGrid, ServedError, ServedGrid, ServedJob, ServedLocality, ServedMember,
    ServedQuery, ServerStatus,
};
pub use tables::ServedTable;
pub use tile::ServedTile;
#[cfg(feature = "distributed")]
pub(crate) use unreached::misunderstood;
pub use upload::{Acknowledged, Durability, IfExists, UploadOptions};
