//! Intervals times numbers, and differences of timestamps times numbers.
//!
//! Comes in: `interval * number`, `number * interval` or `interval / number` as the SQL planner meets it. Goes out: a call of one of three functions that work it out, as DuckDB and PostgreSQL do: a part of a month
//! is so much of 30 days, a part of a day so much of 24 hours. Differences stay what they are, in their unit. Never here: intervals and dates, which the engine adds.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, PrimitiveArray};
use arrow::compute::{cast as cast_to, try_binary};
use arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use arrow::error::ArrowError;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::planner::RawBinaryExpr;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, cast,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::error::{Error, ErrorKind};

/// What intervals of all units are worked out in.
const SPAN: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

const DAYS_OF_A_MONTH: f64 = 30.0;
const NANOSECONDS_OF_A_DAY: f64 = 86_400e9;

/// Parts of months and days are exact but for this: a twelfth of a year is a month.
const NOISE: f64 = 1e-9;

/// The call that an operation is, if it is one of these.
pub(super) fn scaled(expr: &RawBinaryExpr, schema: &DFSchema) -> Option<Expr> {
    let kind_of = |side: &Expr| side.get_type(schema).ok();
    let (left, right) = (kind_of(&expr.left)?, kind_of(&expr.right)?);
    let is_span = |kind: &DataType| matches!(kind, DataType::Interval(_) | DataType::Duration(_));
    let is_number = |kind: &DataType| kind.is_numeric() || kind.is_null();
    let (span, number, number_kind) = match &expr.op {
        BinaryOperator::Multiply if is_span(&left) && is_number(&right) => {
            (&expr.left, &expr.right, right)
        }
        BinaryOperator::Multiply if is_number(&left) && is_span(&right) => {
            (&expr.right, &expr.left, left)
        }
        BinaryOperator::Divide if is_span(&left) && is_number(&right) => {
            (&expr.left, &expr.right, right)
        }
        _ => return None,
    };
    let kind = match expr.op {
        BinaryOperator::Divide => Kind::Over,
        _ if number_kind.is_integer() || number_kind.is_null() => Kind::Times,
        _ => Kind::By,
    };
    let is_difference = matches!(kind_of(span), Some(DataType::Duration(_)));
    let number_type = match kind {
        Kind::Times => DataType::Int64,
        // Differences have one part, which is divided without a rest of others.
        Kind::Over if is_difference && number_kind.is_integer() => DataType::Int64,
        Kind::By | Kind::Over => DataType::Float64,
    };
    let span = match is_difference {
        true => span.clone(),
        false => cast(span.clone(), SPAN),
    };
    let arguments = vec![span, cast(number.clone(), number_type)];
    Some(ScalarUDF::from(Scaled::new(kind)).call(arguments))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// A whole number of times: exact.
    Times,
    /// Times any number.
    By,
    /// Divided.
    Over,
}

/// An interval and a number.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct Scaled {
    kind: Kind,
    signature: Signature,
}

impl Scaled {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            signature: Signature::any(2, Volatility::Immutable),
        }
    }

    /// All of them, for parts of plans.
    #[cfg(feature = "distributed")]
    pub(in crate::query) fn all() -> [Self; 3] {
        [Kind::Times, Kind::By, Kind::Over].map(Self::new)
    }
}

impl ScalarUDFImpl for Scaled {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Times => "interval_times",
            Kind::By => "interval_by",
            Kind::Over => "interval_over",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, kinds: &[DataType]) -> Result<DataType> {
        Ok(match kinds.first() {
            Some(DataType::Duration(unit)) => DataType::Duration(*unit),
            _ => SPAN,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let are_one = arguments.args.iter().all(is_one);
        let rows = if are_one { 1 } else { arguments.number_rows };
        let [span, number] = arguments.args.as_slice() else {
            return datafusion::common::internal_err!("an interval without a number");
        };
        let (spans, numbers) = (span.to_array(rows)?, number.to_array(rows)?);
        let made = match spans.data_type() {
            DataType::Duration(_) => self.of_differences(&spans, &numbers)?,
            _ => self.made(&spans, &numbers)?,
        };
        Ok(match are_one {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?),
            false => ColumnarValue::Array(made),
        })
    }
}

impl Scaled {
    /// Differences of timestamps, by their numbers of units.
    fn of_differences(&self, spans: &ArrayRef, numbers: &ArrayRef) -> Result<ArrayRef> {
        let units = cast_to(spans, &DataType::Int64)?;
        let units = units.as_primitive::<Int64Type>();
        let whole = numbers.as_primitive_opt::<Int64Type>();
        let made: Int64Array = match (self.kind, whole) {
            (Kind::Times, Some(numbers)) => try_binary(units, numbers, |units, number| {
                units.checked_mul(number).ok_or_else(too_long)
            }),
            (Kind::Over, Some(numbers)) => try_binary(units, numbers, divided),
            (kind, _) => {
                let numbers = numbers.as_primitive::<Float64Type>();
                try_binary(units, numbers, |units, number| match kind {
                    Kind::Over if number == 0.0 => Err(wrong(BY_ZERO)),
                    Kind::Over => scaled_units(units, 1.0 / number).ok_or_else(too_long),
                    _ => scaled_units(units, number).ok_or_else(too_long),
                })
            }
        }?;
        Ok(cast_to(&made, spans.data_type())?)
    }

    fn made(&self, spans: &ArrayRef, numbers: &ArrayRef) -> Result<ArrayRef> {
        let spans = spans.as_primitive::<IntervalMonthDayNanoType>();
        let made: PrimitiveArray<IntervalMonthDayNanoType> = match self.kind {
            Kind::Times => {
                let numbers = numbers.as_primitive::<Int64Type>();
                try_binary(spans, numbers, |span, number| {
                    times(span, number).ok_or_else(too_long)
                })
            }
            Kind::By => {
                let numbers = numbers.as_primitive::<Float64Type>();
                try_binary(spans, numbers, |span, number| {
                    by(span, |part| part * number).ok_or_else(too_long)
                })
            }
            Kind::Over => {
                let numbers = numbers.as_primitive::<Float64Type>();
                try_binary(spans, numbers, |span, number| match number == 0.0 {
                    true => Err(wrong(BY_ZERO)),
                    false => by(span, |part| part / number).ok_or_else(too_long),
                })
            }
        }?;
        Ok(Arc::new(made))
    }
}

fn too_long() -> ArrowError {
    wrong("an interval times a number is longer than intervals can be")
}

fn wrong(text: &str) -> ArrowError {
    ArrowError::ExternalError(Box::new(Error::new(ErrorKind::Query, text)))
}

const BY_ZERO: &str = "an interval is divided by zero";

/// Rounded to the nearest; halves go away from zero.
fn divided(units: i64, number: i64) -> std::result::Result<i64, ArrowError> {
    let (units, number) = (i128::from(units), i128::from(number));
    if number == 0 {
        return Err(wrong(BY_ZERO));
    }
    let (whole, rest) = (units / number, units % number);
    let is_half = rest.abs() * 2 >= number.abs();
    let away = if (units < 0) == (number < 0) { 1 } else { -1 };
    let rounded = whole + if is_half { away } else { 0 };
    i64::try_from(rounded).map_err(|_| too_long())
}

/// So many times as many units, to the nearest.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "checked to be in range; as many digits as floats have"
)]
fn scaled_units(units: i64, number: f64) -> Option<i64> {
    let units = (units as f64 * number).round();
    // The next float beyond all of them.
    (units.abs() < 9.223_372_036_854_775e18).then_some(units as i64)
}

fn times(span: IntervalMonthDayNano, number: i64) -> Option<IntervalMonthDayNano> {
    let small = |part: i32| i32::try_from(i64::from(part).checked_mul(number)?).ok();
    Some(IntervalMonthDayNano::new(
        small(span.months)?,
        small(span.days)?,
        span.nanoseconds.checked_mul(number)?,
    ))
}

/// Each part changed; what is left of a month goes to the days, what is left of a day to the time, to whole microseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "checked to be in range; microseconds are all that is kept"
)]
fn by(span: IntervalMonthDayNano, change: impl Fn(f64) -> f64) -> Option<IntervalMonthDayNano> {
    let months = settled(change(f64::from(span.months)));
    let days = settled(change(f64::from(span.days)) + months.fract() * DAYS_OF_A_MONTH);
    let time = change(span.nanoseconds as f64) + days.fract() * NANOSECONDS_OF_A_DAY;
    let microseconds = (time / 1e3).round();
    let small = |part: f64| {
        let whole = part.trunc();
        let fits = whole >= f64::from(i32::MIN) && whole <= f64::from(i32::MAX);
        fits.then_some(whole as i32)
    };
    let fits = microseconds.abs() < 9e15;
    Some(IntervalMonthDayNano::new(
        small(months)?,
        small(days)?,
        fits.then_some(microseconds as i64)?.checked_mul(1000)?,
    ))
}

/// A number without the noise of its last digits.
fn settled(number: f64) -> f64 {
    let whole = number.round();
    match (number - whole).abs() < NOISE {
        true => whole,
        false => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000_000_000;

    fn span(months: i32, days: i32, nanoseconds: i64) -> IntervalMonthDayNano {
        IntervalMonthDayNano::new(months, days, nanoseconds)
    }

    #[test]
    fn what_is_left_of_a_month_are_days_and_of_a_day_hours() {
        let month = span(1, 0, 0);
        assert_eq!(by(month, |part| part / 4.0), Some(span(0, 7, DAY / 2)));
        assert_eq!(by(month, |part| part * 1.55), Some(span(1, 16, DAY / 2)));
        assert_eq!(by(span(12, 0, 0), |part| part / 5.0), Some(span(2, 12, 0)));
        assert_eq!(by(span(-1, 0, 0), |part| part / 2.0), Some(span(0, -15, 0)));
        let third = by(span(0, 0, 1_000_000_000), |part| part / 3.0);
        assert_eq!(third, Some(span(0, 0, 333_333_000)));
        assert_eq!(by(span(12, 0, 0), |part| part / 12.0), Some(month));
    }

    #[test]
    fn differences_are_rounded_to_their_unit() {
        for (units, number, wanted) in [(7, 2, 4), (-7, 2, -4), (7, -2, -4), (7, 3, 2), (8, 3, 3)] {
            assert_eq!(
                divided(units, number).unwrap(),
                wanted,
                "{units} / {number}"
            );
        }
        assert_eq!(divided(i64::MAX, 1).unwrap(), i64::MAX);
        assert!(divided(i64::MIN, -1).is_err());
        assert!(divided(1, 0).is_err());
        assert_eq!(scaled_units(10, 0.25), Some(3));
        assert_eq!(scaled_units(-10, 0.25), Some(-3));
        for number in [f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(scaled_units(1, number), None);
        }
    }

    #[test]
    fn what_no_interval_holds_is_none() {
        assert_eq!(times(span(1, 2, 3), -2), Some(span(-2, -4, -6)));
        assert_eq!(times(span(1, 0, 0), i64::MAX), None);
        assert_eq!(times(span(0, 0, 2), i64::MAX), None);
        for number in [f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(by(span(1, 0, 0), |part| part * number), None);
            assert_eq!(by(span(0, 0, 1_000), |part| part * number), None);
        }
    }
}
