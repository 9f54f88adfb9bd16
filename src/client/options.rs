//! How to connect to a server.
//!
//! Comes in: a token, files of certificates, bounds of queries. Goes out: the same, as the channel wants them. Says nothing of secrets when it is printed. Never here: the channel.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::address::Address;
use crate::error::{Error, ErrorKind, Result};

/// What a client shows and trusts.
#[derive(Clone, Default)]
pub struct ClientOptions {
    token: Option<String>,
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
    is_insecure: bool,
    pub(super) bounds: QueryBounds,
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
            .field("is_insecure", &self.is_insecure)
            .field("bounds", &self.bounds)
            .finish()
    }
}

impl ClientOptions {
    /// The token to show with each call.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// A file of those who vouch for the server, in PEM; without it those that the system trusts.
    #[must_use]
    pub fn with_ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(path.into());
        self
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

    /// Allows the token to go to another host without TLS: whoever is on the way can read and use it.
    #[must_use]
    pub fn with_insecure(mut self, is_insecure: bool) -> Self {
        self.is_insecure = is_insecure;
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

    /// Sees that nobody on the way to the server can read the token.
    ///
    /// # Errors
    /// `InvalidArgument` with the remedy.
    pub(super) fn check_token(&self, address: &Address<'_>) -> Result<()> {
        if self.token.is_none() || address.is_tls || self.is_insecure || !address.is_elsewhere() {
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

    /// The token as it goes into each call.
    ///
    /// # Errors
    /// `InvalidArgument` for what no header can hold.
    pub(crate) fn bearer(&self) -> Result<Option<MetadataValue<Ascii>>> {
        let Some(token) = &self.token else {
            return Ok(None);
        };
        let value = format!("Bearer {token}").parse::<MetadataValue<Ascii>>();
        let mut value = value.map_err(|_| {
            Error::invalid_argument("a token must be printable ASCII, this one is not")
        })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Whom to trust, and what to show.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied` or `Storage` for files that cannot be read.
    pub(crate) fn tls(&self) -> Result<ClientTlsConfig> {
        let mut tls = ClientTlsConfig::new();
        tls = match &self.ca {
            Some(path) => tls.ca_certificate(Certificate::from_pem(file(path)?)),
            None => tls.with_native_roots(),
        };
        if let Some((certificate, key)) = &self.identity {
            tls = tls.identity(Identity::from_pem(file(certificate)?, file(key)?));
        }
        if let Some(name) = &self.server_name {
            tls = tls.domain_name(name);
        }
        Ok(tls)
    }
}

fn file(path: &PathBuf) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
            _ => ErrorKind::Storage { retryable: false },
        };
        Error::new(kind, format!("the file cannot be read: {error}"))
            .with_file(path.display().to_string())
    })
}
