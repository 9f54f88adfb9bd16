//! Rows of both sides, side by side.
//!
//! Comes in: rows of the left side, and which row of the right one is the nearest to each. Goes out: one batch of both. Never here: how these are found.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::compute::{interleave, take, take_record_batch};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::error::Result;

/// In which of some batches a row is, and where; the first is of nulls: nothing is near.
pub(super) type Found = (usize, usize);

/// A row of nulls of the right input.
pub(super) fn nothing(schema: &Schema) -> Vec<ArrayRef> {
    let fields = schema.fields().iter();
    fields
        .map(|field| new_null_array(field.data_type(), 1))
        .collect()
}

/// The rows of the left side with those that were found in batches of the right one. Those without one stay if `keeps_left` says so.
pub(super) fn beside(
    left: RecordBatch,
    found: Vec<Found>,
    right: &[&RecordBatch],
    nothing: &[ArrayRef],
    (schema, keeps_left): (&SchemaRef, bool),
) -> Result<RecordBatch> {
    let (left, found) = match keeps_left {
        true => (left, found),
        false => with_nearest(left, found)?,
    };
    let only = match right {
        [_] => only_batch(&found),
        _ => None,
    };
    let places = nothing.iter().enumerate().map(|(place, nothing)| {
        if let (Some(rows), [right]) = (&only, right)
            && (rows.null_count() == 0 || !is_of_runs(nothing))
        {
            return Ok(take(right.column(place), rows, None)?);
        }
        let batches = right.iter().map(|batch| batch.column(place).as_ref());
        let arrays: Vec<&dyn Array> = [nothing.as_ref()].into_iter().chain(batches).collect();
        Ok(interleave(&arrays, &found)?)
    });
    let places: Vec<ArrayRef> = places.collect::<Result<_>>()?;
    let columns = left.columns().iter().cloned().chain(places).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(left.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &options,
    )?)
}

/// Which rows of the only batch those are that were found.
fn only_batch(found: &[Found]) -> Option<UInt32Array> {
    let rows = found.iter().map(|(batch, row)| match batch {
        0 => Ok(None),
        _ => u32::try_from(*row).map(Some),
    });
    rows.collect::<Result<_, _>>().ok()
}

/// Whether there are no nulls but those among the values: a row that there is not cannot be taken.
fn is_of_runs(column: &ArrayRef) -> bool {
    matches!(column.data_type(), DataType::RunEndEncoded(..))
}

/// The rows that have a nearest one.
fn with_nearest(left: RecordBatch, found: Vec<Found>) -> Result<(RecordBatch, Vec<Found>)> {
    let has_one = |(batch, _): &Found| *batch > 0;
    if found.iter().all(has_one) {
        return Ok((left, found));
    }
    let places = (0_u32..).zip(&found).filter(|(_, found)| has_one(found));
    let places: UInt32Array = places.map(|(place, _)| place).collect();
    let left = take_record_batch(&left, &places)?;
    Ok((left, found.into_iter().filter(has_one).collect()))
}
