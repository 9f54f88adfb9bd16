//! What grids offer to libraries that ask for a protocol: `__partitioned__`, `__distarray__`, Arrow PyCapsules.
//!
//! Comes in: a grid. Goes out: dictionaries, objects that have them, capsules. Every number comes from the core.

use std::sync::Arc;

use partgrid::device::device_row_bands;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use super::PyGrid;
use crate::argument::Given;
use crate::capsule::{c_stream, schema_capsule, stream_capsule};
use crate::device::{device_batches_capsule, device_stream_capsule, refuse_cast, refuse_reserved};
use crate::distarray::{Export, Lying, Names, Padding, PyDistArray, PyVersion, export};
use crate::error::Outcome;
use crate::partitioned::{PyPartitioned, Wishes, dictionary, partitioned};

#[pymethods]
impl PyGrid {
    /// The `__partitioned__` protocol (draft of 2022-01-27), exactly: a fresh plain dictionary at each access.
    ///
    /// `shape`, `partition_tiling`, `partitions` (every position, with `start`, `shape`, `data`, `location`) and `get`. `data` is a handle that pickles with the standard
    /// library; `get` takes one handle, a list or a tuple and returns `pandas.DataFrame` objects over the tile's memory, without copying. `location` is a list of
    /// `(IP, PID)`. In an SPMD program `locals` has the positions of this rank, and the `data` of others is `None`; else there is no `locals`. The handles keep the grid alive in this process. Two keys are not in the draft: `schema`, a
    /// `Schema` with names and types, and `version`, the day of the draft.
    #[getter]
    fn __partitioned__<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyDict>> {
        dictionary(py, &self.core, self.handles(py)?)
    }

    /// The grid as an object with `__partitioned__` as one consumer wants it.
    ///
    /// `dialect="heat"` is for `heat.from_partitioned`: one tile for each rank, its values copied into one array, since HeAT writes into memory that is read-only. Each rank of an SPMD
    /// program (see `partgrid.engines.mpi`) must call it; an error of one is raised on all. `dialect="xgboost_ray"` is for `xgboost_ray.RayDMatrix` and `lightgbm_ray.RayDMatrix`: the rows
    /// as pandas frames in Ray's object store, where they are copied to, and where they stay as long as the object lives.
    ///
    /// Args:
    ///     data: What `get` gives: `"pandas"`, `"polars"`, `"pyarrow"`, `"arro3"`, `"numpy"` or `"tile"`; see `Get`. By default what the dialect has: `"pandas"`, for HeAT `"numpy"`.
    ///     dialect: `"draft"` (the default), `"heat"` or `"xgboost_ray"`.
    ///     dtype: For HeAT: the type of the array; by default the one that `numpy.result_type` gives for the columns.
    ///     fill_null: For HeAT: the number that stands for nulls; without it they are refused.
    ///     copy: For HeAT: `False` gives views of dense tiles, which HeAT may write into.
    ///     num_actors: For xgboost_ray: the number of actors; by default that of the processors of the Ray cluster. Row bands are halved until there are as many, since an actor without any would train on all rows.
    ///
    /// Returns:
    ///     The object. It keeps the grid alive.
    ///
    /// Raises:
    ///     InvalidArgumentError: `data` or `dialect` is none of these, or an argument belongs to another dialect.
    ///     UnsupportedError: The consumer cannot hold the grid; the text says why.
    ///     InvalidDataError: For HeAT: a column has nulls and nothing stands for them, or a value that the type does not hold.
    ///     ValueError: `copy=False`, and a copy is needed.
    ///     ImportError: For xgboost_ray: Ray is missing.
    ///
    /// Warns:
    ///     UserWarning: There are fewer rows than actors; or ranks have other numbers of rows than HeAT would give them, and `balance_()` must be called on its array before others.
    #[expect(
        clippy::too_many_arguments,
        reason = "the keyword arguments that Python users expect"
    )]
    #[pyo3(signature = (data=None, *, dialect=None, dtype=None, fill_null=None, copy=None, num_actors=None))]
    fn partitioned(
        slf: &Bound<'_, Self>,
        data: Option<Given<String>>,
        dialect: Option<Given<String>>,
        dtype: Option<&Bound<'_, PyAny>>,
        fill_null: Option<&Bound<'_, PyAny>>,
        copy: Option<Given<bool>>,
        num_actors: Option<Given<usize>>,
    ) -> Outcome<PyPartitioned> {
        let wishes = Wishes {
            data,
            dialect,
            dtype,
            fill_null,
            copy,
            num_actors,
        };
        partitioned(slf, wishes)
    }

    /// Columns of numbers as sections of the Distributed Array Protocol (0.10.0 or 0.9.0), one for each tile, without copying where the tile has them as an array does.
    ///
    /// One name is an array of one dimension. A list of names is one of two, rows and columns: its blocks are the row bands, and the runs of names that lie in one column band. It shares the
    /// memory of columns that are in one allocation at even distances, such as those that `dense=` loads, or single ones. `copies` of the array says what was copied, and why.
    ///
    /// Args:
    ///     columns: A name, or a list of names.
    ///     version: `"0.10.0"` (the default) or `"0.9.0"`.
    ///     distribution: How the array shall lie: a `partgrid.distarray.Distribution`, its maps, or one map; everything is copied then. Or `"rank"`: one section for each rank of an SPMD
    ///         program, of all its tiles: a block, or cyclic where even row bands are dealt out in turn, or the row numbers. By default each tile is a section.
    ///     copy: `True` copies always, and the buffers can be written; `None` copies where it must; `False` never.
    ///     fill_null: A number that stands for nulls; without it they are refused.
    ///     cast: The type of the elements, such as `"float64"`. Values that it does not hold exactly are refused. Needed for times (`"int64"` shares their memory), booleans, decimals and
    ///         dictionaries of numbers. By default the type of the column, or the one that `numpy.result_type` gives for several.
    ///     padding: Widths of communication padding, one for all dimensions or one for each: every section gets that many elements of its neighbours. Everything is copied then.
    ///
    /// Returns:
    ///     The distributed array. In an SPMD program the sections of other ranks have everything but their buffer, and `local` is that of this rank; what this raises there, it raises on one rank alone.
    ///
    /// Raises:
    ///     NotFoundError: There is no such column.
    ///     UnsupportedError: A column has a type that is no plain number, and the text says what to cast; or `copy=False`, and a copy is needed.
    ///     InvalidDataError: A column has nulls, and the text says how many, and the first tile with one; or `cast` does not hold a value.
    ///     InvalidArgumentError: No column, a distribution of another shape, a `padding` that is more than a neighbour owns, or a `fill_null` that the type does not hold.
    ///     ProtocolError: Another version.
    ///     ImportError: numpy is missing, and `distribution` or `padding` is given.
    ///     NotLocalError: A tile of a grid of no SPMD program is in another process.
    ///
    /// Examples:
    ///     >>> import partgrid as pg
    ///     >>> flights = pg.read_parquet("data/flights")
    ///     >>> array = flights.distarray("distance")
    ///     >>> array.shape, len(array.sections), array.copies
    ///     ((336776,), 12, [])
    ///     >>> array.sections[0].__distarray__()["dim_data"][0]["stop"]
    ///     27004
    ///     >>> flights.distarray(["dep_delay", "arr_delay"], fill_null=0, distribution=[pg.distarray.cyclic(336776, 4), pg.distarray.block(2)])
    ///     DistArray `dep_delay` to `arr_delay` (336776, 2) of d in 4 sections
    ///     copied, nulls replaced: 12 sections, 5,388,416 bytes
    ///     copied, another distribution: 4 sections, 5,388,416 bytes
    #[expect(
        clippy::too_many_arguments,
        reason = "the keyword arguments that Python users expect"
    )]
    #[pyo3(signature = (columns, *, version=None, distribution=None, copy=None, fill_null=None, cast=None, padding=None))]
    fn distarray(
        &self,
        py: Python<'_>,
        columns: Given<Names>,
        version: Option<Given<PyVersion>>,
        distribution: Option<Given<Lying>>,
        copy: Option<Given<bool>>,
        fill_null: Option<&Bound<'_, PyAny>>,
        cast: Option<Given<String>>,
        padding: Option<Given<Padding>>,
    ) -> Outcome<PyDistArray> {
        let wishes = Export {
            columns,
            version,
            distribution,
            copy,
            fill_null,
            cast,
            padding,
        };
        export(py, &self.core, wishes)
    }

    /// The Arrow PyCapsule interface: a stream of one batch for each row band, without copying.
    ///
    /// Args:
    ///     requested_schema: A schema capsule with the same column names; values are cast to its types.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> Outcome<Bound<'py, PyCapsule>> {
        let schema = Arc::clone(self.core.schema());
        stream_capsule(py, schema, self.row_bands(), requested_schema)
    }

    /// The Arrow PyCapsule interface for devices: a stream of one batch for each row band where it is, without copying. Column bands on a device come side by side.
    ///
    /// Args:
    ///     requested_schema: A schema capsule with the same column names; values are cast to its types. Not of a grid on a device.
    ///     kwargs: Reserved by the interface.
    ///
    /// Raises:
    ///     NotImplementedError: A keyword argument other than `None`.
    ///     UnsupportedError: A requested schema of a grid on a device; tiles of one row band that are on several devices, or row bands on several types of devices.
    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> Outcome<Bound<'py, PyCapsule>> {
        refuse_reserved(kwargs)?;
        let schema = Arc::clone(self.core.schema());
        if let Some((device, batches)) = py.detach(|| device_row_bands(&self.core))? {
            refuse_cast(requested_schema)?;
            return device_batches_capsule(py, device, &schema, batches);
        }
        device_stream_capsule(py, c_stream(schema, self.row_bands(), requested_schema)?)
    }

    /// The Arrow PyCapsule interface: the schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyCapsule>> {
        schema_capsule(py, self.core.schema())
    }
}
