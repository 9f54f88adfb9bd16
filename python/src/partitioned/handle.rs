//! Handles: names of tiles that pickle.

use std::sync::Arc;

use arrow::array::RecordBatch;
use partgrid::grid::PartitionGrid;
use partgrid::share::{self, Handle};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use crate::error::Outcome;
use crate::share::{HandleParts, handle_of, opened, parts_of};
use crate::tile::PyTile;

/// Names one tile of one grid, wherever it lives. Small, hashable, and pickles with the standard library; the data stays where it is.
///
/// A handle keeps its grid alive in the process that made it; a pickled one does not. Another process of the same user and host opens it in shared memory.
#[pyclass(name = "Handle", module = "partgrid", frozen, eq, hash)]
pub(crate) struct PyHandle {
    core: Handle,
    /// Keeps the grid alive. Not there in a handle that was unpickled.
    _kept: Option<Arc<PartitionGrid>>,
}

impl PartialEq for PyHandle {
    fn eq(&self, other: &Self) -> bool {
        self.core == other.core
    }
}

impl std::hash::Hash for PyHandle {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.core.hash(state);
    }
}

impl PyHandle {
    pub(super) fn new(core: Handle, grid: &Arc<PartitionGrid>) -> Self {
        Self {
            core,
            _kept: Some(Arc::clone(grid)),
        }
    }

    /// The data of the tile.
    pub(super) fn batch(&self, py: Python<'_>) -> Outcome<RecordBatch> {
        let (tile, _) = opened(py, &self.core)?;
        Ok(py.detach(|| tile.open())?)
    }
}

#[pymethods]
impl PyHandle {
    /// The position of the tile in its grid.
    #[getter]
    fn position<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.core.position)
    }

    /// The tile: of this process, or over the memory of another one of this user on this host. Nothing is copied, unless the tile is in private memory there: it is then copied once, for all
    /// processes that have it open at a time (see `Grid.to_shared`).
    ///
    /// What is open stays readable when the other process ends.
    ///
    /// Returns:
    ///     The tile that the handle names.
    ///
    /// Raises:
    ///     PartitionLostError: The grid was dropped, or its process has ended.
    ///     NotLocalError: The tile lives on another host.
    ///     ResourcesExhaustedError: Its process does not answer within seconds, or has no room.
    ///     PermissionDeniedError: Its process is another user's.
    pub(super) fn tile(&self, py: Python<'_>) -> Outcome<PyTile> {
        if let Some(grid) = share::find(self.core.grid) {
            return PyTile::try_new(&grid, self.core.position.clone());
        }
        let (tile, region) = opened(py, &self.core)?;
        let made = PyTile::new(tile, self.core.position.clone(), region);
        Ok(made.with_handle(self.core.clone(), None))
    }

    /// Makes a handle from what another one pickled. Used by `pickle`.
    #[classmethod]
    fn _from_parts(_class: &Bound<'_, PyType>, parts: HandleParts) -> Outcome<Self> {
        let core = handle_of(parts)?;
        Ok(Self { core, _kept: None })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Outcome<(Bound<'py, PyAny>, (HandleParts,))> {
        let parts = parts_of(&slf.get().core)?;
        Ok((slf.get_type().getattr("_from_parts")?, (parts,)))
    }

    fn __repr__(&self) -> Outcome<String> {
        let position = partgrid::error::format_position(&self.core.position);
        Ok(format!(
            "Handle {position} of grid {} at {}",
            self.core.grid, self.core.owner
        ))
    }
}
