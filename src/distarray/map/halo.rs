//! Blocks with padding beside them.
//!
//! Comes in: blocks, and the widths that are wanted at every border. Goes out: the map with the widths of each rank (DAP 0.10.0, 1.6.5; 0.9.0, 6.2). Never here: widths that differ from border
//! to border, for which there is [`Map::try_padded`].

use crate::distarray::dimension::{DimData, Dist};
use crate::distarray::map::Map;
use crate::distarray::version::Version;
use crate::error::{Error, Result};
use crate::grid::Axis;

/// The padding that blocks shall have, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Halo {
    /// Communication padding on both sides of every border between two ranks. Beside a rank that owns nothing there is none.
    pub width: u64,
    /// Boundary padding: how many of the first and of the last elements of the dimension count as padding. They are part of the array, and owned.
    pub boundary: [u64; 2],
    /// Whether the last element is beside the first. In 0.9 that is a border as any other, with communication padding of `width`; in 0.10 there is no such padding.
    pub periodic: bool,
}

impl Map {
    /// The same blocks with padding.
    ///
    /// # Errors
    /// `Unsupported` for other than blocks, and for boundary padding of periodic dimensions in 0.9; `InvalidArgument` when a width is more than a rank owns.
    pub fn try_with_halo(&self, halo: &Halo, version: Version) -> Result<Self> {
        let Some(cuts) = self.cuts() else {
            return Err(Error::unsupported(
                "only a dimension of blocks has padding, not one that is cyclic or unstructured",
            ));
        };
        let wraps = halo.periodic && version.rules().periodic_wraps;
        if wraps && halo.boundary != [0, 0] {
            return Err(Error::unsupported(
                "a periodic dimension has no boundary padding in 0.9: what is outside repeats the other end",
            )
            .with_hint("leave boundary out"));
        }
        let ranks = cuts.num_intervals();
        let owns = |rank: usize| cuts.interval(rank).is_some_and(|owned| !owned.is_empty());
        let border = |one: usize, other: usize| match owns(one) && owns(other) {
            true => halo.width,
            false => 0,
        };
        let [first, last] = match wraps {
            true => [border(0, ranks - 1); 2],
            false => halo.boundary,
        };
        check_room(cuts, halo.width)?;
        check_boundary(cuts, halo.boundary)?;
        let widths: Vec<[u64; 2]> = (0..ranks)
            .map(|rank| {
                let left = rank
                    .checked_sub(1)
                    .map_or(first, |before| border(before, rank));
                let right = match rank + 1 {
                    end if end == ranks => last,
                    after => border(rank, after),
                };
                [left, right]
            })
            .collect();
        if !wraps {
            return Self::try_padded(cuts, &widths, halo.periodic);
        }
        let dictionaries: Vec<DimData> = (0_u64..)
            .zip(cuts.intervals().zip(widths))
            .map(|(rank, (owned, padding))| DimData {
                size: cuts.extent(),
                proc_grid_size: ranks as u64,
                proc_grid_rank: rank,
                periodic: Some(true),
                dist: Dist::Block {
                    start: owned.start,
                    stop: owned.end,
                    padding: Some(padding),
                },
            })
            .collect();
        Self::try_from_dim_data(&dictionaries, version)
    }
}

/// That every rank beside another owns what the other holds of it.
fn check_room(cuts: &Axis, width: u64) -> Result<()> {
    let mut owned = cuts
        .intervals()
        .map(|range| range.end - range.start)
        .enumerate();
    let short = owned.find(|(_, count)| *count > 0 && *count < width);
    match short {
        Some((rank, count)) if cuts.num_intervals() > 1 => Err(Error::invalid_argument(format!(
            "padding must be at most what each rank owns: rank {rank} owns {count}, got {width}"
        ))
        .with_hint("make the blocks larger, or the padding narrower")),
        _ => Ok(()),
    }
}

/// That the first and the last rank own their boundary padding.
fn check_boundary(cuts: &Axis, [left, right]: [u64; 2]) -> Result<()> {
    let last = cuts.num_intervals() - 1;
    let owned = |rank: usize| {
        cuts.interval(rank)
            .map_or(0, |range| range.end - range.start)
    };
    let wanted = match last {
        0 => vec![(0, left.saturating_add(right))],
        _ => vec![(0, left), (last, right)],
    };
    match wanted
        .into_iter()
        .find(|(rank, width)| *width > owned(*rank))
    {
        None => Ok(()),
        Some((rank, width)) => Err(Error::invalid_argument(format!(
            "boundary must be at most what the first and the last rank own: rank {rank} owns {}, got {width}",
            owned(rank)
        ))),
    }
}
