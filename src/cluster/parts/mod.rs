//! The parts that this process has of grids of all.
//!
//! Comes in: grids, each with its number among the parts of a grid of several members; questions of the others. Goes out: what this process has, originals and copies; one grid over the tiles of parts of equal columns.
//! Read on in `gather.rs` (one grid of what several have), `withdrawn.rs` (what is to be had no more), `incomplete.rs` (what is wrong with parts), `watch.rs` (parts that change meanwhile), `copies.rs` (who is to have copies) with
//! `copying.rs` (making them) and `files.rs` (such that are but names of files), `rebalance.rs` (dealing rows out anew) with `shares.rs` (to whom). Never here: copying, reaching the other processes, which parts make the grid of all (`gather.rs`).

pub(super) mod copies;
pub(super) mod copying;
pub(super) mod files;
pub(super) mod gather;
pub(super) mod incomplete;
mod part_of;
pub(super) mod rebalance;
pub(super) mod shares;
pub(super) mod watch;
pub(super) mod withdrawn;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Fields};
use arrow::ipc::writer::StreamWriter;

use super::Cluster;
use super::codec::tiles::id_bytes;
use crate::error::{Error, Result};
use crate::flight::messages::GridPart;
use crate::grid::{Axis, GridBuilder, GridId, PartitionGrid};
use crate::query::sample;
use crate::share::{Incarnation, ipc, publish};
pub use part_of::PartOf;

use copies::Deal;
use watch::{Watch, Watched};
use withdrawn::Withdrawn;

/// The longest name of a grid.
const MOST_NAME_BYTES: usize = 200;

/// About how many rows of a grid are looked at to plan over it, and of each part at least.
const SAMPLE_ROWS: u64 = 4096;
const LEAST_SAMPLE_ROWS: u64 = 32;

/// The most parts that a grid may have.
pub(super) const MOST_PARTS: usize = 100_000;

/// The most members that may be asked to have a part.
pub(super) const MOST_REPLICAS: usize = 16;

/// How long parts stay after the rows of their grid were dealt out anew: statements that read them may go on.
const OLD: Duration = Duration::from_secs(60);

/// How long parts wait for the others of their deal, while an older one serves: whoever dealt the rows out may be gone.
const UNFINISHED: Duration = Duration::from_secs(3600);

/// Names a part among all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) name: String,
    deal: Deal,
    number: u64,
}

impl Place {
    fn of(part: &GridPart) -> Self {
        Self {
            name: part.name.clone(),
            deal: Deal::of(part),
            number: part.number,
        }
    }
}

/// Parts with what is told of them.
pub(super) type Kept = BTreeMap<Place, (GridPart, Arc<PartitionGrid>)>;

/// What this process has of grids of all, and of which parts those grids were made that it knows.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) own: Kept,
    pub(super) copies: Kept,
    pub(super) withdrawn: Withdrawn,
    /// Since when deals are not the one that serves.
    pub(super) aging: BTreeMap<(String, Deal), Instant>,
    /// The grids whose changes somebody looks at now.
    pub(super) watched: BTreeMap<String, Watched>,
    pub(super) made: BTreeMap<String, Made>,
}

/// A grid that was put under its name.
#[derive(Debug, Clone)]
pub(super) struct Made {
    pub(super) id: GridId,
    /// The ids of its parts, and the lives of the members that serve them.
    pub(super) of: Vec<(Vec<u8>, Incarnation)>,
    pub(super) deal: Deal,
    /// What is equal for grids of the same rows.
    pub(super) data: u128,
    /// How many members are to have each part.
    pub(super) replicas: u32,
    /// The ids of those that had the name before with the same rows in the same row bands, the last one last.
    pub(super) same: Vec<GridId>,
    /// Whether the name was taken away here since; the next look sees to the rest.
    pub(super) is_dropped: bool,
}

impl Parts {
    /// All that is here.
    fn all(&self) -> impl Iterator<Item = &(GridPart, Arc<PartitionGrid>)> {
        self.own.values().chain(self.copies.values())
    }

    /// Whether the rows of a grid were dealt out anew since they were contributed.
    fn is_dealt_anew(&self, name: &str) -> bool {
        let made = self.made.get(name);
        let mut places = self.own.keys().chain(self.copies.keys());
        made.is_some_and(|made| made.deal.generation > 0)
            || places.any(|place| place.name == name && place.deal.generation > 0)
    }

    /// Keeps a copy, unless nobody wants it any more; says whether.
    pub(super) fn add_copy(&mut self, copy: GridPart, grid: Arc<PartitionGrid>) -> bool {
        let place = Place::of(&copy);
        let is_wanted = !self.refuses(&copy) && !self.own.contains_key(&place);
        if is_wanted {
            self.copies.insert(place, (copy, grid));
        }
        is_wanted
    }

    /// Lets a copy go.
    pub(super) fn drop_copy(&mut self, copy: &GridPart) {
        let place = Place::of(copy);
        let known = self.copies.get(&place);
        if known.is_some_and(|(part, _)| part.id == copy.id) {
            self.copies.remove(&place);
        }
    }

    /// Lets the parts of one deal go.
    pub(super) fn drop_deal(&mut self, name: &str, deal: Deal) {
        let is_other = |place: &Place| place.name != name || place.deal != deal;
        self.own.retain(|place, _| is_other(place));
        self.copies.retain(|place, _| is_other(place));
    }

    /// Lets parts go of deals that are older than the one that serves, and of newer ones that were never finished, each after its time.
    pub(super) fn expire(&mut self, name: &str, serving: Option<Deal>, now: Instant) {
        let places = self.own.keys().chain(self.copies.keys());
        let deals = places.filter(|place| place.name == name);
        let deals: BTreeSet<Deal> = deals.map(|place| place.deal).collect();
        for deal in deals {
            let key = (name.to_owned(), deal);
            let limit = match serving {
                Some(serving) if deal < serving => OLD,
                Some(serving) if deal > serving => UNFINISHED,
                _ => {
                    self.aging.remove(&key);
                    continue;
                }
            };
            let since = *self.aging.entry(key.clone()).or_insert(now);
            if now.duration_since(since) >= limit {
                self.aging.remove(&key);
                self.drop_deal(name, deal);
                tracing::info!(
                    grid = name,
                    generation = deal.generation,
                    "parts of a deal that does not serve any more are gone"
                );
            }
        }
    }

    /// Forgets the age of deals of which this process has no parts any more.
    pub(super) fn age_only_own(&mut self) {
        let places = self.own.keys().chain(self.copies.keys());
        let there: HashSet<(&str, Deal)> = places
            .map(|place| (place.name.as_str(), place.deal))
            .collect();
        let is_there = |(name, deal): &(String, Deal)| there.contains(&(name.as_str(), *deal));
        self.aging.retain(|key, _| is_there(key));
    }
}

/// The original of a part that this process has, with its id, the member and the time.
///
/// # Errors
/// `Internal` when the operating system gives no random bytes.
fn original(told: GridPart, grid: &Arc<PartitionGrid>) -> Result<GridPart> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = since.map_or(0, |since| since.as_micros());
    publish(grid);
    Ok(GridPart {
        id: id_bytes(grid.id().bits()),
        is_copy: false,
        origin: id_bytes(Incarnation::current()?.bits()),
        since: u64::try_from(micros).unwrap_or(u64::MAX),
        ..told
    })
}

impl Parts {
    /// Keeps an original.
    fn keep(&mut self, told: GridPart, grid: Arc<PartitionGrid>) {
        let place = Place::of(&told);
        self.copies.remove(&place);
        self.own.insert(place, (told, grid));
    }

    pub(super) fn has_changed(&mut self, name: &str) {
        if let Some(watched) = self.watched.get_mut(name) {
            watched.add();
        }
    }
}

impl Cluster {
    /// Makes a grid a part of the grid `name`, whose rows come in the order of the numbers of parts. Once all parts are there, statements at any member find the grid, within a second or after
    /// [`Cluster::refresh`]. Nothing is copied here; the tiles stay in this process, as long as the part is not taken away. Where several members are to have the part, the others fetch it in the background.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that no grid may have, for a number that is not less than that of all parts, for replicas that are none or more than 16, and for a grid that was rebalanced since its parts
    /// were contributed.
    pub fn contribute(&self, name: &str, grid: Arc<PartitionGrid>, part: PartOf) -> Result<()> {
        let has_control = name.chars().any(char::is_control);
        if name.is_empty() || name.len() > MOST_NAME_BYTES || has_control {
            let text = format!(
                "the name of a grid must have 1 to {MOST_NAME_BYTES} bytes and no control characters, got {name:?}"
            );
            return Err(Error::invalid_argument(text));
        }
        let replicas = part.check()?;
        let told = GridPart {
            name: name.to_owned(),
            number: part.number as u64,
            of: part.of as u64,
            replicas,
            is_of_files: self.is_of_files(&grid),
            ..GridPart::default()
        };
        let told = original(told, &grid)?;
        let mut parts = self.parts();
        if parts.is_dealt_anew(name) {
            let text = format!(
                "the grid {name:?} was rebalanced, so that a part by its old number has no place in it"
            );
            return Err(Error::invalid_argument(text).with_hint(
                "withdraw the grid at all members first, then contribute all its parts",
            ));
        }
        // Whoever takes part again takes copies again.
        parts.withdrawn.take_part_again(name);
        parts.has_changed(name);
        parts.keep(told, grid);
        Ok(())
    }

    /// Keeps the parts that this member has taken of a grid that was dealt out anew, if none was contributed or withdrawn here since somebody watches it.
    ///
    /// # Errors
    /// `InvalidArgument` if there was; `Internal` when the operating system gives no random bytes.
    pub(super) fn keep_taken(
        &self,
        watch: &Watch<'_>,
        taken: Vec<(GridPart, Arc<PartitionGrid>)>,
    ) -> Result<()> {
        let taken = taken.into_iter();
        let taken = taken.map(|(part, grid)| {
            let is_of_files = self.is_of_files(&grid);
            let part = GridPart {
                is_of_files,
                ..part
            };
            Ok((original(part, &grid)?, grid))
        });
        let taken: Vec<(GridPart, Arc<PartitionGrid>)> = taken.collect::<Result<_>>()?;
        let mut parts = self.parts();
        if watch.has_seen_any(&parts) {
            let text = "parts of the grid were contributed or withdrawn while its rows were dealt out anew";
            return Err(Error::invalid_argument(text)
                .with_context("grid", watch.name())
                .with_hint("rebalance it again, if that is still wanted"));
        }
        for (part, grid) in taken {
            parts.keep(part, grid);
        }
        Ok(())
    }

    /// What this process has.
    pub(crate) fn own_parts(&self) -> Vec<GridPart> {
        let parts = self.parts();
        let all = parts.own.values().chain(parts.copies.values());
        all.map(|(part, _)| part.clone()).collect()
    }

    /// A part that this process has, or its copy, by the id of the original.
    ///
    /// # Errors
    /// `NotFound` when it has no such part any more.
    pub(crate) fn own_part(&self, part: &GridPart) -> Result<Arc<PartitionGrid>> {
        let place = Place::of(part);
        let parts = self.parts();
        let mut kept = [&parts.own, &parts.copies].into_iter();
        let found = kept.find_map(|kept| {
            let (known, grid) = kept.get(&place)?;
            (known.id == part.id).then(|| Arc::clone(grid))
        });
        found.ok_or_else(|| {
            let text = format!("this member has no such part of {:?} any more", part.name);
            Error::not_found(text)
        })
    }

    /// A part or copy that this process has, by its own id.
    pub(crate) fn part_with(&self, id: GridId) -> Option<Arc<PartitionGrid>> {
        let parts = self.parts();
        let mut all = parts.all();
        let found = all.find(|(_, grid)| grid.id() == id);
        found.map(|(_, grid)| Arc::clone(grid))
    }

    /// The same of a part of which the grid of all was made that was put under its name here, with that name and the id of that grid.
    pub(crate) fn part_in_use(&self, id: GridId) -> Option<(String, GridId, Arc<PartitionGrid>)> {
        let parts = self.parts();
        let (part, grid) = parts.all().find(|(_, grid)| grid.id() == id)?;
        let made = parts.made.get(&part.name)?;
        let mut of = made.of.iter();
        of.any(|(of, _)| *of == part.id)
            .then(|| (part.name.clone(), made.id, Arc::clone(grid)))
    }

    /// Of how many parts the grid with this id is made that was put under its name here; `None` where that is no grid of all.
    pub(crate) fn num_parts_of(&self, name: &str, id: GridId) -> Option<usize> {
        let parts = self.parts();
        let made = parts.made.get(name).filter(|made| made.id == id);
        made.map(|made| made.of.len())
    }

    /// The parts and copies that this process has, and that no grid here is made of: others are missing, serve instead, or have taken their place.
    pub(crate) fn parts_beside(&self) -> Vec<Arc<PartitionGrid>> {
        let own = self.members().own().incarnation();
        let parts = self.parts();
        let is_beside = |part: &GridPart| {
            let made = parts.made.get(&part.name);
            made.is_none_or(|made| made.of.iter().all(|(of, at)| *of != part.id || *at != own))
        };
        let beside = parts.all().filter(|(part, _)| is_beside(part));
        beside.map(|(_, grid)| Arc::clone(grid)).collect()
    }
}

/// How many rows of a part are looked at: together as many as of a grid of one process, and some of each.
pub(super) fn sample_rows(part: &GridPart) -> u64 {
    (SAMPLE_ROWS / part.of.max(1)).max(LEAST_SAMPLE_ROWS)
}

/// Some rows of a part that this process has, for others who plan over it; empty where they are not at hand.
///
/// # Errors
/// What Arrow says to values that it cannot write.
pub(crate) fn tell_sample(grid: &PartitionGrid, part: &GridPart) -> Result<Vec<u8>> {
    let Some(sample) = sample(grid, sample_rows(part)) else {
        return Ok(Vec::new());
    };
    let mut writer = StreamWriter::try_new(Vec::new(), &sample.schema())?;
    writer.write(&sample)?;
    Ok(writer.into_inner()?)
}

pub(super) fn sample_told(message: &[u8]) -> Result<Option<RecordBatch>> {
    if message.is_empty() {
        return Ok(None);
    }
    Ok(ipc::read_stream(message)?)
}

/// The rows of all parts, in the order in which they are given, over the same tiles. Nothing is copied.
///
/// # Errors
/// `InvalidArgument` without parts, and for parts of other columns or column bands than the first.
pub fn of_parts(parts: &[Arc<PartitionGrid>]) -> Result<PartitionGrid> {
    let first = parts
        .first()
        .ok_or_else(|| Error::invalid_argument("a grid needs at least one part, got none"))?;
    let mut lengths = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        check_like(first, number, part)?;
        let bands = part.rows().intervals();
        lengths.extend(bands.map(|band| band.end - band.start));
    }
    let axis = Axis::try_from_lengths(lengths)?;
    let columns = first.columns().clone();
    let mut builder = GridBuilder::try_new(Arc::clone(first.schema()), axis, columns)?;
    let mut row_band = 0;
    for part in parts {
        for of_part in 0..part.rows().num_intervals() {
            for (column_band, tile) in part.row_band(of_part).iter().enumerate() {
                builder.set(&[row_band, column_band], tile.clone())?;
            }
            row_band += 1;
        }
    }
    builder.build()
}

fn check_like(first: &PartitionGrid, number: usize, part: &PartitionGrid) -> Result<()> {
    let (wanted, found) = (first.schema().fields(), part.schema().fields());
    if wanted != found {
        return Err(unlike(wanted, number, found));
    }
    if part.columns() != first.columns() {
        let text = format!(
            "the parts of a grid must have equal column bands; those of part {number} are cut at {:?}, those of part 0 at {:?}",
            part.columns().cuts(),
            first.columns().cuts()
        );
        return Err(Error::invalid_argument(text));
    }
    Ok(())
}

/// What is said of the first column that is another one in a part than in part 0.
fn unlike(wanted: &Fields, number: usize, found: &Fields) -> Error {
    let is_other = |at: &usize| wanted.get(*at) != found.get(*at);
    let at = (0..wanted.len().max(found.len())).find(is_other);
    let at = at.unwrap_or_default();
    let (wanted, found) = (wanted.get(at), found.get(at));
    let shown = |field: Option<&FieldRef>| {
        field.map_or_else(
            || "none".to_owned(),
            |field| {
                let null = if field.is_nullable() { "" } else { " not null" };
                format!("`{}` {}{null}", field.name(), field.data_type())
            },
        )
    };
    let (first, this) = (shown(wanted), shown(found));
    let besides = match first == this {
        true => " with other metadata",
        false => "",
    };
    let text = format!(
        "the parts of a grid must have equal columns; column {at} is {first} in part 0, and {this}{besides} in part {number}"
    );
    let error = Error::invalid_argument(text);
    match wanted.or(found) {
        Some(field) => error.with_column(field.name()),
        None => error,
    }
}
