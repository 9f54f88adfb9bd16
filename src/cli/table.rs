//! Query results as a table for people.
//!
//! Comes in: a schema and batches. Goes out: box characters; numbers to the right, nulls as `NULL`, a text that reads NULL in quotes, what steers a
//! terminal escaped. On a screen, what is too wide for it is cut and left out, with a sign. Never here: more rows than asked for; the others are counted.

use std::io::Write;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table, TableComponent};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::output::write_failed;
use crate::error::Result;
use crate::grid::picture::{bounded, visible, visible_lines};

const NULL: &str = "NULL";

/// A text in a cell is cut to this many letters when a table is wider than the screen.
const MAX_CELL: usize = 40;

/// How much of a result is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// At most so many rows.
    pub(super) max_rows: usize,
    /// At most so many letters in a line: long texts are cut, and columns in the middle left out. `None` shows all.
    pub(super) width: Option<usize>,
}

/// A list without lines: columns two spaces apart.
pub(super) fn plain(mut table: Table) -> String {
    table.load_preset(comfy_table::presets::NOTHING);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    // Whatever was not escaped before it was laid out is now.
    let lines = table.lines().map(|line| visible(line.trim_end()));
    lines.collect::<Vec<_>>().join("\n")
}

/// Writes the first rows and returns how many rows there are. A plan is written as the lines that it has.
///
/// # Errors
/// Those of the batches; `Storage` when the table cannot be written.
pub(super) fn write(
    sink: &mut dyn Write,
    schema: &Schema,
    batches: &mut dyn Iterator<Item = Result<RecordBatch>>,
    shape: Shape,
) -> Result<u64> {
    let header = schema
        .fields()
        .iter()
        .map(|field| vec![visible(field.name())]);
    let mut columns: Vec<Vec<String>> = header.collect();
    let is_plan = is_plan(schema);
    let (mut shown, mut num_rows) = (0, 0_u64);
    for batch in batches {
        let batch = batch?;
        num_rows += batch.num_rows() as u64;
        let part = batch.slice(0, batch.num_rows().min(shape.max_rows - shown));
        shown += part.num_rows();
        let options = FormatOptions::new()
            .with_null(NULL)
            .with_display_error(false);
        for (column, values) in columns.iter_mut().zip(part.columns()) {
            column.extend(cells(values.as_ref(), &options, is_plan)?);
        }
    }
    let text = if is_plan {
        plan(&columns)
    } else {
        let numbers = schema
            .fields()
            .iter()
            .map(|field| is_number(field.data_type()));
        format!(
            "{}\n",
            drawn(columns, &numbers.collect::<Vec<_>>(), shape.width)
        )
    };
    sink.write_all(text.as_bytes())
        .map_err(|error| write_failed(&error))?;
    Ok(num_rows)
}

/// Whether a result is that of EXPLAIN.
fn is_plan(schema: &Schema) -> bool {
    let names: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    names == ["plan_type", "plan"]
}

/// The lines of plans, each under its kind.
fn plan(columns: &[Vec<String>]) -> String {
    let [kinds, plans] = columns else {
        return String::new();
    };
    let pairs = kinds.iter().zip(plans).skip(1);
    pairs
        .map(|(kind, plan)| format!("{kind}\n  {}\n", plan.trim_end().replace('\n', "\n  ")))
        .collect()
}

fn drawn(columns: Vec<Vec<String>>, numbers: &[bool], width: Option<usize>) -> Table {
    let fitting = match width {
        Some(width) => fitted(columns, numbers, width),
        None => columns.into_iter().zip(numbers.iter().copied()).collect(),
    };
    let mut table = Table::new();
    table
        .load_preset(UTF8_FULL_CONDENSED)
        .set_style(TableComponent::VerticalLines, '│');
    let (columns, numbers): (Vec<Vec<String>>, Vec<bool>) = fitting.into_iter().unzip();
    let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
    let mut row = || {
        columns
            .iter_mut()
            .map(Iterator::next)
            .collect::<Option<Vec<String>>>()
    };
    table.set_header(row().unwrap_or_default());
    while let Some(row) = row().filter(|row| !row.is_empty()) {
        table.add_row(row);
    }
    for (column, number) in table.column_iter_mut().zip(numbers) {
        if number {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The columns that a screen has room for: long texts cut, those in the middle left out.
fn fitted(
    mut columns: Vec<Vec<String>>,
    numbers: &[bool],
    width: usize,
) -> Vec<(Vec<String>, bool)> {
    // Each column has a line and two blanks beside it.
    let wide = |column: &[String]| column.iter().map(|cell| cell.width()).max().unwrap_or(0) + 3;
    let total =
        |columns: &[Vec<String>]| columns.iter().map(|column| wide(column)).sum::<usize>() + 1;
    if total(&columns) > width {
        let most = MAX_CELL.min(width.saturating_sub(4)).max(1);
        columns
            .iter_mut()
            .flatten()
            .for_each(|cell| cut(cell, most));
    }
    let num_rows = columns.first().map_or(0, Vec::len);
    let mut kept: Vec<(Vec<String>, bool)> =
        columns.into_iter().zip(numbers.iter().copied()).collect();
    let mut used: usize = kept.iter().map(|(column, _)| wide(column)).sum::<usize>() + 1;
    let mut left_out = 0;
    while used > width && kept.len() > 1 {
        let middle = kept.len() / 2;
        let (column, _) = kept.remove(middle);
        used -= wide(&column);
        // The column that says so has one letter.
        used += if left_out == 0 { 4 } else { 0 };
        left_out += 1;
    }
    if left_out > 0 {
        let dots = vec!["…".to_owned(); num_rows];
        let middle = kept.len().div_ceil(2);
        kept.insert(middle, (dots, false));
    }
    kept
}

/// Cuts a text to so many columns of the screen.
fn cut(cell: &mut String, most: usize) {
    if cell.width() <= most {
        return;
    }
    let mut used = 1;
    let room = |letter: &char| {
        used += letter.width().unwrap_or(0);
        used <= most
    };
    let short: String = cell.chars().take_while(room).collect();
    *cell = format!("{short}…");
}

fn cells(column: &dyn Array, options: &FormatOptions<'_>, keep_lines: bool) -> Result<Vec<String>> {
    let nulls = column.logical_nulls();
    let formatter = ArrayFormatter::try_new(column, options)?;
    let cell = |row: usize| {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return Ok(NULL.to_owned());
        }
        let text = formatter.value(row).try_to_string()?;
        Ok(if text == NULL {
            format!("\"{text}\"")
        } else if keep_lines {
            visible_lines(&text)
        } else {
            bounded(visible(&text))
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
