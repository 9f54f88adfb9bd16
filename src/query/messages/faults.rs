//! The place in the SQL text of an error that came while a query ran.
//!
//! Comes in: the error, the text, the plan. Goes out: the error with its place, where only one place of the text can be meant: the only division of a text, the only operator of its kind,
//! the only cast of a text, of the column that the plan casts. Never here: guesses; texts that name a view, whose own text is not shown.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
#[cfg(feature = "distributed")]
use datafusion::error::DataFusionError;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::place::{Place, marked};
use crate::error::{Error, ErrorKind};
#[cfg(feature = "distributed")]
use crate::query::error::kind_within;
use crate::query::names::{Known, Table};

/// Arrow multiplies by these when it casts times, whatever the text says.
const TIME_FACTORS: [&str; 4] = ["1000", "1000000", "1000000000", "86400000"];

/// The text of a statement, if all of it is what the user wrote now: none that names a view.
pub(in crate::query) fn own_text(text: &Arc<str>, known: &Known) -> Option<Arc<str>> {
    let views = known.tables.iter();
    let views = views.filter(|(_, table)| matches!(table, Table::View(_)));
    let views: Vec<&String> = views.map(|(name, _)| name).collect();
    if views.is_empty() {
        return Some(Arc::clone(text));
    }
    let tokens = tokens(text)?;
    let is_view = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) => views
            .iter()
            .any(|name| name.eq_ignore_ascii_case(&word.value)),
        _ => false,
    };
    (!tokens.iter().any(is_view)).then(|| Arc::clone(text))
}

/// The error with its place, if there is only one that can be meant.
pub(in crate::query) fn placed(error: Error, text: &str, plan: &Arc<dyn ExecutionPlan>) -> Error {
    if error.kind() != ErrorKind::Query || error.place().is_some() {
        return error;
    }
    let place = place(&error, text, plan);
    match place.and_then(|place| marked(text, place)) {
        Some(mark) => error.with_place(mark),
        None => error,
    }
}

fn place(error: &Error, text: &str, plan: &Arc<dyn ExecutionPlan>) -> Option<Place> {
    let message = error.message();
    let tokens = tokens(text)?;
    if message.starts_with("divide by zero") {
        return only(&tokens, |token| matches!(token, Token::Div | Token::Mod));
    }
    if let Some(rest) = message.strip_prefix("the value of ") {
        let (operation, _) = rest.split_once(" has no room in its type")?;
        let mut words = operation.split(' ');
        let (_, operator, right) = (words.next()?, words.next()?, words.next()?);
        return match operator {
            "+" => only(&tokens, |token| *token == Token::Plus),
            "-" => only(&tokens, |token| *token == Token::Minus),
            "*" if !TIME_FACTORS.contains(&right) => only(&tokens, |token| *token == Token::Mul),
            _ => None,
        };
    }
    let kind = cast_kind(message)?;
    let column = match error.context("column") {
        Some(column) => column.to_owned(),
        None => cast_column(plan, kind)?,
    };
    cast_of(&tokens, &column)
}

/// The type that a text was cast to, of an error that says that it is none.
fn cast_kind(message: &str) -> Option<&str> {
    let (_, kind) = message
        .strip_prefix("the text '")?
        .rsplit_once("' is no ")?;
    Some(kind)
}

/// The error of a plan that others run parts of, which nobody sees in the node that stands for it: a cast names its column, by which its place is found.
#[cfg(feature = "distributed")]
pub(crate) fn of_column(error: DataFusionError, plan: &Arc<dyn ExecutionPlan>) -> DataFusionError {
    if kind_within(&error) != ErrorKind::Query {
        return error;
    }
    let error = Error::from(error);
    let column = cast_kind(error.message()).and_then(|kind| cast_column(plan, kind));
    DataFusionError::from(match column {
        Some(column) => error.with_column(column),
        None => error,
    })
}

fn tokens(text: &str) -> Option<Vec<TokenWithSpan>> {
    let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location();
    let mut tokens = tokens.ok()?;
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    Some(tokens)
}

/// The only token of a kind.
fn only(tokens: &[TokenWithSpan], is_it: impl Fn(&Token) -> bool) -> Option<Place> {
    let mut found = tokens.iter().filter(|token| is_it(&token.token));
    let token = found.next()?;
    if found.next().is_some() {
        return None;
    }
    of_tokens(token, token)
}

/// From one token to another of the same line.
fn of_tokens(first: &TokenWithSpan, last: &TokenWithSpan) -> Option<Place> {
    let (start, end) = (first.span.start, last.span.end);
    let number = |number: u64| usize::try_from(number).ok();
    let length = if start.line == end.line {
        number(end.column)?.saturating_sub(number(start.column)?)
    } else {
        1
    };
    Some(Place {
        line: number(start.line)?,
        column: number(start.column)?,
        length: length.max(1),
    })
}

/// The only column that a plan casts to a type.
fn cast_column(plan: &Arc<dyn ExecutionPlan>, kind: &str) -> Option<String> {
    let mut columns = BTreeSet::new();
    let visited = plan.apply(|node| {
        node.apply_expressions(&mut |expression| {
            expression.apply(|part| {
                if let Some(cast) = part.downcast_ref::<CastExpr>()
                    && cast.cast_type().to_string() == kind
                {
                    let column = cast.expr().downcast_ref::<Column>();
                    columns.insert(column.map(|column| column.name().to_owned()));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(TreeNodeRecursion::Continue)
    });
    visited.ok()?;
    let mut columns = columns.into_iter();
    columns.next().filter(|_| columns.next().is_none())?
}

/// The only cast of a text, if it is one of this column: `CAST(column AS …` or `column::…`.
fn cast_of(tokens: &[TokenWithSpan], column: &str) -> Option<Place> {
    let is_column = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) => word.value.eq_ignore_ascii_case(column),
        _ => false,
    };
    let is_cast = |token: &TokenWithSpan| match &token.token {
        Token::DoubleColon => true,
        Token::Word(word) => word.keyword == Keyword::CAST,
        _ => false,
    };
    let mut casts = tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| is_cast(token));
    let (at, cast) = casts.next()?;
    if casts.next().is_some() {
        return None;
    }
    if cast.token == Token::DoubleColon {
        let before = tokens.get(at.checked_sub(1)?)?;
        return is_column(before).then(|| of_tokens(before, tokens.get(at + 1)?))?;
    }
    // CAST ( table . column AS
    let inner = tokens.get(at + 2..)?;
    let end = inner.iter().position(
        |token| matches!(&token.token, Token::Word(word) if word.keyword == Keyword::AS),
    )?;
    let last = inner.get(end.checked_sub(1)?)?;
    (end <= 3 && is_column(last)).then(|| of_tokens(cast, last))?
}
