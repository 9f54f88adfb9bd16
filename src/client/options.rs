//! How to connect to a server.
//!
//! Comes in: a token or its file, files of certificates, bounds of queries. Goes out: the same, as the channel wants them. Says nothing of secrets when it is printed. Never here: the channel.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::address::{Address, Waits, is_elsewhere, with_scheme};
use super::trusted::Trusted;
use crate::error::{Error, ErrorKind, Result};

/// What a client shows and trusts.
#[derive(Clone, Default)]
pub struct ClientOptions {
    token: Option<Token>,
    ca: Option<Trusted>,
    identity: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
    /// Whether the connection is encrypted, if not the URI alone says it.
    tls: Option<bool>,
    is_insecure: bool,
    pub(super) bounds: QueryBounds,
    pub(super) waits: Waits,
}

/// Where the token comes from.
#[derive(Clone)]
enum Token {
    Said(String),
    /// The one in the file, as it was read last.
    File(PathBuf, Bearer),
}

/// A token as it goes into each call. One of a file is another one once the file was read again, for all clients that were made with the same options.
#[derive(Clone, Default)]
pub(crate) struct Bearer(Arc<ArcSwapOption<MetadataValue<Ascii>>>);

impl Bearer {
    /// # Errors
    /// `InvalidArgument` for what no header can hold.
    fn of(token: &str) -> Result<Self> {
        let wrong = || no_token(token);
        // A header may hold other bytes, which servers read as they like.
        if !token.is_ascii() {
            return Err(wrong());
        }
        let value = format!("Bearer {token}").parse::<MetadataValue<Ascii>>();
        let mut value = value.map_err(|_| wrong())?;
        value.set_sensitive(true);
        Ok(Self(Arc::new(ArcSwapOption::from_pointee(value))))
    }

    /// What is shown at this moment; nothing without a token.
    pub(crate) fn now(&self) -> Option<MetadataValue<Ascii>> {
        self.0.load().as_deref().cloned()
    }
}

/// What is said of a text that no header can hold: which character, and nothing of the others.
fn no_token(text: &str) -> Error {
    let is_other = |letter: char| !matches!(letter, ' '..='~' | '\t');
    let mut letters = text.chars().enumerate();
    let Some((place, letter)) = letters.find(|(_, letter)| is_other(*letter)) else {
        return Error::invalid_argument("a token must be printable ASCII, this one is not");
    };
    let error = Error::invalid_argument(format!(
        "a token must be printable ASCII, character {} of {} is {letter:?}",
        place + 1,
        text.chars().count()
    ));
    error.with_hint(match text.trim().contains(is_other) {
        false => "line ends around a token are no part of it: token.strip() takes them away",
        true => "copy the token as a whole: it has letters, digits, _ and - only",
    })
}

/// What the queries of a client may use, besides what the server allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct QueryBounds {
    pub(super) timeout: Option<Duration>,
    pub(super) memory_limit_bytes: Option<u64>,
}

impl QueryBounds {
    /// # Errors
    /// `InvalidArgument` for bounds that nothing can keep to.
    pub(super) fn check(&self) -> Result<()> {
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            let text = "timeout must be more than 0 seconds, got 0";
            return Err(Error::invalid_argument(text));
        }
        if self.memory_limit_bytes == Some(0) {
            let text = "memory_limit must be at least 1, got 0";
            return Err(Error::invalid_argument(text));
        }
        Ok(())
    }
}

/// Says nothing of the token.
impl fmt::Debug for ClientOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        formatter
            .debug_struct("ClientOptions")
            .field("token", &token)
            .field("ca", &self.ca)
            .field("identity", &self.identity)
            .field("server_name", &self.server_name)
            .field("tls", &self.tls)
            .field("is_insecure", &self.is_insecure)
            .field("bounds", &self.bounds)
            .finish()
    }
}

impl ClientOptions {
    /// The token to show with each call.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Token::Said(token.into()));
        self
    }

    /// The token to show with each call, in a file, which [`ClientOptions::read_token_again`] reads again.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied` or `Storage` for a file that cannot be read, `InvalidArgument` for what no header can hold.
    pub fn with_token_file(mut self, path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let bearer = bearer_in(&path)?;
        self.token = Some(Token::File(path, bearer));
        Ok(self)
    }

    /// Reads the file of the token again, if there is one: all that was made with these options, or with clones of them, shows what it says now. Where it cannot be read they show what they showed before.
    ///
    /// # Errors
    /// As [`ClientOptions::with_token_file`].
    pub fn read_token_again(&self) -> Result<()> {
        if let Some(new) = self.token_of_now()? {
            self.show(&new);
        }
        Ok(())
    }

    /// The token as its file has it now, if it is in a file, for those who look at it before it is shown ([`ClientOptions::show`]).
    ///
    /// # Errors
    /// As [`ClientOptions::with_token_file`].
    pub(crate) fn token_of_now(&self) -> Result<Option<Bearer>> {
        match &self.token {
            Some(Token::File(path, _)) => bearer_in(path).map(Some),
            Some(Token::Said(_)) | None => Ok(None),
        }
    }

    /// Shows another token from now on, in place of the one of the file.
    pub(crate) fn show(&self, new: &Bearer) {
        if let Some(Token::File(_, bearer)) = &self.token {
            bearer.0.store(new.0.load_full());
        }
    }

    /// A file of those who vouch for the server, in PEM; without it those that the system trusts. It is read at each connection, unless [`ClientOptions::read_ca`] has kept what it held.
    #[must_use]
    pub fn with_ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(Trusted::of(path.into()));
        self
    }

    /// Reads the file of those who vouch for the server, if there is one: connections that are made from now on with these options, or with clones of them, go by what it holds at this moment. Where it cannot be read they go by what they
    /// went by before.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied` or `Storage` for a file that cannot be read, `InvalidData` for one without a certificate that can be read. Where only some can, the log says how many were left out.
    pub fn read_ca(&self) -> Result<()> {
        self.ca.as_ref().map_or(Ok(()), Trusted::keep)
    }

    /// Files of the certificate and the key that the client shows, in PEM (mutual TLS).
    #[must_use]
    pub fn with_identity(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// The name that the certificate of the server must have, where it is another than that of the URI.
    #[must_use]
    pub fn with_server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Whether the connection is encrypted, where the URI leaves it open: with it, `host:port` without a scheme is a URI, and one that says `grpc://` is spoken to by TLS if it is true. A URI that says otherwise is refused. Without
    /// it the URI alone says it.
    #[must_use]
    pub fn with_tls(mut self, is_tls: bool) -> Self {
        self.tls = Some(is_tls);
        self
    }

    /// A URI that says by its scheme what was wanted of TLS.
    ///
    /// # Errors
    /// `InvalidArgument` for one whose scheme says otherwise.
    pub(super) fn settled<'a>(&self, uri: &'a str) -> Result<Cow<'a, str>> {
        match self.tls {
            Some(is_tls) => with_scheme(uri, is_tls).map(Cow::Owned),
            None => Ok(Cow::Borrowed(uri)),
        }
    }

    /// Allows the token to go to another host without TLS: whoever is on the way can read and use it.
    #[must_use]
    pub fn with_insecure(mut self, is_insecure: bool) -> Self {
        self.is_insecure = is_insecure;
        self
    }

    /// How long the client waits for a server that says nothing.
    #[cfg(feature = "distributed")]
    pub(crate) fn with_waits(mut self, waits: Waits) -> Self {
        self.waits = waits;
        self
    }

    /// How long each query may take; the server may allow less.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.bounds.timeout = Some(timeout);
        self
    }

    /// What each query may use of the server's memory; the server may allow less.
    #[must_use]
    pub fn with_memory_limit_bytes(mut self, bytes: u64) -> Self {
        self.bounds.memory_limit_bytes = Some(bytes);
        self
    }

    /// Whether the token would go to another machine in clear text, where whoever is on the way can read it, and nobody has allowed that.
    pub(crate) fn shows_token_openly(&self, host: &str, is_tls: bool) -> bool {
        self.token.is_some() && !is_tls && !self.is_insecure && is_elsewhere(host)
    }

    /// Sees that nobody on the way to the server can read the token.
    ///
    /// # Errors
    /// `InvalidArgument` with the remedy.
    pub(super) fn check_token(&self, address: &Address<'_>) -> Result<()> {
        if !self.shows_token_openly(address.host(), address.is_tls) {
            return Ok(());
        }
        let text = format!(
            "a token must go to another host over TLS, got {}",
            address.uri()
        );
        Err(Error::invalid_argument(text).with_hint(
            "connect to grpc+tls://; where nobody else is on the way, say insecure=True (`--insecure-token`)",
        ))
    }

    /// Sees that what is said of TLS goes with an address that has it.
    ///
    /// # Errors
    /// `InvalidArgument` for a CA, a certificate or a name of the server, and no TLS.
    pub(super) fn check_tls(&self, address: &Address<'_>) -> Result<()> {
        let said = [
            (self.ca.is_some(), "a CA"),
            (self.identity.is_some(), "a certificate"),
            (self.server_name.is_some(), "a name of the server"),
        ];
        let Some((_, what)) = said.iter().find(|(is_said, _)| *is_said && !address.is_tls) else {
            return Ok(());
        };
        let text = format!("{what} goes with grpc+tls://, got {}", address.uri());
        Err(Error::invalid_argument(text).with_hint("connect to grpc+tls://, or leave it out"))
    }

    /// The token as it goes into each call.
    ///
    /// # Errors
    /// `InvalidArgument` for what no header can hold.
    pub(crate) fn bearer(&self) -> Result<Bearer> {
        match &self.token {
            None => Ok(Bearer::default()),
            Some(Token::Said(token)) => Bearer::of(token),
            Some(Token::File(_, bearer)) => Ok(bearer.clone()),
        }
    }

    /// Whom to trust, and what to show.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied` or `Storage` for files that cannot be read, `InvalidData` for those without a certificate.
    pub(crate) fn tls(&self) -> Result<ClientTlsConfig> {
        let mut tls = ClientTlsConfig::new();
        tls = match &self.ca {
            Some(trusted) => tls.ca_certificate(Certificate::from_pem(trusted.pem()?)),
            None => tls.with_native_roots(),
        };
        if let Some((certificate, key)) = &self.identity {
            tls = tls.identity(Identity::from_pem(certificates(certificate)?, file(key)?));
        }
        if let Some(name) = &self.server_name {
            tls = tls.domain_name(name);
        }
        Ok(tls)
    }
}

fn file(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| unreadable("the file cannot be read", path, &error))
}

/// A file of certificates. One without any would say nothing of it, and nobody would be trusted.
///
/// # Errors
/// `NotFound`, `PermissionDenied` or `Storage` when it cannot be read, `InvalidData` for one without any.
pub(super) fn certificates(path: &Path) -> Result<Vec<u8>> {
    let bytes = file(path)?;
    let text = String::from_utf8_lossy(&bytes);
    if text.contains("-----BEGIN CERTIFICATE-----") {
        return Ok(bytes);
    }
    let text = "the file must hold a certificate in PEM, got none";
    Err(Error::invalid_data(text).with_file(path.display().to_string()))
}

/// The token in a file, without the line end.
fn token_in(path: &Path) -> Result<String> {
    let what = "the file of the token cannot be read";
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(what, path, &error))?;
    let wrong = |text: String| Error::invalid_argument(text).with_file(path.display().to_string());
    let token = text.trim();
    if token.is_empty() {
        let text = "the file of the token must hold one, it is empty";
        return Err(wrong(text.to_owned()));
    }
    if token.contains("[[token]]") {
        let text = "the file of the token must hold that alone, got a file of tokens (auth.tokens), which holds only their SHA-256";
        return Err(wrong(text.to_owned()).with_hint(
            "`partgrid token NAME --add-to TOKENS > FILE` writes a token to a file of its own, and its entry to the file of tokens",
        ));
    }
    match token.lines().count() {
        1 => Ok(token.to_owned()),
        many => Err(wrong(format!(
            "the file of the token must hold one token in one line, got {many} lines"
        ))),
    }
}

/// The token in a file, as it goes into each call.
fn bearer_in(path: &Path) -> Result<Bearer> {
    let bearer = Bearer::of(&token_in(path)?);
    bearer.map_err(|error| error.with_file(path.display().to_string()))
}

fn unreadable(what: &str, path: &Path, error: &std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::Storage { retryable: false },
    };
    let name = path.display().to_string();
    let error = Error::new(kind, format!("{what}: {error}")).with_file(&name);
    error.with_start_of(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_go_to_other_machines_over_tls_or_where_that_was_allowed() {
        let none = ClientOptions::default();
        let some = ClientOptions::default().with_token("secret");
        for host in ["example.com", "192.0.2.1", "[2001:db8::1]", ""] {
            assert!(some.shows_token_openly(host, false), "{host}");
            assert!(!some.shows_token_openly(host, true), "{host}");
            assert!(!none.shows_token_openly(host, false), "{host}");
            let allowed = some.clone().with_insecure(true);
            assert!(!allowed.shows_token_openly(host, false), "{host}");
        }
        for host in ["localhost", "127.0.0.1", "[::1]"] {
            assert!(!some.shows_token_openly(host, false), "{host}");
        }
    }

    #[test]
    fn a_token_of_a_file_changes_for_all_that_was_made_with_it() {
        let path = std::env::temp_dir().join(format!("partgrid-token-{}", std::process::id()));
        std::fs::write(&path, "one\n").unwrap();
        let options = ClientOptions::default().with_token_file(&path).unwrap();
        let (first, clone) = (options.bearer().unwrap(), options.clone());
        assert_eq!(first.now().unwrap(), "Bearer one");
        std::fs::write(&path, "two").unwrap();
        options.read_token_again().unwrap();
        let second = clone.bearer().unwrap();
        assert_eq!(
            [first.now(), second.now()].map(|now| now.unwrap()),
            ["Bearer two"; 2]
        );
        // What cannot be read, or is none, leaves the one before.
        for wrong in ["", "two\nlines", "[[token]]", "\u{e4}"] {
            std::fs::write(&path, wrong).unwrap();
            let error = options.read_token_again().unwrap_err();
            assert_eq!(error.context("file"), path.to_str(), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        let error = options.read_token_again().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(first.now().unwrap(), "Bearer two");
    }
}
