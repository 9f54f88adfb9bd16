//! The rows of the right side, in the batches that they are kept in.
//!
//! Comes in: batches. Goes out: where a row is, by its number among all. Never here: which row is near to what.

use arrow::array::RecordBatch;

use super::joined::Found;

/// Of so many rows each, the batch is known in which the first one is.
const BLOCK_ROWS: usize = 1024;

/// Batches, one after the other.
pub(super) struct Chunks {
    batches: Vec<RecordBatch>,
    /// The first row of each, and the end of the last.
    begins: Vec<usize>,
    /// In which batch each block of rows begins.
    of_block: Vec<usize>,
}

impl Chunks {
    pub(super) fn of(batches: Vec<RecordBatch>) -> Self {
        let mut begins = vec![0];
        let mut end = 0;
        for batch in &batches {
            end += batch.num_rows();
            begins.push(end);
        }
        let mut batch = 0;
        let blocks = (0..end).step_by(BLOCK_ROWS).map(|first| {
            while begins.get(batch + 1).is_some_and(|end| *end <= first) {
                batch += 1;
            }
            batch
        });
        let of_block = blocks.collect();
        Self {
            batches,
            begins,
            of_block,
        }
    }

    pub(super) fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// How many bytes it takes beside the batches.
    pub(super) fn own_size(&self) -> usize {
        (self.begins.capacity() + self.of_block.capacity()) * size_of::<usize>()
    }

    /// In which batch a row is, counted from one, and where.
    pub(super) fn place(&self, row: usize) -> Found {
        let block = self.of_block.get(row / BLOCK_ROWS);
        let mut batch = block.copied().unwrap_or_default();
        while self.begins.get(batch + 1).is_some_and(|end| *end <= row) {
            batch += 1;
        }
        let begin = self.begins.get(batch).copied().unwrap_or_default();
        (batch + 1, row - begin)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::RecordBatchOptions;
    use arrow::datatypes::Schema;

    use super::*;

    #[test]
    fn each_row_is_in_one_place() {
        let batches = [0, 3, 0, 1, 1_024, 5_000, 1, 0, 700].map(|count| {
            let options = RecordBatchOptions::new().with_row_count(Some(count));
            RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)
        });
        let batches: Vec<RecordBatch> = batches.into_iter().map(Result::unwrap).collect();
        let wanted: Vec<Found> = (1..)
            .zip(&batches)
            .flat_map(|(number, batch)| (0..batch.num_rows()).map(move |row| (number, row)))
            .collect();
        let chunks = Chunks::of(batches);
        let found: Vec<Found> = (0..wanted.len()).map(|row| chunks.place(row)).collect();
        assert_eq!(found, wanted);
    }
}
