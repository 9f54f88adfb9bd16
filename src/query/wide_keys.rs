//! Dictionaries whose keys have room for all values that meet in a query. Tiles may have a dictionary each, as frames with categories do, and the engine puts these together: keys of 8 or 16 bits are soon used up.
//!
//! Comes in: a grid, and batches of it. Goes out: its columns, with keys of 32 bits where narrower ones may not count the values of all tiles together; batches with such keys. Values are not copied. Never here: values of
//! rows in place of dictionaries (`plan/types/dictionaries.rs`).

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, make_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

use crate::error::Result;
use crate::grid::PartitionGrid;
use crate::location::Locality;

/// The columns of a grid as SQL has them: as they are, if all dictionaries are known to have no more values than their keys count.
pub(crate) fn sql_schema(grid: &PartitionGrid) -> SchemaRef {
    let wide = with_wide_keys(grid.schema());
    let fields = grid.schema().fields().iter().zip(wide.fields());
    let changed = fields
        .enumerate()
        .filter(|(_, (field, wide))| !Arc::ptr_eq(field, wide));
    let mut changed = changed.map(|(column, _)| column);
    match changed.all(|column| keys_count_all(grid, column) == Some(true)) {
        true => Arc::clone(grid.schema()),
        false => wide,
    }
}

/// Whether the keys of a column count the values of the dictionaries of all its tiles together; `None` where some of these are not in memory.
fn keys_count_all(grid: &PartitionGrid, column: usize) -> Option<bool> {
    let (band, local) = grid.columns().locate(column as u64)?;
    let local = usize::try_from(local).ok()?;
    let row_bands = 0..grid.rows().num_intervals();
    if row_bands.len() == 1 {
        return Some(true);
    }
    let mut known = Known::default();
    for row_band in row_bands {
        let data = grid.row_band(row_band).get(band)?.data();
        if data.is_lazy() || data.locality() != Locality::Memory {
            return None;
        }
        known.add(data.open_columns(&[local]).ok()?.columns().first()?);
    }
    Some(known.values <= known.counted)
}

/// What is known of the dictionaries of a column.
#[derive(Debug)]
struct Known {
    /// By where they lie.
    seen: HashSet<Vec<usize>>,
    /// How many values they have, each dictionary once.
    values: usize,
    /// How many the narrowest keys count.
    counted: usize,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            seen: HashSet::new(),
            values: 0,
            counted: usize::MAX,
        }
    }
}

impl Known {
    fn add(&mut self, column: &dyn Array) {
        if let Some(dictionary) = column.as_any_dictionary_opt() {
            let values = dictionary.values();
            let data = values.to_data();
            let place = data.buffers().iter().map(|buffer| buffer.as_ptr().addr());
            let place = place.chain([data.offset(), data.len()]);
            if self.seen.insert(place.collect()) {
                self.values = self.values.saturating_add(values.len());
            }
            let bits = dictionary.keys().data_type().primitive_width();
            let bits = bits.map_or(0, |bytes| bytes * 8);
            let is_signed = dictionary.keys().data_type().is_signed_integer();
            let counted = 1_usize.checked_shl(u32::try_from(bits).unwrap_or(u32::MAX));
            let counted = counted.unwrap_or(usize::MAX) >> usize::from(is_signed);
            self.counted = self.counted.min(counted);
            return;
        }
        for child in column.to_data().child_data() {
            self.add(&make_array(child.clone()));
        }
    }
}

/// The columns with keys of 32 bits in place of narrower ones.
pub(crate) fn with_wide_keys(schema: &SchemaRef) -> SchemaRef {
    let wide = schema.fields().iter().map(sql_field);
    let wide: Vec<Option<FieldRef>> = wide.collect();
    if wide.iter().all(Option::is_none) {
        return Arc::clone(schema);
    }
    let fields = wide.into_iter().zip(schema.fields());
    let fields: Vec<FieldRef> = fields
        .map(|(wide, field)| wide.unwrap_or_else(|| Arc::clone(field)))
        .collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// A column in the type that SQL has for it.
///
/// # Errors
/// None of ours.
pub(crate) fn widened(column: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    match column.data_type() == data_type {
        true => Ok(Arc::clone(column)),
        false => Ok(cast(column, data_type)?),
    }
}

/// The columns of a batch, as the schema has them.
///
/// # Errors
/// As [`widened`].
pub(crate) fn widened_batch(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| widened(column, field.data_type()));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = columns.collect::<Result<_>>()?;
    let schema = Arc::clone(schema);
    Ok(RecordBatch::try_new_with_options(
        schema, columns, &options,
    )?)
}

/// Another type for a column, if it has narrow keys.
pub(super) fn sql_type(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Dictionary(keys, values) => {
            let is_narrow = matches!(
                **keys,
                DataType::Int8 | DataType::UInt8 | DataType::Int16 | DataType::UInt16
            );
            let keys = Box::new(DataType::Int32);
            is_narrow.then(|| DataType::Dictionary(keys, values.clone()))
        }
        DataType::List(field) => sql_field(field).map(DataType::List),
        DataType::LargeList(field) => sql_field(field).map(DataType::LargeList),
        DataType::FixedSizeList(field, length) => {
            sql_field(field).map(|field| DataType::FixedSizeList(field, *length))
        }
        DataType::Map(entries, is_sorted) => {
            sql_field(entries).map(|entries| DataType::Map(entries, *is_sorted))
        }
        DataType::Struct(fields) => {
            let wide: Vec<Option<FieldRef>> = fields.iter().map(sql_field).collect();
            let is_changed = wide.iter().any(Option::is_some);
            let fields = wide.into_iter().zip(fields);
            let fields = fields.map(|(wide, field)| wide.unwrap_or_else(|| Arc::clone(field)));
            is_changed.then(|| DataType::Struct(fields.collect()))
        }
        _ => None,
    }
}

fn sql_field(field: &FieldRef) -> Option<FieldRef> {
    let data_type = sql_type(field.data_type())?;
    Some(Arc::new(Field::clone(field).with_data_type(data_type)))
}

#[cfg(test)]
mod tests {
    use arrow::array::{DictionaryArray, ListArray, StringArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{Int8Type, Int32Type};

    use super::*;

    fn narrow() -> ArrayRef {
        let values: DictionaryArray<Int8Type> = [Some("a"), None, Some("b")].into_iter().collect();
        Arc::new(values)
    }

    fn batch(column: ArrayRef) -> RecordBatch {
        RecordBatch::try_from_iter([("c", column)]).unwrap()
    }

    #[test]
    fn keys_get_wider_and_values_stay_where_they_are() {
        let given = batch(narrow());
        let schema = with_wide_keys(given.schema_ref());
        let wide = widened_batch(&given, &schema).unwrap();
        let before = given.column(0).as_dictionary::<Int8Type>();
        let after = wide.column(0).as_dictionary::<Int32Type>();
        let texts = |values: &ArrayRef| values.as_string::<i32>().values().as_ptr();
        assert_eq!(texts(before.values()), texts(after.values()));
        assert_eq!(
            cast(after, &DataType::Utf8).unwrap().as_ref(),
            &StringArray::from(vec![Some("a"), None, Some("b")]) as &dyn Array
        );
    }

    #[test]
    fn keys_within_lists_get_wider_and_other_columns_are_handed_on() {
        let values = narrow();
        let field = Arc::new(Field::new("item", values.data_type().clone(), true));
        let list = ListArray::new(field, OffsetBuffer::from_lengths([1, 2]), values, None);
        let given = batch(Arc::new(list));
        let schema = with_wide_keys(given.schema_ref());
        let wide = widened_batch(&given, &schema).unwrap();
        let inner = wide.column(0).as_list::<i32>().values();
        assert!(inner.as_dictionary_opt::<Int32Type>().is_some());

        let plain = batch(Arc::new(StringArray::from(vec!["a"])));
        let schema = with_wide_keys(plain.schema_ref());
        assert!(Arc::ptr_eq(&schema, plain.schema_ref()));
        let same = widened_batch(&plain, &schema).unwrap();
        assert!(Arc::ptr_eq(same.column(0), plain.column(0)));
    }

    fn grid(tiles: &[ArrayRef]) -> PartitionGrid {
        let batches: Vec<RecordBatch> = tiles.iter().map(|tile| batch(Arc::clone(tile))).collect();
        PartitionGrid::try_from_batches(batches[0].schema(), &batches).unwrap()
    }

    fn of_values(letter: char, count: usize) -> ArrayRef {
        let texts: Vec<String> = (0..count)
            .map(|number| format!("{letter}{number}"))
            .collect();
        let values: DictionaryArray<Int8Type> = texts.iter().map(|text| Some(&**text)).collect();
        Arc::new(values)
    }

    #[test]
    fn keys_that_count_all_values_stay_as_they_are() {
        let many = of_values('a', 128);
        for tiles in [
            vec![Arc::clone(&many)],
            vec![many.slice(0, 60), many.slice(60, 68)],
            vec![of_values('a', 60), of_values('b', 68)],
        ] {
            let grid = grid(&tiles);
            assert!(Arc::ptr_eq(&sql_schema(&grid), grid.schema()));
        }
        let grid = grid(&[of_values('a', 60), of_values('b', 69)]);
        let wide = with_wide_keys(grid.schema());
        assert_eq!(sql_schema(&grid), wide);
    }
}
