//! What stands between the brackets of `grid[...]` -> a part of the grid.

use partgrid::error::Error;
use partgrid::grid::PartitionGrid;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PySlice, PySliceMethods, PyTuple};

use crate::error::Outcome;

/// The part of a grid between the brackets.
pub(crate) fn indexed(grid: &PartitionGrid, key: &Bound<'_, PyAny>) -> Outcome<PartitionGrid> {
    let Ok(pair) = key.cast::<PyTuple>() else {
        return part(grid, key);
    };
    let wrong = || {
        PyTypeError::new_err(
            "two indices must be a slice of rows and names of columns, as in grid[10:20, [\"a\"]]; for several columns use grid[[\"a\", \"b\"]]",
        )
    };
    let (rows, columns): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
        pair.extract().map_err(|_| wrong())?;
    if !rows.is_instance_of::<PySlice>() || columns.is_instance_of::<PySlice>() {
        return Err(wrong().into());
    }
    part(&part(grid, &rows)?, &columns)
}

/// The rows of a slice, or the columns of a name or a list of names.
fn part(grid: &PartitionGrid, key: &Bound<'_, PyAny>) -> Outcome<PartitionGrid> {
    if let Ok(slice) = key.cast::<PySlice>() {
        let length = isize::try_from(grid.num_rows()).unwrap_or(isize::MAX);
        let indices = slice.indices(length)?;
        if indices.step != 1 {
            return Err(Error::invalid_argument(format!(
                "a slice of rows must have step 1, got {}",
                indices.step
            ))
            .with_hint("grid.sql(\"SELECT * FROM self WHERE …\") takes some of the rows, with ORDER BY in another order")
            .into());
        }
        let start = u64::try_from(indices.start).unwrap_or(0);
        let stop = u64::try_from(indices.stop).unwrap_or(0).max(start);
        return Ok(grid.slice(start..stop)?);
    }
    if let Ok(name) = key.extract::<String>() {
        return Ok(grid.select(&[name])?);
    }
    if let Ok(names) = key.extract::<Vec<String>>() {
        return Ok(grid.select(&names)?);
    }
    let class = key.get_type().qualname()?;
    let hint = if key.is_instance_of::<PyInt>() {
        "grid[3:4] is the row 3, grid.tile(row_band, column_band) a tile"
    } else {
        "grid.sql(\"SELECT * FROM self WHERE …\") takes some of the rows"
    };
    Err(PyTypeError::new_err(format!(
        "a grid is indexed by a column name, a list of names, or a slice of rows, got {class}\nhint: {hint}"
    ))
    .into())
}
