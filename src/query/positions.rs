//! What stands within ROLLUP, CUBE and GROUPING SETS.
//!
//! Comes in: a SELECT. Goes out: the same, with the column that is meant in place of its number, which the engine takes for a constant there, and for a column elsewhere in GROUP BY; and with GROUPING SETS in place of
//! ROLLUP and CUBE over keys that go together, `ROLLUP ((a, b), c)`, or stand there twice, which the engine refuses. Never here: numbers beside them, how many sets there may be.

use std::collections::HashSet;

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
        as_sets(key);
    }
    Ok(())
}

/// Writes the sets out that ROLLUP and CUBE stand for, where the engine does not.
fn as_sets(key: &mut Expr) {
    let sets = match &*key {
        Expr::Rollup(parts) if are_unknown(parts) => rolled_up(parts),
        Expr::Cube(parts) if are_unknown(parts) => cubed(parts),
        _ => return,
    };
    *key = Expr::GroupingSets(sets);
}

/// Whether keys go together in a part, or stand there twice.
fn are_unknown(parts: &[Vec<Expr>]) -> bool {
    let mut keys = HashSet::new();
    let is_known = |part: &Vec<Expr>| matches!(part.as_slice(), [key] if keys.insert(key.clone()));
    !parts.iter().any(Vec::is_empty) && !parts.iter().all(is_known)
}

/// All parts, all but the last one, and so on, and none.
fn rolled_up(parts: &[Vec<Expr>]) -> Vec<Vec<Expr>> {
    let first =
        |count: usize| -> Vec<Expr> { parts.iter().take(count).flatten().cloned().collect() };
    (0..=parts.len()).rev().map(first).collect()
}

/// Each choice of parts.
fn cubed(parts: &[Vec<Expr>]) -> Vec<Vec<Expr>> {
    let mut sets: Vec<Vec<Expr>> = vec![Vec::new()];
    for part in parts.iter().rev() {
        let with_part = sets
            .iter()
            .map(|set| [part.as_slice(), set.as_slice()].concat());
        let with_part: Vec<Vec<Expr>> = with_part.collect();
        sets = with_part.into_iter().chain(sets).collect();
    }
    sets
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

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::SetExpr;
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn grouped(keys: &str) -> String {
        let text = format!("SELECT a, b FROM t GROUP BY {keys}");
        let mut parser = Parser::new(&GenericDialect {}).try_with_sql(&text).unwrap();
        let mut query = parser.parse_query().unwrap();
        let SetExpr::Select(select) = query.body.as_mut() else {
            panic!("{text} is no SELECT");
        };
        as_columns(select).unwrap();
        select.group_by.to_string()
    }

    #[test]
    fn keys_that_go_together_are_written_out() {
        for (keys, sets) in [
            (
                "ROLLUP ((1, 2), c)",
                "GROUPING SETS ((a, b, c), (a, b), ())",
            ),
            (
                "CUBE ((a, b), c)",
                "GROUPING SETS ((a, b, c), (a, b), (c), ())",
            ),
            ("x, ROLLUP (a, a)", "x, GROUPING SETS ((a, a), (a), ())"),
        ] {
            assert_eq!(grouped(keys), format!("GROUP BY {sets}"));
        }
    }

    #[test]
    fn single_keys_stay() {
        for keys in [
            "ROLLUP (a, b)",
            "CUBE (a, b)",
            "GROUPING SETS ((a, b), (c))",
        ] {
            assert_eq!(grouped(keys), format!("GROUP BY {keys}"));
        }
    }
}
