//! Storages as grids.
//!
//! Comes in: a storage. Goes out: a grid over its memory, which is frozen. Never here: copies.

use std::sync::Arc;

use partgrid::error::{Error, ErrorKind};
use pyo3::prelude::*;

use super::PyStorage;
use crate::argument::{Given, optional};
use crate::error::Outcome;
use crate::grid::PyGrid;

/// Makes a grid of one tile over the memory of a storage, without copying: a dense band, whose columns are one array.
///
/// A storage of one dimension becomes one column, one of two dimensions a column for each index of the second; the elements along the first dimension must be neighbours
/// (`layout=(1, 0)`). Since a grid never changes, the storage is frozen for good: its views are read-only from then on, and it is refused while a view exists that can write, such as an
/// array of `numpy.asarray(storage)` that is still held. Who took its address from `__array_interface__` must not write to it any more.
///
/// Args:
///     storage: A storage of integers or floats.
///     names: The names of the columns, by default `column_0`, `column_1` and so on.
///
/// Returns:
///     The grid. It keeps the memory alive.
///
/// Raises:
///     InvalidArgumentError: The shape or the layout is not that of columns, names do not fit, or a view can still write.
///     UnsupportedError: The elements are no integers or floats in the byte order of this machine.
///     NotLocalError: The memory is that of a device.
///     ProtocolError: It is no storage.
///
/// Examples:
///     >>> import partgrid as pg
///     >>> storage = pg.storage.full((3, 2), 1.5, layout=(1, 0))
///     >>> grid = pg.from_storage(storage, names=["a", "b"])
///     >>> grid.tile(0).array().address == storage.address
///     True
///     >>> storage
///     Storage (3, 2) of float64, layout (1, 0), frozen
#[pyfunction]
#[pyo3(signature = (storage, names=None))]
pub(crate) fn from_storage(
    storage: &Bound<'_, PyAny>,
    names: Option<Given<Vec<String>>>,
) -> Outcome<PyGrid> {
    let names = optional(names, "names")?;
    let Ok(ours) = storage.cast::<PyStorage>() else {
        let class = storage.get_type().qualname()?;
        return Err(Error::new(
            ErrorKind::Protocol,
            format!("a partgrid.storage.Storage was expected, got {class}"),
        )
        .with_hint("from_numpy and from_dlpack take other arrays")
        .into());
    };
    let core = Arc::clone(&ours.get().core);
    let grid = storage.py().detach(|| core.try_into_grid(names))?;
    Ok(PyGrid::new(grid))
}
