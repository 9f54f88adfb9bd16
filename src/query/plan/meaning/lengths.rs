//! How long intervals are, and what they are made of.
//!
//! Comes in: comparisons of intervals, `greatest` and `least` of them, and EXTRACT from them and from differences of timestamps. Goes out: the same by length, a month being 30 days and a day 24 hours, as DuckDB and PostgreSQL have it: the engine
//! compares months, then days, then time, and gives of a difference the whole in each unit. Never here: ORDER BY and GROUP BY, which tell `1 day` from `24 hours`.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Decimal128Array, Float64Array, Int32Array,
    Int64Array, PrimitiveArray,
};
use arrow::compute::cast as cast_array;
use arrow::datatypes::{
    DataType, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
    DurationSecondType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Between, InList, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, cast, lit,
};

use crate::error::{Error, ErrorKind};
use crate::query::plan::types::compares;

/// What intervals of all units are worked out in.
const SPAN: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// The nanoseconds of any interval.
const LENGTH: DataType = DataType::Decimal128(38, 0);

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;
const DAYS_OF_A_MONTH: i128 = 30;

/// Seconds of a year of 365.25 days, and of a month of 30.
const SECONDS_OF_A_YEAR: f64 = 31_557_600.0;
const SECONDS_OF_A_MONTH: f64 = 2_592_000.0;

/// How many nanoseconds an interval has.
pub(in crate::query) fn length(span: IntervalMonthDayNano) -> i128 {
    let days = i128::from(span.months) * DAYS_OF_A_MONTH + i128::from(span.days);
    days * i128::from(DAY) + i128::from(span.nanoseconds)
}

fn is_span(part: &Expr, schema: &DFSchema) -> bool {
    matches!(part.get_type(schema), Ok(DataType::Interval(_)))
}

/// The comparison by length, if it is one of intervals.
pub(super) fn by_length(expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let length = |part: Expr| ScalarUDF::from(Length::new()).call(vec![cast(part, SPAN)]);
    match expression {
        Expr::BinaryExpr(pair) if compares(pair.op) && is_span(&pair.left, schema) => {
            let sides = [*pair.left, *pair.right].map(|side| Box::new(length(side)));
            let [left, right] = sides;
            Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(left, pair.op, right)))
        }
        Expr::Between(between) if is_span(&between.expr, schema) => {
            let parts = [*between.expr, *between.low, *between.high];
            let [value, low, high] = parts.map(|part| Box::new(length(part)));
            Transformed::yes(Expr::Between(Between::new(
                value,
                between.negated,
                low,
                high,
            )))
        }
        Expr::InList(list) if is_span(&list.expr, schema) => {
            let value = Box::new(length(*list.expr));
            let values = list.list.into_iter().map(length).collect();
            Transformed::yes(Expr::InList(InList::new(value, values, list.negated)))
        }
        Expr::Case(mut case)
            if case
                .expr
                .as_ref()
                .is_some_and(|value| is_span(value, schema)) =>
        {
            case.expr = case.expr.map(|value| Box::new(length(*value)));
            for (wanted, _) in &mut case.when_then_expr {
                **wanted = length(std::mem::take(wanted.as_mut()));
            }
            Transformed::yes(Expr::Case(case))
        }
        other => Transformed::no(other),
    }
}

/// The longest or the shortest of intervals in each row, without nulls as long as there is another.
///
/// # Errors
/// None of ours.
pub(in crate::query) fn longest(
    spans: &[ColumnarValue],
    rows: usize,
    is_longest: bool,
) -> Result<ColumnarValue> {
    let arrays = spans
        .iter()
        .map(|spans| cast_array(&spans.to_array(rows)?, &SPAN).map_err(Into::into))
        .collect::<Result<Vec<ArrayRef>>>()?;
    let at = |row: usize| {
        let spans = arrays
            .iter()
            .map(|spans| spans.as_primitive::<IntervalMonthDayNanoType>());
        let spans = spans.filter(|spans| spans.is_valid(row));
        let spans = spans.map(|spans| spans.value(row));
        match is_longest {
            true => spans.max_by_key(|span| length(*span)),
            false => spans.min_by_key(|span| length(*span)),
        }
    };
    let found: PrimitiveArray<IntervalMonthDayNanoType> = (0..rows).map(at).collect();
    Ok(ColumnarValue::Array(Arc::new(found)))
}

/// EXTRACT from an interval, or from the difference of two timestamps.
pub(in crate::query) fn part_of(call: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
    let part = match call.args.as_slice() {
        [Expr::Literal(part, _), value] if call.func.name() == "date_part" => {
            let kind = value.get_type(schema);
            let is_span = matches!(kind, Ok(DataType::Interval(_) | DataType::Duration(_)));
            let part = part.try_as_str().flatten().and_then(Part::of);
            part.filter(|_| is_span).map(|part| (part, kind))
        }
        _ => None,
    };
    let (Some((part, kind)), Some(value)) = (part, call.args.get(1)) else {
        return Transformed::no(Expr::ScalarFunction(call));
    };
    let value = match kind {
        Ok(DataType::Interval(_)) => cast(value.clone(), SPAN),
        _ => value.clone(),
    };
    let arguments = vec![lit(part.name()), value];
    Transformed::yes(ScalarUDF::from(PartOf::new()).call(arguments))
}

/// The nanoseconds of an interval.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct Length {
    signature: Signature,
}

impl Length {
    pub(in crate::query) fn new() -> Self {
        Self {
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for Length {
    fn name(&self) -> &'static str {
        "interval_length"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(LENGTH)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [spans] = arguments.args.as_slice() else {
            return datafusion::common::internal_err!("the length of something else");
        };
        over_rows(spans, |spans| {
            let spans = spans.as_primitive::<IntervalMonthDayNanoType>();
            let lengths: Decimal128Array = spans.unary(length);
            Ok(Arc::new(lengths.with_precision_and_scale(38, 0)?))
        })
    }
}

/// What is worked out of a value or of many.
fn over_rows(
    value: &ColumnarValue,
    work: impl Fn(&ArrayRef) -> Result<ArrayRef>,
) -> Result<ColumnarValue> {
    Ok(match value {
        ColumnarValue::Array(values) => ColumnarValue::Array(work(values)?),
        ColumnarValue::Scalar(value) => {
            let made = work(&value.to_array()?)?;
            ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?)
        }
    })
}

/// What intervals are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Millennium,
    Century,
    Decade,
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
    Epoch,
}

impl Part {
    const ALL: [(Self, &'static [&'static str]); 15] = [
        (
            Self::Millennium,
            &["millennium", "millenniums", "millennia"],
        ),
        (Self::Century, &["century", "centuries", "c"]),
        (Self::Decade, &["decade", "decades", "dec", "decs"]),
        (Self::Year, &["year", "years", "y", "yr", "yrs"]),
        (Self::Quarter, &["quarter", "quarters", "qtr", "qtrs"]),
        (Self::Month, &["month", "months", "mon", "mons"]),
        (Self::Week, &["week", "weeks", "w"]),
        (Self::Day, &["day", "days", "d"]),
        (Self::Hour, &["hour", "hours", "h", "hr", "hrs"]),
        (Self::Minute, &["minute", "minutes", "m", "min", "mins"]),
        (Self::Second, &["second", "seconds", "s", "sec", "secs"]),
        (
            Self::Millisecond,
            &["millisecond", "milliseconds", "ms", "msec", "msecs"],
        ),
        (
            Self::Microsecond,
            &["microsecond", "microseconds", "us", "usec", "usecs"],
        ),
        (
            Self::Nanosecond,
            &["nanosecond", "nanoseconds", "ns", "nsec", "nsecs"],
        ),
        (Self::Epoch, &["epoch"]),
    ];

    /// The part of a name.
    fn of(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        let mut all = Self::ALL.iter();
        let found = all.find(|(_, names)| names.contains(&name.as_str()));
        found.map(|(part, _)| *part)
    }

    fn name(self) -> &'static str {
        let mut all = Self::ALL.iter();
        let found = all.find(|(part, _)| *part == self);
        found.and_then(|(_, names)| names.first()).unwrap_or(&"")
    }

    /// The whole number of it in an interval: seconds have what is above them taken off, hours and days have not.
    fn of_span(self, span: IntervalMonthDayNano) -> i64 {
        let months = i64::from(span.months);
        let time = span.nanoseconds;
        let minute = 60 * SECOND;
        match self {
            Self::Millennium => months / 12_000,
            Self::Century => months / 1_200,
            Self::Decade => months / 120,
            Self::Year => months / 12,
            Self::Quarter => months % 12 / 3 + 1,
            Self::Month => months % 12,
            Self::Week => i64::from(span.days / 7),
            Self::Day => i64::from(span.days),
            Self::Hour => time / (60 * minute),
            Self::Minute => time / minute % 60,
            Self::Second => time % minute / SECOND,
            Self::Millisecond => time % minute / 1_000_000,
            Self::Microsecond => time % minute / 1_000,
            Self::Nanosecond => time % minute,
            Self::Epoch => 0,
        }
    }
}

/// Seconds, with parts of them.
fn seconds(span: IntervalMonthDayNano) -> f64 {
    let (years, months) = (span.months / 12, span.months % 12);
    let days = f64::from(span.days) * 86_400.0;
    // Whole seconds are exact for longer than all together would be.
    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds of an i64 of nanoseconds fit"
    )]
    let whole = (span.nanoseconds / SECOND) as f64;
    #[expect(clippy::cast_precision_loss, reason = "less than a second")]
    let rest = (span.nanoseconds % SECOND) as f64 / 1e9;
    f64::from(years) * SECONDS_OF_A_YEAR
        + f64::from(months) * SECONDS_OF_A_MONTH
        + days
        + whole
        + rest
}

/// `date_part` of intervals and durations.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct PartOf {
    signature: Signature,
}

impl PartOf {
    pub(in crate::query) fn new() -> Self {
        Self {
            signature: Signature::any(2, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for PartOf {
    fn name(&self) -> &'static str {
        "interval_part"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        datafusion::common::internal_err!("the type goes by the part")
    }

    fn return_field_from_args(
        &self,
        arguments: datafusion::logical_expr::ReturnFieldArgs<'_>,
    ) -> Result<arrow::datatypes::FieldRef> {
        let part = arguments.scalar_arguments.first().copied().flatten();
        let part = part.and_then(|part| part.try_as_str().flatten());
        let data_type = match part.and_then(Part::of) {
            Some(Part::Epoch) => DataType::Float64,
            Some(Part::Nanosecond) => DataType::Int64,
            _ => DataType::Int32,
        };
        let field = arrow::datatypes::Field::new(self.name(), data_type, true);
        Ok(Arc::new(field))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(part), value] = arguments.args.as_slice() else {
            return datafusion::common::internal_err!("a part of an interval without its name");
        };
        let part = part.try_as_str().flatten().and_then(Part::of);
        let Some(part) = part else {
            return datafusion::common::internal_err!("a part that intervals do not have");
        };
        over_rows(value, |values| {
            let spans = spans_of(values)?;
            if part == Part::Epoch {
                let made: Float64Array = spans.unary(seconds);
                return Ok(Arc::new(made));
            }
            if part == Part::Nanosecond {
                let made: Int64Array = spans.unary(|span| part.of_span(span));
                return Ok(Arc::new(made));
            }
            let made: Int32Array = spans.try_unary(|span| {
                i32::try_from(part.of_span(span)).map_err(|_| {
                    let text = format!("the {} of an interval are beyond INTEGER", part.name());
                    Error::new(ErrorKind::Query, text)
                })
            })?;
            Ok(Arc::new(made))
        })
    }
}

/// Intervals as they are; durations as days and the time of a day.
fn spans_of(values: &ArrayRef) -> Result<PrimitiveArray<IntervalMonthDayNanoType>> {
    Ok(match values.data_type() {
        DataType::Duration(TimeUnit::Second) => days_of::<DurationSecondType>(values, 1),
        DataType::Duration(TimeUnit::Millisecond) => {
            days_of::<DurationMillisecondType>(values, 1_000)
        }
        DataType::Duration(TimeUnit::Microsecond) => {
            days_of::<DurationMicrosecondType>(values, 1_000_000)
        }
        DataType::Duration(TimeUnit::Nanosecond) => {
            days_of::<DurationNanosecondType>(values, SECOND)
        }
        _ => {
            let spans = cast_array(values, &SPAN)?;
            spans.as_primitive::<IntervalMonthDayNanoType>().clone()
        }
    })
}

fn days_of<T: ArrowPrimitiveType<Native = i64>>(
    values: &ArrayRef,
    units_of_a_second: i64,
) -> PrimitiveArray<IntervalMonthDayNanoType> {
    let day = 86_400 * units_of_a_second;
    values.as_primitive::<T>().unary(|count| {
        // More days than that no timestamps of Arrow are apart that are years of four digits.
        let days = i32::try_from(count / day).unwrap_or(i32::MAX);
        let rest = count % day * (SECOND / units_of_a_second);
        IntervalMonthDayNano::new(0, days, rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(months: i32, days: i32, nanoseconds: i64) -> IntervalMonthDayNano {
        IntervalMonthDayNano::new(months, days, nanoseconds)
    }

    #[test]
    fn a_month_is_as_long_as_30_days() {
        assert_eq!(length(span(1, 0, 0)), length(span(0, 30, 0)));
        assert_eq!(length(span(0, 1, 0)), length(span(0, 0, DAY)));
        assert!(length(span(i32::MAX, i32::MAX, i64::MAX)) > length(span(i32::MAX, 0, 0)));
        assert!(length(span(0, -1, 0)) < 0);
    }

    #[test]
    fn parts_are_those_of_postgres() {
        let long = span(14 + 120, 9, 26 * 3600 * SECOND + 61 * SECOND + 500_000_000);
        let expected = [
            (Part::Century, 0),
            (Part::Decade, 1),
            (Part::Year, 11),
            (Part::Quarter, 1),
            (Part::Month, 2),
            (Part::Week, 1),
            (Part::Day, 9),
            (Part::Hour, 26),
            (Part::Minute, 1),
            (Part::Second, 1),
            (Part::Millisecond, 1_500),
            (Part::Microsecond, 1_500_000),
            (Part::Nanosecond, 1_500_000_000),
        ];
        for (part, number) in expected {
            assert_eq!(part.of_span(long), number, "{part:?}");
            assert_eq!(Part::of(part.name()), Some(part));
            assert_eq!(Part::of(&part.name().to_uppercase()), Some(part));
        }
        let year = seconds(span(12, 0, 0));
        assert!((year - 31_557_600.0).abs() < 1e-6, "{year}");
    }
}
