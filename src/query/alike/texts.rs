//! How alike two texts are, by their letters.
//!
//! Comes in: two texts. Goes out: a number: how many letters differ, or a share between 0 and 1; null where one of them is. Never here: what the measures are, which strsim knows.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, StringViewArray};
use arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_STRING;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::prelude::SessionContext;

use crate::error::{Error, ErrorKind};

/// Adds the functions.
pub(super) fn add_to(context: &SessionContext) {
    for measure in [
        Measure::Jaro,
        Measure::JaroWinkler,
        Measure::DamerauLevenshtein,
        Measure::Hamming,
        Measure::Jaccard,
    ] {
        context.register_udf(ScalarUDF::from(Alike {
            measure,
            signature: Signature::user_defined(Volatility::Immutable),
            aliases: match measure {
                Measure::Hamming => vec!["mismatches".to_owned()],
                _ => Vec::new(),
            },
        }));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Measure {
    Jaro,
    JaroWinkler,
    DamerauLevenshtein,
    Hamming,
    Jaccard,
}

impl Measure {
    fn name(self) -> &'static str {
        match self {
            Self::Jaro => "jaro_similarity",
            Self::JaroWinkler => "jaro_winkler_similarity",
            Self::DamerauLevenshtein => "damerau_levenshtein",
            Self::Hamming => "hamming",
            Self::Jaccard => "jaccard",
        }
    }

    /// Whether it counts letters.
    fn counts(self) -> bool {
        matches!(self, Self::DamerauLevenshtein | Self::Hamming)
    }

    fn documented(self) -> Documentation {
        let about = match self {
            Self::Jaro => "How alike two texts are by Jaro, between 0 and 1.",
            Self::JaroWinkler => {
                "How alike two texts are by Jaro and Winkler, between 0 and 1: those that begin alike are more so."
            }
            Self::DamerauLevenshtein => {
                "How many letters must be put in, taken away, changed or exchanged with the next one to make one text of another."
            }
            Self::Hamming => "In how many places two texts of one length differ.",
            Self::Jaccard => {
                "Of all letters of two texts, which may not be empty, the share that both have."
            }
        };
        let syntax = format!("{}(text, other)", self.name());
        Documentation::builder(DOC_SECTION_STRING, about, syntax)
            .with_argument("text", "A text.")
            .with_argument("other", "Another text.")
            .build()
    }

    fn count(self, one: &str, other: &str) -> Result<i64> {
        let count = match self {
            Self::Hamming => strsim::hamming(one, other).map_err(|_| {
                wrong(format!(
                    "hamming takes two texts of one length, got {} and {} letters",
                    one.chars().count(),
                    other.chars().count()
                ))
            })?,
            _ => strsim::damerau_levenshtein(one, other),
        };
        // Texts have fewer letters.
        Ok(i64::try_from(count).unwrap_or(i64::MAX))
    }

    fn share(self, one: &str, other: &str) -> Result<f64> {
        Ok(match self {
            Self::Jaro => strsim::jaro(one, other),
            Self::JaroWinkler => strsim::jaro_winkler(one, other),
            _ => common_letters(one, other).ok_or_else(|| {
                wrong("jaccard takes texts with at least one letter, got an empty one".to_owned())
            })?,
        })
    }
}

fn wrong(text: String) -> Error {
    Error::new(ErrorKind::Query, text)
}

/// The share of letters that both texts have; `None` where one has none.
#[expect(clippy::cast_precision_loss, reason = "there are few letters")]
fn common_letters(one: &str, other: &str) -> Option<f64> {
    if one.is_empty() || other.is_empty() {
        return None;
    }
    let (one, other): (HashSet<char>, HashSet<char>) =
        (one.chars().collect(), other.chars().collect());
    let common = one.intersection(&other).count();
    let all = one.len() + other.len() - common;
    Some(common as f64 / all as f64)
}

static DOCUMENTATION: LazyLock<[Documentation; 5]> = LazyLock::new(|| {
    [
        Measure::Jaro,
        Measure::JaroWinkler,
        Measure::DamerauLevenshtein,
        Measure::Hamming,
        Measure::Jaccard,
    ]
    .map(Measure::documented)
});

#[derive(Debug, PartialEq, Eq, Hash)]
struct Alike {
    measure: Measure,
    signature: Signature,
    aliases: Vec<String>,
}

impl ScalarUDFImpl for Alike {
    fn name(&self) -> &'static str {
        self.measure.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn documentation(&self) -> Option<&Documentation> {
        DOCUMENTATION.get(self.measure as usize)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let name = self.name();
        if types.len() != 2 {
            return plan_err!("{name} takes (text, other), got {} arguments", types.len());
        }
        if let Some(other) = types.iter().find(|kind| !is_text(kind)) {
            return plan_err!("{name} takes two texts, got {other}");
        }
        Ok(vec![DataType::Utf8View; 2])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.measure.counts() {
            true => DataType::Int64,
            false => DataType::Float64,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_same = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let are_same = arguments.args.iter().all(is_same);
        // Views of one text, however many: it is there once.
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let [one, other] = arrays.as_slice() else {
            return datafusion::common::internal_err!("texts that are compared are two");
        };
        let pairs = Pairs {
            one: one.as_string_view(),
            other: other.as_string_view(),
        };
        let made: ArrayRef = match self.measure.counts() {
            true => {
                let counts = pairs.map(|one, other| self.measure.count(one, other));
                Arc::new(counts.collect::<Result<Int64Array>>()?)
            }
            false => {
                let shares = pairs.map(|one, other| self.measure.share(one, other));
                Arc::new(shares.collect::<Result<Float64Array>>()?)
            }
        };
        Ok(match are_same {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?),
            false => ColumnarValue::Array(made),
        })
    }
}

/// Two columns of texts.
struct Pairs<'a> {
    one: &'a StringViewArray,
    other: &'a StringViewArray,
}

impl<'a> Pairs<'a> {
    /// A value for each two texts.
    fn map<T>(
        self,
        value: impl Fn(&str, &str) -> Result<T> + 'a,
    ) -> impl Iterator<Item = Result<Option<T>>> + 'a {
        let both = self.one.iter().zip(self.other);
        both.map(move |both| match both {
            (Some(one), Some(other)) => value(one, other).map(Some),
            _ => Ok(None),
        })
    }
}

fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => is_text(values),
        DataType::RunEndEncoded(_, values) => is_text(values.data_type()),
        kind => kind.is_string() || kind.is_null(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_those_of_people() {
        assert_eq!(Measure::Hamming.count("é", "e").unwrap(), 1);
        assert_eq!(Measure::DamerauLevenshtein.count("ca", "abc").unwrap(), 2);
        assert!(Measure::Hamming.count("a", "ab").is_err());
        assert_eq!(common_letters("aab", "ab"), Some(1.0));
        assert_eq!(common_letters("duck", "luck"), Some(0.6));
        assert_eq!(common_letters("", "a"), None);
    }
}
