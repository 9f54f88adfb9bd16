//! All that a regular expression matches in a text, and what lies between: lists of texts.
//!
//! Comes in: texts, and patterns of the crate `regex`. Goes out: for each text a list. Never here: whether a pattern matches, what is put in place of it, which the engine knows.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListBuilder, StringArray, StringBuilder};
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_REGEX;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};
use datafusion::prelude::SessionContext;
use regex::{Regex, RegexBuilder};

use crate::error::{Error, ErrorKind};

/// So many patterns are kept at once, of so many bytes each when they are made ready.
const MAX_KNOWN: usize = 8;
const MAX_BYTES: usize = 4 << 20;

/// Adds the functions.
pub(super) fn add_to(context: &SessionContext) {
    for function in [Parts::matches(), Parts::between()] {
        context.register_udf(ScalarUDF::from(function));
    }
}

static MATCHES: LazyLock<Documentation> = LazyLock::new(|| {
    Documentation::builder(
        DOC_SECTION_REGEX,
        "A list of all that a regular expression matches in a text, or a group of it.",
        "regexp_extract_all(text, pattern[, group])",
    )
    .with_argument("text", "A text.")
    .with_argument("pattern", "A regular expression.")
    .with_argument("group", "The number of a group; 0, the whole, without it.")
    .with_sql_example("SELECT regexp_extract_all('a1b22', '[0-9]+') -- ['1', '22']")
    .build()
});

static BETWEEN: LazyLock<Documentation> = LazyLock::new(|| {
    Documentation::builder(
        DOC_SECTION_REGEX,
        "A list of what lies between the places that a regular expression matches in a text.",
        "regexp_split_to_array(text, pattern)",
    )
    .with_argument("text", "A text.")
    .with_argument("pattern", "A regular expression.")
    .with_sql_example("SELECT regexp_split_to_array('a, b;c', '[,;] ?') -- ['a', 'b', 'c']")
    .build()
});

/// One of the functions.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Parts {
    signature: Signature,
    /// Whether what lies between is wanted.
    is_between: bool,
}

impl Parts {
    fn matches() -> Self {
        let (text, number) = (DataType::Utf8, DataType::Int64);
        let kinds = vec![
            TypeSignature::Exact(vec![text.clone(), text.clone()]),
            TypeSignature::Exact(vec![text.clone(), text, number]),
        ];
        Self {
            signature: Signature::one_of(kinds, Volatility::Immutable),
            is_between: false,
        }
    }

    fn between() -> Self {
        let kinds = vec![DataType::Utf8, DataType::Utf8];
        Self {
            signature: Signature::exact(kinds, Volatility::Immutable),
            is_between: true,
        }
    }
}

impl ScalarUDFImpl for Parts {
    fn name(&self) -> &'static str {
        match self.is_between {
            true => "regexp_split_to_array",
            false => "regexp_extract_all",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(match self.is_between {
            true => &BETWEEN,
            false => &MATCHES,
        })
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        let element = Field::new_list_field(DataType::Utf8, true);
        Ok(DataType::List(Arc::new(element)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let are_scalars = arguments.args.iter().all(is_one);
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let lists = match arrays.as_slice() {
            [texts, patterns] => self.of_rows(texts.as_string(), patterns.as_string(), None)?,
            [texts, patterns, groups] => self.of_rows(
                texts.as_string(),
                patterns.as_string(),
                Some(groups.as_primitive::<Int64Type>()),
            )?,
            other => {
                return datafusion::common::internal_err!(
                    "{} of {} values",
                    self.name(),
                    other.len()
                );
            }
        };
        Ok(match are_scalars {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&lists, 0)?),
            false => ColumnarValue::Array(lists),
        })
    }
}

impl Parts {
    fn of_rows(
        &self,
        texts: &StringArray,
        patterns: &StringArray,
        groups: Option<&Int64Array>,
    ) -> Result<ArrayRef> {
        // Nearly always there is one.
        let mut known: HashMap<&str, Regex> = HashMap::new();
        let mut lists = ListBuilder::new(StringBuilder::new());
        for (row, (text, pattern)) in texts.iter().zip(patterns).enumerate() {
            let group = match groups {
                None => Some(0),
                Some(groups) => groups.is_valid(row).then(|| groups.value(row)),
            };
            let (Some(text), Some(pattern), Some(group)) = (text, pattern, group) else {
                lists.append(false);
                continue;
            };
            if !known.contains_key(pattern) {
                if known.len() >= MAX_KNOWN {
                    known.clear();
                }
                known.insert(pattern, compiled(pattern)?);
            }
            let Some(expression) = known.get(pattern) else {
                return datafusion::common::internal_err!("a pattern was lost");
            };
            match self.is_between {
                true => {
                    between(expression, text).for_each(|part| lists.values().append_value(part))
                }
                false => {
                    let group = group_of(expression, pattern, group)?;
                    for found in expression.captures_iter(text) {
                        // As `regexp_extract`: of a group that matches nothing it is an empty text.
                        let part = found.get(group).map_or("", |part| part.as_str());
                        lists.values().append_value(part);
                    }
                }
            }
            lists.append(true);
        }
        Ok(Arc::new(lists.finish()))
    }
}

/// What lies between matches. One of nothing at the begin or the end of a text parts nothing, as in PostgreSQL and DuckDB.
fn between<'a>(expression: &'a Regex, text: &'a str) -> impl Iterator<Item = &'a str> {
    let parts = expression
        .find_iter(text)
        .filter(|found| !found.is_empty() || found.start() > 0 && found.end() < text.len());
    let ends = parts.map(|found| (found.start(), found.end()));
    let mut begin = 0;
    ends.chain([(text.len(), text.len())])
        .map(move |(end, next)| {
            let part = text.get(begin..end).unwrap_or_default();
            begin = next;
            part
        })
}

fn compiled(pattern: &str) -> Result<Regex> {
    let built = RegexBuilder::new(pattern).size_limit(MAX_BYTES).build();
    // In the words that others have for it, wherever it is found.
    built.map_err(|error| match error {
        regex::Error::Syntax(text) => DataFusionError::Execution(text),
        other => {
            let text = format!("the regular expression {pattern:?} cannot be used: {other}");
            Error::new(ErrorKind::Query, text).into()
        }
    })
}

fn group_of(expression: &Regex, pattern: &str, group: i64) -> Result<usize> {
    let known = usize::try_from(group).ok();
    known
        .filter(|group| *group < expression.captures_len())
        .ok_or_else(|| {
            let groups = expression.captures_len() - 1;
            let text = format!(
                "group must be one of the {groups} of the regular expression {pattern:?}, or 0 for the whole, got {group}"
            );
            Error::new(ErrorKind::Query, text).into()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_matches() {
        let cases: [(&str, &str, &[&str]); 8] = [
            ("abc", "", &["a", "b", "c"]),
            ("abc", "x*", &["a", "b", "c"]),
            ("a1b22c", "[0-9]+", &["a", "b", "c"]),
            ("1a1", "1", &["", "a", ""]),
            ("abc", "z", &["abc"]),
            ("", "z", &[""]),
            ("", "", &[""]),
            ("é, ü", ", ?", &["é", "ü"]),
        ];
        for (text, pattern, expected) in cases {
            let expression = Regex::new(pattern).unwrap();
            let parts: Vec<&str> = between(&expression, text).collect();
            assert_eq!(parts, expected, "{text:?} at {pattern:?}");
        }
    }
}
