//! `read_parquet`.

use partgrid::load::{LoadOptions, load};
use pyo3::prelude::*;

use crate::error::Outcome;
use crate::grid::PyGrid;
use crate::runtime::wait;

/// One path or several.
#[derive(FromPyObject)]
pub(crate) enum Sources {
    /// `str` or `os.PathLike`.
    #[pyo3(transparent)]
    One(std::path::PathBuf),
    /// A list or tuple of those.
    #[pyo3(transparent)]
    Many(Vec<std::path::PathBuf>),
}

impl Sources {
    fn into_strings(self) -> Outcome<Vec<String>> {
        let paths = match self {
            Self::One(path) => vec![path],
            Self::Many(paths) => paths,
        };
        let text = |path: std::path::PathBuf| {
            path.into_os_string().into_string().map_err(|path| {
                partgrid::error::Error::invalid_argument("a path must be valid Unicode")
                    .with_file(path.to_string_lossy())
            })
        };
        Ok(paths.into_iter().map(text).collect::<Result<_, _>>()?)
    }
}

/// Loads Parquet files into memory as a grid, one or more tiles for each file.
///
/// Files are read in parallel, in name order, and every column keeps its type, nullability and metadata. Ctrl-C stops the load.
///
/// Args:
///     source: A file, a folder (all Parquet files below it), a glob pattern, or a list of these.
///     columns: The names of the columns to load, in this order; all by default.
///     hive_partitioning: Whether folder names such as `month=01`, below the source or at its end, become columns, typed over all files.
///     tile_rows: About how many rows a tile holds; by default 1,048,576, or fewer so that a tile stays under 128 MiB. Cuts follow row groups where these are near.
///
/// Returns:
///     A grid in the memory of this process.
///
/// Raises:
///     PathNotFoundError: There is no such file, or no Parquet file in the folder.
///     InvalidDataError: A file is damaged, or its columns differ from those of the first file; the text names file, column and types.
///     NotFoundError: A name in `columns` does not exist.
///
/// Examples:
///     >>> import partgrid as pg
///     >>> pg.read_parquet("data/flights").shape
///     (336776, 19)
///     >>> pg.read_parquet("data/flights", columns=["carrier", "month"]).columns
///     ['carrier', 'month']
#[pyfunction]
#[pyo3(signature = (source, *, columns=None, hive_partitioning=true, tile_rows=None))]
pub(crate) fn read_parquet(
    py: Python<'_>,
    source: Sources,
    columns: Option<Vec<String>>,
    hive_partitioning: bool,
    tile_rows: Option<u64>,
) -> Outcome<PyGrid> {
    let sources = source.into_strings()?;
    let mut options = LoadOptions::default().with_hive_partitioning(hive_partitioning);
    if let Some(columns) = columns {
        options = options.with_columns(columns);
    }
    if let Some(rows) = tile_rows {
        options = options.with_tile_rows(rows);
    }
    let grid = wait(py, async move { load(&sources, &options).await })?;
    Ok(PyGrid::new(grid))
}
