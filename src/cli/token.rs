//! `partgrid token`: who may call a server.
//!
//! Comes in: a name, and what its bearer may do. Goes out: a token, once, and its entry for the file of tokens. Never here: what tokens are, how the file changes.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{Pipe, say};
use crate::error::Result;
use crate::memory::parse_size;
use crate::serve::{CallerLimits, Scope, add_token, new_token};

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ScopeName {
    /// Look at grids and query them
    Read,
    /// Also make, replace and drop grids
    Write,
    /// Also see and cancel what others do
    Admin,
}

/// Make a token: the token goes to standard output, once; its entry to the file of tokens that
/// --add-to names, or else to standard error
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLE
  partgrid token analyst --scope read --only 'flights*' --valid-days 90 --add-to tokens.toml

Servers read the file at their start, and again at SIGHUP. It holds the SHA-256 of tokens, never a
token. A client sends the token as `authorization: Bearer TOKEN`, or as the password of any user.")]
pub(super) struct Token {
    /// The name under which the server lists what its bearer does
    name: String,
    /// Add its entry to this file of tokens, which is made, for you alone to read, where there is
    /// none
    #[arg(long, value_name = "FILE")]
    add_to: Option<PathBuf>,
    /// What its bearer may do
    #[arg(long, value_enum, default_value = "read")]
    scope: ScopeName,
    /// A pattern of the names of grids that its bearer may see; once for each [default: all]
    #[arg(long = "only", value_name = "PATTERN")]
    grids: Vec<String>,
    /// After how many days it is no longer good [default: never]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    valid_days: Option<u32>,
    /// How many queries its bearer has at once [default: as the server says for all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    queries: Option<u32>,
    /// What all its queries use of memory together, such as 512MB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<usize>,
    /// The largest answer that it gets, such as 1GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    answer: Option<usize>,
}

impl Token {
    pub(super) fn run(&self, stdout: &mut Pipe<'_>, stderr: &mut dyn Write) -> Result<()> {
        let scope = match self.scope {
            ScopeName::Read => Scope::Read,
            ScopeName::Write => Scope::Write,
            ScopeName::Admin => Scope::Admin,
        };
        let day = Duration::from_secs(24 * 3600);
        let valid_for = self.valid_days.map(|days| day * days);
        let (token, entry) = new_token(&self.name, scope, &self.grids, valid_for)?;
        let limits = CallerLimits {
            queries: self.queries.and_then(|number| usize::try_from(number).ok()),
            memory_bytes: self.memory,
            answer_bytes: self.answer.map(|bytes| bytes as u64),
        };
        let entry = entry + &limits.lines();
        match &self.add_to {
            // A token that is shown is good from then on.
            Some(path) => {
                add_token(path, &self.name, &entry)?;
                let (name, path) = (&self.name, path.display());
                say(stderr, &format!("added the token `{name}` to {path}\n"));
            }
            // For a file: as it is.
            None => drop(stderr.write_all(entry.as_bytes())),
        }
        stdout.print(&format!("{token}\n"))
    }
}
