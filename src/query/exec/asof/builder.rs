//! What the index of the right side is made of.
//!
//! Comes in: the batches of the right side, of one part of it or of all, in any order. Goes out: the index, or the rows where there is no room for it. Never here: searches (`index.rs`).

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::internal_err;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryReservation;

use super::Nearest;
use super::chunks::Chunks;
use super::columns::Columns;
use super::index::{Index, Kept};
use super::known::{Grouped, Known, Looking};
use super::sorted::Sorted;
use super::unsorted::Unsorted;
use crate::query::exec::groups::Groups;

/// Batches are put together until they have so many bytes.
pub(super) const CHUNK_BYTES: usize = 64 << 20;

/// So many rows of those that were read are handed on at once.
pub(super) const USUAL_ROWS: usize = 8_192;

/// What a row takes while an index is made, beside its values and what is compared: its number of keys, its place, and both again while they are sorted.
pub(super) const BYTES_OF_ROW: usize = 32;

/// What is known of the right side so far.
pub(super) struct Builder {
    looking: Looking,
    known: Known,
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
        let looking = Looking::try_new(columns, !nearest.equal.is_empty())?;
        Ok(Self {
            known: Known::try_new(looking.clone())?,
            looking,
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

    pub(super) fn looking(&self) -> &Looking {
        &self.looking
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
        let batch = self.looking.columns.without_nulls(batch)?;
        if batch.num_rows() == 0 {
            return Ok(true);
        }
        self.counter.count_batch(&batch);
        let has_room = self.known.push(&batch)?;
        self.batches.push(batch);
        if !has_room {
            return Ok(false);
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
        let rows = (self.known.num_rows() as usize).saturating_mul(BYTES_OF_ROW);
        let batches = self.chunk_bytes + self.counter.memory_usage();
        batches + self.known.size() + rows
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
        let (parts, groups) = Grouped::all(vec![self.known.by_group()])?;
        let num_groups = groups.as_ref().map_or(1, Groups::len);
        let chunks = Chunks::of(self.chunks);
        let kept = Kept {
            columns: Columns::of(left, nearest, super::left),
            is_other: nearest.is_other,
            comparing: self.looking.comparing,
            sorted: Unsorted::of(parts, num_groups).alone(),
            own_bytes: self.chunk_bytes + chunks.own_size(),
            chunks,
            keys: None,
            reservation: self.reservation,
        };
        Ok(Ok(Index::alone(kept, groups)))
    }

    /// What all partitions of the left side will have: of all rows, which were counted while they were read, and what is known of them in parts. The rows come back where there is no room for what so many partitions look keys up in.
    pub(super) async fn finish_for_all(
        self,
        (batches, parts): (Vec<RecordBatch>, Vec<Grouped>),
        left: (&Schema, &Nearest, usize),
        counter: &RecordBatchMemoryCounter,
    ) -> Result<Result<Arc<Kept>, Self>> {
        let (left, nearest, num_partitions) = left;
        let rows = parts.iter().map(|known| u64::from(known.part.num_rows));
        if rows.sum::<u64>() >= u64::from(u32::MAX) {
            return Ok(Err(self.of_rows(batches)));
        }
        let (parts, groups) = Grouped::all(parts)?;
        let num_groups = groups.as_ref().map_or(1, Groups::len);
        // Each partition has all keys, and where it searched last among the rows of each.
        let hints = num_groups.saturating_mul(size_of::<u32>());
        let of_partition = groups.as_ref().map_or(0, Groups::size) + hints;
        let for_all = of_partition.saturating_mul(num_partitions + 1);
        if let Err(error) = self.reservation.try_grow(for_all) {
            is_no_room(error)?;
            return Ok(Err(self.of_rows(batches)));
        }
        let sorted = sorted(Unsorted::of(parts, num_groups), num_partitions).await?;
        let chunks = Chunks::of(batches);
        let keys = groups.map(|groups| {
            let schema = Arc::clone(groups.schema());
            Ok::<_, DataFusionError>((schema, groups.into_keys()?))
        });
        let kept = Kept {
            columns: Columns::of(left, nearest, super::left),
            is_other: nearest.is_other,
            comparing: self.looking.comparing,
            sorted,
            own_bytes: counter.memory_usage() + chunks.own_size() + for_all,
            chunks,
            keys: keys.transpose()?,
            reservation: self.reservation,
        };
        kept.count();
        Ok(Ok(Arc::new(kept)))
    }
}

/// Few rows are sorted by one.
const FEW_ROWS: usize = 65_536;

/// Rows in order, by so many at the same time.
async fn sorted(unsorted: Unsorted, count: usize) -> Result<Sorted> {
    let cuts = unsorted.cuts(count);
    if cuts.len() <= 1 || unsorted.num_rows() < FEW_ROWS {
        return Ok(unsorted.alone());
    }
    let unsorted = Arc::new(unsorted);
    let tasks = cuts.into_iter().map(|groups| {
        let unsorted = Arc::clone(&unsorted);
        SpawnedTask::spawn(async move { unsorted.shard(groups) })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut shards = Vec::with_capacity(tasks.len());
    for task in tasks {
        match task.join().await {
            Ok(shard) => shards.push(shard),
            Err(error) => return internal_err!("a part of a nearest join ended: {error}"),
        }
    }
    Ok(unsorted.with(shards))
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
