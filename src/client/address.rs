//! Where a server is, how its channel is set up, and what is said when that breaks.
//!
//! Comes in: a URI; what a channel says of itself. Goes out: an endpoint; errors that name the URI. Never here: calls, servers that are not reached at all (`unreached.rs`).

use std::error::Error as _;
use std::net::IpAddr;
use std::time::Duration;

use tonic::transport::{Endpoint, Uri};
use tonic::{Code, Status};

use super::options::ClientOptions;
use crate::error::{Error, ErrorKind, Result, chain};
use crate::flight::{TOKEN_EXPIRED, TOKEN_UNKNOWN, error_of};

/// How long a client waits for a server that says nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    /// For the answer to a knock.
    pub(crate) knock: Duration,
    /// A connection on which nothing comes for so long is asked whether anybody is there,
    pub(crate) ask: Duration,
    /// and given up when then nothing comes for so long.
    pub(crate) patience: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            knock: Duration::from_secs(10),
            ask: Duration::from_secs(20),
            patience: Duration::from_secs(10),
        }
    }
}

/// What the channel says then.
pub(super) const GIVEN_UP: &str = "keep-alive timed out";

/// How it is said that a connection broke.
const BREAK: &str = "the connection to the server";

/// What TLS says when the other side went away in the middle.
const TORN: &str = "without sending TLS close_notify";

/// How a caller says who it is.
const SHOW: &str = "show a token with token= (`--token-file`, or the variable PARTGRID_TOKEN)";

/// What those can do whose token the server does not know, or no longer.
const UNKNOWN: &str = "see that it is a token of this server, and whole: a server knows those of its file of tokens (auth.tokens) as it read it last, at its start or at SIGHUP";
const EXPIRED: &str =
    "ask the administrator of the server for another one: `partgrid token` makes them";

/// The port in examples.
const PORT: u16 = 8815;

/// With what its library begins that could not read an answer.
const UNREADABLE: [&str; 2] = ["failed to decode Protobuf message", "protocol error"];

/// Bytes that may be under way unread, of a stream and of the connection.
const STREAM_WINDOW_BYTES: u32 = 8 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 32 * 1024 * 1024;

/// Where a server is.
pub(super) struct Address<'a> {
    uri: &'a str,
    /// Host and port.
    pub(super) authority: &'a str,
    pub(super) is_tls: bool,
}

/// Whether a text is the URI of a server, wherever that is.
///
/// # Errors
/// As [`Address::of`].
#[cfg(feature = "cli")]
pub(crate) fn check_uri(uri: &str) -> Result<()> {
    Address::of(uri).map(drop)
}

impl<'a> Address<'a> {
    /// That of a URI.
    ///
    /// # Errors
    /// `InvalidArgument` for another text. One with a user or a password is not shown.
    pub(super) fn of(uri: &'a str) -> Result<Self> {
        if uri.contains('@') {
            let text = "the URI of a server must read like grpc://host:port or grpc+tls://host:port, got one with a user";
            return Err(Error::invalid_argument(text).with_hint(SHOW));
        }
        let wrong = || {
            Error::invalid_argument(format!(
                "the URI of a server must read like grpc://host:port or grpc+tls://host:port, got {uri:?}"
            ))
        };
        let Some((scheme, rest)) = uri.split_once("://") else {
            return Err(meant(wrong(), uri));
        };
        let is_tls = match scheme {
            "grpc" | "grpc+tcp" => false,
            "grpc+tls" => true,
            "http" | "https" => return Err(wrong().with_hint(
                "http:// is where the status page is: a server prints the address of Flight SQL when it starts",
            )),
            // Where there is no port, nobody may have meant a server.
            _ if rest.contains(':') => return Err(meant(wrong(), rest)),
            _ => return Err(wrong()),
        };
        let authority = rest.trim_end_matches('/');
        if authority.contains(['/', '?']) {
            return Err(wrong().with_hint("a URI of a server ends with its port"));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse::<u16>().ok()),
            _ => (authority, None),
        };
        let has_port = matches!(port, Some(1..));
        let is_plain = is_plain(if has_port { authority } else { host });
        if !is_plain || authority.contains(['\\', '#', '+']) {
            return Err(wrong());
        }
        if !has_port {
            return Err(Error::invalid_argument(format!(
                "the URI of a server must have a port from 1 to {}, such as {scheme}://{host}:{PORT}, got {uri:?}",
                u16::MAX
            )));
        }
        Ok(Self {
            uri,
            authority,
            is_tls,
        })
    }

    pub(super) fn uri(&self) -> &str {
        self.uri
    }

    /// The host, as the URI has it.
    pub(super) fn host(&self) -> &str {
        self.authority.rsplit_once(':').map_or("", |(host, _)| host)
    }
}

/// Whether a text is a host, or a host and a port, and no more.
fn is_plain(authority: &str) -> bool {
    let parsed = format!("http://{authority}").parse::<Uri>();
    parsed.is_ok_and(|uri| {
        let host = uri.host().is_some_and(|host| !host.is_empty());
        host && uri.path_and_query().is_none_or(|path| path.as_str() == "/")
    })
}

/// The error of a text without a scheme that is known, with the URI that may have been meant.
fn meant(error: Error, text: &str) -> Error {
    let authority = text.trim_end_matches('/');
    if !is_plain(authority) {
        return error;
    }
    let port = match authority.contains(':') {
        true => String::new(),
        false => format!(":{PORT}"),
    };
    error.with_hint(format!(
        "say grpc://{authority}{port}, or grpc+tls://{authority}{port} where the server has a certificate"
    ))
}

/// The URI with the scheme of what is wanted of TLS. `grpc://` leaves that open, as a host and a port alone do.
///
/// # Errors
/// `InvalidArgument` for a URI that says otherwise.
pub(super) fn with_scheme(uri: &str, is_tls: bool) -> Result<String> {
    let scheme = if is_tls { "grpc+tls" } else { "grpc" };
    let Some((said, rest)) = uri.split_once("://") else {
        return Ok(format!("{scheme}://{uri}"));
    };
    match (said, is_tls) {
        ("grpc", _) => Ok(format!("{scheme}://{rest}")),
        ("grpc+tcp", true) | ("grpc+tls", false) => {
            let (wanted, means) = match is_tls {
                true => ("True", "none"),
                false => ("False", "TLS"),
            };
            let text = format!("tls={wanted} contradicts {said}://, which means {means}");
            Err(Error::invalid_argument(text)
                .with_hint("leave tls out: the URI says it, grpc+tls://host:port with TLS"))
        }
        // What is no URI of a server is said where it is read.
        _ => Ok(uri.to_owned()),
    }
}

/// Whether what goes to a host, a name or an address, leaves this machine, as far as it says.
pub(super) fn is_elsewhere(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_here = host.parse::<IpAddr>().is_ok_and(|address| {
        let address = address.to_canonical();
        address.is_loopback() || address.is_unspecified()
    });
    !is_here && !host.eq_ignore_ascii_case("localhost")
}

/// How the channel to a server is opened.
///
/// # Errors
/// `InvalidArgument` for what is no URI; those of files of certificates.
pub(super) fn endpoint(address: &Address<'_>, options: &ClientOptions) -> Result<Endpoint> {
    let scheme = if address.is_tls { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{}", address.authority));
    let endpoint = endpoint.map_err(|error| {
        Error::invalid_argument(format!(
            "the URI of the server is none: {error}, got {:?}",
            address.uri
        ))
    })?;
    let endpoint = endpoint
        .connect_timeout(options.waits.knock)
        .http2_keep_alive_interval(options.waits.ask)
        .keep_alive_timeout(options.waits.patience)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .tcp_nodelay(true);
    if !address.is_tls {
        return Ok(endpoint);
    }
    let configured = endpoint.tls_config(options.tls()?);
    configured
        .map_err(|error| Error::invalid_data(format!("TLS cannot be set up: {}", chain(&error))))
}

/// The error that a status says. One that no server wrote says what became of the connection, or of the answer.
pub(super) fn error_at(uri: &str, waits: Waits, status: &Status) -> Error {
    let text = status.message();
    match status.source() {
        None if UNREADABLE.iter().any(|begin| text.starts_with(begin)) => {
            let text = format!("the server at {uri} sent what is no message of Flight: {text}");
            Error::new(ErrorKind::Protocol, text).with_hint(
                "something else may be there, for instance the status page of a server: it prints the address of Flight SQL when it starts",
            )
        }
        None if status.code() == Code::Unauthenticated => error_of(status).with_hint(match text {
            TOKEN_UNKNOWN => UNKNOWN,
            TOKEN_EXPIRED => EXPIRED,
            _ => SHOW,
        }),
        None => error_of(status),
        Some(cause) => broken(uri, waits, &chain(cause)),
    }
}

fn broken(uri: &str, waits: Waits, cause: &str) -> Error {
    if cause.contains(GIVEN_UP) {
        return silent(uri, waits.ask + waits.patience);
    }
    let cause = match cause.contains(TORN) {
        true => "the server ended it",
        false => cause,
    };
    let text = format!("{BREAK} at {uri} broke: {cause}");
    Error::new(ErrorKind::Storage { retryable: true }, text)
        .with_hint("the next call connects anew, if the server is there")
}

/// Whether an error says that the connection broke ([`broken`]).
pub(super) fn is_break(error: &Error) -> bool {
    error.message().starts_with(BREAK)
}

/// Nobody said anything for so long.
pub(super) fn silent(uri: &str, waited: Duration) -> Error {
    let text = format!(
        "the server at {uri} has not answered for {} s",
        waited.as_secs()
    );
    Error::new(ErrorKind::Storage { retryable: true }, text).with_hint(
        "it may be stopped, overloaded or cut off, or be no server of Flight: see there, and try again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_none_or_missing_is_said_with_an_example() {
        for (uri, example) in [
            ("grpc://h", "grpc://h:8815"),
            ("grpc://h:", "grpc://h:8815"),
            ("grpc://h:0", "grpc://h:8815"),
            ("grpc://h:65536", "grpc://h:8815"),
            ("grpc://h:port", "grpc://h:8815"),
            ("grpc+tls://db.example/", "grpc+tls://db.example:8815"),
            ("grpc://[::1]", "grpc://[::1]:8815"),
        ] {
            let error = Address::of(uri).err().expect(uri);
            let wanted =
                format!("must have a port from 1 to 65535, such as {example}, got {uri:?}");
            assert!(error.message().ends_with(&wanted), "{error}");
        }
    }

    #[test]
    fn what_may_have_been_meant_by_a_uri_that_is_none_is_said() {
        let hint = |uri: &str| {
            let error = Address::of(uri).err().expect(uri);
            error.hint().unwrap_or_default().to_owned()
        };
        for (uri, meant) in [
            ("h", "grpc://h:8815, or grpc+tls://h:8815 "),
            ("h:1/", "grpc://h:1, or grpc+tls://h:1 "),
            ("[::1]:1", "grpc://[::1]:1, or grpc+tls://[::1]:1 "),
            ("grpcs://h:1", "grpc://h:1, or grpc+tls://h:1 "),
            ("GRPC://h:1", "grpc://h:1, or grpc+tls://h:1 "),
            ("http://h:1", "status page"),
            ("grpc://h:1/path", "ends with its port"),
            ("grpc://h:1?a=b", "ends with its port"),
        ] {
            assert!(hint(uri).contains(meant), "{uri}: {}", hint(uri));
        }
        for uri in ["", "a b", "s3://bucket", "grpc+unix:///tmp/socket"] {
            assert_eq!(hint(uri), "", "{uri}");
        }
    }

    #[test]
    fn who_shows_a_token_that_is_not_good_is_not_told_to_show_one() {
        let hint = |text: &str| {
            let status = Status::new(Code::Unauthenticated, text);
            let error = error_at("grpc://h:1", Waits::default(), &status);
            error.hint().unwrap_or_default().to_owned()
        };
        assert_eq!(hint("a token is needed"), SHOW);
        assert_eq!(hint(TOKEN_UNKNOWN), UNKNOWN);
        assert_eq!(hint(TOKEN_EXPIRED), EXPIRED);
    }

    #[test]
    fn only_names_of_this_machine_are_here() {
        for host in [
            "localhost",
            "127.0.0.1",
            "127.8.9.10",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "0.0.0.0",
        ] {
            let uri = format!("grpc://{host}:1");
            assert!(!is_elsewhere(Address::of(&uri).unwrap().host()), "{host}");
        }
        for host in ["example.com", "10.0.0.1", "localhost.example.com", "[::2]"] {
            let uri = format!("grpc://{host}:1");
            assert!(is_elsewhere(Address::of(&uri).unwrap().host()), "{host}");
        }
    }

    #[test]
    fn what_is_wanted_of_tls_settles_what_a_uri_leaves_open() {
        for (uri, is_tls, settled) in [
            ("h:1", true, "grpc+tls://h:1"),
            ("h:1", false, "grpc://h:1"),
            ("[::1]:1", true, "grpc+tls://[::1]:1"),
            ("grpc://h:1", true, "grpc+tls://h:1"),
            ("grpc://h:1", false, "grpc://h:1"),
            ("grpc+tcp://h:1", false, "grpc+tcp://h:1"),
            ("grpc+tls://h:1", true, "grpc+tls://h:1"),
            ("http://h:1", true, "http://h:1"),
        ] {
            assert_eq!(with_scheme(uri, is_tls).unwrap(), settled);
        }
        for (uri, is_tls) in [("grpc+tcp://s@h:1", true), ("grpc+tls://s@h:1", false)] {
            let error = with_scheme(uri, is_tls).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(!error.to_string().contains("s@h"), "{error}");
        }
    }

    #[test]
    fn what_is_more_than_host_and_port_is_refused_and_no_password_is_shown() {
        for uri in [
            "grpc://127.0.0.1:1/path:2",
            "grpc://127.0.0.1:1?x=:2",
            "grpc://127.0.0.1:1#:2",
            "grpc://127.0.0.1",
            "http://127.0.0.1:1",
            "127.0.0.1:1",
            "grpc://h h:1",
            "grpc://[::1:1",
            "grpc://ä:1",
            "grpc://:1",
            "grpc://h:0",
            "grpc://h:+5",
            "",
        ] {
            let error = Address::of(uri).err().expect(uri);
            assert!(
                error.message().ends_with(&format!("got {uri:?}")),
                "{error}"
            );
        }
        for uri in [
            "grpc://me:secret@127.0.0.1:1",
            "me:secret@h",
            "grpc://secret@h:1/x",
        ] {
            let error = Address::of(uri).err().expect(uri);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_connection_that_is_given_up_says_how_long_nobody_answered() {
        let error = broken(
            "grpc://h:1",
            Waits::default(),
            "http2 error: keep-alive timed out",
        );
        let text = error.to_string();
        assert!(
            text.starts_with("the server at grpc://h:1 has not answered for 30 s\nhint: "),
            "{text}"
        );
    }
}
