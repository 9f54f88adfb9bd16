//! Floats as they are compared and ordered.
//!
//! Comes in: an array. Goes out: the same, except that every NaN is the same NaN, above all numbers, and that there is one zero, as Polars and DuckDB have it. Arrow's total order tells NaN
//! by their sign, and -0.0 from 0.0. Never here: arrays of other types, which come back as they are.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float16Type, Float32Type, Float64Type};

type Float16 = <Float16Type as ArrowPrimitiveType>::Native;

/// The array to compare or to order by.
pub(super) fn canonical(values: &ArrayRef) -> ArrayRef {
    match values.data_type() {
        DataType::Float16 => {
            let values = values.as_primitive::<Float16Type>();
            Arc::new(values.unary::<_, Float16Type>(|value| match value {
                value if value.is_nan() => Float16::NAN,
                value if value == Float16::NEG_ZERO => Float16::ZERO,
                value => value,
            }))
        }
        DataType::Float32 => {
            let values = values.as_primitive::<Float32Type>();
            // Adding zero makes -0.0 to 0.0 and changes no other value.
            let one = |value: f32| {
                if value.is_nan() {
                    f32::NAN
                } else {
                    value + 0.0
                }
            };
            Arc::new(values.unary::<_, Float32Type>(one))
        }
        DataType::Float64 => {
            let values = values.as_primitive::<Float64Type>();
            let one = |value: f64| {
                if value.is_nan() {
                    f64::NAN
                } else {
                    value + 0.0
                }
            };
            Arc::new(values.unary::<_, Float64Type>(one))
        }
        _ => Arc::clone(values),
    }
}
