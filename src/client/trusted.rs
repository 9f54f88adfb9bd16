//! Those who vouch for servers.
//!
//! Comes in: a file of certificates in PEM. Goes out: what it holds: at each connection anew, or, once it was read to be kept, what it held then. Never here: connections, and what a client shows of itself.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::options::certificates;
use crate::error::{Error, Result};

/// A file of those who vouch. What is kept of it is so for all clones.
#[derive(Clone)]
pub(super) struct Trusted {
    path: PathBuf,
    /// What it held when it was read to be kept.
    kept: Arc<ArcSwapOption<Vec<u8>>>,
}

impl fmt::Debug for Trusted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.path)
    }
}

impl Trusted {
    pub(super) fn of(path: PathBuf) -> Self {
        Self {
            path,
            kept: Arc::default(),
        }
    }

    /// What a connection is to go by.
    ///
    /// # Errors
    /// As of a file of certificates, where nothing is kept of it.
    pub(super) fn pem(&self) -> Result<Vec<u8>> {
        match self.kept.load().as_ref() {
            Some(kept) => Ok(kept.to_vec()),
            None => certificates(&self.path),
        }
    }

    /// Reads the file, from now on for all connections. One of whose certificates none can vouch leaves what was kept.
    ///
    /// # Errors
    /// As of a file of certificates; `InvalidData` where they cannot be read.
    pub(super) fn keep(&self) -> Result<()> {
        let bytes = certificates(&self.path)?;
        let wrong = |why: &dyn fmt::Display| {
            let text =
                format!("the file must hold certificates in PEM, which cannot be read: {why}");
            Error::invalid_data(text).with_file(self.path.display().to_string())
        };
        let all =
            CertificateDer::pem_slice_iter(&bytes).collect::<std::result::Result<Vec<_>, _>>();
        let all = all.map_err(|error| wrong(&error))?;
        // As connections do it: collections hold old ones with which nobody can do anything.
        let (added, ignored) = RootCertStore::empty().add_parsable_certificates(all);
        if added == 0 {
            return Err(wrong(&"none of them is one of X.509"));
        }
        if ignored > 0 {
            let file = self.path.display();
            tracing::warn!(%file, ignored, "certificates that cannot be read vouch for nobody");
        }
        self.kept.store(Some(Arc::new(bytes)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn what_can_vouch_for_nobody_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let trusted = Trusted::of(path.clone());
        assert_eq!(trusted.keep().unwrap_err().kind(), ErrorKind::NotFound);
        let begin = "-----BEGIN CERTIFICATE-----";
        let end = "-----END CERTIFICATE-----";
        for wrong in [
            String::new(),
            "nonsense".to_owned(),
            format!("{begin}\n"),
            format!("{begin}\n!!!\n{end}\n"),
            format!("{begin}\nbm9uc2Vuc2U=\n{end}\n"),
        ] {
            std::fs::write(&path, &wrong).unwrap();
            let error = trusted.keep().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{wrong}");
            assert_eq!(error.context("file"), path.to_str());
        }
        assert!(trusted.kept.load().is_none());
    }
}
