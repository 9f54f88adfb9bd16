//! One batch -> one for each folder of `partition_by`.
//!
//! Comes in: a batch, columns. Goes out: the rows of each combination of values, without these columns, and the folder that names the combination as Hive does. Never
//! here: IO.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow::compute::{
    SortColumn, cast, lexsort_to_indices, max, partition, take, take_record_batch,
};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::error::{Error, Result};
use crate::grid::unknown_column;
use crate::load::hive::NULL;

/// What may not stand in the name of a folder, or would be read otherwise.
const ESCAPED: AsciiSet = CONTROLS
    .add(b'/')
    .add(b'\\')
    .add(b'=')
    .add(b'%')
    .add(b':')
    .add(b'*')
    .add(b'?')
    .add(b'"')
    .add(b'\'')
    .add(b'#')
    .add(b'{')
    .add(b'}')
    .add(b'[')
    .add(b']')
    .add(b'^')
    .add(b'|')
    .add(b'<')
    .add(b'>')
    .add(b'&');

/// Refuses columns whose values folders cannot name, before anything is written.
pub(super) fn check_keys(schema: &Schema, names: &[String]) -> Result<()> {
    let known = || schema.fields().iter().map(|field| field.name().as_str());
    let mut seen = HashSet::new();
    for name in names {
        let field = schema.field_with_name(name);
        check_type(field.map_err(|_| unknown_column(name, known()))?)?;
        if name.is_empty() {
            let text = "partition_by names a column without a name, which no folder can have";
            return Err(Error::invalid_argument(text).with_hint("give it a name with AS"));
        }
        if !seen.insert(name) {
            let text = "partition_by names the column twice";
            return Err(Error::invalid_argument(text).with_column(name));
        }
    }
    if !names.is_empty() && names.len() == schema.fields().len() {
        return Err(Error::invalid_argument(
            "partition_by must leave a column for the files",
        ));
    }
    Ok(())
}

/// Refuses folders of nothing.
pub(super) fn check_rows(num_rows: u64, names: &[String]) -> Result<()> {
    if num_rows > 0 || names.is_empty() {
        return Ok(());
    }
    let text = "without rows there is no folder to lie in: the columns would be lost";
    Err(Error::invalid_argument(text).with_hint("leave partition_by out"))
}

/// The rows of each combination of values, in the order of the values; the rows of one keep their order. The folder is empty when `names` is.
pub(super) fn split(batch: &RecordBatch, names: &[String]) -> Result<Vec<(String, RecordBatch)>> {
    if names.is_empty() {
        return Ok(vec![(String::new(), batch.clone())]);
    }
    let schema = batch.schema_ref();
    let known = || schema.fields().iter().map(|field| field.name().as_str());
    let keys: Result<Vec<usize>> = names
        .iter()
        .map(|name| {
            schema
                .index_of(name)
                .map_err(|_| unknown_column(name, known()))
        })
        .collect();
    let keys = keys?;
    let columns = keys.iter().map(|key| key_column(batch, *key));
    let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
    let of_values = |values: &ArrayRef| SortColumn {
        values: Arc::clone(values),
        options: None,
    };
    // The number of the row comes last, so that rows of one folder keep their order.
    let numbers: ArrayRef = Arc::new(arrow::array::UInt32Array::from_iter_values(
        0..u32::try_from(batch.num_rows())
            .map_err(|_| Error::unsupported("a tile of more than 2^32 rows"))?,
    ));
    let by: Vec<SortColumn> = columns.iter().chain([&numbers]).map(of_values).collect();
    let order = lexsort_to_indices(&by, None)?;
    let sorted = take_record_batch(batch, &order)?;
    let sorted_keys = columns.iter().map(|values| take(values, &order, None));
    let sorted_keys: Vec<ArrayRef> = sorted_keys.collect::<std::result::Result<_, _>>()?;
    let rest: Vec<usize> = (0..batch.num_columns())
        .filter(|column| !keys.contains(column))
        .collect();
    let rows = sorted.project(&rest)?;
    let ranges = partition(&sorted_keys)?.ranges();
    let parts = ranges.into_iter().map(|range| {
        let folder = folder_of(names, &sorted_keys, range.start)?;
        Ok((folder, rows.slice(range.start, range.end - range.start)))
    });
    parts.collect()
}

/// A column that folders can name.
fn key_column(batch: &RecordBatch, column: usize) -> Result<ArrayRef> {
    let values = batch.columns().get(column);
    let field = batch.schema_ref().fields().get(column);
    let (Some(values), Some(field)) = (values, field) else {
        return Err(Error::internal("a known column is not there"));
    };
    check_type(field)?;
    let values = match field.data_type() {
        DataType::Dictionary(_, inner) => &cast(values, inner)?,
        _ => values,
    };
    // Integers come back as 64-bit ones.
    let large = values.as_any().downcast_ref::<UInt64Array>().and_then(max);
    if let Some(large) = large.filter(|value| i64::try_from(*value).is_err()) {
        return Err(Error::invalid_argument(format!(
            "partition_by takes integers up to 2^63 - 1, which folder names keep, got {large}"
        ))
        .with_column(field.name()));
    }
    Ok(Arc::clone(values))
}

fn check_type(field: &Field) -> Result<()> {
    let data_type = match field.data_type() {
        DataType::Dictionary(_, values) => values,
        other => other,
    };
    let text = matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    );
    if data_type.is_integer() || data_type == &DataType::Date32 || text {
        return Ok(());
    }
    let text = format!(
        "partition_by takes integers, dates and texts, whose values a folder name keeps, got {data_type}"
    );
    let error = Error::invalid_argument(text).with_column(field.name());
    let hint = "write it as one of these: CAST(x AS INTEGER), CAST(x AS DATE), CAST(x AS TEXT)";
    Err(error.with_hint(hint))
}

fn folder_of(names: &[String], keys: &[ArrayRef], row: usize) -> Result<String> {
    let options = FormatOptions::new();
    let parts = names.iter().zip(keys).map(|(name, key)| {
        let value = if key.is_null(row) {
            NULL.to_owned()
        } else {
            let text = ArrayFormatter::try_new(key, &options)?
                .value(row)
                .to_string();
            value_name(&text)
        };
        Ok::<_, Error>(format!("{}={value}", key_name(name)))
    });
    let parts: Result<Vec<String>> = parts.collect();
    Ok(parts?.join("/"))
}

/// A text that reads like the name for null gets another spelling, which is read as the text.
fn value_name(text: &str) -> String {
    match text.strip_prefix('_') {
        Some(rest) if text == NULL => format!("%5F{rest}"),
        _ => utf8_percent_encode(text, &ESCAPED).to_string(),
    }
}

/// A folder whose name begins with a dot or an underscore would be hidden from readers.
fn key_name(name: &str) -> String {
    let escaped = |rest: &str| utf8_percent_encode(rest, &ESCAPED).to_string();
    match (name.strip_prefix('.'), name.strip_prefix('_')) {
        (Some(rest), _) => format!("%2E{}", escaped(rest)),
        (_, Some(rest)) => format!("%5F{}", escaped(rest)),
        _ => escaped(name),
    }
}
