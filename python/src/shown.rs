//! Answers as tables, of text and for notebooks.
//!
//! Comes in: batches. Goes out: their first rows for people. Never here: tables of the command, which know how wide a screen is (`cli/table.rs` of the crate).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use arrow::util::pretty::pretty_format_batches;
use partgrid::error::Error;
use partgrid::grid::picture::{bounded, escaped, visible, visible_lines};

/// The first rows as a table, and a line that says what is left out.
pub(crate) fn shown(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    most_rows: usize,
) -> Result<String, Error> {
    let first = first_rows(schema, batches, most_rows)?;
    let table = visible_lines(&pretty_format_batches(&first)?.to_string());
    Ok(format!("{table}\n{}", counted(batches, most_rows)))
}

/// The same as one HTML element without script or outside resources: names and types above the rows, numbers to the right, and nulls that look like no text.
pub(crate) fn html(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    most_rows: usize,
) -> Result<String, Error> {
    let fields = schema.fields();
    let names = fields.iter().map(|field| {
        let (name, kind) = (marked(field.name()), marked(&field.data_type().to_string()));
        format!("<th>{name}<br><small>{kind}</small></th>")
    });
    let mut rows = String::new();
    for batch in first_rows(schema, batches, most_rows)? {
        let columns = batch
            .columns()
            .iter()
            .map(|column| column.as_string::<i32>());
        let columns: Vec<(&StringArray, &str)> = columns
            .zip(fields)
            .map(|(column, field)| (column, alignment(field.data_type())))
            .collect();
        for row in 0..batch.num_rows() {
            let cells = columns.iter().map(|(column, side)| {
                let text = match column.is_null(row) {
                    true => "<em style=\"opacity:.5\">null</em>".to_owned(),
                    false => marked(column.value(row)),
                };
                format!("<td style=\"text-align:{side}\">{text}</td>")
            });
            rows.push_str(&format!("<tr>{}</tr>", cells.collect::<String>()));
        }
    }
    Ok(format!(
        "<div><table><thead><tr>{}</tr></thead><tbody>{rows}</tbody></table><small>{}</small></div>",
        names.collect::<String>(),
        counted(batches, most_rows)
    ))
}

fn alignment(kind: &DataType) -> &'static str {
    match kind.is_numeric() {
        true => "right",
        false => "left",
    }
}

/// A text of others within HTML.
fn marked(text: &str) -> String {
    escaped(&visible(text))
}

/// How many rows there are, and how many of them are shown.
fn counted(batches: &[RecordBatch], most_rows: usize) -> String {
    let num_rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let rows = if num_rows == 1 { "row" } else { "rows" };
    match num_rows > most_rows {
        true => format!("{num_rows} {rows}, the first {most_rows} shown"),
        false => format!("{num_rows} {rows}"),
    }
}

/// The first rows as texts, behind a batch without rows.
fn first_rows(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    most_rows: usize,
) -> Result<Vec<RecordBatch>, Error> {
    let mut left = most_rows;
    let mut first = vec![texts(&RecordBatch::new_empty(Arc::clone(schema)))?];
    for batch in batches {
        if left == 0 {
            break;
        }
        first.push(texts(&batch.slice(0, batch.num_rows().min(left)))?);
        left = left.saturating_sub(batch.num_rows());
    }
    Ok(first)
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
