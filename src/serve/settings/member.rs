//! Settings of a member of a cluster.
//!
//! Comes in: what was said by the keys `cluster.…`. Goes out: options of a member; errors name the key. Never here: other keys.

use std::path::Path;

use super::Settings;
use crate::cluster::{ClusterOptions, Join, NEAR_BYTES};
use crate::error::{Error, Result};
use crate::serve::door::auth::is_token;

impl Settings {
    /// How the server is a member of a cluster, if it is one.
    ///
    /// # Errors
    /// `InvalidArgument` for settings of members of one that is none, and for members that are not written as they should be; as of the file of the token.
    pub(super) fn cluster(&self) -> Result<Option<ClusterOptions>> {
        let Some(join) = self.text("cluster.join") else {
            // That of cluster.part is said with the other options.
            let is_of_members =
                |key: &&String| key.starts_with("cluster.") && !key.ends_with(".part");
            return match self.said.keys().find(is_of_members) {
                None => Ok(None),
                Some(key) => {
                    let text = format!("only a member of a cluster goes by {key}");
                    Err(Error::invalid_argument(text)
                        .with_hint("say where the members are: cluster.join, or --join"))
                }
            };
        };
        let flag = |key: &str| self.said.get(key).and_then(|(value, _)| value.as_bool());
        let replicas = self.number("cluster.replicas");
        let mut options = ClusterOptions {
            join: Some(joined(join)?),
            forbids_fetching: flag("cluster.fetch") == Some(false),
            near_bytes: self.number("cluster.near").unwrap_or(NEAR_BYTES),
            is_eager: flag("cluster.eager") == Some(true),
            replicas: replicas.and_then(|replicas| usize::try_from(replicas).ok()),
            ..ClusterOptions::default()
        };
        if let Some((value, _)) = self.said.get("server.insecure") {
            options = options.with_insecure(value.as_bool() == Some(true));
        }
        if let Some(path) = self.text("cluster.token") {
            options = with_token(options, path)?;
        }
        if let Some(places) = self.text("cluster.shared") {
            let places = places.split(',').map(str::trim);
            let places = places.filter(|place| !place.is_empty());
            options.shared = places.map(str::to_owned).collect();
        }
        if let Some(path) = self.text("cluster.ca") {
            options = options.with_ca(path);
        }
        // Where clients must show a certificate, members show their own.
        if let (Some(_), Some(certificate), Some(key)) = (
            self.text("tls.client_ca"),
            self.text("tls.certificate"),
            self.text("tls.key"),
        ) {
            options = options.with_identity(certificate, key);
        }
        Ok(Some(options))
    }
}

/// Where the addresses of members are written.
fn joined(text: &str) -> Result<Join> {
    let joined: Result<Join> = text.parse();
    joined.map_err(|error| error.with_context("setting", "cluster.join (--join)"))
}

/// The options with what members show each other, as its file has it.
fn with_token(options: ClusterOptions, path: &str) -> Result<ClusterOptions> {
    if is_token(path) && !Path::new(path).exists() {
        let text = "cluster.token must name the file of the token, got the token itself";
        return Err(Error::invalid_argument(text).with_hint(
            "write it to a file that only the user of the server can read, and name that: settings are shown to whoever lists them",
        ));
    }
    let read = options.with_token_file(path);
    read.map_err(|error| {
        let error = error.with_context("setting", "cluster.token");
        match path.strip_prefix("file:") {
            Some(rest) => error.with_hint(format!(
                "cluster.token names the file without `file:`, as {rest:?}"
            )),
            None => error,
        }
    })
}

/// `0/3`: the first of three parts.
///
/// # Errors
/// `InvalidArgument` for anything else.
pub(super) fn part(text: &str) -> Result<(usize, usize)> {
    let numbers = text.split_once('/').and_then(|(number, of)| {
        let numbers: (usize, usize) = (number.trim().parse().ok()?, of.trim().parse().ok()?);
        (numbers.0 < numbers.1).then_some(numbers)
    });
    numbers.ok_or_else(|| {
        Error::invalid_argument(format!(
            "cluster.part must be the number of a part and how many there are, such as 0/3, got {text:?}"
        ))
    })
}
