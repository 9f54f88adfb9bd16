//! Dictionaries whose keys have room for all values that meet in a query. Tiles may have a dictionary each, as frames with categories do, and the engine puts these together: keys of 8 or 16 bits are soon used up.
//!
//! Comes in: the columns of a grid, and batches of them. Goes out: the same with keys of 32 bits, in all grids alike, so that types of answers are the same however rows are cut. Values are not copied. Never here: values of
//! rows in place of dictionaries (`plan/dictionaries.rs`).

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

use crate::error::Result;

/// The columns as SQL has them.
pub(crate) fn sql_schema(schema: &SchemaRef) -> SchemaRef {
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
fn sql_type(data_type: &DataType) -> Option<DataType> {
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
    use arrow::array::{Array, AsArray, DictionaryArray, ListArray, StringArray};
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
        let schema = sql_schema(given.schema_ref());
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
        let schema = sql_schema(given.schema_ref());
        let wide = widened_batch(&given, &schema).unwrap();
        let inner = wide.column(0).as_list::<i32>().values();
        assert!(inner.as_dictionary_opt::<Int32Type>().is_some());

        let plain = batch(Arc::new(StringArray::from(vec!["a"])));
        let schema = sql_schema(plain.schema_ref());
        assert!(Arc::ptr_eq(&schema, plain.schema_ref()));
        let same = widened_batch(&plain, &schema).unwrap();
        assert!(Arc::ptr_eq(same.column(0), plain.column(0)));
    }
}
