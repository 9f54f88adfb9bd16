//! 4. A server that holds grids: Flight SQL, tiles by name, a status page.
//!
//! Comes in: grids, and requests of clients. Goes out: a [`Server`]. `begin.rs` looks at what a server needs, `options.rs` and `settings/` say how it is set up, `reload.rs` reads its files again. A request goes through the `door/` to
//! `methods.rs` and `flight.rs`, and from there to `sql/` (statements and metadata), `tiles.rs` (grids by name), `receive/` (what clients send) or `actions.rs` (`own.rs`; loads: `jobs/`; other members: `member.rs`); `queries/` runs queries.
//! `service.rs` holds what requests share, with `keeps.rs` (what becomes of grids under names), `shared.rs` (a catalog of several servers), `sessions.rs` (options of clients) and `accounts.rs` (limits of callers). `watch/` says what goes on.
//! Never here: planning, reading, Arrow IPC itself.

mod accounts;
mod actions;
mod begin;
mod door;
mod flight;
mod jobs;
mod keeps;
#[cfg(feature = "distributed")]
mod member;
mod methods;
mod options;
mod own;
mod queries;
mod receive;
mod reload;
mod server;
mod service;
mod sessions;
mod settings;
mod shared;
mod sql;
mod tiles;
mod watch;

pub use accounts::CallerLimits;
pub use door::auth::{Caller, Presented, Scope, Tokens, new_token};
pub use door::tls::TlsFiles;
pub use door::token_file::add_token;
pub use options::{Limits, ServerOptions};
pub use server::Server;
pub use settings::{Origin, Settings};
pub use watch::traces::Traces;
