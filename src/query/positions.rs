//! Numbers of columns within ROLLUP, CUBE and GROUPING SETS.
//!
//! Comes in: a SELECT. Goes out: the same, with the column that is meant in place of its number, which the engine takes for a constant there, and for a column elsewhere in GROUP BY. Never here: numbers beside them.

use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, Select, SelectItem, Value};

use crate::error::{Error, ErrorKind, Result};

/// Puts columns in place of their numbers.
///
/// # Errors
/// `Query` for the number of no column; `Unsupported` behind a `*`, of which only the plan shows how many columns it is.
pub(super) fn as_columns(select: &mut Select) -> Result<()> {
    let GroupByExpr::Expressions(keys, _) = &mut select.group_by else {
        return Ok(());
    };
    for key in keys {
        let (Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets)) = key else {
            continue;
        };
        for part in sets.iter_mut().flatten() {
            if let Some(position) = position(part) {
                *part = column(position, &select.projection)?;
            }
        }
    }
    Ok(())
}

/// The number that a key is, if it is one.
fn position(key: &Expr) -> Option<usize> {
    match key {
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => number.to_string().parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// The column with a number, from 1.
fn column(position: usize, columns: &[SelectItem]) -> Result<Expr> {
    let is_one = |item: &SelectItem| {
        matches!(
            item,
            SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
        )
    };
    if !columns.iter().take(position).all(is_one) {
        let text = format!(
            "{position} in ROLLUP, CUBE or GROUPING SETS means a column of SELECT, and columns behind a * are not counted"
        );
        return Err(Error::unsupported(text).with_hint("write the name of the column"));
    }
    let found = position.checked_sub(1).and_then(|at| columns.get(at));
    match found {
        Some(SelectItem::UnnamedExpr(column) | SelectItem::ExprWithAlias { expr: column, .. }) => {
            Ok(column.clone())
        }
        _ => {
            let text = format!(
                "GROUP BY {position} means column {position} of SELECT, which has columns 1 to {}",
                columns.len()
            );
            let error = Error::new(ErrorKind::Query, text);
            Err(error.with_hint("write a number of those, or the name of a column"))
        }
    }
}
