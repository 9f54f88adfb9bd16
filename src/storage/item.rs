//! What the elements of a storage are.
//!
//! Comes in: a type string of the array interface (`<f8`), or what numpy says of a type that only it knows. Goes out: an [`Item`] with its width and its names in the interfaces.
//! Never here: values.

use std::ffi::{CStr, CString, c_long};
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::grid::ElementType;

/// The type of the elements of a storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// An integer or a float in the byte order of this machine.
    Number(ElementType),
    /// A byte, 0 or 1.
    Bool,
    /// Two floats of 32 bits.
    Complex64,
    /// Two floats of 64 bits.
    Complex128,
    /// What only numpy knows: records, texts, times, foreign byte order.
    Foreign(Arc<Foreign>),
}

/// A type that only numpy knows.
#[derive(Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The bytes of one element.
    pub item_bytes: usize,
    /// The type string of the array interface.
    pub type_string: String,
    /// The format of PEP 3118, where there is one.
    pub format: Option<CString>,
}

impl Item {
    /// The item of a type string of the array interface, where it is a number, a truth value or a complex number in the byte order of this machine.
    #[must_use]
    pub fn of_type_string(text: &str) -> Option<Self> {
        let (order, rest) = text.split_at_checked(1)?;
        let native = if cfg!(target_endian = "little") {
            "<"
        } else {
            ">"
        };
        if order != "|" && order != native {
            return None;
        }
        let (kind, size) = rest.split_at_checked(1)?;
        match (kind, size) {
            ("b", "1") => Some(Self::Bool),
            ("c", "8") => Some(Self::Complex64),
            ("c", "16") => Some(Self::Complex128),
            _ => {
                let kind = kind.chars().next()?;
                ElementType::of_kind(kind, size.parse().ok()?).map(Self::Number)
            }
        }
    }

    /// A type that only numpy knows.
    ///
    /// # Errors
    /// `InvalidArgument` when an element has no bytes.
    pub fn try_foreign(foreign: Foreign) -> Result<Self> {
        if foreign.item_bytes == 0 {
            return Err(Error::invalid_argument(format!(
                "dtype must have elements of at least one byte, got '{}'",
                foreign.type_string
            )));
        }
        Ok(Self::Foreign(Arc::new(foreign)))
    }

    /// The bytes of one element.
    #[inline]
    #[must_use]
    pub fn item_bytes(&self) -> usize {
        match self {
            Self::Number(element) => element.item_bytes(),
            Self::Bool => 1,
            Self::Complex64 => 8,
            Self::Complex128 => 16,
            Self::Foreign(foreign) => foreign.item_bytes,
        }
    }

    /// The number type, where it is one that Arrow has.
    #[must_use]
    pub fn element(&self) -> Option<ElementType> {
        match self {
            Self::Number(element) => Some(*element),
            _ => None,
        }
    }

    /// The type string of the array interface.
    #[must_use]
    pub fn type_string(&self) -> String {
        let order = if cfg!(target_endian = "little") {
            '<'
        } else {
            '>'
        };
        match self {
            Self::Number(element) => element.type_string(),
            Self::Bool => "|b1".to_owned(),
            Self::Complex64 => format!("{order}c8"),
            Self::Complex128 => format!("{order}c16"),
            Self::Foreign(foreign) => foreign.type_string.clone(),
        }
    }

    /// The format of PEP 3118; `None` where there is none, as for times. A 64-bit integer is called `long` where it is one, as numpy does.
    #[must_use]
    pub fn format(&self) -> Option<&CStr> {
        let is_long = size_of::<c_long>() == 8;
        Some(match self {
            Self::Number(ElementType::Int8) => c"b",
            Self::Number(ElementType::Int16) => c"h",
            Self::Number(ElementType::Int32) => c"i",
            Self::Number(ElementType::Int64) if is_long => c"l",
            Self::Number(ElementType::Int64) => c"q",
            Self::Number(ElementType::UInt8) => c"B",
            Self::Number(ElementType::UInt16) => c"H",
            Self::Number(ElementType::UInt32) => c"I",
            Self::Number(ElementType::UInt64) if is_long => c"L",
            Self::Number(ElementType::UInt64) => c"Q",
            Self::Number(ElementType::Float16) => c"e",
            Self::Number(ElementType::Float32) => c"f",
            Self::Number(ElementType::Float64) => c"d",
            Self::Bool => c"?",
            Self::Complex64 => c"Zf",
            Self::Complex128 => c"Zd",
            Self::Foreign(foreign) => return foreign.format.as_deref(),
        })
    }

    /// The type code of DLPack, and bits; `None` where it has none.
    #[must_use]
    pub fn dlpack_code(&self) -> Option<(u8, u8)> {
        Some(match self {
            Self::Number(element) => {
                let bits = u8::try_from(element.item_bytes() * 8).ok()?;
                match element.kind() {
                    'i' => (0, bits),
                    'u' => (1, bits),
                    _ => (2, bits),
                }
            }
            Self::Bool => (6, 8),
            Self::Complex64 => (5, 64),
            Self::Complex128 => (5, 128),
            Self::Foreign(_) => return None,
        })
    }

    /// The bytes of the number one; `None` of what only numpy knows.
    #[must_use]
    pub fn one(&self) -> Option<Vec<u8>> {
        Some(match self {
            Self::Number(ElementType::Float16) => 0x3c00_u16.to_ne_bytes().to_vec(),
            Self::Number(ElementType::Float32) => 1_f32.to_ne_bytes().to_vec(),
            Self::Number(ElementType::Float64) => 1_f64.to_ne_bytes().to_vec(),
            Self::Number(element) => match element.item_bytes() {
                1 => vec![1],
                2 => 1_u16.to_ne_bytes().to_vec(),
                4 => 1_u32.to_ne_bytes().to_vec(),
                _ => 1_u64.to_ne_bytes().to_vec(),
            },
            Self::Bool => vec![1],
            Self::Complex64 => [1_f32, 0.0].map(f32::to_ne_bytes).concat(),
            Self::Complex128 => [1_f64, 0.0].map(f64::to_ne_bytes).concat(),
            Self::Foreign(_) => return None,
        })
    }
}

impl fmt::Display for Item {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(element) => element.fmt(formatter),
            Self::Bool => formatter.write_str("bool"),
            Self::Complex64 => formatter.write_str("complex64"),
            Self::Complex128 => formatter.write_str("complex128"),
            Self::Foreign(foreign) => formatter.write_str(&foreign.type_string),
        }
    }
}
