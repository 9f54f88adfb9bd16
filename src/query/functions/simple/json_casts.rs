//! Values that are cast to JSON.
//!
//! Comes in: values of any type. Goes out: texts of JSON: of texts they are these, if they are JSON, of others what `to_json` makes. Never here: which casts these are (`rewrite/type_words.rs`).

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::error::Result;

use super::json_texts::{SECTION, only, to_json, valid};
use super::{Function, Takes, is_text, text};

/// The function of `CAST(value AS JSON)`.
pub(in crate::query) const CAST: &str = "__json_cast";

/// The function of `TRY_CAST(value AS JSON)`.
pub(in crate::query) const TRY_CAST: &str = "__json_try_cast";

pub(super) const ALL: &[Function] = &[
    Function {
        name: CAST,
        aliases: &[],
        section: SECTION,
        about: "What `CAST(value AS JSON)` is: a text as it is, if it is JSON, or an error; other values as `to_json` has them.",
        takes: &[("value", Takes::Any)],
        least: 1,
        repeats: false,
        returned: text,
        made: |arrays| casted(arrays, |text| valid(text).map(|()| Some(text))),
    },
    Function {
        name: TRY_CAST,
        aliases: &[],
        section: SECTION,
        about: "What `TRY_CAST(value AS JSON)` is: that of `CAST`, but null for texts that are no JSON.",
        takes: &[("value", Takes::Any)],
        least: 1,
        repeats: false,
        returned: text,
        made: |arrays| casted(arrays, |text| Ok(valid(text).is_ok().then_some(text))),
    },
];

/// Values as JSON, of which texts are that already.
fn casted(
    arrays: &[ArrayRef],
    looked_over: impl Fn(&str) -> Result<Option<&str>>,
) -> Result<ArrayRef> {
    let values = only(arrays)?;
    if !is_text(values.data_type()) {
        return to_json(arrays);
    }
    let texts = cast(values, &DataType::Utf8View)?;
    let texts = texts.as_string_view().iter();
    let texts = texts.map(|text| text.map_or(Ok(None), &looked_over));
    let texts: StringViewArray = texts.collect::<Result<_>>()?;
    Ok(Arc::new(texts))
}
