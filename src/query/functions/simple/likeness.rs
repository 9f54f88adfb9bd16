//! How alike two texts are, by their letters.
//!
//! Comes in: two texts. Goes out: a number: how many letters differ, or a share between 0 and 1; null where one of them is. Never here: what the measures are, which strsim knows.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, StringViewArray};
use datafusion::error::Result;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_STRING;

use super::{Function, Takes, float, whole, wrong};

const TWO_TEXTS: &[(&str, Takes)] = &[("text", Takes::Text), ("other", Takes::Text)];

pub(super) const ALL: &[Function] = &[
    Function {
        name: "jaro_similarity",
        aliases: &[],
        section: DOC_SECTION_STRING,
        about: "How alike two texts are by Jaro, between 0 and 1.",
        takes: TWO_TEXTS,
        least: 2,
        repeats: false,
        returned: float,
        made: |arrays| shares(arrays, |one, other| Ok(strsim::jaro(one, other))),
    },
    Function {
        name: "jaro_winkler_similarity",
        aliases: &[],
        section: DOC_SECTION_STRING,
        about: "How alike two texts are by Jaro and Winkler, between 0 and 1: those that begin alike are more so.",
        takes: TWO_TEXTS,
        least: 2,
        repeats: false,
        returned: float,
        made: |arrays| shares(arrays, |one, other| Ok(strsim::jaro_winkler(one, other))),
    },
    Function {
        name: "damerau_levenshtein",
        aliases: &[],
        section: DOC_SECTION_STRING,
        about: "How many letters must be put in, taken away, changed or exchanged with the next one to make one text of another.",
        takes: TWO_TEXTS,
        least: 2,
        repeats: false,
        returned: whole,
        made: |arrays| {
            counts(arrays, |one, other| {
                Ok(strsim::damerau_levenshtein(one, other))
            })
        },
    },
    Function {
        name: "hamming",
        aliases: &["mismatches"],
        section: DOC_SECTION_STRING,
        about: "In how many places two texts of one length differ.",
        takes: TWO_TEXTS,
        least: 2,
        repeats: false,
        returned: whole,
        made: |arrays| counts(arrays, places_that_differ),
    },
    Function {
        name: "jaccard",
        aliases: &[],
        section: DOC_SECTION_STRING,
        about: "Of all letters of two texts, which may not be empty, the share that both have.",
        takes: TWO_TEXTS,
        least: 2,
        repeats: false,
        returned: float,
        made: |arrays| shares(arrays, share_of_letters),
    },
];

fn places_that_differ(one: &str, other: &str) -> Result<usize> {
    strsim::hamming(one, other).map_err(|_| {
        let (one, other) = (one.chars().count(), other.chars().count());
        let text = format!("hamming takes two texts of one length, got {one} and {other} letters");
        wrong(text).into()
    })
}

fn share_of_letters(one: &str, other: &str) -> Result<f64> {
    common_letters(one, other).ok_or_else(|| {
        wrong("jaccard takes texts with at least one letter, got an empty one").into()
    })
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

fn counts(arrays: &[ArrayRef], count: fn(&str, &str) -> Result<usize>) -> Result<ArrayRef> {
    // Texts have fewer letters.
    let whole = |count| i64::try_from(count).unwrap_or(i64::MAX);
    let counts = Pairs::of(arrays)?.map(|one, other| count(one, other).map(whole));
    Ok(Arc::new(counts.collect::<Result<Int64Array>>()?))
}

fn shares(arrays: &[ArrayRef], share: fn(&str, &str) -> Result<f64>) -> Result<ArrayRef> {
    let shares = Pairs::of(arrays)?.map(share);
    Ok(Arc::new(shares.collect::<Result<Float64Array>>()?))
}

/// Two columns of texts.
struct Pairs<'a> {
    one: &'a StringViewArray,
    other: &'a StringViewArray,
}

impl<'a> Pairs<'a> {
    fn of(arrays: &'a [ArrayRef]) -> Result<Self> {
        match arrays {
            [one, other] => Ok(Self {
                one: one.as_string_view(),
                other: other.as_string_view(),
            }),
            _ => datafusion::common::internal_err!("texts that are compared are two"),
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_those_of_people() {
        assert_eq!(places_that_differ("é", "e").unwrap(), 1);
        assert_eq!(strsim::damerau_levenshtein("ca", "abc"), 2);
        assert!(places_that_differ("a", "ab").is_err());
        assert_eq!(common_letters("aab", "ab"), Some(1.0));
        assert_eq!(common_letters("duck", "luck"), Some(0.6));
        assert_eq!(common_letters("", "a"), None);
    }
}
