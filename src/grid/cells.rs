//! Cells in rows -> a grid.
//!
//! Comes in: batches in rows, as frames of other libraries are cut. Goes out: a grid of one tile for each. Fields of a column band are united here, also for other sources of tiles:
//! values keep their value, and only types that libraries find by looking at values (all null, decimals) may differ. Never here: values that change.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, Schema, SchemaRef};

use crate::error::{Error, Result};
use crate::grid::PartitionGrid;
use crate::grid::axis::Axis;
use crate::grid::build::{GridBuilder, describe_field};
use crate::grid::tile::Tile;

/// A value that the wanted type cannot hold is an error, not a null.
const STRICT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: arrow::util::display::FormatOptions::new(),
};

impl PartitionGrid {
    /// A grid of one tile for each cell, without copying: `cells[r][c]` is the tile of row band `r` and column band `c`. A column is nullable where one of its cells is; of a column that
    /// has no type in one cell (Arrow's null type) that cell takes the type of the others, and decimals take the width that holds all of them.
    ///
    /// # Errors
    /// `InvalidArgument` with the position of a cell that does not fit the others: rows of different length, cells of one row band with different numbers of rows, cells of one column band
    /// with different fields; without a cell; as [`GridBuilder::try_new`].
    pub fn try_from_cells(cells: &[Vec<RecordBatch>]) -> Result<Self> {
        let Some(first) = cells.first().filter(|row| !row.is_empty()) else {
            let text = "a grid is made of at least one cell, got none";
            return Err(Error::invalid_argument(text));
        };
        for (number, row) in cells.iter().enumerate() {
            check_row(first.len(), number, row)?;
        }
        let bands = bands(cells)?;
        let fields: Vec<Field> = bands.iter().flatten().cloned().collect();
        let metadata = first
            .iter()
            .flat_map(|cell| cell.schema().metadata().clone());
        let schema = Schema::new_with_metadata(fields, metadata.collect());
        let lengths = cells.iter().filter_map(|row| row.first());
        let rows = Axis::try_from_lengths(lengths.map(|cell| cell.num_rows() as u64))?;
        let columns = Axis::try_from_lengths(bands.iter().map(|band| band.len() as u64))?;
        let schemas = bands.into_iter().map(|band| Arc::new(Schema::new(band)));
        let schemas: Vec<SchemaRef> = schemas.collect();
        let mut builder = GridBuilder::try_new(Arc::new(schema), rows, columns)?;
        for (row_band, row) in cells.iter().enumerate() {
            for (column_band, (cell, schema)) in row.iter().zip(&schemas).enumerate() {
                let position = [row_band, column_band];
                let fitted =
                    fitted(cell, schema).map_err(|error| error.with_position(&position))?;
                builder.set(&position, Tile::try_from_batch(&fitted)?)?;
            }
        }
        builder.build()
    }
}

/// Whether a row has as many cells as the first, and all of them as many rows.
fn check_row(wanted: usize, row_band: usize, row: &[RecordBatch]) -> Result<()> {
    if row.len() != wanted {
        let got = row.len();
        return Err(Error::invalid_argument(format!(
            "a row of cells must have as many cells as the first, {wanted}, got {got}"
        ))
        .with_position(&[row_band, wanted.min(got)]));
    }
    let num_rows = row.first().map_or(0, RecordBatch::num_rows);
    let other = row.iter().position(|cell| cell.num_rows() != num_rows);
    match other.and_then(|column_band| Some((column_band, row.get(column_band)?))) {
        None => Ok(()),
        Some((column_band, cell)) => Err(Error::invalid_argument(format!(
            "the cells of a row band must have the same number of rows: the first has {num_rows}, this one has {}",
            cell.num_rows()
        ))
        .with_position(&[row_band, column_band])),
    }
}

/// The fields of each column band.
fn bands(cells: &[Vec<RecordBatch>]) -> Result<Vec<Vec<Field>>> {
    let mut bands: Vec<Vec<Field>> = Vec::new();
    for (row_band, row) in cells.iter().enumerate() {
        for (column_band, cell) in row.iter().enumerate() {
            let found: Vec<Field> = fields_of(cell);
            match bands.get_mut(column_band) {
                None => bands.push(found),
                Some(known) => check_cell(known, &found)
                    .map_err(|error| error.with_position(&[row_band, column_band]))?,
            }
        }
    }
    Ok(bands)
}

fn check_cell(known: &mut [Field], found: &[Field]) -> Result<()> {
    if known.len() != found.len() {
        return Err(Error::invalid_argument(format!(
            "the cells of a column band must have the same columns: those above have {}, this one has {}",
            known.len(),
            found.len()
        )));
    }
    match unite(known, found, true) {
        None => Ok(()),
        Some((known, found)) => Err(Error::invalid_argument(format!(
            "the cells of a column band must have the same columns: those above have {}, this one has {}",
            describe_field(&known),
            describe_field(&found)
        ))
        .with_column(known.name())
        .with_hint("give the column one type in the whole frame first")),
    }
}

/// The fields of a batch.
pub(crate) fn fields_of(batch: &RecordBatch) -> Vec<Field> {
    let fields = batch.schema_ref().fields().iter();
    fields.map(|field| field.as_ref().clone()).collect()
}

/// Widens `known` so that the values of columns `found` fit too: nullable where one is, the common type of null and anything, and of decimals. Or the first pair of fields that do not agree.
pub(crate) fn unite(
    known: &mut [Field],
    found: &[Field],
    names_matter: bool,
) -> Option<(Field, Field)> {
    for (known, found) in known.iter_mut().zip(found) {
        let same_name = !names_matter || known.name() == found.name();
        let common = common_type(known, found).filter(|_| same_name);
        let Some(common) = common else {
            return Some((known.clone(), found.clone()));
        };
        let (first, second) = (known.data_type(), found.data_type());
        let nulls = first != second && (first.is_null() || second.is_null());
        let nullable = nulls || known.is_nullable() || found.is_nullable();
        if *known.data_type() == DataType::Null {
            *known = found.clone().with_name(known.name());
        }
        known.set_data_type(common);
        known.set_nullable(nullable);
    }
    None
}

fn common_type(known: &Field, found: &Field) -> Option<DataType> {
    match (known.data_type(), found.data_type()) {
        (first, second) if first == second => {
            let same_order = known.dict_is_ordered() == found.dict_is_ordered();
            same_order.then(|| first.clone())
        }
        (DataType::Null, other) | (other, DataType::Null) => Some(other.clone()),
        (DataType::Decimal128(first, first_scale), DataType::Decimal128(second, second_scale)) => {
            let digits = |precision: u8, scale: i8| i16::from(precision) - i16::from(scale);
            let scale = *first_scale.max(second_scale);
            let whole = digits(*first, *first_scale).max(digits(*second, *second_scale));
            let precision = u8::try_from(whole + i16::from(scale)).ok()?;
            let fits = precision <= DECIMAL128_MAX_PRECISION;
            fits.then_some(DataType::Decimal128(precision, scale))
        }
        _ => None,
    }
}

/// The batch under the fields of its column band, which were united with its own.
pub(crate) fn fitted(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let pairs = batch.columns().iter().zip(schema.fields());
    let columns: Result<Vec<ArrayRef>> = pairs
        .map(|(column, field)| fitted_column(column, field.data_type()))
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns?,
        &options,
    )?)
}

fn fitted_column(column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef> {
    match column.data_type() {
        same if same == wanted => Ok(Arc::clone(column)),
        DataType::Null => Ok(new_null_array(wanted, column.len())),
        _ => Ok(cast_with_options(column, wanted, &STRICT)?),
    }
}
