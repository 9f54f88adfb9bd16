//! Statistics of a grid in the shape that the planner reads.
//!
//! Comes in: a grid, the row bands that are kept, a column. Goes out: least and greatest values, null counts and row counts, one for each row band or for all of
//! them together. All exact. Never here: decisions.

use arrow::array::{Array, ArrayRef, UInt64Array, new_null_array};
use arrow::compute::{concat, take};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics as PlanStatistics, ScalarValue, Statistics};
use datafusion::error::Result;

use crate::grid::{ColumnStatistics, PartitionGrid, column_statistics};

/// The statistics of column `column` in row band `row_band`; `None` when the tile is elsewhere or lazy and nobody knows them.
fn of_tile(grid: &PartitionGrid, row_band: usize, column: usize) -> Option<&ColumnStatistics> {
    let (band, local) = grid.columns().locate(column as u64)?;
    let tile = grid.row_band(row_band).get(band)?;
    tile.statistics_at_hand(usize::try_from(local).ok()?)
}

/// Which end of the bounds.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    /// The least value.
    Least,
    /// The greatest value.
    Greatest,
}

/// One bound of a column for each row band, null where it is not known. `None` when no row band knows it.
pub(super) fn bounds_by_band(grid: &PartitionGrid, column: usize, end: End) -> Option<ArrayRef> {
    let field = grid.schema().fields().get(column)?;
    let place = match end {
        End::Least => 0_u64,
        End::Greatest => 1,
    };
    let unknown = new_null_array(field.data_type(), 2);
    let num_bands = grid.rows().num_intervals();
    let pairs: Vec<ArrayRef> = (0..num_bands)
        .map(|row_band| {
            let known = of_tile(grid, row_band, column).and_then(|known| known.bounds.clone());
            known.unwrap_or_else(|| std::sync::Arc::clone(&unknown))
        })
        .collect();
    let references: Vec<&dyn Array> = pairs.iter().map(AsRef::as_ref).collect();
    let joined = concat(&references).ok()?;
    let places = UInt64Array::from_iter_values((0..num_bands as u64).map(|band| 2 * band + place));
    let bounds = take(&joined, &places, None).ok()?;
    (bounds.null_count() < bounds.len()).then_some(bounds)
}

/// The null counts of a column, one for each row band, null where not known.
pub(super) fn null_counts_by_band(grid: &PartitionGrid, column: usize) -> ArrayRef {
    let counts = (0..grid.rows().num_intervals())
        .map(|row_band| of_tile(grid, row_band, column).map(|known| known.null_count));
    std::sync::Arc::new(UInt64Array::from_iter(counts))
}

/// The row counts of all row bands.
pub(super) fn row_counts(grid: &PartitionGrid) -> ArrayRef {
    let counts = grid.rows().intervals().map(|rows| rows.end - rows.start);
    std::sync::Arc::new(UInt64Array::from_iter_values(counts))
}

/// Exact statistics of the given columns over the given row bands.
pub(in crate::query) fn of_bands(
    grid: &PartitionGrid,
    row_bands: &[usize],
    columns: &[usize],
) -> Result<Statistics> {
    let num_rows = row_bands
        .iter()
        .filter_map(|band| grid.rows().interval(*band));
    let num_rows = num_rows.map(|rows| rows.end - rows.start).sum::<u64>();
    let column_statistics: Result<Vec<_>> = columns
        .iter()
        .map(|column| of_column(grid, row_bands, *column))
        .collect();
    Ok(Statistics {
        num_rows: usize::try_from(num_rows).map_or(Precision::Absent, Precision::Exact),
        total_byte_size: Precision::Absent,
        column_statistics: column_statistics?,
    })
}

fn of_column(grid: &PartitionGrid, row_bands: &[usize], column: usize) -> Result<PlanStatistics> {
    let mut statistics = PlanStatistics::new_unknown();
    let found: Option<Vec<&ColumnStatistics>> = row_bands
        .iter()
        .map(|band| of_tile(grid, *band, column))
        .collect();
    let Some(found) = found else {
        return Ok(statistics);
    };
    let nulls = found.iter().map(|known| known.null_count).sum::<u64>();
    statistics.null_count = usize::try_from(nulls).map_or(Precision::Absent, Precision::Exact);
    let bounds: Vec<&dyn Array> = found
        .iter()
        .filter_map(|known| known.bounds.as_ref().map(AsRef::as_ref))
        .collect();
    if bounds.is_empty() {
        return Ok(statistics);
    }
    if let Some(overall) = column_statistics(&concat(&bounds)?).bounds {
        statistics.min_value = Precision::Exact(ScalarValue::try_from_array(&overall, 0)?);
        statistics.max_value = Precision::Exact(ScalarValue::try_from_array(&overall, 1)?);
    }
    Ok(statistics)
}
