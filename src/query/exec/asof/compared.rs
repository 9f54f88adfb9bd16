//! What nearest joins compare, so that it is compared fast.
//!
//! Comes in: the column of one side that is compared. Goes out: a value for each of its rows: of two, that which is further on is greater. Never here: keys.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{SortOptions, can_cast_types, cast};
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::internal_err;
use datafusion::error::Result;

/// The values of some rows.
pub(super) enum Compared {
    /// Numbers that are in the order of the values.
    Short(Vec<u64>),
    /// Bytes that are.
    Long(Rows),
}

impl Compared {
    /// How many bytes there are.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Short(values) => values.capacity() * size_of::<u64>(),
            Self::Long(rows) => rows.size(),
        }
    }
}

/// Makes them.
pub(super) enum Comparing {
    Short {
        /// The type that numbers have in between.
        through: DataType,
        /// Whether the greatest value is the first one.
        descending: bool,
    },
    Long(RowConverter),
}

impl Comparing {
    pub(super) fn try_new(kind: &DataType, options: SortOptions) -> Result<Self> {
        let descending = options.descending;
        match through(kind).filter(|through| can_cast_types(kind, through)) {
            Some(through) => Ok(Self::Short {
                through,
                descending,
            }),
            None => {
                let field = SortField::new_with_options(kind.clone(), options);
                Ok(Self::Long(RowConverter::new(vec![field])?))
            }
        }
    }

    /// Those of no rows.
    pub(super) fn none(&self) -> Compared {
        match self {
            Self::Short { .. } => Compared::Short(Vec::new()),
            Self::Long(converter) => Compared::Long(converter.empty_rows(0, 0)),
        }
    }

    /// Puts those of a column behind others. Those of nulls are any.
    pub(super) fn append(&self, values: &ArrayRef, to: &mut Compared) -> Result<()> {
        match (self, to) {
            (
                Self::Short {
                    through,
                    descending,
                },
                Compared::Short(to),
            ) => {
                let flip = if *descending { u64::MAX } else { 0 };
                let values = cast(values, through)?;
                to.reserve(values.len());
                put(&values, to, flip)
            }
            (Self::Long(converter), Compared::Long(to)) => {
                Ok(converter.append(to, std::slice::from_ref(values))?)
            }
            _ => internal_err!("values that are compared in two ways"),
        }
    }
}

/// The type of numbers of 64 bits that has all values of a type, in their order.
fn through(kind: &DataType) -> Option<DataType> {
    match kind {
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            Some(DataType::UInt64)
        }
        DataType::Float16 | DataType::Float32 | DataType::Float64 => Some(DataType::Float64),
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Timestamp(..)
        | DataType::Duration(_) => Some(DataType::Int64),
        _ => None,
    }
}

const SIGN: u64 = 1 << 63;

fn put(values: &ArrayRef, to: &mut Vec<u64>, flip: u64) -> Result<()> {
    if let Some(values) = values.as_primitive_opt::<UInt64Type>() {
        to.extend(values.values().iter().map(|value| value ^ flip));
    } else if let Some(values) = values.as_primitive_opt::<Int64Type>() {
        let values = values.values().iter();
        to.extend(values.map(|value| value.cast_unsigned() ^ SIGN ^ flip));
    } else if let Some(values) = values.as_primitive_opt::<Float64Type>() {
        let values = values.values().iter().map(|value| {
            let bits = value.to_bits();
            // As `f64::total_cmp` has it.
            let ordered = if bits & SIGN == 0 { bits | SIGN } else { !bits };
            ordered ^ flip
        });
        to.extend(values);
    } else {
        return internal_err!("numbers that are {}", values.data_type());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Date32Array, Float32Array, Int8Array, StringArray, UInt32Array};

    use super::*;

    fn numbers(values: ArrayRef, descending: bool) -> Vec<u64> {
        let options = SortOptions::new(descending, false);
        let comparing = Comparing::try_new(values.data_type(), options).unwrap();
        let mut compared = comparing.none();
        comparing.append(&values, &mut compared).unwrap();
        match compared {
            Compared::Short(values) => values,
            Compared::Long(_) => panic!("{} is long", values.data_type()),
        }
    }

    #[test]
    fn numbers_are_in_the_order_of_values() {
        let ascending: [ArrayRef; 4] = [
            Arc::new(Int8Array::from(vec![-128, -1, 0, 1, 127])),
            Arc::new(UInt32Array::from(vec![0, 1, u32::MAX])),
            Arc::new(Date32Array::from(vec![i32::MIN, -1, 0, i32::MAX])),
            Arc::new(Float32Array::from(vec![
                f32::NEG_INFINITY,
                -1.5,
                -f32::MIN_POSITIVE,
                0.0,
                1e-40,
                2.5,
                f32::INFINITY,
                f32::NAN,
            ])),
        ];
        for values in ascending {
            let found = numbers(Arc::clone(&values), false);
            assert!(
                found.is_sorted_by(|one, next| one < next),
                "{values:?} {found:?}"
            );
            let found = numbers(Arc::clone(&values), true);
            assert!(
                found.is_sorted_by(|one, next| one > next),
                "{values:?} {found:?}"
            );
        }
    }

    #[test]
    fn texts_are_compared_as_bytes() {
        let values: ArrayRef = Arc::new(StringArray::from(vec!["b", "a", "", "ab"]));
        let comparing = Comparing::try_new(values.data_type(), SortOptions::default()).unwrap();
        let mut compared = comparing.none();
        comparing.append(&values, &mut compared).unwrap();
        comparing.append(&values, &mut compared).unwrap();
        let Compared::Long(rows) = compared else {
            panic!("texts have no numbers")
        };
        assert_eq!(rows.num_rows(), 8);
        assert!(rows.row(2) < rows.row(5) && rows.row(7) < rows.row(0));
    }
}
