//! Numbers between those of a group: `percentile_cont`.
//!
//! Comes in: floats, and a share of them. Goes out: the number that so large a share of them is not greater than, worked out with all digits, also of frames whose first and last row move. Never here: values that are there (`placed.rs`).

use std::cmp::Ordering;
use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, ListArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;

/// Up to so many new numbers are put in their places among those in order; more are sorted with them.
const FEW: usize = 16;

/// The number at that share of each list of floats, in their type.
pub(super) fn of_lists(lists: &ListArray, share: f64) -> Result<ArrayRef> {
    let data_type = match lists.value_type() {
        DataType::Null => DataType::Float64,
        other => other,
    };
    let numbers = cast(lists.values(), &DataType::Float64)?;
    let mut numbers = numbers.as_primitive::<Float64Type>().values().to_vec();
    let rows = lists.offsets().windows(2).enumerate().map(|(row, ends)| {
        let [begin, end] = ends else { return None };
        let ends = usize::try_from(*begin).ok()?..usize::try_from(*end).ok()?;
        let numbers = numbers.get_mut(ends)?;
        match lists.is_null(row) || numbers.is_empty() {
            true => None,
            false => Some(number_at(share, numbers)),
        }
    });
    let found: Float64Array = rows.collect();
    Ok(cast(&found, &data_type)?)
}

/// NaN is above all others.
fn in_order(one: &f64, other: &f64) -> Ordering {
    match (one.is_nan(), other.is_nan()) {
        (false, false) => one.total_cmp(other),
        (one, other) => one.cmp(&other),
    }
}

/// The place of the number below, and how far it is from there to the next one.
fn place(share: f64, count: usize) -> (usize, f64) {
    let place = share * (count - 1) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number from 0 to that of the values"
    )]
    let below = (place.floor() as usize).min(count - 1);
    (below, place - place.floor())
}

fn between(lower: f64, upper: f64, part: f64) -> f64 {
    let distance = upper - lower;
    match distance {
        _ if part == 0.0 || lower == upper => lower,
        distance if distance.is_finite() => lower + distance * part,
        // Two numbers that are further apart than numbers can be.
        _ => lower * (1.0 - part) + upper * part,
    }
}

/// The number at that share of numbers in any order, of which there is at least one.
fn number_at(share: f64, numbers: &mut [f64]) -> f64 {
    let (below, part) = place(share, numbers.len());
    let (_, lower, above) = numbers.select_nth_unstable_by(below, in_order);
    let upper = above.iter().copied().min_by(in_order);
    between(*lower, upper.unwrap_or(*lower), part)
}

/// The numbers of one group, or of a frame.
#[derive(Debug)]
pub(super) struct Numbers {
    share: f64,
    data_type: DataType,
    /// In order.
    sorted: Vec<f64>,
    /// Those that came since.
    new: Vec<f64>,
    /// Whether somebody has asked for it: a group is asked for once, a frame again and again.
    is_asked: bool,
}

impl Numbers {
    pub(super) fn new(share: f64, data_type: &DataType) -> Self {
        Self {
            share,
            data_type: data_type.clone(),
            sorted: Vec::new(),
            new: Vec::new(),
            is_asked: false,
        }
    }

    fn settle(&mut self) {
        if self.new.len() > FEW {
            self.sorted.append(&mut self.new);
            self.sorted.sort_unstable_by(in_order);
            return;
        }
        for number in self.new.drain(..) {
            let place = self
                .sorted
                .partition_point(|known| in_order(known, &number).is_le());
            self.sorted.insert(place, number);
        }
    }

    fn of(values: &[ArrayRef]) -> Result<Float64Array> {
        match values {
            [numbers, ..] => {
                let numbers = cast(numbers, &DataType::Float64)?;
                Ok(numbers.as_primitive::<Float64Type>().clone())
            }
            [] => datafusion::common::internal_err!("numbers of nothing"),
        }
    }
}

impl Accumulator for Numbers {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.new.extend(Self::of(values)?.iter().flatten());
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.settle();
        for number in Self::of(values)?.iter().flatten() {
            let place = self
                .sorted
                .binary_search_by(|known| in_order(known, &number));
            if let Ok(place) = place {
                self.sorted.remove(place);
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let is_asked = std::mem::replace(&mut self.is_asked, true);
        let number = match (self.sorted.is_empty(), self.new.is_empty()) {
            (true, true) => None,
            (true, false) if !is_asked => Some(number_at(self.share, &mut self.new)),
            _ => {
                self.settle();
                let (below, part) = place(self.share, self.sorted.len());
                let lower = self.sorted.get(below).copied();
                let upper = self.sorted.get(below + 1).copied().or(lower);
                lower
                    .zip(upper)
                    .map(|(lower, upper)| between(lower, upper, part))
            }
        };
        ScalarValue::Float64(number).cast_to(&self.data_type)
    }

    fn size(&self) -> usize {
        size_of_val(self) + (self.sorted.capacity() + self.new.capacity()) * size_of::<f64>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let mut all = std::mem::take(&mut self.sorted);
        all.append(&mut self.new);
        let all: ArrayRef = Arc::new(Float64Array::from(all));
        let all = cast(&all, &self.data_type)?;
        let list = datafusion::common::utils::SingleRowListArrayBuilder::new(all);
        Ok(vec![list.build_list_scalar()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some(lists) = states.first() else {
            return Ok(());
        };
        let lists = lists.as_list::<i32>();
        for row in (0..lists.len()).filter(|row| lists.is_valid(*row)) {
            let numbers = Self::of(&[lists.value(row)])?;
            self.new.extend(numbers.iter().flatten());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_between_two_is_exact() {
        let third = number_at(1.0 / 3.0, &mut [3e9, 0.0]);
        assert!((third - 1e9).abs() < 1e-6, "{third}");
        assert_eq!(number_at(0.3, &mut [1.0]), 1.0);
        assert_eq!(number_at(0.0, &mut [4.0, 1.0, 2.0]), 1.0);
        assert_eq!(number_at(1.0, &mut [4.0, 1.0, 2.0]), 4.0);
        assert_eq!(number_at(0.75, &mut [5.0, 1.0, 2.0, 3.0, 4.0]), 4.0);
        let infinite = [f64::INFINITY, f64::INFINITY, 1.0];
        assert_eq!(number_at(0.75, &mut infinite.clone()), f64::INFINITY);
        assert!(number_at(1.0, &mut [f64::NAN, 1.0]).is_nan());
        let far = number_at(0.3, &mut [-1e308, 1e308]);
        assert!((far + 4e307).abs() < 1e294, "{far}");
    }

    fn array(numbers: &[Option<i8>]) -> ArrayRef {
        let numbers = numbers.iter().map(|number| number.map(f64::from));
        Arc::new(numbers.collect::<Float64Array>())
    }

    proptest! {
        /// Whatever comes and goes, it is the number of those that are there.
        #[test]
        fn frames_have_the_numbers_that_are_there(
            share in 0.0..=1.0,
            numbers in prop::collection::vec(prop::option::of(-5_i8..5), 1..80),
            step in 1..40_usize,
            width in 1..40_usize,
        ) {
            let mut frame = Numbers::new(share, &DataType::Float64);
            let (mut begin, mut end) = (0, 0);
            while end < numbers.len() {
                let next = (end + step).min(numbers.len());
                frame.update_batch(&[array(&numbers[end..next])]).unwrap();
                end = next;
                let first = end.saturating_sub(width).max(begin);
                frame.retract_batch(&[array(&numbers[begin..first])]).unwrap();
                begin = first;
                let mut there: Vec<f64> = numbers[begin..end].iter().flatten().map(|n| f64::from(*n)).collect();
                let expected = (!there.is_empty()).then(|| number_at(share, &mut there));
                prop_assert_eq!(frame.evaluate().unwrap(), ScalarValue::Float64(expected));
            }
        }
    }

    #[test]
    fn parts_come_together() {
        let mut whole = Numbers::new(0.5, &DataType::Float64);
        for part in [&[Some(1), None, Some(9)][..], &[], &[Some(4)]] {
            let mut numbers = Numbers::new(0.5, &DataType::Float64);
            numbers.update_batch(&[array(part)]).unwrap();
            let state = numbers.state().unwrap();
            let state: Vec<ArrayRef> = state.iter().map(|part| part.to_array().unwrap()).collect();
            whole.merge_batch(&state).unwrap();
        }
        assert_eq!(whole.evaluate().unwrap(), ScalarValue::Float64(Some(4.0)));
    }
}
