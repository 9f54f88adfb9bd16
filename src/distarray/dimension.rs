//! One entry of "dim_data": how one rank sees one dimension.
//!
//! Comes in: the values of a dictionary (DAP 0.10.0, 1.6 "Dimension Dictionaries"; 0.9.0, 6). Goes out: a [`DimData`] that says which global indices lie where in the local buffer.
//! Never here: checks of foreign values (`check/`), the other ranks (`map.rs`), data. Bounds that contradict each other give empty answers, never a panic.

use std::ops::Range;
use std::sync::Arc;

use crate::distarray::index_set::{IndexSet, Part};
use crate::distarray::version::Version;

/// How one dimension is distributed, as one rank sees it. Counts and bounds are in elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DimData {
    /// "size": the number of global elements of the whole dimension.
    pub size: u64,
    /// "proc_grid_size": how many ranks share the dimension; 1 for [`Dist::Undistributed`].
    pub proc_grid_size: u64,
    /// "proc_grid_rank": which of them this is; 0 for [`Dist::Undistributed`].
    pub proc_grid_rank: u64,
    /// "periodic", where it is stated.
    pub periodic: Option<bool>,
    /// "dist_type" and its own keys.
    pub dist: Dist,
}

/// "dist_type", with the keys that only this type has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Dist {
    /// `n`, of 0.9 only: all elements on one process.
    Undistributed {
        /// "padding", where it is stated: widths on the left and on the right.
        padding: Option<[u64; 2]>,
    },
    /// `b`: each rank has one block, of any size. A block without elements has start == stop.
    Block {
        /// "start": the first global index; of the buffer in 0.10, of what is owned in 0.9.
        start: u64,
        /// "stop": one past the last global index, likewise.
        stop: u64,
        /// "padding", where it is stated: widths on the left and on the right.
        padding: Option<[u64; 2]>,
    },
    /// `c`: blocks of equal size are dealt out to the ranks in turn.
    Cyclic {
        /// "start": the first global index that the rank owns: rank times block size, also when it owns none.
        start: u64,
        /// "block_size", where it is stated; 1 otherwise.
        block_size: Option<u64>,
    },
    /// `u`: any global indices in any order.
    Unstructured {
        /// "indices": the global index of each local element. Labels: they may be negative.
        indices: Arc<[i64]>,
        /// "one_to_one", where it is stated: no index is on two grid ranks.
        one_to_one: Option<bool>,
    },
}

impl DimData {
    /// A dimension of `size` elements on one process, as 0.10 writes it: what an empty dictionary stands for (0.10.0, 1.6.3).
    #[must_use]
    pub fn whole(size: u64) -> Self {
        Self {
            size,
            proc_grid_size: 1,
            proc_grid_rank: 0,
            periodic: None,
            dist: Dist::Block {
                start: 0,
                stop: size,
                padding: None,
            },
        }
    }

    /// "dist_type".
    #[must_use]
    pub fn dist_type(&self) -> &'static str {
        match self.dist {
            Dist::Undistributed { .. } => "n",
            Dist::Block { .. } => "b",
            Dist::Cyclic { .. } => "c",
            Dist::Unstructured { .. } => "u",
        }
    }

    /// "padding", where it is stated.
    #[must_use]
    pub fn padding(&self) -> Option<[u64; 2]> {
        match self.dist {
            Dist::Undistributed { padding } | Dist::Block { padding, .. } => padding,
            Dist::Cyclic { .. } | Dist::Unstructured { .. } => None,
        }
    }

    /// The widths of communication padding on the left and on the right: elements of the buffer that other ranks own. The rest of "padding" is boundary padding, which counts as owned.
    #[must_use]
    pub fn communication(&self, version: Version) -> [u64; 2] {
        let [left, right] = self.padding().unwrap_or_default();
        let wraps = version.rules().periodic_wraps && self.periodic == Some(true);
        let first = self.proc_grid_rank == 0;
        let last = self.proc_grid_rank.saturating_add(1) >= self.proc_grid_size;
        [
            if wraps || !first { left } else { 0 },
            if wraps || !last { right } else { 0 },
        ]
    }

    /// The global indices that a block or an undistributed dimension owns; `None` for the other types.
    #[must_use]
    pub fn owned_range(&self, version: Version) -> Option<Range<u64>> {
        let [left, right] = self.communication(version);
        match self.dist {
            Dist::Undistributed { .. } => Some(0..self.size),
            Dist::Block { start, stop, .. } if version.rules().bounds_hold_halo => {
                let start = start.saturating_add(left);
                Some(start..stop.saturating_sub(right).max(start))
            }
            Dist::Block { start, stop, .. } => Some(start..stop.max(start)),
            Dist::Cyclic { .. } | Dist::Unstructured { .. } => None,
        }
    }

    /// The number of elements that the rank owns along this dimension.
    #[must_use]
    pub fn num_owned(&self, version: Version) -> u64 {
        match &self.dist {
            Dist::Cyclic { block_size, .. } => {
                let grid = (self.proc_grid_size, self.proc_grid_rank);
                cyclic_len(self.size, grid, block_size.unwrap_or(1))
            }
            Dist::Unstructured { indices, .. } => indices.len() as u64,
            Dist::Undistributed { .. } | Dist::Block { .. } => {
                let range = self.owned_range(version).unwrap_or_default();
                range.end - range.start
            }
        }
    }

    /// The extent of the local buffer along this dimension, halo included.
    #[must_use]
    pub fn local_len(&self, version: Version) -> u64 {
        let [left, right] = self.communication(version);
        let owned = self.num_owned(version);
        owned.saturating_add(left).saturating_add(right)
    }

    /// The elements that the rank owns: their global indices, and where in the local buffer the first of them lies. The others follow one by one.
    #[must_use]
    pub fn owned(&self, version: Version) -> Part {
        let [left, _] = self.communication(version);
        let indices = match &self.dist {
            Dist::Cyclic { block_size, .. } => {
                let block = block_size.unwrap_or(1);
                let grid = (self.proc_grid_size, self.proc_grid_rank);
                cyclic_set(self.size, grid, block)
            }
            Dist::Unstructured { indices, .. } => IndexSet::List(Arc::clone(indices)),
            Dist::Undistributed { .. } | Dist::Block { .. } => {
                let range = self.owned_range(version).unwrap_or_default();
                IndexSet::interval(range)
            }
        };
        Part {
            local: usize::try_from(left).unwrap_or(usize::MAX),
            indices,
        }
    }

    /// All elements of the local buffer that stand for a global element, owned or halo: one part, or up to three where the halo of a periodic dimension of 0.9 goes round the end.
    #[must_use]
    pub fn held(&self, version: Version) -> Vec<Part> {
        match self.owned_range(version) {
            Some(owned) => {
                let wraps = version.rules().periodic_wraps && self.periodic == Some(true);
                held_parts(self.size, owned, self.communication(version), wraps)
            }
            None => vec![self.owned(version)],
        }
    }
}

/// How many of `size` indices rank `rank` of `ranks` owns when blocks of `block_size` are dealt out in turn. The last block may be shorter, whoever gets it.
pub(super) fn cyclic_len(size: u64, (ranks, rank): (u64, u64), block_size: u64) -> u64 {
    let (ranks, block_size) = (ranks.max(1), block_size.max(1));
    let (num_full, rest) = (size / block_size, size % block_size);
    let rounds = (num_full / ranks) * block_size;
    let of_last_round = match rank.cmp(&(num_full % ranks)) {
        std::cmp::Ordering::Less => block_size,
        std::cmp::Ordering::Equal => rest,
        std::cmp::Ordering::Greater => 0,
    };
    rounds + of_last_round
}

/// The global indices of a rank of a cyclic dimension.
pub(super) fn cyclic_set(size: u64, (ranks, rank): (u64, u64), block_size: u64) -> IndexSet {
    let (ranks, block_size) = (ranks.max(1), block_size.max(1));
    match rank.checked_mul(block_size) {
        Some(start) if start < size => {
            let period = block_size.saturating_mul(ranks);
            IndexSet::progression(start..size, block_size, period)
        }
        _ => IndexSet::interval(0..0),
    }
}

/// The parts of a buffer that holds `owned` and halos of the widths `[left, right]` beside it. With `wraps`, the halo goes round the end of a dimension of `size`;
/// of one that goes round more than once only the innermost `size` elements count.
pub(super) fn held_parts(
    size: u64,
    owned: Range<u64>,
    [left, right]: [u64; 2],
    wraps: bool,
) -> Vec<Part> {
    let local = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    if !wraps {
        let start = owned.start.saturating_sub(left);
        return vec![Part {
            local: local(left - (owned.start - start)),
            indices: IndexSet::interval(start..owned.end.saturating_add(right).min(size)),
        }];
    }
    let (near_left, near_right) = (left.min(size), right.min(size));
    let skipped = left - near_left;
    let round_left = near_left.saturating_sub(owned.start);
    let round_right = owned.end.saturating_add(near_right).saturating_sub(size);
    let middle =
        owned.start.saturating_sub(near_left)..owned.end.saturating_add(near_right).min(size);
    let after = skipped + round_left + (middle.end - middle.start.min(middle.end));
    let parts = [
        (skipped, size - round_left.min(size)..size),
        (skipped + round_left, middle),
        (after, 0..round_right),
    ];
    parts
        .into_iter()
        .filter(|(_, range)| !range.is_empty())
        .map(|(at, range)| Part {
            local: local(at),
            indices: IndexSet::interval(range),
        })
        .collect()
}
