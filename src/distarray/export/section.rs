//! The tiles of one section -> its elements.
//!
//! Comes in: batches, one below the other. Goes out: [`Numbers`] over their memory, or a copy and the reasons for it. Never here: a copy against the wish of the caller.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema};

use crate::distarray::export::copied::Reason;
use crate::distarray::export::{ExportOptions, column};
use crate::error::{Error, Result};
use crate::grid::{ElementType, Gather, Numbers};

/// How the elements are gathered where they are copied.
pub(super) fn gather(element: ElementType, options: &ExportOptions) -> Gather {
    Gather {
        element: Some(element),
        fill: options.fill,
        ..Gather::default()
    }
}

/// The elements of one section in two dimensions, and why they were copied, if they were.
///
/// # Errors
/// `Unsupported` when they must be copied and may not; as of [`Gather::write`].
pub(super) fn numbers(
    batches: &[RecordBatch],
    element: ElementType,
    options: &ExportOptions,
) -> Result<(Numbers, Vec<Reason>)> {
    let plain: Vec<Plain> = batches
        .iter()
        .map(|batch| plain(batch, options.element))
        .collect::<Result<_>>()?;
    let parts: Vec<RecordBatch> = plain.iter().map(|each| each.batch.clone()).collect();
    let gather = gather(element, options);
    if parts.iter().all(|batch| batch.num_rows() == 0) {
        return Ok((Numbers::gathered(&parts, &gather)?, Vec::new()));
    }
    let view = Numbers::over(&parts, &gather)?;
    let mut reasons = reasons(&plain, element);
    if reasons.is_empty() && view.is_none() {
        reasons.push(Reason::Place);
    }
    match (options.copy, reasons.first()) {
        (Some(false), Some(reason)) => return Err(refusal(*reason, &plain, element)),
        (Some(true), None) => reasons.push(Reason::Asked),
        _ => {}
    }
    let is_own = plain
        .iter()
        .all(|each| each.copied.iter().all(|copied| *copied));
    match view {
        Some(view) if reasons.is_empty() || is_own => Ok((view, reasons)),
        _ => Ok((Numbers::gathered(&parts, &gather)?, reasons)),
    }
}

/// A batch of numbers.
struct Plain {
    batch: RecordBatch,
    /// Which columns are in memory of their own already.
    copied: Vec<bool>,
}

fn plain(batch: &RecordBatch, wanted: Option<ElementType>) -> Result<Plain> {
    let schema = batch.schema_ref();
    let mut copied = Vec::with_capacity(batch.num_columns());
    let columns = schema
        .fields()
        .iter()
        .zip(batch.columns())
        .map(|(field, column)| {
            let made = column::numbers(field, column, wanted)?;
            copied.push(made.copied);
            let field = Field::clone(field).with_data_type(made.values.data_type().clone());
            Ok((field, made.values))
        });
    let (fields, values): (Vec<Field>, Vec<ArrayRef>) =
        columns.collect::<Result<Vec<_>>>()?.into_iter().unzip();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new_with_options(schema, values, &options)?;
    Ok(Plain { batch, copied })
}

/// Why the values cannot stay where they are, but for their place.
fn reasons(plain: &[Plain], element: ElementType) -> Vec<Reason> {
    let columns = || plain.iter().flat_map(|each| each.batch.columns());
    let other = |column: &ArrayRef| *column.data_type() != element.arrow_type();
    let all = [
        (Reason::Nulls, columns().any(|each| each.null_count() > 0)),
        (
            Reason::Type,
            plain.iter().any(|each| each.copied.contains(&true)) || columns().any(other),
        ),
        (Reason::Joined, plain.len() > 1),
    ];
    let held = all.into_iter().filter(|(_, holds)| *holds);
    held.map(|(reason, _)| reason).collect()
}

fn refusal(reason: Reason, plain: &[Plain], element: ElementType) -> Error {
    let error = Error::unsupported(format!(
        "copy must not be False: {}",
        match reason {
            Reason::Nulls => "nulls are replaced, and tiles never change".to_owned(),
            Reason::Type => format!("the elements become {element}"),
            Reason::Joined => format!("{} tiles become one section", plain.len()),
            Reason::Asked | Reason::Place | Reason::Moved =>
                "the columns do not lie at one distance in one allocation".to_owned(),
        }
    ));
    let at_fault = plain.iter().find_map(|each| {
        let columns = each
            .batch
            .columns()
            .iter()
            .zip(each.batch.schema_ref().fields())
            .zip(&each.copied);
        let mut columns = columns.filter(|((column, _), copied)| match reason {
            Reason::Nulls => column.null_count() > 0,
            Reason::Type => **copied || *column.data_type() != element.arrow_type(),
            _ => false,
        });
        columns.next().map(|((_, field), _)| field.name().clone())
    });
    let hint = match reason {
        Reason::Place => "load the columns with dense=, export them one by one, or leave copy out",
        Reason::Joined => "leave distribution out: then each tile is a section",
        _ => "leave copy out: then it is copied where it must be",
    };
    match at_fault {
        Some(column) => error.with_column(&column).with_hint(hint),
        None => error.with_hint(hint),
    }
}
