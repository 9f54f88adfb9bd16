//! What a caller can choose about a load.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::DataType;
use object_store::ObjectStore;

use super::filter::FilterCondition;
use crate::error::{Error, Result};
use crate::grid::{RowOrder, SortColumn};
use crate::memory::default_memory_limit_bytes;

/// More row bands than this serve nobody.
const MAX_PARTITIONS: u64 = 1 << 20;

/// Which differences between the columns of files are borne.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchemaEvolution {
    /// None but the order of columns and nullability: every other difference is reported.
    #[default]
    Strict,
    /// Columns may be missing or of Arrow's null type in some files, and are null there. Columns come in the order in which files bring them.
    Union,
    /// As `Union`; types may differ if one type holds the values of both exactly: integers, floats, decimals, time units, string and list sizes, dictionaries.
    Widen,
}

impl SchemaEvolution {
    /// Its name, as users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Union => "union",
            Self::Widen => "widen",
        }
    }

    /// That of a name.
    ///
    /// # Errors
    /// `InvalidArgument` for another one.
    pub fn from_name(name: &str) -> Result<Self> {
        let all = [Self::Strict, Self::Union, Self::Widen];
        let named = all.into_iter().find(|evolution| evolution.name() == name);
        named.ok_or_else(|| {
            Error::invalid_argument(format!(
                "schema_evolution must be \"strict\", \"union\" or \"widen\", got {name:?}"
            ))
        })
    }
}

/// How the columns are cut into bands.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TileColumns {
    /// So many columns to a band.
    Count(usize),
    /// These bands, in this order, each a list of names; the columns that are not named follow as one band.
    Named(Vec<Vec<String>>),
}

/// The type of text columns.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StringType {
    /// Offsets of 32 bits into one buffer.
    String,
    /// Offsets of 64 bits into one buffer.
    LargeString,
    /// Views of 16 bytes into any number of buffers.
    StringView,
}

/// Settings of [`load`](super::load).
#[derive(Debug, Clone)]
pub struct LoadOptions {
    columns: Option<Vec<String>>,
    allowed: Option<Vec<String>>,
    hive_partitioning: bool,
    tile_rows: Option<u64>,
    concurrency: Option<usize>,
    schema_evolution: SchemaEvolution,
    tile_columns: Option<TileColumns>,
    dense: Vec<Vec<String>>,
    memory_limit_bytes: Option<u64>,
    spill_to: Option<PathBuf>,
    resume: Option<PathBuf>,
    /// Of an earlier load that is resumed.
    tile_bytes: Option<u64>,
    storage_options: Vec<(String, String)>,
    store: Option<Arc<dyn ObjectStore>>,
    deadline: Option<Duration>,
    filters: Vec<Vec<FilterCondition>>,
    string_type: Option<StringType>,
    order: RowOrder,
    num_partitions: Option<u64>,
    lazy: bool,
    #[cfg(feature = "distributed")]
    files_remembered: bool,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            columns: None,
            allowed: None,
            hive_partitioning: true,
            tile_rows: None,
            concurrency: None,
            schema_evolution: SchemaEvolution::Strict,
            tile_columns: None,
            dense: Vec::new(),
            memory_limit_bytes: None,
            spill_to: None,
            resume: None,
            tile_bytes: None,
            storage_options: Vec::new(),
            store: None,
            deadline: None,
            filters: Vec::new(),
            string_type: None,
            order: RowOrder::default(),
            num_partitions: None,
            lazy: false,
            #[cfg(feature = "distributed")]
            files_remembered: false,
        }
    }
}

impl LoadOptions {
    /// Loads only these columns, in this order. Without it, all columns of the files, then those of the folder names.
    #[must_use]
    pub fn with_columns(mut self, columns: Vec<String>) -> Self {
        self.columns = Some(columns);
        self
    }

    /// Whether folder names such as `month=01` become columns; they do by default.
    #[must_use]
    pub fn with_hive_partitioning(mut self, hive_partitioning: bool) -> Self {
        self.hive_partitioning = hive_partitioning;
        self
    }

    /// About how many rows a tile holds. By default 1,048,576, or fewer so that a tile stays under 128 MiB.
    #[must_use]
    pub fn with_tile_rows(mut self, tile_rows: u64) -> Self {
        self.tile_rows = Some(tile_rows);
        self
    }

    /// How many files or tiles are worked on at once; by default the number of cores.
    #[must_use]
    pub fn with_concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = Some(concurrency);
        self
    }

    /// Which differences between the columns of files are borne; by default none.
    #[must_use]
    pub fn with_schema_evolution(mut self, schema_evolution: SchemaEvolution) -> Self {
        self.schema_evolution = schema_evolution;
        self
    }

    /// How the columns are cut into bands; by default not at all.
    #[must_use]
    pub fn with_tile_columns(mut self, tile_columns: TileColumns) -> Self {
        self.tile_columns = Some(tile_columns);
        self
    }

    /// Column bands, each of columns of one type of integers or floats, of which every tile is one allocation: column after column, each at a multiple of 64 bytes and
    /// at the same distance from the one before, so that the same memory is Arrow columns and a 2-D array. Costs one copy of these columns. They come before the others.
    #[must_use]
    pub fn with_dense(mut self, dense: Vec<Vec<String>>) -> Self {
        self.dense = dense;
        self
    }

    /// The most bytes that the load may use for what it decodes and for finished tiles; by default 80 % of the machine or its control group.
    #[must_use]
    pub fn with_memory_limit_bytes(mut self, memory_limit_bytes: u64) -> Self {
        self.memory_limit_bytes = Some(memory_limit_bytes);
        self
    }

    /// A folder for the tiles that the memory limit leaves no room for. Their files have no name and vanish with the grid or the process.
    #[must_use]
    pub fn with_spill_to(mut self, folder: PathBuf) -> Self {
        self.spill_to = Some(folder);
        self
    }

    /// A folder in which every finished tile is left, so that the same load can go on there after its process ended: tiles of files that have not changed since (by etag, or
    /// by time, size and number of a local file) are taken from it. The folder is made if it is not there and serves one load at a time; it is the caller's to remove.
    #[must_use]
    pub fn with_resume(mut self, folder: PathBuf) -> Self {
        self.resume = Some(folder);
        self
    }

    /// Settings for the stores of URLs, by the names that the stores give them (`region`, `endpoint`, `access_key_id`, `account_name`, …, with or without `aws_`,
    /// `google_`, `azure_`) and `profile`, `anonymous`, `requester_pays`, `connect_timeout` (3 s by default), `timeout` of one request (30 s), `max_retries` (5),
    /// `retry_timeout` after which nothing is tried again (9 s). They go before the environment, and that before the files of the AWS tools.
    #[must_use]
    pub fn with_storage_options(mut self, storage_options: Vec<(String, String)>) -> Self {
        self.storage_options = storage_options;
        self
    }

    /// Loads from this store; sources are paths and patterns in it.
    #[must_use]
    pub fn with_store(mut self, store: Arc<dyn ObjectStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// Gives the load up after so long; by default never.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Loads only from below these folders and URLs, wherever links lead: for sources that somebody else names.
    #[must_use]
    pub fn with_allowed(mut self, places: Vec<String>) -> Self {
        self.allowed = Some(places);
        self
    }

    /// Loads only the rows that meet all conditions of one of these groups. Row groups and pages that cannot hold such a row are not read (by statistics, page
    /// index and bloom filters), nor are the other columns of rows that the filter's own columns exclude. Tiles without rows are left out.
    #[must_use]
    pub fn with_filters(mut self, filters: Vec<Vec<FilterCondition>>) -> Self {
        self.filters = filters;
        self
    }

    /// Gives all text columns this type, nested ones too; by default each keeps the type that its writer stored. Dictionaries of texts stay dictionaries.
    #[must_use]
    pub fn with_string_type(mut self, string_type: StringType) -> Self {
        self.string_type = Some(string_type);
        self
    }

    /// Sorts the rows of the whole grid by these columns; rows that are equal in them stay in the order of the files. Needs room for the rows twice. With
    /// [`with_partition_by`](Self::with_partition_by) the rows of every row band are sorted.
    #[must_use]
    pub fn with_sort_by(mut self, columns: Vec<SortColumn>) -> Self {
        self.order.sorted_by = columns;
        self
    }

    /// Brings rows with equal values in these columns into one row band, by hash; see [`RowOrder`]. Needs room for the rows twice.
    #[must_use]
    pub fn with_partition_by(mut self, columns: Vec<String>) -> Self {
        self.order.partitioned_by = columns;
        self
    }

    /// How many row bands [`with_partition_by`](Self::with_partition_by) makes; by default as many as tiles of `tile_rows` rows would be.
    #[must_use]
    pub fn with_num_partitions(mut self, num_partitions: u64) -> Self {
        self.num_partitions = Some(num_partitions);
        self
    }

    /// Makes tiles that only know where their rows lie, and read the columns that are asked for when they are asked for. What was read stays in memory up to the memory
    /// limit; the columns that were not used for the longest time go first.
    #[must_use]
    pub fn with_lazy(mut self, lazy: bool) -> Self {
        self.lazy = lazy;
        self
    }

    /// Has tiles in memory remember from which files they come, so that other members of a cluster can read them again (`cluster.shared`). Those of lazy grids do so anyway; rows that a filter chose, or that are brought
    /// into an order, do not.
    #[cfg(feature = "distributed")]
    #[must_use]
    pub fn with_files_remembered(mut self, files_remembered: bool) -> Self {
        self.files_remembered = files_remembered;
        self
    }

    /// Whether tiles are to remember their files, and others would need no settings to read these.
    #[cfg(feature = "distributed")]
    pub(super) fn remembers_files(&self) -> bool {
        let is_as_read = self.order == RowOrder::default() && self.num_partitions.is_none();
        let is_plain = self.storage_options.is_empty() && self.store.is_none();
        self.files_remembered && is_as_read && is_plain
    }

    /// The same without an order of rows: for those who bring them into it themselves.
    #[cfg(feature = "distributed")]
    pub(crate) fn unarranged(&self) -> Self {
        Self {
            order: RowOrder::default(),
            num_partitions: None,
            ..self.clone()
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let zero = [
            ("tile_rows", self.tile_rows == Some(0)),
            ("num_partitions", self.num_partitions == Some(0)),
            (
                "tile_columns",
                self.tile_columns == Some(TileColumns::Count(0)),
            ),
            ("concurrency", self.concurrency == Some(0)),
            ("memory_limit", self.memory_limit_bytes == Some(0)),
        ];
        if let Some((name, _)) = zero.into_iter().find(|(_, is_zero)| *is_zero) {
            let text = format!("{name} must be at least 1, got 0");
            return Err(Error::invalid_argument(text));
        }
        if let Some(count) = self.num_partitions.filter(|count| *count > MAX_PARTITIONS) {
            let text = format!("num_partitions must be at most {MAX_PARTITIONS}, got {count}");
            return Err(Error::invalid_argument(text));
        }
        if self.num_partitions.is_some() && self.order.partitioned_by.is_empty() {
            let text = "num_partitions needs partition_by, got none";
            return Err(Error::invalid_argument(text));
        }
        for (name, folder) in [("resume", &self.resume), ("spill_to", &self.spill_to)] {
            check_folder(name, folder.as_deref())?;
        }
        let eager = [
            ("filters", !self.filters.is_empty()),
            ("sort_by", !self.order.sorted_by.is_empty()),
            ("partition_by", !self.order.partitioned_by.is_empty()),
            ("dense", !self.dense.is_empty()),
            ("resume", self.resume.is_some()),
            ("spill_to", self.spill_to.is_some()),
        ];
        match eager.into_iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) if self.lazy => {
                let text =
                    format!("a lazy load cannot take {name}, which needs the values at once");
                Err(Error::invalid_argument(text).with_hint(format!("leave out lazy or {name}")))
            }
            _ => Ok(()),
        }
    }

    /// The columns that are read: those of the grid, then those that only filters need.
    pub(super) fn columns(&self) -> Option<Vec<&str>> {
        let columns = self.columns.as_ref()?;
        let mut names: Vec<&str> = columns.iter().map(String::as_str).collect();
        for condition in self.filters.iter().flatten() {
            if !names.contains(&condition.column.as_str()) {
                names.push(&condition.column);
            }
        }
        Some(names)
    }

    /// How many of `columns` the grid has.
    pub(super) fn num_columns(&self) -> Option<usize> {
        self.columns.as_ref().map(Vec::len)
    }

    pub(super) fn filters(&self) -> &[Vec<FilterCondition>] {
        &self.filters
    }

    /// The type of text columns, if one is wanted.
    pub(super) fn text_type(&self) -> Option<DataType> {
        Some(match self.string_type? {
            StringType::String => DataType::Utf8,
            StringType::LargeString => DataType::LargeUtf8,
            StringType::StringView => DataType::Utf8View,
        })
    }

    pub(super) fn order(&self) -> &RowOrder {
        &self.order
    }

    pub(super) fn num_partitions(&self) -> Option<u64> {
        self.num_partitions
    }

    pub(super) fn is_lazy(&self) -> bool {
        self.lazy
    }

    pub(super) fn hive_partitioning(&self) -> bool {
        self.hive_partitioning
    }

    pub(super) fn schema_evolution(&self) -> SchemaEvolution {
        self.schema_evolution
    }

    pub(super) fn storage_options(&self) -> &[(String, String)] {
        &self.storage_options
    }

    pub(super) fn store(&self) -> Option<&Arc<dyn ObjectStore>> {
        self.store.as_ref()
    }

    pub(super) fn allowed(&self) -> Option<&[String]> {
        self.allowed.as_deref()
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    pub(super) fn tile_columns(&self) -> Option<&TileColumns> {
        self.tile_columns.as_ref()
    }

    pub(super) fn dense(&self) -> &[Vec<String>] {
        &self.dense
    }

    pub(super) fn memory_limit_bytes(&self) -> u64 {
        let default = || u64::try_from(default_memory_limit_bytes()).unwrap_or(u64::MAX);
        self.memory_limit_bytes.unwrap_or_else(default)
    }

    pub(super) fn spill_to(&self) -> Option<&Path> {
        self.spill_to.as_deref()
    }

    /// Makes automatic tiles as large as those of an earlier load.
    pub(super) fn with_tile_bytes(mut self, tile_bytes: u64) -> Self {
        self.tile_bytes = Some(tile_bytes);
        self
    }

    pub(super) fn tile_bytes(&self) -> Option<u64> {
        self.tile_bytes
    }

    pub(super) fn resume(&self) -> Option<&Path> {
        self.resume.as_deref()
    }

    pub(super) fn tile_rows(&self) -> Option<u64> {
        self.tile_rows
    }

    pub(super) fn concurrency(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.concurrency.unwrap_or_else(cores)
    }
}

/// Files of a load lie in local folders.
fn check_folder(name: &str, folder: Option<&Path>) -> Result<()> {
    let Some(folder) = folder.map(Path::to_string_lossy) else {
        return Ok(());
    };
    if folder.is_empty() || folder.contains("://") {
        let text = format!("{name} must be a local folder, got {folder:?}");
        return Err(Error::invalid_argument(text));
    }
    Ok(())
}
