//! The arguments that all loads share -> options of the core.

use std::path::PathBuf;

use partgrid::error::Error;
use partgrid::grid::SortColumn;
use partgrid::load::{
    FileCompression, LoadOptions, SchemaEvolution, StringType, TileColumns, WriteOptions,
};
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::{type_hint_identifier, type_hint_subscript, type_hint_union};
use pyo3_object_store::AnyObjectStore;

use crate::argument::{
    Argument, Count, Given, Refusal, Seconds, Settings, Size, items, of_user, optional, text,
    texts, whole,
};
use crate::error::Outcome;
use crate::filters::filters;

/// One path or several.
pub(crate) struct Sources(Vec<PathBuf>);

impl Argument for Sources {
    const TYPE: PyStaticExpr = type_hint_union!(PathBuf::TYPE, Vec::<PathBuf>::INPUT_TYPE);

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        if let Ok(path) = value.extract() {
            return Ok(Self(vec![path]));
        }
        let many = items(value).and_then(|paths| {
            let paths = paths.iter().map(|path| path.extract().ok());
            paths.collect::<Option<Vec<PathBuf>>>()
        });
        let refused = || Refusal::new(value, "be a path, a URL, or a list of these");
        many.map(Self).ok_or_else(refused)
    }
}

impl Sources {
    /// The paths as the core takes them; on this machine, `~` is the folder of the user.
    pub(crate) fn of_user(self) -> Self {
        Self(self.0.into_iter().map(of_user).collect())
    }

    pub(crate) fn into_strings(self) -> Outcome<Vec<String>> {
        Ok(self.0.into_iter().map(text_of).collect::<Result<_, _>>()?)
    }
}

/// A path or URL as the core takes it.
pub(crate) fn text_of(path: PathBuf) -> Result<String, Error> {
    path.into_os_string().into_string().map_err(|path| {
        Error::invalid_argument("a path must be valid Unicode").with_file(path.to_string_lossy())
    })
}

/// Where files are written: a folder of this machine, or one of a store.
pub(crate) struct Target(PathBuf);

impl Argument for Target {
    const TYPE: PyStaticExpr = PathBuf::TYPE;

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let read = value.extract().map(Self);
        read.map_err(|_| Refusal::new(value, "be a path or a URL"))
    }
}

/// A number of columns, or the names of each band.
pub(crate) struct Bands(TileColumns);

impl Argument for Bands {
    const TYPE: PyStaticExpr = type_hint_union!(Count::TYPE, Vec::<Vec<String>>::INPUT_TYPE);

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let must = "be a number of columns or a list of lists of names";
        let Some(bands) = items(value) else {
            let refused = |name: String| Refusal::new(value, must).write(format!("[[{name:?}]]"));
            if let Some(name) = text(value) {
                return Err(refused(name));
            }
            let count = whole(value, 1, must)?;
            let count = usize::try_from(count).map_err(|_| Refusal::new(value, must))?;
            return Ok(Self(TileColumns::Count(count)));
        };
        let named = bands.iter().map(texts).collect::<Option<_>>();
        named
            .map(|bands| Self(TileColumns::Named(bands)))
            .ok_or_else(|| {
                let refusal = Refusal::new(value, must);
                match texts(value) {
                    Some(names) => refusal.write(format!("[{names:?}]")),
                    None => refusal,
                }
            })
    }
}

/// The names of one band, or of several.
pub(crate) struct Dense(Vec<Vec<String>>);

impl Argument for Dense {
    const TYPE: PyStaticExpr =
        type_hint_union!(Vec::<String>::TYPE, Vec::<Vec<String>>::INPUT_TYPE);

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        if let Some(names) = texts(value) {
            return Ok(Self(vec![names]));
        }
        let bands = items(value);
        let bands = bands.and_then(|bands| bands.iter().map(texts).collect::<Option<_>>());
        bands.map(Self).ok_or_else(|| {
            let refusal = Refusal::new(value, "be a list of names or a list of such lists");
            match text(value) {
                Some(name) => refusal.write(format!("[{name:?}]")),
                None => refusal,
            }
        })
    }
}

/// One name or several.
pub(crate) struct Names(pub(crate) Vec<String>);

impl Argument for Names {
    const TYPE: PyStaticExpr = type_hint_union!(String::TYPE, Vec::<String>::TYPE);

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let names = text(value).map(|name| vec![name]);
        let refused = || Refusal::new(value, "be a name or a list of names");
        names.or_else(|| texts(value)).map(Self).ok_or_else(refused)
    }
}

/// One column to sort by or several: names, with or without a direction. A tuple of two texts is a name with its direction.
pub(crate) struct SortBy(pub(crate) Vec<SortColumn>);

impl Argument for SortBy {
    const TYPE: PyStaticExpr = type_hint_union!(
        String::TYPE,
        <(String, String)>::INPUT_TYPE,
        type_hint_subscript!(
            type_hint_identifier!("collections.abc", "Sequence"),
            type_hint_union!(String::TYPE, <(String, String)>::INPUT_TYPE)
        )
    );

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        if let Some(column) = sort_column(value) {
            return column.map(|column| Self(vec![column]));
        }
        let columns = items(value).and_then(|keys| keys.iter().map(sort_column).collect());
        let columns: Option<Vec<Result<SortColumn, Refusal>>> = columns;
        let refused = || {
            let must = "be a name, a name with its direction as (\"day\", \"descending\"), or a list of these";
            Refusal::new(value, must).hint(format!("directions are {}", SortColumn::DIRECTIONS))
        };
        let columns = columns.ok_or_else(refused)?;
        columns.into_iter().collect::<Result<_, _>>().map(Self)
    }
}

/// One column to sort by, if the object has the form of one.
fn sort_column(value: &Bound<'_, PyAny>) -> Option<Result<SortColumn, Refusal>> {
    if let Some(name) = text(value) {
        let descending = false;
        return Some(Ok(SortColumn { name, descending }));
    }
    let (name, direction): (String, String) = value.extract().ok()?;
    let must = format!("say {} behind a name", SortColumn::DIRECTIONS);
    let refused = || Refusal::new(value, must).hint("several columns stand in a list");
    let descending = SortColumn::is_descending(&direction).ok_or_else(refused);
    Some(descending.map(|descending| SortColumn { name, descending }))
}

/// The keyword arguments that all loads share, as the caller gave them.
pub(crate) struct Wishes<'a> {
    pub(crate) columns: Option<Given<Vec<String>>>,
    pub(crate) filters: Option<Bound<'a, PyAny>>,
    pub(crate) hive_partitioning: bool,
    pub(crate) tile_rows: Option<Given<Count>>,
    pub(crate) tile_columns: Option<Given<Bands>>,
    pub(crate) dense: Option<Given<Dense>>,
    pub(crate) schema_evolution: &'a str,
    pub(crate) memory_limit: Option<Given<Size>>,
    pub(crate) spill_to: Option<Given<PathBuf>>,
    pub(crate) resume: Option<Given<PathBuf>>,
    pub(crate) string_type: Option<Given<String>>,
    pub(crate) sort_by: Option<Given<SortBy>>,
    pub(crate) partition_by: Option<Given<Names>>,
    pub(crate) num_partitions: Option<Given<Count>>,
    pub(crate) lazy: bool,
    pub(crate) storage_options: Option<Given<Settings>>,
    pub(crate) store: Option<Given<AnyObjectStore>>,
    pub(crate) deadline: Option<Given<Seconds>>,
}

impl Wishes<'_> {
    pub(crate) fn into_options(self) -> Outcome<LoadOptions> {
        let mut options = Chosen(
            LoadOptions::default()
                .with_hive_partitioning(self.hive_partitioning)
                .with_schema_evolution(SchemaEvolution::from_name(self.schema_evolution)?)
                .with_lazy(self.lazy),
        );
        options.set("columns", self.columns, LoadOptions::with_columns)?;
        options.set("tile_rows", self.tile_rows, |options, rows| {
            options.with_tile_rows(rows.0)
        })?;
        options.set("tile_columns", self.tile_columns, |options, bands| {
            options.with_tile_columns(bands.0)
        })?;
        options.set("dense", self.dense, |options, bands| {
            options.with_dense(bands.0)
        })?;
        options.set("memory_limit", self.memory_limit, |options, size| {
            options.with_memory_limit_bytes(size.0)
        })?;
        options.set("spill_to", self.spill_to, LoadOptions::with_spill_to)?;
        options.set("resume", self.resume, LoadOptions::with_resume)?;
        options.set("sort_by", self.sort_by, |options, columns| {
            options.with_sort_by(columns.0)
        })?;
        options.set("partition_by", self.partition_by, |options, names| {
            options.with_partition_by(names.0)
        })?;
        options.set("num_partitions", self.num_partitions, |options, count| {
            options.with_num_partitions(count.0)
        })?;
        options.set("storage_options", self.storage_options, |options, pairs| {
            options.with_storage_options(pairs.into_iter().collect())
        })?;
        options.set("store", self.store, |options, store| {
            options.with_store(store.into_dyn())
        })?;
        options.set(
            "deadline",
            self.deadline,
            |options, seconds| match seconds.limit {
                Some(limit) => options.with_deadline(limit),
                None => options,
            },
        )?;
        let mut options = options.0;
        if let Some(name) = optional(self.string_type, "string_type")? {
            options = options.with_string_type(string_type(&name)?);
        }
        if let Some(wish) = &self.filters {
            options = options.with_filters(filters(wish)?);
        }
        Ok(options)
    }
}

/// Options that are set one after the other.
struct Chosen(LoadOptions);

impl Chosen {
    /// Sets an option to the value of the argument `name`, if it was given.
    fn set<T>(
        &mut self,
        name: &str,
        given: Option<Given<T>>,
        with: impl FnOnce(LoadOptions, T) -> LoadOptions,
    ) -> Result<(), Error> {
        if let Some(value) = optional(given, name)? {
            self.0 = with(std::mem::take(&mut self.0), value);
        }
        Ok(())
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

/// The arguments that all who write Parquet share.
pub(crate) struct WriteWishes<'a> {
    pub(crate) partition_by: Option<Given<Names>>,
    pub(crate) compression: &'a str,
    pub(crate) overwrite: bool,
    pub(crate) storage_options: Option<Given<Settings>>,
    pub(crate) store: Option<Given<AnyObjectStore>>,
}

impl WriteWishes<'_> {
    /// The folder as the core takes it; `~` is that of the user, but in a store a name like any other.
    pub(crate) fn place(&self, url: Given<Target>) -> Outcome<String> {
        let Target(path) = url.named("url")?;
        Ok(text_of(match self.store {
            Some(_) => path,
            None => of_user(path),
        })?)
    }

    pub(crate) fn into_options(self) -> Outcome<WriteOptions> {
        let partition_by = optional(self.partition_by, "partition_by")?;
        let settings = optional(self.storage_options, "storage_options")?;
        let compression = FileCompression::from_name(&self.compression.to_lowercase())?;
        let options = WriteOptions::default()
            .with_compression(compression)
            .with_partition_by(partition_by.map(|names| names.0).unwrap_or_default())
            .with_overwrite(self.overwrite)
            .with_storage_options(settings.into_iter().flatten().collect());
        Ok(match optional(self.store, "store")? {
            Some(store) => options.with_store(store.into_dyn()),
            None => options,
        })
    }
}
