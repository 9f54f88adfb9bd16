//! Days and months after an instant, by the clocks of its zone: the engine refuses sums that clocks show twice or leave out.
//!
//! Comes in: an instant and an interval that are added or subtracted. Goes out: a call of a function that works it out: so many months on in the calendar, then as many days, then the rest in time that passes. What clocks
//! would show is taken as the calendar of ICU does: a day is one at whose end they show what they showed before, or as much later as they leave out. Never here: intervals without days and months, timestamps without a zone.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::try_binary;
use arrow::datatypes::{
    ArrowTimestampType, DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow::error::ArrowError;
use arrow::temporal_conversions::as_datetime;
use chrono::{Months, Offset, TimeZone};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, cast,
};

use super::clocks::is_fixed;
use crate::error::{Error, ErrorKind};
use crate::query::functions::timezone::seconds_ahead;

/// What intervals of all units are added as.
const SPAN: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

const SECONDS_OF_A_DAY: i64 = 86_400;
const NANOSECONDS: i64 = 1_000_000_000;

/// The call that a sum or a difference is, if it is of an instant and an interval that may have days.
pub(super) fn by_the_calendar(pair: BinaryExpr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let same = |pair| Ok(Transformed::no(Expr::BinaryExpr(pair)));
    let direction = match pair.op {
        Operator::Plus => Direction::Plus,
        Operator::Minus => Direction::Minus,
        _ => return same(pair),
    };
    let is_moved = |value: &Expr| {
        let kind = value.get_type(schema);
        matches!(kind, Ok(DataType::Timestamp(_, Some(zone))) if !is_fixed(&zone))
    };
    let (instant, span) = match (is_moved(&pair.left), is_moved(&pair.right)) {
        (true, false) if has_days(&pair.right, schema) => (pair.left, pair.right),
        (false, true) if direction == Direction::Plus && has_days(&pair.left, schema) => {
            (pair.right, pair.left)
        }
        _ => return same(pair),
    };
    let span = match span.get_type(schema)? {
        SPAN => *span,
        _ => cast(*span, SPAN),
    };
    let function = ScalarUDF::from(Moved::new(direction));
    Ok(Transformed::yes(function.call(vec![*instant, span])))
}

/// Whether it is an interval, and not one that is known to have neither days nor months.
fn has_days(span: &Expr, schema: &DFSchema) -> bool {
    match span {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(span)), _) => {
            span.months != 0 || span.days != 0
        }
        other => matches!(other.get_type(schema), Ok(DataType::Interval(_))),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Direction {
    Plus,
    Minus,
}

/// An instant, and an interval after or before it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct Moved {
    direction: Direction,
    signature: Signature,
}

impl Moved {
    fn new(direction: Direction) -> Self {
        Self {
            direction,
            signature: Signature::any(2, Volatility::Immutable),
        }
    }

    /// Both of them, for parts of plans.
    #[cfg(feature = "distributed")]
    pub(in crate::query) fn both() -> [Self; 2] {
        [Direction::Plus, Direction::Minus].map(Self::new)
    }
}

impl ScalarUDFImpl for Moved {
    fn name(&self) -> &'static str {
        match self.direction {
            Direction::Plus => "instant_plus",
            Direction::Minus => "instant_minus",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [instant @ DataType::Timestamp(_, Some(_)), SPAN] => Ok(instant.clone()),
            _ => internal_err!("{} of {types:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let are_one = arguments.args.iter().all(is_one);
        let rows = if are_one { 1 } else { arguments.number_rows };
        let [instant, span] = arguments.args.as_slice() else {
            return internal_err!("an instant without an interval");
        };
        let DataType::Timestamp(unit, Some(zone)) = instant.data_type() else {
            return internal_err!("{} of {}", self.name(), instant.data_type());
        };
        let (instants, spans) = (instant.to_array(rows)?, span.to_array(rows)?);
        let moved = match unit {
            TimeUnit::Second => self.moved::<TimestampSecondType>(&instants, &spans, &zone),
            TimeUnit::Millisecond => {
                self.moved::<TimestampMillisecondType>(&instants, &spans, &zone)
            }
            TimeUnit::Microsecond => {
                self.moved::<TimestampMicrosecondType>(&instants, &spans, &zone)
            }
            TimeUnit::Nanosecond => self.moved::<TimestampNanosecondType>(&instants, &spans, &zone),
        }?;
        Ok(match are_one {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&moved, 0)?),
            false => ColumnarValue::Array(moved),
        })
    }
}

impl Moved {
    fn moved<T: ArrowTimestampType>(
        &self,
        instants: &ArrayRef,
        spans: &ArrayRef,
        zone: &Arc<str>,
    ) -> Result<ArrayRef> {
        let clocks: Tz = zone.parse()?;
        let spans = spans.as_primitive::<IntervalMonthDayNanoType>();
        let moved: PrimitiveArray<T> =
            try_binary(instants.as_primitive::<T>(), spans, |instant, span| {
                let span = match self.direction {
                    Direction::Plus => Some(span),
                    Direction::Minus => negative(span),
                };
                span.and_then(|span| later::<T>(instant, span, &clocks))
                    .ok_or_else(beyond)
            })?;
        Ok(Arc::new(moved.with_timezone(Arc::clone(zone))))
    }
}

fn beyond() -> ArrowError {
    let text = "an instant and an interval give one that is beyond the calendar or its unit";
    ArrowError::ExternalError(Box::new(Error::new(ErrorKind::Query, text)))
}

fn negative(span: IntervalMonthDayNano) -> Option<IntervalMonthDayNano> {
    Some(IntervalMonthDayNano::new(
        span.months.checked_neg()?,
        span.days.checked_neg()?,
        span.nanoseconds.checked_neg()?,
    ))
}

/// `None` beyond the calendar and the unit.
fn later<T: ArrowTimestampType>(
    instant: i64,
    span: IntervalMonthDayNano,
    clocks: &Tz,
) -> Option<i64> {
    let per_second = match T::UNIT {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => NANOSECONDS,
    };
    let ahead = |instant: i64| {
        let offset = clocks.offset_from_utc_datetime(&as_datetime::<T>(instant)?);
        Some(i64::from(offset.fix().local_minus_utc()) * per_second)
    };
    let mut moved = instant;
    if span.months != 0 {
        let shown = as_datetime::<T>(moved.checked_add(ahead(moved)?)?)?;
        let months = Months::new(span.months.unsigned_abs());
        let shown = match span.months > 0 {
            true => shown.checked_add_months(months),
            false => shown.checked_sub_months(months),
        }?;
        let at = T::from_naive_datetime(shown, None)?;
        moved = at.checked_sub(seconds_ahead(clocks, shown)? * per_second)?;
    }
    if span.days != 0 {
        let before = ahead(moved)?;
        let days = i64::from(span.days) * SECONDS_OF_A_DAY;
        let as_long = moved.checked_add(days.checked_mul(per_second)?)?;
        let after = ahead(as_long)?;
        let as_shown = as_long.checked_add(before - after)?;
        let is_left_out = before < after && ahead(as_shown)? != after;
        moved = if is_left_out { as_long } else { as_shown };
    }
    let unit = i128::from(NANOSECONDS / per_second);
    let nanoseconds = i128::from(moved) * unit + i128::from(span.nanoseconds);
    i64::try_from(nanoseconds.div_euclid(unit)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(text: &str) -> i64 {
        let read = chrono::DateTime::parse_from_rfc3339(text);
        read.unwrap().timestamp()
    }

    fn moved(instant: &str, months: i32, days: i32, seconds: i64) -> String {
        let span = IntervalMonthDayNano::new(months, days, seconds * NANOSECONDS);
        let zone: Tz = "America/New_York".parse().unwrap();
        let found = later::<TimestampSecondType>(clock(instant), span, &zone).unwrap();
        zone.timestamp_opt(found, 0).unwrap().to_rfc3339()
    }

    #[test]
    fn clocks_that_change_on_the_way_show_what_they_showed() {
        let winter = "2013-03-09T02:30:00-05:00";
        assert_eq!(moved(winter, 0, 0, 86_400), "2013-03-10T03:30:00-04:00");
        assert_eq!(moved(winter, 0, 2, 0), "2013-03-11T02:30:00-04:00");
        assert_eq!(moved(winter, 0, 1, 3_600), "2013-03-10T04:30:00-04:00");
        assert_eq!(
            moved("2013-11-02T12:00:00-04:00", 0, 1, 0),
            "2013-11-03T12:00:00-05:00"
        );
    }

    #[test]
    fn times_that_clocks_leave_out_are_as_much_later() {
        assert_eq!(
            moved("2013-03-09T02:30:00-05:00", 0, 1, 0),
            "2013-03-10T03:30:00-04:00"
        );
        assert_eq!(
            moved("2013-03-11T02:30:00-04:00", 0, -1, 0),
            "2013-03-10T03:30:00-04:00"
        );
        assert_eq!(
            moved("2013-02-10T02:30:00-05:00", 1, 0, 0),
            "2013-03-10T03:30:00-04:00"
        );
    }

    #[test]
    fn times_that_clocks_show_twice_are_those_that_are_as_far_by_days_and_the_second_by_months() {
        assert_eq!(
            moved("2013-11-02T01:30:00-04:00", 0, 1, 0),
            "2013-11-03T01:30:00-04:00"
        );
        assert_eq!(
            moved("2013-11-04T01:30:00-05:00", 0, -1, 0),
            "2013-11-03T01:30:00-05:00"
        );
        assert_eq!(
            moved("2013-10-03T01:30:00-04:00", 1, 0, 0),
            "2013-11-03T01:30:00-05:00"
        );
        assert_eq!(
            moved("2013-11-03T01:30:00-04:00", 0, 0, 3_600),
            "2013-11-03T01:30:00-05:00"
        );
    }

    #[test]
    fn the_end_of_a_month_stays_within_it_and_what_has_no_room_is_none() {
        assert_eq!(
            moved("2013-01-31T12:00:00-05:00", 1, 0, 0),
            "2013-02-28T12:00:00-05:00"
        );
        let zone: Tz = "Europe/Berlin".parse().unwrap();
        let day = IntervalMonthDayNano::new(0, 1, 0);
        for instant in [i64::MAX, i64::MAX - 1_000] {
            assert_eq!(later::<TimestampNanosecondType>(instant, day, &zone), None);
        }
        assert_eq!(negative(IntervalMonthDayNano::new(i32::MIN, 0, 0)), None);
    }
}
