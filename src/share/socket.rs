//! Packets and descriptors between two processes of one user on one host.
//!
//! Comes in: the name of a socket. Goes out: connections of which both ends are known to be of one user, that send packets whole, and wait for a bounded time. Names are in the abstract
//! namespace: nothing of them is left behind, however a process ends. Never here: what the packets mean.

use std::io;
use std::mem::{offset_of, size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::time::Duration;

use super::fork::Descriptor;
use crate::error::{Error, ErrorKind, Result};

/// How many may wait to be accepted.
const BACKLOG: i32 = 128;

/// Room for control messages, aligned as they must be.
type Control = [u64; 8];

/// The process at the other end, as the system says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer {
    /// Zero when it is in a namespace that this process does not see.
    pub(super) process: u32,
    pub(super) user: u32,
}

/// A socket that waits for connections under a name.
///
/// # Errors
/// Those of the system.
pub(super) fn listen(name: &str) -> Result<Descriptor> {
    let socket = created()?;
    let (address, length) = address_of(name)?;
    let pointer = (&raw const address).cast::<libc::sockaddr>();
    #[expect(unsafe_code, reason = "the standard library has no such sockets")]
    // SAFETY: the address is a whole structure, of which `length` bytes count.
    done(unsafe { libc::bind(socket.get()?.as_raw_fd(), pointer, length) })?;
    #[expect(unsafe_code, reason = "the standard library has no such sockets")]
    // SAFETY: takes numbers only.
    done(unsafe { libc::listen(socket.get()?.as_raw_fd(), BACKLOG) })?;
    Ok(socket)
}

/// The next connection, whoever it is from.
pub(super) fn accept(socket: &Descriptor) -> io::Result<OwnedFd> {
    let number = socket.get().map_err(io::Error::other)?.as_raw_fd();
    #[expect(unsafe_code, reason = "the standard library has no such sockets")]
    // SAFETY: nothing is written where there is no address.
    let accepted = unsafe { libc::accept4(number, null_mut(), null_mut(), libc::SOCK_CLOEXEC) };
    owned(accepted)
}

/// A connection to the socket of a name; `None` when nobody has it.
///
/// # Errors
/// `ResourcesExhausted` when nobody takes it within `patience`; else those of the system.
pub(super) fn connect(name: &str, patience: Duration) -> Result<Option<Descriptor>> {
    let socket = created()?;
    set_patience(&socket, patience, patience)?;
    let (address, length) = address_of(name)?;
    let pointer = (&raw const address).cast::<libc::sockaddr>();
    let number = socket.get()?.as_raw_fd();
    loop {
        #[expect(unsafe_code, reason = "the standard library has no such sockets")]
        // SAFETY: the address is a whole structure, of which `length` bytes count.
        let done = checked(unsafe { libc::connect(number, pointer, length) });
        return match done {
            Ok(_) => Ok(Some(socket)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(failed(&error)),
        };
    }
}

/// Who is at the other end; refused when it is another user.
///
/// # Errors
/// `PermissionDenied` for another user.
pub(super) fn same_user(socket: &Descriptor) -> Result<Peer> {
    let peer = peer(socket)?;
    let own = rustix::process::geteuid().as_raw();
    if peer.user == own {
        return Ok(peer);
    }
    let text = format!(
        "memory is shared by processes of one user, got user {} at the other end and user {own} here",
        peer.user
    );
    Err(Error::new(ErrorKind::PermissionDenied, text))
}

fn peer(socket: &Descriptor) -> Result<Peer> {
    #[expect(unsafe_code, reason = "a structure of numbers, filled below")]
    // SAFETY: all zeros is a value of it.
    let mut found: libc::ucred = unsafe { zeroed() };
    let mut length = length_of::<libc::ucred>();
    let number = socket.get()?.as_raw_fd();
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    let target = (&raw mut found).cast();
    #[expect(unsafe_code, reason = "the standard library does not tell")]
    // SAFETY: `length` is the size of what is written to.
    done(unsafe { libc::getsockopt(number, level, name, target, &raw mut length) })?;
    Ok(Peer {
        process: u32::try_from(found.pid).unwrap_or(0),
        user: found.uid,
    })
}

/// How long receiving and sending wait; zero is for ever.
pub(super) fn set_patience(
    socket: &Descriptor,
    receiving: Duration,
    sending: Duration,
) -> Result<()> {
    let number = socket.get()?.as_raw_fd();
    for (name, patience) in [(libc::SO_RCVTIMEO, receiving), (libc::SO_SNDTIMEO, sending)] {
        let time = libc::timeval {
            tv_sec: patience.as_secs().cast_signed(),
            tv_usec: patience.subsec_micros().into(),
        };
        let source = (&raw const time).cast();
        let length = length_of::<libc::timeval>();
        #[expect(unsafe_code, reason = "the standard library has no such sockets")]
        // SAFETY: `length` is the size of what is read.
        done(unsafe { libc::setsockopt(number, libc::SOL_SOCKET, name, source, length) })?;
    }
    Ok(())
}

/// Sends one packet, and a descriptor with it. Without `wait` an error says at once that there is no room.
pub(super) fn send(
    socket: &Descriptor,
    packet: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
    wait: bool,
) -> io::Result<()> {
    let mut control: Control = [0; 8];
    let mut part = libc::iovec {
        iov_base: packet.as_ptr().cast_mut().cast(),
        iov_len: packet.len(),
    };
    let mut message = message_of(&mut part);
    if let Some(descriptor) = descriptor {
        put_descriptor(&mut message, &mut control, descriptor);
    }
    let flags = libc::MSG_NOSIGNAL | if wait { 0 } else { libc::MSG_DONTWAIT };
    let number = socket.get().map_err(io::Error::other)?.as_raw_fd();
    loop {
        #[expect(unsafe_code, reason = "the standard library sends no descriptors")]
        // SAFETY: the message points to the packet and the control message above, which live until the end.
        let sent = unsafe { libc::sendmsg(number, &raw const message, flags) };
        match usize::try_from(sent) {
            Ok(_) => return Ok(()),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// One packet: its length, zero at the end of the connection, and the descriptors that came with it.
pub(super) fn receive(socket: &Descriptor, packet: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control: Control = [0; 8];
    let mut part = libc::iovec {
        iov_base: packet.as_mut_ptr().cast(),
        iov_len: packet.len(),
    };
    let mut message = message_of(&mut part);
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>() as _;
    let number = socket.get().map_err(io::Error::other)?.as_raw_fd();
    let received = loop {
        #[expect(unsafe_code, reason = "the standard library receives no descriptors")]
        // SAFETY: the message points to the packet and the control message above, with their lengths.
        let received = unsafe { libc::recvmsg(number, &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        match usize::try_from(received) {
            Ok(received) => break received,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    };
    // Taken first, so that they are closed whatever else is wrong.
    let descriptors = take_descriptors(&message);
    if message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        let text = "a packet is longer than any that partgrid sends";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok((received, descriptors))
}

fn message_of(part: &mut libc::iovec) -> libc::msghdr {
    #[expect(unsafe_code, reason = "a structure of numbers and pointers")]
    // SAFETY: all zeros is a value of it: no address, no control message.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message
}

#[expect(unsafe_code, reason = "control messages are written in place")]
fn put_descriptor(message: &mut libc::msghdr, control: &mut Control, descriptor: BorrowedFd<'_>) {
    const DESCRIPTOR_BYTES: u32 = RawFd::BITS / 8;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: works out a number.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(DESCRIPTOR_BYTES) } as _;
    // SAFETY: the control message has room for one descriptor and is aligned.
    let header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: it lies in `control`, which nobody else uses.
    let Some(fields) = (unsafe { header.as_mut() }) else {
        return;
    };
    fields.cmsg_level = libc::SOL_SOCKET;
    fields.cmsg_type = libc::SCM_RIGHTS;
    // SAFETY: works out a number.
    fields.cmsg_len = unsafe { libc::CMSG_LEN(DESCRIPTOR_BYTES) } as _;
    // SAFETY: of a header with room behind it.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: there is room for one number, aligned or not.
    unsafe { data.cast::<RawFd>().write_unaligned(descriptor.as_raw_fd()) };
}

#[expect(unsafe_code, reason = "control messages are read in place")]
fn take_descriptors(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut taken = Vec::new();
    // SAFETY: the system filled the control message and set its length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: null at the end, else a header within the control message.
    while let Some(fields) = unsafe { header.as_ref() } {
        if fields.cmsg_level == libc::SOL_SOCKET && fields.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: works out a number.
            let before = unsafe { libc::CMSG_LEN(0) } as usize;
            // Of another type in other C libraries.
            let length = usize::try_from(fields.cmsg_len as u64).unwrap_or(0);
            let length = length.saturating_sub(before);
            // SAFETY: of a header that the system wrote.
            let data = unsafe { libc::CMSG_DATA(header) }.cast::<RawFd>();
            for number in 0..length / size_of::<RawFd>() {
                // SAFETY: within the length that the system wrote.
                let place = unsafe { data.add(number) };
                // SAFETY: as above; aligned or not.
                let descriptor = unsafe { place.read_unaligned() };
                // SAFETY: the system made this descriptor for this process just now, and nobody else has it.
                taken.push(unsafe { OwnedFd::from_raw_fd(descriptor) });
            }
        }
        // SAFETY: goes on within the control message, or to null.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    taken
}

fn created() -> Result<Descriptor> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    #[expect(unsafe_code, reason = "the standard library has no such sockets")]
    // SAFETY: takes numbers only.
    let socket = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    Descriptor::try_new(owned(socket).map_err(|error| failed(&error))?)
}

fn owned(number: RawFd) -> io::Result<OwnedFd> {
    checked(number)?;
    #[expect(unsafe_code, reason = "takes a descriptor by its number")]
    // SAFETY: the system made it just now, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The address of a name, and how many of its bytes count.
fn address_of(name: &str) -> Result<(libc::sockaddr_un, libc::socklen_t)> {
    #[expect(unsafe_code, reason = "a structure of numbers")]
    // SAFETY: all zeros is a value of it.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or_default();
    let places = address.sun_path.iter_mut().skip(1);
    for (place, byte) in places.zip(name.bytes()) {
        *place = byte.cast_signed() as _;
    }
    let length = offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    if length > size_of::<libc::sockaddr_un>() {
        return Err(Error::internal("the name of a socket is too long"));
    }
    let length = libc::socklen_t::try_from(length);
    Ok((address, length.unwrap_or_default()))
}

fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or_default()
}

fn checked(result: i32) -> io::Result<i32> {
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

fn done(result: i32) -> Result<i32> {
    checked(result).map_err(|error| failed(&error))
}

/// The error of a system call on a socket.
pub(super) fn failed(error: &io::Error) -> Error {
    use io::ErrorKind::{TimedOut, WouldBlock};
    if matches!(error.kind(), TimedOut | WouldBlock) {
        let text = "the process that owns the tile does not answer";
        return Error::new(ErrorKind::ResourcesExhausted, text)
            .with_hint("it may be stopped, or the machine overloaded: try again when it runs");
    }
    let number = error.raw_os_error();
    let many = matches!(number, Some(libc::EMFILE | libc::ENFILE));
    let kind = match many {
        true => ErrorKind::ResourcesExhausted,
        false => ErrorKind::Storage { retryable: true },
    };
    let failed = Error::new(kind, format!("a socket for sharing failed: {error}"));
    match many {
        true => failed.with_hint("raise `ulimit -n`"),
        false => failed,
    }
}
