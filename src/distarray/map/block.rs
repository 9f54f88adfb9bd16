//! Blocks: each rank owns one interval.
//!
//! Comes in: the cuts between the ranks and the padding of each. Goes out: which rank owns an index, and where. Even cuts cost one multiplication, others a search in the axis.
//! Never here: rules of versions.

use crate::distarray::map::Place;
use crate::distarray::map::reciprocal::Divisor;
use crate::grid::Axis;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Blocks {
    /// What each rank owns.
    pub(super) cuts: Axis,
    /// "padding" of each rank; empty where it is stated nowhere.
    pub(super) padding: Vec<[u64; 2]>,
    /// Widths of communication padding of each rank; empty where all are 0.
    pub(super) halos: Vec<[u64; 2]>,
    pub(super) periodic: Option<bool>,
    /// The outer halos repeat the other end.
    pub(super) wraps: bool,
    search: Search,
}

/// How the rank of an index is found.
#[derive(Debug, Clone, PartialEq)]
enum Search {
    /// All blocks are equally long, except that the last one that has elements may be shorter and those after it are empty.
    Even(Divisor),
    /// The first `count` blocks, which end at `border`, are longer than the others.
    Two {
        longer: Divisor,
        shorter: Divisor,
        count: u64,
        border: u64,
    },
    /// Anything else.
    Cuts,
}

impl Blocks {
    pub(super) fn new(cuts: Axis, wraps: bool) -> Self {
        Self {
            search: Search::of(&cuts),
            cuts,
            padding: Vec::new(),
            halos: Vec::new(),
            periodic: None,
            wraps,
        }
    }

    /// Widths of communication padding of a rank.
    pub(super) fn halo(&self, rank: usize) -> [u64; 2] {
        self.halos.get(rank).copied().unwrap_or_default()
    }

    pub(super) fn locate(&self, index: u64) -> Option<Place> {
        if index >= self.cuts.extent() {
            return None;
        }
        let (rank, owned) = match &self.search {
            Search::Even(length) => places(length.divide(index)),
            Search::Two { .. } | Search::Cuts => {
                let (rank, owned) = self.cuts.locate(index)?;
                (rank, local(owned))
            }
        };
        let [left, _] = self.halo(rank);
        Some(Place {
            rank,
            local: owned + local(left),
        })
    }

    /// The global index of an element of the buffer of a rank, halo included.
    pub(super) fn global(&self, rank: usize, local: usize) -> Option<i64> {
        let owned = self.cuts.interval(rank)?;
        let [left, right] = self.halo(rank);
        let local = u64::try_from(local).ok()?;
        let length = (owned.end - owned.start).checked_add(left)?;
        if local >= length.checked_add(right)? {
            return None;
        }
        let size = self.cuts.extent();
        let index = match (
            owned.start.checked_add(local)?.checked_sub(left),
            self.wraps,
        ) {
            (Some(index), true) if index >= size => index - size,
            (Some(index), _) => index,
            // Before the start, so that it goes round; a halo is never wider than what its neighbour owns.
            (None, _) => (owned.start + size).checked_add(local)?.checked_sub(left)?,
        };
        i64::try_from(index).ok()
    }

    /// Writes a place for each index; the places of indices outside mean nothing. Says whether all are inside.
    pub(super) fn locate_all(&self, indices: &[i64], places_out: &mut [Place]) -> bool {
        let all = match &self.search {
            Search::Even(length) => {
                let length = *length;
                self.fill(indices, places_out, |index| places(length.divide(index)))
            }
            Search::Two {
                longer,
                shorter,
                count,
                border,
            } => {
                let (longer, shorter, count, border) = (*longer, *shorter, *count, *border);
                self.fill(indices, places_out, |index| {
                    let late = index >= border;
                    let divisor = if late { shorter } else { longer };
                    let offset = if late { border } else { 0 };
                    let (rank, owned) = divisor.divide(index.wrapping_sub(offset));
                    places((rank.wrapping_add(if late { count } else { 0 }), owned))
                })
            }
            Search::Cuts => self.fill(indices, places_out, |index| {
                let (rank, owned) = self.cuts.locate(index).unwrap_or_default();
                (rank, local(owned))
            }),
        };
        if !self.halos.is_empty() {
            for place in places_out {
                let [left, _] = self.halo(place.rank);
                place.local = place.local.wrapping_add(local(left));
            }
        }
        all
    }

    #[inline(always)]
    fn fill(
        &self,
        indices: &[i64],
        places_out: &mut [Place],
        locate: impl Fn(u64) -> (usize, usize),
    ) -> bool {
        let extent = self.cuts.extent();
        let mut inside = true;
        for (index, place) in indices.iter().zip(places_out) {
            let index = index.cast_unsigned();
            inside &= index < extent;
            let (rank, local) = locate(index);
            *place = Place { rank, local };
        }
        inside
    }
}

impl Search {
    fn of(cuts: &Axis) -> Self {
        let (extent, points) = (cuts.extent(), cuts.cuts());
        let first = points.get(1).copied().unwrap_or(0);
        let even = (0_u64..)
            .zip(points)
            .all(|(rank, cut)| rank.saturating_mul(first).min(extent) == *cut);
        if even && (first > 0 || extent == 0) {
            return Self::Even(Divisor::new(first));
        }
        let lengths = || cuts.intervals().map(|each| each.end - each.start);
        let count = lengths().take_while(|length| *length == first).count();
        let rest = lengths().nth(count).unwrap_or(0);
        let two = rest > 0 && lengths().skip(count).all(|length| length == rest);
        match (two && first > 0, points.get(count)) {
            (true, Some(border)) => Self::Two {
                longer: Divisor::new(first),
                shorter: Divisor::new(rest),
                count: count as u64,
                border: *border,
            },
            _ => Self::Cuts,
        }
    }
}

#[inline(always)]
fn places((rank, owned): (u64, u64)) -> (usize, usize) {
    (local(rank), local(owned))
}

#[inline(always)]
fn local(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
