//! What an answer that is kept whole holds in memory.
//!
//! Comes in: batches as they are found, the names of the session. Goes out: an error once they hold more than the query may use. The buffers of registered grids do not count: they
//! are there already. Never here: batches.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayData, RecordBatch};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

use crate::error::Result;
use crate::query::names::{Names, Table};

/// Counts the buffers of the batches of one answer.
pub(super) struct Kept {
    names: Names,
    reservation: MemoryReservation,
    /// Address of a buffer -> its bytes, 0 for those of grids.
    buffers: HashMap<usize, usize>,
    knows_grids: bool,
}

impl fmt::Debug for Kept {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reservation.fmt(formatter)
    }
}

impl Kept {
    pub(super) fn new(names: Names, pool: &Arc<dyn MemoryPool>) -> Self {
        Self {
            names,
            reservation: MemoryConsumer::new("the answer").register(pool),
            buffers: HashMap::new(),
            knows_grids: false,
        }
    }

    /// Takes a batch into account.
    ///
    /// # Errors
    /// `ResourcesExhausted` when there is no room for it.
    pub(super) fn count(&mut self, batch: &RecordBatch) -> Result<()> {
        let added = self.add(batch);
        let refused = match self.reservation.try_grow(added) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if self.knows_grids {
            return Err(refused.into());
        }
        // Most answers never come here, and then nobody goes through all tiles.
        self.knows_grids = true;
        self.leave_out_grids();
        let bytes: usize = self.buffers.values().sum();
        Ok(self.reservation.try_resize(bytes)?)
    }

    fn add(&mut self, batch: &RecordBatch) -> usize {
        let columns = batch.columns().iter();
        columns
            .map(|column| add(&column.to_data(), &mut self.buffers))
            .sum()
    }

    fn leave_out_grids(&mut self) {
        let known = self.names.now();
        for table in known.tables.values() {
            let Table::Grid(table) = table else { continue };
            let here = table
                .grid()
                .tiles()
                .iter()
                .filter(|tile| !tile.data().is_lazy());
            for batch in here.filter_map(|tile| tile.open().ok()) {
                for column in batch.columns() {
                    leave_out(&column.to_data(), &mut self.buffers);
                }
            }
        }
    }
}

fn buffers(data: &ArrayData) -> impl Iterator<Item = (usize, usize)> + '_ {
    let validity = data.nulls().map(arrow::buffer::NullBuffer::buffer);
    let all = data.buffers().iter().chain(validity);
    all.map(|buffer| (buffer.data_ptr().addr().get(), buffer.capacity()))
}

fn add(data: &ArrayData, known: &mut HashMap<usize, usize>) -> usize {
    let mut added = 0;
    for (address, bytes) in buffers(data) {
        known.entry(address).or_insert_with(|| {
            added += bytes;
            bytes
        });
    }
    added
        + data
            .child_data()
            .iter()
            .map(|child| add(child, known))
            .sum::<usize>()
}

fn leave_out(data: &ArrayData, known: &mut HashMap<usize, usize>) {
    for (address, _) in buffers(data) {
        known.insert(address, 0);
    }
    for child in data.child_data() {
        leave_out(child, known);
    }
}
