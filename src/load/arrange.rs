//! A grid -> the same rows in another order: sorted, or partitioned by hash.
//!
//! Comes in: the grid of a load, the wish. Goes out: a grid of new tiles that knows its order. Each row band sorts its own keys, all at once; the sorted runs are merged; each
//! new tile gathers its rows from the old ones, which stay (in memory or files) until the last. Never here: files.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{SortOptions, interleave};
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, Rows, SortField};
use futures::{StreamExt, TryStreamExt, stream};
use twox_hash::XxHash64;

use super::bands::Band;
use super::error::blocking;
use super::keep::Keeper;
use super::layout::fitting_rows;
use super::options::LoadOptions;
use crate::error::{Error, Result};
use crate::grid::{Axis, GridBuilder, PartitionGrid, RowOrder, dense};

/// Bytes of the place of one row: its row band and its number there.
const PLACE_BYTES: u64 = 8;

/// Bytes that a key of a type without a fixed width is taken for.
const WIDE_KEY_BYTES: u64 = 32;

/// Where a row lies: row band, row of it.
type RowPlace = (u32, u32);

/// Row band, its run, the rows of one partition in that.
type RunPart<'a> = (usize, &'a Run, &'a [u32]);

/// The rows of one row band in the wanted order.
struct Run {
    /// Sorted by partition, then by key.
    order: Vec<u32>,
    /// The partitions that have rows, and where these are in `order`.
    parts: Vec<(usize, Range<usize>)>,
    keys: Option<Rows>,
}

/// The wanted order, over column numbers.
#[derive(Clone)]
struct Wish {
    sort: Vec<(usize, SortOptions)>,
    partition: Vec<usize>,
    num_partitions: usize,
}

/// The rows of `grid` as the options want them; the same grid if they want nothing.
pub(super) async fn arrange(
    grid: PartitionGrid,
    keeper: &mut Keeper,
    bands: &[Band],
    options: &LoadOptions,
) -> Result<PartitionGrid> {
    let order = options.order();
    if order == &RowOrder::default() {
        return Ok(grid);
    }
    let tile_rows = options
        .tile_rows()
        .unwrap_or_else(|| fitting_rows(grid.num_rows(), grid.memory_bytes(), options));
    let num_bands = grid.num_rows().div_ceil(tile_rows).max(1);
    let wish = Wish::try_new(&grid, order, options.num_partitions().unwrap_or(num_bands))?;
    let grid = Arc::new(grid);
    let key_bytes = grid.num_rows().saturating_mul(wish.key_bytes(&grid));
    let mut leave = keeper.budget().reserve(key_bytes).await?;
    let wish = Arc::new(wish);
    let runs: Vec<Run> = stream::iter(0..grid.rows().num_intervals())
        .map(|row_band| {
            let (grid, wish) = (Arc::clone(&grid), Arc::clone(&wish));
            blocking(move || wish.run(&grid, row_band))
        })
        .buffered(options.concurrency())
        .try_collect()
        .await?;
    let places = {
        let num_partitions = wish.num_partitions;
        blocking(move || Ok(merged(&runs, num_partitions))).await?
    };
    leave.settle(grid.num_rows().saturating_mul(PLACE_BYTES));
    let lengths = if wish.partition.is_empty() {
        even(grid.num_rows(), num_bands)
    } else {
        places.iter().map(|places| places.len() as u64).collect()
    };
    let places: Arc<[RowPlace]> = places.into_iter().flatten().collect();
    rebuilt(&grid, keeper, bands, (&places, lengths), options).await
}

impl Wish {
    fn try_new(grid: &PartitionGrid, order: &RowOrder, num_partitions: u64) -> Result<Self> {
        let sorted = order.sorted_by.iter().map(|column| {
            let options = SortOptions::new(column.descending, false);
            Ok((grid.column_index(&column.name)?, options))
        });
        let partition = order.partitioned_by.iter();
        let partition: Result<Vec<usize>> = partition.map(|name| grid.column_index(name)).collect();
        let wish = Self {
            sort: sorted.collect::<Result<_>>()?,
            partition: partition?,
            num_partitions: match order.partitioned_by.is_empty() {
                true => 1,
                false => usize::try_from(num_partitions).unwrap_or(usize::MAX),
            },
        };
        for column in wish
            .sort
            .iter()
            .map(|(column, _)| column)
            .chain(&wish.partition)
        {
            let field = grid.schema().field(*column);
            if !RowConverter::supports_fields(&[SortField::new(field.data_type().clone())]) {
                let text = format!(
                    "rows cannot be ordered by a column of {}",
                    field.data_type()
                );
                return Err(Error::unsupported(text).with_column(field.name()));
            }
        }
        Ok(wish)
    }

    /// About how many bytes the keys of one row take.
    fn key_bytes(&self, grid: &PartitionGrid) -> u64 {
        let columns = self
            .sort
            .iter()
            .map(|(column, _)| column)
            .chain(&self.partition);
        let width = |column: &usize| {
            let width = grid.schema().field(*column).data_type().primitive_width();
            width.map_or(WIDE_KEY_BYTES, |width| width as u64 + 1)
        };
        2 * PLACE_BYTES + columns.map(width).sum::<u64>()
    }

    fn run(&self, grid: &PartitionGrid, row_band: usize) -> Result<Run> {
        let batch = grid.open_row_band(row_band)?;
        let rows = u32::try_from(batch.num_rows());
        let rows = rows.map_err(|_| Error::internal("a tile of more than 2^32 rows"))?;
        let keys = match self.sort.as_slice() {
            [] => None,
            sort => Some(keys(&batch, sort)?),
        };
        let mut order: Vec<u32> = (0..rows).collect();
        let key = |row: &u32| keys.as_ref().map(|keys| keys.row(*row as usize));
        if self.partition.is_empty() {
            order.sort_by(|left, right| key(left).cmp(&key(right)));
            let parts = vec![(0, 0..order.len())];
            return Ok(Run { order, parts, keys });
        }
        let partitions = self.partitions(&batch)?;
        let partition = |row: &u32| partitions.get(*row as usize).copied().unwrap_or(0);
        order.sort_by(|left, right| {
            let by_partition = partition(left).cmp(&partition(right));
            by_partition.then_with(|| key(left).cmp(&key(right)))
        });
        let mut parts: Vec<(usize, Range<usize>)> = Vec::new();
        for (at, row) in order.iter().enumerate() {
            match parts.last_mut() {
                Some((last, rows)) if *last == partition(row) => rows.end = at + 1,
                _ => parts.push((partition(row), at..at + 1)),
            }
        }
        Ok(Run { order, parts, keys })
    }

    /// The partition of each row.
    fn partitions(&self, batch: &RecordBatch) -> Result<Vec<usize>> {
        let columns: Vec<(usize, SortOptions)> = self
            .partition
            .iter()
            .map(|column| (*column, SortOptions::default()))
            .collect();
        let keys = keys(batch, &columns)?;
        let number = |row: arrow::row::Row<'_>| {
            let hash = XxHash64::oneshot(0, row.data());
            usize::try_from(hash % self.num_partitions as u64).unwrap_or(0)
        };
        Ok(keys.iter().map(number).collect())
    }
}

fn keys(batch: &RecordBatch, columns: &[(usize, SortOptions)]) -> Result<Rows> {
    let fields = columns.iter().map(|(column, options)| {
        let data_type = batch.column(*column).data_type().clone();
        SortField::new_with_options(data_type, *options)
    });
    let converter = RowConverter::new(fields.collect())?;
    let arrays: Vec<ArrayRef> = columns
        .iter()
        .map(|(column, _)| Arc::clone(batch.column(*column)))
        .collect();
    Ok(converter.convert_columns(&arrays)?)
}

/// The rows of each partition, in order: by key, rows with equal keys as they came.
fn merged(runs: &[Run], num_partitions: usize) -> Vec<Vec<RowPlace>> {
    let mut by_partition: BTreeMap<usize, Vec<RunPart<'_>>> = BTreeMap::new();
    for (band, run) in runs.iter().enumerate() {
        for (partition, rows) in &run.parts {
            let rows = run.order.get(rows.clone()).unwrap_or_default();
            let parts = by_partition.entry(*partition).or_default();
            parts.push((band, run, rows));
        }
    }
    let mut of_partition = |number: usize| {
        let parts = by_partition.remove(&number).unwrap_or_default();
        let place = |band: usize, row: u32| (u32::try_from(band).unwrap_or(u32::MAX), row);
        let count = parts.iter().map(|(.., rows)| rows.len()).sum();
        let mut places = Vec::with_capacity(count);
        let is_sorted = parts.iter().all(|(_, run, _)| run.keys.is_some());
        if parts.len() < 2 || !is_sorted {
            for (band, _, rows) in parts {
                places.extend(rows.iter().map(|row| place(band, *row)));
            }
            return places;
        }
        let key = |part: usize, at: usize| {
            let (band, run, rows) = parts.get(part)?;
            let row = *rows.get(at)?;
            let key = run.keys.as_ref()?.row(row as usize);
            Some(Reverse((key, *band, part, at, row)))
        };
        let mut heap: BinaryHeap<_> = (0..parts.len()).filter_map(|part| key(part, 0)).collect();
        while let Some(mut least) = heap.peek_mut() {
            let Reverse((_, band, part, at, row)) = &*least;
            places.push(place(*band, *row));
            match key(*part, at + 1) {
                Some(next) => *least = next,
                None => drop(std::collections::binary_heap::PeekMut::pop(least)),
            }
        }
        places
    };
    (0..num_partitions).map(&mut of_partition).collect()
}

/// About equal parts of so many rows.
fn even(rows: u64, parts: u64) -> Vec<u64> {
    let cut = |number: u64| {
        let at = u128::from(rows) * u128::from(number) / u128::from(parts);
        u64::try_from(at).unwrap_or(u64::MAX)
    };
    (0..parts).map(|part| cut(part + 1) - cut(part)).collect()
}

/// A grid of the rows at these places, in row bands of these lengths.
async fn rebuilt(
    grid: &Arc<PartitionGrid>,
    keeper: &mut Keeper,
    bands: &[Band],
    (places, lengths): (&Arc<[RowPlace]>, Vec<u64>),
    options: &LoadOptions,
) -> Result<PartitionGrid> {
    let schema = Arc::clone(grid.schema());
    let rows = Axis::try_from_lengths(lengths.iter().copied())?;
    let mut builder = GridBuilder::try_new(schema, rows.clone(), grid.columns().clone())?
        .with_order(options.order().clone())?;
    // The old tiles are needed until the last of the new ones is there.
    let old = keeper.replaced();
    let budget = Arc::clone(keeper.budget());
    let row_bytes = grid.memory_bytes().div_ceil(grid.num_rows().max(1));
    let mut gathered = std::pin::pin!(
        stream::iter(rows.intervals().collect::<Vec<Range<u64>>>())
            .map(|interval| {
                let (grid, places) = (Arc::clone(grid), Arc::clone(places));
                let budget = Arc::clone(&budget);
                async move {
                    let bytes = (interval.end - interval.start).saturating_mul(row_bytes);
                    let leave = budget.reserve(bytes).await?;
                    let batches = blocking(move || gather(&grid, &places, &interval)).await?;
                    Ok::<_, Error>((batches, leave))
                }
            })
            .buffered(options.concurrency())
            .enumerate()
    );
    while let Some((row_band, done)) = gathered.next().await {
        let (batches, mut leave) = done?;
        let bytes: usize = batches.iter().map(RecordBatch::get_array_memory_size).sum();
        leave.settle(bytes as u64);
        let mut leave = Some(leave);
        for (number, batch) in batches.into_iter().enumerate() {
            let is_dense = bands.get(number).is_some_and(|band| band.dense);
            let batch = if is_dense { dense(&batch)? } else { batch };
            let tile = keeper
                .keep(batch, leave.take().into_iter().collect())
                .await?;
            builder.set(&[row_band, number], tile)?;
        }
    }
    drop(old);
    builder.build()
}

/// The rows of one new row band: a batch for each column band.
fn gather(
    grid: &PartitionGrid,
    places: &[RowPlace],
    interval: &Range<u64>,
) -> Result<Vec<RecordBatch>> {
    let number = |row: u64| usize::try_from(row).unwrap_or(usize::MAX);
    let places = places
        .get(number(interval.start)..number(interval.end))
        .ok_or_else(|| Error::internal("a row band past the last row"))?;
    // Only the row bands that the rows come from.
    let mut sources: BTreeMap<u32, usize> = places.iter().map(|(band, _)| (*band, 0)).collect();
    for (at, source) in sources.values_mut().enumerate() {
        *source = at;
    }
    let places: Vec<(usize, usize)> = places
        .iter()
        .map(|(band, row)| (sources.get(band).copied().unwrap_or(0), *row as usize))
        .collect();
    let mut batches = Vec::new();
    for column_band in 0..grid.columns().num_intervals() {
        let opened: Result<Vec<RecordBatch>> = sources
            .keys()
            .map(|band| grid.tile(&[*band as usize, column_band])?.open())
            .collect();
        let opened = opened?;
        let schema = match opened.first() {
            Some(batch) => batch.schema(),
            None => grid.tile(&[0, column_band])?.data().schema(),
        };
        let columns: Result<Vec<ArrayRef>> = (0..schema.fields().len())
            .map(|column| {
                let parts: Vec<&dyn Array> = opened
                    .iter()
                    .map(|batch| batch.column(column).as_ref())
                    .collect();
                if parts.is_empty() {
                    let data_type = schema.field(column).data_type();
                    return Ok(arrow::array::new_empty_array(data_type));
                }
                Ok(owned(interleave(&parts, &places)?))
            })
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
        batches.push(RecordBatch::try_new_with_options(
            schema, columns?, &options,
        )?);
    }
    Ok(batches)
}

/// Views point into the buffers of the old tiles, which shall go: a copy of just the texts.
fn owned(column: ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => column,
    }
}
