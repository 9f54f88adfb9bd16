//! A grid -> Parquet files.
//!
//! Comes in: a grid, a folder or URL. Goes out: one file for each row band, or for each tile, in folders of `key=value` on request; all of them or none. Read on in
//! `split.rs` (folders), `encode.rs` (batches to bytes), `target.rs` (where the bytes go), `local.rs` (all at once). Never here: changes of values or types.

mod encode;
mod local;
mod split;
mod target;

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

pub use encode::{FileCompression, write_parquet};

use super::error::{blocking, contained_writer};
use super::options::LoadOptions;
use crate::error::{Error, Result};
use crate::grid::{PartitionGrid, Tile};
use target::Output;

/// How a grid is written.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    compression: FileCompression,
    partition_by: Vec<String>,
    file_per_tile: bool,
    overwrite: bool,
    stores: LoadOptions,
}

impl WriteOptions {
    /// How pages are compressed; Zstandard by default.
    #[must_use]
    pub fn with_compression(mut self, compression: FileCompression) -> Self {
        self.compression = compression;
        self
    }

    /// Splits the rows by the values of these columns into folders `column=value`, which then stand for the columns.
    #[must_use]
    pub fn with_partition_by(mut self, columns: Vec<String>) -> Self {
        self.partition_by = columns;
        self
    }

    /// Writes one file for each tile, which has the columns of its column band only. By default one for each row band, with all columns.
    #[must_use]
    pub fn with_file_per_tile(mut self, file_per_tile: bool) -> Self {
        self.file_per_tile = file_per_tile;
        self
    }

    /// Replaces the files `part-….parquet` in the folder and below it. By default a folder with data files is refused, and one with other data files always.
    #[must_use]
    pub fn with_overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Settings for the store of a URL, as [`LoadOptions::with_storage_options`].
    #[must_use]
    pub fn with_storage_options(mut self, storage_options: Vec<(String, String)>) -> Self {
        self.stores = self.stores.with_storage_options(storage_options);
        self
    }

    /// Writes into this store; the folder is a path in it.
    #[must_use]
    pub fn with_store(mut self, store: Arc<dyn object_store::ObjectStore>) -> Self {
        self.stores = self.stores.with_store(store);
        self
    }
}

/// Writes a grid as Parquet files below a folder or URL, and returns how many. Names are `part-00000.parquet`, in the order of the rows. Files become visible when all
/// are written, in one step where the file system can do that (in an object store each when it is whole); after an error none is left.
///
/// # Errors
/// `InvalidArgument` for a folder with data files and for options that make no sense, `NotFound` for an unknown column, `Unsupported` for a type that Parquet has not and for rows without columns,
/// `PermissionDenied`, `ResourcesExhausted` and `Storage` as the file system or store says.
pub async fn write_grid(grid: &PartitionGrid, url: &str, options: &WriteOptions) -> Result<u64> {
    if grid.num_columns() == 0 && grid.num_rows() > 0 {
        let text = format!(
            "Parquet cannot keep {} rows without a column",
            grid.num_rows()
        );
        return Err(Error::unsupported(text).with_file(url));
    }
    split::check_keys(grid, &options.partition_by)?;
    let mut output = Output::open(url, options.overwrite, &options.stores).await?;
    match write_all(grid, &mut output, options).await {
        Ok(count) => {
            output.commit().await?;
            Ok(count)
        }
        Err(error) => {
            output.abort().await;
            Err(error)
        }
    }
}

async fn write_all(
    grid: &PartitionGrid,
    output: &mut Output,
    options: &WriteOptions,
) -> Result<u64> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let parts = parts(grid, options);
    let digits = parts.len().saturating_sub(1).to_string().len().max(5);
    let files = stream::iter(parts)
        .map(|part| encode_part(grid, part, options, digits))
        .buffered(cores)
        .map_ok(|files| stream::iter(files.into_iter().map(Ok::<_, Error>)))
        .try_flatten();
    let mut files = std::pin::pin!(files);
    let mut count = 0;
    while let Some((path, content)) = files.try_next().await? {
        output.write(&path, content).await?;
        count += 1;
    }
    Ok(count)
}

/// A row band, and its column band where each tile has a file of its own.
#[derive(Debug, Clone, Copy)]
struct Part {
    row_band: usize,
    column_band: Option<usize>,
}

fn parts(grid: &PartitionGrid, options: &WriteOptions) -> Vec<Part> {
    let row_bands = 0..grid.rows().num_intervals();
    let column_bands: Vec<Option<usize>> = if options.file_per_tile {
        (0..grid.columns().num_intervals()).map(Some).collect()
    } else {
        vec![None]
    };
    let of_band = |row_band| {
        let column_bands = column_bands.clone().into_iter();
        column_bands.map(move |column_band| Part {
            row_band,
            column_band,
        })
    };
    row_bands.flat_map(of_band).collect()
}

/// Whether a grid can be written below a folder or URL, as far as that is known before there is a grid: whoever works for hours to make one asks first.
///
/// # Errors
/// As [`write_grid`], of those about the folder or store.
pub async fn check_output(url: &str, options: &WriteOptions) -> Result<()> {
    let output = Output::open(url, options.overwrite, &options.stores).await?;
    output.abort().await;
    Ok(())
}

/// The tiles of a row band side by side, brought here if they are elsewhere.
async fn row_band(grid: &PartitionGrid, row_band: usize) -> Result<RecordBatch> {
    let mut columns = Vec::with_capacity(grid.num_columns());
    let mut num_rows = 0;
    for tile in grid.row_band(row_band) {
        let batch = whole(tile).await?;
        num_rows = batch.num_rows();
        columns.extend_from_slice(batch.columns());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
    let schema = Arc::clone(grid.schema());
    Ok(RecordBatch::try_new_with_options(
        schema, columns, &options,
    )?)
}

async fn whole(tile: &Tile) -> Result<RecordBatch> {
    let columns: Vec<usize> = (0..tile.data().schema().fields().len()).collect();
    tile.data().fetch(&columns).await
}

/// The files of one part: path below the folder, and content.
async fn encode_part(
    grid: &PartitionGrid,
    part: Part,
    options: &WriteOptions,
    digits: usize,
) -> Result<Vec<(String, Bytes)>> {
    let batch = match part.column_band {
        None => row_band(grid, part.row_band).await?,
        Some(column_band) => whole(grid.tile(&[part.row_band, column_band])?).await?,
    };
    let name = match part.column_band {
        None => format!("part-{:0digits$}.parquet", part.row_band),
        Some(band) => format!("part-{:0digits$}-{band:03}.parquet", part.row_band),
    };
    let (compression, keys) = (options.compression, options.partition_by.clone());
    blocking(move || {
        contained_writer(&name, || {
            let split = split::split(&batch, &keys)?;
            let encode = |(folder, rows): (String, RecordBatch)| {
                let mut content = Vec::new();
                write_parquet(&mut content, &rows.schema(), compression, [Ok(rows)])?;
                let path = match folder.as_str() {
                    "" => name.clone(),
                    folder => format!("{folder}/{name}"),
                };
                Ok((path, Bytes::from(content)))
            };
            split.into_iter().map(encode).collect()
        })
    })
    .await
}
