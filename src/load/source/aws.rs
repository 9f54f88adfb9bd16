//! S3 and what speaks its protocol.
//!
//! Comes in: a URL, settings, the environment, the files of the AWS tools. Goes out: a store. The names and files are those that the AWS tools document: `AWS_PROFILE`,
//! `AWS_CONFIG_FILE`, `AWS_SHARED_CREDENTIALS_FILE`, `~/.aws/config`, `~/.aws/credentials`. Never here: signing.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use ini::Ini;
use object_store::ObjectStore;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use url::Url;

use super::settings::{Settings, unusable};
use super::store::{Remote, remote};
use crate::error::{Error, Result};

const HINT: &str = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give them as storage_options; storage_options={\"anonymous\": \"true\"} for public data, {\"requester_pays\": \"true\"} where the reader pays, AWS_REGION or `region` for a bucket elsewhere";

/// The keys of profiles that a store understands, and what the store calls them.
const PROFILE_KEYS: [(&str, AmazonS3ConfigKey); 6] = [
    ("aws_access_key_id", AmazonS3ConfigKey::AccessKeyId),
    ("aws_secret_access_key", AmazonS3ConfigKey::SecretAccessKey),
    ("aws_session_token", AmazonS3ConfigKey::Token),
    ("region", AmazonS3ConfigKey::Region),
    ("endpoint_url", AmazonS3ConfigKey::Endpoint),
    (
        "web_identity_token_file",
        AmazonS3ConfigKey::WebIdentityTokenFile,
    ),
];

pub(super) fn open(url: &Url, settings: &Settings) -> Result<Remote> {
    let bucket = url.host_str().unwrap_or_default();
    let mut settings = settings.clone();
    let named = settings.take(&["profile", "aws_profile"]);
    let given: Vec<(AmazonS3ConfigKey, String)> = settings.keys(Some("AWS_"))?;
    let has_keys = given.iter().any(|(key, _)| {
        matches!(
            key,
            AmazonS3ConfigKey::AccessKeyId | AmazonS3ConfigKey::SkipSignature
        )
    });
    // A profile that is asked for by name goes before the keys of the environment, as in the AWS tools.
    let environment = from_environment(named.is_none() && !has_keys);
    let with_keys = !has_keys
        && environment
            .get_config_value(&AmazonS3ConfigKey::AccessKeyId)
            .is_none();
    let profile = Profile::read(named, with_keys)?;
    let builder = profile.fill(environment.with_bucket_name(bucket));
    let builder = given.into_iter().fold(builder, |builder, (key, value)| {
        builder.with_config(key, value)
    });
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    // An endpoint that is given as http:// is meant.
    let plain = endpoint
        .as_ref()
        .is_some_and(|text| text.starts_with("http://"));
    let builder = if plain {
        builder.with_allow_http(true)
    } else {
        builder
    };
    let region = builder.get_config_value(&AmazonS3ConfigKey::Region);
    let store = builder
        .with_retry(settings.retry())
        .build()
        .map_err(unusable)?;
    let about = [
        Some(("bucket", bucket.to_owned())),
        Some((
            "region",
            region.unwrap_or_else(|| "us-east-1 (by default)".to_owned()),
        )),
        endpoint.map(|endpoint| ("endpoint", endpoint)),
    ];
    Ok(remote(
        Arc::new(store) as Arc<dyn ObjectStore>,
        format!("{}://{bucket}/", url.scheme()),
        about.into_iter().flatten().collect(),
        HINT,
    ))
}

const CREDENTIALS: [AmazonS3ConfigKey; 3] = [
    AmazonS3ConfigKey::AccessKeyId,
    AmazonS3ConfigKey::SecretAccessKey,
    AmazonS3ConfigKey::Token,
];

/// The variables `AWS_…`, those with keys only on request.
fn from_environment(with_keys: bool) -> AmazonS3Builder {
    let variables = env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let value = value.into_string().ok()?;
        Some((
            name.starts_with("AWS_").then(|| name.to_lowercase())?,
            value,
        ))
    });
    let known = variables.filter_map(|(name, value)| {
        let key: AmazonS3ConfigKey = name.parse().ok()?;
        (with_keys || !CREDENTIALS.contains(&key)).then_some((key, value))
    });
    let builder = known.fold(AmazonS3Builder::new(), |builder, (key, value)| {
        builder.with_config(key, value)
    });
    // The names that newer AWS tools use.
    let names = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];
    match names.iter().find_map(|name| env::var(name).ok()) {
        Some(endpoint) => builder.with_endpoint(endpoint),
        None => builder,
    }
}

/// What the files of the AWS tools say about a profile.
#[derive(Debug, Default)]
struct Profile {
    values: Vec<(AmazonS3ConfigKey, String)>,
}

impl Profile {
    /// The profile that is named by a setting, by `AWS_PROFILE`, or `default`. Without `with_keys` only what is no credential.
    fn read(named: Option<String>, with_keys: bool) -> Result<Self> {
        let asked = named.or_else(|| env::var("AWS_PROFILE").ok());
        let name = asked.as_deref().unwrap_or("default");
        let config = file("AWS_CONFIG_FILE", "config")?;
        let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials")?;
        let long = format!("profile {name}");
        let sections = [
            config
                .as_ref()
                .and_then(|file| file.section(Some(long.as_str()))),
            config.as_ref().and_then(|file| file.section(Some(name))),
            credentials
                .as_ref()
                .and_then(|file| file.section(Some(name))),
        ];
        if asked.is_some() && sections.iter().all(Option::is_none) {
            return Err(
                Error::not_found(format!("there is no AWS profile `{name}`"))
                    .with_hint("profiles are sections of ~/.aws/config and ~/.aws/credentials"),
            );
        }
        let sections = sections.into_iter().flatten();
        let pairs = sections.flat_map(|section| section.iter());
        let known = pairs.filter_map(|(key, value)| {
            let known = PROFILE_KEYS.iter().find(|(name, _)| *name == key.trim());
            known.map(|(_, key)| (*key, value.trim().to_owned()))
        });
        let wanted = known.filter(|(key, _)| {
            with_keys || matches!(key, AmazonS3ConfigKey::Region | AmazonS3ConfigKey::Endpoint)
        });
        Ok(Self {
            values: wanted.collect(),
        })
    }

    /// Sets what the environment has not set.
    fn fill(&self, builder: AmazonS3Builder) -> AmazonS3Builder {
        let open = |builder: &AmazonS3Builder, key| builder.get_config_value(key).is_none();
        let before = builder.clone();
        self.values.iter().fold(builder, |builder, (key, value)| {
            if open(&before, key) {
                builder.with_config(*key, value)
            } else {
                builder
            }
        })
    }
}

/// A file of the AWS tools; none when there is none.
fn file(variable: &str, name: &str) -> Result<Option<Ini>> {
    let path = match (env::var_os(variable), env::home_dir()) {
        (Some(path), _) => PathBuf::from(path),
        (None, Some(home)) => home.join(".aws").join(name),
        (None, None) => return Ok(None),
    };
    if !path.is_file() {
        return Ok(None);
    }
    let read = Ini::load_from_file_noescape(&path);
    read.map(Some).map_err(|error| {
        Error::invalid_data("the AWS settings cannot be read")
            .with_file(path.to_string_lossy())
            .with_source(error)
    })
}
