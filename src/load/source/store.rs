//! URLs -> stores.
//!
//! Comes in: the scheme and host of a URL. Goes out: a client for that store, and what messages say about it. Never here: settings (`settings.rs`), which objects there
//! are.

use std::fmt;
use std::sync::{Arc, LazyLock};

use object_store::ObjectStore;
use object_store::memory::InMemory;
use url::Url;

use crate::error::{Error, ErrorKind, Result};
use crate::load::error::from_store;

/// A store and what messages say about it.
pub(in crate::load) struct Remote {
    pub(in crate::load) store: Arc<dyn ObjectStore>,
    /// What comes before the path of an object in messages, such as `s3://bucket/`.
    pub(super) root: String,
    /// What was tried: bucket, region, endpoint.
    about: Vec<(&'static str, String)>,
    /// What to do when access is refused.
    access_hint: &'static str,
}

impl fmt::Debug for Remote {
    /// Without the store, which may hold keys.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Remote").field(&self.root).finish()
    }
}

impl Remote {
    /// A store that the caller has built.
    pub(super) fn given(store: Arc<dyn ObjectStore>) -> Self {
        Self {
            root: format!("{store}/"),
            store,
            about: Vec::new(),
            access_hint: "the store was built with other credentials than these objects need",
        }
    }

    /// Whether it is a plain web server, which lists nothing.
    pub(super) fn is_http(&self) -> bool {
        self.root.starts_with("http")
    }

    /// Its URL, which the path of an object follows.
    #[cfg(feature = "distributed")]
    pub(in crate::load) fn root(&self) -> &str {
        &self.root
    }

    /// An error of the store about a file or URL.
    pub(in crate::load) fn error(&self, error: object_store::Error, file: &str) -> Error {
        // The last place where keys are looked for is the machine's own service for them.
        let keyless = KEY_SERVICES
            .iter()
            .any(|service| error.to_string().contains(service));
        let error = if keyless {
            let text = format!("no credentials were found: {error}");
            Error::new(ErrorKind::PermissionDenied, text)
                .with_file(file)
                .with_source(error)
        } else {
            from_store(error, file)
        };
        let kind = error.kind();
        let error = self.about.iter().fold(error, |error, (name, value)| {
            error.with_context(name, value)
        });
        match kind {
            ErrorKind::PermissionDenied => error.with_hint(self.access_hint),
            ErrorKind::Storage { .. } => error.with_hint(
                "see that the endpoint can be reached; storage_options take `endpoint`, `timeout`, `connect_timeout`, `max_retries`, `retry_timeout`",
            ),
            _ => error,
        }
    }
}

/// Addresses at which machines of the clouds ask for their keys.
const KEY_SERVICES: [&str; 3] = [
    "169.254.169.254",
    "169.254.170.2",
    "metadata.google.internal",
];

/// The store of a URL.
pub(super) fn open(
    url: &Url,
    source: &str,
    storage_options: &[(String, String)],
) -> Result<Remote> {
    if url.scheme() == "memory" {
        return Ok(in_memory());
    }
    match of_network(url, storage_options).map_err(|error| error.with_file(source))? {
        Some(remote) => Ok(remote),
        None => Err(Error::unsupported(format!(
            "URLs of scheme `{}` cannot be loaded",
            url.scheme()
        ))
        .with_file(source)
        .with_hint("use a path, file://, memory://, s3://, gs://, az://, http:// or https://")),
    }
}

#[cfg(feature = "cloud")]
use super::cloud::open as of_network;

/// Without the feature `cloud` there is no network.
#[cfg(not(feature = "cloud"))]
fn of_network(_: &Url, _: &[(String, String)]) -> Result<Option<Remote>> {
    Ok(None)
}

/// The store of `memory://`: one for each process.
fn in_memory() -> Remote {
    static STORE: LazyLock<Arc<InMemory>> = LazyLock::new(|| Arc::new(InMemory::new()));
    Remote {
        store: Arc::clone(&*STORE) as Arc<dyn ObjectStore>,
        root: "memory:///".to_owned(),
        about: Vec::new(),
        access_hint: "",
    }
}

/// A store of the network.
#[cfg(feature = "cloud")]
pub(super) fn remote(
    store: Arc<dyn ObjectStore>,
    root: String,
    about: Vec<(&'static str, String)>,
    access_hint: &'static str,
) -> Remote {
    Remote {
        store,
        root,
        about,
        access_hint,
    }
}
