//! The `partgrid` command: look at files as grids, and query them.
//!
//! Comes in: arguments. Goes out: results on one writer, messages on another, an exit code. One file per verb; `format.rs`, `table.rs` and `output.rs` write
//! results, `grid_argument.rs` and `remote.rs` read arguments, `engine.rs` runs statements here or on a server, `hints.rs` words remedies, `interrupt.rs` hears Ctrl-C, `voice.rs` speaks for a server. The binary and the Python package share [`run`]. Never here: anything that the library could not do
//! without this command.

mod distarray;
mod engine;
mod format;
mod grid_argument;
mod hints;
mod interrupt;
mod load;
mod log;
mod ls;
mod output;
mod ps;
mod rebalance;
mod remote;
mod remote_load;
mod rm;
mod serve;
mod shell;
mod show;
mod sql;
mod table;
mod token;
mod voice;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tokio::runtime::{Builder, Runtime};

use self::hints::in_options;
use self::interrupt::{EXIT_INTERRUPTED, is_interrupted};
use self::log::Log;
pub use self::log::VARIABLE as LOG_VARIABLE;
use self::remote::Remote;
use self::voice::Voice;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::picture::visible_lines;

/// The work is done, or the reader of the output wanted no more of it.
pub const EXIT_DONE: u8 = 0;
/// The work failed; standard error says why. Of a check: there are errors.
pub const EXIT_FAILED: u8 = 1;
/// The arguments are wrong; nothing was done. Of a check: also when the file cannot be read.
pub const EXIT_USAGE: u8 = 2;

const AFTER_HELP: &str = "\
EXAMPLES
  partgrid show flights.parquet
  partgrid show 'data/*.parquet' --columns origin,dep_delay
  partgrid sql --grid flights=flights.parquet
  partgrid sql 'SELECT origin, avg(dep_delay) FROM flights GROUP BY origin' \\
      --grid flights=flights.parquet
  partgrid load 's3://bucket/logs/*.parquet' --out logs/ --tile-rows 1000000
  partgrid copy flights/ s3://bucket/flights/
  partgrid sql -f query.sql --grid a=a.parquet --grid b=b/ --output result.parquet
  partgrid distarray check sections.json
  partgrid ps
  partgrid serve --grid flights=flights.parquet
  partgrid --server grpc://localhost:8815 sql
  partgrid --server grpc://localhost:8815 load 's3://bucket/logs/' --name logs
  echo 'SELECT count(*) AS n FROM t' | partgrid sql - --grid t=t.parquet --format csv

EXIT CODES
    0  done (also when the reader of the output closed it early, as `head` does)
    1  the work failed; standard error says why (check: there are errors)
    2  wrong usage; nothing was done (check: also a file that cannot be read)
  130  interrupted by Ctrl-C (as the shell reports it)

ENVIRONMENT
  PARTGRID_LOG   what to log on standard error, for instance debug or partgrid::load=info;
                 nothing by default, of a server warnings and errors
  PARTGRID_MAX_THREADS  on how many threads to run; the number of cores by default
  PARTGRID_HISTORY      the file of the statements of the shell; empty for none
  PARTGRID_TOKEN  the token to show to --server
  PARTGRID_SECTION__KEY  a setting of the server, see `partgrid config --help`
  PARTGRID_HOST  the address of this machine that is shown for tiles
  PARTGRID_PROGRESS  0, false, no or off for no bars
  AWS_…, GOOGLE_…, AZURE_…  credentials and regions, as the tools of these clouds take them

Results go to standard output, messages to standard error.";

/// Dataframes as grids of Arrow tiles: see where the tiles are, run SQL over them.
#[derive(Debug, Parser)]
#[command(
    name = "partgrid",
    bin_name = "partgrid",
    version,
    after_help = AFTER_HELP,
    arg_required_else_help = true,
    max_term_width = 100
)]
struct Command {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Show(show::Show),
    Load(Box<load::Load>),
    Copy(Box<load::Copy>),
    Sql(Box<sql::Sql>),
    Distarray(distarray::Distarray),
    Ls(ls::Ls),
    Rm(rm::Rm),
    Rebalance(rebalance::Rebalance),
    Ps(ps::Ps),
    Serve(Box<serve::Serve>),
    Config(Box<serve::Config>),
    Token(token::Token),
}

/// Runs the command with `arguments`, the name of the program first, and returns its exit code: [`EXIT_DONE`], [`EXIT_FAILED`] or [`EXIT_USAGE`]; 130 after Ctrl-C, where it has something to tidy up.
///
/// Results go to `stdout`, messages to `stderr`. `stdout` is taken for a terminal when the standard output of the process is one. Builds its own tokio runtime,
/// so that it must not be called from within one.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> u8 {
    let mut stdout = Pipe {
        inner: stdout,
        closed: false,
    };
    let command = match parse(arguments.into_iter().collect()) {
        Ok(command) => command,
        Err(message) if message.use_stderr() => {
            say(stderr, &message.render().to_string());
            return EXIT_USAGE;
        }
        Err(asked_for) => {
            return ended(
                stdout.print(&asked_for.render().to_string()),
                &stdout,
                stderr,
            );
        }
    };
    let remote = &command.remote;
    // The grids of a server are not named by options, nor files.
    let is_of_names = |error: &Error| {
        let said = ["no grid is registered", "grids never change"];
        let hint = error.hint();
        hint.is_some_and(|hint| said.iter().any(|words| hint.contains(words)))
    };
    let here = |done: Result<()>, verb| {
        done.map_err(|error| match remote.server() {
            Some(_) if is_of_names(&error) => error,
            _ => in_options(error, verb),
        })
    };
    let done = match &command.verb {
        Verb::Show(show) => here(show.run(remote, &mut stdout), "show"),
        Verb::Load(load) => load.run(remote, &mut stdout, stderr),
        Verb::Copy(copy) => copy.run(&mut stdout, stderr),
        Verb::Sql(sql) => here(sql.run(remote, &mut stdout, stderr), "sql"),
        Verb::Ls(ls) => ls.run(remote, &mut stdout),
        Verb::Rm(rm) => rm.run(remote, &mut stdout),
        Verb::Rebalance(rebalance) => rebalance.run(remote, &mut stdout),
        Verb::Ps(ps) => ps.run(remote, &mut stdout),
        Verb::Serve(serve) => return served(serve, stderr),
        Verb::Config(config) => config.run(&mut stdout),
        Verb::Token(token) => token.run(&mut stdout, stderr),
        Verb::Distarray(distarray) => return checked(distarray, &mut stdout, stderr),
    };
    let done = done.and_then(|()| stdout.flush().map_err(|error| output::write_failed(&error)));
    ended(done, &stdout, stderr)
}

/// Reads the arguments, checks what no single argument shows, and turns the log on.
fn parse(arguments: Vec<OsString>) -> Result<Command, clap::Error> {
    let mut described = Command::command();
    let matches = described.try_get_matches_from_mut(arguments)?;
    let command = Command::from_arg_matches(&matches)?;
    let checked = command.remote.check(&described, &matches);
    checked.map_err(|(verb, message)| usage_error(Some(&verb), message))?;
    let checked = match &command.verb {
        Verb::Sql(sql) => sql.check().map_err(|message| ("sql", message)),
        Verb::Load(load) => {
            let is_far = command.remote.server().is_some();
            load.check(is_far).map_err(|message| ("load", message))
        }
        _ => Ok(()),
    };
    checked.map_err(|(verb, message)| usage_error(Some(verb), message))?;
    // A server has settings for its log.
    if !matches!(command.verb, Verb::Serve(_)) {
        let log = Log::default().start();
        log.map_err(|error| usage_error(None, error.to_string()))?;
    }
    Ok(command)
}

/// An error that shows the usage of a verb, or of the whole command.
fn usage_error(verb: Option<&str>, message: String) -> clap::Error {
    let mut command = Command::command();
    command.build();
    let kind = clap::error::ErrorKind::ValueValidation;
    match verb.and_then(|name| command.find_subcommand_mut(name)) {
        Some(verb) => verb.error(kind, message),
        None => command.error(kind, message),
    }
}

/// The exit code, after saying what went wrong.
fn ended(done: Result<()>, stdout: &Pipe<'_>, stderr: &mut dyn Write) -> u8 {
    match done {
        Ok(()) => EXIT_DONE,
        Err(_) if stdout.closed => EXIT_DONE,
        Err(error) => {
            say(stderr, &format!("error: {error}\n"));
            match is_interrupted(&error) {
                true => EXIT_INTERRUPTED,
                false => EXIT_FAILED,
            }
        }
    }
}

/// Runs `serve`, which says itself in which form it is told what went wrong.
fn served(serve: &serve::Serve, stderr: &mut dyn Write) -> u8 {
    let mut voice = Voice::new(stderr);
    match serve.run(&mut voice) {
        Ok(()) => EXIT_DONE,
        Err(error) => {
            voice.fail(&error);
            EXIT_FAILED
        }
    }
}

/// Runs `distarray`: findings have an exit code of their own, and a file that cannot be read is wrong usage.
fn checked(distarray: &distarray::Distarray, stdout: &mut Pipe<'_>, stderr: &mut dyn Write) -> u8 {
    match distarray.run(stdout) {
        Ok(code) => code,
        Err(_) if stdout.closed => EXIT_DONE,
        Err(error) => {
            say(stderr, &format!("error: {error}\n"));
            match error.kind() {
                ErrorKind::InvalidArgument | ErrorKind::InvalidData => EXIT_USAGE,
                _ => EXIT_FAILED,
            }
        }
    }
}

/// Writes a message for people. Where nobody can hear it, there is nobody to tell.
fn say(stderr: &mut dyn Write, message: &str) {
    drop(stderr.write_all(visible_lines(message).as_bytes()));
}

/// Whether a person reads the output.
fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

fn runtime(threads: Option<u16>) -> Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    let threads = threads.map_or_else(crate::query::max_threads, usize::from);
    builder.worker_threads(threads);
    builder.enable_all().build().map_err(|error| {
        Error::internal("the threads of the command did not start").with_source(error)
    })
}

/// Standard output, remembering whether its reader went away.
struct Pipe<'a> {
    inner: &'a mut dyn Write,
    closed: bool,
}

impl Pipe<'_> {
    fn print(&mut self, text: &str) -> Result<()> {
        let written = self.write_all(text.as_bytes()).and_then(|()| self.flush());
        written.map_err(|error| output::write_failed(&error))
    }

    fn noticed<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            self.closed = true;
        }
        result
    }
}

impl Write for Pipe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.inner.write(bytes);
        self.noticed(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.inner.flush();
        self.noticed(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_of_the_arguments_is_consistent() {
        Command::command().debug_assert();
    }
}
