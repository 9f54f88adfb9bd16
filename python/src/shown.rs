//! Answers as tables of text.
//!
//! Comes in: batches. Goes out: their first rows for people. Never here: tables of the command, which know how wide a screen is (`cli/table.rs` of the crate).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use arrow::util::pretty::pretty_format_batches;
use partgrid::error::Error;
use partgrid::grid::picture::{bounded, visible_lines};

/// The first rows as a table, and a line that says what is left out.
pub(crate) fn shown(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    most_rows: usize,
) -> Result<String, Error> {
    let num_rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let mut left = most_rows;
    let mut first = vec![texts(&RecordBatch::new_empty(Arc::clone(schema)))?];
    for batch in batches {
        first.push(texts(&batch.slice(0, batch.num_rows().min(left)))?);
        left = left.saturating_sub(batch.num_rows());
    }
    let table = visible_lines(&pretty_format_batches(&first)?.to_string());
    let rows = if num_rows == 1 { "row" } else { "rows" };
    Ok(if num_rows > most_rows {
        format!("{table}\n{num_rows} {rows}, the first {most_rows} shown")
    } else {
        format!("{table}\n{num_rows} {rows}")
    })
}

/// The values as they are shown.
fn texts(batch: &RecordBatch) -> Result<RecordBatch, Error> {
    let options = FormatOptions::new().with_display_error(true);
    let fields = batch.schema_ref().fields().iter();
    let fields = fields.map(|field| Field::new(field.name(), DataType::Utf8, true));
    let columns = batch.columns().iter().map(|column| {
        let formatter = ArrayFormatter::try_new(column, &options)?;
        let nulls = column.logical_nulls();
        let texts = (0..column.len()).map(|row| {
            let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
            (!is_null).then(|| bounded(formatter.value(row).to_string()))
        });
        Ok(Arc::new(texts.collect::<StringArray>()) as ArrayRef)
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let num_rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = columns.collect::<Result<_, Error>>()?;
    Ok(RecordBatch::try_new_with_options(
        schema, columns, &num_rows,
    )?)
}
