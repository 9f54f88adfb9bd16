//! `--server`: which verbs ask a server, and how it is reached.
//!
//! Comes in: arguments that go with every verb. Goes out: a client, or what does not go together. Never here: what verbs do.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command};

use super::output::io_failed;
use crate::client::{Client, ClientOptions, check_uri};
use crate::error::{Error, Result};

/// The variable with the token.
const TOKEN_VARIABLE: &str = "PARTGRID_TOKEN";

/// The verbs that ask a server, with the arguments that they then take.
const FAR: [(&str, &[&str]); 7] = [
    (
        "sql",
        &[
            "query",
            "file",
            "format",
            "output",
            "all",
            "timeout",
            "memory_limit",
        ],
    ),
    (
        "load",
        &[
            "paths",
            "name",
            "replace",
            "load_id",
            "lazy",
            "columns",
            "tile_rows",
            "no_hive",
            "schema_evolution",
            "sort_by",
            "json",
            "quiet",
        ],
    ),
    ("show", &["paths"]),
    ("ls", &[]),
    ("rm", &["names", "if_exists"]),
    ("rebalance", &["names", "without"]),
    ("ps", &["all", "cancel"]),
];

/// The arguments that go with a server only.
const ONLY_FAR: [(&str, &[&str]); 2] = [
    ("load", &["name", "replace", "load_id", "lazy"]),
    ("ps", &["all", "cancel"]),
];

/// A server to ask.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(super) struct Remote {
    /// Ask this server instead of working here: grpc://HOST:PORT, or grpc+tls://HOST:PORT
    #[arg(long, global = true, value_name = "URI")]
    server: Option<String>,
    /// A file with the token to show, alone [default: the variable PARTGRID_TOKEN]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    token_file: Option<PathBuf>,
    /// Those who vouch for the server, in PEM [default: those that the system trusts]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    ca: Option<PathBuf>,
    /// The certificate to show, in PEM (mutual TLS)
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    client_certificate: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    client_key: Option<PathBuf>,
    /// The name in the server's certificate, where it is another than that of the URI
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    server_name: Option<String>,
    /// Send the token to another host also without TLS: whoever is on the way can read it
    #[arg(long, global = true, hide_short_help = true)]
    insecure_token: bool,
}

impl Remote {
    /// Where the server is that is to be asked.
    pub(super) fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// What to show to the server, and whom to trust.
    ///
    /// # Errors
    /// `NotFound` and others when the file of the token cannot be read; `InvalidArgument` and `InvalidData` for what is no token.
    pub(super) fn options(&self) -> Result<ClientOptions> {
        let mut options = ClientOptions::default().with_insecure(self.insecure_token);
        if let Some(token) = self.token()? {
            options = options.with_token(token);
        }
        if let Some(path) = &self.ca {
            options = options.with_ca(path);
        }
        if let (Some(certificate), Some(key)) = (&self.client_certificate, &self.client_key) {
            options = options.with_identity(certificate, key);
        }
        if let Some(name) = &self.server_name {
            options = options.with_server_name(name);
        }
        Ok(options)
    }

    fn token(&self) -> Result<Option<String>> {
        let Some(path) = &self.token_file else {
            let token = std::env::var_os(TOKEN_VARIABLE).filter(|token| !token.is_empty());
            let token = token.map(OsString::into_string).transpose();
            return token.map_err(|_| {
                let text = format!("the variable {TOKEN_VARIABLE} must be UTF-8, it is not");
                Error::invalid_argument(text).with_hint("it holds the token alone")
            });
        };
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| {
            let error = io_failed("the token could not be read", &error).with_file(&name);
            let error = error.with_hint(format!(
                "--token-file names a file that holds the token alone; without it the variable {TOKEN_VARIABLE} may hold it"
            ));
            error.with_start_of(&name)
        })?;
        let text = String::from_utf8(bytes).map_err(|_| {
            let text = "a file with a token must be UTF-8, this one is not";
            Error::invalid_data(text).with_file(&name)
        })?;
        let token = text.trim();
        if token.is_empty() || token.contains(char::is_whitespace) {
            let text = "a file with a token must hold the token alone";
            return Err(Error::invalid_data(text).with_file(name));
        }
        Ok(Some(token.to_owned()))
    }

    /// What was said of a server without the rest of it.
    fn alone(&self) -> Option<String> {
        let said = [
            ("--token-file", self.token_file.is_some()),
            ("--ca", self.ca.is_some()),
            ("--client-certificate", self.client_certificate.is_some()),
            ("--client-key", self.client_key.is_some()),
            ("--server-name", self.server_name.is_some()),
            ("--insecure-token", self.insecure_token),
        ];
        let said = said.iter().find(|(_, is_said)| *is_said);
        if let (None, Some((name, _))) = (&self.server, said) {
            return Some(format!("{name} goes with --server"));
        }
        let is_half = self.client_certificate.is_some() != self.client_key.is_some();
        is_half.then(|| "--client-certificate and --client-key go together".to_owned())
    }

    /// A client of the server; `None` without one.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub(super) async fn connect(&self) -> Result<Option<Client>> {
        match self.server() {
            Some(uri) => Ok(Some(Client::connect(uri, &self.options()?).await?)),
            None => Ok(None),
        }
    }

    /// What of the arguments does not go with a server, or not without one.
    pub(super) fn check(
        &self,
        command: &Command,
        matches: &ArgMatches,
    ) -> std::result::Result<(), (String, String)> {
        let Some((verb, given)) = matches.subcommand() else {
            return Ok(());
        };
        let wrong = |text: String| Err((verb.to_owned(), text));
        if let Some(text) = self.alone() {
            return wrong(text);
        }
        if let Some(Err(error)) = self.server().map(check_uri) {
            return wrong(error.to_string());
        }
        let arguments_of = |table: &[(&str, &'static [&'static str])]| {
            let found = table.iter().find(|(name, _)| *name == verb);
            found.map(|(_, arguments)| *arguments)
        };
        let known = command.find_subcommand(verb);
        let known = known.into_iter().flat_map(Command::get_arguments);
        let said = known.filter(|argument| {
            let source = given.value_source(argument.get_id().as_str());
            !argument.is_global_set() && source == Some(ValueSource::CommandLine)
        });
        let (far, only_far) = (arguments_of(&FAR), arguments_of(&ONLY_FAR));
        match (self.server(), far) {
            (Some(_), None) => {
                let verbs: Vec<&str> = FAR.iter().map(|(name, _)| *name).collect();
                wrong(format!(
                    "--server goes with {}, not with {verb}",
                    verbs.join(", ")
                ))
            }
            (Some(_), Some(far)) => {
                let mut not_far =
                    said.filter(|argument| !far.contains(&argument.get_id().as_str()));
                match not_far.next() {
                    Some(argument) => wrong(format!("{argument} does not go with --server")),
                    None => Ok(()),
                }
            }
            (None, _) if matches!(verb, "ls" | "rm" | "rebalance") => {
                wrong(format!("{verb} asks a server: say --server URI"))
            }
            (None, _) => {
                let only_far = only_far.unwrap_or_default();
                let mut far =
                    said.filter(|argument| only_far.contains(&argument.get_id().as_str()));
                match far.next() {
                    Some(argument) => wrong(format!("{argument} goes with --server only")),
                    None => Ok(()),
                }
            }
        }
    }
}
