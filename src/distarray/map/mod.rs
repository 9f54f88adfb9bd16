//! One dimension as all its ranks share it: global index -> rank and local index, and back.
//!
//! Comes in: cuts, sizes, index lists, or the dictionaries of all grid ranks. Goes out: a [`Map`]. Blocks with even cuts and cyclic dimensions cost no search and no table; other
//! blocks a search among the ranks; unstructured ones a table of all indices. A local index counts from the start of the local buffer: where a buffer has communication padding on the left,
//! the first element that the rank owns has the local index of that width. Never here: several dimensions (`distribution.rs`), data.

mod block;
mod cyclic;
mod dictionaries;
mod halo;
mod reciprocal;
mod unstructured;

use std::sync::Arc;

use crate::distarray::dimension::{DimData, Dist, cyclic_len, cyclic_set, held_parts};
use crate::distarray::index_set::{IndexSet, Part};
use crate::distarray::version::Version;
use crate::error::{Error, Result};
use crate::grid::Axis;

use self::block::Blocks;
use self::cyclic::Cyclic;
pub use self::halo::Halo;
use self::unstructured::Unstructured;

/// Where an element is along one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The grid rank that owns it.
    pub rank: usize,
    /// Its index within the local buffer of that rank, halo included.
    pub local: usize,
}

/// One dimension over all its grid ranks. Cheap to ask, never changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Block(Blocks),
    Cyclic(Cyclic),
    Unstructured(Unstructured),
}

impl Map {
    /// Blocks without padding: each interval of the axis is what one rank owns.
    #[must_use]
    pub fn block(cuts: &Axis) -> Self {
        Self {
            kind: Kind::Block(Blocks::new(cuts.clone(), false)),
        }
    }

    /// Blocks with padding, as 0.10 means it: each interval of the axis is what one rank owns, outer padding included; inner padding comes on top of it.
    /// One pair of widths, left and right, for each rank.
    ///
    /// # Errors
    /// `InvalidArgument` unless there is a pair for each rank; `Protocol` when the widths at a border differ, are more than the neighbour owns, or more than there is room for.
    pub fn try_padded(cuts: &Axis, padding: &[[u64; 2]], periodic: bool) -> Result<Self> {
        if padding.len() != cuts.num_intervals() {
            return Err(Error::invalid_argument(format!(
                "padding must have one pair of widths for each of the {} ranks, got {}",
                cuts.num_intervals(),
                padding.len()
            )));
        }
        let ranks: Vec<DimData> = (0_u64..)
            .zip(cuts.intervals().zip(padding))
            .map(|(rank, (owned, [left, right]))| {
                let before = if rank == 0 { 0 } else { *left };
                let last = rank + 1 == padding.len() as u64;
                let after = if last { 0 } else { *right };
                DimData {
                    size: cuts.extent(),
                    proc_grid_size: padding.len() as u64,
                    proc_grid_rank: rank,
                    periodic: periodic.then_some(true),
                    dist: Dist::Block {
                        start: owned.start.saturating_sub(before),
                        stop: owned.end.saturating_add(after),
                        padding: Some([*left, *right]),
                    },
                }
            })
            .collect();
        Self::try_from_dim_data(&ranks, Version::V0_10)
    }

    /// Blocks of `block_size` indices dealt out to the ranks in turn; 1 is the plain cyclic distribution.
    ///
    /// # Errors
    /// `InvalidArgument` for no rank, a block size of 0, or a size of 2^63 or more.
    pub fn try_cyclic(size: u64, num_ranks: usize, block_size: u64) -> Result<Self> {
        if num_ranks == 0 || block_size == 0 || i64::try_from(size).is_err() {
            return Err(Error::invalid_argument(format!(
                "a cyclic dimension wants at least 1 rank, a block size of at least 1 and a size below 2^63, got {num_ranks} ranks, {block_size} and {size}"
            )));
        }
        let stated = (block_size != 1).then_some(block_size);
        Ok(Self {
            kind: Kind::Cyclic(Cyclic::new(size, num_ranks as u64, stated)),
        })
    }

    /// The given indices on each rank. `size` is how many there are, or how many different ones.
    ///
    /// # Errors
    /// `InvalidArgument` for no rank; `Protocol` for an index that is twice on one rank, or on two with `one_to_one`, and for another size.
    pub fn try_unstructured(size: u64, indices: Vec<Arc<[i64]>>, one_to_one: bool) -> Result<Self> {
        if indices.is_empty() {
            return Err(Error::invalid_argument(
                "an unstructured dimension wants the indices of at least 1 rank, got none",
            ));
        }
        let one_to_one = one_to_one.then_some(true);
        Ok(Self {
            kind: Kind::Unstructured(Unstructured::try_new(size, indices, one_to_one)?),
        })
    }

    /// The map that the dictionaries of one dimension describe: one for each grid rank, rank 0 first.
    ///
    /// # Errors
    /// `Protocol` for the first contradiction, with the rank and the key. The validator (`check`) finds them all.
    pub fn try_from_dim_data(ranks: &[DimData], version: Version) -> Result<Self> {
        let kind = dictionaries::kind_of(ranks, version)?;
        Ok(Self { kind })
    }

    /// The number of global elements.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.kind {
            Kind::Block(blocks) => blocks.cuts.extent(),
            Kind::Cyclic(cyclic) => cyclic.size,
            Kind::Unstructured(unstructured) => unstructured.size,
        }
    }

    /// The cuts between what the ranks own, where they own blocks.
    #[must_use]
    pub fn cuts(&self) -> Option<&Axis> {
        match &self.kind {
            Kind::Block(blocks) => Some(&blocks.cuts),
            Kind::Cyclic(_) | Kind::Unstructured(_) => None,
        }
    }

    /// The number of grid ranks.
    #[must_use]
    pub fn num_ranks(&self) -> usize {
        match &self.kind {
            Kind::Block(blocks) => blocks.cuts.num_intervals(),
            Kind::Cyclic(cyclic) => usize::try_from(cyclic.num_ranks()).unwrap_or(usize::MAX),
            Kind::Unstructured(unstructured) => unstructured.ranks.len(),
        }
    }

    /// Where a global index is owned; `None` when it is not in the array. Of an index on several ranks, the first of them.
    #[must_use]
    pub fn locate(&self, index: i64) -> Option<Place> {
        match &self.kind {
            Kind::Block(blocks) => blocks.locate(u64::try_from(index).ok()?),
            Kind::Cyclic(cyclic) => cyclic.locate(u64::try_from(index).ok()?),
            Kind::Unstructured(unstructured) => unstructured.locate(index),
        }
    }

    /// All places where a global index is owned: more than one only in an unstructured dimension that is not one to one.
    #[must_use]
    pub fn owners(&self, index: i64) -> Vec<Place> {
        match &self.kind {
            Kind::Unstructured(unstructured) => unstructured.entries(index).collect(),
            _ => self.locate(index).into_iter().collect(),
        }
    }

    /// Where a global index is owned, on the rank `near` if that is one of several owners.
    pub(in crate::distarray) fn locate_near(&self, index: i64, near: usize) -> Option<Place> {
        match &self.kind {
            Kind::Unstructured(unstructured) => {
                let mut entries = unstructured.entries(index);
                let here = entries.clone().find(|place| place.rank == near);
                here.or_else(|| entries.next())
            }
            _ => self.locate(index),
        }
    }

    /// Whether the ranks own any indices in any order.
    #[must_use]
    pub fn is_unstructured(&self) -> bool {
        matches!(self.kind, Kind::Unstructured(_))
    }

    /// The block size, when blocks are dealt out in turn.
    pub(in crate::distarray) fn block_size(&self) -> Option<u64> {
        match &self.kind {
            Kind::Cyclic(cyclic) => Some(cyclic.block_size()),
            Kind::Block(_) | Kind::Unstructured(_) => None,
        }
    }

    /// Where each of many global indices is owned; replaces what is in `places`. The fast way for many.
    ///
    /// # Errors
    /// `InvalidArgument` that names the first index that is not in the array; `places` then means nothing.
    pub fn locate_all(&self, indices: &[i64], places: &mut Vec<Place>) -> Result<()> {
        places.resize(indices.len(), Place::default());
        let all = match &self.kind {
            Kind::Block(blocks) => blocks.locate_all(indices, places),
            Kind::Cyclic(cyclic) => cyclic.locate_all(indices, places),
            Kind::Unstructured(unstructured) => unstructured.locate_all(indices, places),
        };
        if all {
            return Ok(());
        }
        let unknown = indices.iter().find(|index| self.locate(**index).is_none());
        Err(Error::invalid_argument(format!(
            "a global index must be in the array of {} elements, got {}",
            self.size(),
            unknown.copied().unwrap_or_default()
        )))
    }

    /// The global index of an element of a local buffer, halo included; `None` past its end, and for a rank that does not exist.
    #[must_use]
    pub fn global(&self, rank: usize, local: usize) -> Option<i64> {
        match &self.kind {
            Kind::Block(blocks) => blocks.global(rank, local),
            Kind::Cyclic(_) | Kind::Unstructured(_) => self.owned(rank)?.indices.get(local),
        }
    }

    /// The number of elements that a rank owns; `None` for a rank that does not exist.
    #[must_use]
    pub fn num_owned(&self, rank: usize) -> Option<u64> {
        match &self.kind {
            Kind::Block(blocks) => {
                let range = blocks.cuts.interval(rank)?;
                Some(range.end - range.start)
            }
            Kind::Cyclic(cyclic) => {
                let grid = (cyclic.num_ranks(), grid_rank(cyclic, rank)?);
                Some(cyclic_len(cyclic.size, grid, cyclic.block_size()))
            }
            Kind::Unstructured(unstructured) => Some(unstructured.ranks.get(rank)?.len() as u64),
        }
    }

    /// The extent of the local buffer of a rank, halo included; `None` for a rank that does not exist.
    #[must_use]
    pub fn local_len(&self, rank: usize) -> Option<u64> {
        let halo = match &self.kind {
            Kind::Block(blocks) => blocks.halo(rank),
            Kind::Cyclic(_) | Kind::Unstructured(_) => [0, 0],
        };
        let [left, right] = halo;
        self.num_owned(rank)?.checked_add(left)?.checked_add(right)
    }

    /// What a rank owns: the global indices, and the local index of the first, behind which the others follow; `None` for a rank that does not exist.
    #[must_use]
    pub fn owned(&self, rank: usize) -> Option<Part> {
        let (halo, indices) = match &self.kind {
            Kind::Block(blocks) => {
                let [left, _] = blocks.halo(rank);
                (left, IndexSet::interval(blocks.cuts.interval(rank)?))
            }
            Kind::Cyclic(cyclic) => {
                let grid = (cyclic.num_ranks(), grid_rank(cyclic, rank)?);
                (0, cyclic_set(cyclic.size, grid, cyclic.block_size()))
            }
            Kind::Unstructured(unstructured) => {
                let list = unstructured.ranks.get(rank)?;
                (0, IndexSet::List(Arc::clone(list)))
            }
        };
        Some(Part {
            local: usize::try_from(halo).unwrap_or(usize::MAX),
            indices,
        })
    }

    /// Everything in the local buffer of a rank, owned or halo: one part, or up to three in a periodic dimension of 0.9; `None` for a rank that does not exist.
    #[must_use]
    pub fn held(&self, rank: usize) -> Option<Vec<Part>> {
        match &self.kind {
            Kind::Block(blocks) => {
                let owned = blocks.cuts.interval(rank)?;
                Some(held_parts(
                    self.size(),
                    owned,
                    blocks.halo(rank),
                    blocks.wraps,
                ))
            }
            Kind::Cyclic(_) | Kind::Unstructured(_) => Some(vec![self.owned(rank)?]),
        }
    }

    /// The dictionary of a rank, in the words of a version.
    ///
    /// # Errors
    /// `NotFound` for a rank that does not exist; `Unsupported` for a periodic dimension with outer padding in the other version than the one it came from, since one counts that padding
    /// and the other does not.
    pub fn dim_data(&self, rank: usize, version: Version) -> Result<DimData> {
        let wrong = || {
            let text = format!("no grid rank {rank}, there are {}", self.num_ranks());
            Error::not_found(text)
        };
        let (periodic, dist) = match &self.kind {
            Kind::Block(blocks) => {
                let dist = dictionaries::block_dist(blocks, rank, version)?;
                (blocks.periodic, dist)
            }
            Kind::Cyclic(cyclic) => {
                let block_size = cyclic.block_size();
                let start = grid_rank(cyclic, rank).and_then(|rank| rank.checked_mul(block_size));
                let stated = cyclic.states_block_size.then_some(block_size);
                let dist = start.map(|start| Dist::Cyclic {
                    start,
                    block_size: stated,
                });
                (None, dist)
            }
            Kind::Unstructured(unstructured) => {
                let list = unstructured.ranks.get(rank);
                let dist = list.map(|list| Dist::Unstructured {
                    indices: Arc::clone(list),
                    one_to_one: unstructured.one_to_one,
                });
                (None, dist)
            }
        };
        Ok(DimData {
            size: self.size(),
            proc_grid_size: self.num_ranks() as u64,
            proc_grid_rank: rank as u64,
            periodic,
            dist: dist.ok_or_else(wrong)?,
        })
    }
}

fn grid_rank(cyclic: &Cyclic, rank: usize) -> Option<u64> {
    let rank = u64::try_from(rank).ok()?;
    (rank < cyclic.num_ranks()).then_some(rank)
}
