//! Where finished tiles stay: in memory while there is room, else in files.
//!
//! Comes in: the batch of a tile with the leave to hold it. Goes out: the tile. Never here: which rows and columns it has.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;

use super::budget::{Budget, Reservation};
use super::error::blocking;
use super::layout::{Plan, ReadTask};
use super::options::LoadOptions;
use super::progress::Counters;
use super::spill::spill;
use crate::error::Result;
use crate::grid::{ColumnStatistics, Tile, column_statistics, held_bytes};

/// For how many tiles in the making the memory limit leaves room.
const TILES_AT_WORK: u64 = 8;

/// Keeps the tiles of one load.
#[derive(Debug)]
pub(super) struct Keeper {
    budget: Arc<Budget>,
    spill_to: Option<PathBuf>,
    counters: Arc<Counters>,
    /// What the tiles in memory use.
    held: Vec<Reservation>,
    held_bytes: u64,
    /// How much tiles may use before they are spilled.
    room_bytes: u64,
}

impl Keeper {
    pub(super) fn new(plan: &Plan, options: &LoadOptions, counters: &Arc<Counters>) -> Self {
        let budget = Arc::new(Budget::new(options.memory_limit_bytes()));
        Self {
            room_bytes: room_bytes(plan, budget.limit_bytes()),
            budget,
            spill_to: options.spill_to().map(PathBuf::from),
            counters: Arc::clone(counters),
            held: Vec::new(),
            held_bytes: 0,
        }
    }

    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A tile in memory while there is room besides the work, else in a file if there may be one.
    pub(super) async fn keep(
        &mut self,
        batch: RecordBatch,
        reservations: Vec<Reservation>,
    ) -> Result<Tile> {
        let bytes = held_bytes(&batch);
        let full = self.held_bytes + bytes > self.room_bytes;
        let Some(folder) = self.spill_to.clone().filter(|_| full) else {
            self.held_bytes += bytes;
            self.held.extend(reservations);
            return Tile::try_from_batch(&batch);
        };
        self.counters.spilled_tiles.add(1);
        blocking(move || {
            // Nobody wants to read the file back for them.
            let statistics: Vec<ColumnStatistics> =
                batch.columns().iter().map(column_statistics).collect();
            let spilled = spill(&batch, &folder)?;
            drop((batch, reservations));
            let statistics = statistics.into_iter().map(Some);
            Ok(Tile::with_statistics(Arc::new(spilled), statistics))
        })
        .await
    }

    /// Hands out what the tiles so far use, since other tiles take their place; they still count until this is dropped.
    pub(super) fn replaced(&mut self) -> Vec<Reservation> {
        std::mem::take(&mut self.held)
    }
}

/// The limit without what is needed for tiles in the making.
fn room_bytes(plan: &Plan, limit_bytes: u64) -> u64 {
    let width = plan.columns.schema.fields().len();
    let bytes_of = |task: &ReadTask| {
        let columns = (0..width).map(|column| plan.sizes(task, column).decoded_bytes);
        columns.fold(0, u64::saturating_add)
    };
    let largest = plan.tasks.iter().map(bytes_of).max().unwrap_or(0);
    limit_bytes - largest.saturating_mul(TILES_AT_WORK).min(limit_bytes / 2)
}
