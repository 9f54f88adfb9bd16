//! 1. Parquet files -> grid.
//!
//! Comes in: paths, folders, patterns. Goes out: a [`PartitionGrid`] in memory. [`load`] takes four steps, each in a file of its own: `source.rs` finds the files,
//! `footer.rs` reads their footers, `layout.rs` decides where to cut, `read.rs` reads. `schema.rs` and `hive.rs` say which columns there are. `write.rs` is the way
//! back: batches -> a Parquet file. Never here: SQL.

mod chunks;
mod error;
mod footer;
mod hive;
mod layout;
mod options;
mod read;
mod schema;
mod source;
mod thrift;
mod write;
mod zones;

pub use options::LoadOptions;
pub use write::write_parquet;

use crate::error::Result;
use crate::grid::PartitionGrid;

/// Loads Parquet files as a grid: the files in name order one below the other, one or more tiles for each.
///
/// A source is a file, a folder (all `*.parquet`, `*.parq`, `*.pq` below it, without those whose own or whose folder's name starts with `_` or `.`), a glob pattern
/// (`*`, `?`, `[…]`, `**`), or a `file://` URL of these; a path that exists is never read as a pattern. Needs a tokio runtime. Dropping the future stops the load.
///
/// # Errors
/// `NotFound` for a source without files and for unknown columns, `InvalidData` for a file that is damaged or differs from the first in its columns (all differences
/// at once), `PermissionDenied` and `Storage` as the file system says, `InvalidArgument` for options that make no sense.
pub async fn load(sources: &[String], options: &LoadOptions) -> Result<PartitionGrid> {
    options.check()?;
    let found = source::find(sources).await?;
    let footers = footer::read_all(&found, options.concurrency()).await?;
    let columns = schema::unify(&found.files, &footers, options)?;
    let layout = layout::plan(&footers, &columns, options.tile_rows());
    read::grid(&found, &footers, &columns, layout, options.concurrency()).await
}
