//! Grids, tiles and handles across process borders: pickling, shared memory.
//!
//! Comes in: objects to pickle, or what another process pickled. Goes out: plain data that names tiles and holds none; objects that open shared memory. Never here: what may be opened, which the
//! core decides.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::StreamWriter;
use partgrid::error::Error;
use partgrid::grid::{Axis, GridId, Region, RowOrder, SortColumn, Tile};
use partgrid::location::Location;
use partgrid::share::{self, Handle, Incarnation, RemoteTile, SharedSegment};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple, PyType};

use crate::error::Outcome;
use crate::grid::PyGrid;
use crate::runtime::wait;
use crate::tile::PyTile;

/// What a pickled handle carries: grid, position, incarnation, owner's address, process and device.
pub(crate) type HandleParts = (u128, Vec<usize>, u128, String, u64, String);

/// What a pickled tile carries: handle, schema, position, start, shape, bytes.
type TileParts<'py> = (
    HandleParts,
    Bound<'py, PyBytes>,
    Vec<usize>,
    Vec<u64>,
    Vec<u64>,
    u64,
);

/// What a pickled grid carries: id, schema, cuts, order (columns with directions, partitioning), handles (one, if all differ by their positions only), bytes of each tile.
type GridParts<'py> = (
    u128,
    Bound<'py, PyBytes>,
    [Vec<u64>; 2],
    (Vec<(String, bool)>, Vec<String>),
    Vec<HandleParts>,
    Vec<u64>,
);

/// What a handle says. From now on other processes can open those of this one.
pub(crate) fn parts_of(handle: &Handle) -> Outcome<HandleParts> {
    if handle.incarnation == Incarnation::current()? {
        share::serve()?;
    }
    Ok((
        handle.grid.bits(),
        handle.position.clone(),
        handle.incarnation.bits(),
        handle.owner.host().to_string(),
        handle.owner.process(),
        handle.owner.device().to_string(),
    ))
}

/// The handle that says this.
pub(crate) fn handle_of(parts: HandleParts) -> Outcome<Handle> {
    let (grid, position, incarnation, host, process, device) = parts;
    let host = host
        .parse()
        .map_err(|_| Error::invalid_argument(format!("no IP address: {host}")))?;
    Ok(Handle {
        grid: GridId::from_bits(grid),
        position,
        incarnation: Incarnation::from_bits(incarnation),
        owner: Location::new(host, process, device.parse()?),
    })
}

/// The tile of a handle, with its place. Another process may take its time, and Ctrl-C is obeyed meanwhile.
pub(crate) fn opened(py: Python<'_>, handle: &Handle) -> Outcome<(Tile, Region)> {
    if share::find(handle.grid).is_some() {
        return Ok(share::open_region(handle)?);
    }
    let handle = handle.clone();
    wait(py, async move {
        let opening = tokio::task::spawn_blocking(move || share::open_region(&handle));
        let ended = |_| Error::internal("a thread that opened a tile ended");
        opening.await.map_err(ended)?
    })
}

/// A schema as IPC.
pub(crate) fn schema_bytes<'py>(
    py: Python<'py>,
    schema: &SchemaRef,
) -> Outcome<Bound<'py, PyBytes>> {
    let mut stream = Vec::new();
    StreamWriter::try_new(&mut stream, schema)?.finish()?;
    Ok(PyBytes::new(py, &stream))
}

/// The schema of IPC.
pub(crate) fn schema_from(stream: &[u8]) -> Outcome<SchemaRef> {
    Ok(share::schema_of_stream(stream)?)
}

#[pymethods]
impl PyTile {
    /// Makes a tile from what another one pickled. Used by `pickle`.
    #[classmethod]
    fn _from_parts(_class: &Bound<'_, PyType>, parts: TileParts<'_>) -> Outcome<Self> {
        let (handle, schema, position, start, shape, bytes) = parts;
        let handle = handle_of(handle)?;
        let region = Region::try_new(start, shape)?;
        if let Some(grid) = share::find(handle.grid) {
            let tile = grid.tile(&handle.position)?.clone();
            let made = Self::new(tile, position, region);
            return Ok(made.with_handle(handle, Some(grid)));
        }
        let num_rows = region.shape().first().copied().unwrap_or(0);
        let schema = schema_from(schema.as_bytes())?;
        let data = RemoteTile::new(handle, schema, num_rows, bytes);
        Ok(Self::new(Tile::new(Arc::new(data)), position, region))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Outcome<(Bound<'py, PyAny>, (TileParts<'py>,))> {
        let tile = slf.get();
        let data = tile.tile().data();
        let parts = (
            parts_of(tile.handle()?)?,
            schema_bytes(slf.py(), &data.schema())?,
            tile.place().to_vec(),
            tile.region().start().to_vec(),
            tile.region().shape().to_vec(),
            data.memory_bytes(),
        );
        Ok((slf.get_type().getattr("_from_parts")?, (parts,)))
    }
}

#[pymethods]
impl PyGrid {
    /// The grid with its tiles in shared memory, which other processes of this user on this host read in place.
    ///
    /// Pickle the grid, a tile or a handle to hand it to another process: with `multiprocessing`, joblib, or any other way. Nothing but names is pickled. A grid in private memory can be handed over
    /// as well; each tile is then copied when the first process opens it, and that copy goes when no process uses it any more.
    ///
    /// Returns:
    ///     A grid of the same cuts. Each tile is copied once, one after the other, and lazy ones are read; tiles in shared memory of this process stay as they are. Drop this grid afterwards: the memory
    ///     is then counted once, however many processes read it, and each tile takes a descriptor of this process.
    ///
    /// Raises:
    ///     ResourcesExhaustedError: There is no room, or there are no descriptors left.
    ///     UnsupportedError: Not on Linux, or a type that Arrow IPC does not hold.
    ///     NotLocalError: A tile is on a device; copy it to the host first.
    ///
    /// Examples:
    ///     >>> import partgrid as pg, pickle, pyarrow as pa
    ///     >>> grid = pg.from_arrow(pa.table({"a": [1, 2, 3]})).to_shared()
    ///     >>> print(repr(grid).splitlines()[0])
    ///     Grid of 3 rows x 1 column in 1 x 1 tile, 24 B in shared memory
    ///     >>> len(pickle.dumps(grid)) < 1000
    ///     True
    fn to_shared(&self, py: Python<'_>) -> Outcome<Self> {
        let core = Arc::clone(self.core());
        let shared = wait(py, async move {
            let copying = tokio::task::spawn_blocking(move || share::to_shared(&core));
            let ended = |_| Error::internal("a thread that copied tiles ended");
            copying.await.map_err(ended)?
        })?;
        Ok(Self::of_ranks(shared, self.comm(py).map(Bound::unbind)))
    }

    /// Makes a grid from what another one pickled. Used by `pickle`.
    #[classmethod]
    fn _from_parts(_class: &Bound<'_, PyType>, parts: GridParts<'_>) -> Outcome<Self> {
        let (id, schema, cuts, (sorted_by, partitioned_by), handles, bytes) = parts;
        let schema = schema_from(schema.as_bytes())?;
        let [rows, columns] = cuts.map(Axis::try_new);
        let axes = [rows?, columns?];
        let sorted_by = sorted_by.into_iter();
        let sorted_by = sorted_by.map(|(name, descending)| SortColumn { name, descending });
        let order = RowOrder {
            sorted_by: sorted_by.collect(),
            partitioned_by,
        };
        let handles: Outcome<Vec<Handle>> = handles.into_iter().map(handle_of).collect();
        let handles = share::spread(handles?, &axes);
        let handles = handles.into_iter().zip(bytes).collect();
        let grid = share::attach(GridId::from_bits(id), schema, axes, order, handles)?;
        Ok(Self::shared(grid))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Outcome<(Bound<'py, PyAny>, (GridParts<'py>,))> {
        let grid = slf.get().core();
        if grid.locals().is_some() {
            let text = "a grid of an SPMD program has tiles that belong to other ranks, and does not pickle";
            let error = Error::unsupported(text);
            return Err(error.with_hint("pickle single tiles, or handles").into());
        }
        let handles = share::gathered(share::handles(grid)?.collect(), grid);
        let order = grid.order();
        let sorted_by = order.sorted_by.iter();
        let sorted_by = sorted_by.map(|column| (column.name.clone(), column.descending));
        let handles: Outcome<Vec<HandleParts>> = handles.iter().map(parts_of).collect();
        let bytes = grid.tiles().iter().map(|tile| tile.data().memory_bytes());
        let parts = (
            grid.id().bits(),
            schema_bytes(slf.py(), grid.schema())?,
            [grid.rows().cuts().to_vec(), grid.columns().cuts().to_vec()],
            (sorted_by.collect(), order.partitioned_by.clone()),
            handles?,
            bytes.collect(),
        );
        Ok((slf.get_type().getattr("_from_parts")?, (parts,)))
    }
}

/// The processes of this user on this host that share tiles, as `partgrid ps` shows them.
///
/// Returns:
///     One dictionary for each process: `pid`, and `segments`, a list of dictionaries with `grid` (the id as text), `position`, `nbytes` (of the segment, once, however many processes map it), `copy` (whether it
///     is a copy of a tile in private memory, which goes with its last reader) and `readers` (the ids of the processes that lease it beside its owner, once for each lease). `segments` is `None` when a
///     process does not answer.
///
/// Raises:
///     UnsupportedError: Not on Linux.
///
/// Examples:
///     >>> import os, partgrid as pg, pyarrow as pa
///     >>> grid = pg.from_arrow(pa.table({"a": [1, 2, 3]})).to_shared()
///     >>> [own] = [each for each in pg.shared_memory() if each["pid"] == os.getpid()]
///     >>> own["segments"][-1]["position"], own["segments"][-1]["readers"]
///     ((0, 0), [])
#[pyfunction]
#[pyo3(signature = () -> "list[dict[str, object]]")]
pub(crate) fn shared_memory(py: Python<'_>) -> Outcome<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for owner in py.detach(share::sharing_processes)? {
        let entry = PyDict::new(py);
        entry.set_item("pid", owner.process)?;
        let segments = owner.segments.map(|segments| {
            let segments = segments.iter().map(|segment| dictionary(py, segment));
            segments.collect::<PyResult<Vec<_>>>()
        });
        entry.set_item("segments", segments.transpose()?)?;
        list.append(entry)?;
    }
    Ok(list)
}

fn dictionary<'py>(py: Python<'py>, segment: &SharedSegment) -> PyResult<Bound<'py, PyDict>> {
    let entry = PyDict::new(py);
    entry.set_item("grid", segment.grid.to_string())?;
    entry.set_item("position", PyTuple::new(py, &segment.position)?)?;
    entry.set_item("nbytes", segment.segment_bytes)?;
    entry.set_item("copy", segment.is_copy)?;
    entry.set_item("readers", segment.readers.clone())?;
    Ok(entry)
}
