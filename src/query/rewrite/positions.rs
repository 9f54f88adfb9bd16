//! What stands in GROUP BY, within its ROLLUP, CUBE and GROUPING SETS, and in DISTINCT ON.
//!
//! Comes in: a SELECT. Goes out: the same, with numbers of columns in place of ALL; with the column that is meant in place of its number, which the engine takes for a constant within them, and for a column elsewhere in GROUP BY; and with GROUPING SETS in place of
//! ROLLUP and CUBE over keys that go together, `ROLLUP ((a, b), c)`, or stand there twice, which the engine refuses, or that stand in GROUPING SETS themselves. Keys in brackets, `GROUP BY (a, b)`, which the engine takes for one value, are keys. Never here: numbers beside them, how many sets there may be.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, ObjectNamePart,
    Select, SelectItem, UnaryOperator, Value, visit_expressions,
};

use super::row_in::parsed;
use super::using::folded;
use super::written::{text_of, without_parentheses};
use crate::error::{Error, ErrorKind, Result};

/// Puts columns in place of their numbers, and writes keys and sets out.
///
/// # Errors
/// `Query` for the number of no column; `Unsupported` behind a `*`, of which only the plan shows how many columns it is.
pub(super) fn as_columns(select: &mut Select) -> Result<()> {
    if let Some(Distinct::On(keys)) = &mut select.distinct {
        for key in keys.iter_mut() {
            if let Some(position) = position(key) {
                *key = column(position, &select.projection, ["DISTINCT ON"; 2])?;
            }
        }
        once(keys, &select.projection);
    }
    let GroupByExpr::Expressions(keys, _) = &mut select.group_by else {
        return Ok(());
    };
    *keys = std::mem::take(keys)
        .into_iter()
        .flat_map(written_out)
        .collect();
    once(keys, &select.projection);
    for key in keys {
        let (Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets)) = key else {
            continue;
        };
        for part in sets.iter_mut().flatten() {
            if let Some(position) = position(part) {
                let clauses = ["GROUP BY", "ROLLUP, CUBE or GROUPING SETS"];
                *part = column(position, &select.projection, clauses)?;
            }
        }
        as_sets(key);
    }
    Ok(())
}

/// Puts the numbers of the items that are values of each row in place of ALL: the engine would not find again what items with a name are made of. Nothing is done where it is not known how many columns stand before one.
pub(super) fn all_as_numbers(select: &mut Select, is_of_several_rows: impl Fn(&Expr) -> bool) {
    let GroupByExpr::All(modifiers) = &select.group_by else {
        return;
    };
    let number = |place: usize| Expr::value(Value::Number((place + 1).to_string(), false));
    let (mut keys, mut seen) = (Vec::new(), HashSet::new());
    let (mut first_literal, mut has_values) = (None, false);
    let mut named = HashSet::new();
    for (place, item) in select.projection.iter().enumerate() {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
            return;
        };
        // Items before may be meant by their names.
        if is_of_several_rows(expr) || names_one_of(expr, &named) {
            has_values = true;
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                named.insert(folded(alias));
            }
        } else if let Expr::Value(_) = without_parentheses(expr) {
            first_literal.get_or_insert(place);
        } else if seen.insert(text_of(expr)) {
            keys.push(number(place));
        }
    }
    // A literal is the same in all groups, and makes one where there is nothing else.
    if keys.is_empty() && !has_values {
        keys.extend(first_literal.map(number));
    }
    select.group_by = GroupByExpr::Expressions(keys, modifiers.clone());
}

fn names_one_of(expr: &Expr, names: &HashSet<String>) -> bool {
    let found = visit_expressions(expr, |part| match part {
        Expr::Identifier(name) if names.contains(&folded(name)) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Makes items that are numbers, and keys by their names, casts of these: the engine takes a number among the keys for that of a column, also where a name stands for it.
pub(super) fn named_numbers_as_casts(select: &mut Select) {
    let GroupByExpr::Expressions(keys, _) = &select.group_by else {
        return;
    };
    let mut named = HashSet::new();
    keys.iter().for_each(|key| add_name(key, &mut named));
    for item in &mut select.projection {
        if let SelectItem::ExprWithAlias { expr, alias } = item
            && named.contains(&folded(alias))
            && is_whole_number(expr)
        {
            let cast = parsed(&format!("CAST({expr} AS BIGINT)"));
            *expr = cast.unwrap_or_else(|_| expr.clone());
        }
    }
}

/// Adds the name that a key is, also in brackets.
fn add_name(key: &Expr, names: &mut HashSet<String>) {
    match key {
        Expr::Identifier(name) => {
            names.insert(folded(name));
        }
        Expr::Nested(inner) => add_name(inner, names),
        Expr::Tuple(keys) => keys.iter().for_each(|key| add_name(key, names)),
        _ => {}
    }
}

fn is_whole_number(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_whole_number(inner),
        Expr::UnaryOp {
            op: UnaryOperator::Minus | UnaryOperator::Plus,
            expr,
        } => is_whole_number(expr),
        Expr::Value(value) => {
            matches!(&value.value, Value::Number(number, _) if number.to_string().parse::<i64>().is_ok())
        }
        _ => false,
    }
}

/// Leaves out columns that are keys already: the engine fails with them. Which column a number behind a `*` means is not known here.
fn once(keys: &mut Vec<Expr>, items: &[SelectItem]) {
    let mut seen = HashSet::new();
    keys.retain(|key| {
        let item = position(key).and_then(|position| column(position, items, [""; 2]).ok());
        let meant = without_parentheses(item.as_ref().unwrap_or(key));
        let is_column = matches!(meant, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
        !is_column || seen.insert(text_of(meant))
    });
}

/// The keys that a key stands for. None of them are a set without keys.
fn written_out(key: Expr) -> Vec<Expr> {
    match key {
        Expr::Tuple(keys) if keys.is_empty() => vec![Expr::GroupingSets(vec![keys])],
        Expr::Tuple(keys) => keys.into_iter().flat_map(written_out).collect(),
        Expr::GroupingSets(sets) => {
            let sets = sets.into_iter().flat_map(|set| match nested(&set) {
                Some(Expr::Rollup(parts)) => rolled_up(&parts),
                Some(Expr::Cube(parts)) => cubed(&parts),
                _ => vec![set],
            });
            vec![Expr::GroupingSets(sets.collect())]
        }
        key => vec![key],
    }
}

/// The ROLLUP or CUBE that a set of GROUPING SETS is; the parser takes it for a call.
pub(in crate::query) fn nested(set: &[Expr]) -> Option<Expr> {
    let [Expr::Function(call)] = set else {
        return None;
    };
    let [ObjectNamePart::Identifier(name)] = call.name.0.as_slice() else {
        return None;
    };
    let kind = match name.value.to_ascii_lowercase().as_str() {
        "rollup" => Expr::Rollup,
        "cube" => Expr::Cube,
        _ => return None,
    };
    let FunctionArguments::List(list) = &call.args else {
        return None;
    };
    let parts = list.args.iter().map(|part| match part {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Tuple(keys))) => Some(keys.clone()),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Nested(key))) => Some(vec![*key.clone()]),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(key)) => Some(vec![key.clone()]),
        _ => None,
    });
    Some(kind(parts.collect::<Option<_>>()?))
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

/// Whether keys go together in a part, or stand there twice, or a part has none.
fn are_unknown(parts: &[Vec<Expr>]) -> bool {
    let mut keys = HashSet::new();
    let is_known = |part: &Vec<Expr>| matches!(part.as_slice(), [key] if keys.insert(key.clone()));
    !parts.iter().all(is_known)
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

/// The column with a number, from 1, of which a clause speaks, or what stands within it.
fn column(position: usize, columns: &[SelectItem], [clause, within]: [&str; 2]) -> Result<Expr> {
    let is_one = |item: &SelectItem| {
        matches!(
            item,
            SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
        )
    };
    if !columns.iter().take(position).all(is_one) {
        let text = format!(
            "{position} in {within} means a column of SELECT, and columns behind a * are not counted"
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
                "{clause} {position} means column {position} of SELECT, which has columns 1 to {}",
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
        grouped_of("a, b", keys)
    }

    fn grouped_of(items: &str, keys: &str) -> String {
        let text = format!("SELECT {items} FROM t GROUP BY {keys}");
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
            ("ROLLUP (a, ())", "GROUPING SETS ((a), (a), ())"),
            ("()", "GROUPING SETS (())"),
            ("(a, (b, x)), ()", "a, b, x, GROUPING SETS (())"),
            ("(a, b), ROLLUP (c)", "a, b, ROLLUP (c)"),
            (
                "GROUPING SETS (c, ROLLUP (1, 2), cube ((a), (b, c)))",
                "GROUPING SETS ((c), (a, b), (a), (), (a, b, c), (a), (b, c), ())",
            ),
        ] {
            assert_eq!(grouped(keys), format!("GROUP BY {sets}"));
        }
    }

    #[test]
    fn columns_that_are_keys_already_are_left_out() {
        assert_eq!(grouped("a, A, t.a, 1, 2, b"), "GROUP BY a, t.a, 2");
        assert_eq!(grouped("a + 1, a + 1"), "GROUP BY a + 1, a + 1");
        // What the second column of all is, only the plan shows.
        assert_eq!(grouped_of("*, b", "b, 2"), "GROUP BY b, 2");
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
