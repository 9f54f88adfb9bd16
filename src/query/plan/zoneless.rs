//! Texts of times that say how far clocks are from UTC, as what clocks show: `2013-12-31 23:00:00-05` is in the year 2013. The engine takes the time in UTC.
//!
//! Comes in: a text that becomes a date or a timestamp without a zone. Goes out: a call of a function that leaves the end of such texts out. Never here: texts that become instants (`clocks.rs`), names of zones.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait};
use arrow::array::{GenericStringArray, StringViewArray};
use arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// The text without its zone.
pub(super) fn without_zone(text: Expr) -> Expr {
    ScalarUDF::from(Zoneless::new()).call(vec![text])
}

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct Zoneless {
    signature: Signature,
}

impl Zoneless {
    pub(in crate::query) fn new() -> Self {
        Self {
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for Zoneless {
    fn name(&self) -> &'static str {
        "text_without_zone"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [text] => Ok(text.clone()),
            _ => internal_err!("{} texts without a zone", types.len()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [text] = arguments.args.as_slice() else {
            return internal_err!("no text without a zone");
        };
        Ok(match text {
            ColumnarValue::Scalar(text) => {
                let array = cut(&text.to_array()?)?;
                ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(&array, 0)?)
            }
            ColumnarValue::Array(texts) => ColumnarValue::Array(cut(texts)?),
        })
    }
}

/// The same array where no text has a zone, as most.
fn cut(texts: &ArrayRef) -> Result<ArrayRef> {
    Ok(match texts.data_type() {
        DataType::Utf8 => of_texts::<i32>(texts),
        DataType::LargeUtf8 => of_texts::<i64>(texts),
        DataType::Utf8View => {
            let views = texts.as_string_view();
            match views.iter().flatten().any(has_zone) {
                true => Arc::new(views.iter().map(shortened).collect::<StringViewArray>()),
                false => Arc::clone(texts),
            }
        }
        other => return internal_err!("a text without a zone of {other}"),
    })
}

fn of_texts<O: OffsetSizeTrait>(texts: &ArrayRef) -> ArrayRef {
    let all = texts.as_string::<O>();
    match all.iter().flatten().any(has_zone) {
        true => Arc::new(all.iter().map(shortened).collect::<GenericStringArray<O>>()),
        false => Arc::clone(texts),
    }
}

fn has_zone(text: &str) -> bool {
    before_zone(text).is_some()
}

fn shortened(text: Option<&str>) -> Option<&str> {
    text.map(|text| before_zone(text).unwrap_or(text))
}

/// What stands before `Z`, `-05`, `+0530` or `+05:30` behind a time of day.
fn before_zone(text: &str) -> Option<&str> {
    let text = text.trim_end();
    let begin = match text.strip_suffix(['Z', 'z']) {
        Some(begin) => begin,
        None => {
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
    let begin = begin.trim_end();
    // A day by itself has none: 2013-07-01.
    let is_time = begin.contains(':') && begin.ends_with(|letter: char| letter.is_ascii_digit());
    is_time.then_some(begin)
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
            "10:00:00 Europe/Berlin",
        ] {
            assert_eq!(before_zone(text), None, "{text}");
        }
    }

    #[test]
    fn texts_of_all_layouts_are_cut_and_others_are_handed_on() {
        let given = [Some("10:00:00Z"), None, Some("10:00:00")];
        let expected = [Some("10:00:00"), None, Some("10:00:00")];
        let short: ArrayRef = Arc::new(GenericStringArray::<i32>::from(given.to_vec()));
        let long: ArrayRef = Arc::new(GenericStringArray::<i64>::from(given.to_vec()));
        let views: ArrayRef = Arc::new(StringViewArray::from(given.to_vec()));
        for texts in [short, long, views] {
            let done = cut(&texts).unwrap();
            let wanted: ArrayRef = Arc::new(StringViewArray::from(expected.to_vec()));
            let wanted = arrow::compute::cast(&wanted, texts.data_type()).unwrap();
            assert_eq!(&done, &wanted);
            let rest = done.slice(1, 2);
            assert!(Arc::ptr_eq(&cut(&rest).unwrap(), &rest));
        }
    }
}
