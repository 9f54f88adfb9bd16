//! Rows of both sides, side by side.
//!
//! Comes in: rows of the left side, and which row of the right one is the nearest to each: by its batch, or by its number among all. Goes out: one batch of both. Never here: how these are found.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::compute::{interleave, take};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::error::Result;

use super::chunks::Chunks;
use super::sorted::NO_ROW;

/// In which of some batches a row is, and where; the first is of nulls: nothing is near.
pub(super) type Found = (usize, usize);

/// Columns of the left side, and how many rows they have.
type LeftRows = (Vec<ArrayRef>, usize);

/// What goes out: which columns of both sides, in this order, and which rows.
pub(super) struct Joined {
    schema: SchemaRef,
    left: Vec<usize>,
    right: Vec<usize>,
    /// A row of nulls of these columns of the right side.
    nothing: Vec<ArrayRef>,
    /// Whether rows of the left side without one of the right stay.
    keeps_left: bool,
}

impl Joined {
    /// Of the columns of the left side and behind them those of the right, those of some numbers, which ascend.
    pub(super) fn of(
        (left, right): (&Schema, &Schema),
        columns: &[usize],
        schema: SchemaRef,
        keeps_left: bool,
    ) -> Self {
        let num_left = left.fields().len();
        let (left, right_columns): (Vec<usize>, Vec<usize>) =
            columns.iter().partition(|column| **column < num_left);
        let right_columns = right_columns.iter().map(|column| column - num_left);
        let right_columns: Vec<usize> = right_columns.collect();
        let fields = right_columns
            .iter()
            .filter_map(|column| right.fields().get(*column));
        Self {
            nothing: fields
                .map(|field| new_null_array(field.data_type(), 1))
                .collect(),
            schema,
            left,
            right: right_columns,
            keeps_left,
        }
    }

    pub(super) fn keeps_left(&self) -> bool {
        self.keeps_left
    }

    /// The rows of the left side with those that were found in batches of the right one.
    pub(super) fn beside(
        &self,
        left: &RecordBatch,
        found: Vec<Found>,
        right: &[&RecordBatch],
    ) -> Result<RecordBatch> {
        let (left, found) = self.with_nearest(left, found, |(batch, _)| *batch > 0)?;
        self.together(left, self.interleaved(&found, right))
    }

    /// The same, with rows that are found by their numbers among all of the right side.
    pub(super) fn beside_rows(
        &self,
        left: &RecordBatch,
        found: Vec<u32>,
        right: &Chunks,
    ) -> Result<RecordBatch> {
        let has_one = |row: &u32| *row != NO_ROW;
        let (left, found) = self.with_nearest(left, found, has_one)?;
        let have_all = !self.keeps_left || found.iter().all(has_one);
        // A row that there is not cannot be taken of runs: there are no nulls but those among the values.
        if let [only] = right.batches()
            && (have_all || !self.nothing.iter().any(is_of_runs))
        {
            let rows = match have_all {
                true => UInt32Array::from(found),
                false => {
                    let valid = found.iter().map(has_one).collect();
                    let rows = found.into_iter();
                    let rows = rows.map(|row| if row == NO_ROW { 0 } else { row });
                    UInt32Array::new(rows.collect(), Some(valid))
                }
            };
            let columns = self.right.iter();
            let columns = columns.map(|column| Ok(take(only.column(*column), &rows, None)?));
            return self.together(left, columns);
        }
        let found = found.into_iter().map(|row| match row {
            NO_ROW => (0, 0),
            row => right.place(row as usize),
        });
        let found: Vec<Found> = found.collect();
        let batches: Vec<&RecordBatch> = right.batches().iter().collect();
        self.together(left, self.interleaved(&found, &batches))
    }

    /// The columns of the right side, of rows of several batches; the first is of nulls.
    fn interleaved<'a>(
        &'a self,
        found: &'a [Found],
        batches: &'a [&RecordBatch],
    ) -> impl Iterator<Item = Result<ArrayRef>> + 'a {
        let columns = self.right.iter().zip(&self.nothing);
        columns.map(move |(column, nothing)| {
            let columns = batches.iter().map(|batch| batch.column(*column).as_ref());
            let arrays: Vec<&dyn Array> = [nothing.as_ref()].into_iter().chain(columns).collect();
            Ok(interleave(&arrays, found)?)
        })
    }

    /// The columns of both sides in one batch.
    fn together(
        &self,
        (left, num_rows): LeftRows,
        right: impl Iterator<Item = Result<ArrayRef>>,
    ) -> Result<RecordBatch> {
        let mut columns = left;
        for column in right {
            columns.push(column?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            columns,
            &options,
        )?)
    }

    /// The columns of the left side, of the rows that go out and how many these are, and what was found for them.
    fn with_nearest<T>(
        &self,
        left: &RecordBatch,
        found: Vec<T>,
        has_one: impl Fn(&T) -> bool,
    ) -> Result<(LeftRows, Vec<T>)> {
        let columns = self.left.iter().map(|column| left.column(*column));
        if self.keeps_left || found.iter().all(&has_one) {
            return Ok(((columns.cloned().collect(), left.num_rows()), found));
        }
        let places = (0_u32..).zip(&found).filter(|(_, found)| has_one(found));
        let places: UInt32Array = places.map(|(place, _)| place).collect();
        let columns = columns.map(|column| Ok(take(column, &places, None)?));
        let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
        let found = found.into_iter().filter(has_one).collect();
        Ok(((columns, places.len()), found))
    }
}

/// Whether there are no nulls but those among the values: a row that there is not cannot be taken.
fn is_of_runs(column: &ArrayRef) -> bool {
    matches!(column.data_type(), DataType::RunEndEncoded(..))
}
