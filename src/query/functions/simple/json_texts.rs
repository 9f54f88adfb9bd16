//! Texts of JSON, made of values and looked over.
//!
//! Comes in: values of any type; texts. Goes out: texts of JSON as RFC 8259 has them: numbers that are not finite are `null` there, bytes are hexadecimal digits, and points in time are texts. Never here: what is in a text of JSON (`functions/json.rs`), and which arguments are JSON themselves and not texts (`rewrite/nested_json.rs`).

use std::collections::HashMap;
use std::fmt::{Debug, Display};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, MapArray, StringViewArray, StringViewBuilder,
    StructArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{can_cast_types, cast};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use arrow::error::ArrowError;
use arrow::json::writer::{NullableEncoder, make_encoder};
use arrow::json::{Encoder, EncoderFactory, EncoderOptions};
use datafusion::common::{internal_err, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::DocSection;
use serde::de::IgnoredAny;

use super::{Function, Takes, is_text, text, truth, wrong};

/// The function whose values stand for JSON in a text: structs of which the only field says so in its metadata.
pub(in crate::query) const MARK: &str = "__json";

/// The function of a list of names and values.
pub(in crate::query) const PAIRS: &str = "__json_pairs";

pub(super) const SECTION: DocSection = DocSection {
    include: true,
    label: "JSON Functions",
    description: None,
};

pub(super) const ALL: &[Function] = &[
    Function {
        name: "to_json",
        aliases: &["array_to_json", "json_quote", "row_to_json"],
        section: SECTION,
        about: "The text of JSON of a value; null of null.",
        takes: &[("value", Takes::Any)],
        least: 1,
        repeats: false,
        returned: text,
        made: to_json,
    },
    Function {
        name: "json_array",
        aliases: &[],
        section: SECTION,
        about: "A list of values, as a text of JSON.",
        takes: &[("value", Takes::Any)],
        least: 0,
        repeats: true,
        returned: text,
        made: array,
    },
    Function {
        name: "json_object",
        aliases: &[],
        section: SECTION,
        about: "An object of names and values in turn, as a text of JSON.",
        takes: &[("name, value", Takes::Any)],
        least: 0,
        repeats: true,
        returned: of_pairs,
        made: object,
    },
    Function {
        name: MARK,
        aliases: &[],
        section: SECTION,
        about: "A text that is JSON; functions that make JSON call it.",
        takes: &[("json", Takes::Text)],
        least: 1,
        repeats: false,
        returned: |_| Ok(DataType::Struct(Fields::from(vec![mark()]))),
        made: |arrays| {
            let texts = Arc::clone(only(arrays)?);
            let fields = Fields::from(vec![mark()]);
            Ok(Arc::new(StructArray::try_new(fields, vec![texts], None)?))
        },
    },
    Function {
        name: PAIRS,
        aliases: &[],
        section: SECTION,
        about: "An object of a list of names and values, as a text of JSON; `json_group_object` calls it.",
        takes: &[("pairs", Takes::List)],
        least: 1,
        repeats: false,
        returned: text,
        made: pairs,
    },
    Function {
        name: "json",
        aliases: &[],
        section: SECTION,
        about: "A text of JSON without spaces between its words; an error for other texts. As an argument of a function that makes JSON it is JSON, and not a text.",
        takes: &[("text", Takes::Text)],
        least: 1,
        repeats: false,
        returned: text,
        made: |arrays| {
            let texts = only(arrays)?.as_string_view().iter();
            let texts = texts.map(|text| text.map(without_spaces).transpose());
            let texts: StringViewArray = texts.collect::<Result<_>>()?;
            Ok(Arc::new(texts))
        },
    },
    Function {
        name: "json_valid",
        aliases: &[],
        section: SECTION,
        about: "Whether a text is one of JSON.",
        takes: &[("text", Takes::Text)],
        least: 1,
        repeats: false,
        returned: truth,
        made: |arrays| {
            let texts = only(arrays)?.as_string_view().iter();
            let valid = texts.map(|text| Some(read(text?).is_ok()));
            Ok(Arc::new(valid.collect::<BooleanArray>()))
        },
    },
];

/// The field of what is marked.
fn mark() -> Field {
    let told = HashMap::from([(MARK.to_owned(), String::new())]);
    Field::new(MARK, DataType::Utf8View, true).with_metadata(told)
}

pub(super) fn only(arrays: &[ArrayRef]) -> Result<&ArrayRef> {
    match arrays {
        [only] => Ok(only),
        _ => internal_err!("a function of one value got {}", arrays.len()),
    }
}

/// Names and values in turn.
fn of_pairs(types: &[DataType]) -> Result<DataType> {
    if !types.len().is_multiple_of(2) {
        return plan_err!(
            "json_object takes names and values in turn, got {} arguments; such as json_object('a', 1, 'b', x)",
            types.len()
        );
    }
    match types.iter().step_by(2).find(|name| !is_text(name)) {
        Some(other) => plan_err!(
            "the names of json_object are texts, got {other}; CAST(x AS VARCHAR) makes one"
        ),
        None => text(types),
    }
}

/// What makes JSON of the values of a column.
struct Column {
    field: FieldRef,
    values: ArrayRef,
}

impl Column {
    fn of(values: &ArrayRef) -> Self {
        Self {
            field: Arc::new(Field::new("value", values.data_type().clone(), true)),
            values: Arc::clone(values),
        }
    }

    fn encoder<'a>(&'a self, options: &'a EncoderOptions) -> Result<NullableEncoder<'a>> {
        Ok(make_encoder(&self.field, self.values.as_ref(), options)?)
    }
}

fn options() -> EncoderOptions {
    EncoderOptions::default()
        .with_explicit_nulls(true)
        .with_encoder_factory(Arc::new(Encoders))
        .with_timestamp_format("%Y-%m-%d %H:%M:%S%.f".to_owned())
        .with_timestamp_tz_format("%Y-%m-%d %H:%M:%S%.f%:z".to_owned())
        .with_datetime_format("%Y-%m-%d %H:%M:%S%.f".to_owned())
        .with_time_format("%H:%M:%S%.f".to_owned())
}

/// Encodes what stands for JSON in a text, and maps, whose keys need not be texts.
#[derive(Debug)]
struct Encoders;

impl EncoderFactory for Encoders {
    fn make_default_encoder<'a>(
        &self,
        _: &'a FieldRef,
        array: &'a dyn Array,
        options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        match array.data_type() {
            DataType::Struct(fields) => match fields.as_ref() {
                [field] if field.metadata().contains_key(MARK) => {
                    as_it_is(array.as_struct()).map(Some)
                }
                _ => Ok(None),
            },
            DataType::Map(entries, _) => of_maps(entries, array.as_map(), options).map(Some),
            _ => Ok(None),
        }
    }
}

fn as_it_is(structs: &StructArray) -> Result<NullableEncoder<'static>, ArrowError> {
    let texts = cast(structs.column(0), &DataType::Utf8View)?;
    let nulls = NullBuffer::union(structs.nulls(), texts.nulls());
    let encoder = AsItIs(texts.as_string_view().clone());
    Ok(NullableEncoder::new(Box::new(encoder), nulls))
}

fn of_maps<'a>(
    entries: &'a Field,
    maps: &'a MapArray,
    options: &'a EncoderOptions,
) -> Result<NullableEncoder<'a>, ArrowError> {
    let DataType::Struct(fields) = entries.data_type() else {
        return Err(ArrowError::SchemaError("a map without entries".to_owned()));
    };
    let [_, value] = fields.as_ref() else {
        return Err(ArrowError::SchemaError("a map of no pairs".to_owned()));
    };
    let encoder = OfMaps {
        offsets: maps.value_offsets(),
        keys: cast(maps.keys(), &DataType::Utf8View)?
            .as_string_view()
            .clone(),
        values: make_encoder(value, maps.values().as_ref(), options)?,
    };
    Ok(NullableEncoder::new(
        Box::new(encoder),
        maps.nulls().cloned(),
    ))
}

/// Objects of the entries of maps.
struct OfMaps<'a> {
    offsets: &'a [i32],
    keys: StringViewArray,
    values: NullableEncoder<'a>,
}

impl Encoder for OfMaps<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let Some([begin, end]) = self.offsets.get(row..row + 2) else {
            return;
        };
        let place = |end: &i32| usize::try_from(*end).unwrap_or_default();
        out.push(b'{');
        for entry in place(begin)..place(end) {
            if entry > place(begin) {
                out.push(b',');
            }
            // Of a text it does not fail.
            let key = serde_json::to_vec(self.keys.value(entry)).unwrap_or_default();
            out.extend(key);
            out.push(b':');
            write(&mut self.values, entry, out);
        }
        out.push(b'}');
    }
}

/// Texts of JSON.
struct AsItIs(StringViewArray);

impl Encoder for AsItIs {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.value(row).as_bytes());
    }
}

fn write(encoder: &mut NullableEncoder<'_>, row: usize, out: &mut Vec<u8>) {
    match encoder.is_null(row) {
        true => out.extend_from_slice(b"null"),
        false => encoder.encode(row, out),
    }
}

/// Texts of so many rows, as each is written; `false` is null.
fn texts(
    count: usize,
    mut write: impl FnMut(usize, &mut Vec<u8>) -> Result<bool>,
) -> Result<ArrayRef> {
    let mut texts = StringViewBuilder::with_capacity(count);
    let mut out = Vec::new();
    for row in 0..count {
        out.clear();
        match write(row, &mut out)? {
            true => {
                let text = str::from_utf8(&out).map_err(|error| wrong(error.to_string()))?;
                texts.try_append_value(text)?;
            }
            false => texts.append_null(),
        }
    }
    Ok(Arc::new(texts.finish()))
}

pub(super) fn to_json(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let column = Column::of(only(arrays)?);
    let options = options();
    let mut encoder = column.encoder(&options)?;
    texts(column.values.len(), |row, out| {
        let is_there = !encoder.is_null(row);
        if is_there {
            encoder.encode(row, out);
        }
        Ok(is_there)
    })
}

/// Without arguments, nobody says of how many rows: of one, which the engine repeats.
fn num_rows(arrays: &[ArrayRef]) -> usize {
    arrays.first().map_or(1, Array::len)
}

fn array(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let columns: Vec<Column> = arrays.iter().map(Column::of).collect();
    let options = options();
    let encoders = columns.iter().map(|column| column.encoder(&options));
    let mut encoders: Vec<NullableEncoder<'_>> = encoders.collect::<Result<_>>()?;
    texts(num_rows(arrays), |row, out| {
        out.push(b'[');
        for (place, encoder) in encoders.iter_mut().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            write(encoder, row, out);
        }
        out.push(b']');
        Ok(true)
    })
}

fn object(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let columns: Vec<Column> = arrays.iter().map(Column::of).collect();
    let options = options();
    let encoders = columns.iter().map(|column| column.encoder(&options));
    let mut encoders: Vec<NullableEncoder<'_>> = encoders.collect::<Result<_>>()?;
    texts(num_rows(arrays), |row, out| {
        out.push(b'{');
        for (place, pair) in encoders.chunks_exact_mut(2).enumerate() {
            if place > 0 {
                out.push(b',');
            }
            if let [name, value] = pair {
                write_pair((name, value), row, out, "json_object")?;
            }
        }
        out.push(b'}');
        Ok(true)
    })
}

fn write_pair(
    (name, value): (&mut NullableEncoder<'_>, &mut NullableEncoder<'_>),
    row: usize,
    out: &mut Vec<u8>,
    function: &str,
) -> Result<()> {
    if name.is_null(row) {
        return Err(wrong(format!("the names of {function} are texts, got NULL")).into());
    }
    name.encode(row, out);
    out.push(b':');
    write(value, row, out);
    Ok(())
}

fn pairs(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = only(arrays)?.as_list::<i32>();
    let Some(pairs) = lists.values().as_struct_opt() else {
        return texts(lists.len(), |_, _| Ok(false));
    };
    let [names, values] = pairs.columns() else {
        return internal_err!("{PAIRS} of {} columns", pairs.num_columns());
    };
    let kind = names.data_type();
    if kind.is_nested() || !can_cast_types(kind, &DataType::Utf8View) {
        return plan_err!("the names of json_group_object are texts, got {kind}");
    }
    let names = &cast(names, &DataType::Utf8View)?;
    let (names, values) = (Column::of(names), Column::of(values));
    let options = options();
    let (mut names, mut values) = (names.encoder(&options)?, values.encoder(&options)?);
    texts(lists.len(), |row, out| {
        let ends = lists.value_offsets().get(row..=row + 1);
        let (true, Some([begin, end])) = (lists.is_valid(row), ends) else {
            return Ok(false);
        };
        out.push(b'{');
        for place in *begin..*end {
            if place > *begin {
                out.push(b',');
            }
            let pair = (&mut names, &mut values);
            // Offsets are not less than nothing.
            let place = usize::try_from(place).unwrap_or_default();
            write_pair(pair, place, out, "json_group_object")?;
        }
        out.push(b'}');
        Ok(true)
    })
}

fn read(text: &str) -> serde_json::Result<IgnoredAny> {
    serde_json::from_str(text)
}

/// # Errors
/// `Query` for a text that is no JSON.
pub(super) fn valid(text: &str) -> Result<()> {
    read(text)
        .map(|_| ())
        .map_err(|error| no_json(&error, text))
}

/// What is said of a text that is no JSON.
pub(super) fn no_json(error: &dyn Display, text: &str) -> DataFusionError {
    let begin: String = text.chars().take(40).collect();
    wrong(format!("no JSON: {error}, got '{begin}'")).into()
}

/// A text of JSON without the spaces that mean nothing.
fn without_spaces(text: &str) -> Result<String> {
    valid(text)?;
    let (mut is_text, mut is_escaped) = (false, false);
    let kept = text.chars().filter(|letter| {
        if is_text {
            is_text = is_escaped || *letter != '"';
            is_escaped = !is_escaped && *letter == '\\';
            return true;
        }
        is_text = *letter == '"';
        !letter.is_ascii_whitespace()
    });
    Ok(kept.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_within_texts_stay() {
        let cases = [
            (" { \"a b\" : [ 1 , 2.50 ] }\n", "{\"a b\":[1,2.50]}"),
            (r#" "x \" y\\" "#, r#""x \" y\\""#),
            (r#"["\\" , " "]"#, r#"["\\"," "]"#),
            ("null", "null"),
        ];
        for (given, expected) in cases {
            assert_eq!(without_spaces(given).unwrap(), expected);
        }
        for wrong in ["", "x", "{'a': 1}", "[1,]", "1 2"] {
            assert!(without_spaces(wrong).is_err(), "{wrong}");
        }
    }
}
