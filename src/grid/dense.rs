//! Columns of one type of numbers in one allocation: Arrow columns and a 2-D array at once.
//!
//! Comes in: columns. Goes out: the same values, column after column, each at a multiple of 64 bytes and at the same distance from the one before. Never here:
//! protocols that hand the array out.

use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::datatypes::Field;

use crate::error::{Error, Result};

/// Where every column of a dense band starts.
const ALIGNMENT_BYTES: usize = 64;

/// The batch with its columns copied into one allocation. All columns must be integers or floats of one type; nulls keep their validity, their values are as before.
///
/// # Errors
/// `InvalidArgument` for columns of other or of different types; `ResourcesExhausted` for a batch larger than memory can be.
pub fn dense(batch: &RecordBatch) -> Result<RecordBatch> {
    let Some(first) = batch.columns().first() else {
        return Ok(batch.clone());
    };
    let row_bytes = match first.data_type().primitive_width() {
        Some(bytes) if first.data_type().is_numeric() => bytes,
        _ => return Err(no_numbers(batch, 0)),
    };
    let same = |column: &ArrayRef| column.data_type() == first.data_type();
    if let Some(other) = batch.columns().iter().position(|column| !same(column)) {
        return Err(no_numbers(batch, other));
    }
    let column_bytes = batch.num_rows() * row_bytes;
    let stride = column_bytes.next_multiple_of(ALIGNMENT_BYTES);
    let mut block = MutableBuffer::new(stride * batch.num_columns());
    for (place, column) in batch.columns().iter().enumerate() {
        block.resize(place * stride, 0);
        block.extend_from_slice(values_of(&column.to_data(), row_bytes)?);
    }
    let block = Buffer::from(block);
    let columns: Result<Vec<ArrayRef>> = batch
        .columns()
        .iter()
        .enumerate()
        .map(|(place, column)| {
            let values = block.slice_with_length(place * stride, column_bytes);
            let data = ArrayData::builder(column.data_type().clone())
                .len(column.len())
                .nulls(column.nulls().cloned())
                .add_buffer(values);
            Ok(make_array(data.build()?))
        })
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let schema = Arc::clone(batch.schema_ref());
    Ok(RecordBatch::try_new_with_options(
        schema, columns?, &options,
    )?)
}

/// The distance in bytes from one column to the next when all columns lie in one allocation at one distance, as [`dense`] puts them and slices of it stay; `None`
/// otherwise. A single column of numbers is at distance 0.
#[must_use]
pub fn dense_stride(columns: &[ArrayRef]) -> Option<usize> {
    let first = columns.first()?;
    let row_bytes = first.data_type().primitive_width()?;
    let place = |column: &ArrayRef| {
        let data = column.to_data();
        let buffer = data.buffers().first()?;
        let start = buffer.as_ptr().addr() + data.offset() * row_bytes;
        Some((buffer.data_ptr().addr().get(), start))
    };
    let places: Vec<(usize, usize)> = columns.iter().map(place).collect::<Option<_>>()?;
    let one_block = places.windows(2).all(|pair| {
        pair.iter()
            .all(|each| each.0 == places.first().map_or(0, |first| first.0))
    });
    let steps: Vec<Option<usize>> = places
        .windows(2)
        .map(|pair| pair.last()?.1.checked_sub(pair.first()?.1))
        .collect();
    let stride = steps.first().copied().unwrap_or(Some(0))?;
    let even = steps.iter().all(|step| *step == Some(stride));
    let same = columns
        .iter()
        .all(|column| column.data_type() == first.data_type());
    (one_block && even && same).then_some(stride)
}

/// The bytes of the values of a primitive array.
fn values_of(data: &ArrayData, row_bytes: usize) -> Result<&[u8]> {
    let start = data.offset() * row_bytes;
    let bytes = data.buffers().first().map(Buffer::as_slice);
    bytes
        .and_then(|bytes| bytes.get(start..start + data.len() * row_bytes))
        .ok_or_else(|| Error::internal("a column of numbers has one buffer of values"))
}

fn no_numbers(batch: &RecordBatch, column: usize) -> Error {
    let fields = batch.schema_ref().fields();
    match (fields.first(), fields.get(column)) {
        (Some(first), Some(other)) => not_dense(first, other),
        _ => Error::internal("a column that is not dense, and not there"),
    }
}

/// The refusal of a column beside the first one of a dense band.
pub(crate) fn not_dense(first: &Field, other: &Field) -> Error {
    let (wanted, got) = (first.data_type(), other.data_type());
    let text = "a dense band must hold integers or floats of one type, got";
    let error = match got.is_numeric() {
        true => Error::invalid_argument(format!("{text} {got} behind {wanted}"))
            .with_hint("give the columns of each type a band of their own"),
        false => Error::invalid_argument(format!("{text} {got}"))
            .with_hint("name columns of numbers; the others are loaded without it"),
    };
    error.with_column(other.name())
}
