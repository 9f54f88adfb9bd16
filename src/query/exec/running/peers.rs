//! Where other keys begin among rows that are in their order.
//!
//! Comes in: the columns of keys, a batch at a time. Goes out: for each row whether it is the first of its keys. Never here: the order.

use arrow::array::{ArrayRef, BooleanBufferBuilder, UInt32Array, make_comparator};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{SortOptions, partition, take};
use datafusion::error::Result;

/// The keys of the last row.
#[derive(Default)]
pub(super) struct Keys {
    last: Option<Vec<ArrayRef>>,
}

impl Keys {
    /// Which rows of a batch, that has some, are the first of their keys.
    pub(super) fn begins(
        &mut self,
        columns: &[ArrayRef],
        num_rows: usize,
    ) -> Result<BooleanBuffer> {
        let mut begins = BooleanBufferBuilder::new(num_rows);
        begins.append_n(num_rows, false);
        begins.set_bit(0, self.are_others(columns)?);
        if !columns.is_empty() {
            let ranges = partition(columns)?.ranges();
            for range in ranges.into_iter().skip(1) {
                begins.set_bit(range.start, true);
            }
        }
        let last = UInt32Array::from(vec![u32::try_from(num_rows - 1).unwrap_or(u32::MAX)]);
        // Copied, since the batch is large.
        let last = columns.iter().map(|column| take(column, &last, None));
        self.last = Some(last.collect::<Result<_, _>>()?);
        Ok(begins.finish())
    }

    /// Whether the first row has other keys than the last one before it.
    fn are_others(&self, columns: &[ArrayRef]) -> Result<bool> {
        let Some(last) = &self.last else {
            return Ok(true);
        };
        for (last, column) in last.iter().zip(columns) {
            let first = column.slice(0, 1);
            let compare = make_comparator(last, &first, SortOptions::default())?;
            if compare(0, 0).is_ne() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};

    use super::*;

    #[test]
    fn keys_go_on_in_the_next_batch() {
        let mut keys = Keys::default();
        let mut begins = |numbers: Vec<Option<i64>>, texts: Vec<&str>| {
            let count = numbers.len();
            let columns: [ArrayRef; 2] = [
                Arc::new(Int64Array::from(numbers)),
                Arc::new(StringArray::from(texts)),
            ];
            let begins = keys.begins(&columns, count).unwrap();
            begins.iter().collect::<Vec<bool>>()
        };
        assert_eq!(
            begins(vec![Some(1), Some(1), None], vec!["a", "b", "b"]),
            [true, true, true]
        );
        assert_eq!(begins(vec![None, None], vec!["b", "b"]), [false, false]);
        assert_eq!(begins(vec![None, Some(2)], vec!["c", "c"]), [true, true]);
        let mut none = Keys::default();
        let found = none.begins(&[], 2).unwrap();
        assert_eq!(found.iter().collect::<Vec<bool>>(), [true, false]);
        let found = none.begins(&[], 1).unwrap();
        assert_eq!(found.iter().collect::<Vec<bool>>(), [false]);
    }
}
