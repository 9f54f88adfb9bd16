//! Points in time of texts by formats: `strptime` and `try_strptime`.
//!
//! Comes in: texts, and formats such as '%Y-%m-%d' or lists of them. Goes out: timestamps, of UTC where the text has an offset or a zone. What the format does not say is that of 1900-01-01 00:00:00, as in DuckDB. Never here: texts of points in time (`to_char`).

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, StringViewArray, TimestampNanosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use chrono::format::{Item, Numeric, Parsed, StrftimeItems, parse, parse_and_remainder};
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
        let Some(wanted) = said.of_row(row)?.filter(|_| texts.is_valid(row)) else {
            return Ok(None);
        };
        if known.0 != wanted {
            let read = wanted.iter().map(|format| Format::read(format));
            let read = read.collect::<Result<_>>()?;
            known = (wanted.iter().map(ToString::to_string).collect(), read);
        }
        let text = texts.value(row).trim();
        let found = known.1.iter().find_map(|format| format.moment(text));
        let nanoseconds = found.and_then(|moment| moment.and_utc().timestamp_nanos_opt());
        match found {
            None if is_strict => Err(unlike(text, &wanted).into()),
            Some(_) if is_strict && nanoseconds.is_none() => Err(wrong(format!(
                "strptime makes timestamps of the years 1678 to 2261, got '{text}'"
            ))
            .into()),
            _ => Ok(nanoseconds),
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
    Several(ListArray),
}

impl Said {
    fn of(formats: &ArrayRef) -> Result<Self> {
        Ok(match formats.data_type().is_nested() {
            false => Self::One(cast(formats, &DataType::Utf8View)?.as_string_view().clone()),
            true => {
                let lists = cast(formats, &DataType::new_list(DataType::Utf8View, true))?;
                Self::Several(lists.as_list().clone())
            }
        })
    }

    /// Those of one row, but for those that are null; `None` where there is neither a format nor a list of them.
    fn of_row(&self, row: usize) -> Result<Option<Vec<&str>>> {
        let lists = match self {
            Self::One(texts) => return Ok(texts.is_valid(row).then(|| vec![texts.value(row)])),
            Self::Several(lists) if lists.is_null(row) => return Ok(None),
            Self::Several(lists) => lists,
        };
        let Some([begin, end]) = lists.value_offsets().get(row..row + 2) else {
            return internal_err!("formats of no row");
        };
        if begin == end {
            return Err(wrong("strptime takes at least one format, got []").into());
        }
        let place = |end: &i32| usize::try_from(*end).unwrap_or_default();
        let texts = lists.values().as_string_view();
        let formats = (place(begin)..place(end)).filter(|place| texts.is_valid(*place));
        Ok(Some(formats.map(|place| texts.value(place)).collect()))
    }
}

/// A format, as it is read.
struct Format {
    before: Vec<Item<'static>>,
    /// What comes after the digits of a part of a second, where it has such.
    after: Option<Vec<Item<'static>>>,
    /// Whether the name of a zone comes last.
    has_zone: bool,
}

/// Parts of seconds, which the library takes for something else: microseconds, milliseconds and nanoseconds.
const FRACTIONS: [&str; 3] = ["%f", "%g", "%n"];

/// Two signs, which are one letter, while others are looked for.
const SIGN: &str = "\u{0}";

impl Format {
    /// # Errors
    /// `Query` for what is no format.
    fn read(format: &str) -> Result<Self> {
        let hidden = format.trim().replace("%%", SIGN);
        let (plain, has_zone) = match hidden.strip_suffix("%Z") {
            Some(before) => (before.trim_end(), true),
            None => (hidden.as_str(), false),
        };
        if plain.is_empty() {
            return Err(unread("nothing", format).into());
        }
        if plain.contains("%Z") {
            let error = unread("%Z before the end", format);
            return Err(error
                .with_hint("%z takes an offset such as +01:00 anywhere")
                .into());
        }
        let counts = FRACTIONS.iter().map(|name| plain.matches(name).count());
        if counts.sum::<usize>() > 1 {
            return Err(unread("several parts of a second", format).into());
        }
        let mut fractions = FRACTIONS.into_iter();
        let fraction = fractions.find_map(|name| plain.split_once(name));
        let (before, after) = match fraction {
            Some((before, after)) => (before, Some(after)),
            None => (plain, None),
        };
        Ok(Self {
            before: items(before, format)?,
            after: after.map(|after| items(after, format)).transpose()?,
            has_zone,
        })
    }

    /// The moment of a text that has the format.
    fn moment(&self, text: &str) -> Option<NaiveDateTime> {
        let (text, zone) = match self.has_zone {
            true => {
                let (text, zone) = text.rsplit_once(' ')?;
                (text.trim_end(), Some(zone.parse::<Tz>().ok()?))
            }
            false => (text, None),
        };
        let mut parsed = Parsed::new();
        let rest = parse_and_remainder(&mut parsed, text, self.before.iter()).ok()?;
        match &self.after {
            None if rest.is_empty() => {}
            None => return None,
            Some(after) => {
                let count = rest.bytes().take_while(u8::is_ascii_digit).count();
                let (digits, rest) = rest.split_at(count.min(9));
                let missing = u32::try_from(9 - digits.len()).ok()?;
                let number: i64 = digits.parse().ok()?;
                parsed.set_nanosecond(number * 10_i64.pow(missing)).ok()?;
                parse(&mut parsed, rest, after.iter()).ok()?;
            }
        }
        let moment = moment_of(&parsed)?;
        match zone {
            None => Some(moment),
            Some(zone) => instant(moment, zone),
        }
    }
}

fn unread(what: &str, format: &str) -> Error {
    wrong(format!(
        "strptime: the format must be such as '%Y-%m-%d %H:%M:%S', got {what} in '{format}'"
    ))
}

/// The items of a part of a format.
///
/// # Errors
/// `Query` for items that there are not, and such as no moment is made of.
fn items(part: &str, format: &str) -> Result<Vec<Item<'static>>> {
    // Offsets may have no minutes.
    let part = part.replace("%z", "%#z").replace(SIGN, "%%");
    let items = StrftimeItems::new(&part).parse_to_owned();
    let items = items.map_err(|_| unread("an unknown item", format))?;
    let is_unused = |item: &Item<'_>| {
        matches!(
            item,
            Item::Numeric(
                Numeric::YearDiv100
                    | Numeric::IsoYearDiv100
                    | Numeric::IsoYearMod100
                    | Numeric::Quarter,
                _
            )
        )
    };
    match items.iter().any(is_unused) {
        true => Err(unread("a century or a quarter", format).into()),
        false => Ok(items),
    }
}

/// When clocks of a zone show something, in UTC; of what they leave out, as if they had not been changed.
fn instant(moment: NaiveDateTime, zone: Tz) -> Option<NaiveDateTime> {
    let at = |moment: &NaiveDateTime| zone.from_local_datetime(moment).earliest();
    let day = TimeDelta::days(1);
    match at(&moment) {
        Some(instant) => Some(instant.naive_utc()),
        None => at(&moment.checked_sub_signed(day)?)?
            .naive_utc()
            .checked_add_signed(day),
    }
}

/// The moment that parts say, in UTC.
fn moment_of(parsed: &Parsed) -> Option<NaiveDateTime> {
    if let Some(seconds) = parsed.timestamp() {
        let nanoseconds = parsed.nanosecond().unwrap_or_default();
        return Some(DateTime::from_timestamp(seconds, nanoseconds)?.naive_utc());
    }
    let hour = match (parsed.hour_div_12(), parsed.hour_mod_12()) {
        // Nobody says which half of the day it is.
        (None, Some(0)) => 12,
        (half, hour) => half.unwrap_or_default() * 12 + hour.unwrap_or_default(),
    };
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
    if parsed.month().is_some() || parsed.day().is_some() {
        return NaiveDate::from_ymd_opt(
            year,
            parsed.month().unwrap_or(1),
            parsed.day().unwrap_or(1),
        );
    }
    if let Some(day) = parsed.ordinal() {
        return NaiveDate::from_yo_opt(year, day);
    }
    let weekday = parsed.weekday();
    if parsed.isoweek().is_some() || parsed.isoyear().is_some() {
        let year = parsed.isoyear().unwrap_or(year);
        let week = parsed.isoweek().unwrap_or(1);
        return NaiveDate::from_isoywd_opt(year, week, weekday.unwrap_or(Weekday::Mon));
    }
    let begin = NaiveDate::from_yo_opt(year, 1)?;
    let weeks = [
        (parsed.week_from_sun(), Weekday::Sun),
        (parsed.week_from_mon(), Weekday::Mon),
    ];
    let counted = weeks
        .into_iter()
        .find_map(|(week, first)| Some((week?, first)));
    let Some((week, first)) = counted else {
        return Some(begin);
    };
    // The first week begins with the first such day.
    let before = first.days_since(begin.weekday());
    let within = weekday.unwrap_or(first).days_since(first);
    let days = i64::from(before) + (i64::from(week) - 1) * 7 + i64::from(within);
    begin.checked_add_signed(TimeDelta::days(days))
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
            ("12:30", "%I:%M", "1900-01-01 12:30:00"),
            ("03:04:05+02", "%H:%M:%S%z", "1900-01-01 01:04:05"),
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
            ("03:04:05,5 h", "%H:%M:%S,%f h", "1900-01-01 03:04:05.500"),
            ("2013 %Z", "%Y %%Z", "2013-01-01 00:00:00"),
            ("2013", "%G", "2012-12-31 00:00:00"),
            ("2013-03-15 10", "%Y-%m-%d %U", "2013-03-15 00:00:00"),
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
                "2013-03-10 02:30 America/New_York",
                "%Y-%m-%d %H:%M %Z",
                "2013-03-10 07:30:00",
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
            ("03:04:05.", "%H:%M:%S.%f"),
            ("03:04:05", "%H:%M:%S.%f"),
            ("2013-01-02 03:04:05 Nowhere/Else", "%Y-%m-%d %H:%M:%S %Z"),
            ("2013-01-02", "%Y-%m-%d %Z"),
        ] {
            assert_eq!(read(text, format), None, "{text} {format}");
        }
    }

    #[test]
    fn what_is_no_format_is_refused() {
        for format in ["", " ", "%Q", "%Z %Y", "%", "%C%y", "%f %n", "%n %f"] {
            assert!(Format::read(format).is_err(), "{format}");
        }
    }
}
