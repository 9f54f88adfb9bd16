//! A grid, or batches as they come -> Parquet files.
//!
//! Comes in: a grid or batches, a folder or URL. Goes out: one file for each row band, or for each tile, in folders of `key=value` on request; all of them or none. Read on in
//! `split.rs` and `gather.rs` (folders), `encode.rs` (batches to bytes), `target.rs` (where the bytes go), `local.rs` (all at once). Never here: changes of values or types.

mod encode;
mod gather;
mod local;
mod split;
mod target;

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, IntervalUnit, SchemaRef};
use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, future, stream};

pub use encode::{FileCompression, write_parquet};
use encode::{ROW_GROUP_BYTES, ROW_GROUP_ROWS};

use super::error::{blocking, contained_writer};
use super::options::LoadOptions;
use crate::error::{Error, Result};
use crate::grid::{PartitionGrid, Tile, slice_bytes};
use target::Output;

/// The digits of the number in the name of a file, at least.
const DIGITS: usize = 5;

/// How rows are written.
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

    /// Replaces the files `part-….parquet` in the folder and in its folders `name=value`. By default a folder with data files is refused, and one with other data files always.
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
    check_columns(grid.schema(), grid.num_rows()).map_err(|error| error.with_file(url))?;
    split::check_keys(grid.schema(), &options.partition_by)?;
    split::check_rows(grid.num_rows(), &options.partition_by)?;
    let parts = parts(grid, options);
    let digits = parts.len().saturating_sub(1).to_string().len().max(DIGITS);
    let grid = Arc::new(grid.clone());
    let rows = parts
        .into_iter()
        .map(move |part| rows_of(Arc::clone(&grid), part, digits));
    write_all(stream::iter(rows), url, options, &options.partition_by).await
}

/// Writes batches as they come, as [`write_grid`] writes a grid: a file for each 1,048,576 rows or so, fewer where rows are long, and one without rows where no row comes. No more of them are in memory than are being
/// encoded, one file for each core. With `partition_by` up to 256 MiB of them are gathered, so that each folder has few files.
///
/// # Errors
/// The first error among the batches, and as [`write_grid`]. `InvalidArgument` for a file for each tile, too: batches have none.
pub async fn write_batches(
    schema: SchemaRef,
    batches: impl Stream<Item = Result<RecordBatch>>,
    url: &str,
    options: &WriteOptions,
) -> Result<u64> {
    if options.file_per_tile {
        let text = "batches have no tiles that could have a file each";
        return Err(Error::invalid_argument(text));
    }
    check_columns(&schema, 0).map_err(|error| error.with_file(url))?;
    split::check_keys(&schema, &options.partition_by)?;
    let rows = rows_of_batches(&schema, batches, url, options);
    if options.partition_by.is_empty() {
        return write_all(rows.map(future::ready), url, options, &[]).await;
    }
    let rows = gather::by_folder(rows, options.partition_by.clone(), cores());
    write_all(rows.map(future::ready), url, options, &[]).await
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn part_name(number: usize) -> String {
    format!("part-{number:0DIGITS$}.parquet")
}

/// What one file, or one in each folder, will hold.
struct Rows {
    name: String,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

/// The batches, as many together as a file holds.
fn rows_of_batches(
    schema: &SchemaRef,
    batches: impl Stream<Item = Result<RecordBatch>>,
    url: &str,
    options: &WriteOptions,
) -> impl Stream<Item = Result<Rows>> {
    let pieces =
        batches.map_ok(|batch| stream::iter(pieces(&batch).into_iter().map(Ok::<_, Error>)));
    let pieces = Box::pin(pieces.try_flatten().fuse());
    stream::try_unfold((pieces, 0_usize), move |(mut pieces, number)| async move {
        let (mut batches, mut num_rows, mut bytes) = (Vec::new(), 0, 0);
        while num_rows < ROW_GROUP_ROWS && bytes < ROW_GROUP_BYTES as u64 {
            let Some(batch) = pieces.try_next().await? else {
                break;
            };
            num_rows += batch.num_rows();
            bytes += slice_bytes(&batch);
            batches.push(batch);
        }
        check_columns(schema, num_rows as u64).map_err(|error| error.with_file(url))?;
        if num_rows == 0 {
            if number > 0 {
                return Ok(None);
            }
            split::check_rows(0, &options.partition_by)?;
        }
        let rows = Rows {
            name: part_name(number),
            schema: Arc::clone(schema),
            batches,
        };
        Ok(Some((rows, (pieces, number + 1))))
    })
}

/// A batch in pieces of which none is longer than a file.
fn pieces(batch: &RecordBatch) -> Vec<RecordBatch> {
    let starts = (0..batch.num_rows()).step_by(ROW_GROUP_ROWS);
    let pieces = starts.map(|start| {
        let length = (batch.num_rows() - start).min(ROW_GROUP_ROWS);
        batch.slice(start, length)
    });
    pieces.collect()
}

/// Refuses rows that Parquet cannot keep, or that nobody could read back.
fn check_columns(schema: &SchemaRef, num_rows: u64) -> Result<()> {
    if schema.fields().is_empty() && num_rows > 0 {
        let text = format!("Parquet cannot keep {num_rows} rows without a column");
        return Err(Error::unsupported(text));
    }
    for field in schema.fields() {
        if let Some((what, hint)) = unwritable(field.data_type()) {
            let error = Error::unsupported(format!("Parquet has no {what}"));
            return Err(error.with_column(field.name()).with_hint(hint));
        }
    }
    let mut names = HashSet::new();
    let mut fields = schema.fields().iter();
    match fields.find(|field| !names.insert(field.name())) {
        None => Ok(()),
        Some(field) => {
            let text = "two columns have the same name, and files of them could not be read";
            let error = Error::invalid_argument(text).with_column(field.name());
            Err(error.with_hint("give one of them another name with AS"))
        }
    }
}

/// What there is in a type that files cannot have, and what can be written in its place.
fn unwritable(data_type: &DataType) -> Option<(&'static str, &'static str)> {
    match data_type {
        DataType::Interval(IntervalUnit::MonthDayNano) => Some((
            "intervals of months, days and nanoseconds",
            "write a text, CAST(x AS TEXT), or a number, extract(epoch FROM x)",
        )),
        DataType::Union(..) => Some(("unions", "write a column for each of its types")),
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale)
            if *scale < 0 =>
        {
            Some((
                "decimals with a scale below 0",
                "write CAST(x AS DECIMAL(38, 0))",
            ))
        }
        DataType::Struct(fields) => fields
            .iter()
            .find_map(|field| unwritable(field.data_type())),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _)
        | DataType::RunEndEncoded(_, field) => unwritable(field.data_type()),
        DataType::Dictionary(_, values) => unwritable(values),
        _ => None,
    }
}

/// Writes all files, or none; those of some rows into the folders of these keys.
async fn write_all<F>(
    rows: impl Stream<Item = F>,
    url: &str,
    options: &WriteOptions,
    keys: &[String],
) -> Result<u64>
where
    F: Future<Output = Result<Rows>>,
{
    let mut output = Output::open(url, options.overwrite, &options.stores).await?;
    match write_into(rows, &mut output, options.compression, keys).await {
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

async fn write_into<F>(
    rows: impl Stream<Item = F>,
    output: &mut Output,
    compression: FileCompression,
    keys: &[String],
) -> Result<u64>
where
    F: Future<Output = Result<Rows>>,
{
    let files = rows
        .map(|rows| encoded(rows, compression, keys.to_vec()))
        .buffered(cores())
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

/// The rows of one part of a grid.
async fn rows_of(grid: Arc<PartitionGrid>, part: Part, digits: usize) -> Result<Rows> {
    let batch = match part.column_band {
        None => row_band(&grid, part.row_band).await?,
        Some(column_band) => whole(grid.tile(&[part.row_band, column_band])?).await?,
    };
    let name = match part.column_band {
        None => format!("part-{:0digits$}.parquet", part.row_band),
        Some(band) => format!("part-{:0digits$}-{band:03}.parquet", part.row_band),
    };
    Ok(Rows {
        name,
        schema: batch.schema(),
        batches: vec![batch],
    })
}

/// The files of some rows: path below the folder, and content.
async fn encoded(
    rows: impl Future<Output = Result<Rows>>,
    compression: FileCompression,
    keys: Vec<String>,
) -> Result<Vec<(String, Bytes)>> {
    let Rows {
        name,
        schema,
        batches,
    } = rows.await?;
    blocking(move || {
        contained_writer(&name, || {
            let encode = |path: String, schema: &SchemaRef, batches: Vec<RecordBatch>| {
                let mut content = Vec::new();
                let batches = batches.into_iter().map(Ok);
                write_parquet(&mut content, schema, compression, batches)?;
                Ok((path, Bytes::from(content)))
            };
            if keys.is_empty() {
                return Ok(vec![encode(name.clone(), &schema, batches)?]);
            }
            let split = split::split(&concat_batches(&schema, &batches)?, &keys)?;
            let files = split.into_iter().map(|(folder, rows)| {
                encode(format!("{folder}/{name}"), &rows.schema(), vec![rows])
            });
            files.collect()
        })
    })
    .await
}
