//! Which grid ranks of one dimension share elements, and how many.
//!
//! Comes in: two maps of one size, and which part of the destination buffers is wanted. Goes out: [`Links`], ordered both ways, 16 bytes for each pair of ranks that share anything. Block
//! and cyclic dimensions are counted by whole blocks; only indices of unstructured dimensions are looked up one by one. Never here: several dimensions.

use crate::distarray::dimension::cyclic_len;
use crate::distarray::index_set::{IndexSet, Part};
use crate::distarray::map::Map;
use crate::distarray::redistribute::comb::Comb;
use crate::distarray::redistribute::dimension::Wanted;
use crate::distarray::redistribute::intersect::{gcd, intersect, num_steps};
use crate::error::{Error, Result};
use crate::grid::Axis;

/// How many unsorted pairs are held at most before equal ones are added up.
const MAX_LOOSE: usize = 1 << 22;

/// The pairs of grid ranks that share at least one element.
#[derive(Debug, Clone)]
pub(super) struct Links {
    /// Source ranks of each destination rank, rising.
    by_to: Rows,
    /// Destination ranks of each source rank, rising.
    by_from: Rows,
    /// Elements of each pair, in the order of `by_to`.
    lens: Vec<u64>,
    /// Elements that each source rank gives, and that each destination rank gets.
    sent: Vec<u64>,
    received: Vec<u64>,
    /// The elements themselves, where an unstructured dimension takes part.
    listed: Option<Listed>,
}

#[derive(Debug, Clone)]
struct Rows {
    /// Where each row starts, and the end of the last.
    starts: Vec<usize>,
    ranks: Vec<u32>,
}

/// Runs of elements, in the order of the pairs.
#[derive(Debug, Clone)]
struct Listed {
    /// Where the runs of each pair start, and the end of the last.
    starts: Vec<usize>,
    runs: Vec<[usize; 3]>,
}

/// Elements that two ranks share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Loose {
    to: u32,
    from: u32,
    len: u64,
}

impl Rows {
    /// Pairs of row and rank, sorted.
    fn new(num_rows: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        let mut starts = vec![0_usize; num_rows + 1];
        for (row, _) in pairs.clone() {
            if let Some(count) = starts.get_mut(row as usize + 1) {
                *count += 1;
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        Self {
            starts,
            ranks: pairs.map(|(_, rank)| rank).collect(),
        }
    }

    fn start(&self, row: usize) -> Option<usize> {
        self.starts.get(row).copied()
    }

    fn row(&self, row: usize) -> &[u32] {
        let range = self.start(row).zip(self.start(row.saturating_add(1)));
        let ranks = range.and_then(|(start, stop)| self.ranks.get(start..stop));
        ranks.unwrap_or_default()
    }
}

/// More ranks along one dimension than any machine has: their links would fill its memory.
const MAX_RANKS: usize = 1 << 24;

impl Links {
    /// # Errors
    /// `Unsupported` for more than 2^24 ranks; `InvalidArgument` for an index of the destination that the source does not have.
    pub(super) fn try_new(from: &Map, to: &Map, wanted: Wanted) -> Result<Self> {
        for map in [from, to] {
            if map.num_ranks() > MAX_RANKS {
                return Err(Error::unsupported(format!(
                    "a redistributed dimension must have at most {MAX_RANKS} ranks, got {}",
                    map.num_ranks()
                )));
            }
        }
        let mut counter = Counter::default();
        match (from.cuts(), to.cuts(), from.block_size(), to.block_size()) {
            (Some(from), Some(_), ..) => block_to_block(from, to, wanted, &mut counter),
            (_, Some(_), Some(_), _) => cyclic_to_block(from, to, wanted, &mut counter),
            (Some(_), _, _, Some(_)) if wanted != Wanted::Halo => {
                let mut mirrored = Counter::default();
                cyclic_to_block(to, from, Wanted::Owned, &mut mirrored);
                counter.loose = mirrored.loose;
                for pair in &mut counter.loose {
                    (pair.to, pair.from) = (pair.from, pair.to);
                }
            }
            (_, _, Some(_), Some(_)) if wanted != Wanted::Halo => {
                cyclic_to_cyclic(from, to, &mut counter);
            }
            _ => return Self::listed(from, to, wanted),
        }
        counter.add_up();
        Ok(Self::of(from, to, &counter.loose))
    }

    /// Pairs sorted by destination, then by source, each once.
    fn of(from: &Map, to: &Map, pairs: &[Loose]) -> Self {
        let by_to = Rows::new(
            to.num_ranks(),
            pairs.iter().map(|pair| (pair.to, pair.from)),
        );
        let mut turned: Vec<(u32, u32)> = pairs.iter().map(|pair| (pair.from, pair.to)).collect();
        turned.sort_unstable();
        let (mut sent, mut received) = (vec![0; from.num_ranks()], vec![0; to.num_ranks()]);
        for pair in pairs {
            let sums = [
                sent.get_mut(pair.from as usize),
                received.get_mut(pair.to as usize),
            ];
            for sum in sums.into_iter().flatten() {
                *sum += pair.len;
            }
        }
        Self {
            sent,
            received,
            by_to,
            by_from: Rows::new(from.num_ranks(), turned.iter().copied()),
            lens: pairs.iter().map(|pair| pair.len).collect(),
            listed: None,
        }
    }

    /// By looking up every wanted index.
    fn listed(from: &Map, to: &Map, wanted: Wanted) -> Result<Self> {
        let mut pairs = Vec::new();
        let mut listed = Listed {
            starts: vec![0],
            runs: Vec::new(),
        };
        for rank in 0..to.num_ranks() {
            let mut places: Vec<(usize, usize, usize)> = Vec::new();
            for part in wanted.parts(to, rank) {
                for (place, index) in part.indices.iter().enumerate() {
                    let source = from.locate_near(index, rank).ok_or_else(|| {
                        let text = format!("the source must have every index of the destination, index {index} is missing");
                        Error::invalid_argument(text).with_context("grid rank", rank.to_string())
                    })?;
                    places.push((source.rank, part.local + place, source.local));
                }
            }
            places.sort_unstable();
            for of_one in places.chunk_by(|(one, ..), (other, ..)| one == other) {
                let (first, ..) = of_one.first().copied().unwrap_or_default();
                pairs.push(Loose {
                    to: narrow(rank),
                    from: narrow(first),
                    len: of_one.len() as u64,
                });
                let follows = |one: &(usize, usize, usize), next: &(usize, usize, usize)| {
                    one.1 + 1 == next.1 && one.2 + 1 == next.2
                };
                for run in of_one.chunk_by(follows) {
                    let (_, to, from) = run.first().copied().unwrap_or_default();
                    listed.runs.push([from, to, run.len()]);
                }
                listed.starts.push(listed.runs.len());
            }
        }
        let mut links = Self::of(from, to, &pairs);
        links.listed = Some(listed);
        Ok(links)
    }

    /// Number of elements that a source rank gives.
    pub(super) fn sent(&self, from: usize) -> u64 {
        self.sent.get(from).copied().unwrap_or(0)
    }

    /// Number of elements that a destination rank gets.
    pub(super) fn received(&self, to: usize) -> u64 {
        self.received.get(to).copied().unwrap_or(0)
    }

    /// Number of elements of all pairs.
    pub(super) fn num_elements(&self) -> u64 {
        self.received
            .iter()
            .fold(0, |sum, len| sum.saturating_add(*len))
    }

    /// Number of pairs.
    pub(super) fn num_pairs(&self) -> usize {
        self.lens.len()
    }

    /// Source ranks that have elements of a destination rank.
    pub(super) fn sources(&self, to: usize) -> &[u32] {
        self.by_to.row(to)
    }

    /// Destination ranks that want elements of a source rank.
    pub(super) fn destinations(&self, from: usize) -> &[u32] {
        self.by_from.row(from)
    }

    /// Number of elements of a pair; 0 for a pair that shares none.
    pub(super) fn len(&self, from: usize, to: usize) -> u64 {
        let pair = self.pair(from, to);
        pair.and_then(|pair| self.lens.get(pair).copied())
            .unwrap_or(0)
    }

    /// All pairs with the number of their elements: source, destination, elements.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (usize, usize, u64)> + '_ {
        let rows = 0..self.by_to.starts.len().saturating_sub(1);
        let places = rows.flat_map(|to| self.sources(to).iter().map(move |from| (*from, to)));
        let pairs = places.zip(&self.lens);
        pairs.map(|((from, to), len)| (from as usize, to, *len))
    }

    /// The elements of a pair, where they are listed; `None` where they follow from the maps.
    pub(super) fn listed_combs(&self, from: usize, to: usize) -> Option<Vec<Comb>> {
        let listed = self.listed.as_ref()?;
        let runs = self.pair(from, to).and_then(|pair| {
            let range = *listed.starts.get(pair)?..*listed.starts.get(pair + 1)?;
            listed.runs.get(range)
        });
        let comb = |[from, to, len]: &[usize; 3]| Comb::run(*from, *to, *len);
        Some(runs.unwrap_or_default().iter().map(comb).collect())
    }

    fn pair(&self, from: usize, to: usize) -> Option<usize> {
        let from = u32::try_from(from).ok()?;
        let within = self.sources(to).binary_search(&from).ok()?;
        Some(self.by_to.start(to)? + within)
    }
}

/// Adds up elements of pairs.
#[derive(Default)]
struct Counter {
    loose: Vec<Loose>,
    /// How many there may be before they are added up again.
    limit: usize,
}

impl Counter {
    fn add(&mut self, from: usize, to: usize, len: u64) {
        if len == 0 {
            return;
        }
        if self.loose.len() >= self.limit.max(MAX_LOOSE) {
            self.add_up();
            self.limit = self.loose.len() * 2;
        }
        self.loose.push(Loose {
            to: narrow(to),
            from: narrow(from),
            len,
        });
    }

    /// Sorts, and makes one of equal pairs.
    fn add_up(&mut self) {
        self.loose.sort_unstable();
        self.loose.dedup_by(|next, kept| {
            let same = (next.to, next.from) == (kept.to, kept.from);
            if same {
                kept.len += next.len;
            }
            same
        });
    }
}

fn block_to_block(from: &Axis, to: &Map, wanted: Wanted, counter: &mut Counter) {
    for rank in 0..to.num_ranks() {
        for part in wanted.parts(to, rank) {
            let range = range_of(&part);
            for source in from.overlapping(range.clone()) {
                let owned = from.interval(source).unwrap_or(0..0);
                let (start, stop) = (owned.start.max(range.start), owned.end.min(range.end));
                counter.add(source, rank, stop.saturating_sub(start));
            }
        }
    }
}

fn cyclic_to_block(from: &Map, to: &Map, wanted: Wanted, counter: &mut Counter) {
    let (ranks, block) = (from.num_ranks() as u64, from.block_size().unwrap_or(1));
    for rank in 0..to.num_ranks() {
        for part in wanted.parts(to, rank) {
            let range = range_of(&part);
            if range.is_empty() {
                continue;
            }
            // The ranks whose turn it is from the first block on, each once.
            let (first, last) = (range.start / block, (range.end - 1) / block);
            for turn in first..=last.min(first.saturating_add(ranks - 1)) {
                let grid = (ranks, turn % ranks);
                let before = cyclic_len(range.start, grid, block);
                let shared = cyclic_len(range.end, grid, block) - before;
                counter.add(wide(turn % ranks), rank, shared);
            }
        }
    }
}

/// Along the array from cut to cut, as far as the pattern does not repeat; or pair by pair where that is less work.
fn cyclic_to_cyclic(from: &Map, to: &Map, counter: &mut Counter) {
    let size = from.size();
    let blocks = [from, to].map(|map| map.block_size().unwrap_or(1));
    let ranks = [from, to].map(|map| map.num_ranks() as u64);
    let period = |side: (&u64, &u64)| side.0.saturating_mul(*side.1);
    let [one, other] = [
        period((&ranks[0], &blocks[0])),
        period((&ranks[1], &blocks[1])),
    ];
    let multiple = (one / gcd(one, other)).saturating_mul(other).min(size);
    let runs = (multiple / blocks[0]).saturating_add(multiple / blocks[1]);
    let pairs = ranks[0].saturating_mul(ranks[1]);
    let steps = pairs.saturating_mul(num_steps([one, other], blocks, size));
    if runs > steps {
        return pair_by_pair(from, to, counter);
    }
    let mut at = 0;
    while at < multiple {
        let [stop, next] = blocks.map(|block| (at / block).saturating_add(1).saturating_mul(block));
        let len = stop.min(next).min(multiple) - at;
        let repeats = (size - 1 - at) / multiple.max(1);
        let last = len.min(size - at - repeats * multiple);
        let [source, destination] = [
            at / blocks[0] % ranks[0].max(1),
            at / blocks[1] % ranks[1].max(1),
        ];
        counter.add(wide(source), wide(destination), repeats * len + last);
        at += len;
    }
}

fn pair_by_pair(from: &Map, to: &Map, counter: &mut Counter) {
    let parts =
        |map: &Map| -> Vec<Option<Part>> { (0..map.num_ranks()).map(|r| map.owned(r)).collect() };
    let (sources, destinations) = (parts(from), parts(to));
    let mut combs = Vec::new();
    for (destination, held) in destinations.iter().enumerate() {
        for (source, owned) in sources.iter().enumerate() {
            if let Some((owned, held)) = owned.as_ref().zip(held.as_ref()) {
                combs.clear();
                intersect(owned, held, &mut combs);
                let shared = combs.iter().map(|comb| comb.num_elements() as u64).sum();
                counter.add(source, destination, shared);
            }
        }
    }
}

/// The global indices of a part of a block.
fn range_of(part: &Part) -> std::ops::Range<u64> {
    match &part.indices {
        IndexSet::Interval(range) => {
            let at = |index: i64| u64::try_from(index).unwrap_or(0);
            at(range.start)..at(range.end)
        }
        IndexSet::Progression(_) | IndexSet::List(_) => 0..0,
    }
}

/// Ranks fit 32 bits, as `try_new` checks.
fn narrow(rank: usize) -> u32 {
    u32::try_from(rank).unwrap_or(u32::MAX)
}

fn wide(rank: u64) -> usize {
    usize::try_from(rank).unwrap_or(usize::MAX)
}
