//! Grids of frames of other libraries: `from_arrow`, and cells in rows.
//!
//! Comes in: objects with Arrow capsules. Goes out: grids over the same memory. Never here: libraries by name, which `partgrid._frames` and `partgrid.engines` know.

use partgrid::error::Error;
use partgrid::grid::PartitionGrid;
use pyo3::prelude::*;

use crate::argument::{items, shown};
use crate::capsule::batches_of;
use crate::device::device_grid_of;
use crate::error::Outcome;
use crate::grid::PyGrid;
use crate::partitioned::one_batch;

/// Makes a grid of any object with `__arrow_c_stream__` or `__arrow_c_array__`, one tile for each batch, without copying.
///
/// pyarrow tables and batches, polars, pandas 3, duckdb and arro3 frames have these methods. Memory of a device (`__arrow_c_device_array__` of pylibcudf, or
/// `__arrow_c_device_stream__`) stays there: its tiles say where they are. Sliced nested columns are the one exception: they are copied. polars copies
/// frames of several chunks into one before it hands them over; `from_polars` does not.
///
/// Args:
///     data: The object.
///
/// Returns:
///     A grid that shares the object's memory.
///
/// Raises:
///     ProtocolError: The object has none of these methods.
///     InvalidArgumentError: Two columns share a name.
///
/// Examples:
///     >>> import partgrid as pg, pyarrow as pa
///     >>> pg.from_arrow(pa.table({"a": [1, 2, 3]})).shape
///     (3, 1)
#[pyfunction]
pub(crate) fn from_arrow(data: &Bound<'_, PyAny>) -> Outcome<PyGrid> {
    if let Ok(grid) = data.cast::<PyGrid>() {
        return Ok(PyGrid::new(PartitionGrid::clone(grid.get().core())));
    }
    if let Some(grid) = device_grid_of(data)? {
        return Ok(PyGrid::new(grid));
    }
    let (schema, batches) = batches_of(data)?;
    Ok(PyGrid::new(PartitionGrid::try_from_batches(
        schema, &batches,
    )?))
}

/// Makes a grid of one tile for each cell: of a list of row bands, each a list of objects with Arrow capsules. Used by the engines.
///
/// Args:
///     cells: The cells; `cells[1][0]` becomes the tile of row band 1 and column band 0.
///
/// Returns:
///     A grid over the memory of the cells; a cell of several batches is copied into one.
///
/// Raises:
///     InvalidArgumentError: A cell does not fit those beside it or above it; the text has its position.
///     ProtocolError: A cell has no Arrow capsules.
#[pyfunction]
#[pyo3(name = "_from_parts")]
pub(crate) fn from_cells(cells: &Bound<'_, PyAny>) -> Outcome<PyGrid> {
    let rows = listed(cells)?;
    let read = |row: &Bound<'_, PyAny>| listed(row)?.iter().map(one_batch).collect();
    let rows: Outcome<Vec<_>> = rows.iter().map(read).collect();
    Ok(PyGrid::new(PartitionGrid::try_from_cells(&rows?)?))
}

fn listed<'py>(value: &Bound<'py, PyAny>) -> Result<Vec<Bound<'py, PyAny>>, Error> {
    items(value).ok_or_else(|| {
        let text = format!("cells must be a list of lists, got {}", shown(value));
        Error::invalid_argument(text)
    })
}
