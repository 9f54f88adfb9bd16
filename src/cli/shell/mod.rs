//! `partgrid sql` without a query: statements as they are typed, or piped in.
//!
//! Comes in: lines of a terminal or of standard input. Goes out: answers, messages, how long it took. Ctrl-C cancels the statement, not the shell. Never here: how a table looks.

mod bar;
mod complete;
mod history;
mod line;
mod split;
mod terminal;

use std::future::Future;
use std::io::{self, BufRead, IsTerminal, Write};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use futures::StreamExt;
use tokio::runtime::Runtime;

use self::bar::Bar;
use self::complete::Completer;
use self::history::History;
use self::line::{Read, read_line};
use self::split::{ends_in_comment, holds_statement, split};
use self::terminal::Terminal;
pub(super) use self::terminal::columns;

/// The statements of a text, each of which a `;` ends but the last.
pub(super) fn statements(text: &str) -> Vec<String> {
    let (mut statements, rest) = split(text);
    statements.push(rest);
    statements.retain(|statement| holds_statement(statement));
    statements
}
use super::engine::{Engine, Words};
use super::output::io_failed;
use super::table;
use super::{Pipe, say};
use crate::client::Asked;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::picture::counted;
use crate::query::QueryProgress;

const PROMPT: &str = "partgrid> ";
const MORE: &str = "     ...> ";

/// How often Ctrl-C is looked for while a statement runs.
const INTERVAL: Duration = Duration::from_millis(50);

/// How long the prompt waits for what Tab completes, and when a server is asked again that did not say it.
const WORDS_WITHIN: Duration = Duration::from_millis(500);
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// How many rows an answer shows.
const MAX_ROWS: usize = 1_000;

const COMMANDS: [&str; 12] = [
    ".columns", ".exit", ".help", ".metrics", ".quit", ".tables", ".timing", "\\?", "\\d", "\\dt",
    "\\q", "\\timing",
];

const HELP: &str = "\
statements end with `;` and may have several lines; Ctrl-C cancels, Ctrl-D leaves, Tab completes
  .tables    \\dt        tables and views
  .columns T \\d T       columns of a table; \\d alone lists the tables
  .timing    \\timing    turns on or off how long statements take
  .metrics              turns on or off what statements read, copy and spill
  .help      \\?         this
  .quit      \\q         leave
";

/// A shell over a session or a server.
pub(super) struct Shell<'a> {
    engine: &'a Engine,
    runtime: &'a Runtime,
    /// `None` where statements are piped in.
    terminal: Option<Terminal>,
    timing: bool,
    metrics: bool,
    bar: Bar,
    /// What Tab completes; `None` once a statement may have changed it.
    words: Option<Words>,
    /// Since when a server has not said it.
    without_words: Option<Instant>,
}

/// What a line asked for.
#[derive(PartialEq, Eq)]
enum Next {
    Go,
    Leave,
}

impl<'a> Shell<'a> {
    /// For a terminal, or else for statements that are piped in.
    ///
    /// # Errors
    /// When the terminal cannot be used.
    pub(super) fn try_new(engine: &'a Engine, runtime: &'a Runtime) -> Result<Self> {
        let terminal = if io::stdin().is_terminal() && io::stdout().is_terminal() {
            let opened = Terminal::try_new();
            Some(opened.map_err(|error| io_failed("the terminal cannot be used", &error))?)
        } else {
            None
        };
        Ok(Self {
            engine,
            runtime,
            terminal,
            timing: false,
            metrics: false,
            bar: Bar::default(),
            words: None,
            without_words: None,
        })
    }

    /// Runs until its input ends. Of piped statements, the first that fails ends it.
    ///
    /// # Errors
    /// Those of piped statements, and of writing.
    pub(super) fn run(&mut self, stdout: &mut Pipe<'_>, stderr: &mut dyn Write) -> Result<()> {
        match self.terminal.is_some() {
            true => self.interact(stdout, stderr),
            false => self.read_all(stdout, stderr),
        }
    }

    fn read_all(&mut self, stdout: &mut Pipe<'_>, stderr: &mut dyn Write) -> Result<()> {
        let mut text = String::new();
        for line in io::stdin().lock().lines() {
            let line =
                line.map_err(|error| io_failed("the statements could not be read", &error))?;
            if text.trim().is_empty() && line.starts_with(['.', '\\']) {
                if self.command(&line, stdout)? == Next::Leave {
                    return Ok(());
                }
                continue;
            }
            text.push_str(&line);
            text.push('\n');
            let (statements, rest) = split(&text);
            for statement in statements
                .iter()
                .filter(|statement| holds_statement(statement))
            {
                self.statement(statement, stdout, stderr)?;
            }
            text = rest;
        }
        match holds_statement(&text) {
            true => self.statement(&text, stdout, stderr),
            false => Ok(()),
        }
    }

    fn interact(&mut self, stdout: &mut Pipe<'_>, stderr: &mut dyn Write) -> Result<()> {
        let written = |error: io::Error| super::output::write_failed(&error);
        let mut history = History::open();
        stdout.print("partgrid SQL, .help for help\n")?;
        let mut text = String::new();
        loop {
            let prompt = if text.is_empty() { PROMPT } else { MORE };
            let words = self.words()?;
            let completer = Completer::new(&words, &COMMANDS);
            let Some(terminal) = self.terminal.as_mut() else {
                return Ok(());
            };
            let read = read_line(terminal, stdout, prompt, &history, &completer);
            self.words = self.without_words.is_none().then_some(words);
            let line = match read.map_err(written)? {
                Read::End => return Ok(()),
                Read::Interrupted => {
                    text.clear();
                    continue;
                }
                Read::Line(line) => line,
            };
            let line = match text.is_empty() {
                true => command_of(line),
                false => line,
            };
            if text.is_empty() && line.trim_start().starts_with(['.', '\\']) {
                history.add(line.trim());
                match self.command(line.trim(), stdout) {
                    Ok(Next::Leave) => return Ok(()),
                    Ok(Next::Go) => {}
                    Err(error) => say(stderr, &format!("error: {error}\n")),
                }
                continue;
            }
            text.push_str(&line);
            text.push('\n');
            let (statements, rest) = split(&text);
            for statement in statements
                .iter()
                .filter(|statement| holds_statement(statement))
            {
                history.add(&format!("{statement};"));
                if let Err(error) = self.statement(statement, stdout, stderr) {
                    if stdout.closed {
                        return Err(error);
                    }
                    say(stderr, &format!("error: {error}\n"));
                }
            }
            text = if holds_statement(&rest) || ends_in_comment(&rest) {
                rest
            } else {
                String::new()
            };
        }
    }

    fn command(&mut self, line: &str, stdout: &mut Pipe<'_>) -> Result<Next> {
        let line = line.trim().trim_end_matches(';');
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = argument.trim();
        match (name, argument) {
            (".quit" | ".exit" | "\\q", _) => return Ok(Next::Leave),
            (".help" | "\\?", _) => stdout.print(HELP)?,
            (".tables" | "\\dt", _) | ("\\d", "") => self.show("SHOW TABLES", stdout)?,
            ("\\d" | ".columns", table) if !table.is_empty() => {
                self.show(&format!("DESCRIBE {table}"), stdout)?;
            }
            (".timing" | "\\timing", wanted) => {
                self.timing = switched(self.timing, wanted);
                let state = if self.timing { "on" } else { "off" };
                stdout.print(&format!("timing is {state}\n"))?;
            }
            (".metrics", _) if !self.engine.is_here() => {
                let text = "a server keeps the metrics of its queries";
                return Err(Error::unsupported(text).with_hint("EXPLAIN ANALYZE shows them"));
            }
            (".metrics", wanted) => {
                self.metrics = switched(self.metrics, wanted);
                let state = if self.metrics { "on" } else { "off" };
                stdout.print(&format!("metrics are {state}\n"))?;
            }
            _ => {
                let text = format!("no command `{name}`");
                return Err(Error::invalid_argument(text).with_hint(".help lists them"));
            }
        }
        Ok(Next::Go)
    }

    fn show(&mut self, statement: &str, stdout: &mut Pipe<'_>) -> Result<()> {
        let query = self.plan(statement)?;
        self.answer(&query, stdout).map(drop)
    }

    fn statement(
        &mut self,
        text: &str,
        stdout: &mut Pipe<'_>,
        stderr: &mut dyn Write,
    ) -> Result<()> {
        let begun = Instant::now();
        let query = self.plan(text)?;
        let num_rows = self.answer(&query, stdout)?;
        let mut said = Vec::new();
        if num_rows > MAX_ROWS as u64 {
            said.push(format!(
                "{}, the first {MAX_ROWS} shown",
                counted(num_rows, "row")
            ));
        } else if self.terminal.is_some() {
            said.push(counted(num_rows, "row"));
        }
        if self.timing {
            said.push(format!("{:.3} s", begun.elapsed().as_secs_f64()));
        }
        if !said.is_empty() {
            stdout
                .flush()
                .map_err(|error| super::output::write_failed(&error))?;
            say(stderr, &format!("({})\n", said.join(", ")));
        }
        if self.metrics
            && let Some(metrics) = query.metrics()
        {
            stdout
                .flush()
                .map_err(|error| super::output::write_failed(&error))?;
            say(stderr, &format!("{metrics}\n"));
        }
        Ok(())
    }

    fn plan(&mut self, text: &str) -> Result<Asked> {
        if !text.trim_start().to_lowercase().starts_with("select") {
            self.words = None;
        }
        let engine = self.engine;
        self.bar.begin();
        self.drive(None, Box::pin(engine.sql(text)))?
    }

    /// What can be completed now. A server that does not say it at once is asked again later: it is no reason to wait with the prompt.
    fn words(&mut self) -> Result<Words> {
        if let Some(words) = self.words.take() {
            return Ok(words);
        }
        if self
            .without_words
            .is_some_and(|since| since.elapsed() < ASK_AGAIN)
        {
            return Ok(Words::default());
        }
        let engine = self.engine;
        self.bar.begin();
        let asking = async { tokio::time::timeout(WORDS_WITHIN, engine.words()).await };
        match self.drive(None, Box::pin(asking)) {
            Ok(Ok(Ok(words))) => {
                self.without_words = None;
                Ok(words)
            }
            _ => {
                self.without_words = Some(Instant::now());
                Ok(Words::default())
            }
        }
    }

    /// Writes the answer, and says how many rows it has.
    fn answer(&mut self, query: &Asked, stdout: &mut Pipe<'_>) -> Result<u64> {
        let mut stream = {
            let _within = self.runtime.enter();
            query.stream()?
        };
        let width = self.terminal.as_ref().and_then(|_| columns());
        self.bar.begin();
        let mut batches =
            std::iter::from_fn(|| self.drive(Some(query), stream.next()).transpose_batch());
        let shape = table::Shape {
            max_rows: MAX_ROWS,
            width,
        };
        table::write(stdout, &query.schema(), &mut batches, shape)
    }

    /// Waits for something, unless Ctrl-C is pressed; in a terminal, with a line that says how far the query is. On this thread: while a query holds all threads of the runtime, none of its timers goes off.
    fn drive<T>(&mut self, query: Option<&Asked>, work: impl Future<Output = T>) -> Result<T> {
        let done = self.wait(query, work);
        self.bar.clear();
        done
    }

    fn wait<T>(&mut self, query: Option<&Asked>, work: impl Future<Output = T>) -> Result<T> {
        let _within = self.runtime.enter();
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut work = pin!(work);
        let mut look = Instant::now() + INTERVAL;
        loop {
            if let Poll::Ready(done) = work.as_mut().poll(&mut context) {
                return Ok(done);
            }
            std::thread::park_timeout(INTERVAL);
            if Instant::now() < look {
                continue;
            }
            look = Instant::now() + INTERVAL;
            if self.terminal.as_mut().is_some_and(Terminal::interrupted) {
                return Err(Error::new(ErrorKind::Cancelled, "cancelled"));
            }
            if self.terminal.is_some() {
                let is_here = self.engine.is_here();
                self.bar.show(|| match query {
                    Some(query) if is_here => query.progress(),
                    _ => Some(QueryProgress::default()),
                });
            }
        }
    }
}

/// What a switch is set to; without `on` or `off`, the other way round.
fn switched(is_on: bool, wanted: &str) -> bool {
    match wanted {
        "on" => true,
        "off" => false,
        _ => !is_on,
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A batch that was waited for.
trait Waited<T> {
    fn transpose_batch(self) -> Option<Result<T>>;
}

impl<T> Waited<T> for Result<Option<Result<T>>> {
    fn transpose_batch(self) -> Option<Result<T>> {
        match self {
            Ok(next) => next,
            Err(error) => Some(Err(error)),
        }
    }
}

/// What people type who come from other shells, as the commands of this one.
fn command_of(line: String) -> String {
    match line.trim().trim_end_matches(';').trim_end() {
        "exit" | "quit" => ".quit".to_owned(),
        "help" => ".help".to_owned(),
        _ => line,
    }
}
