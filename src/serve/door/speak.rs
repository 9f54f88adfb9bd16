//! gRPC over connections.
//!
//! Comes in: connections. Goes out: HTTP/2 on each, every request answered by [`Methods`] within the time that its client gives it, until the server stops. hyper speaks, not tonic's own server: that takes bodies in one piece alone.
//! Never here: what is asked.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::{Code, Status};

use super::chunks::Answer;
use super::get::{Methods, Sent};
use super::listen::{Connection, Connections};
use crate::serve::receive::visit::{Connected, Visit};

/// Bytes of a stream, and of a connection, that may be under way unread.
const STREAM_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// What may wait to be written for a stream: a message or two, so that the next one is made while one is under way.
const WAITING_BYTES: usize = 4 * 1024 * 1024;

/// The headers of a request.
const MAX_HEADER_BYTES: u32 = 16 * 1024;

/// How long a client waits for the beginning of an answer.
const TIMEOUT: &str = "grpc-timeout";

/// The digits that it may have.
const TIMEOUT_DIGITS: usize = 8;

/// What connections may do.
#[derive(Debug, Clone, Copy)]
pub(in crate::serve) struct Allowed {
    /// Streams of one.
    pub(in crate::serve) streams: u32,
    /// How long nothing may come.
    pub(in crate::serve) silence: Duration,
}

/// Answers on connections; ends when it is to stop and all have what they asked for, or asked after.
pub(in crate::serve) async fn speak(
    methods: Methods,
    allowed: Allowed,
    mut incoming: Connections,
    stop: impl Future<Output = ()>,
) {
    // A client that has said nothing for a while is asked whether it is there, and has the rest of the time to say so.
    let patience = allowed.silence / 3;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(allowed.streams)
        .max_header_list_size(MAX_HEADER_BYTES)
        .max_send_buf_size(WAITING_BYTES)
        .keep_alive_interval(allowed.silence - patience)
        .keep_alive_timeout(patience);
    let (stopping, stopped) = watch::channel(());
    let mut stop = pin!(stop);
    loop {
        let next = tokio::select! {
            () = &mut stop => break,
            next = incoming.next() => next,
        };
        let Some(connection) = next else { break };
        tokio::spawn(speak_on(
            connection,
            methods.clone(),
            builder.clone(),
            stopped.clone(),
        ));
    }
    // Nobody is taken up who still waits there.
    drop((incoming, stopped));
    stopping.send_replace(());
    stopping.closed().await;
}

async fn speak_on(
    connection: Connection,
    methods: Methods,
    builder: http2::Builder<TokioExecutor>,
    mut stopped: watch::Receiver<()>,
) {
    // Ends with the connection, for those who wait for that.
    let visit = Visit::default();
    let connected = Connected::by(&visit);
    let on = connected.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let methods = methods.clone();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(on.clone());
        async move { Ok::<_, Infallible>(in_time(methods, request).await) }
    });
    let mut spoken = pin!(builder.serve_connection(TokioIo::new(connection), service));
    let mut closing = pin!(async {
        // The sender is gone only when the server is.
        drop(stopped.changed().await);
        connected.heard_all().await;
    });
    let ended = tokio::select! {
        ended = &mut spoken => ended,
        () = &mut closing => {
            spoken.as_mut().graceful_shutdown();
            spoken.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

/// The answer, or that it took longer than the client waits.
async fn in_time(methods: Methods, request: Request<Body>) -> Response<Answer<Sent>> {
    let Some(within) = within(request.headers()) else {
        return methods.answer(request).await;
    };
    let answered = timeout(within, methods.answer(request)).await;
    answered.unwrap_or_else(|_| {
        let text = format!("the answer took longer than the {within:?} that the client gave");
        let status = Status::new(Code::DeadlineExceeded, text);
        status.into_http().map(Answer::Whole)
    })
}

/// The time that the client gives: digits and a unit. What is none counts as none, as it does for tonic and others.
fn within(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(TIMEOUT)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > TIMEOUT_DIGITS || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u32 = digits.parse().ok()?;
    let unit = match unit {
        "H" => Duration::from_hours(1),
        "M" => Duration::from_mins(1),
        "S" => Duration::from_secs(1),
        "m" => Duration::from_millis(1),
        "u" => Duration::from_micros(1),
        "n" => Duration::from_nanos(1),
        _ => return None,
    };
    Some(unit * number)
}

#[cfg(test)]
mod tests {
    use tonic::codegen::http::HeaderValue;

    use super::*;

    #[test]
    fn the_time_of_a_client_is_digits_and_a_unit() {
        let told = |text: &str| {
            let value = HeaderValue::from_str(text).expect("these are headers");
            within(&HeaderMap::from_iter([(
                TIMEOUT.parse().expect("a name"),
                value,
            )]))
        };
        assert_eq!(told("250m"), Some(Duration::from_millis(250)));
        assert_eq!(told("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(told("99999999n"), Some(Duration::from_nanos(99_999_999)));
        assert!(told("99999999H").is_some());
        for wrong in [
            "",
            "m",
            "1",
            "12x",
            "-1S",
            "+1S",
            "1.5S",
            "123456789S",
            "1 S",
        ] {
            assert_eq!(told(wrong), None, "{wrong:?}");
        }
        assert_eq!(within(&HeaderMap::new()), None);
    }
}
