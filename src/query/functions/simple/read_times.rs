//! Points in time of texts by formats: `strptime` and `try_strptime`.
//!
//! Comes in: texts, and formats such as '%Y-%m-%d' or lists of them. Goes out: timestamps, of UTC where the text has an offset or a zone. What the format does not say is that of 1900-01-01 00:00:00, as in DuckDB. Never here: texts of points in time (`to_char`).

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray, StringViewArray, TimestampNanosecondArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use chrono::format::{Item, Parsed, StrftimeItems, parse};
use chrono::{
    DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, TimeZone, Weekday,
};
use datafusion::common::{internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_DATETIME;

use super::times::TIMESTAMP;
use super::{Function, Takes, is_text, wrong};
use crate::error::Error;

pub(super) const ALL: &[Function] = &[
    Function {
        name: "strptime",
        aliases: &[],
        section: DOC_SECTION_DATETIME,
        about: "The timestamp of a text by a format such as '%Y-%m-%d', or by the first of a list of formats that it has; an error where it has none. What a format does not say is that of 1900-01-01 00:00:00; with an offset or the name of a zone it is the timestamp of UTC.",
        takes: &[("text", Takes::Text), ("format", Takes::Any)],
        least: 2,
        repeats: false,
        returned,
        made: |arrays| moments(arrays, true),
    },
    Function {
        name: "try_strptime",
        aliases: &[],
        section: DOC_SECTION_DATETIME,
        about: "The timestamp of a text as of strptime, but null where it has none of the formats.",
        takes: &[("text", Takes::Text), ("format", Takes::Any)],
        least: 2,
        repeats: false,
        returned,
        made: |arrays| moments(arrays, false),
    },
];

fn returned(types: &[DataType]) -> Result<DataType> {
    let is_format = |kind: &DataType| match kind {
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::FixedSizeList(element, _) => is_text(element.data_type()),
        kind => is_text(kind),
    };
    match types {
        [_, formats] if is_format(formats) => Ok(TIMESTAMP),
        [_, other] => {
            plan_err!("the format of strptime must be a text or a list of texts, got {other}")
        }
        _ => internal_err!("a time of {} values", types.len()),
    }
}

/// The timestamps of texts; where one has none of its formats, an error or null.
fn moments(arrays: &[ArrayRef], is_strict: bool) -> Result<ArrayRef> {
    let [texts, formats] = arrays else {
        return internal_err!("times of {} columns", arrays.len());
    };
    let texts = texts.as_string_view();
    let said = Said::of(formats)?;
    // Most rows have the formats of the row before.
    let mut known: (Vec<String>, Vec<Format>) = (Vec::new(), Vec::new());
    let mut of_row = |row: usize| {
        let wanted = said.of_row(row)?;
        if texts.is_null(row) || wanted.is_empty() {
            return Ok(None);
        }
        if known.0 != wanted {
            let read = wanted.iter().map(|format| Format::read(format));
            known = (
                wanted.iter().map(ToString::to_string).collect(),
                read.collect::<Result<_>>()?,
            );
        }
        let text = texts.value(row).trim();
        match known.1.iter().find_map(|format| format.moment(text)) {
            None if is_strict => Err(unlike(text, &wanted).into()),
            None => Ok(None),
            Some(moment) => match moment.and_utc().timestamp_nanos_opt() {
                None if is_strict => {
                    let text = format!(
                        "strptime makes timestamps of the years 1678 to 2261, got '{text}'"
                    );
                    Err(wrong(text).into())
                }
                nanoseconds => Ok(nanoseconds),
            },
        }
    };
    let moments = (0..texts.len()).map(&mut of_row);
    let moments: TimestampNanosecondArray = moments.collect::<Result<_>>()?;
    Ok(Arc::new(moments))
}

/// What is said of a text that has none of the formats.
fn unlike(text: &str, formats: &[&str]) -> Error {
    let formats: Vec<String> = formats.iter().map(|format| format!("'{format}'")).collect();
    wrong(format!(
        "strptime: the text must be of the format {}, got '{text}'",
        formats.join(" or ")
    ))
    .with_hint("try_strptime is NULL there")
}

/// The formats of each row.
enum Said {
    One(StringViewArray),
    /// Those of each list, and where each ends.
    Several(StringViewArray, Vec<i32>),
}

impl Said {
    fn of(formats: &ArrayRef) -> Result<Self> {
        let views = |texts: &ArrayRef| {
            Ok::<_, arrow::error::ArrowError>(
                cast(texts, &DataType::Utf8View)?.as_string_view().clone(),
            )
        };
        if !formats.data_type().is_nested() {
            return Ok(Self::One(views(formats)?));
        }
        let lists = cast(formats, &DataType::new_list(DataType::Utf8View, true))?;
        let lists = lists.as_list::<i32>();
        Ok(Self::Several(
            views(lists.values())?,
            lists.value_offsets().to_vec(),
        ))
    }

    /// Those of one row; none where it is null.
    fn of_row(&self, row: usize) -> Result<Vec<&str>> {
        let (texts, range) = match self {
            Self::One(texts) => (texts, row..row + 1),
            Self::Several(texts, ends) => match ends.get(row..row + 2) {
                Some([begin, end]) => {
                    let place = |end: &i32| usize::try_from(*end).unwrap_or_default();
                    (texts, place(begin)..place(end))
                }
                _ => return internal_err!("formats of no row"),
            },
        };
        let formats = range.filter(|place| texts.is_valid(*place));
        Ok(formats.map(|place| texts.value(place)).collect())
    }
}

/// A format, as it is read.
struct Format {
    /// Its items; several where fractions have no fixed number of digits.
    spellings: Vec<Vec<Item<'static>>>,
    /// Whether the name of a zone comes last.
    has_zone: bool,
}

/// Parts of seconds, which the library takes for something else: microseconds, milliseconds and nanoseconds.
const FRACTIONS: [&str; 3] = ["%f", "%g", "%n"];

impl Format {
    /// # Errors
    /// `Query` for what is no format.
    fn read(format: &str) -> Result<Self> {
        let unread = |what: &str| {
            wrong(format!(
                "strptime: the format must be such as '%Y-%m-%d %H:%M:%S', got {what} in '{format}'"
            ))
        };
        let (begin, has_zone) = match format.trim().strip_suffix("%Z") {
            Some(begin) => (begin.trim_end(), true),
            None => (format.trim(), false),
        };
        if begin.is_empty() {
            return Err(unread("nothing").into());
        }
        // Two signs are one letter.
        let hidden = begin.replace("%%", "\u{0}");
        if hidden.contains("%Z") {
            let error = unread("%Z before the end");
            return Err(error
                .with_hint("%z takes an offset such as +01:00 anywhere")
                .into());
        }
        let mut plain = hidden;
        for fraction in FRACTIONS {
            plain = plain.replace(&format!(".{fraction}"), "%.f");
        }
        let has_digits = FRACTIONS.iter().any(|fraction| plain.contains(fraction));
        let digits: &[&str] = if has_digits {
            &["%6f", "%3f", "%9f"]
        } else {
            &[""]
        };
        let spellings = digits.iter().map(|digits| {
            let mut spelling = plain.clone();
            for fraction in FRACTIONS {
                spelling = spelling.replace(fraction, digits);
            }
            let spelling = spelling.replace('\u{0}', "%%");
            let items = StrftimeItems::new(&spelling).parse_to_owned();
            items.map_err(|_| unread("an unknown item").into())
        });
        Ok(Self {
            spellings: spellings.collect::<Result<_>>()?,
            has_zone,
        })
    }

    /// The moment of a text that has the format.
    fn moment(&self, text: &str) -> Option<NaiveDateTime> {
        let (text, zone) = match self.has_zone {
            true => text
                .rsplit_once(' ')
                .map(|(text, zone)| (text.trim_end(), Some(zone)))?,
            false => (text, None),
        };
        let of_items = |items: &Vec<Item<'static>>| {
            let mut parsed = Parsed::new();
            parse(&mut parsed, text, items.iter()).ok()?;
            moment_of(&parsed)
        };
        let moment = self.spellings.iter().find_map(of_items)?;
        match zone {
            None => Some(moment),
            Some(zone) => {
                let zone: Tz = zone.parse().ok()?;
                Some(zone.from_local_datetime(&moment).earliest()?.naive_utc())
            }
        }
    }
}

/// The moment that parts say, in UTC.
fn moment_of(parsed: &Parsed) -> Option<NaiveDateTime> {
    if let Some(seconds) = parsed.timestamp() {
        let nanoseconds = parsed.nanosecond().unwrap_or_default();
        return Some(DateTime::from_timestamp(seconds, nanoseconds)?.naive_utc());
    }
    let hour =
        parsed.hour_div_12().unwrap_or_default() * 12 + parsed.hour_mod_12().unwrap_or_default();
    let time = NaiveTime::from_hms_nano_opt(
        hour,
        parsed.minute().unwrap_or_default(),
        parsed.second().unwrap_or_default(),
        parsed.nanosecond().unwrap_or_default(),
    )?;
    let moment = day_of(parsed)?.and_time(time);
    let offset = TimeDelta::seconds(i64::from(parsed.offset().unwrap_or_default()));
    moment.checked_sub_signed(offset)
}

/// The day that parts say. That of the week only counts where it says something.
fn day_of(parsed: &Parsed) -> Option<NaiveDate> {
    let year = match (parsed.year(), parsed.year_mod_100()) {
        (Some(year), _) => year,
        // As POSIX has it.
        (None, Some(year @ 69..)) => 1900 + year,
        (None, Some(year)) => 2000 + year,
        (None, None) => 1900,
    };
    let weekday = parsed.weekday();
    if let Some(week) = parsed.isoweek() {
        let year = parsed.isoyear().unwrap_or(year);
        return NaiveDate::from_isoywd_opt(year, week, weekday.unwrap_or(Weekday::Mon));
    }
    if let Some(day) = parsed.ordinal() {
        return NaiveDate::from_yo_opt(year, day);
    }
    let weeks = [
        (parsed.week_from_sun(), Weekday::Sun),
        (parsed.week_from_mon(), Weekday::Mon),
    ];
    for (week, first) in weeks {
        if let Some(week) = week {
            let begin = NaiveDate::from_yo_opt(year, 1)?;
            // The first week begins with the first such day.
            let before = first.days_since(begin.weekday());
            let within = weekday.unwrap_or(first).days_since(first);
            let days = i64::from(before) + (i64::from(week) - 1) * 7 + i64::from(within);
            return begin.checked_add_signed(TimeDelta::days(days));
        }
    }
    NaiveDate::from_ymd_opt(year, parsed.month().unwrap_or(1), parsed.day().unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, format: &str) -> Option<String> {
        let moment = Format::read(format).unwrap().moment(text)?;
        Some(moment.format("%Y-%m-%d %H:%M:%S%.f").to_string())
    }

    #[test]
    fn texts_are_read_by_formats() {
        for (text, format, wanted) in [
            ("2013-01-02 03", "%Y-%m-%d %H", "2013-01-02 03:00:00"),
            ("02/03", "%d/%m", "1900-03-02 00:00:00"),
            ("10:11", "%H:%M", "1900-01-01 10:11:00"),
            ("5/6/2013", "%-d/%-m/%Y", "2013-06-05 00:00:00"),
            ("20130102", "%Y%m%d", "2013-01-02 00:00:00"),
            ("12 AM", "%I %p", "1900-01-01 00:00:00"),
            ("12 pm", "%I %p", "1900-01-01 12:00:00"),
            ("3", "%I", "1900-01-01 03:00:00"),
            ("69", "%y", "1969-01-01 00:00:00"),
            ("68", "%y", "2068-01-01 00:00:00"),
            ("2013 032", "%Y %j", "2013-02-01 00:00:00"),
            ("Monday 2013-01-02", "%A %Y-%m-%d", "2013-01-02 00:00:00"),
            ("5 january 13", "%d %B %y", "2013-01-05 00:00:00"),
            ("2013-W05-3", "%G-W%V-%u", "2013-01-30 00:00:00"),
            ("2013 10 3", "%Y %U %w", "2013-03-13 00:00:00"),
            ("2013-05", "%Y-%W", "2013-02-04 00:00:00"),
            ("03:04:05.123", "%H:%M:%S.%f", "1900-01-01 03:04:05.123"),
            ("03:04:05.123", "%H:%M:%S.%g", "1900-01-01 03:04:05.123"),
            (
                "03:04:05.123456789",
                "%H:%M:%S.%n",
                "1900-01-01 03:04:05.123456789",
            ),
            (
                "03:04:05,123456",
                "%H:%M:%S,%f",
                "1900-01-01 03:04:05.123456",
            ),
            ("03:04:05,123", "%H:%M:%S,%f", "1900-01-01 03:04:05.123"),
            (
                "2013-01-02 03:04:05 +0230",
                "%Y-%m-%d %H:%M:%S %z",
                "2013-01-02 00:34:05",
            ),
            (
                "2013-01-02 03:04:05 America/New_York",
                "%Y-%m-%d %H:%M:%S %Z",
                "2013-01-02 08:04:05",
            ),
            (
                "2013-01-02 03:04:05 UTC",
                "%Y-%m-%d %H:%M:%S %Z",
                "2013-01-02 03:04:05",
            ),
            ("100% 2013", "100%% %Y", "2013-01-01 00:00:00"),
            ("1700000000", "%s", "2023-11-14 22:13:20"),
        ] {
            assert_eq!(
                read(text, format).as_deref(),
                Some(wanted),
                "{text} {format}"
            );
        }
        for (text, format) in [
            ("2013-01-02x", "%Y-%m-%d"),
            ("2013-13-02", "%Y-%m-%d"),
            ("2013-02-30", "%Y-%m-%d"),
            ("24", "%H"),
            ("10:11:60", "%H:%M:%S"),
            ("13 PM", "%I %p"),
            ("", "%Y"),
            ("2013-01-02 03:04:05 Nowhere/Else", "%Y-%m-%d %H:%M:%S %Z"),
            ("2013-01-02", "%Y-%m-%d %Z"),
        ] {
            assert_eq!(read(text, format), None, "{text} {format}");
        }
    }

    #[test]
    fn what_is_no_format_is_refused() {
        for format in ["", " ", "%Q", "%Z %Y", "%"] {
            assert!(Format::read(format).is_err(), "{format}");
        }
    }
}
