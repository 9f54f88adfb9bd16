//! Stores of the network: Google, Azure and plain HTTP; S3 is in `aws.rs`.
//!
//! Comes in: a URL, settings. Goes out: a store. Credentials come from the settings, then from the environment and the files that the tools of these clouds use
//! (`object_store` reads them). Never here: S3 (`aws.rs`).

use std::sync::Arc;

use object_store::ClientOptions;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use url::Url;

use super::aws;
use super::settings::{Settings, unusable};
use super::store::{Remote, remote};
use crate::error::Result;

/// The store of a URL, if its scheme is one of the network.
pub(super) fn open(url: &Url, storage_options: &[(String, String)]) -> Result<Option<Remote>> {
    let settings = Settings::try_new(storage_options)?;
    let opened = match url.scheme() {
        "s3" | "s3a" => aws::open(url, &settings),
        "gs" | "gcs" => google(url, &settings),
        "az" | "abfs" | "abfss" | "azure" => azure(url, &settings),
        "http" | "https" => http(url, &settings),
        _ => return Ok(None),
    };
    opened.map(Some)
}

fn google(url: &Url, settings: &Settings) -> Result<Remote> {
    let bucket = url.host_str().unwrap_or_default();
    let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
    let store = settings
        .fill(
            builder,
            Some("GOOGLE_"),
            GoogleCloudStorageBuilder::with_config,
        )?
        .with_retry(settings.retry())
        .build()
        .map_err(unusable)?;
    Ok(remote(
        Arc::new(store),
        format!("{}://{bucket}/", url.scheme()),
        vec![("bucket", bucket.to_owned())],
        "set GOOGLE_APPLICATION_CREDENTIALS, log in with `gcloud auth application-default login`, or give storage_options={\"anonymous\": \"true\"} for public data",
    ))
}

fn azure(url: &Url, settings: &Settings) -> Result<Remote> {
    let builder = MicrosoftAzureBuilder::from_env().with_url(url.as_str());
    let store = settings
        .fill(builder, Some("AZURE_"), MicrosoftAzureBuilder::with_config)?
        .with_retry(settings.retry())
        .build()
        .map_err(unusable)?;
    let container = match url.username() {
        "" => url.host_str().unwrap_or_default(),
        container => container,
    };
    let host = match url.username() {
        "" => container.to_owned(),
        container => format!("{container}@{}", url.host_str().unwrap_or_default()),
    };
    Ok(remote(
        Arc::new(store),
        format!("{}://{host}/", url.scheme()),
        vec![("container", container.to_owned())],
        "set AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or give them as storage_options",
    ))
}

fn http(url: &Url, settings: &Settings) -> Result<Remote> {
    let mut root = url.clone();
    root.set_path("");
    root.set_query(None);
    root.set_fragment(None);
    let options = settings.fill(ClientOptions::new(), None, ClientOptions::with_config)?;
    let options = options.with_allow_http(url.scheme() == "http");
    let store = HttpBuilder::new()
        .with_url(root.as_str())
        .with_client_options(options)
        .with_retry(settings.retry())
        .build()
        .map_err(unusable)?;
    let name = format!("{}/", root.as_str().trim_end_matches('/'));
    Ok(remote(
        Arc::new(store),
        name,
        vec![("host", url.host_str().unwrap_or_default().to_owned())],
        "the server wants credentials for this file, which HTTP sources cannot give",
    ))
}
