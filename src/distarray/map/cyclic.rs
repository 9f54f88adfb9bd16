//! Blocks of one size dealt out to the ranks in turn.
//!
//! Comes in: size, number of ranks, block size. Goes out: which rank owns an index, and where, for two multiplications. Never here: tables.

use crate::distarray::map::Place;
use crate::distarray::map::reciprocal::Divisor;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cyclic {
    pub(super) size: u64,
    ranks: Divisor,
    block_size: Divisor,
    pub(super) states_block_size: bool,
}

impl Cyclic {
    /// `block_size` is as stated; 1 without.
    pub(super) fn new(size: u64, ranks: u64, block_size: Option<u64>) -> Self {
        Self {
            size,
            ranks: Divisor::new(ranks),
            block_size: Divisor::new(block_size.unwrap_or(1)),
            states_block_size: block_size.is_some(),
        }
    }

    pub(super) fn num_ranks(&self) -> u64 {
        self.ranks.get()
    }

    pub(super) fn block_size(&self) -> u64 {
        self.block_size.get()
    }

    pub(super) fn locate(&self, index: u64) -> Option<Place> {
        (index < self.size).then(|| self.place(index))
    }

    /// Writes a place for each index; the places of indices outside mean nothing. Says whether all are inside.
    pub(super) fn locate_all(&self, indices: &[i64], places: &mut [Place]) -> bool {
        if self.block_size() == 1 {
            let ranks = self.ranks;
            self.fill(indices, places, |index| {
                let (local, rank) = ranks.divide(index);
                place(rank, local)
            })
        } else {
            let whole = self.clone();
            self.fill(indices, places, |index| whole.place(index))
        }
    }

    #[inline(always)]
    fn place(&self, index: u64) -> Place {
        let (block, within) = self.block_size.divide(index);
        let (round, rank) = self.ranks.divide(block);
        let before = round.wrapping_mul(self.block_size.get());
        place(rank, before.wrapping_add(within))
    }

    #[inline(always)]
    fn fill(&self, indices: &[i64], places: &mut [Place], locate: impl Fn(u64) -> Place) -> bool {
        let size = self.size;
        let mut inside = true;
        for (index, place) in indices.iter().zip(places) {
            let index = index.cast_unsigned();
            inside &= index < size;
            *place = locate(index);
        }
        inside
    }
}

#[inline(always)]
fn place(rank: u64, local: u64) -> Place {
    Place {
        rank: usize::try_from(rank).unwrap_or(usize::MAX),
        local: usize::try_from(local).unwrap_or(usize::MAX),
    }
}
