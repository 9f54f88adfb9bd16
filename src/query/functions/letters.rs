//! Letters of texts by their places: `s[1]`, `s[-2]`, `s[2:4]`.
//!
//! Comes in: what stands in brackets behind a text. Goes out: the letters from one place to another, both among them, counted from 1, or from the end where they are less than 0; as of lists, what is not there is left out. Never here: elements of
//! lists, entries of maps, fields of structs, which the engine knows.

use std::sync::{Arc, LazyLock};

use arrow::array::{
    ArrayRef, AsArray, GenericStringArray, Int64Array, OffsetSizeTrait, StringViewArray,
};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawFieldAccessExpr};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ExprSchemable, GetFieldAccess, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, lit, scalar_doc_sections::DOC_SECTION_STRING,
};
use datafusion::prelude::SessionContext;

use crate::error::{Error, ErrorKind};

/// Adds the function.
pub(super) fn add_to(context: &SessionContext) {
    context.register_udf(ScalarUDF::from(Letters::new()));
}

/// Reads brackets behind texts.
#[derive(Debug)]
pub(in crate::query) struct Subscripts;

impl ExprPlanner for Subscripts {
    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        let kind = access.expr.get_type(schema);
        if !kind.is_ok_and(|kind| text_of(&kind).is_some()) {
            return Ok(PlannerResult::Original(access));
        }
        let (begin, end) = match access.field_access {
            GetFieldAccess::ListIndex { key } => (key.as_ref().clone(), *key),
            GetFieldAccess::ListRange {
                start,
                stop,
                stride,
            } if *stride == lit(1_i64) => (*start, *stop),
            GetFieldAccess::ListRange { stride, .. } => {
                let text =
                    format!("letters of a text are one after the other, got steps of {stride}");
                return Err(Error::unsupported(text)
                    .with_hint("write text[from:to]")
                    .into());
            }
            GetFieldAccess::NamedStructField { name } => {
                let text = format!("a text has letters and no fields, got [{name}] behind one");
                return Err(Error::new(ErrorKind::Query, text)
                    .with_hint("letters are found by numbers: s[1], s[2:3]; of a text of JSON write j ->> 'name'")
                    .into());
            }
        };
        let letters = ScalarUDF::from(Letters::new());
        Ok(PlannerResult::Planned(letters.call(vec![
            access.expr,
            begin,
            end,
        ])))
    }
}

/// The type of a text that is stored like this; `None` for what is none.
fn text_of(kind: &DataType) -> Option<DataType> {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(kind.clone()),
        DataType::Dictionary(_, value) => text_of(value),
        DataType::RunEndEncoded(_, value) => text_of(value.data_type()),
        _ => None,
    }
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    Documentation::builder(
        DOC_SECTION_STRING,
        "The letters of a text from one place to another, as `text[begin:end]`. Places are counted from 1, or from the end where they are less than 0.",
        "text_slice(text, begin, end)",
    )
    .with_argument("text", "A text.")
    .with_argument("begin", "The place of the first letter.")
    .with_argument("end", "The place of the last one.")
    .with_sql_example("SELECT text_slice('partgrid', -4, -1) -- grid")
    .build()
});

#[derive(Debug, PartialEq, Eq, Hash)]
struct Letters {
    signature: Signature,
}

impl Letters {
    fn new() -> Self {
        Self {
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for Letters {
    fn name(&self) -> &'static str {
        "text_slice"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&DOCUMENTATION)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [text, begin, end] = types else {
            return datafusion::common::plan_err!(
                "text_slice takes (text, begin, end), got {} arguments",
                types.len()
            );
        };
        let text = match text {
            DataType::Null => Some(DataType::Utf8),
            text => text_of(text),
        };
        let is_place = |kind: &DataType| kind.is_integer() || kind.is_null();
        match text {
            Some(text) if is_place(begin) && is_place(end) => {
                Ok(vec![text, DataType::Int64, DataType::Int64])
            }
            _ => datafusion::common::plan_err!(
                "letters of a text are found by whole numbers, got {types:?}"
            ),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types.first().cloned().unwrap_or(DataType::Utf8))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let are_scalars = arguments.args.iter().all(is_one);
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let [texts, begins, ends] = arrays.as_slice() else {
            return datafusion::common::internal_err!("text_slice of {} values", arrays.len());
        };
        let (begins, ends) = (
            begins.as_primitive::<Int64Type>(),
            ends.as_primitive::<Int64Type>(),
        );
        let cut: ArrayRef = match texts.data_type() {
            DataType::Utf8 => Arc::new(cut::<i32>(texts, begins, ends)),
            DataType::LargeUtf8 => Arc::new(cut::<i64>(texts, begins, ends)),
            DataType::Utf8View => {
                let texts = texts.as_string_view().iter();
                let cut = texts.zip(begins).zip(ends);
                let cut = cut.map(|((text, begin), end)| Some(between(text?, begin?, end?)));
                Arc::new(cut.collect::<StringViewArray>())
            }
            other => return datafusion::common::internal_err!("text_slice of {other}"),
        };
        Ok(match are_scalars {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&cut, 0)?),
            false => ColumnarValue::Array(cut),
        })
    }
}

fn cut<O: OffsetSizeTrait>(
    texts: &ArrayRef,
    begins: &Int64Array,
    ends: &Int64Array,
) -> GenericStringArray<O> {
    let texts = texts.as_string::<O>().iter();
    let cut = texts.zip(begins).zip(ends);
    cut.map(|((text, begin), end)| Some(between(text?, begin?, end?)))
        .collect()
}

/// The letters from one place to another.
fn between(text: &str, begin: i64, end: i64) -> &str {
    let is_from_end = begin < 0 || end < 0;
    let letters = match is_from_end {
        true => i64::try_from(text.chars().count()).unwrap_or(i64::MAX),
        // As many as there may be.
        false => i64::try_from(text.len()).unwrap_or(i64::MAX),
    };
    let counted = |place: i64| match place < 0 {
        true => letters.saturating_add(place).saturating_add(1),
        false => place,
    };
    let (begin, end) = (counted(begin).max(1), counted(end).min(letters));
    if end < begin {
        return "";
    }
    let byte = |place: i64| {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        match text.is_ascii() {
            true => place.min(text.len()),
            false => text
                .char_indices()
                .nth(place)
                .map_or(text.len(), |(byte, _)| byte),
        }
    };
    text.get(byte(begin - 1)..byte(end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_letters() {
        let cases = [
            ("hello", 1, 1, "h"),
            ("hello", 2, 3, "el"),
            ("hello", -1, -1, "o"),
            ("hello", 0, 0, ""),
            ("hello", 1, -2, "hell"),
            ("hello", -3, -2, "ll"),
            ("hello", 10, 10, ""),
            ("hello", -10, -10, ""),
            ("hello", -10, 2, "he"),
            ("hello", 0, 2, "he"),
            ("hello", 3, 1, ""),
            ("hello", 4, 100, "lo"),
            ("hello", i64::MIN, i64::MAX, "hello"),
            ("hello", i64::MAX, i64::MIN, ""),
            ("héllö", 2, 2, "é"),
            ("héllö", -1, -1, "ö"),
            ("héllö", 2, 100, "éllö"),
            ("ö", 2, 2, ""),
            ("", 1, 1, ""),
            ("", -1, -1, ""),
        ];
        for (text, begin, end, expected) in cases {
            assert_eq!(between(text, begin, end), expected, "{text}[{begin}:{end}]");
        }
    }
}
