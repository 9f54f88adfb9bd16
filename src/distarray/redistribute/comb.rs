//! Elements along one dimension of two buffers: runs of equal length at equal distances.
//!
//! Comes in: places and lengths. Goes out: [`Comb`]s, parts of them, and their places in a message that holds nothing else. Never here: global indices, bytes.

use std::ops::Range;

/// `count` runs of `len` neighbouring elements in two buffers along one dimension. All numbers are in elements of the local buffers, halo included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comb {
    /// The first element in the source.
    pub from: usize,
    /// The first element in the destination.
    pub to: usize,
    /// Elements of each run; at least 1.
    pub len: usize,
    /// Number of runs; at least 1.
    pub count: usize,
    /// From the start of one run to the start of the next in the source; 0 for a single run.
    pub from_step: usize,
    /// The same in the destination.
    pub to_step: usize,
}

impl Comb {
    /// One run.
    #[must_use]
    pub fn run(from: usize, to: usize, len: usize) -> Self {
        Self {
            from,
            to,
            len,
            count: 1,
            from_step: 0,
            to_step: 0,
        }
    }

    /// Elements of all runs.
    #[must_use]
    pub fn num_elements(&self) -> usize {
        self.len.saturating_mul(self.count)
    }

    /// `runs` of the runs, from number `first` on.
    fn part(&self, first: usize, runs: usize) -> Self {
        let single = runs == 1;
        Self {
            from: self.from + first * self.from_step,
            to: self.to + first * self.to_step,
            len: self.len,
            count: runs,
            from_step: if single { 0 } else { self.from_step },
            to_step: if single { 0 } else { self.to_step },
        }
    }

    /// `len` elements of run number `number`, from its element `skipped` on.
    fn within(&self, number: usize, skipped: usize, len: usize) -> Self {
        let run = self.part(number, 1);
        Self::run(run.from + skipped, run.to + skipped, len)
    }

    /// Adds the elements whose numbers within the comb are in `range` to `parts`.
    fn cut(&self, range: Range<usize>, parts: &mut Vec<Self>) {
        let (mut at, stop) = (range.start, range.end.min(self.num_elements()));
        while at < stop {
            let (number, skipped) = (at / self.len, at % self.len);
            let whole = (stop - at) / self.len;
            let part = if skipped > 0 || whole == 0 {
                self.within(number, skipped, (self.len - skipped).min(stop - at))
            } else {
                self.part(number, whole)
            };
            at += part.num_elements();
            parts.push(part);
        }
    }
}

/// Elements of all combs.
pub(super) fn num_elements(combs: &[Comb]) -> usize {
    combs
        .iter()
        .fold(0, |sum, comb| sum.saturating_add(comb.num_elements()))
}

/// The elements whose numbers, counted over all combs in their order, are in `range`.
pub(super) fn cut(combs: &[Comb], range: &Range<usize>) -> Vec<Comb> {
    let mut parts = Vec::new();
    let mut before = 0;
    for comb in combs {
        let start = range.start.saturating_sub(before);
        let stop = range.end.saturating_sub(before);
        comb.cut(start..stop, &mut parts);
        before += comb.num_elements();
    }
    parts
}
/// The same sources, one after the other in the destination.
pub(super) fn packed(combs: &[Comb]) -> Vec<Comb> {
    let mut before = 0;
    let place = |comb: &Comb| {
        let to = before;
        before += comb.num_elements();
        let to_step = if comb.count == 1 { 0 } else { comb.len };
        Comb {
            to,
            to_step,
            ..*comb
        }
    };
    combs.iter().map(place).collect()
}

/// The same destinations, out of sources that lie one after the other.
pub(super) fn unpacked(combs: &[Comb]) -> Vec<Comb> {
    let swapped: Vec<Comb> = combs.iter().map(swap).collect();
    packed(&swapped).iter().map(swap).collect()
}

fn swap(comb: &Comb) -> Comb {
    Comb {
        from: comb.to,
        to: comb.from,
        from_step: comb.to_step,
        to_step: comb.from_step,
        ..*comb
    }
}
