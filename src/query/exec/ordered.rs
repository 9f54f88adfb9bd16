//! Numbers that are in the order of the values of a column.
//!
//! Comes in: values of a type that has such numbers of 64 bits. Goes out: one for each value; those of nulls are any. Never here: values of other types, and what the numbers are for.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{can_cast_types, cast};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type, UInt64Type};
use datafusion::common::internal_err;
use datafusion::error::Result;

/// The type of numbers of 64 bits that has all values of a type, in their order.
pub(super) fn through(kind: &DataType) -> Option<DataType> {
    let through = match kind {
        DataType::Boolean
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32
        | DataType::UInt64 => DataType::UInt64,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => DataType::Float64,
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Timestamp(..)
        | DataType::Duration(_) => DataType::Int64,
        _ => return None,
    };
    can_cast_types(kind, &through).then_some(through)
}

const SIGN: u64 = 1 << 63;

/// Puts the numbers of values behind others, for a type that has them `through` another one.
///
/// # Errors
/// `Internal` for values of other types.
pub(super) fn put(values: &ArrayRef, through: &DataType, to: &mut Vec<u64>) -> Result<()> {
    let values = cast(values, through)?;
    to.reserve(values.len());
    if let Some(values) = values.as_primitive_opt::<UInt64Type>() {
        to.extend_from_slice(values.values());
    } else if let Some(values) = values.as_primitive_opt::<Int64Type>() {
        let values = values.values().iter();
        to.extend(values.map(|value| value.cast_unsigned() ^ SIGN));
    } else if let Some(values) = values.as_primitive_opt::<Float64Type>() {
        let values = values.values().iter().map(|value| {
            let bits = value.to_bits();
            // As `f64::total_cmp` has it.
            if bits & SIGN == 0 { bits | SIGN } else { !bits }
        });
        to.extend(values);
    } else {
        return internal_err!("numbers that are {}", values.data_type());
    }
    Ok(())
}

/// Puts the numbers of decimals behind others, if all have 64 bits; else there are some of them, and it says so.
pub(super) fn put_decimals(values: &ArrayRef, to: &mut Vec<u64>) -> Result<bool> {
    let Some(values) = values.as_primitive_opt::<Decimal128Type>() else {
        return internal_err!("decimals that are {}", values.data_type());
    };
    to.reserve(values.len());
    let mut are_short = true;
    let numbers = values.values().iter().zip(0..).map(|(value, row)| {
        let short = i64::try_from(*value);
        are_short &= short.is_ok() || values.is_null(row);
        short.unwrap_or_default().cast_unsigned() ^ SIGN
    });
    to.extend(numbers);
    Ok(are_short)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BooleanArray, Date32Array, Decimal128Array, Float32Array, Int8Array, UInt32Array,
    };

    use super::*;

    #[test]
    fn numbers_are_in_the_order_of_values() {
        let ascending: [ArrayRef; 5] = [
            Arc::new(BooleanArray::from(vec![false, true])),
            Arc::new(Int8Array::from(vec![-128, -1, 0, 1, 127])),
            Arc::new(UInt32Array::from(vec![0, 1, u32::MAX])),
            Arc::new(Date32Array::from(vec![i32::MIN, -1, 0, i32::MAX])),
            Arc::new(Float32Array::from(vec![
                f32::NEG_INFINITY,
                -1.5,
                -f32::MIN_POSITIVE,
                -0.0,
                0.0,
                1e-40,
                2.5,
                f32::INFINITY,
                f32::NAN,
            ])),
        ];
        for values in ascending {
            let mut found = Vec::new();
            put(&values, &through(values.data_type()).unwrap(), &mut found).unwrap();
            assert!(
                found.is_sorted_by(|one, next| one < next),
                "{values:?} {found:?}"
            );
        }
        assert_eq!(through(&DataType::Utf8), None);
    }

    #[test]
    fn decimals_have_numbers_where_they_are_short() {
        let short = [i64::MIN, -5, 0, 7, i64::MAX].map(i128::from);
        let values: ArrayRef = Arc::new(Decimal128Array::from(short.to_vec()));
        let mut found = Vec::new();
        assert!(put_decimals(&values, &mut found).unwrap());
        assert!(found.is_sorted_by(|one, next| one < next), "{found:?}");
        let long = [1, i128::from(i64::MAX) + 1];
        let values: ArrayRef = Arc::new(Decimal128Array::from(long.to_vec()));
        assert!(!put_decimals(&values, &mut found).unwrap());
    }
}
