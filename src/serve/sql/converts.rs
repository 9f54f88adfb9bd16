//! Which types CAST makes of which, as `GetSqlInfo` of Flight SQL asks for it.
//!
//! Comes in: nothing. Goes out: for each type of SQL that `SqlSupportsConvert` in `FlightSql.proto` lists and the engine has, those that its values can become. Never here: which values can.

use std::collections::BTreeMap;

use arrow::compute::can_cast_types;
use arrow::datatypes::{DataType, TimeUnit};
use arrow_flight::sql::SqlSupportsConvert;

/// Each type of SQL, and what the engine has for it. Intervals of the specification are of one unit, those of the engine of all.
static TYPES: [(SqlSupportsConvert, DataType); 16] = [
    (SqlSupportsConvert::SqlConvertBigint, DataType::Int64),
    (SqlSupportsConvert::SqlConvertBit, DataType::Boolean),
    (SqlSupportsConvert::SqlConvertChar, DataType::Utf8View),
    (SqlSupportsConvert::SqlConvertDate, DataType::Date32),
    (
        SqlSupportsConvert::SqlConvertDecimal,
        DataType::Decimal128(38, 10),
    ),
    (SqlSupportsConvert::SqlConvertFloat, DataType::Float32),
    (SqlSupportsConvert::SqlConvertInteger, DataType::Int32),
    (
        SqlSupportsConvert::SqlConvertLongvarchar,
        DataType::Utf8View,
    ),
    (
        SqlSupportsConvert::SqlConvertNumeric,
        DataType::Decimal128(38, 10),
    ),
    (SqlSupportsConvert::SqlConvertReal, DataType::Float32),
    (SqlSupportsConvert::SqlConvertSmallint, DataType::Int16),
    (
        SqlSupportsConvert::SqlConvertTime,
        DataType::Time64(TimeUnit::Nanosecond),
    ),
    (
        SqlSupportsConvert::SqlConvertTimestamp,
        DataType::Timestamp(TimeUnit::Nanosecond, None),
    ),
    (SqlSupportsConvert::SqlConvertTinyint, DataType::Int8),
    (SqlSupportsConvert::SqlConvertVarbinary, DataType::Binary),
    (SqlSupportsConvert::SqlConvertVarchar, DataType::Utf8View),
];

/// For each type those that its values can become, as numbers of `SqlSupportsConvert`.
pub(super) fn converts() -> BTreeMap<i32, Vec<i32>> {
    let each = TYPES.iter().map(|(from, from_type)| {
        let into = TYPES
            .iter()
            .filter(|(_, into)| can_cast_types(from_type, into));
        let into = into.map(|(into, _)| *into as i32);
        (*from as i32, into.collect())
    });
    each.collect()
}
