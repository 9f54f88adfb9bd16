//! How values are spread, by the powers of their distances from the mean.
//!
//! Comes in: values, or what parts of them come to. Goes out: what a function gives of all. Never here: columns, states that travel.

use super::Gives;

/// What is kept of values, in this order.
pub(super) const STATE: [&str; 7] = [
    "count",
    "mean",
    "second",
    "third",
    "fourth",
    "product",
    "logarithms",
];

/// How many values there are, their mean, the sums of powers of the distances from it, their product, and the sum of their logarithms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moments {
    count: f64,
    mean: f64,
    second: f64,
    third: f64,
    fourth: f64,
    product: f64,
    logarithms: f64,
}

impl Default for Moments {
    fn default() -> Self {
        Self {
            count: 0.0,
            mean: 0.0,
            second: 0.0,
            third: 0.0,
            fourth: 0.0,
            product: 1.0,
            logarithms: 0.0,
        }
    }
}

impl Moments {
    pub(super) fn of(value: f64) -> Self {
        Self {
            count: 1.0,
            mean: value,
            product: value,
            logarithms: value.ln(),
            ..Self::default()
        }
    }

    /// Those of the values of both.
    pub(super) fn with(self, other: Self) -> Self {
        if self.count == 0.0 {
            return other;
        }
        if other.count == 0.0 {
            return self;
        }
        let (left, right) = (self.count, other.count);
        let count = left + right;
        let apart = other.mean - self.mean;
        let each = apart / count;
        let squared = apart * each * left * right;
        Self {
            count,
            mean: self.mean + each * right,
            second: self.second + other.second + squared,
            third: self.third
                + other.third
                + squared * each * (left - right)
                + 3.0 * each * (left * other.second - right * self.second),
            fourth: self.fourth
                + other.fourth
                + squared * each * each * (left * left - left * right + right * right)
                + 6.0 * each * each * (left * left * other.second + right * right * self.second)
                + 4.0 * each * (left * other.third - right * self.third),
            product: self.product * other.product,
            logarithms: self.logarithms + other.logarithms,
        }
    }

    pub(super) fn value(&self, gives: Gives) -> Option<f64> {
        let count = self.count;
        let is_spread = self.second != 0.0;
        let kurtosis = || count * self.fourth / (self.second * self.second) - 3.0;
        match gives {
            Gives::Product => (count > 0.0).then_some(self.product),
            Gives::GeometricMean => (count > 0.0).then(|| (self.logarithms / count).exp()),
            Gives::Skewness => (count > 2.0 && is_spread).then(|| {
                let of_all = count.sqrt() * self.third / self.second.powf(1.5);
                of_all * (count * (count - 1.0)).sqrt() / (count - 2.0)
            }),
            Gives::Kurtosis => (count > 3.0 && is_spread).then(|| {
                let more = (count - 1.0) / ((count - 2.0) * (count - 3.0));
                more * ((count + 1.0) * kurtosis() + 6.0)
            }),
            Gives::KurtosisOfAll => (count > 1.0 && is_spread).then(kurtosis),
        }
    }

    pub(super) fn state(&self) -> [f64; STATE.len()] {
        [
            self.count,
            self.mean,
            self.second,
            self.third,
            self.fourth,
            self.product,
            self.logarithms,
        ]
    }

    pub(super) fn of_state(
        [count, mean, second, third, fourth, product, logarithms]: [f64; STATE.len()],
    ) -> Self {
        Self {
            count,
            mean,
            second,
            third,
            fourth,
            product,
            logarithms,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[f64]) -> Moments {
        let each = values.iter().map(|value| Moments::of(*value));
        each.fold(Moments::default(), Moments::with)
    }

    #[test]
    fn few_values_and_equal_ones_have_none() {
        let all = [
            Gives::Product,
            Gives::Skewness,
            Gives::Kurtosis,
            Gives::KurtosisOfAll,
        ];
        let given = |values: &[f64]| all.map(|gives| of(values).value(gives).is_some());
        assert_eq!(given(&[]), [false; 4]);
        assert_eq!(given(&[2.0]), [true, false, false, false]);
        assert_eq!(given(&[2.0, 3.0]), [true, false, false, true]);
        assert_eq!(given(&[2.0, 3.0, 5.0]), [true, true, false, true]);
        assert_eq!(given(&[2.0, 3.0, 5.0, 7.0]), [true; 4]);
        assert_eq!(given(&[0.1; 9]), [true, false, false, false]);
    }

    #[test]
    fn they_are_those_of_the_formulas() {
        // By DuckDB 2.0.1.
        let moments = of(&[1.0, 2.0, 4.0, 9.0]);
        let near = |gives: Gives, expected: f64| {
            let value = moments.value(gives).unwrap();
            assert!((value - expected).abs() < 1e-12, "{gives:?}: {value}");
        };
        near(Gives::Product, 72.0);
        near(Gives::GeometricMean, 2.912_950_630_243_940_5);
        near(Gives::Skewness, 1.330_937_732_247_670_3);
        near(Gives::Kurtosis, 1.5);
    }

    proptest! {
        #[test]
        fn parts_come_to_the_whole(values in prop::collection::vec(-1e3..1e3_f64, 5..40), cut in 0..5_usize, far in prop::bool::ANY) {
            // Far from zero, sums of powers of the values themselves would have no digits left.
            let far = if far { 1e7 } else { 0.0 };
            let values: Vec<f64> = values.into_iter().map(|value| value + far).collect();
            let (whole, (left, right)) = (of(&values), values.split_at(cut));
            let parts = of(left).with(of(right));
            let mean = values.iter().sum::<f64>() / whole.count;
            let power = |power: i32| values.iter().map(|value| (value - mean).powi(power)).sum::<f64>();
            for moments in [whole, parts] {
                for (found, expected) in [(moments.second, power(2)), (moments.fourth, power(4))] {
                    prop_assert!((found - expected).abs() <= 1e-6 * expected.abs() + 1e-6, "{found} {expected}");
                }
                let bound = 1e-6 * power(4).powf(0.75) + 1e-6;
                prop_assert!((moments.third - power(3)).abs() <= bound, "{} {}", moments.third, power(3));
            }
        }
    }
}
