//! Handles: names of tiles that pickle.

use std::sync::Arc;

use arrow::array::RecordBatch;
use partgrid::error::Error;
use partgrid::grid::{GridId, PartitionGrid};
use partgrid::location::Location;
use partgrid::share::{self, Handle, Incarnation};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use crate::error::Outcome;
use crate::tile::PyTile;

/// Names one tile of one grid, wherever it lives. Small, hashable, and pickles with the standard library; the data stays where it is.
///
/// A handle keeps its grid alive in the process that made it; a pickled one does not.
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
    pub(super) fn batch(&self) -> Outcome<RecordBatch> {
        Ok(share::open(&self.core)?.open()?)
    }
}

/// What a pickled handle carries: grid, position, incarnation, owner's address, process and device.
type Parts = (u128, Vec<usize>, u128, String, u64, String);

#[pymethods]
impl PyHandle {
    /// The position of the tile in its grid.
    #[getter]
    fn position<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.core.position)
    }

    /// The tile. Nothing is copied.
    ///
    /// Returns:
    ///     The tile that the handle names.
    ///
    /// Raises:
    ///     PartitionLostError: The grid lived in this process and is gone.
    ///     NotLocalError: The tile lives in another process.
    pub(super) fn tile(&self) -> Outcome<PyTile> {
        share::open(&self.core)?;
        let grid = share::find(self.core.grid)
            .ok_or_else(|| Error::internal("an opened handle has a grid in this process"))?;
        PyTile::try_new(&grid, self.core.position.clone())
    }

    /// Makes a handle from what another one pickled. Used by `pickle`.
    #[classmethod]
    fn _from_parts(_class: &Bound<'_, PyType>, parts: Parts) -> Outcome<Self> {
        let (grid, position, incarnation, host, process, device) = parts;
        let host = host
            .parse()
            .map_err(|_| Error::invalid_argument(format!("no IP address: {host}")))?;
        let core = Handle {
            grid: GridId::from_bits(grid),
            position,
            incarnation: Incarnation::from_bits(incarnation),
            owner: Location::new(host, process, device.parse()?),
        };
        Ok(Self { core, _kept: None })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Parts,))> {
        let core = &slf.get().core;
        let parts = (
            core.grid.bits(),
            core.position.clone(),
            core.incarnation.bits(),
            core.owner.host().to_string(),
            core.owner.process(),
            core.owner.device().to_string(),
        );
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
