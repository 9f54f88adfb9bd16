//! The arguments that all loads share -> options of the core.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use partgrid::error::Error;
use partgrid::grid::SortColumn;
use partgrid::load::{LoadOptions, SchemaEvolution, StringType, TileColumns};
use partgrid::memory::parse_size;
use pyo3::prelude::*;
use pyo3_object_store::AnyObjectStore;

use crate::error::Outcome;
use crate::filters::filters;

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
    pub(crate) fn into_strings(self) -> Outcome<Vec<String>> {
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

/// One name or several.
#[derive(FromPyObject)]
pub(crate) enum Names {
    /// `str`.
    #[pyo3(transparent)]
    One(String),
    /// A list or tuple.
    #[pyo3(transparent)]
    Many(Vec<String>),
}

impl Names {
    fn into_names(self) -> Vec<String> {
        match self {
            Self::One(name) => vec![name],
            Self::Many(names) => names,
        }
    }
}

/// A column to sort by: a name, or with a direction.
#[derive(FromPyObject)]
pub(crate) enum SortKey {
    /// Ascending.
    #[pyo3(transparent)]
    Name(String),
    /// `(name, "ascending" or "descending")`.
    #[pyo3(transparent)]
    Directed((String, String)),
}

/// One column to sort by or several.
#[derive(FromPyObject)]
pub(crate) enum SortBy {
    /// Without a list around it. A tuple of two texts is a name with its direction.
    #[pyo3(transparent)]
    One(SortKey),
    /// A list or tuple.
    #[pyo3(transparent)]
    Many(Vec<SortKey>),
}

impl SortBy {
    fn into_columns(self) -> Result<Vec<SortColumn>, Error> {
        let keys = match self {
            Self::One(key) => vec![key],
            Self::Many(keys) => keys,
        };
        let column = |key| match key {
            SortKey::Name(name) => Ok(SortColumn {
                name,
                descending: false,
            }),
            SortKey::Directed((name, direction)) => Ok(SortColumn {
                name,
                descending: match direction.as_str() {
                    "ascending" => false,
                    "descending" => true,
                    other => {
                        return Err(Error::invalid_argument(format!(
                            "sort_by must say \"ascending\" or \"descending\" behind a name, got {other:?}"
                        )).with_hint("several columns stand in a list"));
                    }
                },
            }),
        };
        keys.into_iter().map(column).collect()
    }
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
pub(crate) struct Wishes<'a> {
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) filters: Option<Bound<'a, PyAny>>,
    pub(crate) hive_partitioning: bool,
    pub(crate) tile_rows: Option<i64>,
    pub(crate) tile_columns: Option<Bands>,
    pub(crate) dense: Option<Dense>,
    pub(crate) schema_evolution: &'a str,
    pub(crate) memory_limit: Option<Size>,
    pub(crate) spill_to: Option<PathBuf>,
    pub(crate) resume: Option<PathBuf>,
    pub(crate) string_type: Option<&'a str>,
    pub(crate) sort_by: Option<SortBy>,
    pub(crate) partition_by: Option<Names>,
    pub(crate) num_partitions: Option<i64>,
    pub(crate) lazy: bool,
    pub(crate) storage_options: Option<HashMap<String, String>>,
    pub(crate) store: Option<AnyObjectStore>,
    pub(crate) deadline: Option<f64>,
}

impl Wishes<'_> {
    pub(crate) fn into_options(self) -> Outcome<LoadOptions> {
        let mut options = LoadOptions::default()
            .with_hive_partitioning(self.hive_partitioning)
            .with_schema_evolution(evolution(self.schema_evolution)?)
            .with_storage_options(self.storage_options.into_iter().flatten().collect())
            .with_lazy(self.lazy);
        if let Some(columns) = self.columns {
            options = options.with_columns(columns);
        }
        if let Some(wish) = &self.filters {
            options = options.with_filters(filters(wish)?);
        }
        if let Some(rows) = self.tile_rows {
            options = options.with_tile_rows(positive("tile_rows", rows)?);
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
        if let Some(folder) = self.resume {
            options = options.with_resume(folder);
        }
        if let Some(name) = self.string_type {
            options = options.with_string_type(string_type(name)?);
        }
        if let Some(columns) = self.sort_by {
            options = options.with_sort_by(columns.into_columns()?);
        }
        if let Some(names) = self.partition_by {
            options = options.with_partition_by(names.into_names());
        }
        if let Some(count) = self.num_partitions {
            options = options.with_num_partitions(positive("num_partitions", count)?);
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

/// A number that is not negative; zero is for the core to refuse.
fn positive(name: &str, number: i64) -> Result<u64, Error> {
    u64::try_from(number)
        .map_err(|_| Error::invalid_argument(format!("{name} must be at least 1, got {number}")))
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

fn string_type(name: &str) -> Result<StringType, Error> {
    match name {
        "string" => Ok(StringType::String),
        "large_string" => Ok(StringType::LargeString),
        "string_view" => Ok(StringType::StringView),
        other => Err(Error::invalid_argument(format!(
            "string_type must be \"string\", \"large_string\" or \"string_view\", got {other:?}"
        ))),
    }
}
