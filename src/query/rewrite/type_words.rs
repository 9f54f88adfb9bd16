//! Names of types that the engine does not know: those of whole numbers in DuckDB, of bytes and of JSON.
//!
//! Comes in: an expression of a parsed statement. Goes out: the same with types that the engine knows: `UBIGINT` as `BIGINT UNSIGNED`, `HUGEINT` as `DECIMAL(38, 0)`, `BLOB` as `BYTEA`, `JSON` as the text that it is, also within lists and structs; a value that is cast to JSON alone is a call of what makes it. Never here: what types there are.

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, CastKind, DataType, ExactNumberInfo, Expr, Statement, TypedString, Value,
};

use super::called::called;
use super::written::without_parentheses;
use crate::error::{Error, ErrorKind, Result};
use crate::query::functions::{JSON_CAST, JSON_TRY_CAST};

/// Puts types that the engine knows in place of others in a cast.
///
/// # Errors
/// `Query` for a text of bytes that are written with backslashes, which engines read in several ways.
pub(super) fn in_words(expr: &mut Expr) -> Result<()> {
    if let Some((value, function)) = json_of(expr) {
        *expr = called(function, vec![value]);
        return Ok(());
    }
    let (written, kind) = match expr {
        Expr::Cast {
            expr: value,
            data_type,
            ..
        } => (text_of(value), data_type),
        Expr::TypedString(TypedString {
            data_type, value, ..
        }) => (text_of_value(&value.value), data_type),
        _ => return Ok(()),
    };
    known(kind);
    let is_bytes = matches!(kind, DataType::Bytea);
    match written.filter(|text| is_bytes && text.contains("\\x")) {
        None => Ok(()),
        Some(text) => Err(Error::new(
            ErrorKind::Query,
            format!(
                "'{text}' are other bytes in PostgreSQL than in DuckDB, so that it is neither here"
            ),
        )
        .with_hint("write the bytes as x'AABB'")),
    }
}

/// The value of a cast to JSON, and which function makes it; a parameter is a text.
fn json_of(expr: &mut Expr) -> Option<(Expr, &'static str)> {
    match expr {
        Expr::Cast {
            kind,
            expr: value,
            data_type: DataType::JSON | DataType::JSONB,
            ..
        } => {
            let function = match kind {
                CastKind::TryCast | CastKind::SafeCast => JSON_TRY_CAST,
                CastKind::Cast | CastKind::DoubleColon => JSON_CAST,
            };
            let none = Expr::Value(Value::Null.with_empty_span());
            let mut value = std::mem::replace(value.as_mut(), none);
            // It has no type of its own.
            if is_parameter(&value) {
                value = Expr::Cast {
                    kind: CastKind::Cast,
                    expr: Box::new(value),
                    data_type: DataType::Text,
                    array: false,
                    format: None,
                };
            }
            Some((value, function))
        }
        Expr::TypedString(TypedString {
            data_type: DataType::JSON | DataType::JSONB,
            value,
            ..
        }) => Some((Expr::Value(value.clone()), JSON_CAST)),
        _ => None,
    }
}

fn is_parameter(value: &Expr) -> bool {
    matches!(without_parentheses(value), Expr::Value(value) if matches!(value.value, Value::Placeholder(_)))
}

fn text_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => text_of_value(&value.value),
        _ => None,
    }
}

fn text_of_value(value: &Value) -> Option<String> {
    match value {
        Value::SingleQuotedString(text) => Some(text.clone()),
        _ => None,
    }
}

/// Puts them in place of those of the parameters of a statement.
pub(super) fn of_parameters(statement: &mut Statement) {
    if let Statement::Prepare { data_types, .. } = statement {
        data_types.iter_mut().for_each(known);
    }
}

fn known(kind: &mut DataType) {
    let other = match kind {
        DataType::Array(
            ArrayElemTypeDef::AngleBracket(element)
            | ArrayElemTypeDef::SquareBracket(element, _)
            | ArrayElemTypeDef::Parenthesis(element),
        ) => return known(element),
        DataType::Struct(fields, _) => {
            return fields
                .iter_mut()
                .for_each(|field| known(&mut field.field_type));
        }
        DataType::UTinyInt | DataType::UInt8 => DataType::TinyIntUnsigned(None),
        DataType::USmallInt | DataType::UInt16 => DataType::SmallIntUnsigned(None),
        DataType::UInt32 => DataType::IntegerUnsigned(None),
        DataType::UBigInt | DataType::UInt64 => DataType::BigIntUnsigned(None),
        DataType::Int16 => DataType::SmallInt(None),
        DataType::Int32 => DataType::Integer(None),
        DataType::Int64 => DataType::BigInt(None),
        DataType::Blob(_) | DataType::Varbinary(_) | DataType::Binary(_) | DataType::Bytes(_) => {
            DataType::Bytea
        }
        DataType::JSON | DataType::JSONB => DataType::Text,
        DataType::HugeInt => DataType::Decimal(ExactNumberInfo::PrecisionAndScale(38, 0)),
        DataType::Custom(name, _) if name.to_string().eq_ignore_ascii_case("uinteger") => {
            DataType::IntegerUnsigned(None)
        }
        _ => return,
    };
    *kind = other;
}

#[cfg(test)]
mod tests {
    use super::super::row_in::parsed;
    use super::*;

    #[test]
    fn whole_numbers_have_other_names() {
        for (text, expected) in [
            ("CAST(x AS UBIGINT)", "CAST(x AS BIGINT UNSIGNED)"),
            ("x::utinyint", "x::TINYINT UNSIGNED"),
            ("x::UINTEGER[]", "x::INTEGER UNSIGNED[]"),
            (
                "TRY_CAST(x AS USMALLINT)",
                "TRY_CAST(x AS SMALLINT UNSIGNED)",
            ),
            ("HUGEINT '7'", "DECIMAL(38,0) '7'"),
            ("CAST(x AS INT64)", "CAST(x AS BIGINT)"),
            ("CAST(x AS BIGINT)", "CAST(x AS BIGINT)"),
            ("CAST(x AS VARCHAR)", "CAST(x AS VARCHAR)"),
            ("x::BLOB", "x::BYTEA"),
            ("CAST(x AS VARBINARY(3))", "CAST(x AS BYTEA)"),
            ("CAST(x AS JSON)", "__json_cast(x)"),
            ("TRY_CAST(x AS JSON)", "__json_try_cast(x)"),
            ("CAST($1 AS JSON)", "__json_cast(CAST($1 AS TEXT))"),
        ] {
            let mut expr = parsed(text).unwrap();
            in_words(&mut expr).unwrap();
            assert_eq!(expr.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn bytes_with_backslashes_are_refused() {
        for (text, is_read) in [
            ("'\\xAA'::BLOB", false),
            ("BYTEA '\\xAABB'", false),
            ("'abc'::BLOB", true),
            ("'\\xAA'::VARCHAR", true),
        ] {
            let mut expr = parsed(text).unwrap();
            assert_eq!(in_words(&mut expr).is_ok(), is_read, "{text}");
        }
    }
}
