//! Which numbers an n-d array can hold, and how other libraries name them.
//!
//! Comes in: an Arrow type, or the name that another library has for one. Goes out: an [`ElementType`] with its names (PEP 3118, array interface), its width and
//! what it becomes beside others, or the refusal with the remedy. Never here: values.

use std::fmt;

use arrow::datatypes::DataType;

use crate::error::{Error, Result};

/// The type of the elements of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

    /// The element type of a kind (`i`, `u` or `f`, as the array interface has them) and a width; `None` when there is none.
    #[must_use]
    pub fn of_kind(kind: char, item_bytes: usize) -> Option<Self> {
        let named = |element: &Self| element.kind() == kind && element.item_bytes() == item_bytes;
        ALL.into_iter().find(named)
    }

    /// The element type of a name such as `int64` or `float32`.
    ///
    /// # Errors
    /// `InvalidArgument` for every other name.
    pub fn try_from_name(name: &str) -> Result<Self> {
        let named = ALL.into_iter().find(|element| element.name() == name);
        named.ok_or_else(|| {
            Error::invalid_argument(format!(
                "the type of an array must be int8 to int64, uint8 to uint64 or float16 to float64, got {name}"
            ))
        })
    }

    /// The Arrow type.
    #[must_use]
    pub fn arrow_type(self) -> DataType {
        match self {
            Self::Int8 => DataType::Int8,
            Self::Int16 => DataType::Int16,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::UInt8 => DataType::UInt8,
            Self::UInt16 => DataType::UInt16,
            Self::UInt32 => DataType::UInt32,
            Self::UInt64 => DataType::UInt64,
            Self::Float16 => DataType::Float16,
            Self::Float32 => DataType::Float32,
            Self::Float64 => DataType::Float64,
        }
    }

    /// The name: `int8` to `int64`, `uint8` to `uint64`, `float16` to `float64`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::UInt8 => "uint8",
            Self::UInt16 => "uint16",
            Self::UInt32 => "uint32",
            Self::UInt64 => "uint64",
            Self::Float16 => "float16",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
        }
    }

    /// The kind character of the array interface: `i`, `u` or `f`.
    #[must_use]
    pub fn kind(self) -> char {
        match self {
            Self::Int8 | Self::Int16 | Self::Int32 | Self::Int64 => 'i',
            Self::UInt8 | Self::UInt16 | Self::UInt32 | Self::UInt64 => 'u',
            Self::Float16 | Self::Float32 | Self::Float64 => 'f',
        }
    }

    /// The type string of the array interface in the byte order of this machine, for instance `<f8`.
    #[must_use]
    pub fn type_string(self) -> String {
        let order = match (self.item_bytes(), cfg!(target_endian = "little")) {
            (1, _) => '|',
            (_, true) => '<',
            (_, false) => '>',
        };
        format!("{order}{}{}", self.kind(), self.item_bytes())
    }

    /// The type that holds the values of all, as `numpy.result_type` has it: the widest of one kind; signed and unsigned integers become the signed type that holds both
    /// (`float64` beside `uint64`), integers beside floats the float that numpy gives them. `None` of none.
    ///
    /// A `float64` does not hold every 64-bit integer.
    #[must_use]
    pub fn promoted(elements: impl IntoIterator<Item = Self>) -> Option<Self> {
        // The types of one kind are ordered by width.
        let (mut signed, mut unsigned, mut float) = (None, None, None);
        for element in elements {
            let widest = match element.kind() {
                'i' => &mut signed,
                'u' => &mut unsigned,
                _ => &mut float,
            };
            *widest = (*widest).max(Some(element));
        }
        if float.is_some() {
            let needed = signed.map(Self::float_beside);
            let other = unsigned.map(Self::float_beside);
            return float.max(needed).max(other);
        }
        match (signed, unsigned) {
            (Some(_), Some(Self::UInt64)) => Some(Self::Float64),
            (Some(signed), Some(unsigned)) => {
                let held = Self::of_kind('i', unsigned.item_bytes() * 2);
                Some(signed).max(held)
            }
            (signed, unsigned) => signed.or(unsigned),
        }
    }

    /// The narrowest float that numpy has for this integer type beside floats.
    fn float_beside(self) -> Self {
        match self.item_bytes() {
            1 => Self::Float16,
            2 => Self::Float32,
            _ => Self::Float64,
        }
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

impl fmt::Display for ElementType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

const ALL: [ElementType; 11] = [
    ElementType::Int8,
    ElementType::Int16,
    ElementType::Int32,
    ElementType::Int64,
    ElementType::UInt8,
    ElementType::UInt16,
    ElementType::UInt32,
    ElementType::UInt64,
    ElementType::Float16,
    ElementType::Float32,
    ElementType::Float64,
];

fn refusal(data_type: &DataType) -> Error {
    let error = Error::unsupported(format!(
        "an array holds int8 to int64, uint8 to uint64 or float16 to float64 without copying, the column is {data_type}"
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
