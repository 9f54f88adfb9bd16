//! What is told of the values in tiles.
//!
//! Comes in: a grid. Goes out: a message with the statistics of all its tiles, two rows for each row band, and what it says, for those who plan over tiles that they have not read: other members of a
//! cluster, and whoever opens a catalog. Never here: planning.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array,
    new_null_array,
};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, Schema, UInt64Type};
use arrow::ipc::writer::StreamWriter;

use super::ipc;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::{ColumnStatistics, FIRST_ROWS, PartitionGrid, array_bytes, ascends};

/// Rows of a message for each row band: for the least value, and for the greatest.
const ROWS: usize = 2;

/// Of longer bounds, least and greatest together, nothing is told.
const LONGEST_BYTES: u64 = 4096;

/// Arrays of a message for each column. Manifests of before have one less, without what is said of order.
const TOLD: usize = 3;

/// The message of a grid. Statistics that nobody knows yet are worked out, which reads the values that are in memory, once.
///
/// # Errors
/// What Arrow says to bounds that it cannot write.
pub(crate) fn told(part: &PartitionGrid) -> Result<Vec<u8>> {
    let (mut fields, mut arrays) = (Vec::new(), Vec::new());
    for column in 0..part.num_columns() {
        let known = of_column(part, column);
        let nulls = known.iter().map(|known| known.map(|of| of.null_count));
        let nulls: UInt64Array = nulls.flat_map(|count| [count; ROWS]).collect();
        let bounds = bounds(&known)?;
        let ascending = (0..known.len()).map(|row_band| ascending(part, row_band, column));
        let ascending: BooleanArray = ascending.flat_map(|known| [known; ROWS]).collect();
        fields.push(Field::new("nulls", DataType::UInt64, true));
        fields.push(Field::new("bounds", bounds.data_type().clone(), true));
        fields.push(Field::new("ascending", DataType::Boolean, true));
        arrays.push(Arc::new(nulls) as ArrayRef);
        arrays.push(bounds);
        arrays.push(Arc::new(ascending));
    }
    let schema = Arc::new(Schema::new(fields));
    // Also of a grid without columns.
    let rows = ROWS * part.rows().num_intervals();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), arrays, &options)?;
    let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
    writer.write(&batch)?;
    Ok(writer.into_inner()?)
}

/// What is known of a column, for each row band.
fn of_column(part: &PartitionGrid, column: usize) -> Vec<Option<&ColumnStatistics>> {
    let place = part.columns().locate(column as u64);
    let bands = 0..part.rows().num_intervals();
    let known = bands.map(|row_band| {
        let (column_band, within) = place?;
        let tile = part.row_band(row_band).get(column_band)?;
        let known = tile.statistics_at_hand(usize::try_from(within).ok()?)?;
        let bounds = known.bounds.as_ref();
        // Without bounds, a number of nulls would say that there is nothing else.
        let is_short = bounds.is_none_or(|bounds| array_bytes(bounds) <= LONGEST_BYTES);
        is_short.then_some(known)
    });
    known.collect()
}

/// Whether a column of a row band ascends: as is known, or as its values say, if they are here.
fn ascending(part: &PartitionGrid, row_band: usize, column: usize) -> Option<bool> {
    let (column_band, within) = part.columns().locate(column as u64)?;
    let tile = part.row_band(row_band).get(column_band)?;
    let within = usize::try_from(within).ok()?;
    let known = tile.known_statistics(within)?;
    if known.is_ascending.is_some() || known.null_count > 0 || tile.data().is_lazy() {
        return known.is_ascending;
    }
    let batch = tile.open().ok()?;
    let values = batch.columns().get(within)?;
    match ascends(values, FIRST_ROWS)? {
        true => ascends(values, usize::MAX),
        false => Some(false),
    }
}

/// The bounds of all row bands, below one another; of type null where there are none.
fn bounds(known: &[Option<&ColumnStatistics>]) -> Result<ArrayRef> {
    let each = known
        .iter()
        .map(|known| known.and_then(|of| of.bounds.as_ref()));
    let data_type = each.clone().flatten().next().map(Array::data_type);
    let data_type = data_type.unwrap_or(&DataType::Null);
    let missing = new_null_array(data_type, ROWS);
    let pieces: Vec<&dyn Array> = each
        .map(|bounds| bounds.unwrap_or(&missing).as_ref())
        .collect();
    Ok(match pieces.is_empty() {
        true => new_null_array(data_type, 0),
        false => concat(&pieces)?,
    })
}

/// What is known of the columns of each row band of a part, by its columns.
pub(crate) struct Heard(Vec<Vec<Option<ColumnStatistics>>>);

impl Heard {
    /// Reads a message about a grid with these columns and so many row bands.
    ///
    /// # Errors
    /// `Protocol` when it is none about such a grid.
    pub(crate) fn read(message: &[u8], schema: &Schema, num_bands: usize) -> Result<Self> {
        let strange = |why: String| {
            let text = format!("statistics are told in words that are not ours: {why}");
            Error::new(ErrorKind::Protocol, text)
        };
        let batch = ipc::read_stream(message);
        let batch = batch.map_err(|error| strange(error.to_string()))?;
        let batch = batch.ok_or_else(|| strange("nothing".to_owned()))?;
        let (rows, columns) = (batch.num_rows(), batch.num_columns());
        let each = [TOLD, TOLD - 1];
        let mut each = each
            .into_iter()
            .filter(|each| columns == each * schema.fields().len());
        let Some(each) = each.next().filter(|_| rows == ROWS * num_bands) else {
            let text = format!("{columns} columns of {rows} rows");
            return Err(strange(text));
        };
        let told = batch.columns().chunks_exact(each).zip(schema.fields());
        let heard = told.map(|(told, field)| match told {
            [nulls, bounds] => column(nulls, bounds, None, field, num_bands),
            [nulls, bounds, ascending] => {
                let ascending = ascending.as_boolean_opt()?;
                column(nulls, bounds, Some(ascending), field, num_bands)
            }
            _ => None,
        });
        let heard: Option<Vec<_>> = heard.collect();
        heard
            .map(Self)
            .ok_or_else(|| strange("columns of other types".to_owned()))
    }

    /// What is known of some columns of a row band, once.
    pub(crate) fn take(
        &mut self,
        row_band: usize,
        columns: Option<Range<u64>>,
    ) -> Vec<Option<ColumnStatistics>> {
        let columns = columns
            .unwrap_or_default()
            .filter_map(|column| usize::try_from(column).ok());
        let known = columns.map(|column| self.0.get_mut(column)?.get_mut(row_band)?.take());
        known.collect()
    }
}

fn column(
    nulls: &ArrayRef,
    bounds: &ArrayRef,
    ascending: Option<&BooleanArray>,
    field: &Field,
    num_bands: usize,
) -> Option<Vec<Option<ColumnStatistics>>> {
    let nulls = nulls.as_primitive_opt::<UInt64Type>()?;
    let has_bounds = bounds.data_type() != &DataType::Null;
    if has_bounds && bounds.data_type() != field.data_type() {
        return None;
    }
    let each = (0..num_bands).map(|band| {
        let at = ROWS * band;
        nulls.is_valid(at).then(|| ColumnStatistics {
            null_count: nulls.value(at),
            bounds: (has_bounds && bounds.is_valid(at)).then(|| bounds.slice(at, ROWS)),
            is_ascending: ascending
                .filter(|told| told.is_valid(at))
                .map(|told| told.value(at)),
        })
    });
    Some(each.collect())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use arrow::array::Int64Array;
    use arrow::ipc::reader::StreamReader;

    use super::*;

    /// A grid of two row bands: the first column ascends in both, the second in the first of them, the third has a null.
    fn grid() -> (Arc<Schema>, PartitionGrid) {
        let columns = |rows: [[Option<i64>; 3]; 3]| {
            rows.map(|column| Arc::new(Int64Array::from_iter(column)) as ArrayRef)
        };
        let one = columns([
            [Some(1), Some(1), Some(2)],
            [Some(1), Some(2), Some(3)],
            [None, Some(1), Some(2)],
        ]);
        let two = columns([
            [Some(2), Some(3), Some(4)],
            [Some(5), Some(4), Some(6)],
            [Some(1), Some(2), Some(3)],
        ]);
        let fields = ["a", "b", "c"].map(|name| Field::new(name, DataType::Int64, true));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let batches = [one, two].map(|columns| {
            RecordBatch::try_new(Arc::clone(&schema), columns.to_vec()).expect("a batch")
        });
        let grid = PartitionGrid::try_from_batches(Arc::clone(&schema), &batches).expect("a grid");
        (schema, grid)
    }

    /// What is heard of the order of each column, by row bands.
    fn orders(message: &[u8], schema: &Schema) -> Vec<Vec<Option<bool>>> {
        let mut heard = Heard::read(message, schema, 2).expect("it is told");
        let bands = (0..2).map(|row_band| {
            let known = heard.take(row_band, Some(0..3)).into_iter();
            known
                .map(|known| known.expect("all is known").is_ascending)
                .collect()
        });
        bands.collect()
    }

    #[test]
    fn columns_that_ascend_are_told() {
        let (schema, grid) = grid();
        let message = told(&grid).expect("it can be told");
        assert_eq!(
            orders(&message, &schema),
            [
                [Some(true), Some(true), None],
                [Some(true), Some(false), Some(true)]
            ]
        );
    }

    #[test]
    fn what_was_written_without_the_order_is_read() {
        let (schema, grid) = grid();
        let message = told(&grid).expect("it can be told");
        let mut reader = StreamReader::try_new(Cursor::new(message), None).expect("a message");
        let batch = reader.next().expect("a batch").expect("a batch");
        let without = (0..9).filter(|column| column % 3 < 2).collect::<Vec<_>>();
        let batch = batch.project(&without).expect("six columns");
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).expect("a writer");
        writer.write(&batch).expect("written");
        let message = writer.into_inner().expect("written");
        assert_eq!(orders(&message, &schema), [[None; 3], [None; 3]]);
    }
}
