//! Which places of something long rows lead to.
//!
//! Comes in: ranges of places, in any order, perhaps one over another. Goes out: the same places as few ranges, and where each place is once these lie one behind the other. Never here: what lies there.

use std::ops::Range;

/// Places that are used.
pub(super) struct Used {
    /// In order; none touches another.
    ranges: Vec<Range<usize>>,
    /// Where each begins once they lie one behind the other.
    starts: Vec<usize>,
    len: usize,
}

impl Used {
    pub(super) fn of(mut all: Vec<Range<usize>>) -> Self {
        all.retain(|range| !range.is_empty());
        all.sort_unstable_by_key(|range| range.start);
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for range in all {
            match ranges.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => ranges.push(range),
            }
        }
        let mut len = 0;
        let mut starts = Vec::with_capacity(ranges.len());
        for range in &ranges {
            starts.push(len);
            len += range.len();
        }
        Self {
            ranges,
            starts,
            len,
        }
    }

    pub(super) fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// How many places there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The range that has a place, and how far into it that is; looked for at `near` first, and behind it.
    pub(super) fn find(&self, place: usize, near: usize) -> Option<(usize, usize)> {
        let range_at = |number: usize| {
            let range = self.ranges.get(number)?;
            range
                .contains(&place)
                .then(|| (number, place - range.start))
        };
        let looked_for = || {
            let after = self.ranges.partition_point(|range| range.start <= place);
            range_at(after.checked_sub(1)?)
        };
        range_at(near)
            .or_else(|| range_at(near + 1))
            .or_else(looked_for)
    }

    /// Where a place is once the ranges lie one behind the other; looked for near the range of the place before, which it then is.
    pub(super) fn moved(&self, place: usize, near: &mut usize) -> Option<usize> {
        let (number, within) = self.find(place, *near)?;
        *near = number;
        Some(self.starts.get(number)? + within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_again_where_their_ranges_were_moved_to() {
        let used = Used::of(vec![30..40, 3..5, 7..7, 4..8, 40..41, 20..22]);
        assert_eq!(used.ranges(), [3..8, 20..22, 30..41]);
        assert_eq!(used.len(), 18);
        for mut near in 0..4 {
            let mut moved = |place| used.moved(place, &mut near);
            // In order and against it.
            assert_eq!(
                [3, 7, 20, 30, 40].map(&mut moved),
                [0, 4, 5, 7, 17].map(Some)
            );
            assert_eq!([40, 21, 7, 3].map(&mut moved), [17, 6, 4, 0].map(Some));
            assert_eq!([2, 8, 19, 22, 41].map(&mut moved), [None; 5]);
        }
        assert_eq!(Used::of(Vec::new()).moved(0, &mut 0), None);
    }
}
