//! Halos made fresh: communication padding filled from the ranks that own its elements.
//!
//! Comes in: a distribution, and the buffers of all its ranks. Goes out: a [`HaloPlan`]; the buffers with every halo equal to what its owner has. Outer padding of a periodic dimension is
//! what the version says that it is: in 0.9 communication padding, which repeats the other end and is filled from there; in 0.10 part of the array ("boundary", counted in "size"), which its
//! rank owns and nobody fills. Never here: an element that its rank owns is written, or one of a halo is read.

use crate::distarray::distribution::Distribution;
use crate::distarray::map::Map;
use crate::distarray::redistribute::buffer::{Source, Target};
use crate::distarray::redistribute::copy::copy;
use crate::distarray::redistribute::dimension::Wanted;
use crate::distarray::redistribute::execute::check_targets;
use crate::distarray::redistribute::plan::Plan;
use crate::distarray::redistribute::transfer::Transfer;
use crate::error::{Error, Result};

/// What has to move so that every halo of a distribution is fresh. Only owned elements are read, and only others written, so that transfers may be made in any order, and all at once.
/// The halo of a buffer, corners included, is cut into one product of parts for each padded dimension: there the halo, along the dimensions before it what the rank owns, along those
/// behind it all.
#[derive(Debug, Clone)]
pub struct HaloPlan {
    distribution: Distribution,
    sides: Vec<Plan>,
}

impl HaloPlan {
    /// The plan for the halos of a distribution.
    ///
    /// # Errors
    /// `Unsupported` when the buffers have 2^64 elements or more, or a dimension more than 2^24 ranks.
    pub fn try_new(distribution: &Distribution) -> Result<Self> {
        let maps = distribution.maps();
        let padded = maps.iter().enumerate().filter(|(_, map)| has_halo(map));
        let sides = padded.map(|(dimension, _)| {
            let wanted: Vec<Wanted> = (0..maps.len())
                .map(|each| match each.cmp(&dimension) {
                    std::cmp::Ordering::Less => Wanted::Owned,
                    std::cmp::Ordering::Equal => Wanted::Halo,
                    std::cmp::Ordering::Greater => Wanted::Held,
                })
                .collect();
            Plan::of_parts(distribution, distribution, &wanted)
        });
        Ok(Self {
            distribution: distribution.clone(),
            sides: sides.collect::<Result<_>>()?,
        })
    }

    /// Whose halos they are.
    #[must_use]
    pub fn distribution(&self) -> &Distribution {
        &self.distribution
    }

    /// Number of elements of all halos together.
    #[must_use]
    pub fn num_elements(&self) -> u64 {
        self.sides.iter().map(Plan::num_elements).sum()
    }

    /// Number of transfers between different ranks. Two ranks have one for each padded dimension along which they share something.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.sides.iter().map(Plan::messages).sum()
    }

    /// All transfers, those of the first padded dimension first. One from a rank to itself occurs where a halo repeats the other end of one buffer.
    pub fn transfers(&self) -> impl Iterator<Item = Transfer> + '_ {
        self.sides.iter().flat_map(Plan::transfers)
    }

    /// The transfers that a rank has to send, the one to itself included.
    pub fn transfers_from(&self, rank: usize) -> impl Iterator<Item = Transfer> + '_ {
        let sides = self.sides.iter();
        sides.flat_map(move |side| side.transfers_from(rank))
    }

    /// The transfers that a rank gets, the one from itself included.
    pub fn transfers_to(&self, rank: usize) -> impl Iterator<Item = Transfer> + '_ {
        let sides = self.sides.iter();
        sides.flat_map(move |side| side.transfers_to(rank))
    }

    /// Fills all halos of the given buffers, one for each rank.
    ///
    /// # Errors
    /// `InvalidArgument`, with the rank, unless there is one buffer for each rank, with the shape that the rank holds, with room for all elements, all of them of one size, without overlap.
    pub fn exchange(&self, buffers: &mut [Target]) -> Result<()> {
        check_targets(&self.distribution, buffers, "halo", None)?;
        let mut message = Vec::new();
        for transfer in self.transfers() {
            let ends = [transfer.from_rank(), transfer.to_rank()];
            if let Ok([source, target]) = buffers.get_disjoint_mut(ends) {
                copy(
                    transfer.combs(),
                    (source.bytes, &source.layout),
                    (target.bytes, &target.layout),
                )?;
                continue;
            }
            let own = buffers.get_mut(transfer.to_rank());
            let own =
                own.ok_or_else(|| Error::internal("every rank of a transfer has a buffer"))?;
            let source = Source {
                bytes: own.bytes,
                layout: own.layout.clone(),
            };
            transfer.pack(&source, &mut message)?;
            transfer.unpack(&message, own)?;
        }
        Ok(())
    }
}

/// Fills the halos of the buffers of all ranks of a distribution: [`HaloPlan::exchange`] for those who do it once.
///
/// # Errors
/// As of [`HaloPlan::try_new`] and [`HaloPlan::exchange`].
pub fn exchange_halos(distribution: &Distribution, buffers: &mut [Target]) -> Result<()> {
    HaloPlan::try_new(distribution)?.exchange(buffers)
}

/// Whether a rank holds more than it owns.
fn has_halo(map: &Map) -> bool {
    (0..map.num_ranks()).any(|rank| map.local_len(rank) != map.num_owned(rank))
}
