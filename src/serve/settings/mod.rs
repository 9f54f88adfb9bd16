//! Settings of `partgrid serve`: a file, the environment, flags.
//!
//! Comes in: a TOML file, variables `PARTGRID_SECTION__KEY`, flags; each replaces those before it. Goes out: options of a server, and what holds with where it was said. A key that nobody knows is an
//! error, as is a value of another kind. Read on in `keys.rs` (which there are), `member.rs` (those of members of a cluster). Never here: secrets: the file names other files.

mod keys;
#[cfg(feature = "distributed")]
mod member;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use toml::Value;

use self::keys::{KEYS, Kind};
use super::accounts::CallerLimits;
use super::options::{Limits, ServerOptions};
#[cfg(feature = "distributed")]
use crate::cluster::NEAR_BYTES;
use crate::error::{Error, ErrorKind, Result};
use crate::serve::door::tls::TlsFiles;

/// With what the names of our variables begin.
const PREFIX: &str = "PARTGRID_";

/// What is said where there is no such file.
const NO_SETTINGS: &str = "a server can do without: `partgrid config --help` shows one, `partgrid config` what holds without it";

/// Variables of our own that are called like a key without its section.
const OTHERS: [&str; 1] = ["PARTGRID_TOKEN"];

/// The section whose keys are names of grids.
const GRIDS: &str = "grids";

/// Where a setting was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere.
    Default,
    /// In a file.
    File(String),
    /// In a variable of the environment.
    Environment(String),
    /// On the command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::File(path) => formatter.write_str(path),
            Self::Environment(name) => formatter.write_str(name),
            Self::Flag => formatter.write_str("command line"),
        }
    }
}

/// What was said, by key.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    said: BTreeMap<String, (Value, Origin)>,
}

impl Settings {
    /// Adds those of a TOML file.
    ///
    /// # Errors
    /// `NotFound` and `Storage` when it cannot be read, `InvalidData` for a key or value that is none.
    pub fn add_file(&mut self, path: &Path) -> Result<()> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let kind = match error.kind() {
                std::io::ErrorKind::NotFound => ErrorKind::NotFound,
                _ => ErrorKind::Storage { retryable: false },
            };
            let error = Error::new(kind, format!("the settings cannot be read: {error}"));
            let error = error.with_file(&name);
            match kind {
                ErrorKind::NotFound => error.with_hint(NO_SETTINGS).with_start_of(&name),
                _ => error,
            }
        })?;
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let (what, shown) = (error.message(), error.to_string());
            let text = format!("the settings are not TOML: {what}");
            let place = shown.trim_end().trim_end_matches(what).trim_end();
            Error::invalid_data(text).with_file(&name).with_place(place)
        })?;
        for (section, keys) in table {
            let Value::Table(keys) = keys else {
                let text = format!("settings stand in sections, got {section:?} outside of one");
                return Err(Error::invalid_data(text).with_file(&name));
            };
            for (key, value) in keys {
                let added = self.add(
                    &format!("{section}.{key}"),
                    value,
                    Origin::File(name.clone()),
                );
                added.map_err(|error| error.with_file(&name))?;
            }
        }
        Ok(())
    }

    /// Adds those of variables `PARTGRID_SECTION__KEY`, out of all.
    ///
    /// # Errors
    /// `InvalidArgument` for a key or value that is none.
    pub fn add_environment(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<()> {
        for (name, text) in variables {
            let Some(rest) = name.strip_prefix(PREFIX) else {
                continue;
            };
            let Some((section, key)) = rest.split_once("__") else {
                check_no_setting(&name, rest)?;
                continue;
            };
            let key = format!("{}.{}", section.to_lowercase(), key.to_lowercase());
            let origin = Origin::Environment(name.clone());
            self.add(&key, Value::String(text), origin)
                .map_err(|error| error.with_context("variable", &name))?;
        }
        Ok(())
    }

    /// Adds one of the command line.
    ///
    /// # Errors
    /// `InvalidArgument` for a value that is none.
    pub fn add_flag(&mut self, key: &str, text: impl Into<String>) -> Result<()> {
        self.add(key, Value::String(text.into()), Origin::Flag)
    }

    fn add(&mut self, key: &str, value: Value, origin: Origin) -> Result<()> {
        let is_grid = key
            .strip_prefix(GRIDS)
            .is_some_and(|rest| rest.starts_with('.'));
        let kind = match KEYS.iter().find(|(known, _, _)| *known == key) {
            Some((_, kind, _)) => *kind,
            None if is_grid => Kind::Text,
            None => return Err(unknown(key)),
        };
        let value = kind.read(&value).ok_or_else(|| {
            Error::invalid_argument(format!("{key} must be {}, got {value}", kind.wants()))
        })?;
        self.said.insert(key.to_owned(), (value, origin));
        Ok(())
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.said.get(key).and_then(|(value, _)| value.as_str())
    }

    fn number(&self, key: &str) -> Option<u64> {
        let (value, _) = self.said.get(key)?;
        u64::try_from(value.as_integer()?).ok()
    }

    /// Whether a flag is said to be true.
    fn is_set(&self, key: &str) -> bool {
        let said = self.said.get(key).and_then(|(value, _)| value.as_bool());
        said == Some(true)
    }

    fn seconds(&self, key: &str) -> Option<Duration> {
        let (value, _) = self.said.get(key)?;
        Duration::try_from_secs_f64(value.as_float()?).ok()
    }

    /// The grids that are loaded at the start: names and sources.
    #[must_use]
    pub fn grids(&self) -> Vec<(String, String)> {
        let named = self.said.iter().filter_map(|(key, (value, _))| {
            let name = key.strip_prefix(GRIDS)?.strip_prefix('.')?;
            Some((name.to_owned(), value.as_str()?.to_owned()))
        });
        named.collect()
    }

    /// How long what runs may finish when the server stops.
    #[must_use]
    pub fn stop_within(&self) -> Duration {
        self.seconds("server.stop_within")
            .unwrap_or(Duration::from_secs(30))
    }

    /// What is logged, if anything: as for `PARTGRID_LOG`.
    #[must_use]
    pub fn log_filter(&self) -> Option<&str> {
        self.text("log.filter")
    }

    /// What is logged where neither `log.filter` nor `PARTGRID_LOG` says anything: warnings and errors, and of a log that programs read also what goes on.
    #[must_use]
    pub fn usual_log_filter(&self) -> &'static str {
        match self.is_log_json() {
            true => "info",
            false => "warn",
        }
    }

    /// Whether the log has one JSON object in a line.
    #[must_use]
    pub fn is_log_json(&self) -> bool {
        self.text("log.format") == Some("json")
    }

    /// The collector that traces go to, if any.
    #[must_use]
    pub fn traces(&self) -> Option<&str> {
        self.text("log.traces")
    }

    /// The options of a server, without its grids. Ports that nobody names are 8815 and 8816.
    ///
    /// # Errors
    /// `InvalidArgument` for a certificate without a key, and the like.
    pub fn options(&self) -> Result<ServerOptions> {
        let address = |key: &str, default: &str| self.text(key).unwrap_or(default).parse().ok();
        let mut options = ServerOptions::default()
            .with_limits(self.limits())
            .with_caller_limits(self.caller_limits());
        let flight: Option<SocketAddr> = address("server.address", "127.0.0.1:8815");
        if let Some(flight) = flight {
            options = options.with_address(flight);
        }
        options = options.with_http_address(address("server.http", "127.0.0.1:8816"));
        if let Some(uri) = self.text("server.advertised") {
            options = options.with_advertised(uri);
        }
        options = options
            .with_insecure(self.is_set("server.insecure"))
            .with_skip_damaged(self.is_set("server.skip_damaged"));
        if let Some(threads) = self.number("server.threads") {
            options = options.with_threads(usize::try_from(threads).unwrap_or(usize::MAX));
        }
        if let Some(url) = self.text("server.catalog") {
            options = options.with_catalog(url);
        }
        if let Some(places) = self.text("load.from") {
            let places = places.split(',').map(str::trim);
            let places = places.filter(|place| !place.is_empty());
            options = options.with_load_from(places.map(str::to_owned).collect());
        }
        if let Some(folder) = self.text("server.spill_to") {
            options = options.with_spill_to(folder);
        }
        if let Some(path) = self.text("auth.tokens") {
            options = options.with_token_file(path);
        }
        match (self.text("tls.certificate"), self.text("tls.key")) {
            (Some(certificate), Some(key)) => {
                options = options.with_tls(TlsFiles {
                    certificate: certificate.into(),
                    key: key.into(),
                    client_ca: self.text("tls.client_ca").map(Into::into),
                });
            }
            (None, None) if self.text("tls.client_ca").is_none() => {}
            _ => {
                let text = "TLS needs both tls.certificate and tls.key";
                return Err(Error::invalid_argument(text));
            }
        }
        #[cfg(feature = "distributed")]
        if let Some(cluster) = self.cluster()? {
            options = options.with_cluster(cluster);
        }
        #[cfg(feature = "distributed")]
        if let Some(text) = self.text("cluster.part") {
            let (number, of) = member::part(text)?;
            options = options.with_part(number, of);
        }
        Ok(options)
    }

    fn caller_limits(&self) -> CallerLimits {
        let size = |key: &str| {
            self.number(key)
                .map(|number| usize::try_from(number).unwrap_or(usize::MAX))
        };
        CallerLimits {
            queries: size("auth.queries"),
            memory_bytes: size("auth.memory"),
            answer_bytes: self.number("auth.answer"),
        }
    }

    fn limits(&self) -> Limits {
        let default = Limits::default();
        let size = |key: &str, default: usize| {
            let said = self
                .number(key)
                .and_then(|bytes| usize::try_from(bytes).ok());
            said.unwrap_or(default)
        };
        Limits {
            message_bytes: size("limits.message", default.message_bytes),
            query_time: self
                .seconds("limits.query_time")
                .unwrap_or(default.query_time),
            query_memory_bytes: size("limits.query_memory", default.query_memory_bytes),
            memory_bytes: size("limits.memory", default.memory_bytes),
            spill_bytes: self.number("limits.spill").unwrap_or(default.spill_bytes),
            grid_bytes: self.number("limits.grids").unwrap_or(default.grid_bytes),
            queries: size("limits.queries", default.queries),
            waiting: size("limits.waiting", default.waiting),
            answer_bytes: self.number("limits.answer").unwrap_or(default.answer_bytes),
            answer_rows: self
                .number("limits.answer_rows")
                .unwrap_or(default.answer_rows),
            upload_bytes: self.number("limits.upload").unwrap_or(default.upload_bytes),
            connections: size("limits.connections", default.connections),
            silence: self.seconds("limits.silence").unwrap_or(default.silence),
        }
    }

    /// Every setting that holds: key, value, where it was said, what it is for.
    #[must_use]
    pub fn listed(&self) -> Vec<(String, String, Origin, &'static str)> {
        let mut all = Vec::new();
        for (key, _, what) in KEYS.iter().copied() {
            match self.said.get(key) {
                Some((value, origin)) => {
                    all.push((key.to_owned(), shown(value), origin.clone(), what));
                }
                None => all.push((key.to_owned(), self.default_of(key), Origin::Default, what)),
            }
        }
        for (key, (value, origin)) in &self.said {
            if key.starts_with("grids.") {
                let what = "loaded at the start";
                all.push((key.clone(), shown(value), origin.clone(), what));
            }
        }
        all
    }

    /// The value of a key that nobody has said.
    fn default_of(&self, key: &str) -> String {
        match key {
            "log.filter" => self.usual_log_filter().to_owned(),
            _ => default_of(key),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn default_of(key: &str) -> String {
    let limits = Limits::default();
    match key {
        "server.address" => "127.0.0.1:8815".to_owned(),
        "server.http" => "127.0.0.1:8816".to_owned(),
        "server.insecure" | "server.skip_damaged" => "false".to_owned(),
        "server.threads" => crate::query::max_threads().to_string(),
        "log.format" => "text".to_owned(),
        "server.stop_within" => Settings::default().stop_within().as_secs_f64().to_string(),
        "cluster.fetch" => "true".to_owned(),
        #[cfg(feature = "distributed")]
        "cluster.near" => NEAR_BYTES.to_string(),
        "limits.message" => limits.message_bytes.to_string(),
        "limits.query_time" => limits.query_time.as_secs_f64().to_string(),
        "limits.query_memory" => limits.query_memory_bytes.to_string(),
        "limits.memory" => limits.memory_bytes.to_string(),
        "limits.spill" => limits.spill_bytes.to_string(),
        "limits.grids" => limits.grid_bytes.to_string(),
        "limits.queries" => limits.queries.to_string(),
        "limits.waiting" => limits.waiting.to_string(),
        "limits.answer" => limits.answer_bytes.to_string(),
        "limits.upload" => limits.upload_bytes.to_string(),
        "limits.connections" => limits.connections.to_string(),
        "limits.silence" => limits.silence.as_secs_f64().to_string(),
        _ => String::new(),
    }
}

/// The variable of a key.
fn variable_of(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replacen('.', "__", 1))
}

/// Refuses a variable that is meant for a setting and names none, which else nobody would be told: with one `_` where two are meant, or without its section.
fn check_no_setting(name: &str, rest: &str) -> Result<()> {
    let is_meant = |variable: &String| {
        let key = variable.split_once("__").map(|(_, key)| key);
        variable.replacen("__", "_", 1) == name
            || key.is_some_and(|key| key.eq_ignore_ascii_case(rest))
    };
    let variables = KEYS.iter().map(|(key, _, _)| variable_of(key));
    let meant: Vec<String> = variables.filter(is_meant).collect();
    if meant.is_empty() || OTHERS.contains(&name) {
        return Ok(());
    }
    let text = format!("no setting has the variable `{name}`");
    let hint = format!("did you mean `{}`?", meant.join("` or `"));
    Err(Error::invalid_argument(text).with_hint(hint))
}

fn unknown(key: &str) -> Error {
    let error = Error::invalid_argument(format!("no setting `{key}`"));
    if let Some(name) = key.strip_prefix("grid.") {
        return error.with_hint(format!("did you mean `{GRIDS}.{name}`?"));
    }
    // Said without its section.
    let is_last = |known: &&str| known.rsplit_once('.').is_some_and(|(_, last)| last == key);
    let mut known = KEYS.iter().map(|(known, _, _)| *known);
    if let Some(known) = known.find(is_last) {
        return error.with_hint(format!("did you mean `{known}`?"));
    }
    let near = KEYS
        .iter()
        .map(|(known, _, _)| (strsim::damerau_levenshtein(known, key), *known))
        .min();
    match near {
        Some((distance, known)) if distance <= key.len() / 3 => {
            error.with_hint(format!("did you mean `{known}`?"))
        }
        _ => error.with_hint("`partgrid config` lists all settings"),
    }
}
