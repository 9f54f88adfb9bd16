//! Byte ranges that are wanted -> requests.
//!
//! Comes in: the ranges of column chunks. Goes out: fewer and larger ranges to ask a store for, with at most a tenth more bytes than are wanted, none too large for one
//! request. Pure. Never here: IO.

use std::ops::Range;

/// The most bytes that one request asks for, so that it ends well within its timeout.
const REQUEST_BYTES: u64 = 16 << 20;

/// Bytes that nobody wants may be read to save a request, up to this part of those that are wanted.
const WASTED_PART: u64 = 10;

/// The requests that together hold all ranges, which must be sorted and must not overlap.
pub(super) fn requests(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let wanted: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let mut gaps: Vec<(u64, usize)> = ranges
        .windows(2)
        .enumerate()
        .filter_map(|(place, pair)| {
            let [left, right] = pair else { return None };
            Some((right.start.saturating_sub(left.end), place))
        })
        .collect();
    // The smallest gaps save a request for the fewest bytes.
    gaps.sort_unstable();
    let mut joined = vec![false; ranges.len()];
    let mut wasted = 0;
    for (gap, place) in gaps {
        wasted += gap;
        if wasted > wanted / WASTED_PART {
            break;
        }
        if let Some(join) = joined.get_mut(place) {
            *join = true;
        }
    }
    let mut runs: Vec<Range<u64>> = Vec::new();
    let mut goes_on = false;
    for (range, join) in ranges.iter().zip(joined) {
        match runs.last_mut() {
            Some(run) if goes_on => run.end = range.end,
            _ => runs.push(range.clone()),
        }
        goes_on = join;
    }
    runs.into_iter().flat_map(pieces).collect()
}

fn pieces(run: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let count = (run.end - run.start).div_ceil(REQUEST_BYTES).max(1);
    let length = (run.end - run.start).div_ceil(count);
    (0..count).map(move |number| {
        let start = run.start + number * length;
        start..(start + length).min(run.end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn requests_hold_every_range_and_little_else(
            parts in prop::collection::vec((0_u64..100_000, 1_u64..40_000_000), 1..40),
        ) {
            let mut end = 4;
            let ranges: Vec<Range<u64>> = parts
                .into_iter()
                .map(|(gap, length)| {
                    let start = end + gap;
                    end = start + length;
                    start..end
                })
                .collect();
            let requests = requests(&ranges);
            let size = |ranges: &[Range<u64>]| ranges.iter().map(|range| range.end - range.start).sum::<u64>();
            prop_assert!(size(&requests) <= size(&ranges) + size(&ranges) / WASTED_PART);
            prop_assert!(requests.iter().all(|request| request.end - request.start <= REQUEST_BYTES));
            prop_assert!(requests.windows(2).all(|pair| pair[0].end <= pair[1].start));
            for range in &ranges {
                let covered: u64 = requests
                    .iter()
                    .map(|request| request.end.min(range.end).saturating_sub(request.start.max(range.start)))
                    .sum();
                prop_assert_eq!(covered, range.end - range.start);
            }
        }
    }

    #[test]
    fn near_ranges_are_joined_and_far_ones_are_not() {
        let ranges = [0..1_000, 1_010..2_000, 900_000..901_000];
        assert_eq!(requests(&ranges), [0..2_000, 900_000..901_000]);
        assert!(requests(&[]).is_empty());
    }
}
