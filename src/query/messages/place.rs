//! The place of an error in the SQL text.
//!
//! Comes in: an error of the planner and the text. Goes out: the error with the line, and a mark under what it is about. The planner says where; where it does not, the one place
//! at which the text has the wrong name is taken. Never here: what is wrong.

use datafusion::common::Span;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::error::{Error, ErrorKind};
use crate::query::error::{no_function, no_table};
use crate::query::names::{CATALOG, Known, SCHEMA};
use crate::query::rewrite::letter_case::as_written;

/// How many letters of a line are shown.
const SHOWN: usize = 100;

/// A line and a column, counted from 1, and how many letters.
#[derive(Debug, Clone, Copy)]
pub(in crate::query) struct Place {
    pub(in crate::query) line: usize,
    pub(in crate::query) column: usize,
    pub(in crate::query) length: usize,
}

/// The error with names that do not exist looked up, and its place in the text.
pub(in crate::query) fn placed(
    error: Error,
    text: &str,
    state: &SessionState,
    known: &Known,
) -> Error {
    placed_in(error, text, text, state, known)
}

/// The same of a text that was asked in other letters than it was written.
pub(in crate::query) fn placed_in(
    error: Error,
    text: &str,
    asked: &str,
    state: &SessionState,
    known: &Known,
) -> Error {
    if error.kind() != ErrorKind::Query || error.place().is_some() {
        return error;
    }
    // The text of a view is not that of the statement.
    let of_view = of_view(&error);
    let place = said(&error)
        .or_else(|| in_message(&error))
        .or_else(|| at_end(&error, asked));
    let place = place.map(|place| as_written(text, asked, place));
    let (error, wrong) = named(error, state, known);
    if of_view {
        return error;
    }
    let error = in_wrong_quotes(error, text);
    let place = place.or_else(|| found(text, wrong.as_deref()?));
    match place.and_then(|place| marked(text, place)) {
        Some(mark) => without_place(error).with_place(mark),
        None => error,
    }
}

/// An unknown table or function with the near name, and the name that is wrong.
fn named(error: Error, state: &SessionState, known: &Known) -> (Error, Option<String>) {
    let quoted = |before: &str| {
        let rest = error.message().strip_prefix(before)?;
        Some(rest.split('\'').next().unwrap_or_default().to_owned())
    };
    if let Some(name) = quoted("table '") {
        let ours = name.strip_prefix(&format!("{CATALOG}.{SCHEMA}."));
        return match ours {
            Some(name) => (no_table(name, known), Some(name.to_owned())),
            None => {
                let better = Error::new(ErrorKind::Query, format!("no table `{name}`"));
                let better = better.with_hint("tables of a session are named without a schema");
                (better, name.rsplit('.').next().map(str::to_owned))
            }
        };
    }
    if let Some(name) = quoted("Invalid function '").or_else(|| quoted("table function '")) {
        return (no_function(&name, state), Some(name));
    }
    let said = |before: &str, until: &str| {
        let rest = error.message().strip_prefix(before)?;
        rest.split(until).next().map(str::to_owned)
    };
    let called = said("no function takes these arguments: ", "(");
    let context = || error.context("column").or_else(|| error.context("table"));
    let wrong = called
        .or_else(|| said("the text '", "' is no "))
        .or_else(|| context().map(str::to_owned));
    (error, wrong)
}

/// An unknown column in double quotes that is near no column may have been meant as a text.
fn in_wrong_quotes(error: Error, text: &str) -> Error {
    let is_far = |hint: &str| hint.starts_with("the columns are ");
    let quoted = error
        .context("column")
        .filter(|name| text.contains(&format!("\"{name}\"")) && error.hint().is_some_and(is_far))
        .zip(error.hint());
    let Some((name, columns)) = quoted else {
        return error;
    };
    let hint = format!("a text is written in single quotes, '{name}'; {columns}");
    error.with_hint(hint)
}

fn source(error: &Error) -> Option<&DataFusionError> {
    std::error::Error::source(error)?.downcast_ref::<DataFusionError>()
}

fn of_view(error: &Error) -> bool {
    let mut cause = source(error);
    while let Some(current) = cause {
        match current {
            DataFusionError::Context(text, _) if text.starts_with("view ") => return true,
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
                cause = Some(inner);
            }
            _ => return false,
        }
    }
    false
}

/// Where the planner says that it is.
pub(in crate::query) fn said(error: &Error) -> Option<Place> {
    let span: Span = source(error)?.diagnostic()?.span?;
    let number = |number: u64| usize::try_from(number).ok();
    let (line, column) = (number(span.start.line)?, number(span.start.column)?);
    let end = number(span.end.column)?;
    let length = if span.end.line == span.start.line {
        end.saturating_sub(column)
    } else {
        1
    };
    Some(Place {
        line,
        column,
        length: length.max(1),
    })
}

/// Where the parser says in words that it is: `… at Line: 1, Column: 10`.
fn in_message(error: &Error) -> Option<Place> {
    let (_, rest) = error.message().rsplit_once("Line: ")?;
    let (line, rest) = rest.split_once(", Column: ")?;
    let digits = rest
        .chars()
        .take_while(char::is_ascii_digit)
        .collect::<String>();
    let (line, column) = (line.parse().ok()?, digits.parse().ok()?);
    Some(Place {
        line,
        column,
        length: 1,
    })
}

/// The error without the words of the parser that say where it is.
fn without_place(error: Error) -> Error {
    match error.message().rsplit_once(" at Line: ") {
        Some((message, _)) => error.clone().with_message(message),
        None => error,
    }
}

/// Where the text ends, if that is what the parser complains of.
fn at_end(error: &Error, text: &str) -> Option<Place> {
    let number = text.trim_end().lines().count();
    let line = text.trim_end().lines().last()?;
    let column = line.chars().count() + 1;
    error.message().ends_with("found: EOF").then_some(Place {
        line: number,
        column,
        length: 1,
    })
}

/// The only place at which the text has the name.
fn found(text: &str, name: &str) -> Option<Place> {
    let tokens = Tokenizer::new(&GenericDialect {}, text)
        .tokenize_with_location()
        .ok()?;
    let mut places = tokens.iter().filter(|token| match &token.token {
        Token::Word(word) => match word.quote_style {
            Some(_) => word.value == name,
            None => word.value.to_lowercase() == name.to_lowercase(),
        },
        Token::SingleQuotedString(text) => text == name,
        _ => false,
    });
    let token = places.next()?;
    if places.next().is_some() {
        return None;
    }
    let number = |number: u64| usize::try_from(number).ok();
    let (start, end) = (token.span.start, token.span.end);
    let length = number(end.column)?
        .saturating_sub(number(start.column)?)
        .max(1);
    Some(Place {
        line: number(start.line)?,
        column: number(start.column)?,
        length,
    })
}

/// The line of the text, and a mark under the place.
pub(super) fn marked(text: &str, place: Place) -> Option<String> {
    let line = text.lines().nth(place.line.checked_sub(1)?)?;
    let letters: Vec<char> = line
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect();
    let column = place.column.checked_sub(1)?.min(letters.len());
    // Of a long line, the part around the place.
    let from = if letters.len() > SHOWN {
        column.saturating_sub(SHOWN / 2)
    } else {
        0
    };
    let to = letters.len().min(from + SHOWN);
    let (before, after) = (
        if from > 0 { "…" } else { "" },
        if to < letters.len() { "…" } else { "" },
    );
    let shown: String = letters.get(from..to)?.iter().collect();
    let indent = " ".repeat(column - from + before.chars().count());
    let mark = "^".repeat(place.length.min((to - column).max(1)));
    let (line, column) = (place.line, place.column);
    Some(format!(
        "line {line}, column {column}:\n  {before}{shown}{after}\n  {indent}{mark}"
    ))
}
