//! A grid -> the same rows in another order: sorted, or partitioned by hash.
//!
//! Comes in: the grid of a load, the wish. Goes out: a grid of new tiles that knows its order. `runs.rs` says where the rows go; each new tile gathers its rows from the
//! old ones, which stay (in memory or files) until the last. Never here: comparing, files.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::interleave;
use arrow::datatypes::DataType;
use futures::{StreamExt, TryStreamExt, stream};

use super::bands::Band;
use super::error::blocking;
use super::keep::Keeper;
use super::layout::fitting_rows;
use super::options::LoadOptions;
use super::runs::{RowPlace, Run, Wish, merged};
use crate::error::{Error, Result};
use crate::grid::{Axis, GridBuilder, PartitionGrid, RowOrder, dense};

/// Bytes of the place of one row: its row band and its number there.
const PLACE_BYTES: u64 = 8;

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
    keeper.counters().rows_to_arrange.add(grid.num_rows());
    let bytes = wish.sorting_bytes(&grid, options.concurrency());
    let leave = keeper.budget().reserve(bytes).await;
    let mut leave = leave.map_err(no_room)?;
    let wish = Arc::new(wish);
    let runs: Vec<Run> = stream::iter(0..grid.rows().num_intervals())
        .map(|row_band| {
            let (grid, wish) = (Arc::clone(&grid), Arc::clone(&wish));
            blocking(move || Run::try_new(&wish, &grid.open_row_band(row_band)?))
        })
        .buffered(options.concurrency())
        .try_collect()
        .await?;
    let places = {
        let num_partitions = wish.num_partitions();
        blocking(move || Ok(merged(&runs, num_partitions))).await?
    };
    leave.settle(grid.num_rows().saturating_mul(PLACE_BYTES));
    let lengths = if !wish.is_partitioned() {
        even(grid.num_rows(), num_bands)
    } else {
        places.iter().map(|places| places.len() as u64).collect()
    };
    let places: Arc<[RowPlace]> = places.into_iter().flatten().collect();
    rebuilt(&grid, keeper, bands, (&places, lengths), options).await
}

/// Keys and places of rows are not spilled.
fn no_room(error: Error) -> Error {
    error.with_hint(
        "sorting and partitioning keep keys and places of all rows in memory, whatever spill_to says: raise memory_limit, or load fewer columns",
    )
}

/// About equal parts of so many rows.
pub(super) fn even(rows: u64, parts: u64) -> Vec<u64> {
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
                    let leave = budget.reserve(bytes).await.map_err(no_room)?;
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
        let num_rows = batches.first().map_or(0, RecordBatch::num_rows);
        keeper.counters().arranged_rows.add(num_rows as u64);
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
pub(super) fn gather(
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
pub(super) fn owned(column: ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => column,
    }
}
