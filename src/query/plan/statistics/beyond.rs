//! How many rows have numbers beyond a border.
//!
//! Comes in: a grid, a column of whole numbers without nulls, numbers. Goes out: how many rows of a row band have a lesser number, counted, if its tile is here; about how many of the grid have one from a first to a last, as some of its rows say.
//! Never here: reading of tiles that are lazy or elsewhere; what follows for a plan.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::kernels::cmp::lt;
use datafusion::common::ScalarValue;

use super::estimate::column_here;
use crate::grid::PartitionGrid;
use crate::query::plan::sorted::told;

/// What can be seen of the whole numbers of a column.
#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    grid: Arc<PartitionGrid>,
    column: usize,
    num_rows: u64,
    /// Those of some rows at even distances, ascending; empty if nobody has looked.
    seen: Arc<[i128]>,
}

impl Numbers {
    pub(super) fn new(grid: &Arc<PartitionGrid>, column: usize, seen: Arc<[i128]>) -> Self {
        Self {
            grid: Arc::clone(grid),
            column,
            num_rows: grid.num_rows(),
            seen,
        }
    }

    /// Numbers of so many rows that are elsewhere, of which some were looked at.
    #[cfg(test)]
    pub(crate) fn elsewhere(num_rows: u64, mut seen: Vec<i128>) -> Self {
        seen.sort_unstable();
        let nothing =
            PartitionGrid::try_from_batches(arrow::datatypes::Schema::empty().into(), &[]);
        Self {
            num_rows,
            ..Self::new(&Arc::new(nothing.unwrap()), 0, seen.into())
        }
    }

    /// How many rows of a row band have a number below this one, which must be one of the type; `None` if they are not here.
    pub(crate) fn rows_below(&self, row_band: usize, number: i128) -> Option<u64> {
        let values = column_here(&self.grid, row_band, self.column)?;
        let whole = ScalarValue::Decimal128(Some(number), 38, 0);
        let bound = whole.cast_to(values.data_type()).ok()?;
        let rows = match told(&self.grid, row_band, self.column) {
            Some(true) => first_not_below(&values, &bound)?,
            _ => lt(&values, &bound.to_scalar().ok()?).ok()?.true_count(),
        };
        u64::try_from(rows).ok()
    }

    /// For how many rows of the grid each one stands that was looked at; `None` if none was.
    pub(crate) fn rows_of_each(&self) -> Option<u64> {
        let seen = u64::try_from(self.seen.len()).ok()?;
        (seen > 0).then(|| self.num_rows.div_ceil(seen))
    }

    /// How many of the rows that were looked at have a number from the first to the last.
    pub(crate) fn num_seen(&self, (first, last): (i128, i128)) -> u64 {
        let before = self.seen.partition_point(|number| *number < first);
        let until = self.seen.partition_point(|number| *number <= last);
        u64::try_from(until.saturating_sub(before)).unwrap_or(u64::MAX)
    }
}

/// The first row of an ascending column whose value is not below the bound.
fn first_not_below(values: &ArrayRef, bound: &ScalarValue) -> Option<usize> {
    let (mut low, mut high) = (0, values.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        let is_below = ScalarValue::try_from_array(values, middle).ok()? < *bound;
        (low, high) = match is_below {
            true => (middle + 1, high),
            false => (low, middle),
        };
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int16Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;
    use crate::query::Facts;

    fn numbers(values: &[i16]) -> Numbers {
        let schema = Schema::new(vec![Field::new("k", DataType::Int16, false)]);
        let column = Arc::new(Int16Array::from(values.to_vec()));
        let batch = RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap();
        let grid = PartitionGrid::try_from_batches(batch.schema(), &[batch]).unwrap();
        Facts::new(Arc::new(grid)).seen_numbers(0)
    }

    #[test]
    fn rows_that_are_here_are_counted() {
        for values in [[1, 2, 5, 5, 5, 9], [5, 9, 1, 5, 2, 5]] {
            let numbers = numbers(&values);
            let below = |number| numbers.rows_below(0, number);
            assert_eq!([1, 2, 5, 6, 9].map(below), [0, 1, 2, 5, 5].map(Some));
            // No number of the type.
            assert_eq!(below(1 << 20), None);
            assert_eq!(numbers.rows_below(1, 5), None);
        }
    }

    #[test]
    fn an_ascending_column_is_searched() {
        let values: ArrayRef = Arc::new(Int16Array::from(vec![1, 2, 5, 5, 5, 9]));
        let first = |number: i16| first_not_below(&values, &ScalarValue::from(number));
        assert_eq!([0, 2, 5, 6, 10].map(first), [0, 1, 2, 5, 6].map(Some));
    }

    #[test]
    fn some_rows_tell_about_how_many_have_a_number() {
        let values: Vec<i16> = (0..20_000).map(|row: i16| row.min(10_000)).collect();
        let numbers = numbers(&values);
        let rows = numbers.rows_of_each().unwrap() * numbers.num_seen((10_000, 10_000));
        assert!((9_500..10_500).contains(&rows), "{rows}");
        assert_eq!(numbers.num_seen((10_001, i128::MAX)), 0);
    }
}
