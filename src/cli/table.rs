//! Query results as a table for people.
//!
//! Comes in: a schema and batches. Goes out: box characters; numbers to the right, nulls as `NULL`, a text that reads NULL in quotes, control characters
//! escaped. Never here: more rows than asked for; the others are counted.

use std::io::Write;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table, TableComponent};

use super::output::write_failed;
use crate::error::Result;

const NULL: &str = "NULL";

/// Writes the first `max_rows` rows and returns how many rows there are.
///
/// # Errors
/// Those of the batches; `Storage` when the table cannot be written.
pub(super) fn write(
    sink: &mut dyn Write,
    schema: &Schema,
    batches: &mut dyn Iterator<Item = Result<RecordBatch>>,
    max_rows: usize,
) -> Result<u64> {
    let mut table = Table::new();
    table
        .load_preset(UTF8_FULL_CONDENSED)
        .set_style(TableComponent::VerticalLines, '│');
    table.set_header(schema.fields().iter().map(|field| visible(field.name())));
    for (column, field) in table.column_iter_mut().zip(schema.fields()) {
        if is_number(field.data_type()) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let (mut shown, mut num_rows) = (0, 0_u64);
    for batch in batches {
        let batch = batch?;
        num_rows += batch.num_rows() as u64;
        let part = batch.slice(0, batch.num_rows().min(max_rows - shown));
        shown += part.num_rows();
        add_rows(&mut table, &part)?;
    }
    writeln!(sink, "{table}").map_err(|error| write_failed(&error))?;
    Ok(num_rows)
}

fn add_rows(table: &mut Table, batch: &RecordBatch) -> Result<()> {
    let options = FormatOptions::new()
        .with_null(NULL)
        .with_display_error(false);
    let columns: Result<Vec<Vec<String>>> = batch
        .columns()
        .iter()
        .map(|column| cells(column.as_ref(), &options))
        .collect();
    let mut columns: Vec<_> = columns?.into_iter().map(Vec::into_iter).collect();
    for _ in 0..batch.num_rows() {
        table.add_row(
            columns
                .iter_mut()
                .filter_map(Iterator::next)
                .collect::<Vec<String>>(),
        );
    }
    Ok(())
}

fn cells(column: &dyn Array, options: &FormatOptions<'_>) -> Result<Vec<String>> {
    let nulls = column.logical_nulls();
    let formatter = ArrayFormatter::try_new(column, options)?;
    let cell = |row: usize| {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return Ok(NULL.to_owned());
        }
        let text = formatter.value(row).try_to_string()?;
        Ok(if text == NULL {
            format!("\"{text}\"")
        } else {
            visible(&text)
        })
    };
    (0..column.len()).map(cell).collect()
}

fn is_number(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_number(values),
        other => other.is_numeric(),
    }
}

/// The text with control characters escaped, so that a value cannot steer the terminal or break the lines.
pub(super) fn visible(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            result.extend(character.escape_default());
        } else {
            result.push(character);
        }
    }
    result
}
