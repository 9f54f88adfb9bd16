//! What a scan did: tiles, rows and bytes by how near they are.
//!
//! Comes in: a scan and the tally of its run. Goes out: numbers for EXPLAIN ANALYZE, metrics and progress. Sizes of tiles that are here are worked out now, so that the run itself does
//! not pay for them. Never here: counting while it runs (`tally.rs`).

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use datafusion::physical_plan::metrics::{Count, Label, Metric, MetricValue, MetricsSet};

use super::GridScanExec;
use super::stitch::is_brought;
use crate::grid::bytes_apart;
use crate::location::Locality;
#[cfg(feature = "distributed")]
use crate::query::running::metrics::PROCESS;
use crate::query::running::metrics::{LocalityMetrics, ScanMetrics};
use crate::query::running::progress::QueryProgress;

impl GridScanExec {
    /// The tiles of the grid by locality, nearest first; only localities that it has. Those of other parts of the same scan do not count.
    pub(super) fn groups_of_tiles(&self) -> Vec<LocalityMetrics> {
        let mut groups = Locality::ALL.map(LocalityMetrics::of);
        let touched: Vec<usize> = self.stitch.bands().map(|(band, _)| band).collect();
        let mut kept = self.kept.row_bands.iter().copied().peekable();
        let all = 0..self.facts.grid().rows().num_intervals();
        #[cfg(feature = "distributed")]
        let is_part = self.is_part;
        #[cfg(not(feature = "distributed"))]
        let is_part = false;
        let (own, all) = match is_part {
            true => (self.kept.row_bands.as_slice(), 0..0),
            false => (&[][..], all),
        };
        for row_band in own.iter().copied().chain(all) {
            let is_kept = kept.next_if_eq(&row_band).is_some();
            for (band, locality) in self.facts.localities(row_band).iter().enumerate() {
                let Some(group) = groups.get_mut(*locality as usize) else {
                    continue;
                };
                group.tiles += 1;
                if touched.binary_search(&band).is_ok() {
                    match is_kept {
                        true => group.kept_tiles += 1,
                        false => group.pruned_tiles += 1,
                    }
                }
            }
        }
        let groups = groups.into_iter();
        groups.filter(|group| group.tiles > 0).collect()
    }

    /// What the run that goes on, or the last one, did so far.
    pub(in crate::query) fn count(&self) -> ScanMetrics {
        let mut groups = self.groups_of_tiles();
        let touched: Vec<(usize, Vec<usize>)> = self.stitch.bands().collect();
        let (mut skipped, mut read_rows) = ((0, 0), 0);
        let bands = self.bands().zip(self.tally.bands());
        for ((row_band, rows), so_far) in bands {
            skipped.1 += so_far.skipped_rows;
            read_rows += so_far.read_rows;
            if !so_far.is_opened {
                if rows <= so_far.skipped_rows {
                    skipped.0 += touched.len() as u64;
                }
                continue;
            }
            let localities = self.facts.localities(row_band);
            for group in &mut groups {
                let of_group = |band: &&(usize, Vec<usize>)| {
                    localities.get(band.0).copied() == Some(group.locality)
                };
                let tiles: Vec<_> = touched.iter().filter(of_group).collect();
                if !tiles.is_empty() {
                    group.rows += so_far.read_rows;
                    group.read_tiles += tiles.len() as u64;
                }
                let here = tiles
                    .iter()
                    .map(|(band, locals)| self.bytes_here((row_band, *band), locals));
                let part = u128::from(so_far.read_rows) * u128::from(here.sum::<u64>());
                let bytes = part.checked_div(u128::from(rows)).unwrap_or(0);
                group.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
            }
        }
        for group in &mut groups {
            group.bytes += self.tally.brought(group.locality);
            group.copied_bytes = self.tally.copied(group.locality);
        }
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        ScanMetrics {
            groups,
            read_rows,
            skipped_tiles: skipped.0,
            skipped_morsels: count(&self.tally.skipped_morsels),
            skipped_rows: skipped.1,
            filtered_rows: count(&self.tally.filtered_rows),
            gathered_bytes: count(&self.tally.gathered_bytes),
        }
    }

    /// Bytes of columns of a tile that is here; 0 for one whose bytes were counted when they came.
    fn bytes_here(&self, position: (usize, usize), columns: &[usize]) -> u64 {
        let locality = self.facts.localities(position.0).get(position.1).copied();
        let tile = self.facts.grid().row_band(position.0).get(position.1);
        let Some((tile, locality)) = tile.zip(locality) else {
            return 0;
        };
        if is_brought(tile, locality) {
            return 0;
        }
        tile.data().column_bytes(columns)
    }

    /// Takes note of columns that were rebuilt, with the batch before and after.
    pub(in crate::query::exec) fn count_rebuilt(
        &self,
        row_band: usize,
        (before, after): (&RecordBatch, &RecordBatch),
    ) {
        let pairs = before.columns().iter().zip(after.columns());
        if pairs.clone().all(|(one, other)| Arc::ptr_eq(one, other)) {
            return;
        }
        let grid = self.facts.grid();
        let localities = self.facts.localities(row_band);
        for (place, column) in self.columns.iter().take(self.num_columns).enumerate() {
            let band = grid.columns().locate(*column as u64);
            let locality = band.and_then(|(band, _)| localities.get(band));
            let (before, after) = (before.project(&[place]), after.project(&[place]));
            if let (Some(locality), Ok(before), Ok(after)) = (locality, before, after) {
                self.tally.copy(*locality, bytes_apart(&after, &before));
            }
        }
    }

    /// The counters of DataFusion alone.
    pub(in crate::query) fn plain_metrics(&self) -> MetricsSet {
        self.metrics.clone_inner()
    }

    /// How far the run is.
    pub(in crate::query) fn so_far(&self) -> QueryProgress {
        let width = self.stitch.bands().count() as u64;
        let mut progress = QueryProgress {
            num_scans: 1,
            ..QueryProgress::default()
        };
        for (_, rows) in self.bands() {
            progress.total_rows += rows;
            progress.total_tiles += width;
        }
        for ((_, rows), so_far) in self.bands().zip(self.tally.bands()) {
            let done = rows.min(so_far.read_rows + so_far.skipped_rows);
            progress.num_rows += done;
            progress.num_tiles += if done == rows { width } else { 0 };
        }
        progress
    }

    /// Who counted, for those who get numbers of several processes.
    fn labels(&self) -> Vec<Label> {
        #[cfg(feature = "distributed")]
        if self.is_part {
            return vec![Label::new(PROCESS, std::process::id().to_string())];
        }
        Vec::new()
    }

    /// The counters of DataFusion, and ours.
    pub(super) fn counted(&self, mut metrics: MetricsSet) -> MetricsSet {
        let count = self.count();
        let labels = self.labels();
        let mut push = |name: Cow<'static, str>, value: u64| {
            let count = Count::new();
            count.add(usize::try_from(value).unwrap_or(usize::MAX));
            let value = MetricValue::Count { name, count };
            metrics.push(Arc::new(Metric::new_with_labels(
                value,
                None,
                labels.clone(),
            )));
        };
        for group in &count.groups {
            let numbers = [
                ("tiles", group.read_tiles),
                ("rows", group.rows),
                ("bytes", group.bytes),
                ("bytes_copied", group.copied_bytes),
            ];
            for (what, value) in numbers {
                push(format!("{}_{what}", group.locality).into(), value);
            }
        }
        push("tiles_skipped".into(), count.skipped_tiles);
        push("morsels_skipped".into(), count.skipped_morsels);
        push("rows_skipped".into(), count.skipped_rows);
        push("rows_filtered".into(), count.filtered_rows);
        push("bytes_gathered".into(), count.gathered_bytes);
        metrics
    }
}
