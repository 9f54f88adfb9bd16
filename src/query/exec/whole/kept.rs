//! The rows of a partition until all have come.
//!
//! Comes in: batches. Goes out: the same again. What has no room in memory is written to a file. Never here: what is looked at in them.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SpillFile, TaskContext};
use datafusion::physical_plan::SpillManager;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use crate::grid::slice_bytes;

/// The rows of all partitions take at most this part of the memory limit, so that what is known of them has room.
const PART: usize = 2;

/// Appends a batch to a file, or says which file it was, if it has any. (The engine has no public name for this.)
type Writer = Box<dyn FnMut(Option<&RecordBatch>) -> Result<Option<Arc<dyn SpillFile>>> + Send>;

/// The rows so far.
pub(super) struct Kept {
    batches: Vec<RecordBatch>,
    /// The most bytes of rows that are kept in memory.
    most: usize,
    rows: MemoryReservation,
    /// What is known of all rows, which can be nowhere else.
    known: MemoryReservation,
    files: SpillManager,
    /// Of what follows those in memory.
    file: Option<Writer>,
}

impl Kept {
    pub(super) fn new(files: SpillManager, context: &Arc<TaskContext>, partitions: usize) -> Self {
        let name = "WholeWindowAggExec";
        let pool = context.memory_pool();
        let rows = MemoryConsumer::new(name).with_can_spill(true);
        let most = match pool.memory_limit() {
            MemoryLimit::Finite(limit) => limit / PART / partitions.max(1),
            _ => usize::MAX,
        };
        Self {
            most,
            batches: Vec::new(),
            rows: rows.register(pool),
            known: MemoryConsumer::new(name).register(pool),
            files,
            file: None,
        }
    }

    /// Keeps a batch; `bytes` is what all that is known of the rows so far takes. Whether there is room for that.
    ///
    /// # Errors
    /// What writing says.
    pub(super) fn push(&mut self, batch: RecordBatch, bytes: usize) -> Result<bool> {
        if batch.num_rows() > 0 {
            self.keep(batch)?;
        }
        if self.known.try_resize(bytes).is_ok() {
            return Ok(true);
        }
        self.write_all()?;
        Ok(self.known.try_resize(bytes).is_ok())
    }

    fn keep(&mut self, batch: RecordBatch) -> Result<()> {
        let bytes = usize::try_from(slice_bytes(&batch)).unwrap_or(usize::MAX);
        let has_room = self.rows.size().saturating_add(bytes) <= self.most;
        if self.file.is_none() && has_room && self.rows.try_grow(bytes).is_ok() {
            self.batches.push(batch);
            return Ok(());
        }
        self.write(&batch)
    }

    /// Nothing is known of the rows any more.
    pub(super) fn forget(&mut self) {
        self.known.free();
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let write = match &mut self.file {
            Some(write) => write,
            none => none.insert(writer(&self.files)?),
        };
        write(Some(batch)).map(|_| ())
    }

    /// Writes those in memory, too, if none were written before them.
    fn write_all(&mut self) -> Result<()> {
        if self.file.is_none() {
            for batch in std::mem::take(&mut self.batches) {
                self.write(&batch)?;
            }
            self.rows.free();
        }
        Ok(())
    }

    /// All rows, as they came.
    ///
    /// # Errors
    /// What the file says.
    pub(super) fn batches(self) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let written = match self
            .file
            .map(|mut write| write(None))
            .transpose()?
            .flatten()
        {
            None => stream::empty().boxed(),
            Some(file) => self.files.read_spill_as_stream(file, None)?.boxed(),
        };
        let (rows, known) = (self.rows, self.known);
        let kept = stream::iter(self.batches).map(move |batch| {
            let bytes = usize::try_from(slice_bytes(&batch)).unwrap_or(usize::MAX);
            rows.shrink(bytes.min(rows.size()));
            Ok(batch)
        });
        // What is known is asked for until the last row.
        let batches = kept.chain(written).map(move |batch| {
            let _counted = &known;
            batch
        });
        Ok(batches.boxed())
    }
}

fn writer(files: &SpillManager) -> Result<Writer> {
    let mut file = files.create_in_progress_file("WholeWindowAggExec")?;
    Ok(Box::new(move |batch| match batch {
        Some(batch) => file.append_batch(batch).map(|_| None),
        None => file.finish(),
    }))
}
