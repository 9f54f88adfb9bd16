//! The longest value of a column.
//!
//! Comes in: an array. Goes out: about the most bytes that one of its rows takes when it is written out: exact for texts and bytes, for lists the longest with elements of usual size. Never here: what is done about it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::DataType;

/// Whether rows of a type can be of any length.
pub(super) fn can_be_long(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => fields.iter().any(|field| can_be_long(field.data_type())),
        DataType::RunEndEncoded(_, values) => can_be_long(values.data_type()),
        // Rows of a dictionary are numbers; its values go with them once.
        DataType::Dictionary(..) | DataType::Null | DataType::Boolean => false,
        other => !other.is_primitive(),
    }
}

/// Bytes of the longest row of an array.
pub(super) fn longest(values: &dyn Array) -> u64 {
    match values.data_type() {
        DataType::Utf8 => between(values.as_string::<i32>().offsets()),
        DataType::LargeUtf8 => between(values.as_string::<i64>().offsets()),
        DataType::Binary => between(values.as_binary::<i32>().offsets()),
        DataType::LargeBinary => between(values.as_binary::<i64>().offsets()),
        DataType::Utf8View => of_views(values.as_string_view().views()),
        DataType::BinaryView => of_views(values.as_binary_view().views()),
        DataType::List(_) => {
            let lists = values.as_list::<i32>();
            of_lists(lists.offsets(), lists.values())
        }
        DataType::LargeList(_) => {
            let lists = values.as_list::<i64>();
            of_lists(lists.offsets(), lists.values())
        }
        DataType::Map(..) => {
            let maps = values.as_map();
            let entries: ArrayRef = Arc::new(maps.entries().clone());
            of_lists(maps.offsets(), &entries)
        }
        DataType::Struct(_) => {
            let columns = values.as_struct().columns().iter();
            columns.map(|column| longest(column.as_ref())).sum()
        }
        DataType::FixedSizeList(_, size) => {
            let element = longest(values.as_fixed_size_list().values().as_ref());
            element.saturating_mul(u64::try_from(*size).unwrap_or(0))
        }
        _ => usual(values),
    }
}

/// Bytes of a row of usual size.
fn usual(values: &dyn Array) -> u64 {
    let data = values.to_data();
    let known = data.get_slice_memory_size();
    let bytes = known.unwrap_or_else(|_| values.get_buffer_memory_size());
    (bytes as u64).div_ceil((values.len() as u64).max(1))
}

fn between<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> u64 {
    let lengths = offsets.windows(2).filter_map(|pair| match pair {
        [start, end] => Some(end.as_usize().saturating_sub(start.as_usize())),
        _ => None,
    });
    lengths.max().unwrap_or(0) as u64
}

/// The length is in the lowest 32 bits of a view.
fn of_views(views: &[u128]) -> u64 {
    let lengths = views
        .iter()
        .map(|view| u64::try_from(view & u128::from(u32::MAX)).unwrap_or(0));
    lengths.max().unwrap_or(0)
}

/// The most elements of a list, each of usual size or as long as the longest where that is more telling.
fn of_lists<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, elements: &ArrayRef) -> u64 {
    let most = between(offsets);
    let usual = most.saturating_mul(usual(elements.as_ref()));
    // A list holds its longest element at least once.
    usual.max(longest(elements.as_ref()))
}
