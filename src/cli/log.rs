//! The log on standard error.
//!
//! Comes in: what `PARTGRID_LOG` or the settings of a server ask for. Goes out: lines of text or of JSON on standard error, and traces. By default nothing, of a server what its settings say. Never here: what is logged.

use std::fmt::Debug;
use std::io::{self, IsTerminal};

use tracing::field::Field;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::error::{Error, Result};
use crate::grid::picture::visible_lines;
use crate::serve::Traces;

/// The environment variable that turns the log on.
pub const VARIABLE: &str = "PARTGRID_LOG";

/// What the parts of this crate are called in a filter.
const OWN: &str = "partgrid";

/// How much of a part is logged.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

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
    /// As [`read_filter`].
    pub(super) fn start(&self) -> Result<()> {
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

    fn filter(&self) -> Result<Option<EnvFilter>> {
        let variable = std::env::var_os(VARIABLE).filter(|wanted| !wanted.is_empty());
        let (said, wanted) = match (self.filter, variable, self.usual) {
            (Some(wanted), _, _) => ("log.filter", wanted.to_owned()),
            (None, Some(wanted), _) => (VARIABLE, wanted.to_string_lossy().into_owned()),
            (None, None, Some(usual)) => return Ok(Some(EnvFilter::new(usual))),
            (None, None, None) => return Ok(None),
        };
        read_filter(said, &wanted).map(Some)
    }
}

/// The filter that was `said` somewhere.
///
/// # Errors
/// `InvalidArgument` for what is none, and for a word that is no level: it would be taken for the name of a part, of which nothing is logged.
pub(super) fn read_filter(said: &str, wanted: &str) -> Result<EnvFilter> {
    let wrong = |got: &str| {
        Error::invalid_argument(format!(
            "{said} must read like `debug` or `partgrid=debug`, got {got}"
        ))
    };
    let directives: Vec<&str> = wanted.split(',').map(str::trim).collect();
    let mut remedies = directives
        .iter()
        .filter_map(|directive| Some((directive, instead_of(directive)?)));
    if let Some((directive, remedy)) = remedies.next() {
        let got = match directives.as_slice() {
            [_] => format!("{wanted:?}"),
            _ => format!("{directive:?} in {wanted:?}"),
        };
        return Err(wrong(&got).with_hint(remedy));
    }
    EnvFilter::try_new(directives.join(",")).map_err(|error| wrong(&format!("{wanted:?}: {error}")))
}

/// What to write in place of a part of a filter that would be taken for something else; `None` for those that are right, and those that are refused when they are read.
fn instead_of(directive: &str) -> Option<String> {
    let meant = |text: &str| Some(format!("did you mean `{text}`?"));
    let levels = || LEVELS.join(", ");
    let (target, level) = match directive.rsplit_once('=') {
        Some((target, level)) => (target, Some(level)),
        None => (directive, None),
    };
    let name = target.split([':', '[']).next().unwrap_or(target);
    if name != OWN && strsim::damerau_levenshtein(name, OWN) <= 2 {
        return meant(&directive.replacen(name, OWN, 1));
    }
    let is_level = |text: &str| !text.is_empty() && text.parse::<LevelFilter>().is_ok();
    match level {
        None if directive.is_empty() => Some(format!(
            "the levels are {}; between two commas stands something",
            levels()
        )),
        None if is_level(target) || target == OWN || target.contains([':', '[']) => None,
        None => match near_level(target) {
            Some(level) => meant(level),
            None => Some(format!(
                "the levels are {}; `{target}=debug` is what a library of the name {target} logs",
                levels()
            )),
        },
        Some("") => Some(format!(
            "behind = stands a level, one of {}: `{target}=debug`",
            levels()
        )),
        Some(level) if is_level(level) => None,
        Some(level) => meant(&format!("{target}={}", near_level(level)?)),
    }
}

/// The level that a wrong word looks like.
fn near_level(word: &str) -> Option<&'static str> {
    let word = word.to_lowercase();
    let begins = |level: &&str| word.starts_with(*level) || level.starts_with(word.as_str());
    if let Some(level) = LEVELS.into_iter().find(begins) {
        return Some(level);
    }
    let distances = LEVELS.map(|level| (strsim::damerau_levenshtein(level, word.as_str()), level));
    let (distance, level) = distances.into_iter().min()?;
    (distance <= (word.len() / 3).max(1)).then_some(level)
}

/// Writes a field of a line of text. Its further lines are set in, so that none of them looks like one of the log.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let text = visible_lines(&format!("{value:?}")).replace('\n', "\n    ");
    match field.name() {
        "message" => write!(writer, "{text}"),
        name => write!(writer, "{name}={text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::read_filter;

    #[test]
    fn a_word_that_is_no_level_is_not_taken_for_a_part() {
        for (wrong, hint) in [
            ("inof", "did you mean `info`?"),
            ("warning", "did you mean `warn`?"),
            ("info,partgird=debug", "did you mean `partgrid=debug`?"),
            ("partgrid=deubg", "did you mean `partgrid=debug`?"),
            ("h2", "`h2=debug`"),
            (",,", "the levels are error, warn"),
            ("info,", "the levels are error, warn"),
            ("bogus=", "`bogus=debug`"),
        ] {
            let error = read_filter("log.filter", wrong).unwrap_err();
            let found = error.hint().unwrap_or_default();
            assert!(found.contains(hint), "{wrong}: {error}");
        }
        assert!(read_filter("log.filter", "a=b=c").is_err());
    }

    #[test]
    fn levels_parts_and_other_libraries_are_filters() {
        for right in [
            "info",
            "OFF",
            "3",
            "partgrid",
            "partgrid::serve",
            "warn, partgrid::serve=debug",
            "h2=trace",
            "hyper::proto",
            "partgrid[request]=debug",
            "[request]=info",
        ] {
            assert!(read_filter("log.filter", right).is_ok(), "{right}");
        }
    }
}
