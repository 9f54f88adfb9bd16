//! How many rows a filter leaves, how many values a column has, by looking at some rows.
//!
//! Comes in: a grid, columns, conditions. Goes out: shares of rows and numbers of values, found on rows of the tiles that are here, or on such that were brought for that; looked up once for each column.
//! Estimates: they decide the order of joins, never an answer. Never here: reading of tiles that are lazy or elsewhere.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt64Array};
#[cfg(feature = "distributed")]
use arrow::compute::cast;
use arrow::compute::{concat, partition, take};
use arrow::datatypes::SchemaRef;
#[cfg(feature = "distributed")]
use arrow::datatypes::{DataType, Decimal128Type, Field, Schema};
use arrow::row::{RowConverter, SortField};
use datafusion::common::ScalarValue;
use datafusion::physical_expr::{PhysicalExpr, conjunction};

use crate::grid::{PartitionGrid, TileData};
use crate::location::Locality;
use crate::query::wide_keys::{sql_type, widened};

/// How many rows are looked at.
const SAMPLE_ROWS: u64 = 4096;

/// From how many row bands at most they come.
const SAMPLE_BANDS: usize = 16;

/// How many neighbouring rows of a row band are looked at, to see how often the value changes.
const WINDOW_ROWS: usize = 1024;

/// The most bytes that the values of a column have on average of which samples are sent.
#[cfg(feature = "distributed")]
const MOST_VALUE_BYTES: u64 = 256;

/// What was seen of the columns of a grid; `None` where some row band is not here.
#[derive(Debug)]
pub(super) struct Samples {
    /// Rows that those have brought who have the tiles.
    brought: Option<RecordBatch>,
    /// Values at even distances, from row bands at even distances: the same rows of every column.
    spread: Box<[OnceLock<Option<ArrayRef>>]>,
    distinct: Box<[OnceLock<Option<f64>>]>,
    /// The same rows of columns of whole numbers, ascending; none of others.
    #[cfg(feature = "distributed")]
    numbers: Box<[OnceLock<Arc<[i128]>>]>,
}

impl Samples {
    pub(super) fn new(num_columns: usize, brought: Option<RecordBatch>) -> Self {
        let once = |_| OnceLock::new();
        Self {
            brought,
            spread: (0..num_columns).map(once).collect(),
            distinct: (0..num_columns).map(|_| OnceLock::new()).collect(),
            #[cfg(feature = "distributed")]
            numbers: (0..num_columns).map(|_| OnceLock::new()).collect(),
        }
    }

    fn spread(&self, grid: &PartitionGrid, column: usize) -> Option<&ArrayRef> {
        let sample = self.spread.get(column)?;
        let brought = || {
            let name = column.to_string();
            self.brought.as_ref()?.column_by_name(&name).cloned()
        };
        sample
            .get_or_init(|| spread(grid, column).or_else(brought))
            .as_ref()
    }

    /// The whole numbers of the rows that are looked at, ascending; none where some row band is not here, and of other types.
    #[cfg(feature = "distributed")]
    pub(super) fn numbers(&self, grid: &PartitionGrid, column: usize) -> Arc<[i128]> {
        let look = || -> Option<Arc<[i128]>> {
            let seen = self.spread(grid, column)?;
            let seen = seen.data_type().is_integer().then_some(seen)?;
            let whole = cast(seen, &DataType::Decimal128(38, 0)).ok()?;
            let whole = whole.as_primitive::<Decimal128Type>().iter().flatten();
            let mut numbers: Vec<i128> = whole.collect();
            numbers.sort_unstable();
            Some(numbers.into())
        };
        let known = self.numbers.get(column);
        let known = known.map(|known| known.get_or_init(|| look().unwrap_or_default()));
        known.map(Arc::clone).unwrap_or_default()
    }

    /// The share of rows that pass all filters, which are over `columns` of the grid as SQL has them; `None` when they cannot be seen, or a filter fails on some row.
    pub(super) fn passing(
        &self,
        (grid, schema): (&PartitionGrid, &SchemaRef),
        columns: &[usize],
        filters: &[Arc<dyn PhysicalExpr>],
    ) -> Option<f64> {
        if filters.is_empty() {
            return Some(1.0);
        }
        let schema = Arc::new(schema.project(columns).ok()?);
        let values = columns
            .iter()
            .zip(schema.fields())
            .map(|(column, field)| widened(self.spread(grid, *column)?, field.data_type()).ok());
        let values: Vec<ArrayRef> = values.collect::<Option<_>>()?;
        let num_rows = values.first()?.len();
        let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
        let sample = RecordBatch::try_new_with_options(schema, values, &options).ok()?;
        let condition = conjunction(filters.iter().cloned());
        let found = condition
            .evaluate(&sample)
            .ok()?
            .into_array(num_rows)
            .ok()?;
        let passed = found.as_boolean_opt()?.true_count();
        // Half a row when none was found: it is rare, not absent.
        (num_rows > 0).then(|| as_f64(passed).max(0.5) / as_f64(num_rows))
    }

    /// About how many values the column has that are not null. Never more than there are rows, whole numbers between the least and the greatest value, or runs of
    /// equal values. `bounds` are those values.
    pub(super) fn distinct(
        &self,
        grid: &PartitionGrid,
        column: usize,
        bounds: Option<(&ScalarValue, &ScalarValue)>,
    ) -> Option<f64> {
        let known = self.distinct.get(column)?;
        let look = || {
            let rows = as_f64(usize::try_from(grid.num_rows()).ok()?);
            let between = bounds.and_then(|(least, greatest)| greatest.distance(least));
            let between = between.map_or(f64::INFINITY, |between| as_f64(between) + 1.0);
            let runs = share_of_runs(grid, column).map_or(f64::INFINITY, |share| share * rows);
            let seen = in_all(self.spread(grid, column)?, rows)?;
            Some(seen.min(runs).min(between).clamp(1.0, rows.max(1.0)))
        };
        *known.get_or_init(look)
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

/// Row bands at even distances, the first and the last among them.
fn sample_bands(grid: &PartitionGrid) -> impl Iterator<Item = usize> {
    let bands = grid.rows().num_intervals();
    let looked = bands.min(SAMPLE_BANDS);
    (0..looked).map(move |place| place * (bands - 1) / (looked - 1).max(1))
}

/// Nothing is brought from elsewhere only to know more about it; a tile of another member of which one column is in memory would bring the others.
fn is_at_hand(data: &dyn TileData) -> bool {
    !data.is_lazy() && matches!(data.locality(), Locality::Memory | Locality::Shared)
}

/// A column of a row band that is here.
pub(in crate::query) fn column_here(
    grid: &PartitionGrid,
    row_band: usize,
    column: usize,
) -> Option<ArrayRef> {
    let (band, local) = grid.columns().locate(column as u64)?;
    let data = grid.row_band(row_band).get(band)?.data();
    if !is_at_hand(data.as_ref()) {
        return None;
    }
    let batch = data.open().ok()?;
    batch.columns().get(usize::try_from(local).ok()?).cloned()
}

fn spread(grid: &PartitionGrid, column: usize) -> Option<ArrayRef> {
    let rows_of = |band: usize| {
        grid.rows()
            .interval(band)
            .map_or(0, |rows| rows.end - rows.start)
    };
    let all: u64 = sample_bands(grid).map(rows_of).sum();
    let distance = usize::try_from((all / SAMPLE_ROWS).max(1)).ok()?;
    let parts = sample_bands(grid).map(|band| {
        let rows = UInt64Array::from_iter_values((0..rows_of(band)).step_by(distance));
        let values = take(&column_here(grid, band, column)?, &rows, None).ok()?;
        // Keys that do not count the values of several tiles stop what puts these together.
        match sql_type(values.data_type()) {
            Some(wide) => widened(&values, &wide).ok(),
            None => Some(values),
        }
    });
    let parts: Vec<ArrayRef> = parts.collect::<Option<_>>()?;
    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    concat(&parts).ok()
}

/// About `rows` rows of a grid at even distances, for those who plan over tiles that they do not have; the columns are named by their numbers, those of long values are left out. `None` where some row
/// band is not here.
#[cfg(feature = "distributed")]
pub(crate) fn sample(grid: &PartitionGrid, rows: u64) -> Option<RecordBatch> {
    let (mut fields, mut values) = (Vec::new(), Vec::new());
    for column in 0..grid.num_columns() {
        if !is_short(grid, column)? {
            continue;
        }
        let spread = compacted(spread(grid, column)?);
        let bytes = spread.get_array_memory_size() as u64;
        if bytes > MOST_VALUE_BYTES * SAMPLE_ROWS {
            continue;
        }
        let field = Field::new(column.to_string(), spread.data_type().clone(), true);
        fields.push(field);
        values.push(spread);
    }
    let num_rows = values.first()?.len();
    let step = usize::try_from((num_rows as u64).div_ceil(rows.max(1))).ok()?;
    let chosen = UInt64Array::from_iter_values((0..num_rows as u64).step_by(step.max(1)));
    let values = values.iter().map(|values| take(values, &chosen, None).ok());
    let schema = Arc::new(Schema::new(fields));
    RecordBatch::try_new(schema, values.collect::<Option<_>>()?).ok()
}

/// Whether the values of a column are short, or nothing is known of it; none of them is copied to know it. `None` where some row band is not here.
#[cfg(feature = "distributed")]
fn is_short(grid: &PartitionGrid, column: usize) -> Option<bool> {
    if grid.schema().fields().get(column)?.data_type().is_nested() {
        return Some(false);
    }
    let (band, local) = grid.columns().locate(column as u64)?;
    let local = usize::try_from(local).ok()?;
    let (mut bytes, mut rows) = (0_u64, 0_u64);
    for row_band in sample_bands(grid) {
        let tile = grid.row_band(row_band).get(band)?;
        if !is_at_hand(tile.data().as_ref()) {
            return None;
        }
        bytes = bytes.saturating_add(tile.data().column_bytes(&[local]));
        rows = rows.saturating_add(tile.num_rows());
    }
    Some(bytes <= MOST_VALUE_BYTES.saturating_mul(rows))
}

/// Views with the bytes of their own values only.
#[cfg(feature = "distributed")]
fn compacted(values: ArrayRef) -> ArrayRef {
    match values.data_type() {
        DataType::Utf8View => Arc::new(values.as_string_view().gc()),
        DataType::BinaryView => Arc::new(values.as_binary_view().gc()),
        _ => values,
    }
}

/// The sample of a grid of the samples of its parts, each with the number of rows that it stands for; `None` where one is missing.
#[cfg(feature = "distributed")]
pub(crate) fn sample_of_parts(parts: &[(Option<RecordBatch>, u64)]) -> Option<RecordBatch> {
    let parts = parts.iter().filter(|(_, rows)| *rows > 0);
    let parts: Vec<(&RecordBatch, f64)> = parts
        .map(|(sample, rows)| Some((sample.as_ref()?, as_f64(usize::try_from(*rows).ok()?))))
        .collect::<Option<_>>()?;
    // As dense as the thinnest of them.
    let density = |(sample, rows): &(&RecordBatch, f64)| as_f64(sample.num_rows()) / rows;
    let least = parts.iter().map(density).fold(f64::INFINITY, f64::min);
    let schemas = parts.iter().map(|(sample, _)| sample.schema());
    let columns: Vec<Field> = schemas
        .clone()
        .next()?
        .fields()
        .iter()
        .filter(|field| {
            schemas
                .clone()
                .all(|other| other.field_with_name(field.name()).is_ok())
        })
        .map(|field| Field::clone(field))
        .collect();
    let thinned = parts.iter().map(|part| {
        let (sample, _) = part;
        let step = density(part) / least;
        let mut next = 0.0;
        let chosen = (0..sample.num_rows()).filter(|row| {
            let is_chosen = as_f64(*row) >= next;
            next += if is_chosen { step } else { 0.0 };
            is_chosen
        });
        let chosen = UInt64Array::from_iter_values(chosen.map(|row| row as u64));
        let values = columns.iter().map(|field| {
            let values = sample.column_by_name(field.name())?;
            take(values, &chosen, None).ok()
        });
        values.collect::<Option<Vec<ArrayRef>>>()
    });
    let thinned: Vec<Vec<ArrayRef>> = thinned.collect::<Option<_>>()?;
    let whole = (0..columns.len()).map(|place| {
        let pieces = thinned
            .iter()
            .map(|part| part.get(place).map(AsRef::as_ref));
        concat(&pieces.collect::<Option<Vec<&dyn Array>>>()?).ok()
    });
    RecordBatch::try_new(
        Arc::new(Schema::new(columns)),
        whole.collect::<Option<_>>()?,
    )
    .ok()
}

/// Runs of equal neighbours, in relation to rows.
fn share_of_runs(grid: &PartitionGrid, column: usize) -> Option<f64> {
    let (mut runs, mut rows) = (0, 0);
    for band in sample_bands(grid) {
        let values = column_here(grid, band, column)?;
        let window = values.slice(0, values.len().min(WINDOW_ROWS));
        rows += window.len();
        runs += partition(&[window]).ok()?.len();
    }
    (rows > 0).then(|| as_f64(runs) / as_f64(rows))
}

/// How many values a column of `rows` rows has when the sample has as many as it has: of D equally frequent values a sample of n rows meets D (1 - exp(-n/D)).
fn in_all(sample: &ArrayRef, rows: f64) -> Option<f64> {
    let converter = RowConverter::new(vec![SortField::new(sample.data_type().clone())]).ok()?;
    let found = converter
        .convert_columns(std::slice::from_ref(sample))
        .ok()?;
    let found: HashSet<&[u8]> = found.iter().map(|row| row.data()).collect();
    let (found, looked) = (as_f64(found.len()), as_f64(sample.len()));
    let (mut low, mut high) = (found, rows.max(found));
    for _ in 0..48 {
        let middle = f64::midpoint(low, high);
        if middle * (1.0 - (-looked / middle).exp()) < found {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(high)
}
