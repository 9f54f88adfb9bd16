//! `Grid`: what it is (here), what it becomes (`out.rs`), which protocols it has (`protocols.rs`).

mod out;
mod protocols;

use std::sync::Arc;

use arrow::array::RecordBatch;
use partgrid::error::{Error, Result as CoreResult};
use partgrid::grid::{PartitionGrid, Ranks, picture};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::argument::{self, Given};
use crate::connection::PyConnection;
use crate::convert;
use crate::error::Outcome;
use crate::index::indexed;
use crate::partitioned::handles;
use crate::query::sql;
use crate::result::PyQuery;
use crate::runtime::Aside;
use crate::tile::PyTile;

/// A dataframe cut into a grid of tiles: axis 0 is rows, axis 1 columns. Never changes; what looks like a change makes a new grid that shares the tiles.
///
/// Pickles with the standard library, without data: another process of this host opens the tiles in shared memory (`to_shared`).
///
/// Made by `read_parquet`, `from_arrow`, `Result.to_grid`, or by indexing another grid: `grid["a"]` and `grid[["a", "b"]]` are grids of these columns, `grid[10:20]` is
/// a grid of these rows, `grid[10:20, ["a"]]` of both. Nothing is copied by any of them.
#[pyclass(name = "Grid", module = "partgrid", frozen, weakref)]
pub(crate) struct PyGrid {
    core: Aside<Arc<PartitionGrid>>,
    /// The handles of all tiles, made once so that they keep their identity.
    handles: PyOnceLock<Py<PyList>>,
    /// The communicator of the SPMD program of which the grid is a part.
    comm: Option<Py<PyAny>>,
    /// Who gave it, and its name there.
    server: Option<(Py<PyConnection>, String)>,
}

impl PyGrid {
    pub(crate) fn new(core: PartitionGrid) -> Self {
        Self::shared(Arc::new(core))
    }

    /// A grid that others may have as well.
    pub(crate) fn shared(core: Arc<PartitionGrid>) -> Self {
        Self {
            core: Aside::new(core),
            handles: PyOnceLock::new(),
            comm: None,
            server: None,
        }
    }

    /// A whole grid of a server.
    pub(crate) fn of_server(core: PartitionGrid, by: Py<PyConnection>, name: String) -> Self {
        Self {
            server: Some((by, name)),
            ..Self::new(core)
        }
    }

    /// A grid of the ranks of a communicator.
    pub(crate) fn of_ranks(core: PartitionGrid, comm: Option<Py<PyAny>>) -> Self {
        Self {
            comm,
            ..Self::new(core)
        }
    }

    pub(crate) fn comm<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.comm.as_ref().map(|comm| comm.bind(py).clone())
    }

    pub(crate) fn core(&self) -> &Arc<PartitionGrid> {
        &self.core
    }

    pub(crate) fn handles<'py>(&self, py: Python<'py>) -> Outcome<&Bound<'py, PyList>> {
        let made = || handles(py, &self.core);
        Ok(self.handles.get_or_try_init(py, made)?.bind(py))
    }

    /// The row bands as batches, opened when they are asked for.
    fn row_bands(&self) -> impl Iterator<Item = CoreResult<RecordBatch>> + Send + use<> {
        let grid = Arc::clone(&self.core);
        let bands = 0..grid.rows().num_intervals();
        bands.map(move |row_band| grid.open_row_band(row_band))
    }

    fn make_tile(&self, position: Vec<usize>) -> Outcome<PyTile> {
        PyTile::try_new(&self.core, position)
    }
}

#[pymethods]
impl PyGrid {
    /// Rows and columns.
    #[getter]
    fn shape(&self) -> (u64, usize) {
        (self.core.num_rows(), self.core.num_columns())
    }

    /// The number of tiles along rows and columns.
    #[getter]
    fn tiling(&self) -> (usize, usize) {
        (
            self.core.rows().num_intervals(),
            self.core.columns().num_intervals(),
        )
    }

    /// The cut points of the rows and of the columns: they start at 0 and end with the shape.
    #[getter]
    fn cuts<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyTuple>)> {
        Ok((
            PyTuple::new(py, self.core.rows().cuts())?,
            PyTuple::new(py, self.core.columns().cuts())?,
        ))
    }

    /// The names of the columns, in order.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let fields = self.core.schema().fields();
        fields.iter().map(|field| field.name().clone()).collect()
    }

    /// The schema as a `pyarrow.Schema`. Needs pyarrow; other libraries take the grid itself, which has `__arrow_c_schema__`.
    #[getter]
    fn schema<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_arrow_schema(slf.as_any())
    }

    /// The columns by which rows are sorted, with their directions; empty when nothing is known.
    ///
    /// Holds from the first row to the last; of a grid with `partitioned_by`, within each row band. Nulls come last in either direction.
    ///
    /// Examples:
    ///     >>> import partgrid as pg
    ///     >>> pg.read_parquet("data/flights", columns=["day"], sort_by=("day", "descending")).sorted_by
    ///     [('day', 'descending')]
    #[getter]
    fn sorted_by(&self) -> Vec<(String, &'static str)> {
        let columns = self.core.order().sorted_by.iter();
        let pairs = columns.map(|column| {
            let direction = if column.descending {
                "descending"
            } else {
                "ascending"
            };
            (column.name.clone(), direction)
        });
        pairs.collect()
    }

    /// The columns whose values decide in which row band a row is; empty when nothing is known.
    ///
    /// Of n row bands it is number `h % n`, where `h` is the XXH64 (seed 0) of the values in Arrow's row format.
    #[getter]
    fn partitioned_by(&self) -> Vec<String> {
        self.core.order().partitioned_by.clone()
    }

    /// The bytes of all tiles together, without what they share with others.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.core.memory_bytes()
    }

    /// In an SPMD program the number of this process; else `None`.
    #[getter]
    fn rank(&self) -> Option<usize> {
        self.core.ranks().map(Ranks::rank)
    }

    /// In an SPMD program how many ranks there are; else `None`.
    #[getter]
    fn num_ranks(&self) -> Option<usize> {
        self.core.ranks().map(Ranks::num_ranks)
    }

    /// All tiles in row-major order.
    #[getter]
    fn tiles(&self) -> Outcome<Vec<PyTile>> {
        self.core
            .geometry()
            .positions()
            .map(|position| self.make_tile(position))
            .collect()
    }

    /// Where each tile can be read without communication. Of a grid of a cluster, which members have it.
    ///
    /// Returns:
    ///     For each tile, in row-major order, a list of `(IP, PID)` or `(IP, PID, device)`, this process first.
    ///
    /// Examples:
    ///     >>> import os, partgrid as pg
    ///     >>> grid = pg.read_parquet("data/airlines.parquet")
    ///     >>> [[pid == os.getpid() for _, pid in places] for places in grid.locations()]
    ///     [[True]]
    fn locations<'py>(&self, py: Python<'py>) -> Outcome<Vec<Vec<Bound<'py, PyTuple>>>> {
        let tiles = self.core.geometry().positions();
        tiles
            .map(|position| self.make_tile(position)?.location(py))
            .collect()
    }

    /// The tile at a position.
    ///
    /// Args:
    ///     row_band: The number along the rows.
    ///     column_band: The number along the columns.
    ///
    /// Returns:
    ///     The tile, which shares the grid's memory.
    ///
    /// Raises:
    ///     NotFoundError: The position lies outside the grid.
    ///     InvalidArgumentError: A number is negative, or no whole number.
    #[pyo3(signature = (row_band, column_band: "int" = 0))]
    fn tile(
        &self,
        row_band: Given<usize>,
        #[pyo3(from_py_with = argument::column_band)] column_band: usize,
    ) -> Outcome<PyTile> {
        self.make_tile(vec![row_band.named("row_band")?, column_band])
    }

    /// Runs SQL over this grid under the name `self`.
    ///
    /// Args:
    ///     query: The SQL text, for instance `SELECT carrier, count(*) FROM self GROUP BY carrier`.
    ///     params: Values for its parameters: a list for `$1`, `$2` or `?`, a dict for `$name`; see `Session.sql`.
    ///
    /// Returns:
    ///     A result that has not run yet.
    ///
    /// Raises:
    ///     QueryError: The SQL is wrong.
    #[pyo3(signature = (query, params=None))]
    fn sql(
        slf: &Bound<'_, Self>,
        query: Given<String>,
        params: Option<&Bound<'_, PyAny>>,
    ) -> Outcome<PyQuery> {
        let grids = PyDict::new(slf.py());
        grids.set_item("self", slf)?;
        sql(slf.py(), query, params, Some(&grids))
    }

    /// Has the cluster spread the rows of this grid over the members that are there now, as `Server.rebalance` says, and waits. Tiles of this grid that were not read are lost then, as where a grid is replaced.
    ///
    /// Args:
    ///     without: The URIs of members that are to have nothing of it, as for `Server.rebalance`.
    ///
    /// Returns:
    ///     The grid as it is then: the same rows in the same order. `Connection.rebalance` says how much was moved.
    ///
    /// Raises:
    ///     UnsupportedError: It is no grid of `Connection.grid`, or only some of its rows or columns.
    ///     InvalidArgumentError: `without` names who is no member, or all members.
    ///     PermissionDeniedError: The token of the connection may not do everything with all grids.
    ///     NotFoundError: The server is no member of a cluster, or knows no grid of all by its name any more.
    ///     PartitionLostError: A part of it is gone.
    ///     WorkerLostError, StorageError and others: A member could not take its share. The grid is as it was.
    #[pyo3(signature = (*, without=None))]
    fn rebalance(&self, py: Python<'_>, without: Option<Given<Vec<String>>>) -> Outcome<Self> {
        let Some((connection, name)) = &self.server else {
            let text =
                "only a whole grid of a cluster can be rebalanced: this one has no name there";
            let hint = "take it with connection.grid(name); where tiles of other grids are is up to those who made them";
            return Err(Error::unsupported(text).with_hint(hint).into());
        };
        let connection = connection.bind(py);
        connection.get().moved(py, name, without)?;
        PyConnection::found(connection, name.clone())
    }

    /// The number of rows.
    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.core.num_rows())?)
    }

    /// Iterating would have to choose between rows, columns and tiles.
    #[classattr]
    #[pyo3(name = "__iter__")]
    fn iterate() -> Option<()> {
        None
    }

    fn __contains__(&self, column: &Bound<'_, PyAny>) -> bool {
        let name = column.extract::<&str>();
        name.is_ok_and(|name| self.core.column_index(name).is_ok())
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> Outcome<Self> {
        let comm = self.comm(key.py()).map(Bound::unbind);
        Ok(Self::of_ranks(indexed(&self.core, key)?, comm))
    }

    fn __repr__(&self) -> String {
        picture::summary(&self.core)
    }

    /// The grid for notebooks: a small picture of its tiles, and the columns.
    fn _repr_html_(&self) -> String {
        picture::html(&self.core)
    }
}
