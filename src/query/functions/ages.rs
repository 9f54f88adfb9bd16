//! `age(end, begin)`: what lies between two points in time, in years, months and days as people count them.
//!
//! Comes in: two points in time. Goes out: an interval by the rules of PostgreSQL and DuckDB: what each part of the one is more than that of the other, with the days of the month of the earlier one where days are missing. Never here: differences in time that passes, which `-` gives.

use std::sync::{Arc, LazyLock};

use arrow::array::timezone::Tz;
use arrow::array::{ArrayRef, AsArray, IntervalMonthDayNanoArray};
use arrow::datatypes::{
    DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, Timelike, Utc};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_DATETIME;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::prelude::SessionContext;

/// Adds the function.
pub(super) fn add_to(context: &SessionContext) {
    context.register_udf(ScalarUDF::from(Age {
        signature: Signature::user_defined(Volatility::Immutable),
    }));
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    Documentation::builder(
        DOC_SECTION_DATETIME,
        "What lies between two points in time, in years, months, days and the rest in time; of instants by the clocks of their zones.",
        "age(end, begin)",
    )
    .with_argument("end", "A date or a timestamp.")
    .with_argument("begin", "Another one; less than nothing lies between where it is later.")
    .with_sql_example("SELECT age(DATE '2013-03-29', DATE '2013-01-30') -- 1 month 30 days")
    .build()
});

#[derive(Debug, PartialEq, Eq, Hash)]
struct Age {
    signature: Signature,
}

impl ScalarUDFImpl for Age {
    fn name(&self) -> &'static str {
        "age"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&DOCUMENTATION)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if types.len() != 2 {
            return plan_err!(
                "age takes (end, begin), got {} arguments; that of today is age(current_date, begin)",
                types.len()
            );
        }
        let moment = |kind: &DataType| match kind {
            DataType::Timestamp(_, zone) => {
                Ok(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))
            }
            DataType::Date32 | DataType::Date64 | DataType::Null => {
                Ok(DataType::Timestamp(TimeUnit::Microsecond, None))
            }
            kind if kind.is_string() => Ok(DataType::Timestamp(TimeUnit::Microsecond, None)),
            other => plan_err!("age takes dates and timestamps, got {other}"),
        };
        types.iter().map(moment).collect()
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let are_scalars = arguments.args.iter().all(is_one);
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let [ends, begins] = arrays.as_slice() else {
            return datafusion::common::internal_err!("an age of {} values", arrays.len());
        };
        let (ends, begins) = (clocks(ends)?, clocks(begins)?);
        let ages = ends.into_iter().zip(begins);
        let ages = ages.map(|(end, begin)| Some(between(end?, begin?)));
        let ages: ArrayRef = Arc::new(ages.collect::<IntervalMonthDayNanoArray>());
        Ok(match are_scalars {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&ages, 0)?),
            false => ColumnarValue::Array(ages),
        })
    }
}

/// What clocks show at points in time of microseconds.
pub(super) fn clocks(moments: &ArrayRef) -> Result<Vec<Option<NaiveDateTime>>> {
    let zone = match moments.data_type() {
        DataType::Timestamp(_, Some(zone)) => Some(zone.parse::<Tz>()?),
        _ => None,
    };
    let moments = moments.as_primitive::<TimestampMicrosecondType>().iter();
    let shown = moments.map(|moment| {
        let moment: DateTime<Utc> = DateTime::from_timestamp_micros(moment?)?;
        Some(match &zone {
            Some(zone) => moment.with_timezone(zone).naive_local(),
            None => moment.naive_utc(),
        })
    });
    Ok(shown.collect())
}

/// The parts of a point in time, or of what lies between two.
struct Parts {
    months: i32,
    days: i32,
    nanoseconds: i64,
}

impl Parts {
    fn of(moment: NaiveDateTime) -> Self {
        let seconds = i64::from(moment.num_seconds_from_midnight());
        Self {
            months: moment.year() * 12 + moment.month0().cast_signed(),
            days: moment.day().cast_signed(),
            nanoseconds: seconds * NANOSECONDS + i64::from(moment.nanosecond()),
        }
    }
}

const NANOSECONDS: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * NANOSECONDS;

/// The age at an end of what began.
pub(super) fn between(end: NaiveDateTime, begin: NaiveDateTime) -> IntervalMonthDayNano {
    let (earlier, later) = (end.min(begin), end.max(begin));
    let (of_earlier, of_later) = (Parts::of(earlier), Parts::of(later));
    let mut parts = Parts {
        months: of_later.months - of_earlier.months,
        days: of_later.days - of_earlier.days,
        nanoseconds: of_later.nanoseconds - of_earlier.nanoseconds,
    };
    if parts.nanoseconds < 0 {
        parts.nanoseconds += DAY;
        parts.days -= 1;
    }
    while parts.days < 0 {
        parts.days += days_of_month(earlier.date());
        parts.months -= 1;
    }
    let sign = if end < begin { -1 } else { 1 };
    IntervalMonthDayNano::new(
        parts.months * sign,
        parts.days * sign,
        parts.nanoseconds * i64::from(sign),
    )
}

fn days_of_month(day: NaiveDate) -> i32 {
    i32::from(day.num_days_in_month())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(text: &str) -> NaiveDateTime {
        text.parse().unwrap()
    }

    #[test]
    fn days_that_are_missing_are_those_of_the_earlier_month() {
        let hour = 3_600 * NANOSECONDS;
        for (end, begin, wanted) in [
            ("2013-03-29T00:00:00", "2013-01-30T00:00:00", (1, 30, 0)),
            ("2013-03-01T00:00:00", "2013-01-31T00:00:00", (1, 1, 0)),
            (
                "2014-02-28T05:00:00",
                "2013-02-28T03:00:00",
                (12, 0, 2 * hour),
            ),
            (
                "2013-03-01T01:00:00",
                "2013-02-28T02:00:00",
                (0, 0, 23 * hour),
            ),
            ("2013-01-01T00:00:00", "2013-01-01T00:00:00", (0, 0, 0)),
        ] {
            let (months, days, nanoseconds) = wanted;
            let (end, begin) = (moment(end), moment(begin));
            let wanted = IntervalMonthDayNano::new(months, days, nanoseconds);
            assert_eq!(between(end, begin), wanted, "{end} {begin}");
            let back = IntervalMonthDayNano::new(-months, -days, -nanoseconds);
            assert_eq!(between(begin, end), back, "{begin} {end}");
        }
    }
}
