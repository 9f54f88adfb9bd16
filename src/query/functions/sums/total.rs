//! One total: of all rows, of one group, of the frame of a window.
//!
//! Comes in: arrays of values. Goes out: their total, exact in 128 bits. Rows of a frame may be taken out again. Never here: types of SQL.

use std::fmt;
use std::marker::PhantomData;
use std::mem::size_of_val;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, UInt64Array};
use arrow::datatypes::{ArrowNativeType, Decimal128Type, UInt64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;

use super::outcome::{Gives, Outcome};
use crate::error::Error;

/// Halves of so many values never overflow.
const BLOCK_ROWS: usize = 1 << 30;

/// A type whose values are summed.
pub(super) trait Summed:
    ArrowPrimitiveType<Native: Wide> + Send + Sync + fmt::Debug
{
}

impl<T: ArrowPrimitiveType<Native: Wide> + Send + Sync + fmt::Debug> Summed for T {}

/// Numbers of at most 128 bits.
pub(super) trait Wide: ArrowNativeType + Into<i128> {
    /// What a total of a group is kept in.
    type Low: Low;

    /// Their sum; `None` beyond 128 bits.
    fn total(values: &[Self]) -> Option<i128>;

    /// The number as the beginning of a total.
    fn low(self) -> Self::Low;
}

/// The lower part of a total; beside it stands how often it wrapped around.
pub(super) trait Low: Copy + Default + Send + Sync + fmt::Debug {
    /// The sum, and whether it wrapped around upwards (1) or downwards (-1).
    fn plus(self, other: Self) -> (Self, i64);

    /// The whole total; `None` beyond 128 bits.
    fn join(self, wraps: i64) -> Option<i128>;

    /// The lower part of a total, and how often it wraps around.
    fn split(total: i128) -> (Self, i64);
}

/// One wrap of 64 bits.
const WRAP: i128 = 1 << 64;

impl Low for i64 {
    fn plus(self, other: Self) -> (Self, i64) {
        match self.overflowing_add(other) {
            (sum, false) => (sum, 0),
            (sum, true) => (sum, if other < 0 { -1 } else { 1 }),
        }
    }

    fn join(self, wraps: i64) -> Option<i128> {
        Some(i128::from(self) + i128::from(wraps) * WRAP)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the rest is in the wraps")]
    fn split(total: i128) -> (Self, i64) {
        let low = total as Self;
        (low, ((total - i128::from(low)) >> 64) as i64)
    }
}

impl Low for u64 {
    fn plus(self, other: Self) -> (Self, i64) {
        let (sum, over) = self.overflowing_add(other);
        (sum, i64::from(over))
    }

    fn join(self, wraps: i64) -> Option<i128> {
        Some(i128::from(self) + i128::from(wraps) * WRAP)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the rest is in the wraps"
    )]
    fn split(total: i128) -> (Self, i64) {
        (total as Self, (total >> 64) as i64)
    }
}

impl Low for i128 {
    fn plus(self, other: Self) -> (Self, i64) {
        let (sum, over) = self.overflowing_add(other);
        (sum, i64::from(over))
    }

    fn join(self, wraps: i64) -> Option<i128> {
        (wraps == 0).then_some(self)
    }

    fn split(total: i128) -> (Self, i64) {
        (total, 0)
    }
}

/// The sum of numbers whose upper and lower halves are summed apart, several at a time.
fn by_halves<T: Copy>(values: &[T], halves: impl Fn(T) -> (i64, u64)) -> i128 {
    let of_block = |block: &[T]| {
        let add = |(high, low): (i64, u64), value: &T| {
            let (more_high, more_low) = halves(*value);
            // No more than 2^30 halves of 32 bits.
            (high.wrapping_add(more_high), low.wrapping_add(more_low))
        };
        let (high, low) = block.iter().fold((0, 0), add);
        (i128::from(high) << 32) + i128::from(low)
    };
    values.chunks(BLOCK_ROWS).map(of_block).sum()
}

const LOW: u64 = u32::MAX as u64;

impl Wide for i32 {
    type Low = i64;

    fn total(values: &[Self]) -> Option<i128> {
        Some(by_halves(values, |value| {
            (i64::from(value >> 31), u64::from(value.cast_unsigned()))
        }))
    }

    fn low(self) -> i64 {
        self.into()
    }
}

impl Wide for i64 {
    type Low = Self;

    fn total(values: &[Self]) -> Option<i128> {
        Some(by_halves(values, |value| {
            (value >> 32, value.cast_unsigned() & LOW)
        }))
    }

    fn low(self) -> Self {
        self
    }
}

impl Wide for u64 {
    type Low = Self;

    fn total(values: &[Self]) -> Option<i128> {
        Some(by_halves(values, |value| {
            ((value >> 32).cast_signed(), value & LOW)
        }))
    }

    fn low(self) -> Self {
        self
    }
}

impl Wide for i128 {
    type Low = Self;

    fn total(values: &[Self]) -> Option<i128> {
        values
            .iter()
            .try_fold(0_i128, |total, value| total.checked_add(*value))
    }

    fn low(self) -> Self {
        self
    }
}

/// The sum of the values of an array that are not null.
fn total_of<T: Summed>(values: &PrimitiveArray<T>) -> Option<i128> {
    match values.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => T::Native::total(values.values()),
        Some(nulls) => {
            let zero = T::Native::default();
            let with_nulls = values.values().iter().zip(nulls);
            let kept = with_nulls.map(|(value, is_valid)| if is_valid { *value } else { zero });
            T::Native::total(&kept.collect::<Vec<_>>())
        }
    }
}

/// The only array of a call.
pub(super) fn only<T: Summed>(values: &[ArrayRef]) -> Result<&PrimitiveArray<T>> {
    let array = values.first().and_then(|array| array.as_primitive_opt());
    array.ok_or_else(|| Error::internal("a sum of values of another type").into())
}

/// A running total.
#[derive(Debug)]
pub(super) struct Total<T> {
    total: i128,
    count: u64,
    outcome: Outcome,
    of: PhantomData<T>,
}

impl<T: Summed> Total<T> {
    pub(super) fn new(outcome: Outcome) -> Self {
        Self {
            total: 0,
            count: 0,
            outcome,
            of: PhantomData,
        }
    }

    fn change(&mut self, change: Option<i128>, counted: u64, is_more: bool) -> Result<()> {
        let changed = change.and_then(|change| match is_more {
            true => self.total.checked_add(change),
            false => self.total.checked_sub(change),
        });
        self.total = changed.ok_or_else(|| self.outcome.beyond())?;
        self.count = match is_more {
            true => self.count.saturating_add(counted),
            false => self.count.saturating_sub(counted),
        };
        Ok(())
    }
}

fn counted(array: &dyn Array) -> u64 {
    u64::try_from(array.len() - array.null_count()).unwrap_or(u64::MAX)
}

fn first(array: &ArrayRef) -> Result<ScalarValue> {
    ScalarValue::try_from_array(array, 0)
}

impl<T: Summed> Accumulator for Total<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = only::<T>(values)?;
        self.change(total_of(values), counted(values), true)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = only::<T>(values)?;
        self.change(total_of(values), counted(values), false)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let total = match self.count {
            0 => ScalarValue::try_new_null(&self.outcome.state)?,
            _ => first(&self.outcome.states(vec![self.total], None))?,
        };
        Ok(match self.outcome.gives {
            Gives::Sum => vec![total],
            Gives::Mean => vec![total, ScalarValue::UInt64(Some(self.count))],
        })
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let totals = only::<Decimal128Type>(states)?;
        let counts: Option<&UInt64Array> = states
            .get(1)
            .and_then(|counts| counts.as_primitive_opt::<UInt64Type>());
        let counted = match counts {
            Some(counts) => counts.iter().flatten().sum(),
            None => counted(totals),
        };
        self.change(total_of(totals), counted, true)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.count == 0 {
            return ScalarValue::try_new_null(&self.outcome.data_type);
        }
        let value = match self.outcome.gives {
            Gives::Sum => self.total,
            // To the nearest.
            Gives::Mean => {
                let count = i128::from(self.count);
                (self.total + count / 2).div_euclid(count)
            }
        };
        first(&self.outcome.values(vec![value], None)?)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.outcome.name.capacity()
    }
}

/// The sum of distinct values, which the engine keeps.
#[derive(Debug)]
pub(super) struct Distinct<T> {
    inner: Box<dyn Accumulator>,
    outcome: Outcome,
    of: PhantomData<T>,
}

impl<T: Summed> Distinct<T> {
    pub(super) fn new(inner: Box<dyn Accumulator>, outcome: Outcome) -> Self {
        Self {
            inner,
            outcome,
            of: PhantomData,
        }
    }
}

impl<T: Summed> Accumulator for Distinct<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(values)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state = self.inner.state()?;
        let Some(ScalarValue::List(list)) = state.first() else {
            return Err(Error::internal("distinct values are no list").into());
        };
        let mut total = Total::<T>::new(self.outcome.clone());
        total.update_batch(&[list.value(0)])?;
        total.evaluate()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plainly<T: Wide>(values: &[T]) -> i128 {
        values.iter().map(|value| (*value).into()).sum()
    }

    proptest! {
        #[test]
        fn halves_give_the_sum(
            small in prop::collection::vec(any::<i32>(), 0..100),
            signed in prop::collection::vec(any::<i64>(), 0..100),
            unsigned in prop::collection::vec(any::<u64>(), 0..100),
        ) {
            prop_assert_eq!(i32::total(&small), Some(plainly(&small)));
            prop_assert_eq!(i64::total(&signed), Some(plainly(&signed)));
            prop_assert_eq!(u64::total(&unsigned), Some(plainly(&unsigned)));
        }
    }

    fn kept<T: Wide>(values: &[T]) -> i128 {
        let mut low = T::Low::default();
        let mut wraps = 0;
        for value in values {
            let (sum, wrap) = low.plus(value.low());
            (low, wraps) = (sum, wraps + wrap);
        }
        let total = low.join(wraps).unwrap();
        let (low, wraps) = T::Low::split(total);
        assert_eq!(low.join(wraps), Some(total));
        total
    }

    proptest! {
        #[test]
        fn totals_of_groups_come_through_wraps(
            signed in prop::collection::vec(prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX)], 0..60),
            unsigned in prop::collection::vec(prop_oneof![any::<u64>(), Just(u64::MAX)], 0..60),
            small in prop::collection::vec(any::<i32>(), 0..60),
        ) {
            prop_assert_eq!(kept(&signed), plainly(&signed));
            prop_assert_eq!(kept(&unsigned), plainly(&unsigned));
            prop_assert_eq!(kept(&small), plainly(&small));
        }
    }

    #[test]
    fn the_ends_of_all_types_are_summed() {
        assert_eq!(i32::total(&[i32::MIN; 3]), Some(3 * i128::from(i32::MIN)));
        assert_eq!(i64::total(&[i64::MIN; 3]), Some(3 * i128::from(i64::MIN)));
        assert_eq!(u64::total(&[u64::MAX; 3]), Some(3 * i128::from(u64::MAX)));
        assert_eq!(i128::total(&[i128::MAX, 1]), None);
    }
}
