//! Columns that differ from what was written in the case of their letters only.
//!
//! Comes in: a text, and what the engine says of a column that it does not find. Goes out: the text with the one column in quotes that the name without quotes can mean: names without quotes fold to lower case, and those of files often have others. Never here: names in quotes, which mean what they say; tables (`names.rs`); fields of structs.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::sync::Arc;

use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::error::Error;
use crate::query::messages::place::{Place, said};
use crate::query::names::{Known, Table};

/// So many names of one text are looked for.
pub(in crate::query) const MOST: usize = 100;

/// Where a name is corrected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::query) enum Where {
    /// Wherever the text has it, if nothing else in it can be called so: most texts mean one column by one name.
    Everywhere,
    /// In the one place that the engine speaks of.
    There,
}

/// The text with the column that was not found in quotes, as it is called; nothing where none or several can be meant.
pub(in crate::query) fn corrected(
    error: &Error,
    text: &str,
    known: &Known,
    place: Where,
) -> Option<Arc<str>> {
    let tokens = tokens_of(text)?;
    let meant = Meant::of(error, || named_around(&tokens, known))?;
    if place == Where::Everywhere && !meant.is_alone(&tokens, known) {
        return None;
    }
    let there = said(error).and_then(bounds);
    let places: Vec<usize> = (0..tokens.len())
        .filter(|number| meant.is_written_at(&tokens, *number))
        .filter(|number| match (place, there, tokens.get(*number)) {
            (Where::Everywhere, ..) => true,
            (Where::There, Some((from, to)), Some(token)) => {
                from <= token.span.start && token.span.end <= to
            }
            _ => false,
        })
        .collect();
    if places.is_empty() {
        return None;
    }
    let quoted = format!("\"{}\"", meant.name.replace('"', "\"\""));
    let mut corrected = String::with_capacity(text.len() + 2 * places.len());
    let mut from = 0;
    for token in places.into_iter().filter_map(|number| tokens.get(number)) {
        let (start, end) = (
            byte_at(text, token.span.start)?,
            byte_at(text, token.span.end)?,
        );
        corrected.push_str(text.get(from..start)?);
        corrected.push_str(&quoted);
        from = end;
    }
    corrected.push_str(text.get(from..)?);
    Some(corrected.into())
}

/// The place in the text as it was written of one in the text that was asked, which has other letters in some of the same words.
pub(in crate::query) fn as_written(written: &str, asked: &str, place: Place) -> Place {
    let found = || {
        let (before, after) = (tokens_of(asked)?, tokens_of(written)?);
        let (from, to) = bounds(place)?;
        let first = before.iter().position(|token| token.span.start >= from)?;
        let last = before.iter().rposition(|token| token.span.end <= to)?;
        let (start, end) = (after.get(first)?.span.start, after.get(last)?.span.end);
        let number = |number: u64| usize::try_from(number).ok();
        let (column, until) = (number(start.column)?, number(end.column)?);
        Some(Place {
            line: number(start.line)?,
            column,
            length: match start.line == end.line {
                true => until.saturating_sub(column).max(1),
                false => 1,
            },
        })
    };
    match written == asked {
        true => place,
        false => found().unwrap_or(place),
    }
}

/// A column that a name without quotes stands for.
struct Meant {
    /// What was written, in lower case.
    wanted: String,
    /// The table before it, in lower case.
    table: Option<String>,
    /// What it is called.
    name: String,
}

impl Meant {
    /// Of an error about a column; `around` are names that the statement may mean beside those that the engine speaks of.
    fn of(error: &Error, around: impl FnOnce() -> BTreeSet<String>) -> Option<Self> {
        let Some((field, known)) = not_found(error) else {
            return Self::of_hint(error);
        };
        let of_table = |column: &&Column| {
            field.relation.is_none()
                || column.relation.is_none()
                || column.relation == field.relation
        };
        let name_of = |column: &Column| column.name.clone();
        let table = field.relation.as_ref().map(|table| table.table());
        let meant = |(wanted, name), table: Option<&str>| Self {
            wanted,
            table: table.map(str::to_lowercase),
            name,
        };
        let of_table = known.iter().filter(of_table).map(name_of).collect();
        if let Some(column) = one_of(&of_table, &field.name) {
            return Some(meant(column, table));
        }
        // `S.field`, of a column `S` that is a struct.
        let all = known.iter().map(name_of).collect();
        if let Some(column) = table.and_then(|table| one_of(&all, table)) {
            return Some(meant(column, None));
        }
        // Of a query around this one.
        one_of(&around(), &field.name).map(|column| meant(column, table))
    }

    /// Of what the planner itself does not find, as in EXCLUDE.
    fn of_hint(error: &Error) -> Option<Self> {
        let (_, quoted) = error.hint()?.split_once(FOLDED)?;
        let name = quoted.strip_prefix('"')?.strip_suffix('"')?;
        Some(Self {
            wanted: error.context("column")?.to_lowercase(),
            table: None,
            name: name.to_owned(),
        })
    }

    /// Whether nothing but the column can have the name as it was written: no column of another table, none that the text makes, and no view, whose columns nobody knows here.
    fn is_alone(&self, tokens: &[TokenWithSpan], known: &Known) -> bool {
        if named_around(tokens, known).contains(&self.wanted) {
            return false;
        }
        let mut words = tokens.iter().filter_map(|token| match &token.token {
            Token::Whitespace(_) => None,
            Token::Word(word) => Some(Some(word)),
            _ => Some(None),
        });
        let mut is_behind_as = false;
        words.all(|word| {
            let Some(word) = word else {
                is_behind_as = false;
                return true;
            };
            let is_plain = word.quote_style.is_none();
            let is_made = is_behind_as && is_plain && word.value.to_lowercase() == self.wanted;
            let is_view = matches!(known.table(&word.value), Some((_, Table::View(_))));
            is_behind_as = word.keyword == Keyword::AS;
            !is_made && !is_view
        })
    }

    /// Whether a token is this name: neither that of a function, nor one that is given.
    fn is_written_at(&self, tokens: &[TokenWithSpan], number: usize) -> bool {
        let Some(Token::Word(word)) = tokens.get(number).map(|token| &token.token) else {
            return false;
        };
        if word.quote_style.is_some() || word.value.to_lowercase() != self.wanted {
            return false;
        }
        let (before, after) = tokens.split_at(number);
        let says = |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_));
        let mut before = before.iter().rev().filter(says);
        let mut after = after.iter().skip(1).filter(says);
        if after
            .next()
            .is_some_and(|token| token.token == Token::LParen)
        {
            return false;
        }
        match (before.next().map(|token| &token.token), &self.table) {
            (Some(Token::Period), Some(table)) => {
                let named = before.next().map(|token| &token.token);
                matches!(named, Some(Token::Word(word)) if word.value.to_lowercase() == *table)
            }
            (Some(Token::Period), None) => false,
            (Some(Token::Word(word)), _) => word.keyword != Keyword::AS,
            _ => true,
        }
    }
}

/// What was written, in lower case, and the one known name that it can mean. What has this name already is not found for another reason.
fn one_of(known: &BTreeSet<String>, written: &str) -> Option<(String, String)> {
    let wanted = written.to_lowercase();
    let mut meant = known.iter().filter(|name| name.to_lowercase() == wanted);
    let (name, None) = (meant.next()?, meant.next()) else {
        return None;
    };
    (*name != written).then(|| (wanted, name.clone()))
}

/// What stands before the near name in a hint.
pub(in crate::query) const FOLDED: &str = "names without quotes fold to lower case, write ";

/// The column that the engine does not find, and those that there are.
fn not_found(error: &Error) -> Option<(&Column, &[Column])> {
    let mut cause = error.source()?.downcast_ref::<DataFusionError>()?;
    loop {
        match cause {
            DataFusionError::SchemaError(found, _) => {
                return match found.as_ref() {
                    SchemaError::FieldNotFound {
                        field,
                        valid_fields,
                    } => Some((field, valid_fields)),
                    _ => None,
                };
            }
            // The text of a view is not that of the statement.
            DataFusionError::Context(text, _) if text.starts_with("view ") => return None,
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
                cause = inner;
            }
            DataFusionError::Collection(errors) => cause = errors.first()?,
            _ => return None,
        }
    }
}

/// The columns of all tables that a text names, and all that it has in quotes.
fn named_around(tokens: &[TokenWithSpan], known: &Known) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for token in tokens {
        let Token::Word(word) = &token.token else {
            continue;
        };
        if word.quote_style.is_some() {
            names.insert(word.value.clone());
        }
        if let Some((_, Table::Grid(table))) = known.table(&word.value) {
            let fields = table.grid().schema().fields().iter();
            names.extend(fields.map(|field| field.name().clone()));
        }
    }
    names
}

fn tokens_of(text: &str) -> Option<Vec<TokenWithSpan>> {
    let mut tokens = Tokenizer::new(&GenericDialect {}, text);
    tokens.tokenize_with_location().ok()
}

fn bounds(place: Place) -> Option<(Location, Location)> {
    let number = |number: usize| u64::try_from(number).ok();
    let from = Location::new(number(place.line)?, number(place.column)?);
    let to = Location::new(from.line, from.column + number(place.length)?);
    Some((from, to))
}

/// Where a line and a column, counted from 1 in letters, begin in the text.
fn byte_at(text: &str, place: Location) -> Option<usize> {
    let line = usize::try_from(place.line.checked_sub(1)?).ok()?;
    let column = usize::try_from(place.column.checked_sub(1)?).ok()?;
    let begin: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = text.get(begin..)?;
    let letters = rest.char_indices().map(|(byte, _)| byte);
    let byte = letters.chain([rest.len()]).nth(column)?;
    Some(begin + byte)
}
