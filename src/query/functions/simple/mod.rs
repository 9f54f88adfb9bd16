//! Functions of ours that make a value of each row and need nothing but their arguments: bits, digits, texts, paths, lists, fields of structs, maps, milliseconds, texts of JSON.
//!
//! Comes in: a context of the engine. Goes out: the same with these functions, named as DuckDB names them. Read on in `numbers.rs`, `texts.rs`, `globs.rs`, `likeness.rs` (how alike two texts are), `paths.rs`, `lists.rs`, `counted.rs` (how often elements are there), `structs.rs`, `maps.rs`, `times.rs`, `elapsed.rs`, `read_times.rs`, `totals.rs` (sums of lists), `json_texts.rs`, `json_casts.rs`, `json_parts.rs` and `json_rows.rs` (with `json_values.rs`), each a table of functions and what they do.
//! Never here: functions that are other ones by another name (`rewrite/synonyms/`), values far larger than what they are made of (`functions/growing.rs`).

mod counted;
mod elapsed;
mod function;
mod globs;
pub(in crate::query) mod json_casts;
mod json_parts;
pub(in crate::query) mod json_rows;
pub(in crate::query) mod json_texts;
mod json_values;
mod likeness;
mod lists;
mod maps;
mod numbers;
mod paths;
mod read_times;
mod structs;
mod texts;
mod times;
mod totals;

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float32Array, Float64Array};
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type};
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionContext;

use crate::error::{Error, ErrorKind};
pub(super) use function::in_steps;
use function::{Function, Registered, Takes, is_text};

/// Adds the functions.
pub(super) fn add_to(context: &SessionContext) {
    let all = [
        numbers::ALL,
        likeness::ALL,
        texts::ALL,
        paths::ALL,
        lists::ALL,
        counted::ALL,
        structs::ALL,
        maps::ALL,
        times::ALL,
        elapsed::ALL,
        read_times::ALL,
        json_casts::ALL,
        json_parts::ALL,
        json_texts::ALL,
        globs::ALL,
        totals::ALL,
    ];
    for function in all.into_iter().flatten() {
        context.register_udf(ScalarUDF::from(Registered::of(function)));
    }
}

/// Those whose values may be far larger than their arguments, with the bytes that they have at most.
pub(super) fn that_grow() -> impl Iterator<Item = ScalarUDF> {
    let functions = [lists::SELECT, json_parts::PRETTY].into_iter();
    let functions = functions.chain(json_rows::ALL);
    functions.map(|function| ScalarUDF::from(Registered::of(function)))
}

/// How many bytes the values of those have at most, by the function.
pub(super) const MOST_BYTES: [(&[&str], fn(&[ArrayRef]) -> f64); 4] = [
    (&["list_select", "array_select"], lists::most_bytes),
    (&["json_pretty"], json_parts::most_bytes),
    (&[json_rows::EACH], json_rows::most_bytes_of_each),
    (&[json_rows::TREE], json_rows::most_bytes_of_tree),
];

/// A wrong value.
fn wrong(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Query, text.into())
}

fn text(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Utf8View)
}

fn texts(_: &[DataType]) -> Result<DataType> {
    let element = Field::new_list_field(DataType::Utf8View, true);
    Ok(DataType::List(Arc::new(element)))
}

fn whole(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Int64)
}

fn float(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Float64)
}

fn truth(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Boolean)
}

/// Neither zero nor what is no number has a sign when values are counted.
pub(super) fn without_signs(values: &ArrayRef) -> ArrayRef {
    match values.data_type() {
        DataType::Float64 => {
            let values = values.as_primitive::<Float64Type>();
            let plain = |value: f64| {
                if value.is_nan() {
                    f64::NAN
                } else {
                    value + 0.0
                }
            };
            let values: Float64Array = values.unary(plain);
            Arc::new(values)
        }
        DataType::Float32 => {
            let values = values.as_primitive::<Float32Type>();
            let plain = |value: f32| {
                if value.is_nan() {
                    f32::NAN
                } else {
                    value + 0.0
                }
            };
            let values: Float32Array = values.unary(plain);
            Arc::new(values)
        }
        _ => Arc::clone(values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_there_once() {
        let context = SessionContext::new();
        add_to(&context);
        let all = [numbers::ALL, likeness::ALL, texts::ALL, paths::ALL];
        let more = [lists::ALL, counted::ALL, structs::ALL, maps::ALL];
        let times = [times::ALL, elapsed::ALL, read_times::ALL];
        let json = [
            json_casts::ALL,
            json_parts::ALL,
            json_rows::ALL,
            json_texts::ALL,
        ];
        let one = [lists::SELECT, json_parts::PRETTY].map(std::slice::from_ref);
        let more = more.into_iter().chain(times).chain(json).chain(one);
        let mut names: Vec<&str> = all
            .into_iter()
            .chain(more)
            .flatten()
            .flat_map(|function| {
                [function.name]
                    .into_iter()
                    .chain(function.aliases.iter().copied())
            })
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
