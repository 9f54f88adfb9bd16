//! The global indices that two parts of one dimension share.
//!
//! Comes in: intervals and block-cyclic progressions, with their places in the local buffers. Goes out: [`Comb`]s, by arithmetic on whole blocks. Never here: a loop over elements; lists
//! (`links.rs` looks their indices up).

use std::ops::Range;

use crate::distarray::index_set::{IndexSet, Part};
use crate::distarray::redistribute::comb::Comb;

/// Adds the elements that two parts share to `combs`; nothing when one of them is a list.
pub(super) fn intersect(from: &Part, to: &Part, combs: &mut Vec<Comb>) {
    let sets = Regular::of(&from.indices).zip(Regular::of(&to.indices));
    if let Some((one, other)) = sets {
        shared(&one, &other, &mut |teeth| {
            let places = place_of(&from.indices, from.local, &teeth).zip(place_of(
                &to.indices,
                to.local,
                &teeth,
            ));
            if let Some(((from, from_step), (to, to_step))) = places {
                combs.push(Comb {
                    from,
                    to,
                    len: count(teeth.len),
                    count: count(teeth.count),
                    from_step,
                    to_step,
                });
            }
        });
    }
}

/// Runs of neighbouring global indices at equal distances. Every run lies within one block of both sets.
#[derive(Debug, Clone, Copy)]
struct Teeth {
    start: i64,
    len: i64,
    count: i64,
    step: i64,
}

/// Blocks of one length at equal distances from `start`, cut off at `stop`. An interval is one block.
#[derive(Debug, Clone, Copy)]
struct Regular {
    start: i64,
    stop: i64,
    block: i64,
    period: i64,
}

impl Regular {
    fn of(set: &IndexSet) -> Option<Self> {
        match set {
            IndexSet::Interval(range) => {
                let length = range.end.saturating_sub(range.start).max(1);
                Some(Self {
                    start: range.start,
                    stop: range.end,
                    block: length,
                    period: length,
                })
            }
            IndexSet::Progression(progression) => Some(Self {
                start: progression.range().start,
                stop: progression.range().end,
                block: progression.block_size(),
                period: progression.period(),
            }),
            IndexSet::List(_) => None,
        }
    }

    fn num_blocks(&self) -> i64 {
        match self.stop - self.start {
            length if length > 0 => (length - 1) / self.period + 1,
            _ => 0,
        }
    }

    fn block(&self, number: i64) -> Range<i64> {
        let start = self.start + number * self.period;
        start..start.saturating_add(self.block).min(self.stop)
    }

    /// What lies within a range: the rest of a block, whole blocks, the beginning of a block.
    fn within(&self, range: Range<i64>, emit: &mut impl FnMut(Teeth)) {
        let (start, stop) = (range.start.max(self.start), range.end.min(self.stop));
        if start >= stop {
            return;
        }
        let run = |start: i64, stop: i64| Teeth {
            start,
            len: stop - start,
            count: 1,
            step: 0,
        };
        let mut next = start;
        let (number, skipped) = (
            (start - self.start) / self.period,
            (start - self.start) % self.period,
        );
        if skipped > 0 {
            let block = self.block(number);
            if start < block.end {
                emit(run(start, block.end.min(stop)));
            }
            next = block.start.saturating_add(self.period);
        }
        if next >= stop {
            return;
        }
        let whole = match stop - next - self.block {
            rest if rest >= 0 => rest / self.period + 1,
            _ => 0,
        };
        if whole > 0 {
            emit(Teeth {
                start: next,
                len: self.block,
                count: whole,
                step: if whole > 1 { self.period } else { 0 },
            });
        }
        let tail = next.saturating_add(whole.saturating_mul(self.period));
        if tail < stop {
            emit(run(tail, stop));
        }
    }
}

/// How many steps [`shared`] takes: for the choice of a way to count elements.
pub(super) fn num_steps(periods: [u64; 2], blocks: [u64; 2], size: u64) -> u64 {
    let [one, other] = periods.map(|period| period.max(1));
    let by_remainder = (blocks[0].saturating_add(blocks[1])) / gcd(one, other) + 1;
    let by_block = (size / one).min(size / other) + 1;
    by_remainder.min(by_block)
}

/// What two regular sets share: by the blocks of one of them, or by the distances that a block of one can have to a block of the other, whichever is less.
fn shared(one: &Regular, other: &Regular, emit: &mut impl FnMut(Teeth)) {
    let (few, many) = if one.num_blocks() <= other.num_blocks() {
        (one, other)
    } else {
        (other, one)
    };
    let num_blocks = few.num_blocks();
    let divisor = gcd(one.period.unsigned_abs(), other.period.unsigned_abs());
    let num_distances = (i128::from(one.block) + i128::from(other.block)) / i128::from(divisor) + 1;
    if i128::from(num_blocks) <= num_distances {
        for number in 0..num_blocks {
            many.within(few.block(number), emit);
        }
    } else if let Ok(divisor) = i64::try_from(divisor) {
        by_distance(one, other, divisor, emit);
    }
}

/// Block k of `one` starts at x, block l of `other` at y, and they meet when y - x is more than -other.block and less than one.block. All such distances agree modulo the common
/// divisor of the periods, and each of them comes back once every least common multiple.
fn by_distance(one: &Regular, other: &Regular, divisor: i64, emit: &mut impl FnMut(Teeth)) {
    let [first_period, second_period] = [one.period, other.period].map(i128::from);
    let divisor = i128::from(divisor);
    let (num_first, num_second) = (first_period / divisor, second_period / divisor);
    let inverse = inverse(num_first, num_second);
    let multiple = num_first * second_period;
    let apart = i128::from(other.start) - i128::from(one.start);
    let stop = i128::from(one.stop.min(other.stop));
    let least = 1 - i128::from(other.block);
    let mut distance = least + (apart - least).rem_euclid(divisor);
    while distance < i128::from(one.block) {
        // k * first_period - l * second_period is what is missing; the least k, then the least l that is not negative.
        let missing = (apart - distance) / divisor;
        let mut k = (missing.rem_euclid(num_second) * inverse).rem_euclid(num_second);
        let l = (k * num_first - missing) / num_second;
        if l < 0 {
            k += ((-l - 1) / num_first + 1) * num_second;
        }
        let x = i128::from(one.start) + k * first_period;
        let start = x.max(x + distance);
        let end = (x + i128::from(one.block)).min(x + distance + i128::from(other.block));
        repeated(start, end - start, multiple, stop, emit);
        distance += divisor;
    }
}

/// Emits the runs at `start` and every `step` after it, as far as they lie below `stop`.
fn repeated(start: i128, len: i128, step: i128, stop: i128, emit: &mut impl FnMut(Teeth)) {
    if start >= stop {
        return;
    }
    let mut count = (stop - start - 1) / step + 1;
    let last = start + (count - 1) * step;
    let rest = (stop - last).min(len);
    count -= i128::from(rest < len);
    let mut teeth = |start: i128, len: i128, count: i128, step: i128| {
        let narrow = |number: i128| i64::try_from(number).unwrap_or(0);
        if count > 0 {
            emit(Teeth {
                start: narrow(start),
                len: narrow(len),
                count: narrow(count),
                step: narrow(step),
            });
        }
    };
    teeth(start, len, count, if count > 1 { step } else { 0 });
    if rest < len {
        teeth(last, rest, 1, 0);
    }
}

/// The local index of the first element, and the distance from run to run.
fn place_of(set: &IndexSet, local: usize, teeth: &Teeth) -> Option<(usize, usize)> {
    let first = set.place(teeth.start)?;
    let step = match teeth.count {
        1 => 0,
        _ => set.place(teeth.start + teeth.step)? - first,
    };
    Some((local + first, step))
}

fn count(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// The greatest common divisor; that of a number and 0 is the number.
pub(super) fn gcd(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one.max(1)
}

/// The number whose product with `number` leaves 1 when divided by `modulus`; the two have no common divisor. 0 for a modulus of 1.
fn inverse(number: i128, modulus: i128) -> i128 {
    let (mut old, mut new) = (number.rem_euclid(modulus), modulus);
    let (mut factor, mut next) = (1_i128, 0_i128);
    while new != 0 {
        let quotient = old / new;
        (old, new) = (new, old - quotient * new);
        (factor, next) = (next, factor - quotient * next);
    }
    factor.rem_euclid(modulus)
}

#[cfg(test)]
mod tests {
    use super::{Regular, by_distance, gcd, shared};

    #[test]
    fn both_ways_find_the_same_indices() {
        for (block, period, start) in [(1, 3, 0), (2, 6, 2), (3, 7, 3), (4, 4, 0), (5, 12, 10)] {
            for (other_block, other_period, late) in [
                (1, 4, 0),
                (2, 8, 0),
                (3, 9, 40),
                (4, 12, 0),
                (7, 14, 90),
                (2, 5, 31),
            ] {
                let one = Regular {
                    start,
                    stop: 199,
                    block,
                    period,
                };
                let other = Regular {
                    start: other_block + late,
                    stop: 199,
                    block: other_block,
                    period: other_period,
                };
                let holds = |set: &Regular, index: i64| {
                    index >= set.start && (index - set.start) % set.period < set.block
                };
                let expected: Vec<i64> = (0..199)
                    .filter(|index| holds(&one, *index) && holds(&other, *index))
                    .collect();
                let divisor = gcd(period.unsigned_abs(), other_period.unsigned_abs());
                let divisor = i64::try_from(divisor).unwrap();
                let mut found = [Vec::new(), Vec::new()];
                let [first, second] = &mut found;
                let list = |teeth: super::Teeth| {
                    (0..teeth.count).flat_map(move |run| {
                        (0..teeth.len).map(move |at| teeth.start + run * teeth.step + at)
                    })
                };
                shared(&one, &other, &mut |teeth| first.extend(list(teeth)));
                by_distance(&one, &other, divisor, &mut |teeth| {
                    second.extend(list(teeth));
                });
                for mut indices in found {
                    indices.sort_unstable();
                    assert_eq!(indices, expected, "{one:?} {other:?}");
                }
            }
        }
    }
}
