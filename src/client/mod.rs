//! What another server holds, as if it were here.
//!
//! Comes in: the URI of a server. Goes out: a [`Client`]: its grids as grids whose tiles are fetched when they are read (mapped, where the server is on this host and of this user), answers of its SQL, uploads. Read on in
//! `connection.rs` (the channel), `tile.rs` (tiles elsewhere), `upload.rs`, `job.rs` (loads of the server). Never here: what servers do.

mod connection;
mod describe;
mod job;
mod tile;
mod upload;

pub use connection::{Client, ClientOptions, RemoteQuery};
pub use job::{RemoteJob, RemoteLoad};
pub use tile::ServedTile;
pub use upload::{Acknowledged, IfExists};
