//! Texts of points in time, written as the engine reads them: `2013-7-1 6:30` is `2013-07-01 06:30:00`. What becomes a date or a timestamp without a zone is what clocks show, without how far these are
//! from UTC: `2013-12-31 23:00:00-05` is in the year 2013. The engine takes the time in UTC.
//!
//! Comes in: a text that becomes a point in time. Goes out: a call of a function that writes such texts so. Never here: which zone a text without one is in (`clocks.rs`), names of zones, texts of times of day.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait};
use arrow::array::{GenericStringArray, StringViewArray};
use arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// The text as the engine reads it, for a type with a zone, or for one without.
pub(super) fn as_read(text: Expr, has_zone: bool) -> Expr {
    ScalarUDF::from(Moments::new(has_zone)).call(vec![text])
}

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct Moments {
    /// Whether a zone in the text is kept.
    has_zone: bool,
    signature: Signature,
}

impl Moments {
    pub(in crate::query) fn new(has_zone: bool) -> Self {
        Self {
            has_zone,
            signature: Signature::any(1, Volatility::Immutable),
        }
    }

    /// The same array where all texts stand so already, as most do.
    fn all(&self, texts: &ArrayRef) -> Result<ArrayRef> {
        Ok(match texts.data_type() {
            DataType::Utf8 => self.of_texts::<i32>(texts),
            DataType::LargeUtf8 => self.of_texts::<i64>(texts),
            DataType::Utf8View => {
                let all = texts.as_string_view();
                match all.iter().flatten().any(|text| self.other(text).is_some()) {
                    true => {
                        let all = all.iter().map(|text| self.written(text));
                        Arc::new(all.collect::<StringViewArray>())
                    }
                    false => Arc::clone(texts),
                }
            }
            other => return internal_err!("the text of a point in time of {other}"),
        })
    }

    fn of_texts<O: OffsetSizeTrait>(&self, texts: &ArrayRef) -> ArrayRef {
        let all = texts.as_string::<O>();
        match all.iter().flatten().any(|text| self.other(text).is_some()) {
            true => {
                let all = all.iter().map(|text| self.written(text));
                Arc::new(all.collect::<GenericStringArray<O>>())
            }
            false => Arc::clone(texts),
        }
    }

    fn written<'a>(&self, text: Option<&'a str>) -> Option<Cow<'a, str>> {
        text.map(|text| self.other(text).unwrap_or(Cow::Borrowed(text)))
    }

    /// What stands for a text; `None` where it stands for itself.
    fn other<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        let bare = text.trim();
        let said = match self.has_zone {
            true => bare,
            false => before_zone(bare).unwrap_or(bare),
        };
        if !is_whole(said.as_bytes()) {
            if let Some(whole) = whole(said) {
                return Some(Cow::Owned(whole));
            }
            // The engine reads a day of one digit, whatever follows.
            if said.len() <= DAY_BYTES && said.as_bytes().get(4) == Some(&b'-') {
                return Some(Cow::Owned(format!("{said:DAY_BYTES$} ")));
            }
        }
        (said.len() != text.len()).then_some(Cow::Borrowed(said))
    }
}

impl ScalarUDFImpl for Moments {
    fn name(&self) -> &'static str {
        match self.has_zone {
            true => "text_of_instant",
            false => "text_of_what_clocks_show",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [text] => Ok(text.clone()),
            _ => internal_err!("{} texts of a point in time", types.len()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [text] = arguments.args.as_slice() else {
            return internal_err!("no text of a point in time");
        };
        Ok(match text {
            ColumnarValue::Scalar(text) => {
                let array = self.all(&text.to_array()?)?;
                ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(&array, 0)?)
            }
            ColumnarValue::Array(texts) => ColumnarValue::Array(self.all(texts)?),
        })
    }
}

/// The length of `2013-07-01`.
const DAY_BYTES: usize = 10;

/// Whether a text has all digits and seconds: `2013-07-01`, `2013-07-01 06:30:00`.
fn is_whole(text: &[u8]) -> bool {
    let has = |place: usize, sign: u8| text.get(place) == Some(&sign);
    let is_day = || {
        text.get(8..)
            .is_some_and(|day| day.iter().all(u8::is_ascii_digit))
    };
    has(4, b'-')
        && has(7, b'-')
        && (text.len() == DAY_BYTES && is_day() || has(13, b':') && has(16, b':'))
}

/// The text with the digits and seconds that are left out; `None` where that is no point in time.
fn whole(text: &str) -> Option<String> {
    let (year, rest) = number(text.trim_start(), 4..=4)?;
    let (month, rest) = number(rest.strip_prefix('-')?, 1..=2)?;
    let (day, rest) = number(rest.strip_prefix('-')?, 1..=2)?;
    let date = format!("{year}-{month:0>2}-{day:0>2}");
    let time = match rest.strip_prefix(['T', 't']) {
        Some(time) => time,
        None if rest.trim().is_empty() => return Some(date),
        None => rest.strip_prefix(' ')?.trim_start(),
    };
    let (hour, rest) = number(time, 1..=2)?;
    let (minute, rest) = number(rest.strip_prefix(':')?, 1..=2)?;
    let (second, rest) = match rest.strip_prefix(':') {
        Some(second) => number(second, 1..=2)?,
        None => ("00", rest),
    };
    Some(format!(
        "{date} {hour:0>2}:{minute:0>2}:{second:0>2}{}",
        rest.trim_end()
    ))
}

/// The digits that a text begins with, where there are so many of them.
fn number(text: &str, count: RangeInclusive<usize>) -> Option<(&str, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    count.contains(&digits.len()).then_some((digits, rest))
}

/// What stands before `Z`, `-05`, `+0530`, `+05:30` or ` Europe/Berlin` behind a time of day.
fn before_zone(text: &str) -> Option<&str> {
    let text = text.trim_end();
    let begin = match text.strip_suffix(['Z', 'z']) {
        Some(begin) => begin,
        None => {
            if let Some((begin, zone)) = text.rsplit_once(' ')
                && zone.starts_with(|letter: char| letter.is_ascii_alphabetic())
            {
                return ends_with_time(begin).filter(|_| zone.parse::<Tz>().is_ok());
            }
            let signs = |letter: char| matches!(letter, '+' | '-');
            let (begin, zone) = text.split_at(text.rfind(signs)?);
            let digits = zone.chars().skip(1).filter(|letter| *letter != ':');
            let is_zone = digits.clone().all(|letter| letter.is_ascii_digit())
                && matches!(digits.count(), 2 | 4 | 6);
            if !is_zone {
                return None;
            }
            begin
        }
    };
    ends_with_time(begin)
}

/// A text that ends with a time of day. A day by itself has no zone: 2013-07-01.
fn ends_with_time(text: &str) -> Option<&str> {
    let text = text.trim_end();
    let is_time = text.contains(':') && text.ends_with(|letter: char| letter.is_ascii_digit());
    is_time.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_stand_behind_times_of_day_alone() {
        for (text, begin) in [
            ("2013-12-31 23:00:00-05:00", "2013-12-31 23:00:00"),
            ("2013-12-31T23:00:00.25 +0530", "2013-12-31T23:00:00.25"),
            ("2013-12-31 23:00-05 ", "2013-12-31 23:00"),
            ("2013-12-31T23:00:00Z", "2013-12-31T23:00:00"),
            ("10:00:00 Europe/Berlin", "10:00:00"),
        ] {
            assert_eq!(before_zone(text), Some(begin));
        }
        for text in [
            "2013-12-31",
            "2013-12-31 23:00:00",
            "2013-12",
            "Z",
            "",
            "a:b-05",
            "10:00:00-x",
            "10:00:00-123",
            "10:00:00 Europe/Bonn",
            "10:00 PM",
        ] {
            assert_eq!(before_zone(text), None, "{text}");
        }
    }

    #[test]
    fn digits_and_seconds_that_are_left_out_are_written() {
        let (instant, shown) = (Moments::new(true), Moments::new(false));
        for (text, expected) in [
            ("2013-07-01 06:30", "2013-07-01 06:30:00"),
            ("2013-07-01T06:30Z", "2013-07-01 06:30:00Z"),
            ("2013-7-1 6:30+02:00", "2013-07-01 06:30:00+02:00"),
            (
                "2013-07-01 06:30 America/New_York",
                "2013-07-01 06:30:00 America/New_York",
            ),
            (" 2013-7-1  6:3:5.25 ", "2013-07-01 06:03:05.25"),
            ("2013-7-1 ", "2013-07-01"),
        ] {
            assert_eq!(instant.other(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "2013-07-01 06:30:15",
            "2013-07-01T06:30:15.5-05",
            "2013-07-01",
            "2013-07-01 06",
            "2013-07-01 \u{fc}6:30",
            "20130701",
            "06:30",
            "",
        ] {
            assert_eq!(instant.other(text), None, "{text}");
        }
        for text in ["2013-7-1q", "2013-07-1q", "2013-7-1 x", "2013-7"] {
            let other = instant.other(text).unwrap();
            assert!(
                other.len() > DAY_BYTES && other.trim_end() == text,
                "{text}"
            );
        }
        assert_eq!(
            instant.other("2013-07-01 06:30:15 ").as_deref(),
            Some("2013-07-01 06:30:15")
        );
        let cut = [
            ("2013-7-1 6:30-05", "2013-07-01 06:30:00"),
            ("2013-07-01 06:30:15Z", "2013-07-01 06:30:15"),
        ];
        for (text, expected) in cut {
            assert_eq!(shown.other(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn texts_of_all_layouts_are_written_and_others_are_handed_on() {
        let function = Moments::new(false);
        let given = [
            Some("2013-7-1 10:00:00Z"),
            None,
            Some("2013-07-01 10:00:00"),
        ];
        let expected = [
            Some("2013-07-01 10:00:00"),
            None,
            Some("2013-07-01 10:00:00"),
        ];
        let short: ArrayRef = Arc::new(GenericStringArray::<i32>::from(given.to_vec()));
        let long: ArrayRef = Arc::new(GenericStringArray::<i64>::from(given.to_vec()));
        let views: ArrayRef = Arc::new(StringViewArray::from(given.to_vec()));
        for texts in [short, long, views] {
            let done = function.all(&texts).unwrap();
            let wanted: ArrayRef = Arc::new(StringViewArray::from(expected.to_vec()));
            let wanted = arrow::compute::cast(&wanted, texts.data_type()).unwrap();
            assert_eq!(&done, &wanted);
            let rest = done.slice(1, 2);
            assert!(Arc::ptr_eq(&function.all(&rest).unwrap(), &rest));
        }
    }
}
