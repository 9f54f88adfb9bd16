//! `LoadJob` and `LoadProgress`.

use partgrid::error::{Error, ErrorKind};
use partgrid::grid::PartitionGrid;
use partgrid::load::{LoadJob, Progress};
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;

use crate::argument::{Given, Seconds, optional};
use crate::error::Outcome;
use crate::grid::PyGrid;
use crate::runtime::{wait, wait_and_tick};

/// How far a load is: a picture of one moment.
///
/// Totals are 0 until the files are listed and their footers read.
#[pyclass(name = "LoadProgress", module = "partgrid", frozen)]
pub(crate) struct PyLoadProgress {
    core: Progress,
}

#[pymethods]
impl PyLoadProgress {
    /// Files whose footer is read.
    #[getter]
    fn files(&self) -> u64 {
        self.core.num_files
    }

    /// Files that were found.
    #[getter]
    fn total_files(&self) -> u64 {
        self.core.total_files
    }

    /// Tiles that are finished.
    #[getter]
    fn tiles(&self) -> u64 {
        self.core.num_tiles
    }

    /// Tiles of the grid to be.
    #[getter]
    fn total_tiles(&self) -> u64 {
        self.core.total_tiles
    }

    /// Rows of finished tiles.
    #[getter]
    fn rows(&self) -> u64 {
        self.core.num_rows
    }

    /// Rows of all tiles.
    #[getter]
    fn total_rows(&self) -> u64 {
        self.core.total_rows
    }

    /// Bytes of the files that are decoded, as they lie in the files.
    #[getter]
    fn bytes(&self) -> u64 {
        self.core.num_bytes
    }

    /// Bytes of the files that are or will be decoded.
    #[getter]
    fn total_bytes(&self) -> u64 {
        self.core.total_bytes
    }

    /// Bytes of memory that finished tiles hold, or of the files that they were spilled to.
    #[getter]
    fn tile_bytes(&self) -> u64 {
        self.core.tile_bytes
    }

    /// Tiles that an earlier load had left in the folder `resume`.
    #[getter]
    fn resumed_tiles(&self) -> u64 {
        self.core.resumed_tiles
    }

    /// Tiles that lie in files of `spill_to`.
    #[getter]
    fn spilled_tiles(&self) -> u64 {
        self.core.spilled_tiles
    }

    /// Rows that lie in the order of `sort_by` or `partition_by`, which begins when all are read.
    #[getter]
    fn arranged_rows(&self) -> u64 {
        self.core.arranged_rows
    }

    /// Rows that are being sorted or partitioned; 0 while they are read, and without such a wish.
    #[getter]
    fn rows_to_arrange(&self) -> u64 {
        self.core.rows_to_arrange
    }

    /// Whether all rows are read, and are now sorted or partitioned.
    #[getter]
    fn arranging(&self) -> bool {
        self.core.is_arranging()
    }

    /// Seconds since the load began; of a finished load, until it ended.
    #[getter]
    fn elapsed(&self) -> f64 {
        self.core.elapsed.as_secs_f64()
    }

    /// Bytes of the files that were decoded in a second, on average.
    #[getter]
    fn rate(&self) -> u64 {
        self.core.bytes_per_second()
    }

    /// Seconds that the rest will take at the rate so far; `None` before the first bytes, and while rows are sorted or partitioned.
    #[getter]
    fn remaining(&self) -> Option<f64> {
        self.core.remaining().map(|rest| rest.as_secs_f64())
    }

    fn __repr__(&self) -> String {
        let core = &self.core;
        format!(
            "LoadProgress(files={}/{}, tiles={}/{}, rows={}/{}, bytes={}/{}, elapsed={:.1})",
            core.num_files,
            core.total_files,
            core.num_tiles,
            core.total_tiles,
            core.num_rows,
            core.total_rows,
            core.num_bytes,
            core.total_bytes,
            core.elapsed.as_secs_f64()
        )
    }
}

/// A load that runs in the background, made by `load_parquet`. When nobody holds it any more, it is cancelled.
#[pyclass(name = "LoadJob", module = "partgrid", frozen, weakref)]
pub(crate) struct PyLoadJob {
    core: LoadJob,
    /// The process that runs it; a forked child has no thread of it.
    pid: u32,
}

impl PyLoadJob {
    pub(crate) fn new(core: LoadJob) -> Self {
        Self {
            core,
            pid: std::process::id(),
        }
    }

    fn here(&self) -> Outcome<&LoadJob> {
        if self.pid == std::process::id() || self.core.is_finished() {
            return Ok(&self.core);
        }
        let text = format!(
            "the load runs in process {}, this is process {}",
            self.pid,
            std::process::id()
        );
        Err(Error::new(ErrorKind::NotLocal, text)
            .with_hint("start it after the fork")
            .into())
    }
}

impl PyLoadJob {
    /// Whether it is finished, at the latest when the time is over.
    fn wait_for(&self, py: Python<'_>, timeout: Option<&Seconds>) -> Outcome<bool> {
        let core = self.here()?;
        let limit = timeout.and_then(|timeout| timeout.limit);
        wait(py, async move {
            let outcome = core.result();
            match limit {
                Some(limit) => drop(tokio::time::timeout(limit, outcome).await),
                None => drop(outcome.await),
            }
            Ok(core.is_finished())
        })
    }
}

#[pymethods]
impl PyLoadJob {
    /// How far the load is at this moment.
    ///
    /// Returns:
    ///     Counts of files, tiles, rows and bytes, elapsed and remaining time.
    fn progress(&self) -> PyLoadProgress {
        PyLoadProgress {
            core: self.core.progress(),
        }
    }

    /// Whether there is a result: a grid, an error, or that it was cancelled.
    #[getter]
    fn finished(&self) -> bool {
        self.core.is_finished()
    }

    /// Stops the load; a finished one keeps its result. Nothing of it stays in memory or on disk.
    fn cancel(&self) {
        self.core.cancel();
    }

    /// Waits until the load is finished, or so many seconds.
    ///
    /// Args:
    ///     timeout: Seconds to wait; for ever by default, and for `float("inf")`.
    ///
    /// Returns:
    ///     Whether it is finished. Errors of the load are raised by `result`, not here.
    ///
    /// Raises:
    ///     NotLocalError: The load runs in another process, from which this one was forked.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Given<Seconds>>) -> Outcome<bool> {
        self.wait_for(py, optional(timeout, "timeout")?.as_ref())
    }

    /// The grid, once it is there. May be asked for again.
    ///
    /// Args:
    ///     timeout: Seconds to wait; for ever by default, and for `float("inf")`.
    ///
    /// Returns:
    ///     The grid.
    ///
    /// Raises:
    ///     TimeoutError: The load goes on after `timeout` seconds.
    ///     CancelledError: The load was cancelled.
    ///     PartgridError: Whatever stood in the way of the load, as `read_parquet` raises it.
    #[pyo3(signature = (timeout=None))]
    fn result(&self, py: Python<'_>, timeout: Option<Given<Seconds>>) -> Outcome<PyGrid> {
        let timeout = optional(timeout, "timeout")?;
        if !self.wait_for(py, timeout.as_ref())? {
            let seconds = timeout.map_or(0.0, |timeout| timeout.number);
            let text = format!("the load goes on after {seconds} seconds");
            return Err(PyTimeoutError::new_err(text).into());
        }
        let core = self.here()?;
        Ok(PyGrid::new(wait(py, core.result())?))
    }

    fn __repr__(&self) -> String {
        let state = if self.core.is_finished() {
            "finished"
        } else {
            "running"
        };
        let progress = self.progress().__repr__();
        format!("<LoadJob {state}, {progress}>")
    }
}

/// Waits for a load on this thread. A bar is shown if that is wanted, or if nothing is said and a person sees it. An exception of a signal handler cancels the load.
pub(crate) fn wait_with_bar(
    py: Python<'_>,
    job: &LoadJob,
    wanted: Option<bool>,
) -> Outcome<PartitionGrid> {
    let Some(bar) = make_bar(py, wanted)? else {
        return cancelled_unless(job, wait(py, job.result()));
    };
    let bar = bar.bind(py);
    let show = || {
        let progress = PyLoadProgress {
            core: job.progress(),
        };
        bar.call_method1("show", (progress,)).map(drop)
    };
    let result = cancelled_unless(job, wait_and_tick(py, job.result(), show));
    let shown = show().and_then(|()| bar.call_method0("close").map(drop));
    let grid = result?;
    shown?;
    Ok(grid)
}

/// A bar of a load, if one is to be shown.
pub(crate) struct LoadBar(Option<Py<PyAny>>);

impl LoadBar {
    pub(crate) fn new(py: Python<'_>, wanted: Option<bool>) -> PyResult<Self> {
        make_bar(py, wanted).map(Self)
    }

    /// Shows how far the load is.
    pub(crate) fn show(&self, py: Python<'_>, core: Progress) -> PyResult<()> {
        let Some(bar) = &self.0 else {
            return Ok(());
        };
        let progress = PyLoadProgress { core };
        bar.bind(py).call_method1("show", (progress,)).map(drop)
    }

    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        match &self.0 {
            Some(bar) => bar.bind(py).call_method0("close").map(drop),
            None => Ok(()),
        }
    }
}

/// A bar of `partgrid._progress`, if one is to be shown.
fn make_bar(py: Python<'_>, wanted: Option<bool>) -> PyResult<Option<Py<PyAny>>> {
    if wanted == Some(false) {
        return Ok(None);
    }
    let bar = py
        .import("partgrid._progress")?
        .call_method1("bar", (wanted,))?;
    Ok((!bar.is_none()).then(|| bar.unbind()))
}

fn cancelled_unless<T>(job: &LoadJob, result: Outcome<T>) -> Outcome<T> {
    if result.is_err() {
        job.cancel();
    }
    result
}
