//! `date_sub`: how many whole parts of time lie between two points.
//!
//! Comes in: the name of a part, two points in time or two times of a day. Goes out: whole numbers, by the rules of DuckDB: months are over on the same day at the same time, or at the end of a shorter month. Never here: how many borders of parts lie between them, which `date_diff` counts.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use chrono::{Datelike, NaiveDateTime, TimeDelta};
use datafusion::common::{internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_DATETIME;

use super::{Function, Takes, is_text, whole, wrong};
use crate::query::functions::ages::{between, clocks};

pub(super) const ALL: &[Function] = &[Function {
    name: "date_sub",
    aliases: &["datesub"],
    section: DOC_SECTION_DATETIME,
    about: "How many whole parts of time lie between two points: 'millennium', 'century', 'decade', 'year', 'quarter', 'month', 'week', 'day', 'hour', 'minute', 'second', 'millisecond' or 'microsecond'. Less than nothing where the end is before the begin.",
    takes: &[
        ("part", Takes::Text),
        ("begin", Takes::Any),
        ("end", Takes::Any),
    ],
    least: 3,
    repeats: false,
    returned,
    made,
}];

/// A part of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Months(i64),
    Microseconds(i64),
}

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

const PARTS: [(&str, Part); 13] = [
    ("millennium", Part::Months(12_000)),
    ("century", Part::Months(1_200)),
    ("decade", Part::Months(120)),
    ("year", Part::Months(12)),
    ("quarter", Part::Months(3)),
    ("month", Part::Months(1)),
    ("week", Part::Microseconds(7 * DAY)),
    ("day", Part::Microseconds(DAY)),
    ("hour", Part::Microseconds(3_600 * SECOND)),
    ("minute", Part::Microseconds(60 * SECOND)),
    ("second", Part::Microseconds(SECOND)),
    ("millisecond", Part::Microseconds(1_000)),
    ("microsecond", Part::Microseconds(1)),
];

impl Part {
    fn of(name: &str) -> Result<Self> {
        let lower = name.to_lowercase();
        let one = match lower.as_str() {
            "centuries" => "century",
            "millennia" => "millennium",
            other => other.strip_suffix('s').unwrap_or(other),
        };
        match PARTS.iter().find(|(known, _)| *known == one) {
            Some((_, part)) => Ok(*part),
            None => {
                let known: Vec<String> =
                    PARTS.iter().map(|(part, _)| format!("'{part}'")).collect();
                let text = format!(
                    "the part of date_sub must be one of {}, got '{name}'",
                    known.join(", ")
                );
                Err(wrong(text).into())
            }
        }
    }

    /// How many of them lie between two points.
    fn number(self, begin: NaiveDateTime, end: NaiveDateTime) -> i64 {
        match self {
            Self::Microseconds(each) => {
                let passed = end.signed_duration_since(begin);
                // Of years that the engine has there are less than 64 bits.
                passed.num_microseconds().unwrap_or(i64::MAX) / each
            }
            Self::Months(each) => months(begin, end) / each,
        }
    }
}

fn months(begin: NaiveDateTime, end: NaiveDateTime) -> i64 {
    if begin > end {
        return -months(end, begin);
    }
    let days = u32::from(end.date().num_days_in_month());
    let is_over = begin.day() > days || begin.day() == days && begin.time() < end.time();
    let begin = match end.day() == days && is_over {
        // The month of the end has no such day.
        true => begin.checked_sub_signed(TimeDelta::days(i64::from(begin.day() - days))),
        false => Some(begin),
    };
    begin.map_or(0, |begin| i64::from(between(end, begin).months))
}

/// What points of a type are read as.
fn moment(kind: &DataType) -> Option<DataType> {
    match kind {
        DataType::Timestamp(_, zone) => {
            Some(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))
        }
        DataType::Date32 | DataType::Date64 | DataType::Time32(_) | DataType::Time64(_) => {
            Some(DataType::Timestamp(TimeUnit::Microsecond, None))
        }
        kind if is_text(kind) => Some(DataType::Timestamp(TimeUnit::Microsecond, None)),
        DataType::Dictionary(_, values) => moment(values),
        _ => None,
    }
}

fn returned(types: &[DataType]) -> Result<DataType> {
    let Some((_, moments)) = types.split_first() else {
        return internal_err!("date_sub of nothing");
    };
    match moments.iter().find(|kind| moment(kind).is_none()) {
        None => whole(types),
        Some(other) => {
            plan_err!("date_sub takes dates, timestamps and times of a day, got {other}")
        }
    }
}

fn made(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let [parts, begins, ends] = arrays else {
        return internal_err!("date_sub of {} columns", arrays.len());
    };
    let parts = parts.as_string_view();
    let (begins, ends) = (moments(begins)?, moments(ends)?);
    let mut known: Option<(&str, Part)> = None;
    let both = begins.into_iter().zip(ends).enumerate();
    let numbers = both.map(|(row, (begin, end))| {
        let (true, Some(begin), Some(end)) = (parts.is_valid(row), begin, end) else {
            return Ok(None);
        };
        let name = parts.value(row);
        let part = match known {
            Some((before, part)) if before == name => part,
            _ => Part::of(name)?,
        };
        known = Some((name, part));
        Ok(Some(part.number(begin, end)))
    });
    let numbers: Int64Array = numbers.collect::<Result<_>>()?;
    Ok(Arc::new(numbers))
}

/// What clocks show at points in time; times of a day are those of one day.
fn moments(values: &ArrayRef) -> Result<Vec<Option<NaiveDateTime>>> {
    let Some(kind) = moment(values.data_type()) else {
        return internal_err!("a moment of {}", values.data_type());
    };
    let values = match values.data_type() {
        DataType::Time32(_) | DataType::Time64(_) => {
            let times = cast(values, &DataType::Time64(TimeUnit::Microsecond))?;
            cast(&times, &DataType::Int64)?
        }
        _ => Arc::clone(values),
    };
    clocks(&cast(&values, &kind)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_end_with_shorter_ones() {
        for (begin, end, wanted) in [
            ("2013-01-31T00:00:00", "2013-02-28T00:00:00", 1),
            ("2013-02-28T00:00:00", "2013-01-31T00:00:00", -1),
            ("2013-02-28T11:00:00", "2013-03-31T10:00:00", 1),
            ("2013-02-28T11:00:00", "2013-03-28T10:00:00", 0),
            ("2013-03-31T10:00:00", "2013-02-28T11:00:00", -1),
            ("2012-12-31T00:00:00", "2013-02-28T00:00:00", 2),
            ("2012-02-29T00:00:00", "2013-02-28T00:00:00", 12),
            ("2013-01-31T12:00:00", "2013-03-31T11:00:00", 1),
        ] {
            let read = |text: &str| text.parse::<NaiveDateTime>().unwrap();
            assert_eq!(months(read(begin), read(end)), wanted, "{begin} {end}");
        }
    }

    #[test]
    fn parts_may_be_several() {
        assert_eq!(Part::of("Months").unwrap(), Part::Months(1));
        assert_eq!(Part::of("centuries").unwrap(), Part::Months(1_200));
        assert!(Part::of("fortnight").is_err());
    }
}
