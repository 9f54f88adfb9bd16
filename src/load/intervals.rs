//! Intervals of months, days and milliseconds, of which the reader keeps a part only.
//!
//! Comes in: what the reader makes of a column: days and milliseconds, or months. Goes out: intervals with all three. Files that say in which Arrow type their intervals were written hold nothing but that. Never here: writing, which the format
//! allows only without signs.

use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, IntervalMonthDayNanoArray, make_array};
use arrow::compute::binary;
use arrow::datatypes::{
    DataType, Field, FieldRef, IntervalDayTimeType, IntervalMonthDayNano, IntervalUnit,
    IntervalYearMonthType, Schema, SchemaRef,
};
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::file::metadata::ParquetMetaData;

use crate::error::{Error, Result};

const NANOSECONDS_OF_MILLISECOND: i64 = 1_000_000;

/// The schema of a file that the reader gives `schema`, with months in the intervals that may have some; nothing where none may.
pub(super) fn with_months(schema: &Schema, metadata: &ParquetMetaData) -> Option<SchemaRef> {
    let pairs = metadata.file_metadata().key_value_metadata();
    let says_types = pairs.is_some_and(|pairs| {
        let mut keys = pairs.iter().map(|pair| pair.key.as_str());
        keys.any(|key| key == ARROW_SCHEMA_META_KEY)
    });
    if says_types {
        return None;
    }
    let whole = of_unit(schema, IntervalUnit::MonthDayNano);
    (whole != *schema).then(|| Arc::new(whole))
}

/// The schema with all intervals of one unit.
pub(super) fn of_unit(schema: &Schema, unit: IntervalUnit) -> Schema {
    let fields = schema.fields().iter().map(|field| field_of(field, unit));
    Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone())
}

fn field_of(field: &FieldRef, unit: IntervalUnit) -> FieldRef {
    let kind = match field.data_type() {
        DataType::Interval(_) => DataType::Interval(unit),
        DataType::List(inner) => DataType::List(field_of(inner, unit)),
        DataType::LargeList(inner) => DataType::LargeList(field_of(inner, unit)),
        DataType::FixedSizeList(inner, size) => {
            DataType::FixedSizeList(field_of(inner, unit), *size)
        }
        DataType::Map(inner, sorted) => DataType::Map(field_of(inner, unit), *sorted),
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(|field| field_of(field, unit)).collect())
        }
        _ => return Arc::clone(field),
    };
    Arc::new(Field::clone(field).with_data_type(kind))
}

/// The intervals whose days and milliseconds are in one array, and whose months are in another of the same rows, also within lists and structs.
///
/// # Errors
/// `Internal` for arrays that are not alike.
pub(super) fn whole(days: &ArrayRef, months: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let data = merged(&days.to_data(), &months.to_data(), field.data_type())?;
    Ok(make_array(data))
}

fn merged(days: &ArrayData, months: &ArrayData, wanted: &DataType) -> Result<ArrayData> {
    if days.data_type() == wanted {
        return Ok(days.clone());
    }
    if let DataType::Interval(_) = wanted {
        return of_parts(days, months);
    }
    let children = days.child_data().iter().zip(months.child_data());
    let children = children
        .zip(inner_of(wanted))
        .map(|((days, months), wanted)| merged(days, months, wanted.data_type()));
    let children = children.collect::<Result<Vec<_>>>()?;
    let builder = days.clone().into_builder().data_type(wanted.clone());
    Ok(builder.child_data(children).build()?)
}

fn inner_of(kind: &DataType) -> Vec<&FieldRef> {
    match kind {
        DataType::List(inner)
        | DataType::LargeList(inner)
        | DataType::FixedSizeList(inner, _)
        | DataType::Map(inner, _) => vec![inner],
        DataType::Struct(fields) => fields.iter().collect(),
        _ => Vec::new(),
    }
}

fn of_parts(days: &ArrayData, months: &ArrayData) -> Result<ArrayData> {
    let (days, months) = (make_array(days.clone()), make_array(months.clone()));
    let (Some(days), Some(months)) = (
        days.as_primitive_opt::<IntervalDayTimeType>(),
        months.as_primitive_opt::<IntervalYearMonthType>(),
    ) else {
        return Err(Error::internal("parts of intervals of other types"));
    };
    let whole: IntervalMonthDayNanoArray = binary(days, months, |parts, months| {
        // Written without a sign.
        let milliseconds = i64::from(parts.milliseconds.cast_unsigned());
        IntervalMonthDayNano {
            months,
            days: parts.days,
            nanoseconds: milliseconds * NANOSECONDS_OF_MILLISECOND,
        }
    })?;
    Ok(whole.into_data())
}
