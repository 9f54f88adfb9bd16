//! `from_distarray`: the sections of anybody -> a grid.

use arrow::array::ArrayRef;
use partgrid::distarray::check::SectionInfo;
use partgrid::distarray::{Distribution, fits_frame, import};
use partgrid::error::Error;
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PySlice, PyTuple};

use super::array::{described, listed};
use crate::argument::{Given, optional};
use crate::convert;
use crate::error::Outcome;
use crate::grid::PyGrid;
use crate::numpy::columns_of;

/// Makes a grid of a distributed array: the sections of all its ranks, of version 0.9 or 0.10 of the Distributed Array Protocol. Needs numpy.
///
/// Blocks become tiles over the memory of the sections. Cyclic and unstructured dimensions are gathered into the order of the global indices. Elements of communication padding, which belong
/// to other ranks, are left away. One dimension is a frame of one column, two are rows and columns.
///
/// Args:
///     sections: Objects with `__distarray__`, or their dictionaries, rank 0 first.
///     names: The names of the columns; by default `column_0`, `column_1` and so on.
///
/// Returns:
///     A grid with the cuts of the blocks. Copied are columns that do not lie in one piece (a section of several columns in C order), foreign byte order, and what is gathered. Do not write to
///     the sections while the grid is in use.
///
/// Raises:
///     ProtocolError: A rule of the protocol is broken; the text names rule, rank, dimension and key. `partgrid.distarray.validate` lists everything.
///     UnsupportedError: More than two dimensions, elements that are no numbers, or labels of an unstructured dimension that are not 0 up to its size.
///     InvalidArgumentError: There is another number of names than of columns.
///
/// Examples:
///     >>> import numpy as np, partgrid as pg
///     >>> def section(rank):
///     ...     block = {"dist_type": "b", "size": 4, "proc_grid_size": 2, "proc_grid_rank": rank, "start": 2 * rank, "stop": 2 * rank + 2}
///     ...     return {"__version__": "0.10.0", "buffer": np.full(2, rank), "dim_data": (block,)}
///     >>> grid = pg.from_distarray([section(0), section(1)], names=["rank"])
///     >>> grid.to_arrow()["rank"].to_pylist()
///     [0, 0, 1, 1]
#[pyfunction]
#[pyo3(signature = (sections, names=None))]
pub(crate) fn from_distarray(
    sections: &Bound<'_, PyAny>,
    names: Option<Given<Vec<String>>>,
) -> Outcome<PyGrid> {
    let names = optional(names, "names")?;
    let (buffers, infos) = described(&listed(sections)?)?;
    let distribution = Distribution::try_from_sections(&infos)?;
    fits_frame(&distribution)?;
    let mut columns = Vec::with_capacity(infos.len());
    for (rank, (info, buffer)) in infos.iter().zip(&buffers).enumerate() {
        let found = columns_owned(buffer.bind(sections.py()), info);
        columns.push(found.map_err(|error| error.at_rank(rank))?);
    }
    Ok(PyGrid::new(import(
        &distribution,
        &columns,
        names.as_deref(),
    )?))
}

/// The columns of what a section owns; the halo is left away.
fn columns_owned(buffer: &Bound<'_, PyAny>, info: &SectionInfo) -> Outcome<Vec<ArrayRef>> {
    let py = buffer.py();
    let numpy = convert::import(py, "numpy", "from_distarray")?;
    let view = numpy.call_method1("asarray", (PyMemoryView::from(buffer)?,))?;
    let owned = info.owned();
    if owned.iter().any(|part| part.indices.is_empty()) {
        // Nothing is there, but columns have a type.
        let width = owned.get(1).map_or(1, |part| part.indices.len());
        let kind = view.getattr("dtype")?;
        let empty = numpy.call_method1("zeros", (0, kind))?;
        let column = columns_of(&empty)?.pop();
        let column =
            column.ok_or_else(|| Error::internal("an array of one dimension is a column"))?;
        return Ok(vec![column; width]);
    }
    let slices = owned.iter().map(|part| {
        let bound = |place: usize| isize::try_from(place).unwrap_or(isize::MAX);
        let stop = part.local.saturating_add(part.indices.len());
        PySlice::new(py, bound(part.local), bound(stop), 1)
    });
    let slices = PyTuple::new(py, slices.collect::<Vec<_>>())?;
    let view = match owned.is_empty() {
        true => view.call_method1("reshape", (1,))?,
        false => view.get_item(slices)?,
    };
    columns_of(&view)
}
