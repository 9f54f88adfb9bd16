//! `partgrid sql`: one query over files, or a shell.
//!
//! Comes in: a query and the files behind its tables. Goes out: the result, in one of the formats. Never here: how a format is written.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use clap::Args;
use futures::StreamExt;
use tokio::runtime::Runtime;

use super::engine::Engine;
use super::format::{
    Batches, Format, write_arrow, write_csv, write_feather, write_json, write_parquet_file,
};
use super::grid_argument::GridArgument;
use super::interrupt::{Interrupt, interrupted};
use super::output::{Output, io_failed};
use super::remote::Remote;
use super::shell::{Shell, columns, statements};
use super::{Pipe, grid_argument, is_terminal, runtime, say, table};
use crate::client::{Asked, Client};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::picture::counted;
use crate::load::{LoadOptions, load};
use crate::memory::parse_size;
use crate::query::{MAX_SQL_BYTES, Session, SessionOptions};

/// How many rows a table shows without `--all`.
const MAX_TABLE_ROWS: usize = 1_000;

/// Run SQL over files: statements, or without one a shell
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  partgrid sql --grid t=flights.parquet
  partgrid sql 'SELECT count(*) FROM t' --grid t=flights.parquet
  partgrid sql 'SELECT * FROM a JOIN b USING (id)' --grid a=a.parquet --grid b='b/*.parquet' \\
      --output joined.parquet
  partgrid sql -f query.sql --grid t=t.parquet --format csv | head
  echo 'SELECT 1 AS one' | partgrid sql -
  partgrid --server grpc://localhost:8815 sql 'SELECT count(*) FROM flights'

Without a query, statements are read from the terminal, with history, completion (Tab), .help, \\d
and .timing, or from a pipe; each ends with a semicolon. Ctrl-C cancels a statement.
Without --format, the extension of --output decides: .csv, .json .jsonl .ndjson (json), .arrows
(arrow), .arrow .feather (feather), .parquet; any other is refused. No --output gives a table.
A file under --output appears only when the query is done; a failed query leaves nothing. A device,
a named pipe and /dev/stdout are written to as they are.")]
pub(super) struct Sql {
    /// The query, or several, each ended by `;`; `-` reads from standard input
    #[arg(conflicts_with = "file")]
    query: Option<String>,
    /// Read the query from a file; `-` reads it from standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// A table and its files (file, folder or pattern); once for each table. As in SQL, the name
    /// counts in lower case unless it is in double quotes: '"My table"=PATH'
    #[arg(long = "grid", value_name = "NAME=PATH", value_parser = grid_argument::parse)]
    grids: Vec<GridArgument>,
    /// How to write the result [default: by the extension of --output, else table]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write to a file, in place of one that exists; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Show all rows in a table, not 1,000 at most; the whole result is kept in memory then
    #[arg(long)]
    all: bool,
    /// On how many threads to run, at most 1024 [default: PARTGRID_MAX_THREADS, or the number of
    /// cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// What sorts, joins and aggregates may use before they spill, for instance 512MB or 4GiB
    /// [default: 80 % of the machine or control group]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory_limit: Option<usize>,
    /// Where queries make their temporary files [default: the folder of the system]
    #[arg(long, value_name = "FOLDER")]
    spill_to: Option<PathBuf>,
    /// What these files may have together, for instance 20GB [default: 100GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    spill_limit: Option<usize>,
    /// How long a statement may take, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    timeout: Option<Duration>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok();
    let duration = number.and_then(|number| Duration::try_from_secs_f64(number).ok());
    let duration = duration.filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| format!("a timeout must be seconds, more than 0, got {text:?}"))
}

impl Sql {
    /// What is wrong with the arguments together.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut seen = std::collections::HashSet::new();
        if let Some(twice) = self.grids.iter().find(|grid| !seen.insert(&grid.name)) {
            return Err(format!(
                "the table name {:?} is given twice with --grid",
                twice.name
            ));
        }
        if let Some(path) = self.output()
            && self.chosen_format().is_none()
        {
            return Err(format!(
                "the extension of --output says no format: it must be one of {}, got {path:?}; or say --format",
                Format::EXTENSIONS
            ));
        }
        let format = self.format();
        if format.is_binary() && self.output().is_none() && is_terminal() {
            return Err(format!(
                "{format:?} is not for terminals: name a file with --output, or send the output into a pipe or a file"
            ));
        }
        let shell = self.query.is_none() && self.file.is_none();
        if shell && (self.output.is_some() || self.format.is_some() || self.all) {
            return Err("--output, --format and --all go with a query; `-` in place of it reads statements from standard input, as in `partgrid sql - --format csv`".to_owned());
        }
        if self.all && format != Format::Table {
            return Err(
                "--all goes with a table only; other formats always hold all rows".to_owned(),
            );
        }
        Ok(())
    }

    pub(super) fn run(
        &self,
        remote: &Remote,
        stdout: &mut Pipe<'_>,
        stderr: &mut dyn Write,
    ) -> Result<()> {
        let text = self.text()?;
        let runtime = runtime(self.threads)?;
        let engine = match remote.server() {
            Some(uri) => runtime.block_on(self.server(uri, remote)),
            None => self.session(&runtime),
        };
        let done = engine.and_then(|engine| match &text {
            None => Shell::try_new(&engine, &runtime)?.run(stdout, stderr),
            Some(text) => self.answers((&runtime, &engine), text, stdout, stderr),
        });
        // Whatever still reads ahead is not waited for.
        runtime.shutdown_background();
        done
    }

    /// The answers of the statements of a text, one after the other.
    fn answers(
        &self,
        (runtime, engine): (&Runtime, &Engine),
        text: &str,
        stdout: &mut Pipe<'_>,
        stderr: &mut dyn Write,
    ) -> Result<()> {
        let statements = statements(text);
        let count = statements.len();
        if count > 1 && (self.output().is_some() || self.format().is_binary()) {
            let text = format!("a file holds the answer of one statement, got {count} statements");
            return Err(Error::invalid_argument(text)
                .with_hint("run each for itself; --format csv, json or table without --output writes one answer after the other"));
        }
        if count < 2 {
            // Places in what is said of it are those of the whole text.
            let query = planned(runtime, engine, text)?;
            return self.give(runtime, &query, stdout, stderr);
        }
        for statement in &statements {
            let query = planned(runtime, engine, statement)?;
            self.give(runtime, &query, stdout, stderr)?;
        }
        Ok(())
    }

    /// The file that the answer goes to; `-` is standard output.
    fn output(&self) -> Option<&PathBuf> {
        self.output.as_ref().filter(|path| path.as_os_str() != "-")
    }

    /// A server, with the bounds of these arguments.
    async fn server(&self, uri: &str, remote: &Remote) -> Result<Engine> {
        let mut options = remote.options()?;
        if let Some(timeout) = self.timeout {
            options = options.with_timeout(timeout);
        }
        if let Some(bytes) = self.memory_limit {
            options = options.with_memory_limit_bytes(bytes as u64);
        }
        let client = Client::connect(uri, &options).await?;
        Ok(Engine::There(Box::new(client)))
    }

    /// A session of this process, over the files of these arguments.
    fn session(&self, runtime: &Runtime) -> Result<Engine> {
        let session = Session::try_new(&self.session_options())?;
        for GridArgument { name, path } in &self.grids {
            let sources = [path.clone()];
            let grid = runtime.block_on(Box::pin(load(&sources, &LoadOptions::default())))?;
            tracing::debug!(%name, %path, grid = ?grid, "loaded");
            session.register(name, Arc::new(grid))?;
        }
        Ok(Engine::Here(Box::new(session)))
    }

    /// Writes the answer where it is to go.
    fn give(
        &self,
        runtime: &Runtime,
        query: &Asked,
        stdout: &mut Pipe<'_>,
        stderr: &mut dyn Write,
    ) -> Result<()> {
        let mut answer = Answer {
            runtime,
            query,
            interrupt: None,
        };
        match self.output() {
            Some(path) => {
                let output = Output::of(path)?;
                if output.is_file() {
                    // What is written so far goes with Ctrl-C. Into a pipe nothing may go for hours, and nothing stays: there it ends the process.
                    answer.interrupt = Some(Interrupt::hear()?);
                }
                output.write(|file| self.write(&answer, file, stderr))
            }
            None => self.write(&answer, stdout, stderr),
        }
    }

    fn write(
        &self,
        answer: &Answer<'_>,
        sink: &mut dyn Write,
        stderr: &mut dyn Write,
    ) -> Result<()> {
        let mut batches = answer.batches()?;
        // A query that fails at once fails before anything is written.
        let first = batches.next().transpose()?;
        let mut batches = first.map(Ok).into_iter().chain(batches);
        let batches: Batches<'_> = &mut batches;
        let schema = answer.query.schema();
        match self.format() {
            Format::Csv => write_csv(sink, &schema, batches),
            Format::Json => write_json(sink, &schema, batches),
            Format::Arrow => write_arrow(sink, &schema, batches),
            Format::Feather => write_feather(sink, &schema, batches),
            Format::Parquet => write_parquet_file(sink, &schema, batches),
            Format::Table => {
                let max_rows = if self.all { usize::MAX } else { MAX_TABLE_ROWS };
                let screen = self.output().is_none() && is_terminal();
                let width = if screen { columns() } else { None };
                let num_rows =
                    table::write(sink, &schema, batches, table::Shape { max_rows, width })?;
                let left_out = num_rows.saturating_sub(max_rows as u64);
                if left_out > 0 {
                    let left_out = counted(left_out, "row");
                    say(stderr, &format!("{left_out} left out; --all shows them\n"));
                }
                Ok(())
            }
        }
    }

    fn format(&self) -> Format {
        self.chosen_format().unwrap_or(Format::Table)
    }

    /// What `--format` says, or else the extension of `--output`.
    fn chosen_format(&self) -> Option<Format> {
        let extension = || self.output.as_ref()?.extension()?.to_str();
        self.format.or_else(|| Format::of_extension(extension()?))
    }

    fn session_options(&self) -> SessionOptions {
        let mut options = SessionOptions::default();
        if let Some(threads) = self.threads {
            options = options.with_threads(usize::from(threads));
        }
        if let Some(bytes) = self.memory_limit {
            options = options.with_memory_limit_bytes(bytes);
        }
        if let Some(folder) = &self.spill_to {
            options = options.with_spill_to(folder);
        }
        if let Some(bytes) = self.spill_limit {
            options = options.with_spill_limit_bytes(bytes as u64);
        }
        if let Some(timeout) = self.timeout {
            options = options.with_timeout(timeout);
        }
        options
    }

    /// The text of the query; `None` for a shell.
    fn text(&self) -> Result<Option<String>> {
        let text = match (&self.query, &self.file) {
            (None, None) => return Ok(None),
            (Some(query), _) if query != "-" => Ok(query.clone()),
            (_, Some(file)) if file != Path::new("-") => {
                let name = file.display().to_string();
                let opened = File::open(file).map_err(|error| {
                    let error = io_failed("the query could not be read", &error);
                    error.with_file(&name).with_start_of(&name)
                })?;
                read_query(opened, &name)
            }
            _ => read_query(std::io::stdin(), "standard input"),
        };
        text.map(Some)
    }
}

/// A query whose batches are asked for one after the other, until Ctrl-C where that is heard.
struct Answer<'a> {
    runtime: &'a Runtime,
    query: &'a Asked,
    interrupt: Option<Interrupt>,
}

impl Answer<'_> {
    fn batches(&self) -> Result<impl Iterator<Item = Result<RecordBatch>>> {
        let mut stream = {
            let _within = self.runtime.enter();
            self.query.stream()?
        };
        Ok(std::iter::from_fn(move || {
            self.runtime.block_on(async {
                let Some(interrupt) = &self.interrupt else {
                    return stream.next().await;
                };
                tokio::select! {
                    () = interrupt.pressed() => Some(Err(interrupted())),
                    batch = stream.next() => batch,
                }
            })
        }))
    }
}

fn planned(runtime: &Runtime, engine: &Engine, text: &str) -> Result<Asked> {
    let query = runtime.block_on(Box::pin(engine.sql(text)))?;
    if let Asked::Here(query) = &query {
        tracing::debug!(plan = %query.explain(), "planned");
    }
    Ok(query)
}

/// Reads a query, and stops where it is too long to be run.
fn read_query(source: impl Read, name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    let most = MAX_SQL_BYTES as u64 + 1;
    let read = source.take(most).read_to_end(&mut bytes);
    read.map_err(|error| io_failed("the query could not be read", &error).with_file(name))?;
    if bytes.len() > MAX_SQL_BYTES {
        let message = format!("a SQL text may have {MAX_SQL_BYTES} bytes, this one has more");
        return Err(Error::new(ErrorKind::ResourcesExhausted, message).with_file(name));
    }
    String::from_utf8(bytes).map_err(|error| {
        Error::invalid_data("a SQL text must be UTF-8")
            .with_file(name)
            .with_source(error)
    })
}
