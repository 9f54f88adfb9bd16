//! What nearest joins compare, so that it is compared fast.
//!
//! Comes in: the column of one side that is compared. Goes out: a value for each of its rows: of two, that which is further on is greater. Never here: keys.

use arrow::array::ArrayRef;
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::internal_err;
use datafusion::error::Result;

use crate::query::exec::ordered::{put, through};

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
        match through(kind) {
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
                let before = to.len();
                put(values, through, to)?;
                if *descending {
                    let added = to.iter_mut().skip(before);
                    added.for_each(|number| *number = !*number);
                }
                Ok(())
            }
            (Self::Long(converter), Compared::Long(to)) => {
                Ok(converter.append(to, std::slice::from_ref(values))?)
            }
            _ => internal_err!("values that are compared in two ways"),
        }
    }
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
