//! What the caller says about a store.
//!
//! Comes in: settings by name. Goes out: the keys of a store's builder, retries, time limits. Settings that are given go before the environment, and that before the
//! files of the AWS tools. Never here: the store itself.

use std::env;
use std::time::Duration;

use object_store::{BackoffConfig, RetryConfig};

use crate::error::{Error, Result};

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

    /// The builder of a store with all settings; one that the store does not know is an error. The names of its variables in the environment, if it has any, begin with `prefix`.
    pub(super) fn fill<B, K: std::str::FromStr<Err = object_store::Error>>(
        &self,
        builder: B,
        prefix: Option<&str>,
        set: impl Fn(B, K, String) -> B,
    ) -> Result<B> {
        let keys = self.keys(prefix)?.into_iter();
        Ok(keys.fold(builder, |builder, (key, value)| set(builder, key, value)))
    }

    /// All settings as the keys of a store's builder; an unknown one is an error. The environment goes before what holds unless somebody says otherwise.
    pub(super) fn keys<K: std::str::FromStr<Err = object_store::Error>>(
        &self,
        prefix: Option<&str>,
    ) -> Result<Vec<(K, String)>> {
        let defaults = [("connect_timeout", CONNECT_TIMEOUT), ("timeout", TIMEOUT)];
        let defaults = defaults.iter().map(|(key, value)| (*key, *value));
        let defaults = defaults.filter(|(key, _)| {
            let variable = prefix.map(|prefix| format!("{prefix}{}", key.to_uppercase()));
            variable.is_none_or(|variable| env::var_os(variable).is_none())
        });
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

/// What a builder refuses.
pub(super) fn unusable(error: object_store::Error) -> Error {
    Error::invalid_argument(format!("the store cannot be used: {error}")).with_source(error)
}
