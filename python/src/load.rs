//! `read_parquet` and `load_parquet`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use partgrid::error::Error;
use partgrid::load::{LoadJob, LoadOptions, SchemaEvolution, TileColumns};
use partgrid::memory::parse_size;
use pyo3::prelude::*;
use pyo3_object_store::AnyObjectStore;

use crate::error::Outcome;
use crate::filters::filters;
use crate::grid::PyGrid;
use crate::job::{PyLoadJob, wait_with_bar};
use crate::runtime::runtime;

/// One path or several.
#[derive(FromPyObject)]
pub(crate) enum Sources {
    /// `str` or `os.PathLike`.
    #[pyo3(transparent)]
    One(PathBuf),
    /// A list or tuple of those.
    #[pyo3(transparent)]
    Many(Vec<PathBuf>),
}

impl Sources {
    fn into_strings(self) -> Outcome<Vec<String>> {
        let paths = match self {
            Self::One(path) => vec![path],
            Self::Many(paths) => paths,
        };
        Ok(paths.into_iter().map(text_of).collect::<Result<_, _>>()?)
    }
}

/// A path or URL as the core takes it.
pub(crate) fn text_of(path: PathBuf) -> Result<String, Error> {
    path.into_os_string().into_string().map_err(|path| {
        Error::invalid_argument("a path must be valid Unicode").with_file(path.to_string_lossy())
    })
}

/// A number of columns, or the names of each band.
#[derive(FromPyObject)]
pub(crate) enum Bands {
    /// So many to a band.
    #[pyo3(transparent)]
    Count(usize),
    /// A list of lists.
    #[pyo3(transparent)]
    Named(Vec<Vec<String>>),
}

/// The names of one band, or of several.
#[derive(FromPyObject)]
pub(crate) enum Dense {
    /// A list of names.
    #[pyo3(transparent)]
    One(Vec<String>),
    /// A list of lists.
    #[pyo3(transparent)]
    Many(Vec<Vec<String>>),
}

/// Bytes, or a text such as `512MB`.
#[derive(FromPyObject)]
pub(crate) enum Size {
    /// Bytes.
    #[pyo3(transparent)]
    Bytes(u64),
    /// With a unit.
    #[pyo3(transparent)]
    Text(String),
}

/// The keyword arguments that all loads share, as the caller gave them.
struct Wishes<'a> {
    columns: Option<Vec<String>>,
    filters: Option<Bound<'a, PyAny>>,
    hive_partitioning: bool,
    tile_rows: Option<u64>,
    tile_columns: Option<Bands>,
    dense: Option<Dense>,
    schema_evolution: &'a str,
    memory_limit: Option<Size>,
    spill_to: Option<PathBuf>,
    storage_options: Option<HashMap<String, String>>,
    store: Option<AnyObjectStore>,
    deadline: Option<f64>,
}

impl Wishes<'_> {
    fn into_options(self) -> Outcome<LoadOptions> {
        let mut options = LoadOptions::default()
            .with_hive_partitioning(self.hive_partitioning)
            .with_schema_evolution(evolution(self.schema_evolution)?)
            .with_storage_options(self.storage_options.into_iter().flatten().collect());
        if let Some(columns) = self.columns {
            options = options.with_columns(columns);
        }
        if let Some(wish) = &self.filters {
            options = options.with_filters(filters(wish)?);
        }
        if let Some(rows) = self.tile_rows {
            options = options.with_tile_rows(rows);
        }
        options = match self.tile_columns {
            Some(Bands::Count(count)) => options.with_tile_columns(TileColumns::Count(count)),
            Some(Bands::Named(names)) => options.with_tile_columns(TileColumns::Named(names)),
            None => options,
        };
        options = match self.dense {
            Some(Dense::One(names)) => options.with_dense(vec![names]),
            Some(Dense::Many(bands)) => options.with_dense(bands),
            None => options,
        };
        options = match self.memory_limit {
            Some(Size::Bytes(bytes)) => options.with_memory_limit_bytes(bytes),
            Some(Size::Text(text)) => options.with_memory_limit_bytes(parse_size(&text)? as u64),
            None => options,
        };
        if let Some(folder) = self.spill_to {
            options = options.with_spill_to(folder);
        }
        if let Some(store) = self.store {
            options = options.with_store(store.into_dyn());
        }
        if let Some(seconds) = self.deadline {
            let deadline = Duration::try_from_secs_f64(seconds).map_err(|error| {
                Error::invalid_argument(format!("deadline must be seconds from now, got {seconds}"))
                    .with_source(error)
            })?;
            options = options.with_deadline(deadline);
        }
        Ok(options)
    }
}

fn evolution(name: &str) -> Result<SchemaEvolution, Error> {
    match name {
        "strict" => Ok(SchemaEvolution::Strict),
        "union" => Ok(SchemaEvolution::Union),
        "widen" => Ok(SchemaEvolution::Widen),
        other => Err(Error::invalid_argument(format!(
            "schema_evolution must be \"strict\", \"union\" or \"widen\", got {other:?}"
        ))),
    }
}

fn start(sources: Sources, wishes: Wishes<'_>) -> Outcome<LoadJob> {
    let (sources, options) = (sources.into_strings()?, wishes.into_options()?);
    let _entered = runtime()?.enter();
    Ok(LoadJob::start(sources, options)?)
}

/// Loads Parquet files into memory as a grid, one or more tiles for each file.
///
/// Files are read in parallel, in name order, and every column keeps its type, nullability and metadata. Ctrl-C stops the load.
///
/// Args:
///     source: A file, a folder (all Parquet files below it), a glob pattern, a URL (`s3://`, `gs://`, `az://`, `http(s)://`, `file://`, `memory://`), or a list of these.
///     columns: The names of the columns to load, in this order; all by default.
///     filters: Conditions on the rows: tuples (column, operator, value), all of which a row must meet, or a list of such lists, one of which it must meet. Operators are
///         `=`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `not in`, `is null`, `is not null` (these two without a value). Exact; row groups that cannot hold such a row are not
///         read. The columns need not be among `columns`.
///     hive_partitioning: Whether folder names such as `month=01`, below the source or at its end, become columns, typed over all files.
///     tile_rows: About how many rows a tile holds; by default 1,048,576, or fewer so that a tile stays under 128 MiB. Cuts follow row groups where these are near.
///     tile_columns: How the columns are cut into bands: so many to a band, or lists of names; columns that no list names follow as one band.
///     dense: The names of columns of one type of numbers, or lists of such names, that shall lie in one allocation in every tile: Arrow columns and a 2-D array at
///         once. Costs one copy of these columns, which come before the others.
///     schema_evolution: `"strict"` bears no difference between files but order and nullability, and reports all at once; `"union"` fills columns that a file lacks with
///         nulls; `"widen"` also takes the type that holds the values of both exactly.
///     memory_limit: The most bytes, or a text such as `"512MB"`, that the load may use; by default 80 % of the machine or control group.
///     spill_to: A folder for the tiles that the limit leaves no room for. Their files have no name and vanish with the grid. Without it such a load fails.
///     storage_options: Settings for the stores of URLs, such as `region`, `endpoint`, `access_key_id`, `secret_access_key`, `profile`, `anonymous`, `requester_pays`,
///         `timeout`, `connect_timeout`, `max_retries`, `retry_timeout`. They go before the environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`), and that before `~/.aws`.
///     store: A store built with obstore; sources are then paths in it.
///     deadline: Seconds after which the load is given up; by default never.
///     progress: Whether to show a bar on standard error; by default where a person sees it (a terminal or a notebook) unless `PARTGRID_PROGRESS=0`.
///
/// Returns:
///     A grid in the memory of this process.
///
/// Raises:
///     PathNotFoundError: There is no such file, or no Parquet file in the folder.
///     InvalidDataError: A file is damaged, changed while it was read, or its columns differ from those of the first file; the text names file, column and types.
///     NotFoundError: A name in `columns` does not exist.
///     PermissionDeniedError: The file system or the store refused access; the text says what was tried and what to set.
///     StorageError: The store could not be reached or failed.
///     ResourcesExhaustedError: The memory limit or the deadline was reached.
///
/// Examples:
///     >>> import partgrid as pg
///     >>> pg.read_parquet("data/flights").shape
///     (336776, 19)
///     >>> pg.read_parquet("data/flights", columns=["carrier", "month"]).columns
///     ['carrier', 'month']
#[expect(
    clippy::too_many_arguments,
    reason = "the keyword arguments that Python users expect"
)]
#[pyfunction]
#[pyo3(signature = (source, *, columns=None, filters=None, hive_partitioning=true, tile_rows=None, tile_columns=None, dense=None, schema_evolution="strict", memory_limit=None, spill_to=None, storage_options=None, store=None, deadline=None, progress=None))]
pub(crate) fn read_parquet(
    py: Python<'_>,
    source: Sources,
    columns: Option<Vec<String>>,
    filters: Option<Bound<'_, PyAny>>,
    hive_partitioning: bool,
    tile_rows: Option<u64>,
    tile_columns: Option<Bands>,
    dense: Option<Dense>,
    schema_evolution: &str,
    memory_limit: Option<Size>,
    spill_to: Option<PathBuf>,
    storage_options: Option<HashMap<String, String>>,
    store: Option<AnyObjectStore>,
    deadline: Option<f64>,
    progress: Option<bool>,
) -> Outcome<PyGrid> {
    let wishes = Wishes {
        columns,
        filters,
        hive_partitioning,
        tile_rows,
        tile_columns,
        dense,
        schema_evolution,
        memory_limit,
        spill_to,
        storage_options,
        store,
        deadline,
    };
    let job = start(source, wishes)?;
    let grid = wait_with_bar(py, &job, progress)?;
    Ok(PyGrid::new(grid))
}

/// Starts to load Parquet files in the background. `read_parquet` is this job, waited for.
///
/// Args:
///     source: A file, a folder (all Parquet files below it), a glob pattern, a URL (`s3://`, `gs://`, `az://`, `http(s)://`, `file://`, `memory://`), or a list of these.
///     columns: The names of the columns to load, in this order; all by default.
///     filters: Conditions on the rows: tuples (column, operator, value), all of which a row must meet, or a list of such lists, one of which it must meet. Operators are
///         `=`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `not in`, `is null`, `is not null` (these two without a value). Exact; row groups that cannot hold such a row are not
///         read. The columns need not be among `columns`.
///     hive_partitioning: Whether folder names such as `month=01`, below the source or at its end, become columns, typed over all files.
///     tile_rows: About how many rows a tile holds; by default 1,048,576, or fewer so that a tile stays under 128 MiB. Cuts follow row groups where these are near.
///     tile_columns: How the columns are cut into bands: so many to a band, or lists of names; columns that no list names follow as one band.
///     dense: The names of columns of one type of numbers, or lists of such names, that shall lie in one allocation in every tile: Arrow columns and a 2-D array at
///         once. Costs one copy of these columns, which come before the others.
///     schema_evolution: `"strict"` bears no difference between files but order and nullability, and reports all at once; `"union"` fills columns that a file lacks with
///         nulls; `"widen"` also takes the type that holds the values of both exactly.
///     memory_limit: The most bytes, or a text such as `"512MB"`, that the load may use; by default 80 % of the machine or control group.
///     spill_to: A folder for the tiles that the limit leaves no room for. Their files have no name and vanish with the grid. Without it such a load fails.
///     storage_options: Settings for the stores of URLs, such as `region`, `endpoint`, `access_key_id`, `secret_access_key`, `profile`, `anonymous`, `requester_pays`,
///         `timeout`, `connect_timeout`, `max_retries`, `retry_timeout`. They go before the environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`), and that before `~/.aws`.
///     store: A store built with obstore; sources are then paths in it.
///     deadline: Seconds after which the load is given up; by default never.
///
/// Returns:
///     A job that can be watched, cancelled and waited for.
///
/// Raises:
///     InvalidArgumentError: An argument makes no sense. Everything else is raised by `result`.
///
/// Examples:
///     >>> import partgrid as pg
///     >>> job = pg.load_parquet("data/flights", columns=["carrier"])
///     >>> job.result().shape
///     (336776, 1)
///     >>> job.progress().tiles
///     12
#[expect(
    clippy::too_many_arguments,
    reason = "the keyword arguments that Python users expect"
)]
#[pyfunction]
#[pyo3(signature = (source, *, columns=None, filters=None, hive_partitioning=true, tile_rows=None, tile_columns=None, dense=None, schema_evolution="strict", memory_limit=None, spill_to=None, storage_options=None, store=None, deadline=None))]
pub(crate) fn load_parquet(
    source: Sources,
    columns: Option<Vec<String>>,
    filters: Option<Bound<'_, PyAny>>,
    hive_partitioning: bool,
    tile_rows: Option<u64>,
    tile_columns: Option<Bands>,
    dense: Option<Dense>,
    schema_evolution: &str,
    memory_limit: Option<Size>,
    spill_to: Option<PathBuf>,
    storage_options: Option<HashMap<String, String>>,
    store: Option<AnyObjectStore>,
    deadline: Option<f64>,
) -> Outcome<PyLoadJob> {
    let wishes = Wishes {
        columns,
        filters,
        hive_partitioning,
        tile_rows,
        tile_columns,
        dense,
        schema_evolution,
        memory_limit,
        spill_to,
        storage_options,
        store,
        deadline,
    };
    Ok(PyLoadJob::new(start(source, wishes)?))
}
