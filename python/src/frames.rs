//! Grids of frames of other libraries: `from_arrow`, and cells in rows.
//!
//! Comes in: objects with Arrow capsules. Goes out: grids over the same memory. Never here: libraries by name, which `partgrid._frames` and `partgrid.engines` know.

use partgrid::error::Error;
use partgrid::grid::{PartitionGrid, named_batches};
use pyo3::prelude::*;

use crate::argument::{Given, items, optional, shown};
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
///     names: The names of the columns, in place of those that the object gives; by default `column_0`, `column_1` and so on where it gives none, as tables of pylibcudf.
///
/// Returns:
///     A grid that shares the object's memory.
///
/// Raises:
///     ProtocolError: The object has none of these methods.
///     InvalidArgumentError: Two columns share a name, or there are not as many names as columns.
///     UnsupportedError: Names for a grid, whose columns have theirs.
///
/// Examples:
///     >>> import partgrid as pg, pyarrow as pa
///     >>> pg.from_arrow(pa.table({"a": [1, 2, 3]})).shape
///     (3, 1)
///     >>> pg.from_arrow(pa.table([[1, 2, 3], ["x", "y", "z"]], names=["", ""]), names=["number", "letter"]).to_arrow().column_names
///     ['number', 'letter']
#[pyfunction]
#[pyo3(signature = (data, names=None))]
pub(crate) fn from_arrow(
    data: &Bound<'_, PyAny>,
    names: Option<Given<Vec<String>>>,
) -> Outcome<PyGrid> {
    let names = optional(names, "names")?;
    let Ok(grid) = data.cast::<PyGrid>() else {
        return Ok(PyGrid::new(grid_of_capsules(data, names.as_deref())?));
    };
    if names.is_some() {
        let text = "the columns of a grid keep their names";
        return Err(Error::unsupported(text)
            .with_hint("SQL gives others: grid.sql('SELECT a AS b FROM self').to_grid()")
            .into());
    }
    Ok(PyGrid::new(PartitionGrid::clone(grid.get().core())))
}

/// A grid over the memory of an object with Arrow capsules. Its columns have the names that are given, see [`named_batches`].
pub(crate) fn grid_of_capsules(
    object: &Bound<'_, PyAny>,
    names: Option<&[String]>,
) -> Outcome<PartitionGrid> {
    if let Some(grid) = device_grid_of(object, names)? {
        return Ok(grid);
    }
    let (schema, batches) = batches_of(object)?;
    let (schema, batches) = named_batches(&schema, &batches, names)?;
    Ok(PartitionGrid::try_from_batches(schema, &batches)?)
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
