//! The log on standard error.
//!
//! Comes in: what `PARTGRID_LOG` or the settings of a server ask for. Goes out: lines of text or of JSON on standard error, and traces. By default nothing, of a server what its settings say. Never here: what is logged.

use std::fmt::Debug;
use std::io::{self, IsTerminal};

use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::grid::picture::visible_lines;
use crate::serve::Traces;

/// The environment variable that turns the log on.
pub const VARIABLE: &str = "PARTGRID_LOG";

/// What to log, and how.
#[derive(Debug, Default)]
pub(super) struct Log<'a> {
    /// Instead of what the variable says.
    pub(super) filter: Option<&'a str>,
    /// Where neither says anything.
    pub(super) usual: Option<&'a str>,
    /// One JSON object in a line.
    pub(super) is_json: bool,
    pub(super) traces: Option<&'a Traces>,
}

impl Log<'_> {
    /// Turns it on. Somebody who calls the command from a program of their own may have a log already: theirs stays.
    ///
    /// # Errors
    /// What is wrong with the filter.
    pub(super) fn start(&self) -> Result<(), String> {
        let lines = match self.filter()? {
            None => None,
            Some(filter) if self.is_json => {
                let lines = fmt::layer().json().with_writer(io::stderr);
                Some(lines.flatten_event(true).with_filter(filter).boxed())
            }
            Some(filter) => {
                let fields = debug_fn(write_field).delimited(" ");
                let lines = fmt::layer().fmt_fields(fields).with_writer(io::stderr);
                let lines = lines.with_ansi(io::stderr().is_terminal());
                Some(lines.with_filter(filter).boxed())
            }
        };
        // Events hold texts of errors, which may quote statements and values: they are for the log alone.
        let is_traced = filter_fn(|seen| seen.is_span() && *seen.level() <= tracing::Level::INFO);
        let traces = self
            .traces
            .map(|traces| traces.layer().with_filter(is_traced));
        if lines.is_some() || traces.is_some() {
            drop(
                tracing_subscriber::registry()
                    .with(lines)
                    .with(traces)
                    .try_init(),
            );
        }
        Ok(())
    }

    fn filter(&self) -> Result<Option<EnvFilter>, String> {
        let variable = std::env::var_os(VARIABLE).filter(|wanted| !wanted.is_empty());
        let (said, wanted) = match (self.filter, variable, self.usual) {
            (Some(wanted), _, _) => ("log.filter", wanted.to_owned()),
            (None, Some(wanted), _) => (VARIABLE, wanted.to_string_lossy().into_owned()),
            (None, None, Some(usual)) => return Ok(Some(EnvFilter::new(usual))),
            (None, None, None) => return Ok(None),
        };
        let filter = EnvFilter::try_new(&wanted).map_err(|error| {
            format!("{said} must read like `debug` or `partgrid=debug`, got {wanted:?}: {error}")
        })?;
        Ok(Some(filter))
    }
}

/// Writes a field of a line of text. Its further lines are set in, so that none of them looks like one of the log.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let text = visible_lines(&format!("{value:?}")).replace('\n', "\n    ");
    match field.name() {
        "message" => write!(writer, "{text}"),
        name => write!(writer, "{name}={text}"),
    }
}
