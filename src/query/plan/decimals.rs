//! Decimals beside floats.
//!
//! Comes in: values that are compared, or of which one is given. Goes out: the same; decimals beside floats are floats, and a float that is written (`0.05`) is the decimal that it is written as. The engine makes decimals of 15 digits before and behind the point of both: there are none for `1e300` and NaN, and `0.1` beside
//! money has the type of neither. Never here: arithmetic, where the engine makes floats of both.

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{Expr, ExprSchemable, cast, lit};

/// What 128 bits have room for.
const MAX_DIGITS: usize = 38;

/// Gives decimals and floats among some values one type; says whether there are both.
pub(super) fn of_one_kind(parts: &mut [&mut Expr], schema: &DFSchema) -> bool {
    let of = |part: &Expr| part.get_type(schema).ok();
    let kinds: Vec<Option<DataType>> = parts.iter().map(|part| of(part)).collect();
    let has = |is: fn(&DataType) -> bool| kinds.iter().flatten().any(is);
    if !has(is_decimal) || !has(DataType::is_floating) {
        return false;
    }
    let is_float = |kind: &Option<DataType>| kind.as_ref().is_some_and(DataType::is_floating);
    let written = parts.iter().zip(&kinds);
    let written = written.map(|(part, kind)| is_float(kind).then(|| as_written(part)));
    let written: Vec<Option<Option<Expr>>> = written.collect();
    // Whether each float is one that is written.
    let are_written = written.iter().flatten().all(Option::is_some);
    for ((part, kind), written) in parts.iter_mut().zip(&kinds).zip(written) {
        match (are_written, written) {
            (true, Some(Some(decimal))) => **part = decimal,
            (false, None) if kind.as_ref().is_some_and(is_decimal) => {
                **part = cast(std::mem::take(*part), DataType::Float64);
            }
            _ => {}
        }
    }
    true
}

pub(super) fn is_decimal(kind: &DataType) -> bool {
    matches!(
        kind,
        DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..)
    )
}

/// The decimal that a number was written as, if there is room for it.
fn as_written(value: &Expr) -> Option<Expr> {
    let Expr::Literal(ScalarValue::Float64(Some(number)), _) = value else {
        return None;
    };
    if !number.is_finite() {
        return None;
    }
    // The shortest digits that are this number.
    let text = number.to_string();
    let digits: String = text.chars().filter(|letter| *letter != '.').collect();
    let scale = text.split_once('.').map_or(0, |(_, rest)| rest.len());
    let count = digits
        .trim_start_matches(['-', '0'])
        .len()
        .max(scale)
        .max(1);
    if count > MAX_DIGITS {
        return None;
    }
    let (count, scale) = (u8::try_from(count).ok()?, i8::try_from(scale).ok()?);
    let unscaled = digits.parse().ok()?;
    Some(lit(ScalarValue::Decimal128(Some(unscaled), count, scale)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_decimals_that_they_are_written_as() {
        let of = |number: f64| match as_written(&lit(number)) {
            Some(Expr::Literal(ScalarValue::Decimal128(Some(value), digits, scale), _)) => {
                Some((value, digits, scale))
            }
            _ => None,
        };
        assert_eq!(of(0.05), Some((5, 2, 2)));
        assert_eq!(of(-12.5), Some((-125, 3, 1)));
        assert_eq!(of(0.0), Some((0, 1, 0)));
        assert_eq!(of(-0.0), Some((0, 1, 0)));
        assert_eq!(of(1e20), Some((100_000_000_000_000_000_000, 21, 0)));
        assert_eq!(of(1e-30), Some((1, 30, 30)));
        for number in [1e38, 1e-39, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(of(number), None, "{number}");
        }
    }
}
