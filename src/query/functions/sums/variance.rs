//! Variances and standard deviations of a frame that slides.
//!
//! Comes in: `var`, `var_pop`, `stddev`, `stddev_pop` of the engine. Goes out: the same functions, which keep exact sums of the values in such a frame and of their squares, so that nothing stays of values that have
//! left it: equal values have the variance 0. Never here: frames that only grow, and groups, which stay the engine's.

use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_aggregate::stddev::{stddev_pop_udaf, stddev_udaf};
use datafusion::functions_aggregate::variance::{var_pop_udaf, var_samp_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    Signature,
};
use datafusion::prelude::SessionContext;

use super::fixed::{DIGIT_BITS, Fixed, LOWEST};
use super::floats::{count, only, takes};
use crate::error::Error;

/// Puts the functions in place of those of the engine; `variance` is what PostgreSQL and DuckDB call one of them, too.
pub(super) fn add_to(context: &SessionContext) {
    let functions = [
        (var_samp_udaf(), Gives::new(true, false), Some("variance")),
        (var_pop_udaf(), Gives::new(false, false), None),
        (stddev_udaf(), Gives::new(true, true), None),
        (stddev_pop_udaf(), Gives::new(false, true), None),
    ];
    for (inner, gives, alias) in functions {
        let aliases = inner.aliases().iter().cloned();
        let aliases = aliases.chain(alias.map(str::to_owned)).collect();
        context.register_udaf(AggregateUDF::from(Variance {
            inner,
            aliases,
            gives,
        }));
    }
}

/// What a function makes of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Gives {
    is_of_sample: bool,
    is_root: bool,
}

impl Gives {
    fn new(is_of_sample: bool, is_root: bool) -> Self {
        Self {
            is_of_sample,
            is_root,
        }
    }
}

/// What is in the frame.
#[derive(Debug)]
struct Sliding {
    gives: Gives,
    sum: Fixed,
    squares: Fixed,
    num_finite: u64,
    num_others: u64,
}

impl Sliding {
    fn new(gives: Gives) -> Self {
        Self {
            gives,
            sum: Fixed::default(),
            squares: Fixed::default(),
            num_finite: 0,
            num_others: 0,
        }
    }

    fn change(&mut self, value: f64, is_more: bool) {
        if value.is_finite() {
            self.sum.add_float(value, is_more);
            self.squares.add_square(value, is_more);
            count(&mut self.num_finite, is_more);
        } else {
            count(&mut self.num_others, is_more);
        }
    }

    /// `None` of too few values.
    fn value(&mut self) -> Option<f64> {
        let num_values = self.num_finite.saturating_add(self.num_others);
        let freedom = num_values.checked_sub(self.gives.is_of_sample.into())?;
        if freedom == 0 {
            return None;
        }
        if self.num_others > 0 {
            return Some(f64::NAN);
        }
        let divisor = u128::from(num_values) * u128::from(freedom);
        let variance = self.spread().magnitude().divided(divisor, 2 * LOWEST);
        Some(match self.gives.is_root {
            true => variance.sqrt(),
            false => variance,
        })
    }

    /// The sum of the squares, times the number of values, less the square of the sum: nothing is rounded, so it is never less than zero.
    fn spread(&mut self) -> Fixed {
        let (sum, squares) = (self.sum.magnitude(), self.squares.magnitude());
        let low = self.num_finite & u64::from(u32::MAX);
        let high = self.num_finite >> DIGIT_BITS;
        let mut spread = Fixed::default();
        for (digit, place) in squares.digits() {
            spread.add(digit * low, place, true);
            spread.add(digit * high, place + DIGIT_BITS, true);
        }
        for (left, left_place) in sum.digits() {
            for (right, right_place) in sum.digits() {
                spread.add(left * right, left_place + right_place, false);
            }
        }
        spread
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
        size_of_val(self) + self.sum.heap_bytes() + self.squares.heap_bytes()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Err(Error::internal("a frame is not brought between threads").into())
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(Error::internal("a frame is not brought between threads").into())
    }
}

/// One of the functions.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Variance {
    inner: Arc<AggregateUDF>,
    aliases: Vec<String>,
    gives: Gives,
}

impl AggregateUDFImpl for Variance {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(types)
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.inner.inner().accumulator(arguments)
    }

    fn create_sliding_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        match takes(&arguments) && !arguments.is_distinct {
            true => Ok(Box::new(Sliding::new(self.gives))),
            false => self.inner.inner().create_sliding_accumulator(arguments),
        }
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.inner().state_fields(arguments)
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        self.inner.inner().groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner.inner().create_groups_accumulator(arguments)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.inner().order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.inner().reverse_expr()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.inner().documentation()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What frames of so many rows give; NaN as -1.
    fn frames(gives: Gives, rows: usize, values: &[f64]) -> Vec<Option<f64>> {
        let mut frame = Sliding::new(gives);
        let give = |(at, value): (usize, &f64)| {
            frame.change(*value, true);
            if let Some(gone) = at.checked_sub(rows) {
                frame.change(values[gone], false);
            }
            let value = frame.value();
            value.map(|value| if value.is_nan() { -1.0 } else { value })
        };
        values.iter().enumerate().map(give).collect()
    }

    #[test]
    fn equal_values_have_none() {
        let values = [1e300, f64::INFINITY, 0.1, 0.1, 0.1, 1e-200, 1e-200, 1e-200];
        let found = frames(Gives::new(true, true), 3, &values);
        assert_eq!(found[..2], [None, Some(-1.0)]);
        assert_eq!([found[4], found[7]], [Some(0.0); 2]);
        let of_one = frames(Gives::new(false, false), 1, &values);
        assert_eq!(of_one[2..], [Some(0.0); 6]);
    }

    proptest! {
        #[test]
        fn variances_are_the_nearest_floats(values in prop::collection::vec(-1_000_000_i64..1_000_000, 2..60)) {
            let floats: Vec<f64> = values.iter().map(|value| *value as f64).collect();
            let found = frames(Gives::new(false, false), 8, &floats);
            for (at, found) in found.into_iter().enumerate() {
                let frame = &values[at.saturating_sub(7)..=at];
                let count = i64::try_from(frame.len()).unwrap();
                let sum: i64 = frame.iter().sum();
                let squares: i64 = frame.iter().map(|value| value * value).sum();
                // Both sides have less than 53 bits, so the division rounds once.
                let exact = (count * squares - sum * sum) as f64 / (count * count) as f64;
                prop_assert_eq!(found, Some(exact));
            }
        }
    }
}
