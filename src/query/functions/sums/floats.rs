//! The sum and the mean of floats in a frame that slides.
//!
//! Comes in: floats that come into a frame, and those that leave it. Goes out: what the frame has left, rounded once; nothing stays of values that have left, be they infinite, NaN or so large that others vanish beside them.
//! Never here: frames that only grow, and groups, which stay the engine's.

use std::mem::size_of_val;

use arrow::array::{ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::function::AccumulatorArgs;

use super::fixed::{Fixed, LOWEST};
use super::outcome::Gives;
use crate::error::Error;

/// Whether these are values that are summed here: the engine makes such of all floats.
pub(super) fn takes(arguments: &AccumulatorArgs<'_>) -> bool {
    let input = arguments.expr_fields.first().map(|field| field.data_type());
    let output = arguments.return_field.data_type();
    input == Some(&DataType::Float64) && *output == DataType::Float64
}

/// The only array of a call.
pub(super) fn only(values: &[ArrayRef]) -> Result<&Float64Array> {
    let array = values
        .first()
        .and_then(|array| array.as_primitive_opt::<Float64Type>());
    array.ok_or_else(|| Error::internal("a frame of values of another type").into())
}

/// Counts a value that came, or one that left.
pub(super) fn count(counter: &mut u64, is_more: bool) {
    *counter = match is_more {
        true => counter.saturating_add(1),
        false => counter.saturating_sub(1),
    };
}

/// What is in the frame.
#[derive(Debug)]
pub(super) struct Sliding {
    gives: Gives,
    sum: Fixed,
    num_finite: u64,
    num_infinite: u64,
    num_negative_infinite: u64,
    num_nan: u64,
}

impl Sliding {
    pub(super) fn new(gives: Gives) -> Self {
        Self {
            gives,
            sum: Fixed::default(),
            num_finite: 0,
            num_infinite: 0,
            num_negative_infinite: 0,
            num_nan: 0,
        }
    }

    pub(super) fn change(&mut self, value: f64, is_more: bool) {
        if value.is_finite() {
            self.sum.add_float(value, is_more);
            count(&mut self.num_finite, is_more);
        } else if value.is_nan() {
            count(&mut self.num_nan, is_more);
        } else if value > 0.0 {
            count(&mut self.num_infinite, is_more);
        } else {
            count(&mut self.num_negative_infinite, is_more);
        }
    }

    /// The sum or mean; `None` of no values.
    pub(super) fn value(&mut self) -> Option<f64> {
        let has_infinite = (self.num_infinite > 0, self.num_negative_infinite > 0);
        match (self.num_nan, has_infinite) {
            (1.., _) | (_, (true, true)) => Some(f64::NAN),
            (_, (true, false)) => Some(f64::INFINITY),
            (_, (false, true)) => Some(f64::NEG_INFINITY),
            _ if self.num_finite == 0 => None,
            _ => {
                let divisor = match self.gives {
                    Gives::Sum => 1,
                    Gives::Mean => self.num_finite.into(),
                };
                Some(self.sum.magnitude().divided(divisor, LOWEST))
            }
        }
    }
}

impl Accumulator for Sliding {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = only(values)?.iter().flatten();
        values.for_each(|value| self.change(value, true));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = only(values)?.iter().flatten();
        values.for_each(|value| self.change(value, false));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.value()))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.sum.heap_bytes()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Err(Error::internal("a frame is not brought between threads").into())
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(Error::internal("a frame is not brought between threads").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What frames of so many rows give, as text: NaN is no value that can be compared.
    fn frames(gives: Gives, rows: usize, values: &[f64]) -> Vec<String> {
        let mut frame = Sliding::new(gives);
        let give = |(at, value): (usize, &f64)| {
            frame.change(*value, true);
            if let Some(gone) = at.checked_sub(rows) {
                frame.change(values[gone], false);
            }
            format!("{:?}", frame.value().unwrap())
        };
        values.iter().enumerate().map(give).collect()
    }

    #[test]
    fn what_is_no_number_leaves_with_its_row() {
        let values = [f64::INFINITY, 1.0, f64::NAN, 3.0, 4.0, f64::NEG_INFINITY];
        let sums = frames(Gives::Sum, 2, &values);
        assert_eq!(sums, ["inf", "inf", "NaN", "NaN", "7.0", "-inf"]);
        let values = [f64::INFINITY, f64::NEG_INFINITY, 1.0, 2.0];
        let means = frames(Gives::Mean, 2, &values);
        assert_eq!(means, ["inf", "NaN", "-inf", "1.5"]);
    }

    #[test]
    fn small_numbers_come_back_when_a_large_one_has_left() {
        let sums = frames(Gives::Sum, 2, &[1e17, 1.0, 1.0, 0.25]);
        assert_eq!(sums, ["1e17", "1e17", "2.0", "1.25"]);
        let means = frames(Gives::Mean, 2, &[1e308, 1e308, 1.0, 2.0]);
        assert_eq!(means, ["1e308", "1e308", "5e307", "1.5"]);
    }

    #[test]
    fn a_frame_without_values_has_no_sum() {
        let mut frame = Sliding::new(Gives::Sum);
        assert_eq!(frame.value(), None);
        frame.change(-0.0, true);
        assert_eq!(frame.value(), Some(0.0));
        frame.change(-0.0, false);
        assert_eq!(frame.value(), None);
    }
}
