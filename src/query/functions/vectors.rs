//! How alike two lists of numbers are, as vectors.
//!
//! Comes in: two lists of as many numbers. Goes out: their inner product, the cosine of the angle between them, or what is missing to 1 there; null where one list is. Never here: other distances, which the engine has.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, ListArray};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_ARRAY;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::prelude::SessionContext;

use crate::error::{Error, ErrorKind};

/// Adds the functions.
pub(super) fn add_to(context: &SessionContext) {
    for measure in [Measure::Product, Measure::Similarity, Measure::Distance] {
        context.register_udf(ScalarUDF::from(Vectors {
            measure,
            signature: Signature::user_defined(Volatility::Immutable),
            aliases: measure.aliases().map(str::to_owned).to_vec(),
        }));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Measure {
    Product,
    Similarity,
    Distance,
}

impl Measure {
    fn name(self) -> &'static str {
        match self {
            Self::Product => "list_dot_product",
            Self::Similarity => "list_cosine_similarity",
            Self::Distance => "list_cosine_distance",
        }
    }

    fn aliases(self) -> [&'static str; 3] {
        match self {
            Self::Product => [
                "list_inner_product",
                "array_dot_product",
                "array_inner_product",
            ],
            Self::Similarity => [
                "array_cosine_similarity",
                "cosine_similarity",
                "vector_similarity",
            ],
            Self::Distance => [
                "array_cosine_distance",
                "cosine_distance",
                "vector_distance",
            ],
        }
    }

    fn documented(self) -> Documentation {
        let about = match self {
            Self::Product => {
                "The inner product of two lists of numbers: the sum of the products of their elements."
            }
            Self::Similarity => {
                "The cosine of the angle between two lists of numbers, NaN where one has zeros alone."
            }
            Self::Distance => "One less the cosine of the angle between two lists of numbers.",
        };
        let syntax = format!("{}(list, other)", self.name());
        Documentation::builder(DOC_SECTION_ARRAY, about, syntax)
            .with_argument("list", "A list of numbers, taken as DOUBLE.")
            .with_argument("other", "Another list of as many numbers.")
            .build()
    }

    fn of(self, one: &[f64], other: &[f64]) -> f64 {
        match self {
            Self::Product => product(one, other),
            Self::Similarity => cosine(one, other),
            Self::Distance => 1.0 - cosine(one, other),
        }
    }
}

/// The sum of the products, in several sums at once: one after the other would wait for each other.
fn product(one: &[f64], other: &[f64]) -> f64 {
    const LANES: usize = 8;
    let (ones, rest_of_one) = one.as_chunks::<LANES>();
    let (others, rest_of_other) = other.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (one, other) in ones.iter().zip(others) {
        for ((sum, one), other) in sums.iter_mut().zip(one).zip(other) {
            *sum += one * other;
        }
    }
    let rest = rest_of_one.iter().zip(rest_of_other);
    sums.iter().sum::<f64>() + rest.map(|(one, other)| one * other).sum::<f64>()
}

fn cosine(one: &[f64], other: &[f64]) -> f64 {
    let (squares, others) = (product(one, one), product(other, other));
    let both = squares * others;
    // One root is rounded once, if the product is a number with all digits.
    let lengths = match both.is_normal() {
        true => both.sqrt(),
        false => squares.sqrt() * others.sqrt(),
    };
    let cosine = product(one, other) / lengths;
    // What is rounded goes beyond.
    cosine.clamp(-1.0, 1.0)
}

static DOCUMENTATION: LazyLock<[Documentation; 3]> = LazyLock::new(|| {
    [Measure::Product, Measure::Similarity, Measure::Distance].map(Measure::documented)
});

#[derive(Debug, PartialEq, Eq, Hash)]
struct Vectors {
    measure: Measure,
    signature: Signature,
    aliases: Vec<String>,
}

impl ScalarUDFImpl for Vectors {
    fn name(&self) -> &'static str {
        self.measure.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn documentation(&self) -> Option<&Documentation> {
        DOCUMENTATION.get(self.measure as usize)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let name = self.name();
        if types.len() != 2 {
            return plan_err!("{name} takes (list, other), got {} arguments", types.len());
        }
        if let Some(other) = types.iter().find(|kind| !is_of_numbers(kind)) {
            return plan_err!("{name} takes two lists of numbers, got {other}");
        }
        Ok(vec![DataType::new_list(DataType::Float64, true); 2])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [one, other] = arguments.args.as_slice() else {
            return datafusion::common::internal_err!("lists that are compared are two");
        };
        let (one, other) = (Side::of(one)?, Side::of(other)?);
        let rows = if one.is_same && other.is_same {
            1
        } else {
            arguments.number_rows
        };
        let (one_numbers, other_numbers) = (one.numbers(), other.numbers());
        let made = (0..rows).map(|row| {
            let (one, other) = (&one_numbers, &other_numbers);
            let (Some(list), Some(with)) = (one.at(row), other.at(row)) else {
                return Ok(None);
            };
            let (list, with) = (self.checked(list)?, self.checked(with)?);
            if list.len() != with.len() {
                return Err(self.wrong(&format!(
                    "two lists of as many numbers, got {} and {}",
                    list.len(),
                    with.len()
                )));
            }
            Ok(Some(self.measure.of(list, with)))
        });
        let made: Float64Array = made.collect::<Result<_>>()?;
        Ok(match one.is_same && other.is_same {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?),
            false => ColumnarValue::Array(Arc::new(made)),
        })
    }
}

impl Vectors {
    fn checked<'a>(&self, numbers: Option<&'a [f64]>) -> Result<&'a [f64]> {
        numbers.ok_or_else(|| self.wrong("lists without nulls, got one with some"))
    }

    fn wrong(&self, text: &str) -> datafusion::error::DataFusionError {
        Error::new(ErrorKind::Query, format!("{} takes {text}", self.name())).into()
    }
}

/// One of both arguments. One that is the same for all rows is there once: lists are long.
struct Side {
    lists: ArrayRef,
    is_same: bool,
}

impl Side {
    fn of(value: &ColumnarValue) -> Result<Self> {
        Ok(match value {
            ColumnarValue::Array(lists) => Self {
                lists: Arc::clone(lists),
                is_same: false,
            },
            ColumnarValue::Scalar(list) => Self {
                lists: list.to_array()?,
                is_same: true,
            },
        })
    }

    fn numbers(&self) -> Numbers<'_> {
        let lists = self.lists.as_list::<i32>();
        Numbers {
            values: lists.values().as_primitive::<Float64Type>(),
            lists,
            is_same: self.is_same,
        }
    }
}

/// Lists of numbers, as slices.
struct Numbers<'a> {
    lists: &'a ListArray,
    values: &'a Float64Array,
    is_same: bool,
}

impl<'a> Numbers<'a> {
    /// The numbers of a row; nothing where it is null, and nothing within where one of them is.
    fn at(&self, row: usize) -> Option<Option<&'a [f64]>> {
        let row = if self.is_same { 0 } else { row };
        if self.lists.is_null(row) {
            return None;
        }
        let ends = self.lists.value_offsets().get(row..row + 2)?;
        let [start, end] = ends else {
            return None;
        };
        let (start, end) = (usize::try_from(*start).ok()?, usize::try_from(*end).ok()?);
        let has_nulls = self
            .values
            .nulls()
            .is_some_and(|nulls| nulls.slice(start, end - start).null_count() > 0);
        let numbers = self.values.values().get(start..end)?;
        Some((!has_nulls).then_some(numbers))
    }
}

fn is_of_numbers(kind: &DataType) -> bool {
    match kind {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            field.data_type().is_numeric() || field.data_type().is_null()
        }
        kind => kind.is_null(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_any_length_are_whole() {
        for length in [0, 1, 7, 8, 9, 100] {
            let numbers: Vec<f64> = (0..length).map(f64::from).collect();
            let ones = vec![1.0; numbers.len()];
            let wanted = f64::from(length) * f64::from(length - 1) / 2.0;
            assert_eq!(product(&numbers, &ones), wanted.max(0.0));
        }
    }

    #[test]
    fn a_cosine_is_never_beyond_one() {
        let numbers: Vec<f64> = (1..50).map(|number| 1.0 / f64::from(number)).collect();
        let cosine = cosine(&numbers, &numbers);
        assert!((0.999..=1.0).contains(&cosine));
        assert!((super::cosine(&[1.0, 2.0], &[1.0, 2.0]) - 1.0).abs() < f64::EPSILON / 2.0);
        assert!((super::cosine(&[1e150, 0.0], &[1e150, 0.0]) - 1.0).abs() < 1e-15);
        assert!(super::cosine(&[0.0], &[1.0]).is_nan());
    }
}
