//! `QueryProgress` and `QueryMetrics`: how far a run of a query is, and what it did.
//!
//! Comes in: what the core counted. Goes out: the same as attributes and plain values. Never here: counting.

use partgrid::query::{LocalityMetrics, QueryMetrics, QueryProgress};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// How far a query is: a picture of one moment.
#[pyclass(name = "QueryProgress", module = "partgrid", frozen)]
pub(crate) struct PyQueryProgress {
    core: QueryProgress,
}

#[pymethods]
impl PyQueryProgress {
    /// Rows that the scans of grids are done with: read, or left unread since nobody needs them.
    #[getter]
    fn rows(&self) -> u64 {
        self.core.num_rows
    }

    /// Rows of the tiles that they keep after pruning. A query may need fewer of them, for instance with LIMIT.
    #[getter]
    fn total_rows(&self) -> u64 {
        self.core.total_rows
    }

    /// Tiles that the scans are done with.
    #[getter]
    fn tiles(&self) -> u64 {
        self.core.num_tiles
    }

    /// Tiles that they keep after pruning.
    #[getter]
    fn total_tiles(&self) -> u64 {
        self.core.total_tiles
    }

    /// Scans of grids in the plan.
    #[getter]
    fn scans(&self) -> usize {
        self.core.num_scans
    }

    fn __repr__(&self) -> String {
        let QueryProgress {
            num_rows,
            total_rows,
            num_tiles,
            total_tiles,
            num_scans,
        } = self.core;
        format!(
            "QueryProgress(rows={num_rows}/{total_rows}, tiles={num_tiles}/{total_tiles}, scans={num_scans})"
        )
    }
}

/// What a run of a query did: a picture of one moment, or of all once it has ended.
///
/// Tiles, rows and bytes come in groups by where the tiles are, nearest first: `memory` (this process), `shared` (memory shared with another process), `device`, `process` (another
/// process) and `file` (files, stores, and what a load spilled).
#[pyclass(name = "QueryMetrics", module = "partgrid", frozen)]
pub(crate) struct PyQueryMetrics {
    core: QueryMetrics,
}

/// What was read of the tiles of one locality.
fn read<'py>(py: Python<'py>, group: &LocalityMetrics) -> PyResult<Bound<'py, PyDict>> {
    let numbers = PyDict::new(py);
    numbers.set_item("read_tiles", group.read_tiles)?;
    numbers.set_item("rows", group.rows)?;
    numbers.set_item("bytes", group.bytes)?;
    numbers.set_item("copied_bytes", group.copied_bytes)?;
    Ok(numbers)
}

#[pymethods]
impl PyQueryMetrics {
    /// Whether the run has ended: all rows were read, it failed, or nobody reads on.
    #[getter]
    fn done(&self) -> bool {
        self.core.is_done
    }

    /// Seconds since the rows were asked for, until the run ended. Planning is not part of it.
    #[getter]
    fn elapsed(&self) -> f64 {
        self.core.elapsed.as_secs_f64()
    }

    /// Seconds of these in which the run waited for its turn among other queries.
    #[getter]
    fn waited(&self) -> f64 {
        self.core.waited.as_secs_f64()
    }

    /// Rows that came out.
    #[getter]
    fn rows(&self) -> u64 {
        self.core.num_rows
    }

    /// Batches that came out.
    #[getter]
    fn batches(&self) -> u64 {
        self.core.num_batches
    }

    /// Tiles of the grids that the query scans.
    #[getter]
    fn tiles(&self) -> u64 {
        self.core.tiles()
    }

    /// Tiles that statistics left out before the run.
    #[getter]
    fn pruned_tiles(&self) -> u64 {
        self.core.pruned_tiles()
    }

    /// Tiles that were read, whole or in part.
    #[getter]
    fn read_tiles(&self) -> u64 {
        self.core.read_tiles()
    }

    /// Rows that the scans looked at.
    #[getter]
    fn read_rows(&self) -> u64 {
        self.core.read_rows
    }

    /// Bytes of the needed columns of these rows; of tiles elsewhere, all that came.
    #[getter]
    fn read_bytes(&self) -> u64 {
        self.core.bytes()
    }

    /// Bytes that were copied to be read: what came from elsewhere, nothing of tiles that are here, save nested columns that had to be rebuilt.
    #[getter]
    fn copied_bytes(&self) -> u64 {
        self.core.copied_bytes()
    }

    /// Bytes of rows that passed conditions and were put together into new batches; of texts that views point to, the views.
    #[getter]
    fn gathered_bytes(&self) -> u64 {
        self.core.gathered_bytes
    }

    /// Tiles that were left unread for what joins and sorts learned while the query ran (dynamic filters).
    #[getter]
    fn skipped_tiles(&self) -> u64 {
        self.core.skipped_tiles
    }

    /// Runs of rows (morsels) that were left unread for the same reason.
    #[getter]
    fn skipped_morsels(&self) -> u64 {
        self.core.skipped_morsels
    }

    /// Rows in them.
    #[getter]
    fn skipped_rows(&self) -> u64 {
        self.core.skipped_rows
    }

    /// Rows that were read and taken away by dynamic filters before any operator saw them.
    #[getter]
    fn filtered_rows(&self) -> u64 {
        self.core.filtered_rows
    }

    /// Bytes that were written to files, since the memory limit left no room.
    #[getter]
    fn spilled_bytes(&self) -> u64 {
        self.core.spilled_bytes
    }

    /// Files that they were written to.
    #[getter]
    fn spilled_files(&self) -> u64 {
        self.core.spilled_files
    }

    /// The most bytes that the run used of its memory limit at once. Tiles do not count.
    #[getter]
    fn peak_memory(&self) -> u64 {
        self.core.peak_memory_bytes
    }

    /// For each place that has tiles, nearest first: `tiles`, `kept_tiles`, `pruned_tiles`, `read_tiles`, `rows`, `bytes`, `copied_bytes`.
    #[getter]
    fn groups<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let groups = PyDict::new(py);
        for group in &self.core.groups {
            let numbers = read(py, group)?;
            numbers.set_item("tiles", group.tiles)?;
            numbers.set_item("kept_tiles", group.kept_tiles)?;
            numbers.set_item("pruned_tiles", group.pruned_tiles)?;
            groups.set_item(group.locality.name(), numbers)?;
        }
        Ok(groups)
    }

    /// Of a statement over grids of several processes, for each process id and each place that has tiles: `read_tiles`, `rows`, `bytes`, `copied_bytes`. Else empty; `groups` has none of it.
    #[getter]
    fn processes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let processes = PyDict::new(py);
        for process in &self.core.processes {
            let groups = PyDict::new(py);
            for group in &process.groups {
                groups.set_item(group.locality.name(), read(py, group)?)?;
            }
            processes.set_item(process.process, groups)?;
        }
        Ok(processes)
    }

    /// The operators of the plan, each before those it reads from: `depth`, `name`, `rows`, `seconds` (of all threads together) and `spilled_bytes`; None where an operator does not count.
    #[getter]
    fn operators<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let operators = self.core.operators.iter();
        operators
            .map(|operator| {
                let entry = PyDict::new(py);
                entry.set_item("depth", operator.depth)?;
                entry.set_item("name", &operator.name)?;
                entry.set_item("rows", operator.num_rows)?;
                let seconds = operator.compute.map(|time| time.as_secs_f64());
                entry.set_item("seconds", seconds)?;
                entry.set_item("spilled_bytes", operator.spilled_bytes)?;
                Ok(entry)
            })
            .collect()
    }

    /// All of it as a dict of plain values.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        all.set_item("done", self.done())?;
        all.set_item("elapsed", self.elapsed())?;
        all.set_item("waited", self.waited())?;
        for (name, value) in [
            ("rows", self.rows()),
            ("batches", self.batches()),
            ("tiles", self.tiles()),
            ("pruned_tiles", self.pruned_tiles()),
            ("read_tiles", self.read_tiles()),
            ("read_rows", self.read_rows()),
            ("read_bytes", self.read_bytes()),
            ("copied_bytes", self.copied_bytes()),
            ("gathered_bytes", self.gathered_bytes()),
            ("skipped_tiles", self.skipped_tiles()),
            ("skipped_morsels", self.skipped_morsels()),
            ("skipped_rows", self.skipped_rows()),
            ("filtered_rows", self.filtered_rows()),
            ("spilled_bytes", self.spilled_bytes()),
            ("spilled_files", self.spilled_files()),
            ("peak_memory", self.peak_memory()),
        ] {
            all.set_item(name, value)?;
        }
        all.set_item("groups", self.groups(py)?)?;
        all.set_item("processes", self.processes(py)?)?;
        all.set_item("operators", self.operators(py)?)?;
        Ok(all)
    }

    fn __repr__(&self) -> String {
        format!("QueryMetrics: {}", self.core)
    }
}

impl From<QueryProgress> for PyQueryProgress {
    fn from(core: QueryProgress) -> Self {
        Self { core }
    }
}

impl From<QueryMetrics> for PyQueryMetrics {
    fn from(core: QueryMetrics) -> Self {
        Self { core }
    }
}
