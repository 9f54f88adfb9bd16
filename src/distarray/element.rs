//! Which numbers the protocol can carry, and how Python's buffers name them.
//!
//! Comes in: an Arrow type. Goes out: an [`ElementType`] with its format character (PEP 3118, native standard sizes) and width, or the refusal with the
//! remedy. Never here: values.

use arrow::datatypes::DataType;

use crate::error::{Error, Result};

/// The type of the elements of a distributed array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// Signed, 1 byte.
    Int8,
    /// Signed, 2 bytes.
    Int16,
    /// Signed, 4 bytes.
    Int32,
    /// Signed, 8 bytes.
    Int64,
    /// Unsigned, 1 byte.
    UInt8,
    /// Unsigned, 2 bytes.
    UInt16,
    /// Unsigned, 4 bytes.
    UInt32,
    /// Unsigned, 8 bytes.
    UInt64,
    /// IEEE 754, 2 bytes.
    Float16,
    /// IEEE 754, 4 bytes.
    Float32,
    /// IEEE 754, 8 bytes.
    Float64,
}

impl ElementType {
    /// The element type of an Arrow type.
    ///
    /// # Errors
    /// `Unsupported` for everything but integers and floats, with the cast that helps where there is one.
    pub fn try_from_arrow(data_type: &DataType) -> Result<Self> {
        Ok(match data_type {
            DataType::Int8 => Self::Int8,
            DataType::Int16 => Self::Int16,
            DataType::Int32 => Self::Int32,
            DataType::Int64 => Self::Int64,
            DataType::UInt8 => Self::UInt8,
            DataType::UInt16 => Self::UInt16,
            DataType::UInt32 => Self::UInt32,
            DataType::UInt64 => Self::UInt64,
            DataType::Float16 => Self::Float16,
            DataType::Float32 => Self::Float32,
            DataType::Float64 => Self::Float64,
            other => return Err(refusal(other)),
        })
    }

    /// The format character of PEP 3118 (those of Python's `struct`).
    #[must_use]
    pub fn format(self) -> char {
        match self {
            Self::Int8 => 'b',
            Self::Int16 => 'h',
            Self::Int32 => 'i',
            Self::Int64 => 'q',
            Self::UInt8 => 'B',
            Self::UInt16 => 'H',
            Self::UInt32 => 'I',
            Self::UInt64 => 'Q',
            Self::Float16 => 'e',
            Self::Float32 => 'f',
            Self::Float64 => 'd',
        }
    }

    /// The bytes of one element.
    #[must_use]
    pub fn item_bytes(self) -> usize {
        match self {
            Self::Int8 | Self::UInt8 => 1,
            Self::Int16 | Self::UInt16 | Self::Float16 => 2,
            Self::Int32 | Self::UInt32 | Self::Float32 => 4,
            Self::Int64 | Self::UInt64 | Self::Float64 => 8,
        }
    }
}

fn refusal(data_type: &DataType) -> Error {
    let error = Error::unsupported(format!(
        "a distributed array holds int8 to int64, uint8 to uint64 or float16 to float64 without copying, the column is {data_type}"
    ));
    match remedy(data_type) {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

fn remedy(data_type: &DataType) -> Option<&'static str> {
    match data_type {
        DataType::Boolean => Some("booleans are stored as bits: cast to TINYINT in SQL"),
        DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => Some("cast to BIGINT or DOUBLE in SQL"),
        DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Timestamp(..)
        | DataType::Duration(_) => Some("cast to int64 in SQL: arrow_cast(column, 'Int64')"),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            Some("cast to BIGINT or DOUBLE in SQL if the texts are numbers")
        }
        DataType::Dictionary(_, value) => match ElementType::try_from_arrow(value) {
            Ok(_) => Some("cast to the type of the values in SQL"),
            Err(_) => remedy(value),
        },
        _ if data_type.is_nested() => {
            Some("select the numbers inside as columns of their own in SQL")
        }
        _ => None,
    }
}
