//! Values that aggregates and windows of the engine do not take as they are stored: lists whose elements have metadata, as those of Iceberg tables have (`PARQUET:field_id`), of which a single value loses it and is of another
//! type then than its column; values that are encoded by the ends of runs; decimals of which the last digits are not written.
//!
//! Comes in: arguments before types are settled. Goes out: casts of these, where single values are taken of them. Never here: what is passed on as it is, dictionaries (`dictionaries.rs`).

use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, FieldRef};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, cast};

use super::dictionaries::OF_ONE_ROW;

/// Functions that keep a single value, beside those that give the value of one row.
const OF_EXTREMES: [&str; 2] = ["max", "min"];

/// The type of such a list without the metadata of its elements; `None` for all others.
pub(in crate::query) fn bare(kind: &DataType) -> Option<DataType> {
    let element = |field: &FieldRef| {
        let has_some = !field.metadata().is_empty();
        has_some.then(|| Arc::new(field.as_ref().clone().with_metadata(Default::default())))
    };
    match kind {
        DataType::List(field) => element(field).map(DataType::List),
        DataType::LargeList(field) => element(field).map(DataType::LargeList),
        DataType::FixedSizeList(field, length) => {
            element(field).map(|field| DataType::FixedSizeList(field, *length))
        }
        _ => None,
    }
}

/// Values in place of what the engine's aggregates and windows do not take, or break on.
pub(super) fn bare_arguments(
    function: &str,
    arguments: &mut [Expr],
    schema: &DFSchema,
) -> Result<bool> {
    let is_of_values = OF_ONE_ROW.contains(&function) || OF_EXTREMES.contains(&function);
    let (is_of_mean, is_of_distinct) = (function == "avg", function == "approx_distinct");
    if !is_of_values && !is_of_mean && !is_of_distinct {
        return Ok(false);
    }
    let mut is_changed = false;
    for part in arguments {
        let kind = part.get_type(schema)?;
        let meant = match &kind {
            DataType::RunEndEncoded(_, values) => Some(values.data_type().clone()),
            DataType::Dictionary(_, values) if is_of_distinct => Some(values.as_ref().clone()),
            kind if is_of_mean => with_scale(kind),
            kind => bare(kind),
        };
        if let Some(kind) = meant {
            *part = cast(std::mem::take(part), kind);
            is_changed = true;
        }
    }
    Ok(is_changed)
}

/// Decimals of whole tens, hundreds and so on as such of ones: the engine divides by zero for their mean.
fn with_scale(kind: &DataType) -> Option<DataType> {
    let (digits, scale) = match kind {
        DataType::Decimal256(digits, scale) if *scale < 0 => {
            let digits = digits.saturating_add(scale.unsigned_abs());
            return Some(DataType::Decimal256(
                digits.min(DECIMAL256_MAX_PRECISION),
                0,
            ));
        }
        DataType::Decimal32(digits, scale)
        | DataType::Decimal64(digits, scale)
        | DataType::Decimal128(digits, scale) => (*digits, *scale),
        _ => return None,
    };
    let digits = digits.saturating_add(scale.unsigned_abs());
    (scale < 0).then(|| DataType::Decimal128(digits.min(DECIMAL128_MAX_PRECISION), 0))
}
/// The type of the values, however they are stored.
pub(in crate::query) fn values_of(kind: &DataType) -> &DataType {
    match kind {
        DataType::Dictionary(_, values) => values_of(values),
        DataType::RunEndEncoded(_, values) => values_of(values.data_type()),
        other => other,
    }
}
