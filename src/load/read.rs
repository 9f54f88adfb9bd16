//! Read tasks -> tiles -> the grid.
//!
//! Comes in: files, footers, columns, tasks. Goes out: a grid of which every tile is one batch, contiguous in each column, with exact statistics. At most
//! `concurrency` tiles are read at once, each on a thread that may block. Never here: where to cut.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{CastOptions, cast_with_options, concat_batches, take};
use arrow::datatypes::Field;
use futures::{StreamExt, TryStreamExt, stream};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::chunks::{Chunks, fetch};
use super::error::{contained, from_parquet};
use super::footer::Footer;
use super::hive::HiveColumn;
use super::layout::ReadTask;
use super::schema::{Columns, Origin};
use super::source::{Found, SourceFile};
use crate::error::{Error, Result};
use crate::grid::{Axis, GridBuilder, MemoryTile, PartitionGrid, Tile, statistics_of};

/// Reads all tiles and puts them together.
pub(super) async fn grid(
    found: &Found,
    footers: &[Footer],
    columns: &Columns,
    tasks: Vec<ReadTask>,
    concurrency: usize,
) -> Result<PartitionGrid> {
    if tasks.is_empty() {
        return PartitionGrid::try_from_batches(Arc::clone(&columns.schema), &[]);
    }
    let rows = Axis::try_from_lengths(tasks.iter().map(|task| task.num_rows))?;
    let columns_axis = Axis::uncut(columns.schema.fields().len() as u64);
    let mut builder = GridBuilder::try_new(Arc::clone(&columns.schema), rows, columns_axis)?;
    let columns = Arc::new(columns.clone());
    let tiles: Vec<Tile> = stream::iter(tasks)
        .map(|task| read(found, footers, &columns, task))
        .buffered(concurrency)
        .try_collect()
        .await?;
    for (row_band, tile) in tiles.into_iter().enumerate() {
        builder.set(&[row_band, 0], tile)?;
    }
    builder.build()
}

async fn read(
    found: &Found,
    footers: &[Footer],
    columns: &Arc<Columns>,
    task: ReadTask,
) -> Result<Tile> {
    let (Some(file), Some(footer)) = (found.files.get(task.file), footers.get(task.file)) else {
        return Err(Error::internal(
            "a read task names a file that is not there",
        ));
    };
    let projection = Projection::new(footer, columns);
    let ranges = projection.byte_ranges(footer, &task);
    let chunks = fetch(found.store.as_ref(), file, &ranges).await?;
    let work = Work {
        file: file.clone(),
        footer: footer.clone(),
        columns: Arc::clone(columns),
        projection,
        task,
    };
    let decoding =
        tokio::task::spawn_blocking(move || contained(&work.file.name, || work.tile(chunks)));
    let decoded = decoding.await;
    decoded.map_err(|error| Error::internal("a reading thread ended").with_source(error))?
}

/// The columns that are read from one file.
#[derive(Debug, Clone)]
struct Projection {
    /// Numbers of the file's top-level columns.
    roots: Vec<usize>,
}

impl Projection {
    fn new(footer: &Footer, columns: &Columns) -> Self {
        let names = columns.read_names();
        let fields = footer.schema().fields().iter().enumerate();
        let wanted = fields.filter(|(_, field)| names.contains(field.name().as_str()));
        Self {
            roots: wanted.map(|(root, _)| root).collect(),
        }
    }

    /// The byte ranges of the column chunks, sorted, each range once.
    fn byte_ranges(&self, footer: &Footer, task: &ReadTask) -> Vec<std::ops::Range<u64>> {
        let schema = footer.parquet().file_metadata().schema_descr();
        let groups = footer.parquet().row_groups().get(task.row_groups.clone());
        let mut ranges: Vec<std::ops::Range<u64>> = groups
            .unwrap_or_default()
            .iter()
            .flat_map(|group| group.columns().iter().enumerate())
            .filter(|(leaf, _)| self.roots.contains(&schema.get_column_root_idx(*leaf)))
            .map(|(_, chunk)| {
                let (start, length) = chunk.byte_range();
                start..start + length
            })
            .filter(|range| !range.is_empty())
            .collect();
        ranges.sort_by_key(|range| range.start);
        ranges.dedup();
        ranges
    }
}

/// Everything that the decoding of one tile needs.
struct Work {
    file: SourceFile,
    footer: Footer,
    columns: Arc<Columns>,
    projection: Projection,
    task: ReadTask,
}

impl Work {
    fn tile(&self, chunks: Chunks) -> Result<Tile> {
        let read = self.decode(chunks)?;
        let batch = self.arrange(&read)?;
        let tile = MemoryTile::try_new(&batch)?;
        Ok(Tile::with_statistics(
            Arc::new(tile),
            statistics_of(&batch)?,
        ))
    }

    /// The rows of the task, as the file has them.
    fn decode(&self, chunks: Chunks) -> Result<RecordBatch> {
        let num_rows = usize::try_from(self.task.num_rows).unwrap_or(usize::MAX);
        let skip_rows = usize::try_from(self.task.skip_rows).unwrap_or(usize::MAX);
        let parquet_schema = self.footer.parquet().file_metadata().schema_descr();
        let roots = self.projection.roots.iter().copied();
        let damaged = |error| from_parquet(error, &self.file.name);
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(
            chunks,
            self.footer.metadata.clone(),
        )
        .with_row_groups(self.task.row_groups.clone().collect())
        .with_projection(ProjectionMask::roots(parquet_schema, roots))
        .with_batch_size(num_rows.max(1))
        .with_offset(skip_rows)
        .with_limit(num_rows)
        .build()
        .map_err(damaged)?;
        let schema = arrow::array::RecordBatchReader::schema(&reader);
        let batches: Result<Vec<RecordBatch>, _> = reader.collect();
        let mut batches = batches.map_err(|error| damaged(error.into()))?;
        let batch = match (batches.pop(), batches.is_empty()) {
            (Some(only), true) => only,
            (None, _) => RecordBatch::new_empty(schema),
            (Some(last), false) => {
                batches.push(last);
                concat_batches(&schema, &batches)?
            }
        };
        if batch.num_rows() == num_rows {
            return Ok(batch);
        }
        Err(Error::invalid_data(format!(
            "the file is damaged: its footer promises {num_rows} rows, its pages hold {}",
            batch.num_rows()
        ))
        .with_file(&self.file.name))
    }

    /// The columns of the grid, in its order.
    fn arrange(&self, read: &RecordBatch) -> Result<RecordBatch> {
        let pairs = self
            .columns
            .schema
            .fields()
            .iter()
            .zip(&self.columns.origins);
        let columns: Result<Vec<ArrayRef>> = pairs
            .map(|(field, origin)| self.column(read, field, origin))
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(read.num_rows()));
        let schema = Arc::clone(&self.columns.schema);
        RecordBatch::try_new_with_options(schema, columns?, &options)
            .map_err(|error| Error::from(error).with_file(&self.file.name))
    }

    fn column(&self, read: &RecordBatch, field: &Field, origin: &Origin) -> Result<ArrayRef> {
        let from_file = || {
            read.column_by_name(field.name())
                .cloned()
                .ok_or_else(|| Error::internal("a checked column was not read"))
        };
        match origin {
            Origin::File => from_file(),
            Origin::Folder(hive) => {
                let value = self.folder_value(hive)?;
                Ok(take(
                    &value,
                    &UInt64Array::from_value(0, read.num_rows()),
                    None,
                )?)
            }
            Origin::Both(hive) => {
                let column = from_file()?;
                self.check_folder(&column, &self.folder_value(hive)?)
                    .map_err(|error| error.with_column(field.name()))?;
                Ok(column)
            }
        }
    }

    fn folder_value(&self, hive: &HiveColumn) -> Result<ArrayRef> {
        let value = hive.values.get(self.task.file).cloned();
        value.ok_or_else(|| Error::internal("a folder column has one value for each file"))
    }

    /// A column that is in the file and in the folder name must say the same in both.
    fn check_folder(&self, column: &ArrayRef, value: &ArrayRef) -> Result<()> {
        let strict = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        let differs = |error: arrow::error::ArrowError| {
            Error::invalid_data("the column and the folder name differ")
                .with_file(&self.file.name)
                .with_hint("hive_partitioning=False takes the folder names for plain names")
                .with_source(error)
        };
        let value = cast_with_options(value, column.data_type(), &strict).map_err(differs)?;
        let scalar = arrow::array::Scalar::new(value);
        let unequal = distinct(&column.as_ref(), &scalar).map_err(differs)?;
        if unequal.true_count() == 0 {
            return Ok(());
        }
        Err(differs(arrow::error::ArrowError::InvalidArgumentError(
            format!("{} of {} rows", unequal.true_count(), unequal.len()),
        )))
    }
}
