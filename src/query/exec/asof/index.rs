//! An index of the right side: its rows by their keys, and among those by what is compared.
//!
//! Comes in: the batches of the right side, in any order, and then those of the left one. Goes out: for each row of the left side the nearest one of the right. Never here: what is done where there is no room for it; the search (`sorted.rs`).

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryReservation;

use super::Nearest;
use super::columns::{Columns, nulls_of};
use super::compared::{Compared, Comparing};
use super::groups::Groups;
use super::joined::Found;
use super::sorted::Sorted;

/// Batches are put together until they have so many bytes.
const CHUNK_BYTES: usize = 64 << 20;

/// So many rows of those that were read are handed on at once.
const USUAL_ROWS: usize = 8_192;

/// What a row takes while an index is made, beside its values and what is compared: its number of keys, its place, and both again while they are sorted.
const BYTES_OF_ROW: usize = 32;

/// What is known of the right side so far.
pub(super) struct Builder {
    columns: Columns,
    comparing: Comparing,
    /// `None` without keys: all rows are near to all.
    groups: Option<Groups>,
    group_of_row: Vec<u32>,
    compared: Compared,
    num_rows: u32,
    schema: SchemaRef,
    /// Whether values are run-end encoded, somewhere.
    has_runs: bool,
    chunks: Vec<RecordBatch>,
    chunk_bytes: usize,
    /// Those that are not put together yet.
    batches: Vec<RecordBatch>,
    counter: RecordBatchMemoryCounter,
    reservation: MemoryReservation,
}

impl Builder {
    pub(super) fn try_new(
        schema: SchemaRef,
        nearest: &Nearest,
        reservation: MemoryReservation,
    ) -> Result<Self> {
        let columns = Columns::of(&schema, nearest, super::right);
        let (kind, options) = columns.compared()?;
        let comparing = Comparing::try_new(&kind, options)?;
        Ok(Self {
            groups: match nearest.equal.is_empty() {
                true => None,
                false => Some(Groups::try_new(columns.of_keys())?),
            },
            compared: comparing.none(),
            comparing,
            columns,
            group_of_row: Vec::new(),
            num_rows: 0,
            has_runs: schema
                .fields()
                .iter()
                .any(|field| has_runs(field.data_type())),
            schema,
            chunks: Vec::new(),
            chunk_bytes: 0,
            batches: Vec::new(),
            counter: RecordBatchMemoryCounter::new(),
            reservation,
        })
    }

    /// Takes the rows of a batch. Whether there is room for them; they are among those that [`Self::into_batches`] gives in any case.
    pub(super) fn push(&mut self, batch: RecordBatch) -> Result<bool> {
        let batch = self.columns.without_nulls(batch)?;
        if batch.num_rows() == 0 {
            return Ok(true);
        }
        let values = self.columns.values(&batch)?;
        let has_room = match u32::try_from(batch.num_rows()) {
            Ok(added) => self.num_rows.checked_add(added),
            Err(_) => None,
        };
        self.counter.count_batch(&batch);
        self.batches.push(batch);
        let (Some(num_rows), Some((last, keys))) = (has_room, values.split_last()) else {
            return Ok(false);
        };
        self.num_rows = num_rows;
        self.comparing.append(last, &mut self.compared)?;
        if let Some(groups) = &mut self.groups {
            let numbers = groups.numbers(keys)?.iter();
            // There are no more of them than rows.
            let numbers = numbers.map(|number| u32::try_from(*number).unwrap_or(u32::MAX));
            self.group_of_row.extend(numbers);
        }
        let size = self.size();
        match self.reservation.try_resize(size) {
            Ok(()) if self.counter.memory_usage() >= CHUNK_BYTES => self.put_together(),
            Ok(()) => Ok(true),
            Err(error) => is_no_room(error),
        }
    }

    fn size(&self) -> usize {
        let groups = self.groups.as_ref().map_or(0, Groups::size);
        let rows = (self.num_rows as usize).saturating_mul(BYTES_OF_ROW);
        let batches = self.chunk_bytes + self.counter.memory_usage();
        batches + self.compared.size() + groups + rows
    }

    /// Makes one batch of those that came last. Whether there is room for both.
    fn put_together(&mut self) -> Result<bool> {
        let bytes = self.counter.memory_usage();
        if self.has_runs {
            // Ends of runs count rows, of which many batches may have more than their type.
            self.chunks.append(&mut self.batches);
            self.counter = RecordBatchMemoryCounter::new();
            self.chunk_bytes += bytes;
            return Ok(true);
        }
        if let Err(error) = self.reservation.try_grow(bytes) {
            return is_no_room(error);
        }
        let chunk = concat_batches(&self.schema, &self.batches)?;
        self.batches.clear();
        self.counter = RecordBatchMemoryCounter::new();
        self.chunk_bytes += RecordBatchMemoryCounter::new().count_batch(&chunk);
        self.chunks.push(chunk);
        let size = self.size();
        self.reservation.resize(size);
        Ok(true)
    }

    /// All rows that may be near to something, in batches of usual size, and what is reserved for them.
    pub(super) fn into_batches(self) -> (Vec<RecordBatch>, MemoryReservation) {
        let Self {
            mut chunks,
            batches,
            reservation,
            ..
        } = self;
        chunks.extend(batches);
        let mut counter = RecordBatchMemoryCounter::new();
        chunks.iter().for_each(|chunk| {
            counter.count_batch(chunk);
        });
        reservation.resize(counter.memory_usage());
        let slices = chunks.iter().flat_map(|chunk| {
            let begins = (0..chunk.num_rows()).step_by(USUAL_ROWS);
            begins.map(|begin| chunk.slice(begin, USUAL_ROWS.min(chunk.num_rows() - begin)))
        });
        (slices.collect(), reservation)
    }

    /// The index, or the rows if there is no room for it.
    pub(super) fn finish(
        mut self,
        left: &Schema,
        nearest: &Nearest,
    ) -> Result<Result<Index, Self>> {
        if !self.batches.is_empty() && !self.put_together()? {
            return Ok(Err(self));
        }
        let num_groups = self.groups.as_ref().map_or(1, Groups::len);
        let sorted = Sorted::of(&self.group_of_row, self.num_rows, num_groups, self.compared);
        let mut index = Index {
            columns: Columns::of(left, nearest, super::left),
            is_other: nearest.is_other,
            comparing: self.comparing,
            groups: self.groups,
            hints: sorted.starts.clone(),
            sorted,
            begins: begins(&self.chunks),
            chunks: self.chunks,
            own_bytes: self.chunk_bytes,
            reservation: self.reservation,
        };
        index.own_bytes += index.sorted.size() + index.hints.capacity() * size_of::<u32>();
        index.count();
        Ok(Ok(index))
    }
}

fn has_runs(kind: &DataType) -> bool {
    match kind {
        DataType::RunEndEncoded(..) => true,
        DataType::Dictionary(_, values) => has_runs(values),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => has_runs(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_runs(field.data_type())),
        DataType::Union(fields, _) => fields.iter().any(|(_, field)| has_runs(field.data_type())),
        _ => false,
    }
}

/// Whether it is only that there is no room.
fn is_no_room(error: DataFusionError) -> Result<bool> {
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => Ok(false),
        _ => Err(error),
    }
}

/// The first row of each batch.
fn begins(batches: &[RecordBatch]) -> Vec<usize> {
    let mut next = 0;
    let begins = batches.iter().map(|batch| {
        let first = next;
        next += batch.num_rows();
        first
    });
    begins.collect()
}

/// The right side, by keys and what is compared.
pub(super) struct Index {
    /// Of the left side.
    columns: Columns,
    is_other: bool,
    comparing: Comparing,
    groups: Option<Groups>,
    sorted: Sorted,
    /// Where the last search among the rows of each number of keys ended.
    hints: Vec<u32>,
    chunks: Vec<RecordBatch>,
    /// The first row of each.
    begins: Vec<usize>,
    /// Bytes without those of the keys.
    own_bytes: usize,
    reservation: MemoryReservation,
}

impl Index {
    pub(super) fn num_rows(&self) -> usize {
        self.sorted.rows.len()
    }

    /// How many bytes are reserved.
    pub(super) fn size(&self) -> usize {
        self.reservation.size()
    }

    /// The right side, whose batches are counted from one in what is found.
    pub(super) fn batches(&self) -> Vec<&RecordBatch> {
        self.chunks.iter().collect()
    }

    /// The number of keys of the right side.
    fn num_groups(&self) -> usize {
        self.sorted.starts.len().saturating_sub(1)
    }

    /// What is nearest to the rows of a batch of the left side.
    pub(super) fn find(&mut self, batch: &RecordBatch) -> Result<Vec<Found>> {
        let values = self.columns.values(batch)?;
        let nulls = nulls_of(&values);
        let Some((last, keys)) = values.split_last() else {
            return Ok(Vec::new());
        };
        let mut bounds = self.comparing.none();
        self.comparing.append(last, &mut bounds)?;
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
        let (sorted, hints) = (&self.sorted, &mut self.hints);
        Ok(match &mut self.groups {
            None => {
                let groups = (0..num_rows).map(|row| has_all(row).then_some(0));
                sorted.nearest(bounds, groups, hints, self.is_other)
            }
            Some(groups) => {
                let numbers = groups.numbers(keys)?.iter().enumerate();
                let groups = numbers.map(|(row, number)| has_all(row).then_some(*number));
                sorted.nearest(bounds, groups, hints, self.is_other)
            }
        })
    }

    /// In which batch a row is, and where.
    fn place(&self, row: usize) -> Found {
        let batch = self.begins.partition_point(|first| *first <= row);
        let first = self.begins.get(batch.saturating_sub(1)).copied();
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
        let size = self.own_bytes + groups.size();
        let has_no_room = self.reservation.try_resize(size).is_err();
        if groups.has_many_others(num_groups) || has_no_room && groups.has_some_others(num_groups) {
            groups.forget_others(num_groups)?;
        }
        self.count();
        Ok(())
    }

    fn count(&mut self) {
        let groups = self.groups.as_ref().map_or(0, Groups::size);
        self.reservation.resize(self.own_bytes + groups);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array, StringArray};
    use arrow::datatypes::{Field, Int64Type};
    use datafusion::execution::memory_pool::{
        GreedyMemoryPool, MemoryConsumer, MemoryPool, UnboundedMemoryPool,
    };
    use datafusion::logical_expr::Operator;

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
}
