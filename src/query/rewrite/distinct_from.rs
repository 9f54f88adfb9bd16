//! `a IS DISTINCT FROM b AND c`: the parser takes all that follows FROM for its right side.
//!
//! Comes in: an expression whose parts have been looked at. Goes out: the same with AND, OR and XOR around IS [NOT] DISTINCT FROM, and NOT before it, as SQL reads them. Never here: what stands in parentheses.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value};

/// Puts what binds less around what binds more.
pub(super) fn regroup(expr: &mut Expr) {
    while let Some(binding) = binding(expr)
        && let Some(last) = last_of(expr)
        && let Expr::BinaryOp { op, .. } = last
        && of_conditions(op).is_some_and(|other| other < binding)
    {
        // last = (first op rest), of which only the first belongs to it.
        let Expr::BinaryOp { left, op, right } = std::mem::replace(last, nothing()) else {
            return;
        };
        *last = *left;
        regroup(expr);
        let left = Box::new(std::mem::replace(expr, nothing()));
        *expr = Expr::BinaryOp { left, op, right };
    }
}

fn nothing() -> Expr {
    Expr::value(Value::Null)
}

/// How strongly an operator between conditions binds.
fn of_conditions(operator: &BinaryOperator) -> Option<u8> {
    match operator {
        BinaryOperator::Or => Some(0),
        BinaryOperator::Xor => Some(1),
        BinaryOperator::And => Some(2),
        _ => None,
    }
}

/// The same of an expression that may have such an operator in its last part.
fn binding(expr: &Expr) -> Option<u8> {
    match expr {
        Expr::BinaryOp { op, .. } => of_conditions(op),
        Expr::UnaryOp {
            op: UnaryOperator::Not,
            ..
        } => Some(3),
        Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) => Some(4),
        _ => None,
    }
}

fn last_of(expr: &mut Expr) -> Option<&mut Expr> {
    match expr {
        Expr::BinaryOp { right, .. } => Some(right),
        Expr::UnaryOp { expr, .. } => Some(expr),
        Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right) => Some(right),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use datafusion::sql::sqlparser::ast::visit_expressions_mut;
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn read(text: &str) -> Expr {
        let mut parser = Parser::new(&GenericDialect {}).try_with_sql(text).unwrap();
        parser.parse_expr().unwrap()
    }

    fn regrouped(text: &str) -> Expr {
        let mut expr = read(text);
        let _: ControlFlow<()> = visit_expressions_mut(&mut expr, |part| {
            regroup(part);
            ControlFlow::Continue(())
        });
        expr
    }

    /// Without parentheses, whose places tell two readings apart.
    fn bare(expr: &mut Expr) {
        let _: ControlFlow<()> = visit_expressions_mut(expr, |part| {
            while let Expr::Nested(inner) = part {
                *part = std::mem::replace(inner.as_mut(), nothing());
            }
            ControlFlow::Continue(())
        });
    }

    #[test]
    fn what_follows_is_no_part_of_the_right_side() {
        for (text, expected) in [
            ("a IS DISTINCT FROM b AND c", "(a IS DISTINCT FROM b) AND c"),
            (
                "a IS NOT DISTINCT FROM b + 1 OR c AND d",
                "(a IS NOT DISTINCT FROM b + 1) OR (c AND d)",
            ),
            (
                "x AND a IS DISTINCT FROM b OR c",
                "(x AND (a IS DISTINCT FROM b)) OR c",
            ),
            (
                "x AND a IS DISTINCT FROM b AND c OR d AND e",
                "(x AND ((a IS DISTINCT FROM b) AND c)) OR (d AND e)",
            ),
            (
                "a IS DISTINCT FROM b AND c IS DISTINCT FROM d OR e",
                "((a IS DISTINCT FROM b) AND (c IS DISTINCT FROM d)) OR e",
            ),
            (
                "NOT a IS DISTINCT FROM b AND c",
                "(NOT (a IS DISTINCT FROM b)) AND c",
            ),
            (
                "x OR NOT a IS DISTINCT FROM b XOR c",
                "x OR ((NOT (a IS DISTINCT FROM b)) XOR c)",
            ),
            (
                "x AND a IS DISTINCT FROM b OR c OR d",
                "((x AND (a IS DISTINCT FROM b)) OR c) OR d",
            ),
        ] {
            let mut wanted = read(expected);
            bare(&mut wanted);
            assert_eq!(regrouped(text), wanted, "{text}");
        }
    }

    #[test]
    fn parentheses_and_all_else_stay() {
        for text in [
            "a IS DISTINCT FROM (b AND c)",
            "a AND b OR c AND NOT d",
            "NOT (a OR b) AND c",
            "a IS DISTINCT FROM b = c",
            "x AND (y OR z)",
        ] {
            assert_eq!(regrouped(text), read(text), "{text}");
        }
    }
}
