//! One dimension of a plan.
//!
//! Comes in: the maps of source and destination. Goes out: the pairs of grid ranks that share elements, and for one pair where the elements lie in both buffers, worked out when asked for.
//! Never here: several dimensions, bytes.

use std::ops::Range;

use crate::distarray::index_set::{IndexSet, Part};
use crate::distarray::map::Map;
use crate::distarray::redistribute::comb::Comb;
use crate::distarray::redistribute::intersect::intersect;
use crate::distarray::redistribute::links::Links;
use crate::error::Result;

/// Which elements of the destination buffers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All.
    Held,
    /// Those that the rank owns.
    Owned,
    /// All others.
    Halo,
}

impl Wanted {
    /// The wanted elements of the buffer of a rank.
    pub(super) fn parts(self, map: &Map, rank: usize) -> Vec<Part> {
        match self {
            Self::Held => map.held(rank).unwrap_or_default(),
            Self::Owned => map.owned(rank).into_iter().collect(),
            Self::Halo => {
                let held = map.held(rank).unwrap_or_default();
                let owned = map.owned(rank);
                let owned = owned.map_or(0..0, |part| part.local..part.local + part.indices.len());
                held.iter().flat_map(|part| outside(part, &owned)).collect()
            }
        }
    }
}

/// What of a part lies left and right of a range of local indices. Only intervals have a halo; others lie wholly inside.
fn outside(part: &Part, owned: &Range<usize>) -> Vec<Part> {
    let IndexSet::Interval(range) = &part.indices else {
        return Vec::new();
    };
    let (start, stop) = (part.local, part.local + part.indices.len());
    let sides = [
        start..stop.min(owned.start.max(start)),
        start.max(owned.end.min(stop))..stop,
    ];
    let part = |side: Range<usize>| {
        let index = |local: usize| range.start.saturating_add_unsigned((local - start) as u64);
        Part {
            local: side.start,
            indices: IndexSet::Interval(index(side.start)..index(side.end)),
        }
    };
    sides
        .into_iter()
        .filter(|side| !side.is_empty())
        .map(part)
        .collect()
}

#[derive(Debug, Clone)]
pub(super) struct Dimension {
    wanted: Wanted,
    pub(super) links: Links,
}

impl Dimension {
    /// # Errors
    /// As of [`Links::try_new`].
    pub(super) fn try_new(from: &Map, to: &Map, wanted: Wanted) -> Result<Self> {
        Ok(Self {
            links: Links::try_new(from, to, wanted)?,
            wanted,
        })
    }

    /// Where the elements lie that two grid ranks of the maps share, which are those of the dimension.
    pub(super) fn combs(
        &self,
        (from_map, from): (&Map, usize),
        (to_map, to): (&Map, usize),
    ) -> Vec<Comb> {
        if let Some(listed) = self.links.listed_combs(from, to) {
            return listed;
        }
        let mut combs = Vec::new();
        if let Some(owned) = from_map.owned(from) {
            for part in self.wanted.parts(to_map, to) {
                intersect(&owned, &part, &mut combs);
            }
        }
        combs
    }
}
