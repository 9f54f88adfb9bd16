//! Operators that the engine does not know: `a // b` is `a / b`, `~a` and `a ** b` are functions.
//!
//! Comes in: an expression of a parsed statement. Goes out: the expression in words of the engine. Never here: operators that the engine knows, what the functions do.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value};

use super::called::called;
use super::dialect::POWER;
use crate::query::functions::bit_not::BIT_NOT;

fn is_power(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryOp { op: BinaryOperator::Custom(name), .. } if name == POWER)
}

fn nothing() -> Expr {
    Expr::value(Value::Null)
}

/// Puts the other operator in its place.
pub(super) fn in_words(expr: &mut Expr) {
    if is_power(expr)
        && let Expr::BinaryOp { left, right, .. } = expr
    {
        let sides = [left, right].map(|side| std::mem::replace(side.as_mut(), nothing()));
        *expr = called("power", sides);
        return;
    }
    match expr {
        Expr::BinaryOp { op, .. } if *op == BinaryOperator::DuckIntegerDivide => {
            *op = BinaryOperator::Divide;
        }
        Expr::UnaryOp {
            op: UnaryOperator::BitwiseNot,
            expr: bits,
        } => {
            let bits = std::mem::replace(bits.as_mut(), nothing());
            *expr = called(BIT_NOT, [bits]);
        }
        _ => {}
    }
}
