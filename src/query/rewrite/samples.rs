//! `FROM t TABLESAMPLE 10%`, `FROM t USING SAMPLE 100 ROWS`: some rows of a table, chosen at random each time.
//!
//! Comes in: the words of a text; a table of FROM with a sample. Goes out: the words with `TABLESAMPLE METHOD (n UNIT)`, which the parser knows, in place of all forms of it; a query in place of the table: `(SELECT * FROM t WHERE random() < 0.1)` takes each row with that
//! probability, `(SELECT * FROM t ORDER BY random() LIMIT 100)` so many rows. Never here: samples that are the same each time (REPEATABLE), which are refused.

use std::ops::Range;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, TableAlias, TableFactor, TableSample, TableSampleKind, TableSampleMethod,
    TableSampleUnit, Value,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::from_first::{Words, word};
use super::pivot::{put_from, query_of};
use super::using::folded;
use crate::error::{Error, ErrorKind, Result};

/// Writes samples as the parser knows them.
pub(in crate::query) fn in_words(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let may_be = tokens.iter().any(|token| {
        matches!(&token.token, Token::Word(word) if word.quote_style.is_none()
            && matches!(word.keyword, Keyword::SAMPLE | Keyword::TABLESAMPLE))
    });
    if !may_be {
        return tokens;
    }
    let mut written = Vec::new();
    let words = Words::of(&tokens);
    let mut place = 0;
    while place < words.len() {
        let found = said(&words, place);
        if let Some((said, text)) = found {
            place = said.end;
            written.push((said, text));
        } else {
            place += 1;
        }
    }
    let at = |place: usize| words.at(place).map_or(tokens.len(), |(at, _)| at);
    let written = written.into_iter().map(|(said, text)| {
        let end = said.end.checked_sub(1).map_or(0, |last| at(last) + 1);
        (at(said.start)..end, text)
    });
    let written: Vec<(Range<usize>, String)> = written.collect();
    drop(words);
    put(tokens, written)
}

/// Puts texts in place of some words.
fn put(mut tokens: Vec<TokenWithSpan>, written: Vec<(Range<usize>, String)>) -> Vec<TokenWithSpan> {
    for (said, text) in written.into_iter().rev() {
        let Some(span) = tokens.get(said.start).map(|token| token.span) else {
            continue;
        };
        let words = Tokenizer::new(&GenericDialect {}, &text).tokenize();
        let words = words.unwrap_or_default().into_iter();
        let words = words.map(|token| TokenWithSpan { token, span });
        tokens.splice(said, words);
    }
    tokens
}

/// The words of a sample that begins at one, and how it is written for the parser.
fn said(words: &Words<'_>, start: usize) -> Option<(Range<usize>, String)> {
    let keyword = |place: usize| words.keyword(Some(place));
    let mut place = match keyword(start) {
        Some(Keyword::TABLESAMPLE) => start + 1,
        Some(Keyword::USING) if keyword(start + 1) == Some(Keyword::SAMPLE) => {
            if !is_of_one_table(words, start) {
                return None;
            }
            start + 2
        }
        _ => return None,
    };
    let mut method = method_at(words, place);
    if method.is_some() {
        place += 1;
    }
    let is_in_brackets = words.is_token(Some(place), &Token::LParen);
    place += usize::from(is_in_brackets);
    let Some(Token::Number(number, _)) = words.at(place).map(|(_, token)| &token.token) else {
        return None;
    };
    place += 1;
    let unit = match words.at(place).map(|(_, token)| token) {
        Some(token) if token.token == Token::Mod => Some("PERCENT"),
        Some(token) if word(token) == Some(Keyword::PERCENT) => Some("PERCENT"),
        Some(token) if matches!(word(token), Some(Keyword::ROWS)) => Some("ROWS"),
        _ => None,
    };
    place += usize::from(unit.is_some());
    if is_in_brackets {
        if !words.is_token(Some(place), &Token::RParen) {
            return None;
        }
        place += 1;
    }
    // `10% (bernoulli)`.
    if method.is_none() && words.is_token(Some(place), &Token::LParen) {
        method = method_at(words, place + 1);
        if method.is_none() || !words.is_token(Some(place + 2), &Token::RParen) {
            return None;
        }
        place += 3;
    }
    let unit = unit.unwrap_or(match method {
        Some(true) => "PERCENT",
        _ => "ROWS",
    });
    let method = match unit {
        "PERCENT" => "BERNOULLI",
        _ => "ROW",
    };
    Some((
        start..place,
        format!("TABLESAMPLE {method} ({number} {unit}) "),
    ))
}

/// Whether a method takes shares of rows; none where there is none.
fn method_at(words: &Words<'_>, place: usize) -> Option<bool> {
    let Token::Word(method) = &words.at(place)?.1.token else {
        return None;
    };
    match method.value.to_ascii_lowercase().as_str() {
        "bernoulli" | "system" => Some(true),
        "reservoir" => Some(false),
        _ => None,
    }
}

/// Whether USING SAMPLE stands behind a FROM of one table.
fn is_of_one_table(words: &Words<'_>, using: usize) -> bool {
    let mut place = using;
    while let Some(before) = place.checked_sub(1) {
        place = words.opened(before).unwrap_or(before);
        if words.is_token(Some(place), &Token::Comma) {
            return false;
        }
        match words.keyword(Some(place)) {
            Some(Keyword::FROM) => return place + 1 < using,
            Some(
                Keyword::JOIN
                | Keyword::WHERE
                | Keyword::GROUP
                | Keyword::HAVING
                | Keyword::QUALIFY
                | Keyword::WINDOW
                | Keyword::SELECT,
            ) => return false,
            _ => {}
        }
    }
    false
}

/// Puts a query in place of a table with a sample.
///
/// # Errors
/// `Unsupported` for samples that can be repeated, and for parts of files; `Query` for a number that is none.
pub(super) fn as_query(factor: &mut TableFactor) -> Result<()> {
    let (sample, alias) = match factor {
        TableFactor::Table {
            sample: sample @ Some(_),
            alias,
            name,
            ..
        } => {
            let name = name.0.last().and_then(|name| name.as_ident().cloned());
            (sample.take(), alias.clone().or_else(|| name.map(alias_of)))
        }
        TableFactor::Derived {
            sample: sample @ Some(_),
            alias,
            ..
        } => (sample.take(), alias.clone()),
        _ => return Ok(()),
    };
    let Some(TableSampleKind::BeforeTableAlias(sample) | TableSampleKind::AfterTableAlias(sample)) =
        sample
    else {
        return Ok(());
    };
    let rest = chosen(&sample)?;
    let mut query = query_of(&format!("(SELECT * FROM t {rest})"))?;
    put_from(&mut query.body, vec![super::pivot::alone(factor.clone())]);
    *factor = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(query),
        alias,
        sample: None,
    };
    Ok(())
}

fn alias_of(name: Ident) -> TableAlias {
    TableAlias {
        explicit: true,
        name: Ident::with_quote('"', folded(&name)),
        columns: Vec::new(),
        at: None,
    }
}

/// Which rows are taken.
fn chosen(sample: &TableSample) -> Result<String> {
    let refused = |what: &str| {
        let text = format!("a sample takes a share of the rows or a number of them, got {what}");
        Error::unsupported(text).with_hint("TABLESAMPLE 10%, or TABLESAMPLE (100 ROWS)")
    };
    if sample.seed.is_some() {
        let text = "a sample is another one each time, REPEATABLE is not supported";
        return Err(Error::unsupported(text)
            .with_hint("CREATE TABLE … AS keeps a sample; a condition on a hash of a key is the same each time"));
    }
    let Some(quantity) = sample.quantity.as_ref().filter(|_| sample.bucket.is_none()) else {
        return Err(refused("buckets"));
    };
    let number = match &quantity.value {
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => number,
            other => return Err(refused(&other.to_string())),
        },
        other => return Err(refused(&other.to_string())),
    };
    let of_share = match quantity.unit {
        Some(TableSampleUnit::Percent) => true,
        Some(TableSampleUnit::Rows) => false,
        None => !matches!(sample.name, None | Some(TableSampleMethod::Row)),
    };
    if of_share {
        let share = number.parse::<f64>().ok();
        let share = share.filter(|share| (0.0..=100.0).contains(share));
        let share = share.ok_or_else(|| {
            let text = format!("a sample takes from 0 to 100 percent of the rows, got {number}");
            Error::new(ErrorKind::Query, text)
        })?;
        return Ok(format!("WHERE random() < {}", share / 100.0));
    }
    match number.parse::<u64>() {
        Ok(rows) => Ok(format!("ORDER BY random() LIMIT {rows}")),
        Err(_) => Err(refused(number)),
    }
}
