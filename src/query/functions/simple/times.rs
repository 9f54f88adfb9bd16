//! Milliseconds of points in time and of spans, and points in time of milliseconds.
//!
//! Comes in: whole numbers, dates, timestamps, times of a day, intervals. Goes out: timestamps of the numbers, numbers of all else. Never here: other parts of points in time (`rewrite/synonyms/`).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_DATETIME;

use super::{Function, Takes, is_text, wrong};

pub(super) const ALL: &[Function] = &[Function {
    name: "epoch_ms",
    aliases: &[],
    section: DOC_SECTION_DATETIME,
    about: "The milliseconds since 1970-01-01 of a point in time, those since midnight of a time of a day, those of an interval, whose months have 30 days; of a whole number, the timestamp so many milliseconds after 1970-01-01.",
    takes: &[("moment", Takes::Any)],
    least: 1,
    repeats: false,
    returned,
    made: |arrays| match arrays {
        [moments] => made(moments),
        _ => plan_err!("epoch_ms of {} values", arrays.len()),
    },
}];

/// What timestamps of the engine are.
pub(super) const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Nanosecond, None);

/// A day, in milliseconds.
const DAY: i64 = 86_400_000;

fn returned(types: &[DataType]) -> Result<DataType> {
    match types {
        [kind] if kind.is_integer() => Ok(TIMESTAMP),
        [kind] if kind.is_temporal() || is_text(kind) => Ok(DataType::Int64),
        _ => {
            let got: Vec<String> = types.iter().map(ToString::to_string).collect();
            plan_err!(
                "epoch_ms takes a point in time, a time of a day, an interval or a whole number, got {}",
                got.join(", ")
            )
        }
    }
}

fn made(moments: &ArrayRef) -> Result<ArrayRef> {
    let checked = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    match moments.data_type() {
        kind if kind.is_integer() => {
            let milliseconds = cast_with_options(moments, &DataType::Int64, &checked)?;
            timestamps(milliseconds.as_primitive())
        }
        kind if is_text(kind) => milliseconds(&cast_with_options(moments, &TIMESTAMP, &checked)?),
        _ => milliseconds(moments),
    }
}

/// Timestamps so many milliseconds after 1970-01-01.
fn timestamps(milliseconds: &Int64Array) -> Result<ArrayRef> {
    let nanoseconds = milliseconds.iter().map(|number| match number {
        None => Ok(None),
        Some(number) => match number.checked_mul(1_000_000) {
            Some(nanoseconds) => Ok(Some(nanoseconds)),
            None => Err(wrong(format!(
                "epoch_ms takes milliseconds of the years 1678 to 2261, got {number}"
            ))),
        },
    });
    let nanoseconds: Int64Array = nanoseconds.collect::<Result<_, _>>()?;
    Ok(cast(&nanoseconds, &TIMESTAMP)?)
}

/// The milliseconds of points in time and spans, rounded down.
fn milliseconds(moments: &ArrayRef) -> Result<ArrayRef> {
    let scaled = |numbers: &Int64Array, scale: fn(i64) -> Option<i64>| {
        let numbers = numbers.iter().map(|number| match number {
            None => Ok(None),
            Some(number) => match scale(number) {
                Some(milliseconds) => Ok(Some(milliseconds)),
                None => Err(wrong("epoch_ms of a point in time that is too far away")),
            },
        });
        let numbers: Int64Array = numbers.collect::<Result<_, _>>()?;
        Ok(Arc::new(numbers) as ArrayRef)
    };
    let scale: fn(i64) -> Option<i64> = match moments.data_type() {
        DataType::Date32 => |days| days.checked_mul(DAY),
        DataType::Timestamp(unit, _)
        | DataType::Time32(unit)
        | DataType::Time64(unit)
        | DataType::Duration(unit) => match unit {
            TimeUnit::Second => |seconds| seconds.checked_mul(1_000),
            TimeUnit::Millisecond => Some,
            TimeUnit::Microsecond => |number| Some(number.div_euclid(1_000)),
            TimeUnit::Nanosecond => |number| Some(number.div_euclid(1_000_000)),
        },
        DataType::Interval(_) => return of_intervals(moments),
        _ => Some,
    };
    let numbers = match moments.data_type() {
        // Of 32 bits; 64 bits cannot be had of them at once.
        DataType::Date32 | DataType::Time32(_) => {
            cast(&cast(moments, &DataType::Int32)?, &DataType::Int64)?
        }
        _ => cast(moments, &DataType::Int64)?,
    };
    scaled(numbers.as_primitive::<Int64Type>(), scale)
}

fn of_intervals(intervals: &ArrayRef) -> Result<ArrayRef> {
    let intervals = cast(intervals, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>().iter();
    let milliseconds = intervals.map(|interval| {
        let interval = interval?;
        let days = i64::from(interval.months) * 30 + i64::from(interval.days);
        Some(days * DAY + interval.nanoseconds.div_euclid(1_000_000))
    });
    Ok(Arc::new(milliseconds.collect::<Int64Array>()))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, TimestampMicrosecondArray, UInt64Array};

    use super::*;

    fn numbers(moments: ArrayRef) -> Vec<Option<i64>> {
        let made = made(&moments).unwrap();
        made.as_primitive::<Int64Type>().iter().collect()
    }

    #[test]
    fn points_in_time_are_rounded_down() {
        let moments = TimestampMicrosecondArray::from(vec![Some(1_999), Some(-1), None]);
        assert_eq!(numbers(Arc::new(moments)), [Some(1), Some(-1), None]);
        let days = Date32Array::from(vec![1, -1]);
        assert_eq!(numbers(Arc::new(days)), [Some(DAY), Some(-DAY)]);
    }

    #[test]
    fn numbers_too_large_are_refused() {
        for number in [u64::MAX, i64::MAX as u64] {
            let moments: ArrayRef = Arc::new(UInt64Array::from(vec![number]));
            assert!(made(&moments).is_err(), "{number}");
        }
    }
}
