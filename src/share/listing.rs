//! Who shares what on this host.
//!
//! Comes in: nothing. Goes out: the processes of this user that share tiles, with their segments and who leases them, as they say themselves. Never here: memory, handles.

use std::collections::BTreeSet;
use std::time::Duration;

use super::handle::SOCKET_PREFIX;
use super::reader::{ask, greet};
use super::socket;
use super::wire::{Reply, Request, strange};
use super::{SharedSegment, SharingProcess};
use crate::error::Result;

/// How long a process may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The flag of sockets that listen, in the list of the system.
const LISTENING: u64 = 1 << 16;

/// The processes of this user on this host (and in this network namespace) that can be asked for tiles.
///
/// # Errors
/// `Storage` when the system does not list sockets, or gives none.
pub(super) fn sharing_processes() -> Result<Vec<SharingProcess>> {
    let text = std::fs::read_to_string("/proc/net/unix").map_err(|error| socket::failed(&error))?;
    let names: BTreeSet<&str> = text.lines().filter_map(listening_name).collect();
    let mut found = Vec::new();
    for name in names {
        let Some(socket) = socket::connect(name, PATIENCE).ok().flatten() else {
            continue;
        };
        let Ok(peer) = socket::same_user(&socket) else {
            continue;
        };
        let segments = greet(&socket, PATIENCE).and_then(|_| segments_of(&socket));
        found.push(SharingProcess {
            process: peer.process,
            segments: segments.ok(),
        });
    }
    found.sort_by_key(|owner| owner.process);
    Ok(found)
}

/// The name of a socket of ours, from a line of `/proc/net/unix`: address, references, protocol, flags, type, state, number, path.
fn listening_name(line: &str) -> Option<&str> {
    let mut fields = line.split_whitespace();
    let flags = u64::from_str_radix(fields.nth(3)?, 16).ok()?;
    let name = fields.nth(3)?.strip_prefix('@')?;
    (flags & LISTENING != 0 && name.starts_with(SOCKET_PREFIX)).then_some(name)
}

fn segments_of(socket: &super::fork::Descriptor) -> Result<Vec<SharedSegment>> {
    let mut segments = Vec::new();
    let mut reply = ask(socket, &Request::List)?;
    loop {
        match reply {
            Reply::Entry(segment) => segments.push(segment),
            Reply::End => return Ok(segments),
            _ => return Err(strange("no list")),
        }
        reply = super::reader::next_reply(socket)?.0;
    }
}
