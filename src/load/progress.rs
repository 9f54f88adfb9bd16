//! How far a load is.
//!
//! Comes in: counts, from whatever thread makes them. Goes out: a [`Progress`] at any moment. Never here: bars, text.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How far a load is. Totals are 0 until the files are listed and their footers read.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files whose footer is read.
    pub num_files: u64,
    /// Files that were found.
    pub total_files: u64,
    /// Tiles that are finished.
    pub num_tiles: u64,
    /// Tiles of the grid to be.
    pub total_tiles: u64,
    /// Rows of finished tiles.
    pub num_rows: u64,
    /// Rows of all tiles, before `filters`.
    pub total_rows: u64,
    /// Bytes of the files that were decoded, as they lie in the files.
    pub num_bytes: u64,
    /// Bytes of the files that will be decoded.
    pub total_bytes: u64,
    /// Bytes of memory that finished tiles hold, or of the files that they were spilled to.
    pub tile_bytes: u64,
    /// Tiles that were spilled to files.
    pub spilled_tiles: u64,
    /// Tiles that an earlier load had finished.
    pub resumed_tiles: u64,
    /// Rows that lie in the wanted order, after all were read.
    pub arranged_rows: u64,
    /// Rows that are being sorted or partitioned; 0 while they are read, and without such a wish.
    pub rows_to_arrange: u64,
    /// Since the load began; of one that has ended, until it did.
    pub elapsed: Duration,
}

impl Progress {
    /// Bytes of the files that were decoded in a second, on average since the start.
    #[must_use]
    pub fn bytes_per_second(&self) -> u64 {
        let milliseconds = u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX);
        let scaled = self.num_bytes.saturating_mul(1_000);
        scaled.checked_div(milliseconds).unwrap_or(0)
    }

    /// Whether all rows are read, and are now sorted or partitioned.
    #[must_use]
    pub fn is_arranging(&self) -> bool {
        self.arranged_rows < self.rows_to_arrange
    }

    /// How long the rest will take at the rate so far; `None` before the first bytes, and while rows are sorted or partitioned.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        if self.is_arranging() {
            return None;
        }
        let left = self.total_bytes.saturating_sub(self.num_bytes);
        let milliseconds = left
            .saturating_mul(1_000)
            .checked_div(self.bytes_per_second())?;
        Some(Duration::from_millis(milliseconds))
    }
}

/// The counters of one load.
#[derive(Debug)]
pub(super) struct Counters {
    started: Instant,
    /// How long it took, once it has ended.
    took: OnceLock<Duration>,
    pub(super) num_files: Counter,
    pub(super) total_files: Counter,
    pub(super) num_tiles: Counter,
    pub(super) total_tiles: Counter,
    pub(super) num_rows: Counter,
    pub(super) total_rows: Counter,
    pub(super) num_bytes: Counter,
    pub(super) total_bytes: Counter,
    pub(super) tile_bytes: Counter,
    pub(super) spilled_tiles: Counter,
    pub(super) resumed_tiles: Counter,
    pub(super) arranged_rows: Counter,
    pub(super) rows_to_arrange: Counter,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) {
        // Numbers for people: no other memory depends on them.
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            took: OnceLock::new(),
            num_files: Counter::default(),
            total_files: Counter::default(),
            num_tiles: Counter::default(),
            total_tiles: Counter::default(),
            num_rows: Counter::default(),
            total_rows: Counter::default(),
            num_bytes: Counter::default(),
            total_bytes: Counter::default(),
            tile_bytes: Counter::default(),
            spilled_tiles: Counter::default(),
            resumed_tiles: Counter::default(),
            arranged_rows: Counter::default(),
            rows_to_arrange: Counter::default(),
        }
    }

    /// The load has ended.
    pub(super) fn end(&self) {
        self.took.get_or_init(|| self.started.elapsed());
    }

    pub(super) fn snapshot(&self) -> Progress {
        Progress {
            num_files: self.num_files.get(),
            total_files: self.total_files.get(),
            num_tiles: self.num_tiles.get(),
            total_tiles: self.total_tiles.get(),
            num_rows: self.num_rows.get(),
            total_rows: self.total_rows.get(),
            num_bytes: self.num_bytes.get(),
            total_bytes: self.total_bytes.get(),
            tile_bytes: self.tile_bytes.get(),
            spilled_tiles: self.spilled_tiles.get(),
            resumed_tiles: self.resumed_tiles.get(),
            arranged_rows: self.arranged_rows.get(),
            rows_to_arrange: self.rows_to_arrange.get(),
            elapsed: self
                .took
                .get()
                .copied()
                .unwrap_or_else(|| self.started.elapsed()),
        }
    }
}
