//! What the index of the right side is made of.
//!
//! Comes in: the batches of the right side, of one part of it or of all, in any order. Goes out: the index, or the rows where there is no room for it. Never here: searches (`index.rs`).

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryReservation;

use super::Nearest;
use super::columns::Columns;
use super::compared::{Compared, Comparing};
use super::groups::Groups;
use super::index::{Index, Kept};
use super::sorted::Sorted;

/// Batches are put together until they have so many bytes.
pub(super) const CHUNK_BYTES: usize = 64 << 20;

/// So many rows of those that were read are handed on at once.
pub(super) const USUAL_ROWS: usize = 8_192;

/// What a row takes while an index is made, beside its values and what is compared: its number of keys, its place, and both again while they are sorted.
pub(super) const BYTES_OF_ROW: usize = 32;

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

    /// Whether batches may become one.
    pub(super) fn may_be_put_together(&self) -> bool {
        !self.has_runs
    }

    pub(super) fn reservation(&self) -> &MemoryReservation {
        &self.reservation
    }

    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
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

    /// Puts together what is left once all rows have come. Whether there is room for it.
    pub(super) fn end(&mut self) -> Result<bool> {
        match self.batches.is_empty() {
            true => Ok(true),
            false => self.put_together(),
        }
    }

    fn size(&self) -> usize {
        let groups = self.groups.as_ref().map_or(0, Groups::size);
        let rows = (self.num_rows as usize).saturating_mul(BYTES_OF_ROW);
        let batches = self.chunk_bytes + self.counter.memory_usage();
        batches + self.compared.size() + groups + rows
    }

    /// Makes one batch of those that came last. Whether there is room for both.
    pub(super) fn put_together(&mut self) -> Result<bool> {
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

    /// Of all rows, which were counted while they were read; they have no keys. Back come the rows, if there is no room for what is compared.
    pub(super) fn of_counted(
        self,
        batches: Vec<RecordBatch>,
        counter: RecordBatchMemoryCounter,
    ) -> Result<Result<Self, Self>> {
        let mut all = Self {
            counter,
            batches,
            ..self
        };
        for place in 0..all.batches.len() {
            let Some(batch) = all.batches.get(place) else {
                break;
            };
            let added = u32::try_from(batch.num_rows()).ok();
            let values = all.columns.values(batch)?;
            let num_rows = added.and_then(|added| all.num_rows.checked_add(added));
            let (Some(num_rows), Some(last)) = (num_rows, values.last()) else {
                return Ok(Err(all));
            };
            all.comparing.append(last, &mut all.compared)?;
            all.num_rows = num_rows;
            let has_room = match all.reservation.try_resize(all.size()) {
                Ok(()) => true,
                Err(error) => is_no_room(error)?,
            };
            if !has_room {
                return Ok(Err(all));
            }
        }
        all.chunk_bytes += all.counter.memory_usage();
        all.counter = RecordBatchMemoryCounter::new();
        all.chunks.append(&mut all.batches);
        Ok(Ok(all))
    }

    /// With rows that nothing is known of, for [`Self::into_batches`].
    pub(super) fn of_rows(self, batches: Vec<RecordBatch>) -> Self {
        Self { batches, ..self }
    }

    /// The index, or the rows if there is no room for it.
    pub(super) fn finish(
        mut self,
        left: &Schema,
        nearest: &Nearest,
    ) -> Result<Result<Index, Self>> {
        if !self.end()? {
            return Ok(Err(self));
        }
        let num_groups = self.groups.as_ref().map_or(1, Groups::len);
        let sorted = Sorted::of(&self.group_of_row, self.num_rows, num_groups, self.compared);
        let hints = sorted.starts.clone();
        let kept = Kept {
            columns: Columns::of(left, nearest, super::left),
            is_other: nearest.is_other,
            comparing: self.comparing,
            own_bytes: self.chunk_bytes + sorted.size() + hints.capacity() * size_of::<u32>(),
            sorted,
            begins: begins(&self.chunks),
            chunks: self.chunks,
            reservation: self.reservation,
        };
        Ok(Ok(Index::of(Arc::new(kept), self.groups, hints)))
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
pub(super) fn is_no_room(error: DataFusionError) -> Result<bool> {
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => Ok(false),
        _ => Err(error),
    }
}
