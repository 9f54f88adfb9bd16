//! What is known of a column within one tile: nulls, least and greatest value, whether it ascends.
//!
//! Comes in: a column. Goes out: exact [`ColumnStatistics`]. Never here: estimates. Order is the total order of Arrow's comparison kernels
//! (for floats: -0.0 before 0.0, NaN last), so that pruning by these bounds never disagrees with a filter.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::array::{BinaryArray, BinaryViewArray, LargeBinaryArray, LargeStringArray};
use arrow::array::{BooleanArray, PrimitiveArray, StringViewArray, downcast_primitive_array};
#[cfg(feature = "sql")]
use arrow::compute::kernels::cmp::lt_eq;
use arrow::compute::{
    max, max_binary, max_binary_view, max_boolean, max_string, max_string_view, min, min_binary,
    min_binary_view, min_boolean, min_string, min_string_view,
};
use arrow::datatypes::{ArrowPrimitiveType, DataType};

/// Exact facts about one column of one tile.
#[derive(Debug, Clone)]
pub struct ColumnStatistics {
    /// How many rows are null.
    pub null_count: u64,
    /// The least and the greatest value, as an array of two in the type of the column. `None` without a value that is not null, and for types that are not
    /// compared (nested, dictionary, run-end encoded, interval).
    pub bounds: Option<ArrayRef>,
    /// Whether no row is null and each value is at least the one in the row before. `None` where nobody has looked.
    pub is_ascending: Option<bool>,
}

/// The statistics of one column. Reads its values once.
#[must_use]
pub fn column_statistics(column: &ArrayRef) -> ColumnStatistics {
    ColumnStatistics {
        null_count: u64::try_from(column.logical_null_count()).unwrap_or(u64::MAX),
        bounds: bounds_of(column),
        is_ascending: None,
    }
}

/// So many rows of a column are compared before all are.
#[cfg(feature = "sql")]
pub(crate) const FIRST_ROWS: usize = 1024;

/// Whether the first `rows` values of a column ascend and none is null; `None` for types that this is not asked of (whole numbers, dates, times and decimals are).
#[cfg(feature = "sql")]
pub(crate) fn ascends(column: &ArrayRef, rows: usize) -> Option<bool> {
    if !can_ascend(column.data_type()) {
        return None;
    }
    let pairs = column.len().min(rows).saturating_sub(1);
    let one = column.slice(0, pairs);
    let next = column.slice(usize::from(pairs > 0), pairs);
    let is_ordered = || lt_eq(&one, &next).is_ok_and(|ordered| ordered.true_count() == pairs);
    Some(column.null_count() == 0 && is_ordered())
}

/// Whether it is asked of a type if its values ascend.
#[cfg(feature = "sql")]
pub(crate) fn can_ascend(kind: &DataType) -> bool {
    let is_ordered = kind.is_integer() || kind.is_temporal() || kind.is_decimal();
    is_ordered && !matches!(kind, DataType::Interval(_))
}

fn bounds_of(column: &ArrayRef) -> Option<ArrayRef> {
    let array: ArrayRef = match column.data_type() {
        DataType::Boolean => {
            let values = column.as_boolean();
            Arc::new(BooleanArray::from(vec![
                min_boolean(values)?,
                max_boolean(values)?,
            ]))
        }
        DataType::Utf8 => {
            let values = column.as_string::<i32>();
            Arc::new(StringArray::from(vec![
                min_string(values)?,
                max_string(values)?,
            ]))
        }
        DataType::LargeUtf8 => {
            let values = column.as_string::<i64>();
            Arc::new(LargeStringArray::from(vec![
                min_string(values)?,
                max_string(values)?,
            ]))
        }
        DataType::Utf8View => {
            let values = column.as_string_view();
            let pair = vec![min_string_view(values)?, max_string_view(values)?];
            Arc::new(StringViewArray::from(pair))
        }
        DataType::Binary => {
            let values = column.as_binary::<i32>();
            Arc::new(BinaryArray::from(vec![
                min_binary(values)?,
                max_binary(values)?,
            ]))
        }
        DataType::LargeBinary => {
            let values = column.as_binary::<i64>();
            Arc::new(LargeBinaryArray::from(vec![
                min_binary(values)?,
                max_binary(values)?,
            ]))
        }
        DataType::BinaryView => {
            let values = column.as_binary_view();
            let pair = vec![min_binary_view(values)?, max_binary_view(values)?];
            Arc::new(BinaryViewArray::from(pair))
        }
        DataType::Interval(_) => return None,
        _ => primitive_bounds(column)?,
    };
    Some(array)
}

fn primitive_bounds(column: &ArrayRef) -> Option<ArrayRef> {
    let column = column.as_ref();
    downcast_primitive_array! {
        column => typed_bounds(column),
        _ => None
    }
}

fn typed_bounds<T>(values: &PrimitiveArray<T>) -> Option<ArrayRef>
where
    T: ArrowPrimitiveType,
    T::Native: arrow::datatypes::ArrowNativeTypeOp,
{
    let pair = [min(values)?, max(values)?];
    let array = PrimitiveArray::<T>::from_iter_values(pair);
    Some(Arc::new(array.with_data_type(values.data_type().clone())))
}
