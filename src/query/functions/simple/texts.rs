//! Texts in other letters: as parts of a URL, without accents, and numbers of bytes for people.
//!
//! Comes in: texts, numbers of bytes. Goes out: texts. Never here: regular expressions, which `functions/matches.rs` has.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringViewArray};
use arrow::datatypes::Int64Type;
use datafusion::error::Result;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_STRING;
use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use icu_properties::CodePointMapData;
use icu_properties::props::{GeneralCategory, GeneralCategoryGroup};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::{Function, Takes, text, wrong};

pub(super) const ALL: &[Function] = &[
    Function {
        name: "url_encode",
        aliases: &[],
        section: DOC_SECTION_STRING,
        about: "A text as a part of a URL: all but letters and digits of ASCII and '-', '_', '.' and '~' is written as '%' and two digits for each byte.",
        takes: &[("text", Takes::Text)],
        least: 1,
        repeats: false,
        returned: text,
        made: |arrays| of_texts(arrays, |part| Ok(encoded(part))),
    },
    Function {
        name: "url_decode",
        aliases: &[],
        section: DOC_SECTION_STRING,
        about: "The text that url_encode writes so; '+' stays as it is.",
        takes: &[("text", Takes::Text)],
        least: 1,
        repeats: false,
        returned: text,
        made: |arrays| of_texts(arrays, decoded),
    },
    Function {
        name: "strip_accents",
        aliases: &[],
        section: DOC_SECTION_STRING,
        about: "A text without the marks on its letters: 'mühle' becomes 'muhle'.",
        takes: &[("text", Takes::Text)],
        least: 1,
        repeats: false,
        returned: text,
        made: |arrays| of_texts(arrays, |text| Ok(without_accents(text))),
    },
    Function {
        name: "nfc_normalize",
        aliases: &[],
        section: DOC_SECTION_STRING,
        about: "A text in the composed form of Unicode (NFC), so that texts that look alike are alike.",
        takes: &[("text", Takes::Text)],
        least: 1,
        repeats: false,
        returned: text,
        made: |arrays| {
            of_texts(arrays, |text| {
                Ok(ComposingNormalizerBorrowed::new_nfc()
                    .normalize(text)
                    .into_owned())
            })
        },
    },
    Function {
        name: "regexp_escape",
        aliases: &[],
        section: DOC_SECTION_STRING,
        about: "A regular expression that matches a text as it is.",
        takes: &[("text", Takes::Text)],
        least: 1,
        repeats: false,
        returned: text,
        made: |arrays| of_texts(arrays, |text| Ok(regex::escape(text))),
    },
    Function {
        name: "format_bytes",
        aliases: &["formatreadablesize"],
        section: DOC_SECTION_STRING,
        about: "A number of bytes for people, in steps of 1024: '15.6 KiB'; what is less than a tenth is cut off.",
        takes: &[("bytes", Takes::Whole)],
        least: 1,
        repeats: false,
        returned: text,
        made: |arrays| sizes(arrays, 1024, &["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]),
    },
    Function {
        name: "formatreadabledecimalsize",
        aliases: &[],
        section: DOC_SECTION_STRING,
        about: "A number of bytes for people, in steps of 1000: '16.0 kB'; what is less than a tenth is cut off.",
        takes: &[("bytes", Takes::Whole)],
        least: 1,
        repeats: false,
        returned: text,
        made: |arrays| sizes(arrays, 1000, &["kB", "MB", "GB", "TB", "PB", "EB"]),
    },
];

/// What of ASCII a part of a URL cannot have (RFC 3986, section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

fn encoded(part: &str) -> String {
    utf8_percent_encode(part, RESERVED).to_string()
}

fn decoded(part: &str) -> Result<String> {
    match percent_decode_str(part).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(error) => {
            let text = format!("url_decode takes a text of UTF-8, {part:?} is none: {error}");
            Err(wrong(text).into())
        }
    }
}

fn without_accents(text: &str) -> String {
    let categories = CodePointMapData::<GeneralCategory>::new();
    let is_mark = |letter: char| GeneralCategoryGroup::Mark.contains(categories.get(letter));
    let decomposed = DecomposingNormalizerBorrowed::new_nfd().normalize(text);
    let plain: String = decomposed
        .chars()
        .filter(|letter| !is_mark(*letter))
        .collect();
    ComposingNormalizerBorrowed::new_nfc()
        .normalize(&plain)
        .into_owned()
}

fn of_texts(arrays: &[ArrayRef], value: fn(&str) -> Result<String>) -> Result<ArrayRef> {
    let [texts] = arrays else {
        return datafusion::common::internal_err!("one text of several");
    };
    let texts = texts.as_string_view().iter();
    let made: StringViewArray = texts
        .map(|text| text.map(value).transpose())
        .collect::<Result<_>>()?;
    Ok(Arc::new(made))
}

fn sizes(arrays: &[ArrayRef], step: u64, units: &[&str]) -> Result<ArrayRef> {
    let [numbers] = arrays else {
        return datafusion::common::internal_err!("the size of several numbers");
    };
    let numbers = numbers.as_primitive::<Int64Type>().iter();
    let texts: StringViewArray = numbers
        .map(|number| number.map(|number| size(number, step, units)))
        .collect();
    Ok(Arc::new(texts))
}

/// The size in the largest unit of which there is one, cut off behind the first digit.
fn size(number: i64, step: u64, units: &[&str]) -> String {
    let sign = if number < 0 { "-" } else { "" };
    let bytes = number.unsigned_abs();
    let mut unit = (1_u64, None);
    for name in units {
        match unit.0.checked_mul(step) {
            Some(next) if next <= bytes => unit = (next, Some(name)),
            _ => break,
        }
    }
    match unit {
        (_, None) if bytes == 1 => format!("{sign}1 byte"),
        (_, None) => format!("{sign}{bytes} bytes"),
        (unit, Some(name)) => {
            let (whole, rest) = (bytes / unit, u128::from(bytes % unit));
            format!("{sign}{whole}.{} {name}", rest * 10 / u128::from(unit))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_cut_off() {
        let binary = |number| size(number, 1024, &["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]);
        assert_eq!(binary(1), "1 byte");
        assert_eq!(binary(1_048_575), "1023.9 KiB");
        assert_eq!(binary(i64::MIN), "-8.0 EiB");
        assert_eq!(size(999_950, 1000, &["kB", "MB"]), "999.9 kB");
    }

    #[test]
    fn letters_lose_their_marks_and_nothing_else() {
        assert_eq!(without_accents("Ærøskøbing ñ ḍ̇ Å"), "Ærøskøbing n d A");
        assert_eq!(without_accents("한국어 ﬁ ½"), "한국어 ﬁ ½");
    }

    #[test]
    fn parts_of_urls_come_back() {
        let part = "a b/ä?&=+%-_.~";
        assert_eq!(decoded(&encoded(part)).unwrap(), part);
        assert_eq!(decoded("c+%zz%").unwrap(), "c+%zz%");
        assert!(decoded("%ff").is_err());
    }
}
