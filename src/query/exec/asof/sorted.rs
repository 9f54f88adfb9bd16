//! Rows of the right side in an order in which the nearest is found by few steps.
//!
//! Comes in: for each row the number of its keys, and what is compared. Goes out: the rows by both, and for values of the left side the nearest row. A search begins where the one before ended among rows of the same keys: over left rows that come in order it costs little, and over others no more than twice a binary search. Never
//! here: batches, and memory that is reserved.

use super::compared::Compared;

/// Rows by their keys, and among those by what is compared.
pub(super) struct Sorted {
    /// Where the rows of each number of keys begin, and where the last ones end.
    pub(super) starts: Vec<u32>,
    pub(super) rows: Vec<u32>,
    /// In the order of `rows` if they are short, and in that of the rows themselves if they are long.
    compared: Compared,
}

impl Sorted {
    /// Of rows whose numbers of keys are given; of none, all have the same.
    pub(super) fn of(
        group_of_row: &[u32],
        num_rows: u32,
        num_groups: usize,
        compared: Compared,
    ) -> Self {
        let (starts, mut rows) = match group_of_row.is_empty() {
            true => (vec![0, num_rows], (0..num_rows).collect()),
            false => by_group(group_of_row, num_groups),
        };
        let groups = starts.windows(2).filter_map(|ends| match ends {
            [start, end] => Some(*start as usize..*end as usize),
            _ => None,
        });
        let compared = match compared {
            Compared::Short(values) => {
                let value = |row: &u32| values.get(*row as usize).copied().unwrap_or_default();
                let mut ordered: Vec<u64> = rows.iter().map(value).collect();
                drop(values);
                let mut pairs = Vec::new();
                for group in groups {
                    if let Some((values, rows)) =
                        ordered.get_mut(group.clone()).zip(rows.get_mut(group))
                    {
                        sort(values, rows, &mut pairs);
                    }
                }
                Compared::Short(ordered)
            }
            Compared::Long(values) => {
                for group in groups {
                    let rows = rows.get_mut(group).unwrap_or_default();
                    rows.sort_by(|one, next| {
                        values.row(*one as usize).cmp(&values.row(*next as usize))
                    });
                }
                Compared::Long(values)
            }
        };
        Self {
            starts,
            rows,
            compared,
        }
    }

    /// How many bytes it takes.
    pub(super) fn size(&self) -> usize {
        let numbers = self.starts.capacity() + self.rows.capacity();
        self.compared.size() + numbers * size_of::<u32>()
    }

    /// The nearest row for each of some, whose numbers of keys are given; those without one, and of keys that there are not, have none.
    pub(super) fn nearest(
        &self,
        bounds: &Compared,
        groups: impl Iterator<Item = Option<usize>>,
        hints: &mut [u32],
        is_other: bool,
    ) -> Vec<Option<u32>> {
        match (&self.compared, bounds) {
            (Compared::Short(values), Compared::Short(bounds)) => {
                let value = |place: usize| values.get(place).copied().unwrap_or(u64::MAX);
                let bound = |row: usize| bounds.get(row).copied().unwrap_or_default();
                match is_other {
                    true => self.search(groups, hints, |at, row| value(at) < bound(row)),
                    false => self.search(groups, hints, |at, row| value(at) <= bound(row)),
                }
            }
            (Compared::Long(values), Compared::Long(bounds)) => {
                let row_at = |place: usize| self.rows.get(place).map_or(0, |row| *row as usize);
                match is_other {
                    true => self.search(groups, hints, |at, row| {
                        values.row(row_at(at)) < bounds.row(row)
                    }),
                    false => self.search(groups, hints, |at, row| {
                        values.row(row_at(at)) <= bounds.row(row)
                    }),
                }
            }
            _ => Vec::new(),
        }
    }

    fn search(
        &self,
        groups: impl Iterator<Item = Option<usize>>,
        hints: &mut [u32],
        is_reached: impl Fn(usize, usize) -> bool,
    ) -> Vec<Option<u32>> {
        let found = groups.enumerate().map(|(row, group)| {
            let group = group?;
            let (start, end) = (*self.starts.get(group)?, *self.starts.get(group + 1)?);
            let hint = hints.get_mut(group)?;
            let (start, end) = (start as usize, end as usize);
            let next = turn(start, end, *hint as usize, |place| is_reached(place, row));
            // It is not beyond the end, which is such a number.
            *hint = u32::try_from(next).unwrap_or_default();
            let last = next.checked_sub(1).filter(|last| *last >= start)?;
            self.rows.get(last).copied()
        });
        found.collect()
    }
}

/// Rows by the numbers of their keys, in the order in which they came, and where those of each begin.
fn by_group(group_of_row: &[u32], num_groups: usize) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0_u32; num_groups + 1];
    for group in group_of_row {
        if let Some(count) = starts.get_mut(*group as usize + 1) {
            *count += 1;
        }
    }
    let mut sum = 0;
    for start in &mut starts {
        sum += *start;
        *start = sum;
    }
    let mut next = starts.clone();
    let mut rows = vec![0; group_of_row.len()];
    for (row, group) in (0..).zip(group_of_row) {
        if let Some(next) = next.get_mut(*group as usize) {
            if let Some(place) = rows.get_mut(*next as usize) {
                *place = row;
            }
            *next += 1;
        }
    }
    (starts, rows)
}

/// Brings values and their rows into order; of equal values, the rows stay in theirs.
fn sort(values: &mut [u64], rows: &mut [u32], pairs: &mut Vec<(u64, u32)>) {
    if values.is_sorted() {
        return;
    }
    pairs.clear();
    pairs.extend(values.iter().copied().zip(rows.iter().copied()));
    pairs.sort_by_key(|(value, _)| *value);
    for ((value, row), pair) in values.iter_mut().zip(rows).zip(pairs) {
        (*value, *row) = *pair;
    }
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
            let count = u32::try_from(num_rows).unwrap();
            let compared = Compared::Short(values.clone());
            let sorted = Sorted::of(&group_of_row, count, num_groups, compared);
            let bounds = numbers(seed + 20, 2_000, below + 2);
            let asked: Vec<usize> = numbers(seed + 30, 2_000, num_groups as u64 + 1)
                .into_iter()
                .map(|group| usize::try_from(group).unwrap())
                .collect();
            for is_other in [false, true] {
                let mut hints = sorted.starts.clone();
                let groups = asked.iter().map(|group| Some(*group));
                let bounds_of = Compared::Short(bounds.clone());
                let found = sorted.nearest(&bounds_of, groups, &mut hints, is_other);
                assert_eq!(found.len(), asked.len());
                for ((row, group), bound) in found.into_iter().zip(&asked).zip(&bounds) {
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
        let compared = Compared::Short(vec![5, 3, 5, 3, 5]);
        let sorted = Sorted::of(&[], 5, 1, compared);
        assert_eq!(sorted.rows, [1, 3, 0, 2, 4]);
    }
}
