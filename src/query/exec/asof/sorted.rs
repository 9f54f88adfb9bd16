//! Rows of the right side in an order in which the nearest is found by few steps.
//!
//! Comes in: the rows by the numbers of their keys and by what is compared, as `unsorted.rs` sorts them. Goes out: for values of the left side the nearest row. A search begins where the one before ended among rows of the same keys: over left rows that come in order it costs little, and over others no more than twice a binary search. Never
//! here: batches, and memory that is reserved.

use std::ops::Range;
use std::sync::Arc;

use arrow::row::Rows;

use super::compared::Compared;

/// The number of no row.
pub(super) const NO_ROW: u32 = u32::MAX;

/// Rows by their keys, and among those by what is compared.
pub(super) struct Sorted {
    /// Where the rows of each number of keys begin, and where the last ones end.
    pub(super) starts: Vec<u32>,
    pub(super) shards: Vec<Shard>,
}

/// The rows of some numbers of keys that follow each other.
pub(super) struct Shard {
    pub(super) places: Range<usize>,
    /// `None` where all stay where they are.
    pub(super) rows: Option<Vec<u32>>,
    pub(super) compared: ByPlace,
}

/// What is compared.
pub(super) enum ByPlace {
    /// In the order of the shard.
    Short(Vec<u64>),
    /// In that of the rows themselves.
    Long(Arc<Rows>),
}

impl Shard {
    /// Numbers at some places.
    fn values(&self, places: &Range<usize>) -> Option<&[u64]> {
        let ByPlace::Short(values) = &self.compared else {
            return None;
        };
        let begin = places.start.checked_sub(self.places.start)?;
        values.get(begin..begin + places.len())
    }

    fn row(&self, place: usize) -> Option<u32> {
        let place = place.checked_sub(self.places.start)?;
        match &self.rows {
            Some(rows) => rows.get(place).copied(),
            None => u32::try_from(place).ok(),
        }
    }

    fn size(&self) -> usize {
        let rows = self.rows.as_ref().map_or(0, Vec::capacity) * size_of::<u32>();
        rows + match &self.compared {
            ByPlace::Short(values) => values.capacity() * size_of::<u64>(),
            ByPlace::Long(_) => 0,
        }
    }
}

impl Sorted {
    pub(super) fn num_rows(&self) -> usize {
        self.starts.last().map_or(0, |end| *end as usize)
    }

    /// How many bytes it takes.
    pub(super) fn size(&self) -> usize {
        let shards = self.shards.iter();
        let long = match self.shards.first().map(|shard| &shard.compared) {
            Some(ByPlace::Long(rows)) => rows.size(),
            _ => 0,
        };
        long + shards.map(Shard::size).sum::<usize>() + self.starts.capacity() * size_of::<u32>()
    }

    /// The shard that has a place.
    fn shard(&self, place: usize) -> Option<&Shard> {
        match self.shards.as_slice() {
            [only] => Some(only),
            all => all.get(all.partition_point(|shard| shard.places.end <= place)),
        }
    }

    /// The row at a place.
    #[cfg(test)]
    pub(super) fn row(&self, place: usize) -> Option<u32> {
        self.shard(place)?.row(place)
    }

    /// The nearest row for each of some, whose numbers of keys are given; those without one, and of keys that there are not, have [`NO_ROW`].
    pub(super) fn nearest(
        &self,
        bounds: &Compared,
        groups: impl Iterator<Item = Option<usize>>,
        hints: &mut [u32],
        is_other: bool,
    ) -> Vec<u32> {
        match bounds {
            Compared::Short(bounds) => match is_other {
                true => self.nearest_short::<true>(bounds, groups, hints),
                false => self.nearest_short::<false>(bounds, groups, hints),
            },
            Compared::Long(bounds) => {
                let compare = |shard: &Shard, place: usize, row: usize| match &shard.compared {
                    ByPlace::Long(values) => {
                        let at = shard.row(place).unwrap_or_default() as usize;
                        values.row(at).cmp(&bounds.row(row))
                    }
                    ByPlace::Short(_) => std::cmp::Ordering::Greater,
                };
                match is_other {
                    true => self.search(groups, hints, |shard, at, row| {
                        compare(shard, at, row).is_lt()
                    }),
                    false => self.search(groups, hints, |shard, at, row| {
                        compare(shard, at, row).is_le()
                    }),
                }
            }
        }
    }

    fn nearest_short<const IS_OTHER: bool>(
        &self,
        bounds: &[u64],
        groups: impl Iterator<Item = Option<usize>>,
        hints: &mut [u32],
    ) -> Vec<u32> {
        let rows = groups.zip(bounds);
        if let ([only], [start, _], [hint, ..]) =
            (self.shards.as_slice(), &*self.starts, &mut *hints)
            && let Some(values) = only.values(&only.places)
        {
            // All have the same keys.
            let mut next = (*hint - start) as usize;
            let found = rows.map(|(group, bound)| {
                if group != Some(0) {
                    return NO_ROW;
                }
                next = next_in::<IS_OTHER>(values, next, *bound);
                let last = next.checked_sub(1).and_then(|last| only.row(last));
                last.unwrap_or(NO_ROW)
            });
            let found = found.collect();
            *hint = u32::try_from(next).map_or(*start, |next| start + next);
            return found;
        }
        let mut of_group = |group: usize, bound: u64| {
            let (start, end) = (*self.starts.get(group)?, *self.starts.get(group + 1)?);
            let hint = hints.get_mut(group)?;
            let shard = self.shard(start as usize)?;
            let values = shard.values(&(start as usize..end as usize))?;
            let next = next_in::<IS_OTHER>(values, (*hint - start) as usize, bound);
            // There are no more of them than rows.
            *hint = start + u32::try_from(next).unwrap_or_default();
            shard.row(start as usize + next.checked_sub(1)?)
        };
        let found = rows.map(|(group, bound)| of_group(group?, *bound));
        found.map(|row| row.unwrap_or(NO_ROW)).collect()
    }

    fn search(
        &self,
        groups: impl Iterator<Item = Option<usize>>,
        hints: &mut [u32],
        is_reached: impl Fn(&Shard, usize, usize) -> bool,
    ) -> Vec<u32> {
        let mut of_group = |row: usize, group: usize| {
            let (start, end) = (*self.starts.get(group)?, *self.starts.get(group + 1)?);
            let hint = hints.get_mut(group)?;
            let (start, end) = (start as usize, end as usize);
            let shard = self.shard(start)?;
            let near = *hint as usize;
            let next = turn(start, end, near, |place| is_reached(shard, place, row));
            // It is not beyond the end, which is such a number.
            *hint = u32::try_from(next).unwrap_or_default();
            let last = next.checked_sub(1).filter(|last| *last >= start)?;
            shard.row(last)
        };
        let found = groups
            .enumerate()
            .map(|(row, group)| group.and_then(|group| of_group(row, group)));
        found.map(|row| row.unwrap_or(NO_ROW)).collect()
    }
}

/// So many values are compared at once.
const WINDOW: usize = 8;

/// So many of these are looked at before steps grow.
const MOST_WINDOWS: usize = 4;

/// How many of some values in order are less than a bound, or as large where that counts; about so many were those of the one before. Values are counted, where few are passed by: nobody foretells which is the last one.
fn next_in<const IS_OTHER: bool>(values: &[u64], near: usize, bound: u64) -> usize {
    let is_reached = |value: u64| match IS_OTHER {
        true => value < bound,
        false => value <= bound,
    };
    let at = |place: usize| values.get(place).is_some_and(|value| is_reached(*value));
    let mut near = near.min(values.len());
    if near > 0 && !at(near - 1) {
        return turn(0, near, near - 1, at);
    }
    for _ in 0..MOST_WINDOWS {
        let Some(window) = values.get(near..).and_then(<[u64]>::first_chunk::<WINDOW>) else {
            break;
        };
        let reached = window.iter().map(|value| usize::from(is_reached(*value)));
        let reached = reached.sum::<usize>();
        near += reached;
        if reached < WINDOW {
            return near;
        }
    }
    turn(near, values.len(), near, at)
}

/// The first place between two that is not reached, where those that are come first: in steps that grow, from one that is taken for near.
fn turn(start: usize, end: usize, near: usize, is_reached: impl Fn(usize) -> bool) -> usize {
    let near = near.clamp(start, end);
    let mut step = 1;
    let (mut low, mut high) = (start, end);
    if near < end && is_reached(near) {
        low = near + 1;
        while low < end {
            let place = (low + step - 1).min(end - 1);
            if !is_reached(place) {
                high = place;
                break;
            }
            low = place + 1;
            step *= 2;
        }
    } else {
        high = near;
        while high > start {
            let place = high.saturating_sub(step).max(start);
            if is_reached(place) {
                low = place + 1;
                break;
            }
            high = place;
            step *= 2;
        }
    }
    while low < high {
        let middle = low + (high - low) / 2;
        match is_reached(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::super::unsorted::{Part, Unsorted};
    use super::*;

    /// Numbers that are the same in each run.
    fn numbers(seed: u64, count: usize, below: u64) -> Vec<u64> {
        let mut state = seed;
        let numbers = (0..count).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        });
        numbers.collect()
    }

    fn part(groups: &[u32], num_groups: usize, values: &[u64]) -> Part {
        Part::of(groups, num_groups, Compared::Short(values.to_vec()))
    }

    /// Of three parts, in four shards.
    fn in_shards(groups: &[u32], values: &[u64], num_groups: usize) -> Sorted {
        let cuts = [0, values.len() / 5, values.len() / 2, values.len()];
        let parts = cuts.windows(2).map(|ends| {
            let rows = ends[0]..ends[1];
            part(&groups[rows.clone()], num_groups, &values[rows])
        });
        let unsorted = Unsorted::of(parts.collect(), num_groups);
        let cuts = unsorted.cuts(4);
        assert_eq!(
            cuts.iter().map(Range::len).sum::<usize>(),
            unsorted.num_groups()
        );
        let shards = cuts.into_iter().map(|groups| unsorted.shard(groups));
        unsorted.with(shards.collect())
    }

    fn best(
        group_of_row: &[u32],
        values: &[u64],
        (group, bound): (u32, u64),
        is_other: bool,
    ) -> Option<u64> {
        let rows = group_of_row.iter().zip(values);
        let rows = rows.filter(|(of, value)| {
            **of == group && (**value < bound || **value == bound && !is_other)
        });
        rows.map(|(_, value)| *value).max()
    }

    #[test]
    fn what_is_found_is_the_best_of_all() {
        for (seed, num_rows, num_groups, below) in [
            (1, 0, 3, 10),
            (2, 500, 1, 100),
            (3, 500, 7, 40),
            (4, 300, 250, 1_000),
        ] {
            let values = numbers(seed, num_rows, below);
            let groups = numbers(seed + 10, num_rows, num_groups).into_iter();
            let group_of_row: Vec<u32> =
                groups.map(|group| u32::try_from(group).unwrap()).collect();
            let num_groups = usize::try_from(num_groups).unwrap();
            let alone =
                Unsorted::of(vec![part(&group_of_row, num_groups, &values)], num_groups).alone();
            let sorted = [alone, in_shards(&group_of_row, &values, num_groups)];
            let bounds = numbers(seed + 20, 2_000, below + 2);
            let asked: Vec<usize> = numbers(seed + 30, 2_000, num_groups as u64 + 1)
                .into_iter()
                .map(|group| usize::try_from(group).unwrap())
                .collect();
            for (sorted, is_other) in sorted.iter().flat_map(|all| [(all, false), (all, true)]) {
                let mut hints = sorted.starts.clone();
                let groups = asked.iter().map(|group| Some(*group));
                let bounds_of = Compared::Short(bounds.clone());
                let found = sorted.nearest(&bounds_of, groups, &mut hints, is_other);
                assert_eq!(found.len(), asked.len());
                for ((row, group), bound) in found.into_iter().zip(&asked).zip(&bounds) {
                    let row = (row != NO_ROW).then_some(row);
                    let group = u32::try_from(*group).unwrap();
                    let wanted = best(&group_of_row, &values, (group, *bound), is_other);
                    assert_eq!(row.map(|row| values[row as usize]), wanted);
                    if let (Some(row), false) = (row, group_of_row.is_empty()) {
                        assert_eq!(group_of_row[row as usize], group);
                    }
                }
            }
        }
    }

    #[test]
    fn values_are_counted_from_anywhere() {
        let values: Vec<u64> = (0..200).map(|number| number / 3 * 2).collect();
        for bound in 0..140 {
            let (less, as_large) = (
                values.partition_point(|value| *value < bound),
                values.partition_point(|value| *value <= bound),
            );
            for near in [0, 1, less, as_large, 90, 199, 200, 300] {
                assert_eq!(next_in::<true>(&values, near, bound), less);
                assert_eq!(next_in::<false>(&values, near, bound), as_large);
                assert_eq!(next_in::<false>(&[], near, bound), 0);
            }
        }
    }

    #[test]
    fn a_search_that_begins_anywhere_ends_in_the_same_place() {
        for (start, end) in [(0, 0), (3, 3), (0, 1), (5, 40), (7, 100)] {
            for wanted in start..=end {
                for near in [0, start, wanted, end, end + 9, (start + end) / 2] {
                    let found = turn(start, end, near, |place| {
                        assert!((start..end).contains(&place), "{place} is outside");
                        place < wanted
                    });
                    assert_eq!(found, wanted, "from {near} in {start}..{end}");
                }
            }
        }
    }

    #[test]
    fn rows_of_equal_values_stay_in_their_order() {
        let part = |values: &[u64]| {
            let count = u32::try_from(values.len()).unwrap();
            Part::plain(count, Compared::Short(values.to_vec()))
        };
        let parts = vec![part(&[5, 3, 5]), part(&[3, 5])];
        let sorted = Unsorted::of(parts, 1).alone();
        let rows: Vec<u32> = (0..5).filter_map(|place| sorted.row(place)).collect();
        assert_eq!(rows, [1, 3, 0, 2, 4]);
    }
}
