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

    /// Whether it is as long as clocks show, and not as time that passes: where clocks are changed, a day has other hours.
    fn is_of_clocks(self) -> bool {
        match self {
            Self::Months(_) => true,
            Self::Microseconds(each) => each >= DAY,
        }
    }

    /// How many of them lie between two points.
    ///
    /// # Errors
    /// `Query` where 64 bits have no room.
    fn number(self, begin: NaiveDateTime, end: NaiveDateTime) -> Result<i64> {
        match self {
            Self::Microseconds(each) => {
                let passed = end.signed_duration_since(begin).num_microseconds();
                let passed = passed.ok_or_else(|| {
                    wrong(format!(
                        "date_sub: {begin} and {end} are too far from each other"
                    ))
                })?;
                Ok(passed / each)
            }
            Self::Months(each) => Ok(months(begin, end) / each),
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
    if let Some(other) = moments.iter().find(|kind| moment(kind).is_none()) {
        return plan_err!("date_sub takes dates, timestamps and times of a day, got {other}");
    }
    let is_time = |kind: &&DataType| matches!(kind, DataType::Time32(_) | DataType::Time64(_));
    match moments {
        [begin, end] if is_time(&begin) != is_time(&end) && !begin.is_null() && !end.is_null() => {
            plan_err!(
                "date_sub takes two points in time or two times of a day, got {begin} and {end}"
            )
        }
        _ => whole(types),
    }
}

fn made(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let [parts, begins, ends] = arrays else {
        return internal_err!("date_sub of {} columns", arrays.len());
    };
    let parts = parts.as_string_view();
    let (begins, ends) = (Moments::of(begins)?, Moments::of(ends)?);
    let mut known: Option<(&str, Part)> = None;
    let numbers = (0..parts.len()).map(|row| {
        if parts.is_null(row) {
            return Ok(None);
        }
        let name = parts.value(row);
        let part = match known {
            Some((before, part)) if before == name => part,
            _ => Part::of(name)?,
        };
        known = Some((name, part));
        let both = begins.at(row, part).zip(ends.at(row, part));
        both.map(|(begin, end)| part.number(begin, end)).transpose()
    });
    let numbers: Int64Array = numbers.collect::<Result<_>>()?;
    Ok(Arc::new(numbers))
}

/// Points in time; times of a day are those of one day.
struct Moments {
    /// What clocks show.
    shown: Vec<Option<NaiveDateTime>>,
    /// The same in UTC, where there is a zone.
    instants: Option<Vec<Option<NaiveDateTime>>>,
}

impl Moments {
    fn of(values: &ArrayRef) -> Result<Self> {
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
        let values = cast(&values, &kind)?;
        let instants = match kind {
            DataType::Timestamp(unit, Some(_)) => {
                let utc = DataType::Timestamp(unit, Some(Arc::from("UTC")));
                Some(clocks(&cast(&values, &utc)?)?)
            }
            _ => None,
        };
        Ok(Self {
            shown: clocks(&values)?,
            instants,
        })
    }

    /// That of a row, as a part of time is counted.
    fn at(&self, row: usize, part: Part) -> Option<NaiveDateTime> {
        let moments = match &self.instants {
            Some(instants) if !part.is_of_clocks() => instants,
            _ => &self.shown,
        };
        moments.get(row).copied().flatten()
    }
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
