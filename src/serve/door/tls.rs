//! Certificates.
//!
//! Comes in: files in PEM. Goes out: what turns a connection into one that nobody else reads, renewed in place when the files are. Never here: sockets, tokens.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
#[cfg(feature = "distributed")]
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
#[cfg(feature = "distributed")]
use rustls::{CertificateError, pki_types::ServerName, server::ParsedCertificate};
use rustls::{RootCertStore, ServerConfig};

use crate::error::{Error, ErrorKind, Result};

/// Where the certificate of a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by those that vouch for it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Those who vouch for clients; with it a client must show a certificate (mutual TLS).
    pub client_ca: Option<PathBuf>,
}

/// The certificate in use.
#[derive(Debug)]
pub(in crate::serve) struct Tls {
    files: TlsFiles,
    /// For Flight (HTTP/2) and for the page (HTTP/1.1).
    configs: ArcSwap<[Arc<ServerConfig>; 2]>,
}

/// Which protocol a port speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serve) enum Speaks {
    Flight,
    Http,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// `NotFound` and `Storage` when they cannot be read, `InvalidData` when they are not what they should be.
    pub(in crate::serve) fn read(files: TlsFiles) -> Result<Self> {
        let configs = ArcSwap::from_pointee(configs(&files)?);
        Ok(Self { files, configs })
    }

    /// Reads them again, for connections from now on. Those of before stay.
    ///
    /// # Errors
    /// As [`Tls::read`]; then the certificate of before stays in use.
    pub(in crate::serve) fn renew(&self) -> Result<()> {
        self.configs.store(Arc::new(configs(&self.files)?));
        Ok(())
    }

    pub(super) fn config(&self, speaks: Speaks) -> Arc<ServerConfig> {
        let configs = self.configs.load();
        let [flight, http] = configs.as_ref();
        Arc::clone(match speaks {
            Speaks::Flight => flight,
            Speaks::Http => http,
        })
    }
}

fn configs(files: &TlsFiles) -> Result<[Arc<ServerConfig>; 2]> {
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| unreadable(&files.key, "private key", &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::internal("TLS has no versions").with_source(error))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| {
                    Error::invalid_data(format!("a certificate of the client CA is none: {error}"))
                        .with_file(path.display().to_string())
                })?;
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            let verifier = verifier.map_err(|error| {
                Error::invalid_data(format!("the client CA cannot be used: {error}"))
                    .with_file(path.display().to_string())
            })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder.with_single_cert(chain, key).map_err(|error| {
        Error::invalid_data(format!(
            "certificate and key do not belong together: {error}"
        ))
        .with_file(files.certificate.display().to_string())
    })?;
    let mut flight = config.clone();
    flight.alpn_protocols = vec![b"h2".to_vec()];
    let mut http = config;
    http.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok([Arc::new(flight), Arc::new(http)])
}

/// The names that a certificate has, where this one is not among them; nothing where that cannot be told.
#[cfg(feature = "distributed")]
pub(in crate::serve) fn names_but(files: &TlsFiles, name: &str) -> Option<Vec<String>> {
    let chain = certificates(&files.certificate).ok()?;
    let own = ParsedCertificate::try_from(chain.first()?).ok()?;
    let wanted = ServerName::try_from(name).ok()?;
    let rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext {
        presented,
        ..
    }) = verify_server_name(&own, &wanted).err()?
    else {
        return None;
    };
    // They read like `DnsName("db1")`.
    let plain = presented.iter().map(|name| {
        let inner = name.split_once('(').map(|(_, inner)| inner);
        let inner = inner.map_or(name.as_str(), |inner| inner.trim_end_matches(')'));
        inner.trim_matches('"').to_owned()
    });
    Some(plain.collect())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path);
    let read = read.map_err(|error| unreadable(path, "certificate", &error))?;
    let all: std::result::Result<Vec<_>, _> = read.collect();
    let all = all.map_err(|error| unreadable(path, "certificate", &error))?;
    if all.is_empty() {
        let text = "the file must hold a certificate in PEM, got none";
        return Err(Error::invalid_data(text).with_file(path.display().to_string()));
    }
    Ok(all)
}

fn unreadable(path: &Path, what: &str, error: &rustls::pki_types::pem::Error) -> Error {
    use rustls::pki_types::pem::Error as PemError;
    let kind = match error {
        PemError::Io(error) if error.kind() == std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        PemError::Io(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            ErrorKind::PermissionDenied
        }
        PemError::Io(_) => ErrorKind::Storage { retryable: false },
        _ => ErrorKind::InvalidData,
    };
    let name = path.display().to_string();
    let error = Error::new(kind, format!("the {what} cannot be read: {error}"));
    error.with_file(&name).with_start_of(&name)
}
