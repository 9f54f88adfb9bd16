//! Any indices in any order on any rank.
//!
//! Comes in: the indices of each rank. Goes out: who owns an index, and where; of an index on several ranks the first rank counts as owner. Costs 24 bytes for each index. Never here:
//! that indices lie between 0 and the size: they are labels.

use std::sync::Arc;

use crate::distarray::map::Place;
use crate::error::{Error, ErrorKind, Result};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Unstructured {
    pub(super) size: u64,
    pub(super) ranks: Vec<Arc<[i64]>>,
    pub(super) one_to_one: Option<bool>,
    /// By index, then by rank; shared by clones.
    sorted: Arc<[(i64, Place)]>,
    /// `sorted` holds each index from its first to its last once, so that it needs no search.
    dense: bool,
}

impl Unstructured {
    pub(super) fn try_new(
        size: u64,
        ranks: Vec<Arc<[i64]>>,
        one_to_one: Option<bool>,
    ) -> Result<Self> {
        let places = ranks.iter().enumerate().flat_map(|(rank, indices)| {
            let places = indices.iter().enumerate();
            places.map(move |(local, index)| (*index, Place { rank, local }))
        });
        let mut sorted: Vec<(i64, Place)> = places.collect();
        sorted.sort_unstable_by_key(|(index, place)| (*index, place.rank, place.local));
        let num_distinct = check(&sorted, one_to_one == Some(true))?;
        if size != sorted.len() as u64 && size != num_distinct {
            let text = format!(
                "size must be the number of indices on all ranks, {}, or of the different ones among them, {num_distinct}, got {size}",
                sorted.len()
            );
            return Err(Error::new(ErrorKind::Protocol, text).with_context("key", "size"));
        }
        let distance = match (sorted.first(), sorted.last()) {
            (Some((first, _)), Some((last, _))) => last.abs_diff(*first),
            _ => 0,
        };
        let dense = num_distinct == sorted.len() as u64 && distance < num_distinct;
        Ok(Self {
            size,
            ranks,
            one_to_one,
            sorted: sorted.into(),
            dense,
        })
    }

    pub(super) fn locate(&self, index: i64) -> Option<Place> {
        self.entries(index).next()
    }

    /// All ranks that have an index.
    pub(super) fn entries(&self, index: i64) -> impl Iterator<Item = Place> + Clone + '_ {
        let start = if self.dense {
            let first = self.sorted.first().map_or(0, |(first, _)| *first);
            let place = index.checked_sub(first).map(usize::try_from);
            place.and_then(Result::ok).unwrap_or(usize::MAX)
        } else {
            self.sorted.partition_point(|(known, _)| *known < index)
        };
        let rest = self.sorted.get(start..).unwrap_or_default().iter();
        rest.take_while(move |(known, _)| *known == index)
            .map(|(_, place)| *place)
    }

    pub(super) fn locate_all(&self, indices: &[i64], places: &mut [Place]) -> bool {
        let mut inside = true;
        for (index, place) in indices.iter().zip(places) {
            let found = self.locate(*index);
            inside &= found.is_some();
            *place = found.unwrap_or_default();
        }
        inside
    }
}

/// The number of different indices.
fn check(sorted: &[(i64, Place)], one_to_one: bool) -> Result<u64> {
    let mut num_repeated = 0;
    for pair in sorted.windows(2) {
        let [(index, one), (next, other)] = pair else {
            continue;
        };
        if index != next {
            continue;
        }
        num_repeated += 1;
        if one.rank == other.rank || one_to_one {
            let text = if one.rank == other.rank {
                format!("indices must have each index once, got {index} twice")
            } else {
                format!(
                    "indices must have each index on one rank, as one_to_one says, got {index} on ranks {} and {}",
                    one.rank, other.rank
                )
            };
            return Err(Error::new(ErrorKind::Protocol, text)
                .with_context("rank", other.rank.to_string())
                .with_context("key", "indices"));
        }
    }
    Ok(sorted.len() as u64 - num_repeated)
}
