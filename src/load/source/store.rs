//! URLs and settings -> stores.
//!
//! Comes in: the scheme and host of a URL, settings by name, the environment. Goes out: a client for that store, and what messages say about it. Settings that are given
//! go before the environment, and that before the files of the AWS tools. Never here: which objects there are.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use object_store::memory::InMemory;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};
use url::Url;

use super::aws;
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

/// Settings by name, as the caller gave them; keys are compared in lower case.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    pairs: Vec<(String, String)>,
    retry: Retry,
}

/// The retries that the caller may set; the rest is known to the client.
#[derive(Debug, Clone)]
struct Retry {
    max_retries: usize,
    retry_timeout: Duration,
}

impl Default for Retry {
    /// A dead endpoint is an error in less than ten seconds.
    fn default() -> Self {
        Self {
            max_retries: 5,
            retry_timeout: Duration::from_secs(9),
        }
    }
}

/// Unless the caller says otherwise: as long as a connection, and a whole answer, may take.
const CONNECT_TIMEOUT: &str = "3s";
const TIMEOUT: &str = "30s";

impl Settings {
    pub(super) fn try_new(pairs: &[(String, String)]) -> Result<Self> {
        let mut settings = Self::default();
        for (key, value) in pairs {
            let key = key.to_lowercase();
            let wrong = |expected: &str| {
                Error::invalid_argument(format!(
                    "the storage option `{key}` must be {expected}, got {value:?}"
                ))
            };
            match key.as_str() {
                "max_retries" => {
                    settings.retry.max_retries =
                        value.parse().map_err(|_| wrong("a whole number"))?;
                }
                "retry_timeout" => {
                    let duration = humantime::parse_duration(value);
                    settings.retry.retry_timeout =
                        duration.map_err(|_| wrong("a time such as `9s`"))?;
                }
                "anon" | "anonymous" => {
                    settings.set("skip_signature".to_owned(), value.to_lowercase());
                }
                "requester_pays" => settings.set("request_payer".to_owned(), value.to_lowercase()),
                "endpoint_url" => settings.set("endpoint".to_owned(), value.clone()),
                _ => settings.set(key, value.clone()),
            }
        }
        Ok(settings)
    }

    fn set(&mut self, key: String, value: String) {
        self.pairs.push((key, value));
    }

    /// Takes a setting out: the last one of these names.
    pub(super) fn take(&mut self, names: &[&str]) -> Option<String> {
        let named = |(key, _): &(String, String)| names.contains(&key.as_str());
        let found = self.pairs.iter().rfind(|pair| named(pair)).cloned();
        self.pairs.retain(|pair| !named(pair));
        found.map(|(_, value)| value)
    }

    pub(super) fn retry(&self) -> RetryConfig {
        RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: self.retry.max_retries,
            retry_timeout: self.retry.retry_timeout,
        }
    }

    /// All settings as the keys of a store's builder; an unknown one is an error.
    pub(super) fn keys<K: std::str::FromStr<Err = object_store::Error>>(
        &self,
    ) -> Result<Vec<(K, String)>> {
        let defaults = [("connect_timeout", CONNECT_TIMEOUT), ("timeout", TIMEOUT)];
        let defaults = defaults.iter().map(|(key, value)| (*key, *value));
        let given = self
            .pairs
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()));
        let parsed = defaults.chain(given).map(|(key, value)| {
            let key = key.parse().map_err(|error| {
                Error::invalid_argument(format!("this store has no storage option `{key}`"))
                    .with_source(error)
            })?;
            Ok((key, value.to_owned()))
        });
        parsed.collect()
    }
}

/// The store of a URL.
pub(super) fn open(url: &Url, source: &str, settings: &Settings) -> Result<Remote> {
    let opened = match url.scheme() {
        "memory" => Ok(in_memory()),
        #[cfg(feature = "cloud")]
        "s3" | "s3a" => aws::open(url, settings),
        #[cfg(feature = "cloud")]
        "gs" | "gcs" => super::cloud::google(url, settings),
        #[cfg(feature = "cloud")]
        "az" | "abfs" | "abfss" | "azure" => super::cloud::azure(url, settings),
        #[cfg(feature = "cloud")]
        "http" | "https" => super::cloud::http(url, settings),
        scheme => Err(
            Error::unsupported(format!("URLs of scheme `{scheme}` cannot be loaded")).with_hint(
                "use a path, file://, memory://, s3://, gs://, az://, http:// or https://",
            ),
        ),
    };
    opened.map_err(|error| error.with_file(source))
}

/// What a builder refuses.
pub(super) fn unusable(error: object_store::Error) -> Error {
    Error::invalid_argument(format!("the store cannot be used: {error}")).with_source(error)
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
