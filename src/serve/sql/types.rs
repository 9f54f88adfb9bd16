//! The types of SQL, as `GetXdbcTypeInfo` of Flight SQL asks for them.
//!
//! Comes in: the number of a type, or none for all. Goes out: what is known of it. Never here: casts.

use arrow::array::RecordBatch;
use arrow_flight::sql::metadata::{XdbcTypeInfo, XdbcTypeInfoDataBuilder};
use arrow_flight::sql::{Nullable, Searchable, XdbcDataType, XdbcDatetimeSubcode};

use crate::error::Result;
use crate::flight::of_flight;

/// Name in SQL, type, digits or bits or bytes, parameters of the type, what stands around a literal.
type Row = (
    &'static str,
    XdbcDataType,
    Option<i32>,
    Option<&'static str>,
    Option<&'static str>,
);

const TYPES: [Row; 16] = [
    ("BOOLEAN", XdbcDataType::XdbcBit, Some(1), None, None),
    ("TINYINT", XdbcDataType::XdbcTinyint, Some(3), None, None),
    ("SMALLINT", XdbcDataType::XdbcSmallint, Some(5), None, None),
    ("INTEGER", XdbcDataType::XdbcInteger, Some(10), None, None),
    ("BIGINT", XdbcDataType::XdbcBigint, Some(19), None, None),
    ("REAL", XdbcDataType::XdbcReal, Some(24), None, None),
    ("DOUBLE", XdbcDataType::XdbcDouble, Some(53), None, None),
    (
        "DECIMAL",
        XdbcDataType::XdbcDecimal,
        Some(76),
        Some("precision,scale"),
        None,
    ),
    (
        "VARCHAR",
        XdbcDataType::XdbcVarchar,
        Some(i32::MAX),
        None,
        Some("'"),
    ),
    (
        "TEXT",
        XdbcDataType::XdbcLongvarchar,
        Some(i32::MAX),
        None,
        Some("'"),
    ),
    (
        "BYTEA",
        XdbcDataType::XdbcVarbinary,
        Some(i32::MAX),
        None,
        Some("X'"),
    ),
    (
        "DATE",
        XdbcDataType::XdbcDate,
        Some(10),
        None,
        Some("DATE '"),
    ),
    (
        "TIME",
        XdbcDataType::XdbcTime,
        Some(18),
        None,
        Some("TIME '"),
    ),
    (
        "TIMESTAMP",
        XdbcDataType::XdbcTimestamp,
        Some(29),
        None,
        Some("TIMESTAMP '"),
    ),
    (
        "TIMESTAMP WITH TIME ZONE",
        XdbcDataType::XdbcTimestamp,
        Some(35),
        None,
        Some("TIMESTAMPTZ '"),
    ),
    (
        "INTERVAL",
        XdbcDataType::XdbcInterval,
        None,
        None,
        Some("INTERVAL '"),
    ),
];

/// The rows of a type, or of all.
///
/// # Errors
/// `Internal` when Arrow refuses them.
pub(super) fn batch(wanted: Option<i32>) -> Result<RecordBatch> {
    let mut builder = XdbcTypeInfoDataBuilder::new();
    for (name, data_type, size, params, literal) in TYPES {
        builder.append(info(name, data_type, size, params, literal));
    }
    let known = builder.build().map_err(of_flight)?;
    known.record_batch(wanted).map_err(of_flight)
}

fn info(
    name: &str,
    data_type: XdbcDataType,
    column_size: Option<i32>,
    params: Option<&str>,
    literal: Option<&str>,
) -> XdbcTypeInfo {
    use XdbcDataType as Type;
    let is_text = matches!(data_type, Type::XdbcVarchar | Type::XdbcLongvarchar);
    let is_whole = matches!(
        data_type,
        Type::XdbcTinyint | Type::XdbcSmallint | Type::XdbcInteger | Type::XdbcBigint
    );
    let is_float = matches!(data_type, Type::XdbcReal | Type::XdbcDouble);
    let is_decimal = data_type == Type::XdbcDecimal;
    let subcode = match data_type {
        // The code of a date is that of a year.
        Type::XdbcDate => Some(XdbcDatetimeSubcode::XdbcSubcodeYear),
        Type::XdbcTime => Some(XdbcDatetimeSubcode::XdbcSubcodeTime),
        Type::XdbcTimestamp if name.ends_with("ZONE") => {
            Some(XdbcDatetimeSubcode::XdbcSubcodeTimestampWithTimezone)
        }
        Type::XdbcTimestamp => Some(XdbcDatetimeSubcode::XdbcSubcodeTimestamp),
        _ => None,
    };
    // ODBC keeps DATETIME for what has a subcode.
    let sql_data_type = match subcode {
        Some(_) => Type::XdbcDatetime,
        None => data_type,
    };
    XdbcTypeInfo {
        type_name: name.to_owned(),
        data_type,
        column_size,
        literal_prefix: literal.map(str::to_owned),
        literal_suffix: literal.map(|_| "'".to_owned()),
        create_params: params.map(|text| text.split(',').map(str::to_owned).collect()),
        nullable: Nullable::NullabilityNullable,
        case_sensitive: is_text,
        searchable: if is_text {
            Searchable::Full
        } else {
            Searchable::Basic
        },
        unsigned_attribute: (is_whole || is_float || is_decimal).then_some(false),
        fixed_prec_scale: false,
        auto_increment: Some(false),
        local_type_name: Some(name.to_owned()),
        minimum_scale: if is_decimal || is_whole {
            Some(0)
        } else {
            None
        },
        maximum_scale: match (is_decimal, is_whole) {
            (true, _) => Some(76),
            (_, true) => Some(0),
            _ => None,
        },
        sql_data_type,
        datetime_subcode: subcode,
        num_prec_radix: match (is_float, is_whole || is_decimal) {
            (true, _) => Some(2),
            (_, true) => Some(10),
            _ => None,
        },
        interval_precision: None,
    }
}
