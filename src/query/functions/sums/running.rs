//! Sums of all rows so far, and of the last ones, a batch at a time.
//!
//! Comes in: values in the order of their rows, and where they begin anew. Goes out: for each row the sum up to it, or the mean of floats. Never here: other frames (`total.rs`, `floats.rs`).

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanBufferBuilder, Decimal128Array, Float64Array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{Decimal128Type, Float64Type};
use datafusion::error::Result;

use super::floats::Sliding;
use super::outcome::{Gives, Outcome};
use super::total::Summed;

/// Makes what values are made of, for the rows of a batch, of which some begin anew.
type Run = Box<dyn FnMut(&ArrayRef, &BooleanBuffer) -> Result<ArrayRef> + Send>;

/// Makes values.
type Finish = Box<dyn Fn(&ArrayRef) -> Result<ArrayRef> + Send>;

/// What goes over rows in their order.
pub(in crate::query) struct Running {
    pub(in crate::query) run: Run,
    /// Makes the values of what [`Self::run`] has made for the rows that have such: a total within rows of equal keys is nobody's, and may have no room.
    pub(in crate::query) finish: Option<Finish>,
}

impl Running {
    /// Whose values are there at once.
    pub(in crate::query) fn at_once(run: Run) -> Self {
        Self { run, finish: None }
    }
}

/// The values of the rows of a frame that ends with the row itself.
struct Frame<T> {
    /// How many rows before it there are at most; all of them otherwise.
    before: Option<usize>,
    values: VecDeque<Option<T>>,
}

impl<T> Frame<T> {
    fn of(before: Option<usize>) -> Self {
        Self {
            before,
            values: VecDeque::new(),
        }
    }

    /// Takes the value of the next row in. Which value leaves for it, if one does.
    fn enter(&mut self, value: Option<T>) -> Option<T> {
        let before = self.before?;
        self.values.push_back(value);
        match self.values.len() > before + 1 {
            true => self.values.pop_front().flatten(),
            false => None,
        }
    }
}

/// Exact sums, of so many rows before each and itself, or of all so far.
pub(super) fn total<T: Summed>(outcome: Outcome, before: Option<usize>) -> Running {
    let mut frame = Frame::of(before);
    let (mut total, mut count) = (0_i128, 0_u64);
    let name = outcome.clone();
    let run: Run = Box::new(move |values, begins| {
        let values = values.as_primitive::<T>();
        let mut totals = Vec::with_capacity(values.len());
        let mut are_there = BooleanBufferBuilder::new(values.len());
        for (row, value) in values.iter().enumerate() {
            if begins.value(row) {
                (total, count) = (0, 0);
                frame.values.clear();
            }
            let value: Option<i128> = value.map(Into::into);
            // First what leaves, so that there is room.
            if let Some(gone) = frame.enter(value) {
                total = total.checked_sub(gone).ok_or_else(|| name.beyond())?;
                count -= 1;
            }
            if let Some(value) = value {
                total = total.checked_add(value).ok_or_else(|| name.beyond())?;
                count += 1;
            }
            totals.push(total);
            are_there.append(count > 0);
        }
        Ok(Arc::new(Decimal128Array::new(
            totals.into(),
            nulls(are_there),
        )))
    });
    Running {
        run,
        finish: Some(Box::new(move |totals| {
            let totals = totals.as_primitive::<Decimal128Type>();
            outcome.values(totals.values().to_vec(), totals.nulls().cloned())
        })),
    }
}

/// Of all so far as the engine adds floats: one after the other. Of a frame that slides, exact.
pub(super) fn of_floats(gives: Gives, before: Option<usize>) -> Running {
    let mut frame = Frame::of(before);
    let mut sliding = Sliding::new(gives);
    let (mut sum, mut count) = (0.0, 0.0);
    Running::at_once(Box::new(move |values, begins| {
        let values = values.as_primitive::<Float64Type>();
        let rows = values.iter().enumerate().map(|(row, value)| {
            if begins.value(row) {
                (sum, count) = (0.0, 0.0);
                sliding = Sliding::new(gives);
                frame.values.clear();
            }
            if before.is_some() {
                if let Some(gone) = frame.enter(value) {
                    sliding.change(gone, false);
                }
                if let Some(value) = value {
                    sliding.change(value, true);
                }
                return sliding.value();
            }
            if let Some(value) = value {
                sum += value;
                count += 1.0;
            }
            (count > 0.0).then_some(match gives {
                Gives::Sum => sum,
                Gives::Mean => sum / count,
            })
        });
        let found: Float64Array = rows.collect();
        Ok(Arc::new(found) as ArrayRef)
    }))
}

fn nulls(mut are_there: BooleanBufferBuilder) -> Option<NullBuffer> {
    let nulls = NullBuffer::new(are_there.finish());
    (nulls.null_count() > 0).then_some(nulls)
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Int64Type};
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
        running(&AggregateUDF::from(exact), "sum(x)", (input, output), None).unwrap()
    }

    #[test]
    fn sums_begin_anew_and_go_on_in_the_next_batch() {
        let mut run = sum(&DataType::Int64, &DataType::Int64);
        let mut sums = |values: Vec<Option<i64>>, begins: Vec<bool>| {
            let values: ArrayRef = Arc::new(Int64Array::from(values));
            let sums = (run.run)(&values, &begins.into()).unwrap();
            let sums = (run.finish.as_ref().unwrap())(&sums);
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
        let sums = (run.run)(&values, &BooleanBuffer::from(vec![true, false])).unwrap();
        let sums = (run.finish.as_ref().unwrap())(&sums).unwrap();
        assert_eq!(sums.data_type(), &output);
        assert_eq!(sums.as_primitive::<Decimal128Type>().values(), &[150, 375]);
    }
}
