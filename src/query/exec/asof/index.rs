//! An index of the right side: its rows by their keys, and among those by what is compared.
//!
//! Comes in: the rows of the right side, and then the batches of the left one. Goes out: for each row of the left side the nearest one of the right. Never here: what is done where there is no room for it; how it is made (`builder.rs`); the search (`sorted.rs`).

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;

use super::chunks::Chunks;
use super::columns::{Columns, nulls_of};
use super::compared::{Compared, Comparing};
use super::sorted::Sorted;
use crate::query::exec::groups::Groups;

/// The right side, by keys and what is compared, for one partition of the left one.
pub(super) struct Index {
    kept: Arc<Kept>,
    groups: Option<Groups>,
    /// Where the last search among the rows of each number of keys ended.
    hints: Vec<u32>,
    /// How many bytes the keys may take that are counted elsewhere.
    counted: usize,
    /// For those of the left side.
    reservation: MemoryReservation,
}

/// What of it does not change.
pub(super) struct Kept {
    /// Of the left side.
    pub(super) columns: Columns,
    pub(super) is_other: bool,
    pub(super) comparing: Arc<Comparing>,
    pub(super) sorted: Sorted,
    pub(super) chunks: Chunks,
    /// The keys by their numbers, for partitions of the left side, each of which looks its own up among them.
    pub(super) keys: Option<(SchemaRef, Vec<ArrayRef>)>,
    /// Bytes without those that are sorted.
    pub(super) own_bytes: usize,
    pub(super) reservation: MemoryReservation,
}

impl Kept {
    /// Reserves what it takes.
    pub(super) fn count(&self) {
        self.reservation.resize(self.own_bytes + self.sorted.size());
    }

    pub(super) fn num_rows(&self) -> usize {
        self.sorted.num_rows()
    }

    /// How many bytes are reserved.
    pub(super) fn size(&self) -> usize {
        self.reservation.size()
    }
}

impl Index {
    /// For one partition.
    pub(super) fn alone(kept: Kept, groups: Option<Groups>) -> Self {
        let hints = kept.sorted.starts.clone();
        let kept = Kept {
            own_bytes: kept.own_bytes + hints.capacity() * size_of::<u32>(),
            ..kept
        };
        kept.count();
        let index = Self {
            reservation: kept.reservation.new_empty(),
            kept: Arc::new(kept),
            groups,
            hints,
            counted: 0,
        };
        index.count();
        index
    }

    /// For rows of the left side that come while others do.
    pub(super) fn over(kept: &Arc<Kept>) -> Result<Self> {
        let groups = kept.keys.as_ref();
        let groups = groups.map(|(schema, keys)| Groups::of_keys(schema, keys));
        let groups = groups.transpose()?;
        Ok(Self {
            reservation: kept.reservation.new_empty(),
            hints: kept.sorted.starts.clone(),
            counted: groups.as_ref().map_or(0, Groups::size),
            groups,
            kept: Arc::clone(kept),
        })
    }

    /// How many bytes are reserved.
    pub(super) fn size(&self) -> usize {
        self.kept.size() + self.reservation.size()
    }

    pub(super) fn num_rows(&self) -> usize {
        self.kept.num_rows()
    }

    /// The right side, whose rows are what is found.
    pub(super) fn chunks(&self) -> &Chunks {
        &self.kept.chunks
    }

    /// The number of keys of the right side.
    fn num_groups(&self) -> usize {
        self.kept.sorted.starts.len().saturating_sub(1)
    }

    /// What is nearest to the rows of a batch of the left side.
    pub(super) fn find(&mut self, batch: &RecordBatch) -> Result<Vec<u32>> {
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
        Ok(found)
    }

    fn nearest(
        &mut self,
        keys: &[ArrayRef],
        bounds: &Compared,
        num_rows: usize,
        has_all: impl Fn(usize) -> bool,
    ) -> Result<Vec<u32>> {
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

    /// Forgets keys that the right side has not once they are many, or there is no room for them.
    fn forget(&mut self) -> Result<()> {
        let num_groups = self.num_groups();
        let Some(groups) = &mut self.groups else {
            return Ok(());
        };
        if groups.len() == num_groups {
            return Ok(());
        }
        let size = groups.size().saturating_sub(self.counted);
        let has_no_room = self.reservation.try_resize(size).is_err();
        if groups.has_many_others(num_groups) || has_no_room && groups.has_some_others(num_groups) {
            groups.forget_others(num_groups)?;
        }
        self.count();
        Ok(())
    }

    fn count(&self) {
        let groups = self.groups.as_ref().map_or(0, Groups::size);
        self.reservation.resize(groups.saturating_sub(self.counted));
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion::common::utils::memory::RecordBatchMemoryCounter;
    use datafusion::execution::memory_pool::{
        GreedyMemoryPool, MemoryConsumer, MemoryPool, UnboundedMemoryPool,
    };
    use datafusion::logical_expr::Operator;

    use super::super::Nearest;
    use super::super::builder::Builder;
    use super::super::known::Known;
    use super::super::sorted::NO_ROW;
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
        assert_eq!(found, [0, 2, NO_ROW, 1, NO_ROW, NO_ROW]);
        assert_eq!(index.chunks().place(2), (2, 0));
        let moments = index.chunks().batches()[1].column(1);
        assert_eq!(moments.as_primitive::<Int64Type>().value(0), 9);
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

    /// The values that are found for some moments beside the keys `x` and `y` in turn.
    fn found(kept: &Arc<Kept>, schema: &SchemaRef, moments: &[i64]) -> Vec<Option<i64>> {
        let mut index = Index::over(kept).unwrap();
        let found = index.find(&rows(schema, moments)).unwrap();
        let values = found.into_iter().map(|row| {
            let (batch, row) = match row {
                NO_ROW => return None,
                row => index.chunks().place(row as usize),
            };
            let column = index.chunks().batches()[batch - 1].column(1);
            let column = arrow::compute::cast(column, &DataType::Int64).unwrap();
            Some(column.as_primitive::<Int64Type>().value(row))
        });
        values.collect()
    }

    fn rows(schema: &SchemaRef, moments: &[i64]) -> RecordBatch {
        let keys = ["x", "y"].into_iter().cycle().take(moments.len());
        let keys = Arc::new(StringArray::from_iter_values(keys));
        let moments = Int64Array::from(moments.to_vec());
        let moments = arrow::compute::cast(&moments, schema.field(1).data_type()).unwrap();
        RecordBatch::try_new(Arc::clone(schema), vec![keys, moments]).unwrap()
    }

    #[tokio::test]
    async fn parts_of_one_input_are_one_index() {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        for (kind, has_keys) in [
            (DataType::Int64, false),
            (DataType::Utf8, false),
            (DataType::Int64, true),
            (DataType::Utf8, true),
        ] {
            let keys = if has_keys { vec![(0, 0)] } else { Vec::new() };
            let nearest = Nearest::of(Operator::GtEq, keys, (1, 1), true).unwrap();
            let schema = Arc::new(Schema::new(vec![
                Field::new("k", DataType::Utf8, true),
                Field::new("m", kind, true),
            ]));
            let reservation = MemoryConsumer::new("test").register(&pool);
            let builder = Builder::try_new(Arc::clone(&schema), &nearest, reservation).unwrap();
            let parts: [&[i64]; 4] = [&[10, 30], &[], &[20], &[40, 25]];
            let batches: Vec<RecordBatch> = parts.iter().map(|part| rows(&schema, part)).collect();
            let mut counter = RecordBatchMemoryCounter::new();
            let known = batches.iter().map(|batch| {
                counter.count_batch(batch);
                let mut known = Known::try_new(builder.looking().clone()).unwrap();
                assert!(known.push(batch).unwrap());
                known.by_group()
            });
            let known = known.collect();
            let left = (schema.as_ref(), &nearest, 2);
            let all = builder.finish_for_all((batches, known), left, &counter);
            let Ok(kept) = all.await.unwrap() else {
                panic!("there is room for it")
            };
            assert!(pool.reserved() > 0);
            let wanted = match has_keys {
                false => [20, 40, 10, 25, 30].map(Some),
                // Those of `x` are 10, 20 and 40, those of `y` are 30 and 25.
                true => [Some(20), Some(30), Some(10), Some(25), Some(20)],
            };
            for _ in 0..2 {
                assert_eq!(found(&kept, &schema, &[22, 99, 10, 29, 31]), wanted);
            }
            drop(kept);
            assert_eq!(pool.reserved(), 0);
        }
    }
}
