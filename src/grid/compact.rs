//! Gives nested columns the shape that every Arrow kernel reads rightly.
//!
//! Comes in: a batch, perhaps a slice of a larger one. Goes out: the same values, with every list and map starting at offset 0 and ending at its child's end.
//! Needed because casts of arrow 59 from sliced lists read from row 0 (apache/arrow-rs #9235 and its relatives). Flat columns are never copied; nested ones
//! only when they are slices.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, MutableArrayData, RecordBatch, RecordBatchOptions};
use arrow::array::{AsArray, GenericListArray, OffsetSizeTrait, make_array};
use arrow::datatypes::DataType;

use crate::error::Result;

/// The batch with sliced nested columns rebuilt from offset 0; other columns are shared.
///
/// # Errors
/// When Arrow refuses the rebuilt batch, which would be a fault of partgrid.
pub fn compact(batch: &RecordBatch) -> Result<RecordBatch> {
    if !batch.columns().iter().any(is_sliced) {
        return Ok(batch.clone());
    }
    let rebuilt: Result<Vec<ArrayRef>> = batch.columns().iter().map(compact_column).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        batch.schema(),
        rebuilt?,
        &options,
    )?)
}

fn compact_column(column: &ArrayRef) -> Result<ArrayRef> {
    if !is_sliced(column) {
        return Ok(Arc::clone(column));
    }
    let data = column.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, data.len());
    copy.try_extend(0, 0, data.len())?;
    Ok(make_array(copy.freeze()))
}

/// Whether some list, map or list view in the column does not begin at offset 0 or does not end with its child.
fn is_sliced(column: &ArrayRef) -> bool {
    match column.data_type() {
        DataType::List(_) => list_is_sliced(column.as_list::<i32>()),
        DataType::LargeList(_) => list_is_sliced(column.as_list::<i64>()),
        DataType::Map(_, _) => {
            let map = column.as_map();
            let (first, last) = (map.offsets().first(), map.offsets().last());
            let whole = first == Some(&0)
                && last.map(|end| usize::try_from(*end)) == Some(Ok(map.entries().len()));
            let children = map.entries().columns();
            !whole || children.iter().any(is_sliced)
        }
        DataType::ListView(_) | DataType::LargeListView(_) => column.offset() != 0,
        DataType::FixedSizeList(_, _) => is_sliced(column.as_fixed_size_list().values()),
        DataType::Struct(_) => column.as_struct().columns().iter().any(is_sliced),
        DataType::Union(fields, _) => {
            let union = column.as_union();
            fields.iter().any(|(id, _)| is_sliced(union.child(id)))
        }
        _ => false,
    }
}

fn list_is_sliced<O: OffsetSizeTrait>(list: &GenericListArray<O>) -> bool {
    let (first, last) = (list.offsets().first(), list.offsets().last());
    let whole = first.map(|start| start.as_usize()) == Some(0)
        && last.map(|end| end.as_usize()) == Some(list.values().len());
    !whole || is_sliced(list.values())
}
