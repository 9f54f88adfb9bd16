//! What neighbours along one dimension must agree on (rules X5 to X9 and X14).
//!
//! Comes in: the dictionary of each grid rank that is sound in itself. Goes out: findings. Where ranks are missing, which other rules tell, only pairs of neighbours are looked at. Never here: other
//! dimensions.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::distarray::check::{Log, Rule};
use crate::distarray::dimension::{DimData, Dist};
use crate::distarray::version::Version;

/// By grid rank: the number of the section, and what it says.
type Ranks<'a> = BTreeMap<u64, (usize, &'a DimData)>;

pub(super) fn check(ranks: &Ranks<'_>, dimension: usize, version: Version, log: &mut Log) {
    owned_meets(ranks, dimension, version, log);
    widths(ranks, dimension, version, log);
    if !version.rules().periodic_wraps {
        outer_widths(ranks, dimension, log);
    }
    let complete = ranks
        .values()
        .next()
        .is_some_and(|(_, data)| data.proc_grid_size == ranks.len() as u64);
    if complete {
        sizes_add_up(ranks, dimension, version, log);
    }
    index_on_one_rank(ranks, dimension, log);
}

/// Grid ranks i and i + 1 that are both there.
fn neighbours<'a>(
    ranks: &'a Ranks<'a>,
) -> impl Iterator<Item = ((usize, &'a DimData), (usize, &'a DimData))> {
    let pairs = ranks.iter().zip(ranks.iter().skip(1));
    pairs
        .filter(|((one, _), (next, _))| one.checked_add(1) == Some(**next))
        .map(|((_, one), (_, next))| (*one, *next))
}

fn owned_meets(ranks: &Ranks<'_>, dimension: usize, version: Version, log: &mut Log) {
    let mut say = |rank: usize, key: &'static str, text: String| {
        log.error_at((rank, dimension), Rule::X5, key, text);
    };
    let owned = |data: &DimData| data.owned_range(version);
    for (rank, data) in ranks.values() {
        let Some(range) = owned(data) else { continue };
        if data.proc_grid_rank == 0 && range.start != 0 {
            let text = format!(
                "what the first rank owns must begin at 0, got {}",
                range.start
            );
            say(*rank, "start", text);
        }
        if data.proc_grid_rank + 1 == data.proc_grid_size && range.end != data.size {
            let text = format!(
                "what the last rank owns must end at size, {}, got {}",
                data.size, range.end
            );
            say(*rank, "stop", text);
        }
    }
    for ((before, one), (rank, next)) in neighbours(ranks) {
        let (Some(one), Some(next)) = (owned(one), owned(next)) else {
            continue;
        };
        if one.end != next.start {
            let kind = if one.end < next.start {
                "a gap"
            } else {
                "an overlap"
            };
            let text = format!(
                "what this rank owns must begin where that of rank {before} ends, at {}, got {}, {kind}",
                one.end, next.start
            );
            say(rank, "start", text);
        }
    }
}

/// Communication padding on both sides of each border; where a periodic dimension wraps, the last rank borders on the first.
fn widths(ranks: &Ranks<'_>, dimension: usize, version: Version, log: &mut Log) {
    let ends = (ranks.values().next(), ranks.values().next_back());
    let around = match ends {
        (Some(first), Some(last)) => {
            let edges = first.1.proc_grid_rank == 0
                && last.1.proc_grid_rank.saturating_add(1) == last.1.proc_grid_size;
            let wraps = version.rules().periodic_wraps && first.1.periodic == Some(true);
            (edges && wraps).then_some((*last, *first))
        }
        _ => None,
    };
    for ((before, one), (rank, next)) in neighbours(ranks).chain(around) {
        let [_, right] = one.communication(version);
        let [left, _] = next.communication(version);
        if version.rules().padding_matches && left != right {
            let text = format!(
                "padding on the left must be as wide as that on the right of rank {before}, {right}, got {left}"
            );
            log.error_at((rank, dimension), Rule::X6, "padding", text);
        }
        for (at, width, neighbour, data) in [(before, right, rank, next), (rank, left, before, one)]
        {
            let owned = data.num_owned(version);
            if width > owned {
                let text = format!(
                    "padding must be at most as wide as what rank {neighbour} owns, {owned}, got {width}"
                );
                log.error_at((at, dimension), Rule::X7, "padding", text);
            }
        }
    }
}

fn outer_widths(ranks: &Ranks<'_>, dimension: usize, log: &mut Log) {
    let (Some((_, first)), Some((rank, last))) =
        (ranks.values().next(), ranks.values().next_back())
    else {
        return;
    };
    let edges = first.proc_grid_rank == 0 && last.proc_grid_rank + 1 == last.proc_grid_size;
    let [left, _] = first.padding().unwrap_or_default();
    let [_, right] = last.padding().unwrap_or_default();
    if edges && first.periodic == Some(true) && left != right {
        (log.rank, log.dimension) = (Some(*rank), Some(dimension));
        let text = format!(
            "outer padding of a periodic dimension should be as wide on both ends, got {left} and {right}"
        );
        log.warning(Rule::X14, Some("padding"), text);
        (log.rank, log.dimension) = (None, None);
    }
}

fn sizes_add_up(ranks: &Ranks<'_>, dimension: usize, version: Version, log: &mut Log) {
    let owned = ranks.values().map(|(_, data)| data.num_owned(version));
    let sum = owned.fold(0, u64::saturating_add);
    let Some((rank, first)) = ranks.values().next() else {
        return;
    };
    let text = match &first.dist {
        Dist::Unstructured { one_to_one, .. } => {
            let distinct = num_distinct(ranks);
            let repeats = *one_to_one != Some(true) && first.size == distinct;
            if sum == first.size || repeats {
                return;
            }
            format!(
                "size must be the number of indices on all ranks, {sum}, or of the different ones among them, {distinct}, got {}",
                first.size
            )
        }
        _ if sum == first.size => return,
        _ => format!(
            "size must be the number of elements that all ranks own, {sum}, got {}",
            first.size
        ),
    };
    log.error_at((*rank, dimension), Rule::X8, "size", text);
}

/// All indices with the number of their section, in order.
fn all_indices(ranks: &Ranks<'_>) -> Vec<(i64, usize)> {
    let lists = ranks.values().filter_map(|(rank, data)| match &data.dist {
        Dist::Unstructured { indices, .. } => Some((*rank, indices)),
        _ => None,
    });
    let mut all: Vec<(i64, usize)> = lists
        .flat_map(|(rank, indices)| indices.iter().map(move |index| (*index, rank)))
        .collect();
    all.sort_unstable();
    all
}

fn num_distinct(ranks: &Ranks<'_>) -> u64 {
    let mut all = all_indices(ranks);
    all.dedup_by_key(|(index, _)| *index);
    all.len() as u64
}

/// Tells each pair of ranks once, with the range of what they share.
fn index_on_one_rank(ranks: &Ranks<'_>, dimension: usize, log: &mut Log) {
    let one_to_one = |data: &DimData| {
        matches!(
            data.dist,
            Dist::Unstructured {
                one_to_one: Some(true),
                ..
            }
        )
    };
    if !ranks.values().any(|(_, data)| one_to_one(data)) {
        return;
    }
    let all = all_indices(ranks);
    let mut shared: BTreeMap<(usize, usize), (Range<i64>, usize)> = BTreeMap::new();
    for pair in all.windows(2) {
        let [(index, one), (next, other)] = pair else {
            continue;
        };
        if index == next {
            let entry = shared.entry((*one, *other)).or_insert((*index..*index, 0));
            entry.0.end = *index;
            entry.1 += 1;
        }
    }
    for ((one, other), (range, count)) in shared {
        let text = format!(
            "one_to_one says that no index is on two ranks, got {count} that rank {one} has too, from {} to {}",
            range.start, range.end
        );
        log.error_at((other, dimension), Rule::X9, "indices", text);
    }
}
