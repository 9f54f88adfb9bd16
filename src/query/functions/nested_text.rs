//! The texts of lists, structs and maps.
//!
//! Comes in: nested values. Goes out: a text for each, as DuckDB writes it: `[1, NULL]`, `{'a': 1, 'b': x}`, `{k=1}`. What is in them is written as a cast writes it; a text that could be read as something else stands in quotes. Never here: which casts these are (`plan/meaning/listed_text.rs`).

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeStringArray, LargeStringBuilder};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

/// The function: a nested value, of which it gives the text.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct NestedText {
    signature: Signature,
}

impl NestedText {
    pub(in crate::query) fn new() -> Self {
        Self {
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for NestedText {
    fn name(&self) -> &'static str {
        "nested_text"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::LargeUtf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [values] = arguments.args.as_slice() else {
            return internal_err!("the text of several values");
        };
        Ok(match values {
            ColumnarValue::Array(values) => ColumnarValue::Array(Arc::new(texts(values)?)),
            ColumnarValue::Scalar(value) => {
                let text = texts(&value.to_array()?)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&text, 0)?)
            }
        })
    }
}

/// Whether values of a type have others in them.
pub(in crate::query) fn has_text(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => has_text(values),
        kind => kind.is_list() || matches!(kind, DataType::Struct(_) | DataType::Map(..)),
    }
}

/// The text of each value; none of those that are null.
fn texts(values: &ArrayRef) -> Result<LargeStringArray> {
    match values.data_type() {
        DataType::Struct(_) => of_structs(values),
        DataType::Map(..) => of_maps(values),
        DataType::Dictionary(_, kind) => texts(&cast(values, kind)?),
        // It has no time of day.
        DataType::Date64 => texts(&cast(values, &DataType::Date32)?),
        kind if kind.is_list() => of_lists(values),
        kind => {
            let options = CastOptions {
                safe: false,
                ..CastOptions::default()
            };
            let found = cast_with_options(values, &DataType::LargeUtf8, &options)?;
            let found = found.as_string::<i64>();
            Ok(match kind {
                // As a cast alone writes it.
                DataType::Timestamp(..) => found
                    .iter()
                    .map(|text| text.map(|text| text.replacen('T', " ", 1)))
                    .collect(),
                _ => found.clone(),
            })
        }
    }
}

fn of_structs(values: &ArrayRef) -> Result<LargeStringArray> {
    let structs = values.as_struct();
    let fields = structs.fields().iter().zip(structs.columns());
    let fields = fields.map(|(field, values)| {
        let mut name = String::new();
        quote(field.name(), &mut name);
        Ok((name, Within::of(values)?))
    });
    let fields: Vec<(String, Within)> = fields.collect::<Result<_>>()?;
    Ok(each(values, |row, text| {
        text.push('{');
        for (place, (name, values)) in fields.iter().enumerate() {
            between(place, text);
            text.push_str(name);
            text.push_str(": ");
            values.put(row, text);
        }
        text.push('}');
    }))
}

fn of_maps(values: &ArrayRef) -> Result<LargeStringArray> {
    let maps = values.as_map();
    let (keys, found) = (Within::of(maps.keys())?, Within::of(maps.values())?);
    let offsets = maps.value_offsets();
    Ok(each(values, |row, text| {
        text.push('{');
        for (place, entry) in range(offsets, row).enumerate() {
            between(place, text);
            keys.put(entry, text);
            text.push('=');
            found.put(entry, text);
        }
        text.push('}');
    }))
}

fn of_lists(values: &ArrayRef) -> Result<LargeStringArray> {
    // Of whatever kind: these have all others' elements.
    let Some(element) = element_of(values.data_type()) else {
        return internal_err!("a list that is {}", values.data_type());
    };
    let lists = cast(values, &DataType::LargeList(Arc::clone(element)))?;
    let lists = lists.as_list::<i64>();
    let elements = Within::of(lists.values())?;
    let offsets = lists.value_offsets();
    Ok(each(values, |row, text| {
        text.push('[');
        for (place, element) in range(offsets, row).enumerate() {
            between(place, text);
            elements.put(element, text);
        }
        text.push(']');
    }))
}

fn element_of(kind: &DataType) -> Option<&FieldRef> {
    match kind {
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::ListView(element)
        | DataType::LargeListView(element)
        | DataType::FixedSizeList(element, _) => Some(element),
        _ => None,
    }
}

/// A text of each value that is there.
fn each(values: &ArrayRef, write: impl Fn(usize, &mut String)) -> LargeStringArray {
    let mut texts = LargeStringBuilder::with_capacity(values.len(), 0);
    let mut text = String::new();
    for row in 0..values.len() {
        if values.is_null(row) {
            texts.append_null();
        } else {
            text.clear();
            write(row, &mut text);
            texts.append_value(&text);
        }
    }
    texts.finish()
}

fn range<O: Copy + TryInto<usize>>(offsets: &[O], row: usize) -> Range<usize> {
    let place = |row: usize| {
        offsets
            .get(row)
            .and_then(|offset| (*offset).try_into().ok())
    };
    place(row).unwrap_or_default()..place(row + 1).unwrap_or_default()
}

fn between(place: usize, text: &mut String) {
    if place > 0 {
        text.push_str(", ");
    }
}

/// The texts of what is in others.
struct Within {
    texts: LargeStringArray,
    /// Whether these are in brackets of their own.
    are_nested: bool,
}

impl Within {
    fn of(values: &ArrayRef) -> Result<Self> {
        Ok(Self {
            texts: texts(values)?,
            are_nested: has_text(values.data_type()),
        })
    }

    fn put(&self, row: usize, text: &mut String) {
        match self.texts.is_valid(row).then(|| self.texts.value(row)) {
            None => text.push_str("NULL"),
            Some(value) if self.are_nested || is_plain(value) => text.push_str(value),
            Some(value) => quote(value, text),
        }
    }
}

/// What else means something in the text of a nested value.
const SIGNS: [char; 12] = [',', '\'', '"', '[', ']', '{', '}', '(', ')', ':', '=', '\\'];

/// At either end of a text, they could be between it and a comma.
const BLANKS: [char; 6] = [' ', '\t', '\n', '\u{b}', '\u{c}', '\r'];

fn is_plain(value: &str) -> bool {
    !value.is_empty()
        && !value.starts_with(BLANKS)
        && !value.ends_with(BLANKS)
        && !value.eq_ignore_ascii_case("null")
        && !value.contains(SIGNS)
}

fn quote(value: &str, text: &mut String) {
    text.push('\'');
    for letter in value.chars() {
        if letter == '\'' || letter == '\\' {
            text.push('\\');
        }
        text.push(letter);
    }
    text.push('\'');
}

#[cfg(test)]
mod tests {
    use arrow::array::{FixedSizeListArray, Int64Array, ListArray, StringArray, StructArray};
    use arrow::datatypes::{Field, Int64Type};

    use super::*;

    fn shown(values: ArrayRef) -> Vec<Option<String>> {
        let found = texts(&values).unwrap();
        found.iter().map(|text| text.map(str::to_owned)).collect()
    }

    #[test]
    fn slices_have_the_texts_of_their_own_rows() {
        let lists: ListArray = ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1)]),
            None,
            Some(vec![None, Some(2)]),
            Some(vec![]),
        ]);
        let expected = [None, Some("[NULL, 2]".to_owned()), Some("[]".to_owned())];
        assert_eq!(shown(Arc::new(lists.slice(1, 3))), expected);
        let field = Arc::new(Field::new("l", lists.data_type().clone(), true));
        let structs = StructArray::from(vec![(field, Arc::new(lists) as ArrayRef)]);
        let expected = [Some("{'l': NULL}"), Some("{'l': [NULL, 2]}")];
        let expected = expected.map(|text| text.map(str::to_owned));
        assert_eq!(shown(Arc::new(structs.slice(1, 2))), expected);
        let element = Arc::new(Field::new_list_field(DataType::Int64, true));
        let values = Arc::new(Int64Array::from(vec![1, 2, 3, 4]));
        let fixed = FixedSizeListArray::new(element, 2, values, None);
        assert_eq!(
            shown(Arc::new(fixed.slice(1, 1))),
            [Some("[3, 4]".to_owned())]
        );
    }

    #[test]
    fn texts_that_could_be_something_else_are_quoted() {
        for (value, expected) in [
            ("a b", "a b"),
            ("", "''"),
            ("nUll", "'nUll'"),
            (" a", "' a'"),
            ("it's", "'it\\'s'"),
            ("a\\", "'a\\\\'"),
            ("k=v", "'k=v'"),
        ] {
            let values: ArrayRef = Arc::new(StringArray::from(vec![value]));
            let mut text = String::new();
            Within::of(&values).unwrap().put(0, &mut text);
            assert_eq!(text, expected);
        }
    }
}
