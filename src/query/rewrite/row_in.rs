//! `(a, b) IN (SELECT c, d …)` and `(a + 1, b)`, which the engine does not know.
//!
//! Comes in: a condition, or any expression. Goes out: the same with EXISTS over the rows of the query that are equal in all places; unknown, where it is not a condition of WHERE by itself, if there is none, but one
//! that may be, since something in it or outside is null. A row that begins with something worked out is a struct. Never here: IN over one column, lists of rows.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Query, SetExpr, TableAliasColumnDef, TableFactor,
};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Tokenizer;

use super::called::called;
use super::dialect::{Sql, with_powers};
use crate::error::{Error, Result};

/// With what the name of the rows of the query begins.
const ROWS: &str = "__rows";

/// Rewrites the conditions of a WHERE that stand alone, for which unknown is as good as false.
///
/// # Errors
/// `Internal` when our own text cannot be read.
pub(super) fn rewrite_condition(condition: &mut Expr, named: &mut usize) -> Result<()> {
    match condition {
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => {
            rewrite_condition(left, named)?;
            rewrite_condition(right, named)
        }
        Expr::Nested(inner) => rewrite_condition(inner, named),
        Expr::InSubquery {
            expr,
            subquery,
            negated: false,
        } => {
            if let Some(row) = row_of(expr) {
                *condition = exists(row, subquery, false, named)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Rewrites one expression, wherever it stands.
///
/// # Errors
/// `Internal` when our own text cannot be read.
pub(super) fn rewrite(expression: &mut Expr, named: &mut usize) -> Result<()> {
    let Expr::InSubquery {
        expr,
        subquery,
        negated,
    } = expression
    else {
        return Ok(());
    };
    let Some(row) = row_of(expr) else {
        return Ok(());
    };
    let template = match negated {
        false => "CASE WHEN true THEN true WHEN true THEN NULL ELSE false END",
        true => "CASE WHEN true THEN false WHEN true THEN NULL ELSE true END",
    };
    let mut cases = parsed(template)?;
    if let Expr::Case { conditions, .. } = &mut cases {
        for (may_be, case) in [false, true].into_iter().zip(conditions) {
            case.condition = exists(row, subquery, may_be, named)?;
        }
    }
    *expression = Expr::Nested(Box::new(cases));
    Ok(())
}

/// `(a + 1, b)` as a struct: the engine takes a row for one only if it begins with a name or a literal.
pub(super) fn as_struct(expression: &mut Expr) {
    let Expr::Tuple(values) = expression else {
        return;
    };
    let is_known = |value: &Expr| {
        matches!(
            value,
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_)
        )
    };
    if values.first().is_some_and(|first| !is_known(first)) {
        *expression = called("struct", std::mem::take(values));
    }
}

/// The values of a row of several.
fn row_of(expression: &Expr) -> Option<&[Expr]> {
    match expression {
        Expr::Tuple(values) if values.len() > 1 => Some(values),
        Expr::Nested(inner) => row_of(inner),
        _ => None,
    }
}

/// Whether the query has a row that is equal to this one, or one of which that is unknown.
fn exists(row: &[Expr], query: &Query, may_be: bool, named: &mut usize) -> Result<Expr> {
    *named += 1;
    let mut found = parsed(&format!(
        "EXISTS (SELECT 1 FROM (SELECT 1) AS \"{ROWS}_{named}\" (place) WHERE true)"
    ))?;
    let names =
        (0..row.len()).map(|place| Ident::with_quote('"', format!("{ROWS}_{named}_{place}")));
    let names: Vec<Ident> = names.collect();
    let pairs = row.iter().zip(&names).map(|(value, name)| Expr::BinaryOp {
        left: Box::new(Expr::Identifier(name.clone())),
        op: BinaryOperator::Eq,
        right: Box::new(Expr::Nested(Box::new(value.clone()))),
    });
    let equal = pairs.reduce(|all, pair| Expr::BinaryOp {
        left: Box::new(all),
        op: BinaryOperator::And,
        right: Box::new(pair),
    });
    let Some(select) = select_of(&mut found) else {
        return Err(Error::internal("no SELECT in EXISTS"));
    };
    select.selection = equal.map(|equal| match may_be {
        false => equal,
        true => Expr::IsNull(Box::new(Expr::Nested(Box::new(equal)))),
    });
    let from = select.from.first_mut().map(|from| &mut from.relation);
    if let Some(TableFactor::Derived {
        subquery,
        alias: Some(alias),
        ..
    }) = from
    {
        **subquery = query.clone();
        let columns = names.into_iter().map(|name| TableAliasColumnDef {
            name,
            data_type: None,
        });
        alias.columns = columns.collect();
    }
    Ok(found)
}

fn select_of(exists: &mut Expr) -> Option<&mut datafusion::sql::sqlparser::ast::Select> {
    match exists {
        Expr::Exists { subquery, .. } => match subquery.body.as_mut() {
            SetExpr::Select(select) => Some(select),
            _ => None,
        },
        _ => None,
    }
}

/// An expression of our own.
pub(in crate::query) fn parsed(text: &str) -> Result<Expr> {
    let tokens = Tokenizer::new(&Sql, text).tokenize_with_location();
    let read = tokens.map_err(ParserError::from).and_then(|tokens| {
        let mut parser = Parser::new(&Sql).with_tokens_with_locations(with_powers(tokens));
        parser.parse_expr()
    });
    read.map_err(|error| Error::internal(format!("`{text}`: {error}")))
}
