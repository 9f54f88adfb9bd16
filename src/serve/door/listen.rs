//! Connections.
//!
//! Comes in: a socket that listens. Goes out: connections, over TLS where that is on, bounded in number; those that do not greet in time are gone. Never here: what is said on them.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::tls::{Speaks, Tls};
use crate::error::{Error, ErrorKind, Result};

/// How long a client may take to greet, over TLS and then in its protocol.
const GREETING: Duration = Duration::from_secs(10);

/// How long a request to the page may take, from its first byte to that of its answer.
const HEAD: Duration = Duration::from_secs(15);

/// The bytes with which HTTP/2 begins.
const PREFACE_BYTES: usize = 24;

/// How long a browser may rest between requests.
const REST: Duration = Duration::from_secs(120);

/// Longer than anything runs.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Connections that are accepted and not yet taken up.
const ACCEPTED_AHEAD: usize = 64;

/// How long to wait when the system has no more descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// How far the end of a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::serve) enum Phase {
    Serving,
    /// Nobody new comes in.
    Stopping,
    /// Nobody is heard any more.
    Ended,
}

/// A connection of a client. It counts until it is dropped.
pub(in crate::serve) struct Connection {
    stream: Wire,
    /// Where the client is.
    from: SocketAddr,
    /// When a client that says nothing, or too little, is sent away.
    silence: Pin<Box<Sleep>>,
    speaks: Speaks,
    /// Bytes that came since the connection began, or since the last answer of the page.
    heard_bytes: usize,
    ended: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    _counted: OwnedSemaphorePermit,
}

enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Opens a port.
///
/// # Errors
/// `Storage` when the address is in use or not one of this machine.
pub(in crate::serve) async fn bind(address: SocketAddr) -> Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| cannot_listen(address, &error))
}

/// What is said of a port that cannot be had.
pub(in crate::serve) fn cannot_listen(address: SocketAddr, error: &io::Error) -> Error {
    let text = format!("the server cannot listen at {address}: {error}");
    let error = Error::new(ErrorKind::Storage { retryable: true }, text);
    error.with_hint("another server may have the port; port 0 takes a free one")
}

/// The connections that come in at a socket, until `stop` says so; the task is done once nobody can knock any more.
pub(in crate::serve) fn connections(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    speaks: Speaks,
    most: Arc<Semaphore>,
    stop: watch::Receiver<Phase>,
) -> (Connections, JoinHandle<()>) {
    let (sender, receiver) = mpsc::channel(ACCEPTED_AHEAD);
    let door = Door { tls, speaks, stop };
    let accepting = tokio::spawn(accept(listener, door, most, sender));
    (Connections(receiver), accepting)
}

/// Connections as they come.
pub(in crate::serve) struct Connections(mpsc::Receiver<Connection>);

impl Stream for Connections {
    type Item = Connection;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Connection>> {
        self.0.poll_recv(context)
    }
}

impl axum::serve::Listener for Listening {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        match self.connections.0.recv().await {
            Some(connection) => {
                let from = connection.from;
                (connection, from)
            }
            // The server stops: nobody comes any more.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// What the page listens on.
pub(in crate::serve) struct Listening {
    pub(in crate::serve) connections: Connections,
    pub(in crate::serve) address: SocketAddr,
}

/// How those who come in are greeted.
#[derive(Clone)]
struct Door {
    tls: Option<Arc<Tls>>,
    speaks: Speaks,
    stop: watch::Receiver<Phase>,
}

async fn accept(
    listener: TcpListener,
    door: Door,
    most: Arc<Semaphore>,
    sender: mpsc::Sender<Connection>,
) {
    let mut stop = door.stop.clone();
    // The page is there to the end: it shows what still runs.
    let until = match door.speaks {
        Speaks::Flight => Phase::Stopping,
        Speaks::Http => Phase::Ended,
    };
    // What goes on and on is said once: it is not to fill the log.
    let (mut is_full, mut is_failing) = (false, false);
    loop {
        let accepted = tokio::select! {
            _ = stop.wait_for(|phase| *phase >= until) => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !is_failing {
                    tracing::warn!(%error, "connections cannot be accepted, until that is over");
                }
                is_failing = true;
                sleep(PAUSE).await;
                continue;
            }
        };
        is_failing = false;
        let Ok(counted) = Arc::clone(&most).try_acquire_owned() else {
            match is_full {
                false => {
                    tracing::warn!(%from, "refused: too many connections, as are others until one ends");
                }
                true => tracing::debug!(%from, "refused: too many connections"),
            }
            is_full = true;
            continue;
        };
        is_full = false;
        let (door, sender) = (door.clone(), sender.clone());
        tokio::spawn(async move {
            if let Some(connection) = greet(stream, from, door, counted).await {
                // Nobody is there any more when the server has stopped.
                drop(sender.send(connection).await);
            }
        });
    }
}

async fn greet(
    stream: TcpStream,
    from: SocketAddr,
    door: Door,
    counted: OwnedSemaphorePermit,
) -> Option<Connection> {
    let Door {
        tls,
        speaks,
        mut stop,
    } = door;
    drop(stream.set_nodelay(true));
    let stream = match tls {
        None => Wire::Plain(stream),
        Some(tls) => {
            let greeting = TlsAcceptor::from(tls.config(speaks)).accept(stream);
            match tokio::time::timeout(GREETING, greeting).await {
                Ok(Ok(stream)) => Wire::Tls(Box::new(stream)),
                Ok(Err(error)) => {
                    tracing::debug!(%from, %error, "refused: no TLS");
                    return None;
                }
                Err(_) => {
                    tracing::debug!(%from, "refused: no greeting in time");
                    return None;
                }
            }
        }
    };
    Some(Connection {
        stream,
        from,
        silence: Box::pin(sleep(GREETING)),
        speaks,
        heard_bytes: 0,
        ended: Box::pin(async move {
            // The sender is gone only when the server is.
            drop(stop.wait_for(|phase| *phase == Phase::Ended).await);
        }),
        _counted: counted,
    })
}

impl Connection {
    /// Puts off the time at which it is closed, once enough came: whoever sends a byte now and then does not keep it for ever.
    fn heard(&mut self, num_bytes: usize) {
        let before = self.heard_bytes;
        self.heard_bytes = before.saturating_add(num_bytes);
        let next = match self.speaks {
            // From then on pings see to it that somebody is there.
            Speaks::Flight if self.heard_bytes >= PREFACE_BYTES => FOR_EVER,
            Speaks::Http if before == 0 => HEAD,
            Speaks::Flight | Speaks::Http => return,
        };
        self.silence.as_mut().reset(Instant::now() + next);
    }

    /// A browser that was answered may rest.
    fn answered(&mut self) {
        if self.speaks == Speaks::Http {
            self.heard_bytes = 0;
            self.silence.as_mut().reset(Instant::now() + REST);
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let connection = self.get_mut();
        if connection.ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let before = buffer.filled().len();
        let read = match &mut connection.stream {
            Wire::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Wire::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if read.is_ready() {
            connection.heard(buffer.filled().len().saturating_sub(before));
            return read;
        }
        match connection.silence.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let connection = self.get_mut();
        let written = match &mut connection.stream {
            Wire::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Wire::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        };
        if written.is_ready() {
            connection.answered();
        }
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let connection = self.get_mut();
        let written = match &mut connection.stream {
            Wire::Plain(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Wire::Tls(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        };
        if written.is_ready() {
            connection.answered();
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Wire::Plain(stream) => stream.is_write_vectored(),
            Wire::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Wire::Plain(stream) => Pin::new(stream).poll_flush(context),
            Wire::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Wire::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Wire::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
