//! `read_parquet` and `load_parquet`.

use std::path::PathBuf;

use partgrid::load::LoadJob;
use pyo3::prelude::*;
use pyo3_object_store::AnyObjectStore;

use crate::argument::{self, Count, Given, Seconds, Settings, Size, optional};
use crate::error::Outcome;
use crate::grid::PyGrid;
use crate::job::{PyLoadJob, wait_with_bar};
use crate::runtime::runtime;
use crate::wishes::{Bands, Dense, Names, SortBy, Sources, Wishes};

fn start(source: Given<Sources>, wishes: Wishes<'_>) -> Outcome<LoadJob> {
    let sources = source.named("source")?;
    // In a store it is a name like any other.
    let sources = match wishes.store {
        Some(_) => sources,
        None => sources.of_user(),
    };
    let sources = sources.into_strings()?;
    let options = wishes.into_options()?;
    let _entered = runtime()?.enter();
    Ok(LoadJob::start(sources, options)?)
}

/// Loads Parquet files into memory as a grid, one or more tiles for each file.
///
/// Files are read in parallel, in name order, and every column keeps its type, nullability and metadata. Ctrl-C stops the load.
///
/// Args:
///     source: A file, a folder (all Parquet files below it), a glob pattern, a URL (`s3://`, `gs://`, `az://`, `http(s)://`, `file://`, `memory://`), or a list of these; `~` is the folder of the user.
///         Files come in name order, listed ones too; a file that is named twice is read once.
///     columns: The names of the columns to load, in this order; all by default.
///     filters: Conditions on the rows: tuples (column, operator, value), all of which a row must meet, or a list of such lists, one of which it must meet. Operators are
///         `=`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `not in`, `is null`, `is not null` (these two without a value). Exact; row groups and pages that cannot hold such a
///         row are not read (statistics, page index, bloom filters), and of the other columns only the wanted rows. The columns need not be among `columns`.
///         `in` and `not in` take any values that can be gone through. Of floats, all NaN are equal and greater than every number, and -0.0 equals 0.0. A datetime without a
///         zone is taken in the zone of its column.
///     hive_partitioning: Whether folder names such as `month=01`, below the source or at its end, become columns, typed over all files: integers or dates if all are, but texts where two of them are one number (`01`, `1`).
///     tile_rows: About how many rows a tile holds; by default 1,048,576, or fewer so that a tile stays under 128 MiB. Cuts follow row groups where these are near.
///     tile_columns: How the columns are cut into bands: so many to a band, or lists of names; columns that no list names follow as one band.
///     dense: The names of columns of one type of numbers, or lists of such names, that shall lie in one allocation in every tile: Arrow columns and a 2-D array at
///         once. Costs one copy of these columns, which come before the others.
///     sort_by: A name, a name with its direction as `("day", "descending")`, or a list of these (directions are `"asc"`, `"ascending"`, `"desc"`,
///         `"descending"`): the rows of the whole grid are sorted by these columns, nulls last, rows that are
///         equal in them in the order of the files. Needs room for the rows twice. See `Grid.sorted_by`.
///     partition_by: A name or a list of names: rows with equal values in these columns come into one row band, by hash; `sort_by` then sorts within each row band. Needs room
///         for the rows twice. See `Grid.partitioned_by`.
///     num_partitions: How many row bands `partition_by` makes; by default as many as tiles of `tile_rows` rows would be.
///     string_type: `"string"`, `"large_string"` or `"string_view"` for all columns of text; by default each keeps the type that its writer stored.
///     schema_evolution: `"strict"` bears no difference between files but order and nullability, and reports all at once; `"union"` fills columns that a file lacks with
///         nulls; `"widen"` also takes the type that holds the values of both exactly.
///     lazy: Whether tiles only know where their rows lie and read columns when somebody asks for them. What was read stays in memory up to the limit; columns that were not used
///         for the longest time go first. Queries skip tiles by the statistics of the footers. Not together with `filters`, `dense`, `sort_by`, `partition_by`, `spill_to`, `resume`.
///     memory_limit: The most bytes, or a text such as `"512MB"`, that the load may use; by default 80 % of the machine or control group.
///     spill_to: A folder for the tiles that the limit leaves no room for, made if it is not there. Their files have no name and vanish with the grid. Without it such a load fails.
///     resume: A folder in which every finished tile is left, so that the same load can go on there after its process ended; made if it is not there. Tiles of files that have
///         changed since (by etag, or by time, size and number of a local file) are read anew. It serves one load at a time, and is yours to remove.
///     storage_options: Settings for the stores of URLs, such as `region`, `endpoint`, `access_key_id`, `secret_access_key`, `profile`, `anonymous`, `requester_pays`,
///         `timeout`, `connect_timeout`, `max_retries`, `retry_timeout`. They go before the environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`), and that before `~/.aws`.
///     store: A store built with obstore; sources are then paths in it.
///     deadline: Seconds after which the load is given up; by default never, as with `float("inf")`.
///     progress: Whether to show a bar on standard error; by default where a person sees it (a terminal or a notebook) unless `PARTGRID_PROGRESS` is `0`,
///         `false`, `no` or `off`.
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
#[pyo3(signature = (source, *, columns=None, filters=None, hive_partitioning: "bool" = true, tile_rows=None, tile_columns=None, dense=None, sort_by=None, partition_by=None, num_partitions=None, string_type=None, schema_evolution: "str" = "strict", lazy: "bool" = false, memory_limit=None, spill_to=None, resume=None, storage_options=None, store=None, deadline=None, progress=None))]
pub(crate) fn read_parquet(
    py: Python<'_>,
    source: Given<Sources>,
    columns: Option<Given<Vec<String>>>,
    filters: Option<Bound<'_, PyAny>>,
    #[pyo3(from_py_with = argument::hive_partitioning)] hive_partitioning: bool,
    tile_rows: Option<Given<Count>>,
    tile_columns: Option<Given<Bands>>,
    dense: Option<Given<Dense>>,
    sort_by: Option<Given<SortBy>>,
    partition_by: Option<Given<Names>>,
    num_partitions: Option<Given<Count>>,
    string_type: Option<Given<String>>,
    #[pyo3(from_py_with = argument::schema_evolution)] schema_evolution: &str,
    #[pyo3(from_py_with = argument::lazy)] lazy: bool,
    memory_limit: Option<Given<Size>>,
    spill_to: Option<Given<PathBuf>>,
    resume: Option<Given<PathBuf>>,
    storage_options: Option<Given<Settings>>,
    store: Option<Given<AnyObjectStore>>,
    deadline: Option<Given<Seconds>>,
    progress: Option<Given<bool>>,
) -> Outcome<PyGrid> {
    let wishes = Wishes {
        columns,
        filters,
        hive_partitioning,
        tile_rows,
        tile_columns,
        dense,
        sort_by,
        partition_by,
        num_partitions,
        string_type,
        schema_evolution,
        lazy,
        memory_limit,
        spill_to,
        resume,
        storage_options,
        store,
        deadline,
    };
    let progress = optional(progress, "progress")?;
    let job = start(source, wishes)?;
    let grid = wait_with_bar(py, &job, progress)?;
    Ok(PyGrid::new(grid))
}

/// Starts to load Parquet files in the background. `read_parquet` is this job, waited for.
///
/// Args:
///     source: A file, a folder (all Parquet files below it), a glob pattern, a URL (`s3://`, `gs://`, `az://`, `http(s)://`, `file://`, `memory://`), or a list of these; `~` is the folder of the user.
///         Files come in name order, listed ones too; a file that is named twice is read once.
///     columns: The names of the columns to load, in this order; all by default.
///     filters: Conditions on the rows: tuples (column, operator, value), all of which a row must meet, or a list of such lists, one of which it must meet. Operators are
///         `=`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `not in`, `is null`, `is not null` (these two without a value). Exact; row groups and pages that cannot hold such a
///         row are not read (statistics, page index, bloom filters), and of the other columns only the wanted rows. The columns need not be among `columns`.
///         `in` and `not in` take any values that can be gone through. Of floats, all NaN are equal and greater than every number, and -0.0 equals 0.0. A datetime without a
///         zone is taken in the zone of its column.
///     hive_partitioning: Whether folder names such as `month=01`, below the source or at its end, become columns, typed over all files: integers or dates if all are, but texts where two of them are one number (`01`, `1`).
///     tile_rows: About how many rows a tile holds; by default 1,048,576, or fewer so that a tile stays under 128 MiB. Cuts follow row groups where these are near.
///     tile_columns: How the columns are cut into bands: so many to a band, or lists of names; columns that no list names follow as one band.
///     dense: The names of columns of one type of numbers, or lists of such names, that shall lie in one allocation in every tile: Arrow columns and a 2-D array at
///         once. Costs one copy of these columns, which come before the others.
///     sort_by: A name, a name with its direction as `("day", "descending")`, or a list of these (directions are `"asc"`, `"ascending"`, `"desc"`,
///         `"descending"`): the rows of the whole grid are sorted by these columns, nulls last, rows that are
///         equal in them in the order of the files. Needs room for the rows twice. See `Grid.sorted_by`.
///     partition_by: A name or a list of names: rows with equal values in these columns come into one row band, by hash; `sort_by` then sorts within each row band. Needs room
///         for the rows twice. See `Grid.partitioned_by`.
///     num_partitions: How many row bands `partition_by` makes; by default as many as tiles of `tile_rows` rows would be.
///     string_type: `"string"`, `"large_string"` or `"string_view"` for all columns of text; by default each keeps the type that its writer stored.
///     schema_evolution: `"strict"` bears no difference between files but order and nullability, and reports all at once; `"union"` fills columns that a file lacks with
///         nulls; `"widen"` also takes the type that holds the values of both exactly.
///     lazy: Whether tiles only know where their rows lie and read columns when somebody asks for them. What was read stays in memory up to the limit; columns that were not used
///         for the longest time go first. Queries skip tiles by the statistics of the footers. Not together with `filters`, `dense`, `sort_by`, `partition_by`, `spill_to`, `resume`.
///     memory_limit: The most bytes, or a text such as `"512MB"`, that the load may use; by default 80 % of the machine or control group.
///     spill_to: A folder for the tiles that the limit leaves no room for, made if it is not there. Their files have no name and vanish with the grid. Without it such a load fails.
///     resume: A folder in which every finished tile is left, so that the same load can go on there after its process ended; made if it is not there. Tiles of files that have
///         changed since (by etag, or by time, size and number of a local file) are read anew. It serves one load at a time, and is yours to remove.
///     storage_options: Settings for the stores of URLs, such as `region`, `endpoint`, `access_key_id`, `secret_access_key`, `profile`, `anonymous`, `requester_pays`,
///         `timeout`, `connect_timeout`, `max_retries`, `retry_timeout`. They go before the environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`), and that before `~/.aws`.
///     store: A store built with obstore; sources are then paths in it.
///     deadline: Seconds after which the load is given up; by default never, as with `float("inf")`.
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
#[pyo3(signature = (source, *, columns=None, filters=None, hive_partitioning: "bool" = true, tile_rows=None, tile_columns=None, dense=None, sort_by=None, partition_by=None, num_partitions=None, string_type=None, schema_evolution: "str" = "strict", lazy: "bool" = false, memory_limit=None, spill_to=None, resume=None, storage_options=None, store=None, deadline=None))]
pub(crate) fn load_parquet(
    source: Given<Sources>,
    columns: Option<Given<Vec<String>>>,
    filters: Option<Bound<'_, PyAny>>,
    #[pyo3(from_py_with = argument::hive_partitioning)] hive_partitioning: bool,
    tile_rows: Option<Given<Count>>,
    tile_columns: Option<Given<Bands>>,
    dense: Option<Given<Dense>>,
    sort_by: Option<Given<SortBy>>,
    partition_by: Option<Given<Names>>,
    num_partitions: Option<Given<Count>>,
    string_type: Option<Given<String>>,
    #[pyo3(from_py_with = argument::schema_evolution)] schema_evolution: &str,
    #[pyo3(from_py_with = argument::lazy)] lazy: bool,
    memory_limit: Option<Given<Size>>,
    spill_to: Option<Given<PathBuf>>,
    resume: Option<Given<PathBuf>>,
    storage_options: Option<Given<Settings>>,
    store: Option<Given<AnyObjectStore>>,
    deadline: Option<Given<Seconds>>,
) -> Outcome<PyLoadJob> {
    let wishes = Wishes {
        columns,
        filters,
        hive_partitioning,
        tile_rows,
        tile_columns,
        dense,
        sort_by,
        partition_by,
        num_partitions,
        string_type,
        schema_evolution,
        lazy,
        memory_limit,
        spill_to,
        resume,
        storage_options,
        store,
        deadline,
    };
    Ok(PyLoadJob::new(start(source, wishes)?))
}
