//! Sums of all rows so far, a batch at a time.
//!
//! Comes in: values in the order of their rows, and where they begin anew. Goes out: for each row the sum up to it, or the mean of floats. Never here: frames that slide (`total.rs`, `floats.rs`).

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanBufferBuilder, Float64Array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::Float64Type;
use datafusion::error::Result;

use super::outcome::{Gives, Outcome};
use super::total::Summed;

/// Makes the values of a batch, of which some rows begin anew.
pub(in crate::query) type Running =
    Box<dyn FnMut(&ArrayRef, &BooleanBuffer) -> Result<ArrayRef> + Send>;

/// Exact sums.
pub(super) fn total<T: Summed>(outcome: Outcome) -> Running {
    let mut total: Option<i128> = None;
    Box::new(move |values, begins| {
        let values = values.as_primitive::<T>();
        let mut totals = Vec::with_capacity(values.len());
        let mut are_there = BooleanBufferBuilder::new(values.len());
        for (row, value) in values.iter().enumerate() {
            if begins.value(row) {
                total = None;
            }
            if let Some(value) = value {
                let value: i128 = value.into();
                let sum = match total {
                    None => Some(value),
                    Some(total) => total.checked_add(value),
                };
                total = Some(sum.ok_or_else(|| outcome.beyond())?);
            }
            totals.push(total.unwrap_or_default());
            are_there.append(total.is_some());
        }
        outcome.values(totals, nulls(are_there))
    })
}

/// As the engine adds floats: one after the other.
pub(super) fn of_floats(gives: Gives) -> Running {
    let (mut sum, mut count) = (0.0, 0.0);
    Box::new(move |values, begins| {
        let values = values.as_primitive::<Float64Type>();
        let mut sums = Vec::with_capacity(values.len());
        let mut are_there = BooleanBufferBuilder::new(values.len());
        for (row, value) in values.iter().enumerate() {
            if begins.value(row) {
                (sum, count) = (0.0, 0.0);
            }
            if let Some(value) = value {
                sum += value;
                count += 1.0;
            }
            sums.push(match gives {
                Gives::Sum => sum,
                Gives::Mean => sum / count,
            });
            are_there.append(count > 0.0);
        }
        let sums = Float64Array::new(sums.into(), nulls(are_there));
        Ok(Arc::new(sums) as ArrayRef)
    })
}

fn nulls(mut are_there: BooleanBufferBuilder) -> Option<NullBuffer> {
    let nulls = NullBuffer::new(are_there.finish());
    (nulls.null_count() > 0).then_some(nulls)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Decimal128Array, Int64Array};
    use arrow::datatypes::{DataType, Decimal128Type, Int64Type};
    use datafusion::functions_aggregate::sum::sum_udaf;
    use datafusion::logical_expr::{AggregateUDF, Signature, Volatility};

    use super::super::{Exact, running};
    use super::*;

    fn sum(input: &DataType, output: &DataType) -> Running {
        let exact = Exact {
            inner: sum_udaf(),
            gives: Gives::Sum,
            signature: Signature::user_defined(Volatility::Immutable),
        };
        running(&AggregateUDF::from(exact), "sum(x)", (input, output)).unwrap()
    }

    #[test]
    fn sums_begin_anew_and_go_on_in_the_next_batch() {
        let mut run = sum(&DataType::Int64, &DataType::Int64);
        let mut sums = |values: Vec<Option<i64>>, begins: Vec<bool>| {
            let values: ArrayRef = Arc::new(Int64Array::from(values));
            let sums = run(&values, &begins.into());
            sums.map(|sums| sums.as_primitive::<Int64Type>().iter().collect::<Vec<_>>())
        };
        let found = sums(vec![None, Some(5), Some(-2)], vec![true, false, true]);
        assert_eq!(found.unwrap(), [None, Some(5), Some(-2)]);
        let found = sums(vec![None, Some(3)], vec![false, false]);
        assert_eq!(found.unwrap(), [Some(-2), Some(1)]);
        let error = sums(vec![Some(i64::MAX)], vec![false]).unwrap_err();
        assert!(
            error.to_string().contains("has no room in its type"),
            "{error}"
        );
    }

    #[test]
    fn decimals_keep_their_scale() {
        let (input, output) = (DataType::Decimal128(5, 2), DataType::Decimal128(15, 2));
        let values = Decimal128Array::from(vec![150, 225]);
        let values: ArrayRef = Arc::new(values.with_precision_and_scale(5, 2).unwrap());
        let mut run = sum(&input, &output);
        let sums = run(&values, &BooleanBuffer::from(vec![true, false])).unwrap();
        assert_eq!(sums.data_type(), &output);
        assert_eq!(sums.as_primitive::<Decimal128Type>().values(), &[150, 375]);
    }
}
