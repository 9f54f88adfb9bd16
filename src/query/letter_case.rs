//! Columns that differ from what was written in the case of their letters only.
//!
//! Comes in: a text, and what the engine says of a column that it does not find. Goes out: the text with the one column in quotes that the name without quotes can mean: names without quotes fold to lower case, and those of files often have others. Never here: names in quotes, which mean what they say; tables (`names.rs`).

use std::collections::BTreeSet;
use std::error::Error as _;
use std::sync::Arc;

use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, Tokenizer};

use super::place::said;
use crate::error::Error;

/// So many names of one text are looked for.
pub(super) const MOST: usize = 256;

/// The text with the column that was not found in quotes, as it is called; nothing where none or several can be meant.
pub(super) fn corrected(error: &Error, text: &str) -> Option<Arc<str>> {
    let (field, known) = not_found(error)?;
    let of_table = |column: &&Column| {
        field.relation.is_none() || column.relation.is_none() || column.relation == field.relation
    };
    let wanted = field.name.to_lowercase();
    let meant = known
        .iter()
        .filter(of_table)
        .map(|column| column.name.as_str())
        .filter(|name| name.to_lowercase() == wanted);
    let meant: BTreeSet<&str> = meant.collect();
    let (Some(name), 1) = (meant.first(), meant.len()) else {
        return None;
    };
    // What has this name already is not found for another reason.
    if **name == field.name {
        return None;
    }
    let place = said(error)?;
    let number = |number: usize| u64::try_from(number).ok();
    let from = Location::new(number(place.line)?, number(place.column)?);
    let to = Location::new(from.line, from.column + number(place.length)?);
    let mut tokens = Tokenizer::new(&GenericDialect {}, text);
    let tokens = tokens.tokenize_with_location().ok()?;
    // Behind that of a table, the last one is that of the column.
    let token = tokens.iter().rev().find(|token| {
        let is_name = matches!(&token.token, Token::Word(word)
            if word.quote_style.is_none() && word.value.to_lowercase() == wanted);
        is_name && from <= token.span.start && token.span.end <= to
    })?;
    let (start, end) = (
        byte_at(text, token.span.start)?,
        byte_at(text, token.span.end)?,
    );
    let (before, rest) = text.split_at_checked(start)?;
    let after = rest.get(end.checked_sub(start)?..)?;
    let quoted = name.replace('"', "\"\"");
    Some(format!("{before}\"{quoted}\"{after}").into())
}

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
            _ => return None,
        }
    }
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
