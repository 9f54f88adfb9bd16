//! What is said of a server that is not reached, and what can be done then.
//!
//! Comes in: an address, what a channel says of itself. Goes out: errors that name the URI, with a remedy. Who takes a connection and makes nothing of what it hears is sent the first message of TLS, to see whether that is spoken there. Never here: calls, and what servers say.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::address::{Address, GIVEN_UP, is_break};
use crate::error::{Error, ErrorKind, causes, chain};

/// What can be done where nobody listens, without TLS and with it.
const NOBODY: &str = "nobody listens there: start a server with `partgrid serve`, or connect to the address that it prints when it starts";
const NOBODY_TLS: &str = "nobody listens there: start a server with `partgrid serve --tls-certificate FILE --tls-key FILE`, or connect to the address that it prints when it starts";

/// What can be done where the host is not to be reached, and where it is not known.
const NO_WAY: &str = "no way leads there: see that the host runs, and that the address, the network and firewalls are right";
const NO_HOST: &str = "no host of this name is known here: see that it is spelt as the network of the server has it, or connect by its address";

/// What can be done where nothing is known but that there is no connection.
const UNCLEAR: &str = "see that a server of Flight SQL listens there: it prints its address when it starts; one with a certificate is at grpc+tls://";
const UNCLEAR_TLS: &str = "the server may speak without TLS (grpc://), or its certificate may not be trusted: name its CA with ca= (`--ca`)";

/// What can be done where a connection was given up before anything was answered.
const NO_FLIGHT: &str = "something else than a server of Flight may be there, such as a web server or a proxy, or a server that has as many connections as it takes (limits.connections): a server prints the address of Flight SQL when it starts";
const NO_CERTIFICATE: &str = "the server may want the certificate of a client, or not trust the one that it was shown: certificate= and key= (`--client-certificate`, `--client-key`)";

/// What may be at a port that has TLS and not the protocol of Flight.
const NO_FLIGHT_BY_TLS: &str = "the port speaks TLS and not Flight, as that of the status page does: a server prints the address of Flight SQL when it starts";

/// What those say who begin TLS with a server or look at its certificate, and what can be done then.
const DOUBTS: [(&str, &str); 8] = [
    ("NoApplicationProtocol", NO_FLIGHT_BY_TLS),
    ("HTTP/2 was not negotiated", NO_FLIGHT_BY_TLS),
    (
        "certificate not valid for name",
        "the host of the URI is not a name of the server's certificate: connect by one that is, or say which one to look for with server_name= (`--server-name`)",
    ),
    (
        "UnknownIssuer",
        "the certificate of the server is not trusted: name its CA with ca= (`--ca`)",
    ),
    (
        "certificate expired",
        "the certificate of the server is to be renewed: put a new one in place, and send the server SIGHUP",
    ),
    (
        "certificate not valid yet",
        "the certificate of the server begins later: see that the clocks of both hosts are right",
    ),
    (
        "CaUsedAsEndEntity",
        "the server shows the certificate of a CA as its own: give it one that the CA has issued for its host, as docs/deploy.md does",
    ),
    (
        "UnsupportedCertVersion",
        "the certificate of the server has no extensions (X.509 version 3): issue one with a subjectAltName, as docs/deploy.md does",
    ),
];

/// What those say who begin TLS and hear something else.
const NO_TLS: &str = "InvalidContentType";

/// What is said where the host is not known.
const NO_NAME: &str = "dns error";

/// What is said where nobody was heard: there was no connection at all, or nothing came on it.
const NOBODY_HEARD: [&str; 3] = [NO_NAME, "tcp connect error", GIVEN_UP];

/// How long somebody may take to answer the first message of TLS.
const HELLO: Duration = Duration::from_secs(2);

/// What a record of TLS with an alert or a first message begins with, and the first number of its version.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const MAJOR_VERSION: u8 = 3;

impl Address<'_> {
    /// What is said when there is no connection.
    pub(super) fn unreachable(&self, error: &(dyn StdError + 'static)) -> Error {
        let why = chain(error);
        let remedy: Cow<'static, str> = match io_kind(error) {
            Some(io::ErrorKind::ConnectionRefused) if self.is_tls => NOBODY_TLS.into(),
            Some(io::ErrorKind::ConnectionRefused) => NOBODY.into(),
            Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
                NO_WAY.into()
            }
            _ if why.contains(NO_NAME) => NO_HOST.into(),
            _ if self.is_tls && why.contains(NO_TLS) => without_tls(self.authority).into(),
            _ if self.is_tls => doubt(&why).unwrap_or(UNCLEAR_TLS).into(),
            _ => UNCLEAR.into(),
        };
        let text = format!("no server answers at {}: {why}", self.uri());
        Error::new(ErrorKind::Storage { retryable: true }, text).with_hint(remedy)
    }

    /// What is said when a connection was taken and then broke before anything was answered.
    pub(super) async fn unanswered(&self, error: Error) -> Error {
        if !is_break(&error) {
            return error;
        }
        if self.is_tls {
            return error.with_hint(NO_CERTIFICATE);
        }
        let remedy = misunderstood(error.message(), self.authority, false).await;
        error.with_hint(remedy.unwrap_or_else(|| NO_FLIGHT.to_owned()))
    }
}

/// What can be done where one side speaks TLS and the other does not, if that is so: of who was asked at a host and port by TLS, or without, and of what was said of the connection. Without TLS it says the same of anything that it
/// makes nothing of, so whoever is there is asked once more, unless nobody said anything at all.
pub(crate) async fn misunderstood(why: &str, authority: &str, is_tls: bool) -> Option<String> {
    match is_tls {
        true => why.contains(NO_TLS).then(|| without_tls(authority)),
        false if NOBODY_HEARD.iter().any(|said| why.contains(said)) => None,
        false => speaks_tls(authority).await.then(|| with_tls(authority)),
    }
}

fn with_tls(authority: &str) -> String {
    format!("it seems to speak TLS: a server with a certificate is at grpc+tls://{authority}")
}

fn without_tls(authority: &str) -> String {
    format!(
        "it seems to speak without TLS: a server without a certificate is at grpc://{authority}"
    )
}

/// What can be done where the certificate of a server is doubted.
fn doubt(why: &str) -> Option<&'static str> {
    let doubt = DOUBTS.iter().find(|(said, _)| why.contains(said));
    doubt.map(|(_, remedy)| *remedy)
}

/// What the system says is wrong, whatever its language.
fn io_kind(error: &(dyn StdError + 'static)) -> Option<io::ErrorKind> {
    let found = causes(error).find_map(|cause| cause.downcast_ref::<io::Error>());
    found.map(io::Error::kind)
}

/// Whether who listens at a host and port answers the first message of TLS as TLS does. Whom it trusts, and who it is, does not matter.
async fn speaks_tls(authority: &str) -> bool {
    let asking = async {
        let hello = hello(authority)?;
        let mut stream = TcpStream::connect(authority).await.ok()?;
        stream.write_all(&hello).await.ok()?;
        let mut begin = [0; 2];
        stream.read_exact(&mut begin).await.ok()?;
        Some(begin)
    };
    let begin = tokio::time::timeout(HELLO, asking).await;
    matches!(begin, Ok(Some([ALERT | HANDSHAKE, MAJOR_VERSION])))
}

/// The first message of TLS to a host and port.
fn hello(authority: &str) -> Option<Vec<u8>> {
    let (host, _) = authority.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).ok()?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut connection = ClientConnection::new(Arc::new(config), name).ok()?;
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use rustls::AlertDescription;
    use rustls::CertificateError::{
        ExpiredContext, NotValidForNameContext, NotValidYetContext, UnknownIssuer,
    };
    use rustls::pki_types::UnixTime;
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_certificate_has_its_own_remedy() {
        let said = |what| rustls::Error::InvalidCertificate(what);
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let name = NotValidForNameContext {
            expected: ServerName::try_from("db1").unwrap(),
            presented: vec!["DnsName(\"db.example\")".to_owned()],
        };
        let expired = ExpiredContext {
            time: at(2),
            not_after: at(1),
        };
        let early = NotValidYetContext {
            time: at(1),
            not_before: at(2),
        };
        let address = Address::of("grpc+tls://db1:8815").unwrap();
        for (what, remedy) in [
            (name, "--server-name"),
            (UnknownIssuer, "name its CA with ca="),
            (expired, "renewed"),
            (early, "clocks"),
        ] {
            let error = address.unreachable(&said(what));
            assert!(error.hint().unwrap().contains(remedy), "{error}");
        }
        // As the port of the status page says it.
        let alert = AlertDescription::NoApplicationProtocol;
        let error = address.unreachable(&rustls::Error::AlertReceived(alert));
        assert!(error.hint().unwrap().contains("status page"), "{error}");
    }

    #[test]
    fn what_keeps_a_server_from_being_reached_has_its_own_remedy() {
        let (plain, tls) = ("grpc://db1:8815", "grpc+tls://db1:8815");
        for (uri, what, remedy) in [
            (plain, io::ErrorKind::ConnectionRefused, NOBODY),
            (tls, io::ErrorKind::ConnectionRefused, NOBODY_TLS),
            (plain, io::ErrorKind::HostUnreachable, NO_WAY),
            (tls, io::ErrorKind::NetworkUnreachable, NO_WAY),
            (plain, io::ErrorKind::PermissionDenied, UNCLEAR),
            (tls, io::ErrorKind::UnexpectedEof, UNCLEAR_TLS),
        ] {
            let address = Address::of(uri).unwrap();
            let error = address.unreachable(&io::Error::from(what));
            assert!(error.message().contains(uri), "{error}");
            assert_eq!(error.hint(), Some(remedy), "{error}");
        }
    }

    #[tokio::test]
    async fn who_speaks_tls_is_told_from_others_by_its_answer() {
        assert!(asked(&[21, 3, 3, 0, 2, 2, 50]).await.0);
        assert!(asked(&[22, 3, 3, 0, 80, 2]).await.0);
        for other in [&b"HTTP/1.1 400 Bad Request"[..], b"\0\0\x18\x04", b""] {
            assert!(!asked(other).await.0, "{other:?}");
        }
        // Where nobody listens any more.
        let (_, authority) = asked(b"").await;
        assert!(!speaks_tls(&authority).await);
        assert!(!speaks_tls("no port").await);
    }

    /// What is found out of one who answers the first message by these bytes, and where that was.
    async fn asked(answer: &'static [u8]) -> (bool, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let answering = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut header = [0; 5];
            stream.read_exact(&mut header).await.unwrap();
            let [kind, version, _, high, low] = header;
            assert_eq!([kind, version], [HANDSHAKE, MAJOR_VERSION]);
            let mut rest = vec![0; usize::from(u16::from_be_bytes([high, low]))];
            stream.read_exact(&mut rest).await.unwrap();
            stream.write_all(answer).await.unwrap();
        };
        let (speaks, ()) = tokio::join!(speaks_tls(&authority), answering);
        (speaks, authority)
    }
}
