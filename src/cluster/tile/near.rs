//! Statements over little data, all of which lies in members of this host.
//!
//! Comes in: what a statement reads of grids. Goes out: whether the member that was asked runs it alone, over its own tiles and over memory that the others share with it, which is mapped then: no stages, no streams, nothing copied. What is mapped stays so
//! as long as somebody reads it now and then, its grid is there, and its owner is a member. Never here: mapping a tile (`tile/mod.rs`), planning, reading.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow::datatypes::DataType;

use super::MemberTile;
use super::anywhere::Looker;
use super::owner::{elsewhere, member_tile};
use crate::cluster::Cluster;
use crate::cluster::members::Members;
use crate::cluster::members::silent::Silent;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::{PartitionGrid, Tile, TileData};
use crate::location::Locality;
use crate::query::{Alone, Reads};
use crate::share::{GLANCE, answers};

/// How much servers read of other members in statements that they run alone (`cluster.near`), in bytes.
pub const NEAR_BYTES: u64 = 32 * 1024 * 1024;

/// Tiles are mapped whole: those that are to be mapped for a statement may have so many times as many bytes as it may read.
const WHOLE: u64 = 16;

/// A statement is looked at in earnest if what it mentions is at most so many times as much as it may read: filters may leave less of it.
const MENTIONED: u64 = 4;

/// The most tiles that are mapped at a time. The owner of each keeps a descriptor for it.
const MOST_TILES: usize = 256;

/// How often it is looked which tiles nobody has read since the last look: they are let go of.
const UNREAD: Duration = Duration::from_secs(300);

/// How much a member reads of others in statements that it runs alone.
pub(in crate::cluster) struct Near {
    bytes: u64,
    /// When it was looked last which tiles nobody reads.
    looked: Mutex<Instant>,
    /// Owners that did not answer, or had no room. Each statement would wait for them anew, and few others are planned meanwhile.
    silent: Silent,
}

impl Near {
    pub(in crate::cluster) fn new(bytes: u64) -> Self {
        let (looked, silent) = (Mutex::new(Instant::now()), Silent::default());
        Self {
            bytes,
            looked,
            silent,
        }
    }

    /// Whether there are such statements.
    pub(in crate::cluster) fn is_on(&self) -> bool {
        self.bytes > 0
    }

    /// Whether it is time to look, which counts as the look.
    fn is_time(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = looked.elapsed() >= UNREAD;
        if is_time {
            *looked = Instant::now();
        }
        is_time
    }
}

/// How many tiles of other members this process has mapped.
#[derive(Debug, Clone, Default)]
pub(in crate::cluster) struct Mapped {
    number: Arc<AtomicUsize>,
    /// How many it has by way of their owners (`MemberTile`), mapped or not.
    num_served: Arc<AtomicUsize>,
    num_let_go: Arc<AtomicU64>,
}

impl Mapped {
    fn number(&self) -> usize {
        self.number.load(Ordering::Acquire)
    }

    /// Counts one more that is had by way of its owner, as long as what it gives is there. There may be any number of them.
    pub(in crate::cluster) fn counted_served(&self) -> Counted {
        self.num_served.fetch_add(1, Ordering::AcqRel);
        Counted(Arc::clone(&self.num_served))
    }

    /// Whether there is any, of both.
    fn is_any(&self) -> bool {
        self.number() > 0 || self.num_served.load(Ordering::Acquire) > 0
    }

    /// Says that one was let go of: plans that counted on it are not to be used any more.
    pub(in crate::cluster) fn was_let_go(&self) {
        self.num_let_go.fetch_add(1, Ordering::AcqRel);
    }

    /// How many were let go of while their grids were there.
    pub(in crate::cluster) fn num_let_go(&self) -> u64 {
        self.num_let_go.load(Ordering::Acquire)
    }

    /// Counts one more, as long as what it gives is there.
    ///
    /// # Errors
    /// `ResourcesExhausted` when there are as many as may be.
    pub(in crate::cluster) fn counted(&self) -> Result<Counted> {
        let counted = Counted(Arc::clone(&self.number));
        if self.number.fetch_add(1, Ordering::AcqRel) < MOST_TILES {
            return Ok(counted);
        }
        // It is taken off again.
        drop(counted);
        let text = format!("{MOST_TILES} tiles of members on this host are mapped already");
        Err(Error::new(ErrorKind::ResourcesExhausted, text))
    }
}

/// One of them.
#[derive(Debug)]
pub(in crate::cluster) struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// About how many bytes some columns of a tile have, without a look at them: those of a fixed width as many as they have, all others together the rest, each as much.
pub(in crate::cluster) fn about_bytes(tile: &dyn TileData, columns: &[usize]) -> u64 {
    let (schema, rows) = (tile.schema(), tile.num_rows());
    let fixed = |column: &usize| {
        let field = schema.fields().get(*column)?;
        fixed_bytes(field.data_type(), rows)
    };
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let known = all.iter().filter_map(fixed).fold(0, u64::saturating_add);
    let others = all.iter().filter(|column| fixed(column).is_none()).count() as u64;
    let rest = tile.memory_bytes().saturating_sub(known);
    let each = rest.checked_div(others).unwrap_or_default();
    let bytes = columns.iter().map(|column| fixed(column).unwrap_or(each));
    bytes.fold(0, u64::saturating_add)
}

/// What so many values of a type have, if all have the same.
fn fixed_bytes(kind: &DataType, rows: u64) -> Option<u64> {
    let width = match kind {
        DataType::Null => return Some(0),
        DataType::Boolean => return Some(rows.div_ceil(8)),
        DataType::FixedSizeBinary(width) => usize::try_from(*width).ok()?,
        other => other.primitive_width()?,
    };
    Some(rows.saturating_mul(width as u64))
}

/// The column bands of some columns, each with these by their numbers in it; the first one without any, for a statement that only counts rows.
fn bands_of(
    grid: &PartitionGrid,
    columns: impl Iterator<Item = usize>,
) -> Vec<(usize, Vec<usize>)> {
    let mut bands: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for column in columns {
        if let Some((band, local)) = grid.columns().locate(column as u64)
            && let Ok(local) = usize::try_from(local)
        {
            bands.entry(band).or_default().push(local);
        }
    }
    if bands.is_empty() {
        bands.insert(0, Vec::new());
    }
    bands.into_iter().collect()
}

/// What a statement reads of others.
#[derive(Default)]
struct OfOthers<'a> {
    /// Of the columns that it reads.
    bytes: u64,
    /// Of whole tiles that are not mapped yet.
    whole_bytes: u64,
    /// The tiles of members.
    tiles: Vec<&'a MemberTile>,
}

/// Finds what a statement reads of others.
struct Finding<'a> {
    /// Those whose tiles count; without them those of all who were members once, which filters may leave unread.
    members: Option<Arc<Members>>,
    looker: Looker<'a>,
    /// Whether there is anything that all members reach.
    is_any: bool,
}

impl Finding<'_> {
    /// The bytes of columns of a tile that are not this member's own; `None` for a tile that is neither in its memory nor in that of a member of its host.
    fn bytes(&mut self, tile: &Tile, columns: &[usize]) -> Option<u64> {
        let data: &dyn TileData = tile.data().as_ref();
        if let Some(of) = member_tile(tile) {
            let life = of.handle().incarnation;
            let is_there = |members: &Arc<Members>| members.number_of(life).is_some();
            let is_there = self.members.as_ref().is_none_or(is_there);
            return (is_there && of.is_near()).then(|| about_bytes(data, columns));
        }
        if data.is_lazy() {
            return None;
        }
        if elsewhere(tile).is_some() {
            let is_here = data.locality() == Locality::Shared;
            return is_here.then(|| about_bytes(data, columns));
        }
        // Of what all can read each member reads its part in a statement that is spread.
        let is_of_all = self.is_any && self.looker.has(tile);
        Some(match is_of_all {
            true => about_bytes(data, columns),
            false => 0,
        })
    }

    /// What is read of others; `None` for more than `most` bytes, and where some of it is not on this host.
    fn of_others<'a>(&mut self, reads: &'a [Reads], most: u64) -> Option<OfOthers<'a>> {
        let mut found = OfOthers::default();
        for read in reads {
            let bands = bands_of(&read.grid, read.columns.iter().copied());
            for row_band in &read.row_bands {
                let tiles = read.grid.row_band(*row_band);
                let touched = bands
                    .iter()
                    .filter_map(|(band, columns)| Some((tiles.get(*band)?, columns)));
                for (tile, columns) in touched {
                    found.bytes = found.bytes.saturating_add(self.bytes(tile, columns)?);
                    if let Some(of) = member_tile(tile) {
                        found.tiles.push(of);
                        if !of.is_mapped() {
                            let whole = tile.data().memory_bytes();
                            found.whole_bytes = found.whole_bytes.saturating_add(whole);
                        }
                    }
                    if found.bytes > most {
                        return None;
                    }
                }
            }
        }
        Some(found)
    }
}

impl Cluster {
    fn finding(&self, members: Option<Arc<Members>>) -> Finding<'_> {
        Finding {
            members,
            looker: self.anywhere.looker(),
            is_any: self.anywhere.is_any(),
        }
    }

    /// Whether a statement that mentions this may turn out to be one that this member runs alone.
    pub(in crate::cluster) fn might_be_alone(&self, reads: &[Reads]) -> bool {
        let most = self.near.bytes.saturating_mul(MENTIONED);
        self.near.is_on() && self.finding(None).of_others(reads, most).is_some()
    }

    /// Whether this member runs a statement alone that reads this; what others have of it is mapped then.
    pub(in crate::cluster) fn is_alone_with(&self, reads: &[Reads]) -> Alone {
        let most = self.near.bytes;
        let members = self.members();
        let known = self.near.is_on().then(|| Arc::clone(&members));
        let found = known.and_then(|known| self.finding(Some(known)).of_others(reads, most));
        let most_whole = most.saturating_mul(WHOLE);
        let Some(found) = found.filter(|found| found.whole_bytes <= most_whole) else {
            return Alone::No;
        };
        // There is room once some are let go of, or their grids are gone: then plans are made anew.
        if !self.has_room_for(&found.tiles) {
            return Alone::No;
        }
        let mapped = self.map(&found.tiles);
        if let Err(error) = &mapped {
            tracing::debug!(%error, "a statement over little data is spread: not all of it can be mapped");
        }
        // Who left meanwhile was looked for before this was mapped.
        let now = self.members();
        if !Arc::ptr_eq(&members, &now) {
            self.let_go_of_gone(&now);
            return Alone::NotNow;
        }
        match mapped.map_err(|error| error.kind()) {
            Ok(()) => Alone::Yes,
            Err(ErrorKind::ResourcesExhausted) => Alone::NotNow,
            Err(_) => Alone::No,
        }
    }

    /// A number that is another one once a plan of before may not be right any more: others are members, or tiles that it counts on were let go of.
    pub(in crate::cluster) fn near_moment(&self) -> u64 {
        let num_let_go = self.reach.near.num_let_go();
        self.members().digest().wrapping_add(num_let_go)
    }

    /// Whether so many tiles may be mapped beside those that are.
    fn has_room_for(&self, tiles: &[&MemberTile]) -> bool {
        let missing = tiles.iter().filter(|tile| !tile.is_mapped()).count();
        self.reach.near.number().saturating_add(missing) <= MOST_TILES
    }

    /// Maps tiles of members, each once.
    ///
    /// # Errors
    /// As [`MemberTile::map`]; `ResourcesExhausted` when an owner does not answer at once, or did not a while ago.
    fn map(&self, tiles: &[&MemberTile]) -> Result<()> {
        let (silent, mut greeted) = (&self.near.silent, HashSet::new());
        for tile in tiles {
            let (handle, is_mapped) = (tile.handle(), tile.is_mapped());
            let owner = handle.incarnation;
            if !is_mapped && silent.has(owner, Instant::now()) {
                let text =
                    "the member that has a tile did not answer, or had no room, a moment ago";
                return Err(Error::new(ErrorKind::ResourcesExhausted, text));
            }
            // Of one that hangs nobody waits for longer than a glance.
            let heard = match !is_mapped && greeted.insert(owner) {
                true => answers(handle, GLANCE),
                false => Ok(()),
            };
            heard.and_then(|()| tile.map()).inspect_err(|error| {
                if error.kind() == ErrorKind::ResourcesExhausted {
                    silent.add(owner, Instant::now());
                }
            })?;
        }
        Ok(())
    }

    /// Lets go of what is mapped or kept of those who are no members any more: their rows are lost, here as for all others.
    pub(in crate::cluster) fn let_go_of_gone(&self, members: &Members) {
        self.reach.small.keep_only(members);
        self.each_near(|tile| {
            if members.number_of(tile.handle().incarnation).is_none() {
                tile.let_go();
                tile.let_go_of_served();
            }
        });
    }

    /// Now and then lets go of what is mapped and nobody reads.
    pub(in crate::cluster) fn let_go_of_unread(&self) {
        if self.near.is_on() && self.near.is_time() {
            self.each_near(MemberTile::let_go_if_unread);
        }
    }

    /// Looks at the tiles of members in all grids of several, if any is mapped, or had by way of its owner.
    fn each_near(&self, look: impl Fn(&MemberTile)) {
        if !self.reach.near.is_any() {
            return;
        }
        let names: Vec<String> = self.parts().made.keys().cloned().collect();
        let grids = names.iter().filter_map(|name| self.session.grid(name).ok());
        for grid in grids {
            grid.tiles().iter().filter_map(member_tile).for_each(&look);
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};

    use super::*;
    use crate::grid::MemoryTile;

    #[test]
    fn bytes_of_columns_are_told_without_a_look_at_them() {
        let columns: [(&str, ArrayRef); 3] = [
            ("number", Arc::new(Int64Array::from(vec![7; 16]))),
            ("flag", Arc::new(BooleanArray::from(vec![true; 16]))),
            (
                "text",
                Arc::new(StringArray::from(vec!["twelve bytes"; 16])),
            ),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let tile = MemoryTile::try_new(&batch).unwrap();
        let text = tile.memory_bytes() - 16 * 8 - 2;
        assert!(text >= 16 * 12);
        assert_eq!(about_bytes(&tile, &[0]), 16 * 8);
        assert_eq!(about_bytes(&tile, &[1]), 2);
        assert_eq!(about_bytes(&tile, &[2, 0]), text + 16 * 8);
        assert_eq!(about_bytes(&tile, &[]), 0);
    }

    #[test]
    fn so_many_tiles_are_mapped_and_no_more() {
        let mapped = Mapped::default();
        let mut all: Vec<Counted> = (0..MOST_TILES).map(|_| mapped.counted().unwrap()).collect();
        let error = mapped.counted().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourcesExhausted);
        assert_eq!(mapped.number(), MOST_TILES);
        all.pop();
        drop(mapped.counted().unwrap());
        drop(all);
        assert_eq!(mapped.number(), 0);
    }

    #[test]
    fn columns_are_looked_for_where_they_are() {
        let column = || Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef;
        let batch = RecordBatch::try_from_iter(["a", "b", "c"].map(|name| (name, column())));
        let batch = batch.unwrap();
        let grid = PartitionGrid::try_from_batches(batch.schema(), &[batch]).unwrap();
        assert_eq!(bands_of(&grid, [2, 0].into_iter()), [(0, vec![2, 0])]);
        assert_eq!(bands_of(&grid, std::iter::empty()), [(0, vec![])]);
    }
}
