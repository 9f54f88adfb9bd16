//! Grids of SPMD programs: what a rank says of its part, and the grid of all parts. Used by `partgrid.engines.mpi`, which carries it between the ranks.

use std::net::IpAddr;
use std::sync::Arc;

use partgrid::error::Error;
use partgrid::grid::{Outline, PartitionGrid, RankPart};
use partgrid::location::{Device, Location};
use pyo3::prelude::*;

use crate::error::Outcome;
use crate::grid::PyGrid;
use crate::schema::PySchema;

/// Address, process; of a rank with data: columns, lengths of the row bands, cuts of the columns; of one whose grid is part of a program already: which tiles it has.
type Said<'py> = (
    String,
    u64,
    Option<(Bound<'py, PySchema>, Vec<u64>, Vec<u64>)>,
    Option<Vec<bool>>,
);

/// What this rank says of its part to the others. Pickles with the standard library.
///
/// Args:
///     grid: The part, or nothing.
///
/// Returns:
///     What `_from_ranks` takes of each rank.
#[pyfunction]
#[pyo3(name = "_rank_part")]
pub(crate) fn rank_part<'py>(
    py: Python<'py>,
    grid: Option<&Bound<'py, PyGrid>>,
) -> Outcome<Said<'py>> {
    let here = Location::here();
    let outline = match grid {
        None => None,
        Some(grid) => {
            let outline = Outline::of(grid.get().core());
            let schema = Bound::new(py, PySchema::new(outline.schema))?;
            Some((schema, outline.row_lengths, outline.column_cuts))
        }
    };
    let locals = grid.and_then(|grid| grid.get().core().locals().map(<[bool]>::to_vec));
    Ok((here.host().to_string(), here.process(), outline, locals))
}

/// The grid of all ranks.
///
/// Args:
///     parts: What each rank said, rank 0 first.
///     rank: The number of this one.
///     grid: The part of this one, or nothing.
///     comm: The communicator.
///
/// Returns:
///     The grid, on every rank with the same outline.
///
/// Raises:
///     InvalidArgumentError: The ranks have other columns or column cuts; on all ranks alike.
#[pyfunction]
#[pyo3(name = "_from_ranks")]
pub(crate) fn from_ranks(
    parts: Vec<Said<'_>>,
    rank: usize,
    grid: Option<&Bound<'_, PyGrid>>,
    comm: Py<PyAny>,
) -> Outcome<PyGrid> {
    let parts: Result<Vec<RankPart>, Error> = parts
        .into_iter()
        .map(|(host, process, outline, locals)| {
            let host: IpAddr = host
                .parse()
                .map_err(|_| Error::invalid_argument(format!("no IP address: {host}")))?;
            let outline = outline.map(|(schema, row_lengths, column_cuts)| Outline {
                schema: Arc::clone(schema.get().core()),
                row_lengths,
                column_cuts,
            });
            Ok(RankPart {
                location: Location::new(host, process, Device::CPU),
                outline,
                locals,
            })
        })
        .collect();
    let local = grid.map(|grid| grid.get().core().as_ref());
    let grid = PartitionGrid::try_from_ranks(&parts?, rank, local)?;
    Ok(PyGrid::of_ranks(grid, Some(comm)))
}
