//! 4. A server that holds grids: Flight SQL, tiles by name, a status page.
//!
//! Comes in: grids, and requests of clients. Goes out: a [`Server`]. A request goes through the door (`listen.rs`, `tls.rs`, `auth.rs` with `token_file.rs`; `call.rs` is what is known of it then) and `speak.rs` (HTTP/2) to `get.rs` (lets callers in; DoGet, in `chunks.rs`; bodies as they come: `arriving.rs`, `framing.rs`; what cannot be read: `unread.rs`) or `flight.rs`, and from there
//! to `sql/` (statements and metadata), `tiles.rs` (grids by name), `put.rs` with `ingest.rs` (rows of clients) and `upload.rs` (tiles of clients, as long as they are there: `visit.rs`; `again.rs`: loads that are repeated) or `actions.rs` (`own.rs`; loads: `jobs.rs`, `job.rs`). `begin.rs` looks at what a server needs, `reload.rs` reads its files again. `service.rs` holds what requests share: `answers.rs` (what tickets stand
//! for), `running.rs` (what runs), `keeps.rs` (what becomes of grids under names), `sessions.rs` (options of clients), `accounts.rs` (limits of callers), `held.rs` (what they are sending); `rows.rs` and `poll.rs` run queries. `status.rs` says what goes on, `health.rs` whether the catalog is as it should be, `counts.rs` counts, `traces.rs` tells collectors, `http/` is the page. Never here: planning, reading, Arrow IPC itself.

mod accounts;
mod actions;
mod again;
mod answers;
mod arriving;
mod auth;
mod begin;
mod broken;
mod call;
mod chunks;
mod counts;
mod describe;
mod flight;
mod framing;
mod get;
mod health;
mod held;
mod http;
mod ingest;
mod job;
mod jobs;
mod keeps;
mod listen;
#[cfg(feature = "distributed")]
mod member;
mod methods;
mod options;
mod own;
mod poll;
mod put;
mod reload;
mod rows;
mod running;
mod server;
mod service;
mod sessions;
mod settings;
mod shared;
mod speak;
mod sql;
mod status;
mod tiles;
mod tls;
mod token_file;
mod traces;
mod unread;
mod upload;
mod visit;

pub use accounts::CallerLimits;
pub use auth::{Caller, Presented, Scope, Tokens, new_token};
pub use options::{Limits, ServerOptions};
pub use server::Server;
pub use settings::{Origin, Settings};
pub use tls::TlsFiles;
pub use token_file::add_token;
pub use traces::Traces;
