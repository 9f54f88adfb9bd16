//! Maps and the dictionaries of all grid ranks of a dimension, both ways.
//!
//! Comes in: one [`DimData`] for each grid rank, or blocks. Goes out: the map that they describe, or the first contradiction between them, with rank and key; dictionaries of blocks in the
//! words of a version. Never here: untyped values (`check/`).

use std::sync::Arc;

use crate::distarray::dimension::{DimData, Dist};
use crate::distarray::map::Kind;
use crate::distarray::map::block::Blocks;
use crate::distarray::map::cyclic::Cyclic;
use crate::distarray::map::unstructured::Unstructured;
use crate::distarray::version::Version;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::Axis;

/// What the dictionaries of all grid ranks describe.
pub(super) fn kind_of(ranks: &[DimData], version: Version) -> Result<Kind> {
    let first = check_common(ranks)?;
    Ok(match &first.dist {
        Dist::Undistributed { .. } | Dist::Block { .. } => {
            Kind::Block(blocks_of(ranks, first, version)?)
        }
        Dist::Cyclic { block_size, .. } => {
            for (rank, each) in ranks.iter().enumerate() {
                check_cyclic(each, first).map_err(|error| at(error, rank))?;
            }
            Kind::Cyclic(Cyclic::new(first.size, first.proc_grid_size, *block_size))
        }
        Dist::Unstructured { one_to_one, .. } => {
            let lists = ranks.iter().map(|rank| match &rank.dist {
                Dist::Unstructured { indices, .. } => Arc::clone(indices),
                _ => Arc::new([]),
            });
            Kind::Unstructured(Unstructured::try_new(
                first.size,
                lists.collect(),
                *one_to_one,
            )?)
        }
    })
}

/// The keys of a block in the words of a version; `None` for a rank that does not exist.
pub(super) fn block_dist(blocks: &Blocks, rank: usize, version: Version) -> Result<Option<Dist>> {
    let rules = version.rules();
    let outer = outer_width(blocks.padding.iter().copied().map(Some));
    if blocks.periodic == Some(true) && outer > 0 && blocks.wraps != rules.periodic_wraps {
        let text = format!(
            "a periodic dimension with outer padding has no form with the same size in {}",
            rules.text
        );
        return Err(Error::unsupported(text).with_hint("leave the outer padding out"));
    }
    let Some(owned) = blocks.cuts.interval(rank) else {
        return Ok(None);
    };
    let [left, right] = match rules.bounds_hold_halo {
        true => blocks.halo(rank),
        false => [0, 0],
    };
    Ok(Some(Dist::Block {
        start: owned.start.saturating_sub(left),
        stop: owned.end.saturating_add(right),
        padding: blocks.padding.get(rank).copied(),
    }))
}

/// The widths on the left of the first rank and on the right of the last together.
fn outer_width(mut padding: impl DoubleEndedIterator<Item = Option<[u64; 2]>> + Clone) -> u64 {
    let last = padding.clone().next_back().flatten();
    let [left, _] = padding.next().flatten().unwrap_or_default();
    let [_, right] = last.unwrap_or_default();
    left.saturating_add(right)
}

/// What must be the same on all ranks; the first of them.
fn check_common(ranks: &[DimData]) -> Result<&DimData> {
    let Some(first) = ranks.first() else {
        return Err(Error::invalid_argument(
            "a dimension wants the dictionary of at least 1 rank, got none",
        ));
    };
    for (rank, each) in ranks.iter().enumerate() {
        let same = [
            ("size", each.size == first.size),
            ("dist_type", each.dist_type() == first.dist_type()),
            (
                "periodic",
                each.periodic.unwrap_or_default() == first.periodic.unwrap_or_default(),
            ),
        ];
        if let Some((key, _)) = same.iter().find(|(_, same)| !same) {
            let text = format!("{key} must be the same on all ranks");
            return Err(at(protocol(key, text), rank));
        }
        if each.proc_grid_size != ranks.len() as u64 || each.proc_grid_rank != rank as u64 {
            let text = format!(
                "the dictionaries must be those of ranks 0 to {} of {0} in order, got rank {} of {} at place {rank}",
                ranks.len(),
                each.proc_grid_rank,
                each.proc_grid_size
            );
            return Err(at(protocol("proc_grid_rank", text), rank));
        }
        if i64::try_from(each.size).is_err() {
            return Err(at(protocol("size", "size must be below 2^63"), rank));
        }
    }
    Ok(first)
}

fn check_cyclic(each: &DimData, first: &DimData) -> Result<()> {
    let keys = |data: &DimData| match data.dist {
        Dist::Cyclic { start, block_size } => Some((start, block_size.unwrap_or(1))),
        _ => None,
    };
    let (Some((start, block_size)), Some((_, of_first))) = (keys(each), keys(first)) else {
        return Err(Error::internal("all ranks have one dist_type"));
    };
    if block_size == 0 || block_size != of_first {
        let text = format!(
            "block_size must be at least 1 and the same on all ranks, got {block_size} and {of_first}"
        );
        return Err(protocol("block_size", text));
    }
    let wanted = each.proc_grid_rank.checked_mul(block_size);
    let empty = each.num_owned(Version::V0_10) == 0 && start == each.size;
    if wanted != Some(start) && !empty {
        let text = format!(
            "start must be proc_grid_rank times block_size, {} * {block_size}, got {start}",
            each.proc_grid_rank
        );
        return Err(protocol("start", text));
    }
    Ok(())
}

fn blocks_of(ranks: &[DimData], first: &DimData, version: Version) -> Result<Blocks> {
    let rules = version.rules();
    let mut cuts = vec![0_u64];
    for (rank, each) in ranks.iter().enumerate() {
        let owned = each.owned_range(version).unwrap_or_default();
        let before = cuts.last().copied().unwrap_or(0);
        let room = match each.dist {
            Dist::Block { start, stop, .. } => stop.checked_sub(start),
            _ => Some(each.size),
        };
        let needed = if rules.bounds_hold_halo {
            each.local_len(version)
        } else {
            owned.end - owned.start
        };
        if owned.start != before || room != Some(needed) || owned.end > each.size {
            let text = format!(
                "what the ranks own must meet: from {before}, within the size of {}, got {owned:?}",
                each.size
            );
            return Err(at(protocol("start", text), rank));
        }
        cuts.push(owned.end);
    }
    let last = cuts.last().copied().unwrap_or(0);
    if last != first.size {
        let text = format!(
            "what the last rank owns must end at the size, {}, got {last}",
            first.size
        );
        return Err(at(protocol("stop", text), ranks.len() - 1));
    }
    let mut wraps = rules.periodic_wraps && first.periodic == Some(true);
    wraps &= outer_width(ranks.iter().map(DimData::padding)) > 0;
    let mut blocks = Blocks::new(Axis::try_new(cuts)?, wraps);
    blocks.periodic = first.periodic;
    if ranks.iter().any(|rank| rank.padding().is_some()) {
        let padding = ranks.iter().map(|rank| rank.padding().unwrap_or_default());
        blocks.padding = padding.collect();
        let halos: Vec<[u64; 2]> = ranks
            .iter()
            .map(|rank| rank.communication(version))
            .collect();
        check_halos(&blocks.cuts, &halos, version, wraps)?;
        if halos.iter().any(|halo| *halo != [0, 0]) {
            blocks.halos = halos;
        }
    }
    Ok(blocks)
}

/// Every halo lies within what the neighbour owns; in 0.10 it is also as wide on both sides of a border.
fn check_halos(cuts: &Axis, halos: &[[u64; 2]], version: Version, wraps: bool) -> Result<()> {
    let count = halos.len();
    let length = |rank: usize| cuts.interval(rank).map_or(0, |each| each.end - each.start);
    for (rank, [_, right]) in halos.iter().enumerate() {
        let next = if rank + 1 == count { 0 } else { rank + 1 };
        if next == 0 && !wraps {
            break;
        }
        let [left, _] = halos.get(next).copied().unwrap_or_default();
        let matches = !version.rules().padding_matches || left == *right;
        if !matches || *right > length(next) || left > length(rank) {
            let text = format!(
                "padding between ranks {rank} and {next} must be of one width on both sides and at most what the neighbour owns, got {right} and {left}"
            );
            return Err(at(protocol("padding", text), rank));
        }
    }
    Ok(())
}

fn protocol(key: &str, text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Protocol, text).with_context("key", key)
}

fn at(error: Error, rank: usize) -> Error {
    error.with_context("rank", rank.to_string())
}
