//! Statistics of a grid in the shape that the planner reads.
//!
//! Comes in: a grid, the row bands that are kept, a column. Goes out: least and greatest values, null counts and row counts, one for each row band or for all of
//! them together, all exact; whether a column is sorted; about how many values it has. What was found once is kept, so that a grid of many tiles is planned
//! quickly. Never here: decisions.

use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, RecordBatch, UInt64Array, new_null_array};
use arrow::compute::{concat, sum, take};
use arrow::datatypes::SchemaRef;
#[cfg(feature = "distributed")]
use arrow::{
    array::AsArray,
    compute::cast,
    datatypes::{DataType, Decimal128Type, UInt64Type},
};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics as PlanStatistics, ScalarValue, Statistics};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;

#[cfg(feature = "distributed")]
use super::beyond::Numbers;
use super::estimate::Samples;
use super::longest::{can_be_long, longest};
use crate::grid::{ColumnStatistics, PartitionGrid, column_statistics};
use crate::location::Locality;
use crate::query::plan::sorted::is_ascending;
#[cfg(feature = "distributed")]
use crate::query::wide_keys::with_wide_keys;
use crate::query::wide_keys::{sql_schema, widened};

/// Row bands are few of a grid that has so many times as many.
const MANY: usize = 16;

/// What is known of a grid, for all queries over it.
#[derive(Debug)]
pub(crate) struct Facts {
    grid: Arc<PartitionGrid>,
    /// Its columns as SQL has them.
    schema: SchemaRef,
    /// One for each column, filled when all row bands know theirs.
    columns: Box<[OnceLock<Arc<ColumnFacts>>]>,
    /// One for each column that somebody asked about.
    ascending: Box<[OnceLock<bool>]>,
    samples: Samples,
    /// Bytes of the longest value of each column that somebody asked about.
    longest: Box<[OnceLock<u64>]>,
    /// How near each tile is, row band by row band.
    localities: OnceLock<Box<[Locality]>>,
}

/// The values of a column in some row bands.
#[cfg(feature = "distributed")]
#[derive(Debug, Clone)]
pub(crate) struct Extent {
    /// The least and the greatest; `None` if there are no values.
    pub(crate) bounds: Option<(ScalarValue, ScalarValue)>,
    pub(crate) has_nulls: bool,
}

/// What the row bands know of one column, one entry each, null where one does not know.
#[derive(Debug)]
pub(in crate::query) struct ColumnFacts {
    /// `None` when no row band has any, or the type is not compared.
    pub(in crate::query) least: Option<ArrayRef>,
    pub(in crate::query) greatest: Option<ArrayRef>,
    pub(in crate::query) null_counts: UInt64Array,
}

impl Facts {
    pub(in crate::query) fn new(grid: Arc<PartitionGrid>) -> Self {
        Self::with_sample(grid, None)
    }

    /// What is known of a grid, with some of its rows, in columns that are named by their numbers.
    pub(in crate::query) fn with_sample(
        grid: Arc<PartitionGrid>,
        sample: Option<RecordBatch>,
    ) -> Self {
        let columns = 0..grid.num_columns();
        Self {
            columns: columns.clone().map(|_| OnceLock::new()).collect(),
            ascending: columns.clone().map(|_| OnceLock::new()).collect(),
            longest: columns.map(|_| OnceLock::new()).collect(),
            samples: Samples::new(grid.num_columns(), sample),
            localities: OnceLock::new(),
            schema: sql_schema(&grid),
            grid,
        }
    }

    /// The same of a part of a grid, with the columns that SQL has of the whole.
    #[cfg(feature = "distributed")]
    pub(in crate::query) fn of_part(grid: Arc<PartitionGrid>, has_wide_keys: bool) -> Self {
        let schema = match has_wide_keys {
            true => with_wide_keys(grid.schema()),
            false => Arc::clone(grid.schema()),
        };
        Self {
            schema,
            ..Self::new(grid)
        }
    }

    /// Whether keys of dictionaries are wider in SQL than in the grid.
    #[cfg(feature = "distributed")]
    pub(crate) fn has_wide_keys(&self) -> bool {
        !Arc::ptr_eq(&self.schema, self.grid.schema())
    }

    /// How near the tiles of a row band are, one for each column band.
    pub(in crate::query) fn localities(&self, row_band: usize) -> &[Locality] {
        let tiles = || self.grid.tiles().iter();
        let all = self
            .localities
            .get_or_init(|| tiles().map(|tile| tile.data().locality()).collect());
        let width = self.grid.columns().num_intervals();
        let start = row_band.saturating_mul(width);
        all.get(start..start.saturating_add(width))
            .unwrap_or_default()
    }

    /// Whether all rows are in ascending order of a column without nulls.
    pub(in crate::query) fn is_ascending(&self, column: usize) -> bool {
        let known = self.ascending.get(column);
        known.is_some_and(|known| *known.get_or_init(|| is_ascending(self, column)))
    }

    /// About the share of all rows that pass all filters, which are over `columns` of the grid; `None` when nobody can tell.
    pub(in crate::query) fn passing(
        &self,
        columns: &[usize],
        filters: &[Arc<dyn PhysicalExpr>],
    ) -> Option<f64> {
        let grid = (&*self.grid, &self.schema);
        self.samples.passing(grid, columns, filters)
    }

    /// About how many bytes the longest value of a column has; 0 for a type whose values all have a few. Of tiles that would have to be read to know, those of a row of usual size.
    pub(in crate::query) fn longest(&self, column: usize) -> u64 {
        let known = self.longest.get(column);
        known.map_or(0, |known| {
            *known.get_or_init(|| longest_of(&self.grid, column).unwrap_or(0))
        })
    }

    /// About how many values a column has; `None` when nobody can tell.
    pub(in crate::query) fn distinct(&self, column: usize) -> Option<f64> {
        let facts = self.column(column)?;
        let end = |bounds: &Option<ArrayRef>| column_statistics(bounds.as_ref()?).bounds;
        let least = end(&facts.least).and_then(|ends| ScalarValue::try_from_array(&ends, 0).ok());
        let greatest =
            end(&facts.greatest).and_then(|ends| ScalarValue::try_from_array(&ends, 1).ok());
        let bounds = least.as_ref().zip(greatest.as_ref());
        self.samples.distinct(&self.grid, column, bounds)
    }

    pub(crate) fn grid(&self) -> &Arc<PartitionGrid> {
        &self.grid
    }

    /// Its columns as SQL has them.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What is known of a column; `None` for one that does not exist.
    pub(in crate::query) fn column(&self, column: usize) -> Option<Arc<ColumnFacts>> {
        let kept = self.columns.get(column)?;
        if let Some(facts) = kept.get() {
            return Some(Arc::clone(facts));
        }
        let all: Vec<usize> = (0..self.grid.rows().num_intervals()).collect();
        let facts = Arc::new(self.gathered(column, &all)?);
        if facts.null_counts.null_count() > 0 {
            // A lazy tile may know more tomorrow.
            return Some(facts);
        }
        Some(Arc::clone(kept.get_or_init(|| facts)))
    }

    /// The row counts of all row bands.
    pub(super) fn row_counts(&self) -> ArrayRef {
        let counts = self.grid.rows().intervals();
        let counts = counts.map(|rows| rows.end - rows.start);
        Arc::new(UInt64Array::from_iter_values(counts))
    }

    /// Exact statistics of the given columns over the given row bands.
    pub(in crate::query) fn of_bands(
        &self,
        row_bands: &[usize],
        columns: &[usize],
    ) -> Result<Statistics> {
        let rows = self.grid.rows();
        let num_rows = row_bands.iter().filter_map(|band| rows.interval(*band));
        let num_rows = num_rows.map(|rows| rows.end - rows.start).sum::<u64>();
        let bands = UInt64Array::from_iter_values(row_bands.iter().map(|band| *band as u64));
        let column_statistics: Result<Vec<_>> = columns
            .iter()
            .map(|column| self.of_column(&bands, *column))
            .collect();
        Ok(Statistics {
            num_rows: usize::try_from(num_rows).map_or(Precision::Absent, Precision::Exact),
            total_byte_size: Precision::Absent,
            column_statistics: column_statistics?,
        })
    }

    /// The least and the greatest number of each of these row bands in a column of whole numbers; `None` when they are not known, or a row band has nulls.
    #[cfg(feature = "distributed")]
    pub(crate) fn numbers(&self, row_bands: &[usize], column: usize) -> Option<[Vec<i128>; 2]> {
        let kind = self.grid.schema().fields().get(column)?.data_type();
        let facts = kind.is_integer().then(|| self.column(column)).flatten()?;
        let bands = UInt64Array::from_iter_values(row_bands.iter().map(|band| *band as u64));
        let nulls = take(&facts.null_counts, &bands, None).ok()?;
        let mut nulls = nulls.as_primitive::<UInt64Type>().iter();
        let numbers = |ends: &Option<ArrayRef>| -> Option<Vec<i128>> {
            let ends = take(ends.as_ref()?, &bands, None).ok()?;
            let whole = cast(&ends, &DataType::Decimal128(38, 0)).ok()?;
            whole.as_primitive::<Decimal128Type>().iter().collect()
        };
        let has_no_nulls = nulls.all(|count| count == Some(0));
        let ends = has_no_nulls.then(|| [numbers(&facts.least), numbers(&facts.greatest)])?;
        let [Some(least), Some(greatest)] = ends else {
            return None;
        };
        Some([least, greatest])
    }

    /// What can be seen of a column of whole numbers without nulls.
    #[cfg(feature = "distributed")]
    pub(crate) fn seen_numbers(&self, column: usize) -> Numbers {
        let seen = self.samples.numbers(&self.grid, column);
        Numbers::new(&self.grid, column, seen)
    }

    /// What values a column has in the given row bands; `None` when that is not known.
    #[cfg(feature = "distributed")]
    pub(crate) fn extent(&self, row_bands: &[usize], column: usize) -> Option<Extent> {
        let known = self.of_bands(row_bands, &[column]).ok()?;
        let [values] = known.column_statistics.as_slice() else {
            return None;
        };
        let exact = |found: &Precision<usize>| match found {
            Precision::Exact(count) => Some(*count),
            _ => None,
        };
        let (rows, nulls) = (exact(&known.num_rows)?, exact(&values.null_count)?);
        let bounds = match (&values.min_value, &values.max_value) {
            (Precision::Exact(least), Precision::Exact(greatest)) => {
                Some((least.clone(), greatest.clone()))
            }
            // Nothing but nulls, or a column of which nobody knows more.
            _ if nulls == rows => None,
            _ => return None,
        };
        Some(Extent {
            bounds: bounds.filter(|_| nulls < rows),
            has_nulls: nulls > 0,
        })
    }

    /// What is known of a column, of all row bands or of these alone: of a few of many the others are not asked.
    fn of_these(&self, bands: &UInt64Array, column: usize) -> (Option<Arc<ColumnFacts>>, bool) {
        let is_known = self.columns.get(column).and_then(OnceLock::get).is_some();
        if is_known || bands.len() > self.grid.rows().num_intervals() / MANY {
            return (self.column(column), false);
        }
        let bands = bands.values().iter();
        let bands: Vec<usize> = bands
            .filter_map(|band| usize::try_from(*band).ok())
            .collect();
        (self.gathered(column, &bands).map(Arc::new), true)
    }

    fn of_column(&self, bands: &UInt64Array, column: usize) -> Result<PlanStatistics> {
        let mut statistics = PlanStatistics::new_unknown();
        let (found, is_part) = self.of_these(bands, column);
        let Some(facts) = found else {
            return Ok(statistics);
        };
        let kept = |all: &dyn Array| -> Result<ArrayRef> {
            if bands.len() == all.len() {
                return Ok(all.slice(0, all.len()));
            }
            Ok(take(all, bands, None)?)
        };
        let nulls = UInt64Array::from(kept(&facts.null_counts)?.to_data());
        if nulls.null_count() > 0 {
            return Ok(statistics);
        }
        let nulls = sum(&nulls).unwrap_or_default();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an estimate"
        )]
        if let Some(distinct) = (!is_part).then(|| self.distinct(column)).flatten() {
            statistics.distinct_count = Precision::Inexact(distinct as usize);
        }
        statistics.null_count = usize::try_from(nulls).map_or(Precision::Absent, Precision::Exact);
        if let (Some(least), Some(greatest)) = (&facts.least, &facts.greatest) {
            let (least, greatest) = (
                column_statistics(&kept(least)?),
                column_statistics(&kept(greatest)?),
            );
            if let (Some(least), Some(greatest)) = (least.bounds, greatest.bounds) {
                statistics.min_value = Precision::Exact(ScalarValue::try_from_array(&least, 0)?);
                statistics.max_value = Precision::Exact(ScalarValue::try_from_array(&greatest, 1)?);
            }
        }
        Ok(statistics)
    }

    /// What some row bands know of a column.
    fn gathered(&self, column: usize, row_bands: &[usize]) -> Option<ColumnFacts> {
        let grid = &*self.grid;
        let field = self.schema.fields().get(column)?;
        let (band, local) = grid.columns().locate(column as u64)?;
        let place = (band, usize::try_from(local).ok()?);
        let known: Vec<Option<&ColumnStatistics>> = row_bands
            .iter()
            .map(|row_band| of_tile(grid, *row_band, place))
            .collect();
        let null_counts = known.iter().map(|known| Some(known.as_ref()?.null_count));
        let null_counts = UInt64Array::from_iter(null_counts);
        let nothing = || ColumnFacts {
            least: None,
            greatest: None,
            null_counts: null_counts.clone(),
        };
        let unknown = new_null_array(field.data_type(), 2);
        let bounds = known
            .iter()
            .map(|known| known.and_then(|known| known.bounds.as_ref()));
        let pairs: Vec<ArrayRef> = bounds
            .map(|bounds| widened(bounds.unwrap_or(&unknown), field.data_type()).ok())
            .collect::<Option<_>>()?;
        if pairs.is_empty() {
            return Some(nothing());
        }
        let pairs: Vec<&dyn Array> = pairs.iter().map(AsRef::as_ref).collect();
        let Ok(joined) = concat(&pairs) else {
            return Some(nothing());
        };
        let every_other = |first: u64| {
            let places = (0..known.len() as u64).map(|band| 2 * band + first);
            let found = take(&joined, &UInt64Array::from_iter_values(places), None).ok()?;
            (found.null_count() < found.len()).then_some(found)
        };
        Some(ColumnFacts {
            least: every_other(0),
            greatest: every_other(1),
            null_counts,
        })
    }
}

fn longest_of(grid: &PartitionGrid, column: usize) -> Option<u64> {
    if !can_be_long(grid.schema().fields().get(column)?.data_type()) {
        return None;
    }
    let (band, local) = grid.columns().locate(column as u64)?;
    let local = usize::try_from(local).ok()?;
    let tiles =
        (0..grid.rows().num_intervals()).filter_map(|row_band| grid.row_band(row_band).get(band));
    let each = tiles.map(|tile| {
        let data = tile.data();
        let is_here = !data.is_lazy() && data.locality() == Locality::Memory;
        let values = is_here.then(|| data.open_columns(&[local]).ok()).flatten();
        match values.as_ref().and_then(|batch| batch.columns().first()) {
            Some(values) => longest(values.as_ref()),
            None => data.memory_bytes().div_ceil(data.num_rows().max(1)),
        }
    });
    each.max()
}

/// The statistics of column `column` in row band `row_band`; `None` when the tile is elsewhere or lazy and nobody knows them.
fn of_tile(
    grid: &PartitionGrid,
    row_band: usize,
    place: (usize, usize),
) -> Option<&ColumnStatistics> {
    let tile = grid.row_band(row_band).get(place.0)?;
    tile.statistics_at_hand(place.1)
}
