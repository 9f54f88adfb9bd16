//! The door: connections, who calls, and bytes as they come in and go out.
//!
//! Comes in: a socket. Goes out: requests of callers who may come in. `listen` accepts, over `tls`; `speak` is HTTP/2 on each connection. `get` asks `auth` (with `token_file`, as it grows) before anything of a body is read, and answers
//! DoGet in `chunks`; bodies come in through `arriving`, with `framing` (where messages end), `broken` (streams that their clients reset) and `unread` (what is no message). `call` is what is known of a request then. Never here: what
//! requests ask for.

pub(super) mod arriving;
pub(super) mod auth;
pub(super) mod broken;
pub(super) mod call;
mod chunks;
mod framing;
pub(super) mod get;
pub(super) mod listen;
pub(super) mod speak;
pub(super) mod tls;
pub(super) mod token_file;
pub(super) mod unread;
