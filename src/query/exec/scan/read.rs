//! Reads one share of a scan.
//!
//! Comes in: the row ranges of a share. Goes out: its batches, in the order of the grid. Without conditions they are slices of the tiles; with conditions the
//! rows that pass are gathered once, from as many windows as fill a batch, and only they are copied. Never here: which row bands are read, how conditions are
//! tested.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{BatchCoalescer, filter_record_batch, take};
use datafusion::error::{DataFusionError, Result};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};

use super::GridScanExec;
use super::ahead::{fetch, may_hold};
use super::morsel::Morsel;
use super::sieve::{Passed, Sieve};
use crate::grid::compact;
use crate::query::plan::statistics::prune::bands_that_may_match;
use crate::query::wide_keys::widened_batch;

/// After so many windows without a batch, others on the thread have their turn.
const WINDOWS_BETWEEN_PAUSES: usize = 128;

/// A share judges all row bands of the grid about so often, however often the dynamic filters change.
const MOST_JUDGEMENTS: usize = 64;

/// The longest run of rows that is looked at as one batch: numbers of its rows have 32 bits.
const MAX_RUN_ROWS: u64 = 1 << 31;

/// The batches of one share.
pub(super) fn read(
    scan: GridScanExec,
    share: Vec<Morsel>,
    batch_rows: usize,
) -> Result<impl Stream<Item = Result<RecordBatch>> + Send> {
    let ascends = |place: usize| scan.is_ascending(place);
    let sieve = Sieve::try_new(
        scan.wide_schema(),
        scan.conditions(),
        scan.dynamic(),
        ascends,
    )?;
    let batch_rows = batch_rows.max(1);
    let full = BatchCoalescer::new(scan.narrow_schema(), batch_rows)
        .with_biggest_coalesce_batch_size(Some(batch_rows / 2));
    let reader = Reader {
        morsels: Box::new(share.into_iter().flat_map(short)),
        open: None,
        row_band: 0,
        place: 0,
        chosen: Vec::new(),
        is_over: false,
        is_started: false,
        may_match: None,
        is_stale: false,
        bands_since: usize::MAX,
        scan,
        sieve,
        full,
        batch_rows,
    };
    Ok(stream::try_unfold(reader, |mut reader| async move {
        let next = reader.next().await?;
        Ok(next.map(|batch| (batch, reader)))
    }))
}

fn short(morsel: Morsel) -> impl Iterator<Item = Morsel> {
    let step = usize::try_from(MAX_RUN_ROWS).unwrap_or(usize::MAX);
    let starts = morsel.rows.clone().step_by(step);
    starts.map(move |start| Morsel {
        row_band: morsel.row_band,
        rows: start..morsel.rows.end.min(start + MAX_RUN_ROWS),
    })
}

struct Reader {
    scan: GridScanExec,
    morsels: Box<dyn Iterator<Item = Morsel> + Send>,
    /// The row band in hand, and those of its rows that are still to be looked at.
    open: Option<(RecordBatch, Range<usize>)>,
    /// The number of that row band.
    row_band: usize,
    /// The same among those that are kept.
    place: usize,
    sieve: Sieve,
    /// Rows of the row band in hand that passed and are not copied yet.
    chosen: Vec<u32>,
    /// Puts short batches together.
    full: BatchCoalescer,
    batch_rows: usize,
    is_over: bool,
    is_started: bool,
    /// For each row band of the grid whether the dynamic filters leave anything of it; `None` when they cannot tell.
    may_match: Option<Vec<bool>>,
    /// Whether the dynamic filters say something else since then.
    is_stale: bool,
    /// Row bands that were looked at since then.
    bands_since: usize,
}

impl Reader {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        for windows in 1_usize.. {
            if let Some(batch) = self.full.next_completed_batch() {
                return Ok(Some(batch));
            }
            if self.is_over {
                break;
            }
            self.scan.check_stop()?;
            if self.open.is_none() && !self.open_next().await? {
                self.full.finish_buffered_batch()?;
                self.is_over = true;
            } else if self.sieve.is_empty() {
                return self.next_slice().map(Some);
            } else {
                self.sift_window()?;
            }
            if windows.is_multiple_of(WINDOWS_BETWEEN_PAUSES) {
                tokio::task::yield_now().await;
            }
        }
        Ok(None)
    }

    /// Opens the next row band that may hold a row; `false` at the end.
    async fn open_next(&mut self) -> Result<bool> {
        if !self.is_started {
            self.scan.wait_for_joins().await;
            self.is_started = true;
        }
        while let Some(morsel) = self.morsels.next() {
            self.judge_bands()?;
            let may_match = self
                .may_match
                .as_ref()
                .and_then(|bands| bands.get(morsel.row_band));
            (self.row_band, self.place) = (morsel.row_band, self.scan.place_of(morsel.row_band));
            let num_rows = morsel.rows.end - morsel.rows.start;
            if may_match == Some(&false) || !self.may_hold(morsel.row_band).await? {
                self.scan.tally().skip(self.place, num_rows);
                continue;
            }
            self.scan.tally().open(self.place);
            let number = |row: u64| usize::try_from(row).unwrap_or(usize::MAX);
            let rows = number(morsel.rows.start)..number(morsel.rows.end);
            let how = (&mut self.sieve, rows.clone(), self.batch_rows);
            let Some(batch) = fetch(&self.scan, morsel.row_band, how).await? else {
                self.scan.tally().read(self.place, num_rows);
                self.count_filtered();
                continue;
            };
            let bound = |row: usize| row.min(batch.num_rows());
            let rows = bound(rows.start)..bound(rows.end);
            let batch = self.widened(&batch.slice(rows.start, rows.len()))?;
            self.open = Some((batch, 0..rows.len()));
            return Ok(true);
        }
        Ok(false)
    }

    /// The rows as SQL has them; what is copied for it is counted.
    fn widened(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let wide = widened_batch(rows, self.scan.wide_schema())?;
        self.scan.count_rebuilt(self.row_band, (rows, &wide));
        Ok(wide)
    }

    /// Whether a row of a row band that is not here may pass, by what its source knows of it.
    async fn may_hold(&mut self, row_band: usize) -> Result<bool> {
        if !self.scan.stitch().is_far(self.scan.facts(), row_band) {
            return Ok(true);
        }
        let wanted = self.sieve.wanted()?;
        may_hold(&self.scan, row_band, &wanted).await
    }

    /// Takes note of the rows that dynamic filters took away.
    fn count_filtered(&mut self) {
        let filtered = self.sieve.take_filtered();
        if filtered > 0 {
            let counter = &self.scan.tally().filtered_rows;
            counter.fetch_add(filtered, Ordering::Relaxed);
        }
    }

    /// Finds out anew which row bands may hold a row, if the dynamic filters say something else than before. Of a grid with many row bands only now and then, since all are judged.
    fn judge_bands(&mut self) -> Result<()> {
        self.is_stale |= self.sieve.refresh()?;
        self.bands_since = self.bands_since.saturating_add(1);
        let num_bands = self.scan.facts().grid().rows().num_intervals();
        if self.is_stale && self.bands_since.saturating_mul(MOST_JUDGEMENTS) >= num_bands {
            (self.is_stale, self.bands_since) = (false, 0);
            self.may_match = bands_that_may_match(
                self.scan.facts(),
                &self.scan.narrow_schema(),
                &self.sieve.known()?,
            )?;
        }
        Ok(())
    }

    /// The next slice, without conditions.
    fn next_slice(&mut self) -> Result<RecordBatch> {
        let Some((batch, window)) = self.next_window() else {
            return Err(DataFusionError::Internal("no row band is open".to_owned()));
        };
        let slice = batch.slice(window.start, window.len());
        if self.open.as_ref().is_some_and(|(_, left)| left.is_empty()) {
            self.open = None;
        }
        self.compacted(&self.narrow(&slice)?)
    }

    /// The same rows in the shape that kernels need; what is copied for it is counted.
    fn compacted(&self, slice: &RecordBatch) -> Result<RecordBatch> {
        let compacted = compact(slice)?;
        self.scan.count_rebuilt(self.row_band, (slice, &compacted));
        Ok(compacted)
    }

    fn next_window(&mut self) -> Option<(RecordBatch, Range<usize>)> {
        let (batch, left) = self.open.as_mut()?;
        let stop = left.end.min(left.start + self.batch_rows);
        let window = left.start..stop;
        left.start = stop;
        self.scan.tally().read(self.place, window.len() as u64);
        Some((batch.clone(), window))
    }

    fn sift_window(&mut self) -> Result<()> {
        let Some((batch, window)) = self.next_window() else {
            return Ok(());
        };
        if !window.is_empty() {
            self.is_stale |= self.sieve.refresh()?;
            match self.sieve.sift(&batch, window.clone())? {
                Passed::All if self.chosen.is_empty() => {
                    let slice = batch.slice(window.start, window.len());
                    self.push(&slice)?;
                }
                Passed::All => self.choose(window.clone())?,
                Passed::Mask(mask) => {
                    self.gather_chosen(&batch, 1)?;
                    let slice = self.narrow(&batch.slice(window.start, window.len()))?;
                    let slice = filter_record_batch(&self.compacted(&slice)?, &mask.into())?;
                    self.count_gathered(&slice);
                    self.push_narrow(slice)?;
                }
                Passed::Rows(rows) => self.chosen.extend_from_slice(rows.values()),
            }
            self.count_filtered();
        }
        let is_last = window.end == batch.num_rows() || window.is_empty();
        self.gather_chosen(&batch, if is_last { 1 } else { self.batch_rows })?;
        if is_last {
            self.open = None;
        }
        Ok(())
    }

    /// Copies the chosen rows, a batch at a time, as long as there are at least so many.
    fn gather_chosen(&mut self, batch: &RecordBatch, least: usize) -> Result<()> {
        while self.chosen.len() >= least {
            let rest = self
                .chosen
                .split_off(self.chosen.len().min(self.batch_rows));
            let rows = UInt32Array::from(std::mem::replace(&mut self.chosen, rest));
            self.gather(batch, &rows)?;
        }
        Ok(())
    }

    fn choose(&mut self, rows: Range<usize>) -> Result<()> {
        let number = |row: usize| {
            u32::try_from(row)
                .map_err(|_| DataFusionError::Internal(format!("row {row} of a batch")))
        };
        self.chosen.extend(number(rows.start)?..number(rows.end)?);
        Ok(())
    }

    /// Copies the wanted columns of the rows.
    fn gather(&mut self, batch: &RecordBatch, rows: &UInt32Array) -> Result<()> {
        let wanted = batch.columns().iter().take(self.scan.num_columns());
        let columns: Result<Vec<ArrayRef>, _> =
            wanted.map(|column| take(column, rows, None)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.values().len()));
        let batch =
            RecordBatch::try_new_with_options(self.scan.narrow_schema(), columns?, &options)?;
        self.count_gathered(&batch);
        self.push_narrow(batch)
    }

    /// Passes a run of rows on as it is.
    fn push(&mut self, slice: &RecordBatch) -> Result<()> {
        let slice = self.compacted(&self.narrow(slice)?)?;
        self.push_narrow(slice)
    }

    /// Takes note that the rows of a batch were copied. Of texts that views point to, only the views are.
    fn count_gathered(&self, batch: &RecordBatch) {
        let bytes = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(0);
        let bytes: usize = batch.columns().iter().map(bytes).sum();
        let counter = &self.scan.tally().gathered_bytes;
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A long batch goes on as it is, behind those that wait; short ones are put together.
    fn push_narrow(&mut self, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() > self.batch_rows / 2 {
            self.full.finish_buffered_batch()?;
        } else {
            self.count_gathered(&batch);
        }
        Ok(self.full.push_batch(batch)?)
    }

    /// The wanted columns, without those that only conditions read.
    fn narrow(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        if batch.num_columns() == self.scan.num_columns() {
            return Ok(batch.clone());
        }
        let wanted = batch.columns().iter().take(self.scan.num_columns());
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = wanted.map(Arc::clone).collect();
        Ok(RecordBatch::try_new_with_options(
            self.scan.narrow_schema(),
            columns,
            &options,
        )?)
    }
}

/// The batches up to so many rows.
pub(super) fn limit_rows(
    batches: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
    limit: Option<usize>,
) -> BoxStream<'static, Result<RecordBatch>> {
    let Some(limit) = limit else {
        return batches.boxed();
    };
    let cut = batches.scan(limit, |left, batch| {
        let next = match batch {
            Ok(_) if *left == 0 => None,
            Ok(batch) => {
                let rows = batch.num_rows().min(*left);
                *left -= rows;
                Some(Ok(batch.slice(0, rows)))
            }
            Err(error) => Some(Err(error)),
        };
        futures::future::ready(next)
    });
    cut.boxed()
}
