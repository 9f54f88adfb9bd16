//! Division by a number that stays the same for many dividends.
//!
//! Comes in: a divisor. Goes out: quotient and remainder by one multiplication and one correction, several times as fast as a division. Never here: anything about indices.

/// A divisor with its reciprocal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Divisor {
    /// At least 1.
    divisor: u64,
    /// (2^64 - 1) / divisor, rounded down.
    reciprocal: u64,
}

impl Divisor {
    /// 0 counts as 1.
    pub(super) fn new(divisor: u64) -> Self {
        let divisor = divisor.max(1);
        Self {
            divisor,
            reciprocal: u64::MAX / divisor,
        }
    }

    pub(super) fn get(self) -> u64 {
        self.divisor
    }

    /// Quotient and remainder. The reciprocal is at least 2^64 / divisor - 1, so that the upper half of `dividend * reciprocal` is more than dividend / divisor - 2: it is the
    /// quotient or one less.
    #[inline(always)]
    pub(super) fn divide(self, dividend: u64) -> (u64, u64) {
        let (_, estimate) = dividend.carrying_mul(self.reciprocal, 0);
        let rest = dividend.wrapping_sub(estimate.wrapping_mul(self.divisor));
        let over = rest >= self.divisor;
        let quotient = estimate.wrapping_add(u64::from(over));
        let remainder = if over {
            rest.wrapping_sub(self.divisor)
        } else {
            rest
        };
        (quotient, remainder)
    }
}

#[cfg(test)]
mod tests {
    use super::Divisor;

    #[test]
    fn quotients_and_remainders_are_those_of_the_division() {
        let mut numbers: Vec<u64> = (0..64).collect();
        for shift in 0..64 {
            let power = 1_u64 << shift;
            numbers.extend([power - 1, power, power + 1, power / 3, u64::MAX - power]);
            numbers.push(power.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        for divisor in numbers.iter().copied().filter(|divisor| *divisor > 0) {
            let reciprocal = Divisor::new(divisor);
            for dividend in numbers.iter().copied() {
                let near = [dividend, (dividend / divisor) * divisor];
                for dividend in [near[0], near[1], near[1].wrapping_sub(1)] {
                    assert_eq!(
                        reciprocal.divide(dividend),
                        (dividend / divisor, dividend % divisor),
                        "{dividend} / {divisor}"
                    );
                }
            }
        }
    }
}
