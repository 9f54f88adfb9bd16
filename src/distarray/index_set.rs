//! Sets of global indices of one dimension, in the order in which a buffer holds them.
//!
//! Comes in: bounds, a block-cyclic progression, or a list. Goes out: an [`IndexSet`]: how many, which is at a place, where is one, and its runs of neighbours. Never here: ranks; data.

use std::ops::Range;
use std::sync::Arc;

/// Global indices of one dimension in the order of the buffer. Indices are `i64`, since those of an unstructured dimension are labels that may be negative; places are local, from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexSet {
    /// All from start to stop.
    Interval(Range<i64>),
    /// Blocks of equal length at equal distances.
    Progression(Progression),
    /// Any, in any order.
    List(Arc<[i64]>),
}

/// Blocks of `block_size` indices, one every `period`, from the first index of the range to its end, where the last block may be cut short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progression {
    /// Never negative; only `IndexSet::progression` makes it.
    range: Range<i64>,
    /// At least 1, less than `period`.
    block_size: i64,
    period: i64,
}

/// Neighbours in global indices that are neighbours in the buffer too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The place of the first within the set.
    pub place: usize,
    /// The first global index.
    pub start: i64,
    /// How many there are; never 0.
    pub len: usize,
}

/// Global indices that lie one after the other in a local buffer, along one dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The local index of the first, counted from the start of the buffer, halo included.
    pub local: usize,
    /// The global indices, in the order of the buffer.
    pub indices: IndexSet,
}

impl IndexSet {
    /// All indices of a range.
    #[must_use]
    pub fn interval(range: Range<u64>) -> Self {
        Self::Interval(signed(range.start)..signed(range.end.max(range.start)))
    }

    /// Blocks of `block_size` indices, one every `period`, within a range. Comes as an interval where it is one. A block size or period of 0 counts as 1.
    #[must_use]
    pub fn progression(range: Range<u64>, block_size: u64, period: u64) -> Self {
        let block_size = block_size.max(1);
        let length = range.end.saturating_sub(range.start);
        if length <= block_size || period <= block_size {
            return Self::interval(range);
        }
        if length <= period {
            return Self::interval(range.start..range.start + block_size);
        }
        Self::Progression(Progression {
            range: signed(range.start)..signed(range.end),
            block_size: signed(block_size),
            period: signed(period),
        })
    }

    /// How many indices there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Interval(range) => distance(range),
            Self::Progression(progression) => progression.len(),
            Self::List(list) => list.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index at a place; `None` past the last.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<i64> {
        match self {
            Self::Interval(range) => {
                let index = range.start.checked_add(i64::try_from(place).ok()?)?;
                (index < range.end).then_some(index)
            }
            Self::Progression(progression) => progression.get(place),
            Self::List(list) => list.get(place).copied(),
        }
    }

    /// The place of an index; `None` when it is not in the set. Takes time in proportion to the length of a list, and is immediate for the others.
    #[must_use]
    pub fn place(&self, index: i64) -> Option<usize> {
        match self {
            Self::Interval(range) if range.contains(&index) => {
                Some(distance(&(range.start..index)))
            }
            Self::Interval(_) => None,
            Self::Progression(progression) => progression.place(index),
            Self::List(list) => list.iter().position(|known| *known == index),
        }
    }

    /// All indices in the order of the buffer.
    pub fn iter(&self) -> impl Iterator<Item = i64> + '_ {
        self.runs()
            .flat_map(|run| (0..run.len as u64).map(move |at| run.start.wrapping_add_unsigned(at)))
    }

    /// The indices as runs of neighbours, as long as they can be.
    #[must_use]
    pub fn runs(&self) -> Runs<'_> {
        Runs {
            set: self,
            place: 0,
        }
    }
}

impl Progression {
    /// From the first index to the end that no index passes.
    #[must_use]
    pub fn range(&self) -> Range<i64> {
        self.range.clone()
    }

    /// The length of a block.
    #[must_use]
    pub fn block_size(&self) -> i64 {
        self.block_size
    }

    /// From the start of one block to the start of the next.
    #[must_use]
    pub fn period(&self) -> i64 {
        self.period
    }

    fn len(&self) -> usize {
        let length = self.range.end - self.range.start;
        let whole = (length / self.period) * self.block_size;
        let count = whole + (length % self.period).min(self.block_size);
        usize::try_from(count).unwrap_or(0)
    }

    fn get(&self, place: usize) -> Option<i64> {
        let place = i64::try_from(place).ok()?;
        let blocks = (place / self.block_size).checked_mul(self.period)?;
        let index = self.range.start.checked_add(blocks)?;
        let index = index.checked_add(place % self.block_size)?;
        (index < self.range.end).then_some(index)
    }

    fn place(&self, index: i64) -> Option<usize> {
        if !self.range.contains(&index) {
            return None;
        }
        let distance = index - self.range.start;
        let (block, within) = (distance / self.period, distance % self.period);
        let inside = within < self.block_size;
        usize::try_from(block * self.block_size + within)
            .ok()
            .filter(|_| inside)
    }
}

/// The runs of a set; see [`IndexSet::runs`].
#[derive(Debug, Clone)]
pub struct Runs<'a> {
    set: &'a IndexSet,
    /// The place after the last run.
    place: usize,
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let place = self.place;
        let start = self.set.get(place)?;
        let len = match self.set {
            IndexSet::Interval(range) => distance(&(start..range.end)),
            IndexSet::Progression(progression) => {
                let stop = start.saturating_add(progression.block_size);
                distance(&(start..stop.min(progression.range.end)))
            }
            IndexSet::List(list) => {
                let rest = list.get(place..).unwrap_or_default();
                let follows = |pair: &&[i64]| matches!(pair, [one, next] if one.checked_add(1) == Some(*next));
                1 + rest.windows(2).take_while(follows).count()
            }
        };
        self.place = place + len;
        Some(Run { place, start, len })
    }
}

/// Global counts fit 63 bits; what does not is beyond every buffer.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn distance(range: &Range<i64>) -> usize {
    let length = range.end.saturating_sub(range.start);
    usize::try_from(length).unwrap_or(0)
}
