//! An index of the right side: its rows by their keys, and among those by what is compared.
//!
//! Comes in: the rows of the right side, and then the batches of the left one. Goes out: for each row of the left side the nearest one of the right. Never here: what is done where there is no room for it; how it is made (`builder.rs`); the search (`sorted.rs`).

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;

use super::columns::{Columns, nulls_of};
use super::compared::{Compared, Comparing};
use super::groups::Groups;
use super::joined::Found;
use super::sorted::Sorted;

/// The right side, by keys and what is compared.
pub(super) struct Index {
    kept: Arc<Kept>,
    groups: Option<Groups>,
    /// Where the last search among the rows of each number of keys ended.
    hints: Vec<u32>,
}

/// What of it does not change.
pub(super) struct Kept {
    /// Of the left side.
    pub(super) columns: Columns,
    pub(super) is_other: bool,
    pub(super) comparing: Comparing,
    pub(super) sorted: Sorted,
    pub(super) chunks: Vec<RecordBatch>,
    /// The first row of each.
    pub(super) begins: Vec<usize>,
    /// Bytes without those of the keys.
    pub(super) own_bytes: usize,
    pub(super) reservation: MemoryReservation,
}

impl Index {
    pub(super) fn of(kept: Arc<Kept>, groups: Option<Groups>, hints: Vec<u32>) -> Self {
        let index = Self {
            kept,
            groups,
            hints,
        };
        index.count();
        index
    }

    /// That of an input without keys, for rows of the left side that come while others do.
    pub(super) fn over(kept: &Arc<Kept>) -> Self {
        Self {
            hints: kept.sorted.starts.clone(),
            kept: Arc::clone(kept),
            groups: None,
        }
    }

    pub(super) fn into_kept(self) -> Arc<Kept> {
        self.kept
    }

    pub(super) fn num_rows(&self) -> usize {
        self.kept.sorted.rows.len()
    }

    /// How many bytes are reserved.
    pub(super) fn size(&self) -> usize {
        self.kept.reservation.size()
    }

    /// The right side, whose batches are counted from one in what is found.
    pub(super) fn batches(&self) -> Vec<&RecordBatch> {
        self.kept.chunks.iter().collect()
    }

    /// The number of keys of the right side.
    fn num_groups(&self) -> usize {
        self.kept.sorted.starts.len().saturating_sub(1)
    }

    /// What is nearest to the rows of a batch of the left side.
    pub(super) fn find(&mut self, batch: &RecordBatch) -> Result<Vec<Found>> {
        let values = self.kept.columns.values(batch)?;
        let nulls = nulls_of(&values);
        let Some((last, keys)) = values.split_last() else {
            return Ok(Vec::new());
        };
        let mut bounds = self.kept.comparing.none();
        self.kept.comparing.append(last, &mut bounds)?;
        let found = self.nearest(keys, &bounds, batch.num_rows(), |row| {
            nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))
        })?;
        self.forget()?;
        let found = found.into_iter().map(|row| match row {
            None => (0, 0),
            Some(row) => self.place(row as usize),
        });
        Ok(found.collect())
    }

    fn nearest(
        &mut self,
        keys: &[ArrayRef],
        bounds: &Compared,
        num_rows: usize,
        has_all: impl Fn(usize) -> bool,
    ) -> Result<Vec<Option<u32>>> {
        let (kept, hints) = (&self.kept, &mut self.hints);
        Ok(match &mut self.groups {
            None => {
                let groups = (0..num_rows).map(|row| has_all(row).then_some(0));
                kept.sorted.nearest(bounds, groups, hints, kept.is_other)
            }
            Some(groups) => {
                let numbers = groups.numbers(keys)?.iter().enumerate();
                let groups = numbers.map(|(row, number)| has_all(row).then_some(*number));
                kept.sorted.nearest(bounds, groups, hints, kept.is_other)
            }
        })
    }

    /// In which batch a row is, and where.
    fn place(&self, row: usize) -> Found {
        let batch = self.kept.begins.partition_point(|first| *first <= row);
        let first = self.kept.begins.get(batch.saturating_sub(1)).copied();
        (batch, row - first.unwrap_or_default())
    }

    /// Forgets keys that the right side has not once they are many, or there is no room for them.
    fn forget(&mut self) -> Result<()> {
        let num_groups = self.num_groups();
        let Some(groups) = &mut self.groups else {
            return Ok(());
        };
        if groups.len() == num_groups {
            return Ok(());
        }
        let size = self.kept.own_bytes + groups.size();
        let has_no_room = self.kept.reservation.try_resize(size).is_err();
        if groups.has_many_others(num_groups) || has_no_room && groups.has_some_others(num_groups) {
            groups.forget_others(num_groups)?;
        }
        self.count();
        Ok(())
    }

    fn count(&self) {
        let groups = self.groups.as_ref().map_or(0, Groups::size);
        self.kept.reservation.resize(self.kept.own_bytes + groups);
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
    use datafusion::common::utils::memory::RecordBatchMemoryCounter;
    use datafusion::execution::memory_pool::{
        GreedyMemoryPool, MemoryConsumer, MemoryPool, UnboundedMemoryPool,
    };
    use datafusion::logical_expr::Operator;

    use super::super::Nearest;
    use super::super::builder::Builder;
    use super::*;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("k", DataType::Utf8, true),
            Field::new("m", DataType::Int64, true),
        ]))
    }

    fn batch(keys: Vec<Option<&str>>, moments: Vec<Option<i64>>) -> RecordBatch {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(keys)),
            Arc::new(Int64Array::from(moments)),
        ];
        RecordBatch::try_new(schema(), columns).unwrap()
    }

    fn nearest() -> Nearest {
        Nearest::of(Operator::GtEq, vec![(0, 0)], (1, 1), true).unwrap()
    }

    fn builder(pool: &Arc<dyn MemoryPool>) -> Builder {
        let reservation = MemoryConsumer::new("test")
            .with_can_spill(true)
            .register(pool);
        Builder::try_new(schema(), &nearest(), reservation).unwrap()
    }

    #[test]
    fn rows_are_found_in_the_batch_that_they_are_in() {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let mut builder = builder(&pool);
        let some = |keys: [&'static str; 2]| keys.map(Some).to_vec();
        assert!(
            builder
                .push(batch(some(["a", "b"]), vec![Some(5), Some(1)]))
                .unwrap()
        );
        assert!(builder.put_together().unwrap());
        assert!(
            builder
                .push(batch(vec![None, Some("a")], vec![Some(2), None]))
                .unwrap()
        );
        assert!(
            builder
                .push(batch(some(["a", "a"]), vec![Some(9), Some(2)]))
                .unwrap()
        );
        let Ok(mut index) = builder.finish(&schema(), &nearest()).unwrap() else {
            panic!("there is room for it")
        };
        assert_eq!(index.num_rows(), 4);
        assert!(pool.reserved() > 0);
        let keys = vec![Some("a"), Some("a"), Some("a"), Some("b"), Some("c"), None];
        let moments = vec![Some(8), Some(100), Some(1), Some(1), Some(7), Some(7)];
        let found = index.find(&batch(keys, moments)).unwrap();
        assert_eq!(found, [(1, 0), (2, 0), (0, 0), (1, 1), (0, 0), (0, 0)]);
        let batches = index.batches();
        let moment = batches[1].column(1).as_primitive::<Int64Type>().value(0);
        assert_eq!(moment, 9);
        drop(index);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn what_has_no_room_is_given_back() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(2_000));
        let mut builder = builder(&pool);
        let rows = || batch(vec![Some("a"); 40], (0..40).map(Some).collect());
        let mut pushed = 1;
        while builder.push(rows()).unwrap() {
            pushed += 1;
        }
        let (batches, reservation) = builder.into_batches();
        let num_rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(num_rows, pushed * 40);
        assert!(pool.reserved() > 0);
        drop(reservation);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn parts_of_one_input_are_one_index() {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let nearest = Nearest::of(Operator::GtEq, Vec::new(), (1, 1), true).unwrap();
        for kind in [DataType::Int64, DataType::Utf8] {
            let fields = vec![
                Field::new("k", DataType::Utf8, true),
                Field::new("m", kind.clone(), true),
            ];
            let schema = Arc::new(Schema::new(fields));
            let batch = |moments: &[i64]| {
                let keys = Arc::new(StringArray::from(vec!["x"; moments.len()]));
                let moments = Int64Array::from(moments.to_vec());
                let columns: Vec<ArrayRef> =
                    vec![keys, arrow::compute::cast(&moments, &kind).unwrap()];
                RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()
            };
            let reservation = MemoryConsumer::new("test").register(&pool);
            let builder = Builder::try_new(Arc::clone(&schema), &nearest, reservation).unwrap();
            let parts = [batch(&[10, 30]), batch(&[]), batch(&[20]), batch(&[40, 25])];
            let mut counter = RecordBatchMemoryCounter::new();
            for part in &parts {
                counter.count_batch(part);
            }
            let Ok(all) = builder.of_counted(parts.to_vec(), counter).unwrap() else {
                panic!("there are few")
            };
            let Ok(mut index) = all.finish(&schema, &nearest).unwrap() else {
                panic!("there is room for it")
            };
            let mut again = Index::over(&index.kept);
            for index in [&mut index, &mut again] {
                let found = index.find(&batch(&[22, 99, 10, 29, 31])).unwrap();
                let values = found.into_iter().map(|(batch, row)| {
                    let column = index.batches()[batch - 1].column(1);
                    let column = arrow::compute::cast(column, &DataType::Int64).unwrap();
                    column.as_primitive::<Int64Type>().value(row)
                });
                assert_eq!(values.collect::<Vec<_>>(), [20, 40, 10, 25, 30]);
            }
            drop((index, again));
            assert_eq!(pool.reserved(), 0);
        }
    }
}
