//! By which columns rows are sorted, and shares of rows that no value straddles.
//!
//! Comes in: a grid and its columns; shares of rows. Goes out: a proof that one column ascends, found by comparing all neighbours, and kept (whole numbers, dates, times and decimals
//! without nulls, in tiles that are here or whose owners have said so); the order that whoever made the grid knows of; where a value begins. Never here: sorting.

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef};
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;

use super::statistics::estimate::column_here;
use super::statistics::facts::{ColumnFacts, Facts};
use crate::grid::{FIRST_ROWS, PartitionGrid, SortColumn, ascends, can_ascend};

/// Whether the rows are in ascending order of the column, and none is null.
pub(super) fn is_ascending(facts: &Facts, column: usize) -> bool {
    let grid = facts.grid();
    let fields = grid.schema().fields();
    let is_fit = fields.get(column).map(|field| field.data_type());
    if !is_fit.is_some_and(can_ascend) {
        return false;
    }
    let Some(known) = facts.column(column) else {
        return false;
    };
    let has_nulls = known.null_counts.null_count() > 0
        || known.null_counts.values().iter().any(|count| *count > 0);
    if has_nulls || bands_ascend(facts, &known) != Some(true) {
        return false;
    }
    let bands = 0..grid.rows().num_intervals();
    let is_ascending = |band: usize, rows: usize| match told(grid, band, column) {
        Some(ascends) => ascends,
        None => column_here(grid, band, column)
            .and_then(|values| ascends(&values, rows))
            .unwrap_or(false),
    };
    bands.clone().all(|band| is_ascending(band, FIRST_ROWS))
        && bands.clone().all(|band| is_ascending(band, usize::MAX))
}

/// The places among `columns` by which the rows of the whole grid are sorted, with their directions: what the grid knows, as far as these columns go and values are ordered there as in SQL.
pub(in crate::query) fn known_order(facts: &Facts, columns: &[usize]) -> Vec<(usize, SortOptions)> {
    let grid = facts.grid();
    let order = grid.order();
    // Sorted within row bands only.
    if !order.partitioned_by.is_empty() {
        return Vec::new();
    }
    let place = |sorted: &SortColumn| -> Option<(usize, SortOptions)> {
        let column = grid.schema().index_of(&sorted.name).ok()?;
        let kind = grid.schema().fields().get(column)?.data_type();
        // Of floats the grid takes -0.0 for 0.0, SQL does not.
        let is_ordered_alike = kind.is_integer()
            || kind.is_string()
            || kind.is_decimal()
            || *kind == DataType::Boolean
            || matches!(
                kind,
                DataType::Date32
                    | DataType::Date64
                    | DataType::Time32(_)
                    | DataType::Time64(_)
                    | DataType::Timestamp(..)
            );
        let place = columns.iter().position(|known| *known == column)?;
        is_ordered_alike.then_some((place, SortOptions::new(sorted.descending, false)))
    };
    order.sorted_by.iter().map_while(place).collect()
}

/// Whether shares may be cut between values of a column by which the whole grid is sorted: it ascends, has no nulls, and each row band knows its values.
pub(in crate::query) fn may_be_cut(facts: &Facts, column: usize, options: SortOptions) -> bool {
    let Some(known) = facts.column(column).filter(|_| !options.descending) else {
        return false;
    };
    let without_nulls = known.null_counts.null_count() == 0
        && known.null_counts.values().iter().all(|count| *count == 0);
    without_nulls && knows_all(&known) && bands_ascend(facts, &known) == Some(true)
}

fn knows_all(known: &ColumnFacts) -> bool {
    let is_known =
        |bounds: &Option<ArrayRef>| bounds.as_ref().is_some_and(|all| all.null_count() == 0);
    is_known(&known.least) && is_known(&known.greatest)
}

/// Whether no row band begins before the one in front of it ends; `None` when that is not known.
fn bands_ascend(facts: &Facts, known: &ColumnFacts) -> Option<bool> {
    let (least, greatest) = (known.least.as_ref()?, known.greatest.as_ref()?);
    let mut before: Option<ScalarValue> = None;
    for (band, rows) in facts.grid().rows().intervals().enumerate() {
        if rows.is_empty() {
            continue;
        }
        let first = ScalarValue::try_from_array(least, band).ok()?;
        if first.is_null() {
            return None;
        }
        if before.is_some_and(|before| before.partial_cmp(&first) == Some(Ordering::Greater)) {
            return Some(false);
        }
        before = Some(ScalarValue::try_from_array(greatest, band).ok()?);
    }
    Some(before.is_some())
}

/// Whether a column of a row band ascends, as whoever has it said.
pub(super) fn told(grid: &PartitionGrid, row_band: usize, column: usize) -> Option<bool> {
    let (band, local) = grid.columns().locate(column as u64)?;
    let tile = grid.row_band(row_band).get(band)?;
    let known = tile.known_statistics(usize::try_from(local).ok()?)?;
    known.is_ascending
}

/// The value of an ascending column at row `row` of a row band, and the first row of that band with this value; `None` when it may begin in an earlier one.
pub(in crate::query) fn start_of_value(
    facts: &Facts,
    column: usize,
    (row_band, row): (usize, u64),
) -> Option<(ScalarValue, u64)> {
    let values = column_here(facts.grid(), row_band, column)?;
    let row = usize::try_from(row).ok()?;
    let value = ScalarValue::try_from_array(&values, row).ok()?;
    let (mut low, mut high) = (0, row);
    while low < high {
        let middle = usize::midpoint(low, high);
        let is_before = ScalarValue::try_from_array(&values, middle).ok()? < value;
        (low, high) = if is_before {
            (middle + 1, high)
        } else {
            (low, middle)
        };
    }
    let begins_earlier = || {
        let greatest = facts.column(column)?.greatest.clone()?;
        let bands = (0..row_band).rev();
        let mut bands = bands.filter(|band| {
            facts
                .grid()
                .rows()
                .interval(*band)
                .is_some_and(|rows| !rows.is_empty())
        });
        let last = ScalarValue::try_from_array(&greatest, bands.next()?).ok()?;
        Some(last >= value)
    };
    if low == 0 && begins_earlier() == Some(true) {
        return None;
    }
    Some((value, low as u64))
}
