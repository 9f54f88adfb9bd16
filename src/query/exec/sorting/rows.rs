//! Rows in an order that is known.
//!
//! Comes in: batches, and the numbers of their rows, some after the other. Goes out: batches of these. Numbers of a column are put one after the other first, so that each is found at once; other values stay in their batches, since they may be too long to share one array. Never here: the order.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use datafusion::error::Result;

use super::runs::Pace;
use crate::grid::array_bytes;

/// All rows.
pub(super) struct Rows {
    schema: SchemaRef,
    columns: Vec<Column>,
    /// The number of the first row of each batch.
    firsts: Vec<usize>,
}

enum Column {
    /// All of it.
    Whole(ArrayRef),
    /// By its batches.
    InBatches(Vec<ArrayRef>),
}

impl Column {
    fn try_new(mut batches: Vec<ArrayRef>) -> Result<Self> {
        let whole = |batches: &[ArrayRef]| {
            let batches: Vec<&dyn Array> = batches.iter().map(AsRef::as_ref).collect();
            concat(&batches)
        };
        let kind = batches.first().map(|values| values.data_type());
        Ok(match (batches.len(), kind) {
            (1, _) => Self::Whole(batches.remove(0)),
            (_, Some(kind)) if kind.is_primitive() || *kind == DataType::Boolean => {
                Self::Whole(whole(&batches)?)
            }
            // One dictionary for all, unless there are more values than it has keys.
            (_, Some(DataType::Dictionary(..))) => match whole(&batches) {
                Ok(values) => Self::Whole(values),
                Err(_) => Self::InBatches(batches),
            },
            _ => Self::InBatches(batches),
        })
    }

    fn size(&self) -> u64 {
        match self {
            Self::Whole(values) => array_bytes(values),
            Self::InBatches(batches) => batches.iter().map(array_bytes).sum(),
        }
    }
}

impl Rows {
    /// Those of some batches, one after the other.
    ///
    /// # Errors
    /// As arrow says of batches that do not fit together.
    pub(super) async fn try_new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<Self> {
        let mut firsts = Vec::with_capacity(batches.len());
        let mut by_batch = vec![Vec::with_capacity(batches.len()); schema.fields().len()];
        let mut first = 0;
        for batch in batches {
            let (_, values, num_rows) = batch.into_parts();
            firsts.push(first);
            first += num_rows;
            for (column, values) in by_batch.iter_mut().zip(values) {
                column.push(values);
            }
        }
        let (mut columns, mut pace) = (Vec::with_capacity(by_batch.len()), Pace::default());
        for batches in by_batch {
            columns.push(Column::try_new(batches)?);
            pace.after(first).await;
        }
        Ok(Self {
            schema,
            columns,
            firsts,
        })
    }

    /// How many bytes they take.
    pub(super) fn size(&self) -> usize {
        let columns = self.columns.iter().map(Column::size).sum::<u64>();
        usize::try_from(columns).unwrap_or(usize::MAX)
    }

    /// The rows of these numbers, in several batches where one array has no room for their values.
    ///
    /// # Errors
    /// As arrow says, of one value that is too long for an array.
    pub(super) fn batches(&self, numbers: &UInt32Array) -> Result<Vec<RecordBatch>> {
        match self.batch(numbers) {
            Err(ArrowError::OffsetOverflowError(_)) if numbers.len() > 1 => {
                let half = numbers.len() / 2;
                let mut batches = self.batches(&numbers.slice(0, half))?;
                batches.extend(self.batches(&numbers.slice(half, numbers.len() - half))?);
                Ok(batches)
            }
            batch => Ok(vec![batch?]),
        }
    }

    fn batch(&self, rows: &UInt32Array) -> Result<RecordBatch, ArrowError> {
        let mut places = None;
        let columns = self.columns.iter().map(|column| match column {
            Column::Whole(values) => take(values, rows, None),
            Column::InBatches(batches) => {
                let places = places.get_or_insert_with(|| Places::of(rows, &self.firsts));
                places.of_batches(batches)
            }
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }
}

/// In which batches some rows are.
pub(super) struct Places {
    /// The batches that have any of them.
    batches: Vec<usize>,
    /// Which of these each is in, and where there.
    rows: Vec<(usize, usize)>,
}

impl Places {
    /// Those of rows by their numbers among all; of each batch, the number of its first row.
    pub(super) fn of(rows: &UInt32Array, firsts: &[usize]) -> Self {
        let mut batches = Vec::new();
        let mut known: Vec<Option<usize>> = vec![None; firsts.len()];
        let rows = rows.values().iter().map(|row| {
            let row = *row as usize;
            let batch = firsts
                .partition_point(|first| *first <= row)
                .saturating_sub(1);
            let first = firsts.get(batch).copied().unwrap_or_default();
            let place = match known.get_mut(batch) {
                Some(known) => *known.get_or_insert_with(|| {
                    batches.push(batch);
                    batches.len() - 1
                }),
                None => 0,
            };
            (place, row - first)
        });
        let rows = rows.collect();
        Self { batches, rows }
    }

    /// The values of the rows, of a column by its batches.
    ///
    /// # Errors
    /// `OffsetOverflowError` where one array has no room for them.
    pub(super) fn of_batches(&self, column: &[ArrayRef]) -> Result<ArrayRef, ArrowError> {
        let batches = self.batches.iter().filter_map(|batch| column.get(*batch));
        let batches: Vec<&dyn Array> = batches.map(AsRef::as_ref).collect();
        interleave(&batches, &self.rows)
    }
}
