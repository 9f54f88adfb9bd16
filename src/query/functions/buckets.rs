//! `time_bucket(width, moment)`: the begin of the interval that a point in time lies in.
//!
//! Comes in: a width, points in time, and where intervals begin or how much later than usual. Goes out: the begins, in the type of the points in time, by the rules of DuckDB: weeks and what is shorter are counted from a Monday, months from the begin of a year. Never here: `date_bin`, which the engine has, and
//! which knows nothing before 1677.

use std::sync::LazyLock;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use chrono::{DateTime, Datelike, Days, Months, NaiveDate, NaiveDateTime, TimeDelta};
use datafusion::common::{ScalarValue, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_DATETIME;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::prelude::SessionContext;

use crate::error::{Error, ErrorKind};
use crate::query::plan::types::bare::values_of;

/// Adds the function.
pub(super) fn add_to(context: &SessionContext) {
    context.register_udf(ScalarUDF::from(TimeBucket {
        signature: Signature::user_defined(Volatility::Immutable),
    }));
}

const SYNTAX: &str = "time_bucket(width, moment[, origin])";

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    Documentation::builder(
        DOC_SECTION_DATETIME,
        "The begin of the interval that a point in time lies in; weeks begin on Monday.",
        SYNTAX,
    )
    .with_argument(
        "width",
        "An interval of months and years, or of days and what is shorter.",
    )
    .with_argument("moment", "A date or a timestamp, by UTC where it has a zone.")
    .with_argument(
        "origin",
        "A point in time at which an interval begins, of months the first day of its month; or by what interval later than usual they begin.",
    )
    .with_sql_example("SELECT time_bucket(INTERVAL '15 minutes', TIMESTAMP '2013-01-01 05:17:00') -- 2013-01-01T05:15:00")
    .build()
});

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeBucket {
    signature: Signature,
}

impl ScalarUDFImpl for TimeBucket {
    fn name(&self) -> &'static str {
        "time_bucket"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&DOCUMENTATION)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let (width, moment, origin) = match types {
            [width, moment] => (width, moment, None),
            [width, moment, origin] => (width, moment, Some(origin)),
            _ => return plan_err!("it is {SYNTAX}, got {} arguments", types.len()),
        };
        let interval = DataType::Interval(IntervalUnit::MonthDayNano);
        if !is_interval(width) && !is_text(width) {
            return plan_err!("width of time_bucket must be an interval, got {width}");
        }
        let moment = match values_of(moment) {
            DataType::Date32 | DataType::Date64 => match origin.map(values_of) {
                // What begins within a day is no date.
                Some(DataType::Timestamp(..)) => DataType::Timestamp(TimeUnit::Microsecond, None),
                _ => DataType::Date32,
            },
            kind @ DataType::Timestamp(..) => kind.clone(),
            kind if is_text(kind) => DataType::Timestamp(TimeUnit::Microsecond, None),
            other => {
                return plan_err!("moment of time_bucket must be a point in time, got {other}");
            }
        };
        let origin = match origin.map(values_of) {
            None => None,
            Some(kind) if is_interval(kind) => Some(interval.clone()),
            Some(kind @ DataType::Timestamp(..)) => Some(kind.clone()),
            Some(DataType::Date32 | DataType::Date64) => Some(DataType::Date32),
            Some(kind) if is_text(kind) => Some(DataType::Timestamp(TimeUnit::Microsecond, None)),
            Some(other) => {
                return plan_err!(
                    "origin of time_bucket must be a point in time or an interval, got {other}"
                );
            }
        };
        Ok([interval, moment].into_iter().chain(origin).collect())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [_, moment, ..] => Ok(moment.clone()),
            _ => internal_err!("time_bucket of nothing"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_same = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let are_same = arguments.args.iter().all(is_same);
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let begins = begins(&arrays)?;
        Ok(match are_same {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&begins, 0)?),
            false => ColumnarValue::Array(begins),
        })
    }
}

fn is_interval(kind: &DataType) -> bool {
    matches!(kind, DataType::Interval(_) | DataType::Duration(_))
}

fn is_text(kind: &DataType) -> bool {
    let kind = values_of(kind);
    kind.is_string() || kind.is_null()
}

const NANOS_OF_DAY: i128 = 86_400_000_000_000;

/// The nanoseconds of a unit of points in time of a type.
fn nanos_of(kind: &DataType) -> Result<i128> {
    Ok(match kind {
        DataType::Date32 => NANOS_OF_DAY,
        DataType::Timestamp(TimeUnit::Second, _) => 1_000_000_000,
        DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => 1,
        other => return internal_err!("a point in time that is {other}"),
    })
}

/// Points in time, in the units of their type.
struct Moments {
    units: Int64Array,
    nanos: i128,
}

impl Moments {
    fn of(moments: &ArrayRef) -> Result<Self> {
        let nanos = nanos_of(moments.data_type())?;
        let moments = match moments.data_type() {
            DataType::Date32 => cast(&cast(moments, &DataType::Int32)?, &DataType::Int64)?,
            _ => cast(moments, &DataType::Int64)?,
        };
        Ok(Self {
            units: moments.as_primitive::<Int64Type>().clone(),
            nanos,
        })
    }

    /// In nanoseconds since 1970.
    fn at(&self, row: usize) -> Option<i128> {
        let is_there = self.units.is_valid(row);
        is_there.then(|| i128::from(self.units.value(row)) * self.nanos)
    }
}

/// Where intervals begin.
enum Origins<'a> {
    Usual,
    At(Moments),
    Later(&'a arrow::array::IntervalMonthDayNanoArray),
}

fn begins(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let (widths, moments, origins) = match arrays {
        [widths, moments] => (widths, moments, Origins::Usual),
        [widths, moments, origins] if is_interval(origins.data_type()) => {
            (widths, moments, Origins::Later(origins.as_primitive()))
        }
        [widths, moments, origins] => (widths, moments, Origins::At(Moments::of(origins)?)),
        _ => return internal_err!("time_bucket of {} values", arrays.len()),
    };
    let widths = widths.as_primitive::<IntervalMonthDayNanoType>();
    let kind = moments.data_type();
    let moments = Moments::of(moments)?;
    let of_row = |row: usize| {
        let (Some(moment), true) = (moments.at(row), widths.is_valid(row)) else {
            return Ok(None);
        };
        let width = Width::of(widths.value(row))?;
        let begin = match &origins {
            Origins::Usual => width.begin(moment, width.usual_origin()),
            Origins::At(origins) => match origins.at(row) {
                Some(origin) => width.begin(moment, origin),
                None => return Ok(None),
            },
            Origins::Later(later) if later.is_null(row) => return Ok(None),
            Origins::Later(later) => {
                let later = later.value(row);
                let earlier = moved(moment, later, true);
                let begin = earlier.and_then(|moment| width.begin(moment, width.usual_origin()));
                begin.and_then(|begin| moved(begin, later, false))
            }
        };
        let units = begin.map(|begin| begin.div_euclid(moments.nanos));
        let units = units.and_then(|units| match kind {
            DataType::Date32 => i32::try_from(units).ok().map(i64::from),
            _ => i64::try_from(units).ok(),
        });
        match units {
            Some(units) => Ok(Some(units)),
            None => {
                let text = format!("time_bucket has no {kind} for the begin of an interval");
                Err(Error::new(ErrorKind::Query, text).into())
            }
        }
    };
    let begins: Int64Array = (0..widths.len()).map(of_row).collect::<Result<_>>()?;
    Ok(match kind {
        DataType::Date32 => cast(&cast(&begins, &DataType::Int32)?, kind)?,
        kind => cast(&begins, kind)?,
    })
}

/// How wide intervals are.
enum Width {
    Months(i64),
    Nanos(i128),
}

impl Width {
    fn of(width: IntervalMonthDayNano) -> Result<Self> {
        let refused = |must: &str| {
            let text = format!("the width of time_bucket must be {must}");
            Err(Error::new(ErrorKind::Query, text)
                .with_hint("such as INTERVAL '15 minutes' or INTERVAL '1 month'")
                .into())
        };
        let nanos = i128::from(width.days) * NANOS_OF_DAY + i128::from(width.nanoseconds);
        match (width.months, nanos) {
            (months @ 1.., 0) => Ok(Self::Months(i64::from(months))),
            (0, nanos @ 1..) => Ok(Self::Nanos(nanos)),
            (0, _) | (_, 0) => refused("more than nothing"),
            _ => refused("of months, or of days and what is shorter, and not of both"),
        }
    }

    /// 2000-01-01, and the Monday after it, in nanoseconds since 1970.
    fn usual_origin(&self) -> i128 {
        match self {
            Self::Months(_) => 10_957 * NANOS_OF_DAY,
            Self::Nanos(_) => 10_959 * NANOS_OF_DAY,
        }
    }

    /// The begin of the interval of a point in time; `None` where the calendar has none.
    fn begin(&self, moment: i128, origin: i128) -> Option<i128> {
        match self {
            Self::Nanos(width) => Some(moment - (moment - origin).rem_euclid(*width)),
            Self::Months(width) => {
                let (month, from) = (month_of(moment)?, month_of(origin)?);
                let month = month - (month - from).rem_euclid(*width);
                let year = i32::try_from(month.div_euclid(12)).ok()?;
                let of_year = u32::try_from(month.rem_euclid(12)).ok()?;
                let first = NaiveDate::from_ymd_opt(year, of_year + 1, 1)?;
                Some(nanos_since(first.and_hms_opt(0, 0, 0)?))
            }
        }
    }
}

/// Months since the year 0.
fn month_of(moment: i128) -> Option<i64> {
    let date = clock(moment)?.date();
    Some(i64::from(date.year()) * 12 + i64::from(date.month0()))
}

fn clock(moment: i128) -> Option<NaiveDateTime> {
    let seconds = i64::try_from(moment.div_euclid(1_000_000_000)).ok()?;
    let nanos = u32::try_from(moment.rem_euclid(1_000_000_000)).ok()?;
    Some(DateTime::from_timestamp(seconds, nanos)?.naive_utc())
}

fn nanos_since(clock: NaiveDateTime) -> i128 {
    let moment = clock.and_utc();
    i128::from(moment.timestamp()) * 1_000_000_000 + i128::from(moment.timestamp_subsec_nanos())
}

/// A point in time that is later by an interval, or earlier.
fn moved(moment: i128, by: IntervalMonthDayNano, is_earlier: bool) -> Option<i128> {
    let sign = if is_earlier { -1 } else { 1 };
    let (months, days) = (i64::from(by.months) * sign, i64::from(by.days) * sign);
    let mut clock = clock(moment)?;
    let count = u32::try_from(months.unsigned_abs()).ok()?;
    clock = match months < 0 {
        true => clock.checked_sub_months(Months::new(count))?,
        false => clock.checked_add_months(Months::new(count))?,
    };
    let count = Days::new(days.unsigned_abs());
    clock = match days < 0 {
        true => clock.checked_sub_days(count)?,
        false => clock.checked_add_days(count)?,
    };
    let rest = TimeDelta::nanoseconds(by.nanoseconds);
    clock = match is_earlier {
        true => clock.checked_sub_signed(rest)?,
        false => clock.checked_add_signed(rest)?,
    };
    Some(nanos_since(clock))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(text: &str) -> i128 {
        nanos_since(text.parse().unwrap())
    }

    #[test]
    fn intervals_begin_where_they_are_counted_from() {
        let width = |months, days, nanoseconds| {
            Width::of(IntervalMonthDayNano {
                months,
                days,
                nanoseconds,
            })
        };
        let days = width(0, 3, 0).unwrap();
        for (moment, begin) in [
            ("1700-01-01T00:00:00", "1699-12-31T00:00:00"),
            ("2000-01-03T00:00:00", "2000-01-03T00:00:00"),
            ("2000-01-02T23:59:59", "1999-12-31T00:00:00"),
        ] {
            let found = days.begin(nanos(moment), days.usual_origin());
            assert_eq!(found, Some(nanos(begin)), "{moment}");
        }
        let months = width(5, 0, 0).unwrap();
        let found = months.begin(nanos("2000-01-01T00:00:00"), nanos("1999-12-15T00:00:00"));
        assert_eq!(found, Some(nanos("1999-12-01T00:00:00")));
        let year = width(12, 0, 0).unwrap();
        let found = year.begin(nanos("1500-03-04T00:00:00"), year.usual_origin());
        assert_eq!(found, Some(nanos("1500-01-01T00:00:00")));
        for (months, days, nanos) in [(0, 0, 0), (-1, 0, 0), (0, -1, 0), (1, 1, 0), (0, 1, -NANOS)]
        {
            assert!(width(months, days, nanos).is_err());
        }
    }

    const NANOS: i64 = 86_400_000_000_000;

    #[test]
    fn what_is_moved_comes_back() {
        let by = IntervalMonthDayNano {
            months: 1,
            days: -2,
            nanoseconds: 5,
        };
        let moment = nanos("2020-03-15T12:00:00");
        let there = moved(moment, by, false).unwrap();
        assert_eq!(there, nanos("2020-04-13T12:00:00.000000005"));
        assert_eq!(moved(there, by, true), Some(moment));
    }
}
