//! 1. Parquet files -> grid.
//!
//! Comes in: paths, folders, patterns. Goes out: a [`PartitionGrid`] in memory. [`load`] takes the steps in `run`, each in a file of its own: `source/` finds the
//! files, `footer.rs` reads their footers, `schema.rs` (with `hive.rs` and `types.rs`) and `bands.rs` say which columns there are, `layout.rs` decides where to cut,
//! `read.rs` reads (bytes: `input.rs`, columns: `decode.rs`), `assembly.rs` makes tiles and the grid (rows: `filter.rs`), `keep.rs` keeps them (memory: `budget.rs`, files: `spill.rs`, `checkpoint.rs`), `arrange.rs` sorts (`scatter.rs`: with other processes).
//! `lazy.rs` makes tiles that read later, of which `lineage/` tells other processes where they come from. [`LoadJob`] does the same in the background. `write/` is the way back: a
//! grid -> Parquet files. Never here: SQL.

mod arrange;
mod assembly;
mod bands;
mod bloom;
mod budget;
mod cache;
mod checkpoint;
mod choose;
mod claims;
mod decode;
mod error;
mod filter;
mod floats;
mod footer;
mod footer_statistics;
mod hive;
mod input;
mod intervals;
mod job;
mod keep;
mod layout;
mod lazy;
#[cfg(feature = "distributed")]
mod lineage;
mod options;
mod page_index;
mod progress;
mod ranges;
mod read;
mod runs;
#[cfg(feature = "distributed")]
mod scatter;
mod schema;
mod sizes;
mod source;
mod spill;
mod thrift;
mod types;
mod write;
mod zones;

pub use filter::{FilterCondition, FilterOperator};
pub use job::LoadJob;
#[cfg(feature = "distributed")]
pub(crate) use lineage::{
    Lineage, LineagePlace, LineageReader, Lineages, file_bytes, is_allowed, is_below, read_ahead,
    source_place, task_place,
};
pub use options::{LoadOptions, SchemaEvolution, StringType, TileColumns};
pub use progress::Progress;
#[cfg(feature = "distributed")]
pub(crate) use scatter::{Arrangement, Cut};
#[cfg(feature = "cli")]
pub(crate) use source::is_in_store;
pub use write::{
    FileCompression, WriteOptions, check_output, write_batches, write_grid, write_parquet,
};

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::error::{Error, ErrorKind, Result};
use crate::grid::PartitionGrid;

use filter::Filter;
use layout::Plan;
use progress::Counters;

/// Loads Parquet files as a grid: the files in name order one below the other, one or more tiles for each.
///
/// A source is a file, a folder (all `*.parquet`, `*.parq`, `*.pq` below it, without those whose own or whose folder's name starts with `_` or `.`), a glob pattern
/// (`*`, `?`, `[…]`, `**`; a folder that matches counts with the data files below it, hidden names do not), or a `file://` URL of these; a path that exists is never
/// read as a pattern. Links are followed; one that leads nowhere is an error. Needs a tokio runtime. Dropping the future stops the load.
///
/// # Errors
/// `NotFound` for a source without files and for unknown columns, `InvalidData` for a file that is damaged or differs from the first in its columns (all differences
/// at once), `PermissionDenied` and `Storage` as the file system says, `InvalidArgument` for options that make no sense.
pub async fn load(sources: &[String], options: &LoadOptions) -> Result<PartitionGrid> {
    run(sources, options, &Arc::new(Counters::new())).await
}

/// The object store of a URL, and the prefix that it names there; credentials come from the environment.
///
/// # Errors
/// `InvalidArgument` for what is no URL of a store, as [`load`] for one that cannot be had.
#[cfg_attr(
    not(feature = "serve"),
    expect(dead_code, reason = "for catalogs of servers")
)]
pub(crate) fn store_at(
    url: &str,
) -> Result<(Arc<dyn object_store::ObjectStore>, object_store::path::Path)> {
    match source::target_of(url, &LoadOptions::default())? {
        source::Target::Remote { remote, prefix } => Ok((Arc::clone(&remote.store), prefix)),
        source::Target::Local(_) => {
            let text = format!("it must be the URL of an object store, got {url:?}");
            Err(Error::invalid_argument(text))
        }
    }
}

async fn run(
    sources: &[String],
    options: &LoadOptions,
    counters: &Arc<Counters>,
) -> Result<PartitionGrid> {
    options.check()?;
    Handle::try_current().map_err(|_| needs_runtime())?;
    let Some(deadline) = options.deadline() else {
        return steps(sources, options, counters).await;
    };
    let steps = steps(sources, options, counters);
    tokio::time::timeout(deadline, steps).await.map_err(|_| {
        let text = format!("the load took longer than its deadline of {deadline:?}");
        Error::new(ErrorKind::ResourcesExhausted, text).with_hint("raise deadline")
    })?
}

/// The steps of a load, in order.
async fn steps(
    sources: &[String],
    options: &LoadOptions,
    counters: &Arc<Counters>,
) -> Result<PartitionGrid> {
    let files = source::find(sources, options).await?;
    counters.total_files.add(files.len() as u64);
    let footers = footer::read_all(&files, options.concurrency(), counters).await?;
    let footers = match options.text_type() {
        Some(text) => footer::with_text(footers, &text, &files)?,
        None => footers,
    };
    let columns = schema::unify(&files, &footers, options)?;
    let (columns, bands) = bands::arrange(columns, options)?;
    let filter = match options.filters() {
        [] => None,
        groups => Some(Filter::try_new(groups, &columns.schema)?),
    };
    let kept = layout::kept(&footers, &columns, filter.as_ref())?;
    let (footers, kept) = match &filter {
        None => (footers, kept),
        Some(filter) => {
            let concurrency = options.concurrency();
            let kept = bloom::kept(&files, &footers, kept, filter, concurrency).await?;
            let indexed = page_index::with_page_indexes(&files, footers, &kept, concurrency);
            (indexed.await?, kept)
        }
    };
    let options = &with_tiles_of_before(options).await?;
    let tasks = layout::tasks(&footers, &columns, &kept, options);
    let plan = Plan {
        files,
        footers,
        columns,
        bands,
        tasks,
        filter,
        #[cfg(feature = "distributed")]
        text: options.text_type(),
    };
    plan.announce(counters);
    if options.is_lazy() {
        return lazy::grid(plan, options, counters);
    }
    let plan = Arc::new(plan);
    let (grid, mut keeper) = read::grid(Arc::clone(&plan), options, counters).await?;
    let grid = arrange::arrange(grid, &mut keeper, &plan.bands, options).await?;
    #[cfg(feature = "distributed")]
    if options.remembers_files() {
        return lineage::remembering(grid, &plan);
    }
    Ok(grid)
}

/// The options, with automatic tiles as large as those that an earlier load has left to be resumed.
async fn with_tiles_of_before(options: &LoadOptions) -> Result<LoadOptions> {
    let options = options.clone();
    let Some(folder) = options.resume().filter(|_| options.tile_rows().is_none()) else {
        return Ok(options);
    };
    let folder = folder.to_owned();
    let allowed = layout::tile_bytes_under(options.memory_limit_bytes());
    let tile_bytes = error::blocking(move || checkpoint::tile_bytes(&folder, allowed)).await?;
    Ok(options.with_tile_bytes(tile_bytes))
}

fn needs_runtime() -> Error {
    Error::invalid_argument("a load needs a tokio runtime, got none")
        .with_hint("await it under #[tokio::main], or enter a runtime first")
}
