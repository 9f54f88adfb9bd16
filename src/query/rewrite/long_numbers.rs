//! Numbers that are written with more digits than floats have.
//!
//! Comes in: an expression. Goes out: the same with decimals in place of whole numbers beyond 64 bits, and of compared numbers whose last digits a float would drop: the engine makes floats of both. Never here: what numbers mean beside others (`plan/types/decimals.rs`).

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value, ValueWithSpan};

use super::row_in::parsed;
use crate::error::Result;

/// Decimals have so many digits at most.
const MAX_DIGITS: usize = 38;

/// A float has all digits of a number with so many.
const DIGITS_OF_FLOAT: usize = 15;

/// The least number of 64 bits is so far below zero.
const BELOW_ZERO: u64 = 1 << 63;

/// Writes such numbers as decimals.
///
/// # Errors
/// None of the user's.
pub(super) fn exact(expr: &mut Expr) -> Result<()> {
    match expr {
        Expr::Value(value) => {
            if let Some(digits) = whole(value) {
                *expr = parsed(&format!("CAST('{digits}' AS DECIMAL({}, 0))", digits.len()))?;
            }
            Ok(())
        }
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => {
            if let Expr::Value(ValueWithSpan {
                value: Value::Number(digits, false),
                ..
            }) = expr.as_ref()
                && digits
                    .parse::<u64>()
                    .is_ok_and(|number| number > BELOW_ZERO)
            {
                **expr = parsed(&format!("CAST('{digits}' AS DECIMAL({}, 0))", digits.len()))?;
            }
            Ok(())
        }
        Expr::BinaryOp { left, op, right } if compares(op) => {
            compared(left)?;
            compared(right)
        }
        Expr::Between {
            expr, low, high, ..
        } => {
            compared(expr)?;
            compared(low)?;
            compared(high)
        }
        Expr::InList { expr, list, .. } => {
            compared(expr)?;
            list.iter_mut().try_for_each(compared)
        }
        _ => Ok(()),
    }
}

fn compares(op: &BinaryOperator) -> bool {
    matches!(
        op,
        BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq
            | BinaryOperator::Spaceship
    )
}

/// The digits of a whole number beyond 64 bits that a decimal has room for.
fn whole(value: &ValueWithSpan) -> Option<String> {
    let Value::Number(text, false) = &value.value else {
        return None;
    };
    let digits = text.trim_start_matches('0');
    let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_beyond = digits.len() > DIGITS_OF_FLOAT && digits.parse::<u64>().is_err();
    (is_whole && is_beyond && digits.len() <= MAX_DIGITS).then(|| digits.to_owned())
}

/// A number beside what it is compared with, as a decimal where a float would not be that number.
fn compared(expr: &mut Expr) -> Result<()> {
    match expr {
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => compared(inner),
        Expr::Value(ValueWithSpan {
            value: Value::Number(text, false),
            ..
        }) => {
            if let Some((digits, scale)) = parts(text) {
                *expr = parsed(&format!("CAST('{text}' AS DECIMAL({digits}, {scale}))"))?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// How many digits a number has, and how many of them behind its point, if a float does not have all of them.
fn parts(text: &str) -> Option<(usize, usize)> {
    let (before, behind) = text.split_once('.')?;
    let are_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let (before, behind) = (before.trim_start_matches('0'), behind.trim_end_matches('0'));
    let digits = (before.len() + behind.len()).max(1);
    if !are_digits(before) || !are_digits(behind) || digits > MAX_DIGITS {
        return None;
    }
    let float = text.parse::<f64>().ok()?.to_string();
    let (whole, part) = float.split_once('.').unwrap_or((float.as_str(), ""));
    let is_float = whole.trim_start_matches('0') == before && part == behind;
    let scale = text.split_once('.').map_or(0, |(_, behind)| behind.len());
    let digits = before.len() + scale;
    (!is_float && digits <= MAX_DIGITS).then_some((digits.max(1), scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str) -> String {
        let mut expr = parsed(text).unwrap();
        exact(&mut expr).unwrap();
        expr.to_string()
    }

    #[test]
    fn whole_numbers_beyond_64_bits_are_decimals() {
        assert_eq!(rewritten("18446744073709551615"), "18446744073709551615");
        assert_eq!(
            rewritten("18446744073709551616"),
            "CAST('18446744073709551616' AS DECIMAL(20,0))"
        );
        assert_eq!(
            rewritten("-9223372036854775809"),
            "-CAST('9223372036854775809' AS DECIMAL(19,0))"
        );
        assert_eq!(rewritten("-9223372036854775808"), "-9223372036854775808");
        let long = "1".repeat(39);
        assert_eq!(rewritten(&long), long);
        assert_eq!(rewritten("1e30"), "1e30");
    }

    #[test]
    fn compared_numbers_keep_all_their_digits() {
        for float in [
            "0.1",
            "1.50",
            "0.017453292519943295",
            "1e300",
            "100.0",
            "0.0",
        ] {
            let text = format!("x = {float}");
            assert_eq!(rewritten(&text), text);
        }
        assert_eq!(
            rewritten("x > -1.5000000000000000000001"),
            "x > -CAST('1.5000000000000000000001' AS DECIMAL(23,22))"
        );
        assert_eq!(
            rewritten("x + 1.5000000000000000000001"),
            "x + 1.5000000000000000000001"
        );
    }
}
