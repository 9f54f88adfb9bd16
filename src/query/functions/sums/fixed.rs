//! Numbers as wide as sums of floats and of their squares can be.
//!
//! Comes in: floats, whole numbers at some power of two. Goes out: their sum, in which nothing is rounded until it becomes a float, once. Never here: infinities and NaN, arrays.

/// Bits of a digit.
pub(super) const DIGIT_BITS: usize = 32;

/// The largest digit, and the mask of one.
const DIGIT: i64 = (1 << DIGIT_BITS) - 1;

/// What is added spreads over so many digits.
const SPREAD_DIGITS: usize = 3;

/// So often something may be added before carries have to be taken on: 2^30 digits and what was there before have room in 63 bits.
const MOST_ADDED: u32 = 1 << 30;

/// All floats are whole multiples of two to this power.
pub(super) const LOWEST: i64 = -1074;

/// Bits of a float after its first one.
const FRACTION_BITS: u32 = 52;

/// The greatest place of the last bit of a float, counted from the lowest.
const HIGHEST_PLACE: u64 = 2045;

/// A sum of whole numbers, kept in digits whose carries are put off. It has as many digits as what was added needs.
#[derive(Debug, Default)]
pub(super) struct Fixed {
    /// From the lowest on. The last one carries the sign; the others may be of either sign until carries are taken on.
    digits: Vec<i64>,
    /// The place of the first of them.
    first: usize,
    num_added: u32,
}

impl Fixed {
    /// Adds a float that is finite, in units of the smallest one, or takes it away.
    pub(super) fn add_float(&mut self, value: f64, is_more: bool) {
        let (bits, place) = parts(value);
        self.add(bits, place, is_more == value.is_sign_positive());
    }

    /// Adds the square of a float that is finite, in units of the square of the smallest one, or takes it away.
    pub(super) fn add_square(&mut self, value: f64, is_more: bool) {
        let (bits, place) = parts(value);
        let square = u128::from(bits) * u128::from(bits);
        let low = u64::try_from(square & u128::from(u64::MAX)).unwrap_or_default();
        let high = u64::try_from(square >> u64::BITS).unwrap_or_default();
        self.add(low, 2 * place, is_more);
        self.add(high, 2 * place + 2 * DIGIT_BITS, is_more);
    }

    /// Adds a whole number that begins at a bit, or takes it away.
    pub(super) fn add(&mut self, bits: u64, place: usize, is_more: bool) {
        if bits == 0 {
            return;
        }
        let start = self.room_for(place / DIGIT_BITS);
        let mut rest = u128::from(bits) << (place % DIGIT_BITS);
        for digit in self.digits.iter_mut().skip(start).take(SPREAD_DIGITS) {
            let part = i64::try_from(rest & u128::from(u32::MAX)).unwrap_or_default();
            *digit += if is_more { part } else { -part };
            rest >>= DIGIT_BITS;
        }
        self.num_added += 1;
        if self.num_added == MOST_ADDED {
            self.carry();
        }
    }

    /// Bytes beside the number itself.
    pub(super) fn heap_bytes(&self) -> usize {
        self.digits.capacity() * size_of::<i64>()
    }

    /// The number without carries that are put off.
    pub(super) fn magnitude(&mut self) -> Magnitude {
        self.carry();
        let is_negative = self.digits.last().is_some_and(|last| *last < 0);
        let mut carry = 0;
        let digits = self.digits.iter().map(|digit| {
            let whole = carry + if is_negative { -digit } else { *digit };
            carry = whole >> DIGIT_BITS;
            u32::try_from(whole & DIGIT).unwrap_or_default()
        });
        Magnitude {
            is_negative,
            digits: digits.collect(),
            first: self.first,
        }
    }

    /// Makes digits from this one on, and says where they begin.
    fn room_for(&mut self, digit: usize) -> usize {
        if self.digits.is_empty() {
            self.first = digit;
        }
        if digit < self.first {
            let zeros = std::iter::repeat_n(0, self.first - digit);
            self.digits.splice(..0, zeros);
            self.first = digit;
        }
        let start = digit - self.first;
        if self.digits.len() < start + SPREAD_DIGITS {
            self.digits.resize(start + SPREAD_DIGITS, 0);
        }
        start
    }

    /// Takes carries on to the last digit.
    fn carry(&mut self) {
        self.num_added = 0;
        let Some((last, others)) = self.digits.split_last_mut() else {
            return;
        };
        let mut carry = 0;
        for digit in others {
            let whole = *digit + carry;
            *digit = whole & DIGIT;
            carry = whole >> DIGIT_BITS;
        }
        *last += carry;
        while let Some(last) = self.digits.last_mut()
            && i32::try_from(*last).is_err()
        {
            let more = *last >> DIGIT_BITS;
            *last &= DIGIT;
            self.digits.push(more);
        }
    }
}

/// A number by its sign and its digits.
#[derive(Debug)]
pub(super) struct Magnitude {
    pub(super) is_negative: bool,
    /// From the lowest on.
    digits: Vec<u32>,
    /// The place of the first of them.
    first: usize,
}

impl Magnitude {
    /// The digits that are not zero, and the bits at which they begin.
    pub(super) fn digits(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        let all = self.digits.iter().zip(self.first..);
        let some = all.filter(|(digit, _)| **digit != 0);
        some.map(|(digit, place)| (u64::from(*digit), place * DIGIT_BITS))
    }

    /// The float nearest to the number divided by another one, when its first bit stands for two to this power. Of two that are as near it is the even one.
    pub(super) fn divided(&self, divisor: u128, lowest: i64) -> f64 {
        let (bits, is_more, exponent) = self.leading();
        let bits_of_result = bits / divisor.max(1);
        let is_more = is_more || bits_of_result * divisor != bits;
        let size = nearest(bits_of_result, is_more, exponent + lowest);
        if self.is_negative { -size } else { size }
    }

    /// The first 128 bits, whether there are others below them that are not zero, and at which bit the last of them stands.
    fn leading(&self) -> (u128, bool, i64) {
        let is_set = |digit: &u32| *digit != 0;
        let num_digits = self.digits.iter().rposition(is_set).map_or(0, |at| at + 1);
        let mut from_top = self.digits.iter().take(num_digits).rev().copied();
        let mut bits = 0;
        for _ in 0..4 {
            bits = (bits << DIGIT_BITS) | u128::from(from_top.next().unwrap_or_default());
        }
        if bits == 0 {
            return (0, false, 0);
        }
        // Less than one digit.
        let zeros = bits.leading_zeros();
        let next = u64::from(from_top.next().unwrap_or_default()) << zeros;
        let bits = (bits << zeros) | u128::from(next >> DIGIT_BITS);
        let is_more = next & u64::from(u32::MAX) != 0 || from_top.any(|digit| digit != 0);
        let end = i64::try_from((self.first + num_digits) * DIGIT_BITS).unwrap_or_default();
        (bits, is_more, end - i64::from(u128::BITS + zeros))
    }
}

/// The bits of a float, and the place at which they begin, counted from that of the smallest float.
fn parts(value: f64) -> (u64, usize) {
    let all = value.to_bits();
    let fraction = all & ((1 << FRACTION_BITS) - 1);
    match usize::try_from((all >> FRACTION_BITS) & 0x7ff).unwrap_or_default() {
        0 => (fraction, 0),
        exponent => (fraction | (1 << FRACTION_BITS), exponent - 1),
    }
}

/// The float nearest to bits at a power of two, of which there is more below or not.
fn nearest(bits: u128, is_more: bool, exponent: i64) -> f64 {
    if bits == 0 {
        return 0.0;
    }
    let zeros = bits.leading_zeros();
    let (bits, exponent) = (bits << zeros, exponent - i64::from(zeros));
    // As many bits as a float has, or those above the lowest place.
    let unit = (exponent + i64::from(u128::BITS - FRACTION_BITS - 1)).max(LOWEST);
    let dropped = match u32::try_from(unit - exponent) {
        Ok(dropped) if dropped <= u128::BITS => dropped,
        _ => return 0.0,
    };
    let kept = bits.checked_shr(dropped).unwrap_or_default();
    let half = 1_u128 << (dropped - 1);
    let rest = bits & (half | (half - 1));
    let is_up = rest > half || (rest == half && (is_more || kept & 1 == 1));
    let kept = u64::try_from(kept).unwrap_or_default() + u64::from(is_up);
    match u64::try_from(unit - LOWEST).unwrap_or_default() {
        // The first bit counts the place up, as does one that rounding carries into it.
        place @ 0..=HIGHEST_PLACE => f64::from_bits((place << FRACTION_BITS) + kept),
        _ => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(values: &[f64]) -> Fixed {
        let mut sum = Fixed::default();
        for value in values {
            sum.add_float(*value, true);
        }
        sum
    }

    fn rounded(mut sum: Fixed) -> f64 {
        sum.magnitude().divided(1, LOWEST)
    }

    proptest! {
        #[test]
        fn what_is_taken_away_leaves_the_rest(
            kept in prop::collection::vec((any::<i64>(), 0..50_u32), 0..50),
            gone in prop::collection::vec(any::<f64>().prop_filter("finite", |value| value.is_finite()), 0..50),
        ) {
            let unit = 2_f64.powi(-20);
            let scaled = |(number, shift): &(i64, u32)| (i128::from(number >> 11) << shift) as f64 * unit;
            let floats: Vec<f64> = kept.iter().map(scaled).collect();
            let whole: i128 = kept.iter().map(|(number, shift)| i128::from(number >> 11) << shift).sum();
            let mut fixed = sum(&gone);
            floats.iter().for_each(|value| fixed.add_float(*value, true));
            gone.iter().for_each(|value| fixed.add_float(*value, false));
            prop_assert_eq!(rounded(fixed), whole as f64 * unit);
        }

        #[test]
        fn a_float_comes_back_as_it_was(value in any::<f64>().prop_filter("finite", |value| value.is_finite())) {
            prop_assert_eq!(rounded(sum(&[value])), value);
            prop_assert_eq!(sum(&[value; 3]).magnitude().divided(3, LOWEST), value);
            let mut square = Fixed::default();
            square.add_square(value, true);
            prop_assert_eq!(square.magnitude().divided(1, 2 * LOWEST), value * value);
        }

        #[test]
        fn two_floats_are_rounded_as_the_processor_does(left in any::<f64>(), right in any::<f64>()) {
            prop_assume!(left.is_finite() && right.is_finite());
            prop_assert_eq!(rounded(sum(&[left, right])), left + right);
        }
    }

    #[test]
    fn the_ends_of_the_range_are_reached() {
        assert_eq!(rounded(sum(&[])), 0.0);
        assert_eq!(rounded(sum(&[1e308, 1e308, -1e308])), 1e308);
        assert_eq!(rounded(sum(&[f64::MAX, f64::MAX])), f64::INFINITY);
        assert_eq!(rounded(sum(&[f64::MIN, f64::MIN])), f64::NEG_INFINITY);
        assert_eq!(sum(&[f64::MAX; 7]).magnitude().divided(7, LOWEST), f64::MAX);
        let smallest = f64::from_bits(1);
        assert_eq!(rounded(sum(&[smallest; 5])), f64::from_bits(5));
        let halves = |times: u64| {
            let values = vec![smallest; usize::try_from(times).unwrap()];
            sum(&values).magnitude().divided(2, LOWEST)
        };
        assert_eq!([1, 2, 3, 5].map(halves), [0, 1, 2, 2].map(f64::from_bits));
    }

    #[test]
    fn carries_are_taken_on_in_time() {
        let mut fixed = sum(&[f64::MAX, -1.5]);
        for _ in 0..3 {
            fixed.num_added = MOST_ADDED - 1;
            fixed.add_float(f64::MAX, false);
            assert_eq!(fixed.num_added, 0);
        }
        fixed.add_float(f64::MAX, true);
        fixed.add_float(f64::MAX, true);
        assert_eq!(rounded(fixed), -1.5);
    }
}
