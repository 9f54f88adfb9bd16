//! One dimension of a grid: its cut points, and the arithmetic between global indices and intervals.
//!
//! Comes in: cut points or interval lengths. Goes out: an [`Axis`] that answers which interval holds an index, and where. This is the only file in which such
//! arithmetic is written. Never here: data, tiles, more than one dimension.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};

/// The cut points of one dimension: they start at 0, never decrease, and end with the extent. Two neighbours bound one half-open interval; equal neighbours
/// bound an empty one. Costs 8 bytes for each cut, shared by clones.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Axis {
    /// At least two values; only `try_new` makes them.
    cuts: Arc<[u64]>,
}

impl Axis {
    /// An axis with the given cut points.
    ///
    /// # Errors
    /// `InvalidArgument` unless there are at least two cuts, the first is 0 and none is less than the one before it.
    pub fn try_new(cuts: impl Into<Arc<[u64]>>) -> Result<Self> {
        let cuts = cuts.into();
        let rising = cuts.is_sorted();
        if cuts.len() < 2 || cuts.first() != Some(&0) || !rising {
            return Err(Error::invalid_argument(format!(
                "cut points must be at least two, start at 0 and not decrease, got {}",
                shortened(&cuts)
            )));
        }
        Ok(Self { cuts })
    }

    /// An axis of one interval.
    #[must_use]
    pub fn uncut(extent: u64) -> Self {
        Self {
            cuts: Arc::new([0, extent]),
        }
    }

    /// An axis whose intervals have the given lengths, in order.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no length, or when their sum does not fit 64 bits.
    pub fn try_from_lengths(lengths: impl IntoIterator<Item = u64>) -> Result<Self> {
        let mut cuts = vec![0_u64];
        let mut end = 0_u64;
        for length in lengths {
            end = end.checked_add(length).ok_or_else(|| {
                Error::invalid_argument("interval lengths must add up to less than 2^64")
            })?;
            cuts.push(end);
        }
        Self::try_new(cuts)
    }

    /// An axis of `num_intervals` intervals whose lengths differ by at most one, the longer ones first.
    ///
    /// # Errors
    /// `InvalidArgument` when `num_intervals` is 0.
    pub fn try_even(extent: u64, num_intervals: usize) -> Result<Self> {
        let count = u64::try_from(num_intervals).unwrap_or(u64::MAX);
        if count == 0 {
            return Err(Error::invalid_argument(
                "an axis needs at least one interval, got 0",
            ));
        }
        let (short, longer) = (extent / count, extent % count);
        Self::try_from_lengths((0..count).map(|place| short + u64::from(place < longer)))
    }

    /// The axis without empty intervals and with the longest ones halved until there are `num_intervals`, or until every interval has one index. An axis without indices keeps one interval.
    #[must_use]
    pub fn refined(&self, num_intervals: usize) -> Self {
        let filled = self.intervals().filter(|interval| !interval.is_empty());
        // The longest first; of equal ones the first.
        let mut parts: BinaryHeap<(u64, Reverse<u64>)> = filled
            .map(|interval| (interval.end - interval.start, Reverse(interval.start)))
            .collect();
        while parts.len() < num_intervals {
            let Some((length, Reverse(start))) = parts.peek().copied() else {
                break;
            };
            let half = length.div_ceil(2);
            if half == length {
                break;
            }
            parts.pop();
            parts.push((half, Reverse(start)));
            parts.push((length - half, Reverse(start + half)));
        }
        let mut cuts: Vec<u64> = parts.iter().map(|(_, Reverse(start))| *start).collect();
        cuts.sort_unstable();
        if cuts.is_empty() {
            cuts.push(0);
        }
        cuts.push(self.extent());
        Self { cuts: cuts.into() }
    }

    /// The cut points: one more than there are intervals.
    #[must_use]
    pub fn cuts(&self) -> &[u64] {
        &self.cuts
    }

    /// How many intervals there are, empty ones included.
    #[must_use]
    pub fn num_intervals(&self) -> usize {
        self.cuts.len() - 1
    }

    /// How many indices there are.
    #[must_use]
    pub fn extent(&self) -> u64 {
        self.cuts.last().copied().unwrap_or(0)
    }

    /// The global indices of interval number `interval`, or `None` past the last.
    #[must_use]
    pub fn interval(&self, interval: usize) -> Option<Range<u64>> {
        match self.cuts.get(interval..=interval.checked_add(1)?)? {
            [start, stop] => Some(*start..*stop),
            _ => None,
        }
    }

    /// All intervals in order.
    #[must_use]
    pub fn intervals(&self) -> impl ExactSizeIterator<Item = Range<u64>> + '_ {
        (0..self.num_intervals()).map(|interval| self.interval(interval).unwrap_or(0..0))
    }

    /// The interval that holds a global index, and the index within it; `None` past the end.
    #[must_use]
    pub fn locate(&self, index: u64) -> Option<(usize, u64)> {
        let interval = self
            .cuts
            .partition_point(|cut| *cut <= index)
            .checked_sub(1)?;
        let range = self.interval(interval)?;
        Some((interval, index - range.start))
    }

    /// The global index of index `local` within an interval; `None` when either is past its end.
    #[must_use]
    pub fn global(&self, interval: usize, local: u64) -> Option<u64> {
        let range = self.interval(interval)?;
        let index = range.start.checked_add(local)?;
        (index < range.end).then_some(index)
    }

    /// The intervals that hold at least one index of `range`, without the empty ones at either end.
    #[must_use]
    pub fn overlapping(&self, range: Range<u64>) -> Range<usize> {
        let stop = range.end.min(self.extent());
        if range.start >= stop {
            return 0..0;
        }
        let first = self.locate(range.start).map_or(0, |(interval, _)| interval);
        let last = self
            .locate(stop - 1)
            .map_or(first, |(interval, _)| interval);
        first..last + 1
    }
}

/// The cuts as text, at most the first eight.
fn shortened(cuts: &[u64]) -> String {
    let shown: Vec<String> = cuts.iter().take(8).map(ToString::to_string).collect();
    let more = if cuts.len() > 8 { ", …" } else { "" };
    format!("[{}{more}]", shown.join(", "))
}
