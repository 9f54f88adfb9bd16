//! How many rows a filter leaves, by looking at some of them.
//!
//! Comes in: a grid, the row bands that are kept, conditions over some of its columns. Goes out: the share of rows that pass, between 0 and 1, found on rows
//! spread evenly over the tiles that are here. An estimate: it decides the order of joins, never an answer. Never here: reading of tiles that are lazy or elsewhere.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::physical_expr::{PhysicalExpr, conjunction};

use crate::grid::PartitionGrid;

/// How many rows are looked at.
const SAMPLE_ROWS: u64 = 4096;

/// From how many row bands at most they come.
const SAMPLE_BANDS: usize = 16;

/// The share of rows that pass all filters, which are over `columns` of the grid; `None` when no tile is here, or a filter fails on some row.
pub(in crate::query) fn passing(
    grid: &PartitionGrid,
    row_bands: &[usize],
    columns: &[usize],
    filters: &[Arc<dyn PhysicalExpr>],
) -> Option<f64> {
    if filters.is_empty() {
        return Some(1.0);
    }
    let sample = sample(grid, row_bands, columns)?;
    let num_rows = sample.num_rows();
    let condition = conjunction(filters.iter().cloned());
    let found = condition
        .evaluate(&sample)
        .ok()?
        .into_array(num_rows)
        .ok()?;
    let passed = found.as_boolean_opt()?.true_count();
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    // Half a row when none was found: it is rare, not absent.
    Some((passed as f64).max(0.5) / num_rows as f64)
}

/// Rows at even distances, from row bands at even distances.
fn sample(grid: &PartitionGrid, row_bands: &[usize], columns: &[usize]) -> Option<RecordBatch> {
    let schema: SchemaRef = Arc::new(grid.schema().project(columns).ok()?);
    let step = row_bands.len().div_ceil(SAMPLE_BANDS).max(1);
    let bands: Vec<usize> = row_bands.iter().copied().step_by(step).collect();
    let rows_of = |band: &usize| {
        grid.rows()
            .interval(*band)
            .map(|rows| rows.end - rows.start)
    };
    let all: u64 = bands.iter().filter_map(rows_of).sum();
    let distance = (all / SAMPLE_ROWS).max(1);
    let parts: Result<Vec<Option<RecordBatch>>> = bands
        .iter()
        .map(|band| of_band(grid, (*band, distance), columns, &schema))
        .collect();
    let parts: Vec<RecordBatch> = parts.ok()?.into_iter().flatten().collect();
    let sample = concat_batches(&schema, &parts).ok()?;
    (sample.num_rows() > 0).then_some(sample)
}

fn of_band(
    grid: &PartitionGrid,
    (row_band, distance): (usize, u64),
    columns: &[usize],
    schema: &SchemaRef,
) -> Result<Option<RecordBatch>> {
    let tiles = grid.row_band(row_band);
    let Some(rows) = grid.rows().interval(row_band) else {
        return Ok(None);
    };
    let step = usize::try_from(distance).unwrap_or(usize::MAX);
    let rows = UInt64Array::from_iter_values((0..rows.end - rows.start).step_by(step));
    let column = |column: &usize| -> Option<ArrayRef> {
        let (band, local) = grid.columns().locate(*column as u64)?;
        let data = tiles.get(band)?.data();
        if data.is_lazy() {
            return None;
        }
        let batch = data.open().ok()?;
        let values = batch.columns().get(usize::try_from(local).ok()?)?;
        take(values, &rows, None).ok()
    };
    let Some(taken) = columns.iter().map(column).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), taken, &options)?;
    Ok(Some(batch))
}
