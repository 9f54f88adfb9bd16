//! What stands between the brackets of `grid[...]` -> a part of the grid.

use partgrid::error::Error;
use partgrid::grid::PartitionGrid;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PySlice, PySliceMethods};

use crate::error::Outcome;

/// The rows of a slice, or the columns of a name or a list of names.
pub(crate) fn part(grid: &PartitionGrid, key: &Bound<'_, PyAny>) -> Outcome<PartitionGrid> {
    if let Ok(slice) = key.cast::<PySlice>() {
        let length = isize::try_from(grid.num_rows()).unwrap_or(isize::MAX);
        let indices = slice.indices(length)?;
        if indices.step != 1 {
            return Err(Error::invalid_argument(format!(
                "a slice of rows must have step 1, got {}",
                indices.step
            ))
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
    Err(PyTypeError::new_err(format!(
        "a grid is indexed by a column name, a list of names, or a slice of rows, got {class}\nhint: grid.tile(row_band, column_band) gives a tile"
    ))
    .into())
}
