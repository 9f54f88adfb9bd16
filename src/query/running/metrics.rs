//! What a run of a query did.
//!
//! Comes in: the plan that ran, with its counters. Goes out: numbers for people: time, rows, tiles and bytes by how near they are, what was skipped, copied and spilled. Never here:
//! counting.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{MetricValue, MetricsSet};

use super::bounds::size;
use crate::grid::picture::counted;
use crate::location::Locality;
use crate::query::exec::scan::GridScanExec;

/// What a run of a query did so far, or until it ended: a picture of one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueryMetrics {
    /// Whether the run has ended: all rows were read, it failed, or nobody reads on.
    pub is_done: bool,
    /// Since somebody asked for the rows, until the run ended. Planning is not part of it.
    pub elapsed: Duration,
    /// The part of it in which the run waited for its turn among other queries.
    pub waited: Duration,
    /// Rows that came out.
    pub num_rows: u64,
    /// Batches that came out.
    pub num_batches: u64,
    /// The tiles of all scans of grids by how near they are, nearest first; only localities that the grids have.
    pub groups: Vec<LocalityMetrics>,
    /// Rows that the scans looked at.
    pub read_rows: u64,
    /// Tiles that were kept when the query was planned, and left unread for what joins and sorts learned while it ran (dynamic filters).
    pub skipped_tiles: u64,
    /// Runs of rows (morsels) that were left unread for the same reason.
    pub skipped_morsels: u64,
    /// Rows in them.
    pub skipped_rows: u64,
    /// Rows that were read and taken away by dynamic filters before any operator saw them.
    pub filtered_rows: u64,
    /// Bytes of the rows that passed conditions and were put together into new batches; of texts that views point to, the views.
    pub gathered_bytes: u64,
    /// Bytes that operators wrote to files, since the memory limit left no room.
    pub spilled_bytes: u64,
    /// Files that they wrote.
    pub spilled_files: u64,
    /// The most bytes that the run used of its memory limit at once. Tiles do not count.
    pub peak_memory_bytes: u64,
    /// What the scans of each process did, of a statement over grids of several processes; else nothing. `groups` has none of it.
    pub processes: Vec<ProcessMetrics>,
    /// The operators of the plan, each before those it reads from.
    pub operators: Vec<OperatorMetrics>,
}

/// With what the engine says which process counted a number.
pub(crate) const PROCESS: &str = "process";

/// What the scans of one process did in a statement over grids of several.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessMetrics {
    /// The id of the process.
    pub process: u64,
    /// The tiles that it read, by how near they are to it; only localities of which it had tiles. Of tiles that were not read nothing is known here.
    pub groups: Vec<LocalityMetrics>,
}

impl ProcessMetrics {
    fn of(process: u64) -> Self {
        let groups = Vec::new();
        Self { process, groups }
    }

    fn group(&mut self, locality: Locality) -> &mut LocalityMetrics {
        let place = self
            .groups
            .iter()
            .position(|known| known.locality == locality);
        let place = place.unwrap_or_else(|| {
            self.groups.push(LocalityMetrics::of(locality));
            self.groups.len() - 1
        });
        #[expect(
            clippy::indexing_slicing,
            reason = "it was found, or has just been added"
        )]
        &mut self.groups[place]
    }
}

/// What one operator did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperatorMetrics {
    /// How many operators are above it.
    pub depth: usize,
    /// As in EXPLAIN.
    pub name: String,
    /// Rows that it gave, if it counts them.
    pub num_rows: Option<u64>,
    /// Time in which it worked, all threads together, if it takes it.
    pub compute: Option<Duration>,
    /// Bytes that it wrote to files.
    pub spilled_bytes: u64,
}

impl QueryMetrics {
    fn sum(&self, of: impl Fn(&LocalityMetrics) -> u64) -> u64 {
        self.groups.iter().map(of).sum()
    }

    /// Tiles of the grids that the query scans.
    #[must_use]
    pub fn tiles(&self) -> u64 {
        self.sum(|group| group.tiles)
    }

    /// Tiles that statistics left out.
    #[must_use]
    pub fn pruned_tiles(&self) -> u64 {
        self.sum(|group| group.pruned_tiles)
    }

    /// Tiles that were read.
    #[must_use]
    pub fn read_tiles(&self) -> u64 {
        self.sum(|group| group.read_tiles)
    }

    /// Bytes that were read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sum(|group| group.bytes)
    }

    /// Bytes that were copied to be read.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        self.sum(|group| group.copied_bytes)
    }

    /// Adds what the operators of a plan did.
    pub(super) fn add(&mut self, plan: &Arc<dyn ExecutionPlan>, depth: usize) {
        let metrics = match plan.downcast_ref::<GridScanExec>() {
            Some(scan) => {
                self.add_scan(scan.count());
                Some(scan.plain_metrics())
            }
            None => plan.metrics(),
        };
        let number = |value: Option<usize>| value.map(|value| value as u64);
        let metrics = metrics.as_ref();
        let spilled_bytes = metrics.and_then(|metrics| number(metrics.spilled_bytes()));
        let spilled_files = metrics.and_then(|metrics| number(metrics.spill_count()));
        let nanoseconds = metrics.and_then(|metrics| number(metrics.elapsed_compute()));
        self.spilled_bytes += spilled_bytes.unwrap_or_default();
        self.spilled_files += spilled_files.unwrap_or_default();
        self.operators.push(OperatorMetrics {
            depth,
            name: plan.name().to_owned(),
            num_rows: metrics.and_then(|metrics| number(metrics.output_rows())),
            compute: nanoseconds.map(Duration::from_nanos),
            spilled_bytes: spilled_bytes.unwrap_or_default(),
        });
        if let Some(metrics) = metrics {
            self.add_processes(metrics);
        }
        for child in plan.children() {
            self.add(child, depth + 1);
        }
    }

    /// Adds what the scans of other processes counted, as the engine brings it: each number with its name and its process.
    fn add_processes(&mut self, metrics: &MetricsSet) {
        for metric in metrics.iter() {
            let mut labels = metric.labels().iter();
            let process = labels.find(|label| label.name() == PROCESS);
            let process = process.and_then(|label| label.value().parse().ok());
            let MetricValue::Count { name, count } = metric.value() else {
                continue;
            };
            if let Some(process) = process {
                self.add_number(process, name, count.value() as u64);
            }
        }
    }

    fn add_number(&mut self, process: u64, name: &str, value: u64) {
        let sum = match name {
            "tiles_skipped" => Some(&mut self.skipped_tiles),
            "morsels_skipped" => Some(&mut self.skipped_morsels),
            "rows_skipped" => Some(&mut self.skipped_rows),
            "rows_filtered" => Some(&mut self.filtered_rows),
            "bytes_gathered" => Some(&mut self.gathered_bytes),
            _ => None,
        };
        if let Some(sum) = sum {
            *sum += value;
            return;
        }
        let known = Locality::ALL.into_iter();
        let found = known.filter_map(|locality| {
            let what = name.strip_prefix(locality.name())?.strip_prefix('_')?;
            Some((locality, what))
        });
        for (locality, what) in found {
            let place = self
                .processes
                .iter()
                .position(|known| known.process == process);
            let place = place.unwrap_or_else(|| {
                self.processes.push(ProcessMetrics::of(process));
                self.processes.len() - 1
            });
            let Some(of_process) = self.processes.get_mut(place) else {
                continue;
            };
            let group = of_process.group(locality);
            match what {
                "tiles" => group.read_tiles += value,
                "rows" => {
                    group.rows += value;
                    self.read_rows += value;
                }
                "bytes" => group.bytes += value,
                "bytes_copied" => group.copied_bytes += value,
                _ => {}
            }
        }
    }

    fn add_scan(&mut self, scan: ScanMetrics) {
        self.read_rows += scan.read_rows;
        self.skipped_tiles += scan.skipped_tiles;
        self.skipped_morsels += scan.skipped_morsels;
        self.skipped_rows += scan.skipped_rows;
        self.filtered_rows += scan.filtered_rows;
        self.gathered_bytes += scan.gathered_bytes;
        for group in scan.groups {
            let same = |known: &&mut LocalityMetrics| known.locality == group.locality;
            match self.groups.iter_mut().find(same) {
                Some(known) => known.add(&group),
                None => self.groups.push(group),
            }
        }
        self.groups.sort_by_key(|group| group.locality);
    }
}

impl fmt::Display for QueryMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |bytes: u64| size(usize::try_from(bytes).unwrap_or(usize::MAX));
        let state = if self.is_done { "in" } else { "after" };
        write!(
            formatter,
            "{} {state} {:.3} s, at most {} of memory",
            counted(self.num_rows, "row"),
            self.elapsed.as_secs_f64(),
            bytes(self.peak_memory_bytes)
        )?;
        if self.waited >= Duration::from_millis(1) {
            let waited = self.waited.as_secs_f64();
            write!(formatter, ", {waited:.3} s of it waiting for its turn")?;
        }
        for group in &self.groups {
            write!(
                formatter,
                "\n  {}: {} of {} read, {} pruned, {}, {}, {} copied",
                group.locality,
                group.read_tiles,
                counted(group.tiles, "tile"),
                group.pruned_tiles,
                counted(group.rows, "row"),
                bytes(group.bytes),
                bytes(group.copied_bytes),
            )?;
        }
        if self.skipped_morsels + self.filtered_rows > 0 {
            write!(
                formatter,
                "\n  dynamic filters: {} and {} skipped, {} taken away",
                counted(self.skipped_tiles, "tile"),
                counted(self.skipped_rows, "row"),
                counted(self.filtered_rows, "row"),
            )?;
        }
        if self.spilled_files > 0 {
            let files = counted(self.spilled_files, "file");
            write!(
                formatter,
                "\n  spilled: {} to {files}",
                bytes(self.spilled_bytes)
            )?;
        }
        Ok(())
    }
}

/// The tiles of one locality, in all scans of grids of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalityMetrics {
    /// How near the tiles are.
    pub locality: Locality,
    /// Tiles of the grids.
    pub tiles: u64,
    /// Those that statistics could not leave out, in the column bands that the query needs.
    pub kept_tiles: u64,
    /// Those that statistics left out, in the column bands that the query needs.
    pub pruned_tiles: u64,
    /// Those that were read so far, whole or in part.
    pub read_tiles: u64,
    /// Rows that were looked at in them.
    pub rows: u64,
    /// Bytes of the needed columns of these rows; of tiles elsewhere, all that came.
    pub bytes: u64,
    /// Bytes that were copied to be read: all that came from elsewhere, nothing of tiles that are here, save nested columns that had to be rebuilt.
    pub copied_bytes: u64,
}

impl LocalityMetrics {
    pub(in crate::query) fn of(locality: Locality) -> Self {
        Self {
            locality,
            tiles: 0,
            kept_tiles: 0,
            pruned_tiles: 0,
            read_tiles: 0,
            rows: 0,
            bytes: 0,
            copied_bytes: 0,
        }
    }

    fn add(&mut self, other: &Self) {
        self.tiles += other.tiles;
        self.kept_tiles += other.kept_tiles;
        self.pruned_tiles += other.pruned_tiles;
        self.read_tiles += other.read_tiles;
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.copied_bytes += other.copied_bytes;
    }

    /// Tiles in column bands that the query does not need.
    #[must_use]
    pub fn other_tiles(&self) -> u64 {
        self.tiles - self.kept_tiles - self.pruned_tiles
    }
}

/// What one scan did.
#[derive(Debug, Clone, Default)]
pub(in crate::query) struct ScanMetrics {
    /// Nearest first.
    pub(in crate::query) groups: Vec<LocalityMetrics>,
    pub(in crate::query) read_rows: u64,
    pub(in crate::query) skipped_tiles: u64,
    pub(in crate::query) skipped_morsels: u64,
    pub(in crate::query) skipped_rows: u64,
    pub(in crate::query) filtered_rows: u64,
    pub(in crate::query) gathered_bytes: u64,
}
