//! One grid of what several processes have.
//!
//! Comes in: grids of equal columns. Goes out: one grid with the rows of all, one after another, over the same tiles. Never here: copying, reaching the other processes.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;

use futures::future::{join_all, try_join_all};
use futures::try_join;

use super::Cluster;
use super::members::{Member, Members};
use super::tile::MemberTile;
use crate::error::{Error, Result};
use crate::flight::messages::GridPart;
use crate::grid::{Axis, GridBuilder, GridId, PartitionGrid};
use crate::query::{sample, sample_of_parts};
use crate::share::{Heard, publish};

/// The longest name of a grid.
const MOST_NAME_BYTES: usize = 200;

/// How many parts are asked for at a time.
const AT_ONCE: usize = 16;

/// About how many rows of a grid are looked at to plan over it, and of each part at least.
const SAMPLE_ROWS: u64 = 4096;
const LEAST_SAMPLE_ROWS: u64 = 32;

/// The most parts that a grid may have.
const MOST_PARTS: usize = 100_000;

/// What this process has of grids of all, and of which parts those grids were made that it knows.
#[derive(Debug, Default)]
pub(super) struct Parts {
    own: BTreeMap<(String, u64), (u64, Arc<PartitionGrid>)>,
    made: BTreeMap<String, Made>,
}

/// A grid that was put under its name.
#[derive(Debug)]
struct Made {
    id: GridId,
    /// The ids of its parts.
    of: Vec<Vec<u8>>,
}

impl Cluster {
    /// Makes a grid part `number` of the `of` parts of the grid `name`, whose rows come in the order of the numbers. Once all parts are there, statements at any member find the grid, within a second or
    /// after [`Cluster::refresh`]. Nothing is copied; the tiles stay in this process, as long as the part is not taken away.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that no grid may have, and for a number that is not less than `of`.
    pub fn contribute(
        &self,
        name: &str,
        grid: Arc<PartitionGrid>,
        number: usize,
        of: usize,
    ) -> Result<()> {
        let has_control = name.chars().any(char::is_control);
        if name.is_empty() || name.len() > MOST_NAME_BYTES || has_control {
            let text = format!(
                "the name of a grid must have 1 to {MOST_NAME_BYTES} bytes and no control characters, got {name:?}"
            );
            return Err(Error::invalid_argument(text));
        }
        if number >= of || of > MOST_PARTS {
            let text = format!(
                "the number of a part must be less than that of all parts, which may be {MOST_PARTS} at most, got part {number} of {of}"
            );
            return Err(Error::invalid_argument(text));
        }
        publish(&grid);
        let key = (name.to_owned(), number as u64);
        self.parts().own.insert(key, (of as u64, grid));
        Ok(())
    }

    /// Takes the parts of a grid away that this process has; says whether there were any. The grid of all is gone from this member with them.
    #[must_use]
    pub fn withdraw(&self, name: &str) -> bool {
        let mut parts = self.parts();
        let before = parts.own.len();
        parts.own.retain(|(known, _), _| known != name);
        if before == parts.own.len() {
            return false;
        }
        if let Some(made) = parts.made.remove(name)
            && self
                .session
                .grid(name)
                .is_ok_and(|grid| grid.id() == made.id)
        {
            let _was_there = self.session.deregister(name);
        }
        true
    }

    /// What this process has.
    pub(crate) fn own_parts(&self) -> Vec<GridPart> {
        let parts = self.parts();
        let own = parts.own.iter();
        own.map(|((name, number), (of, grid))| GridPart {
            name: name.clone(),
            number: *number,
            of: *of,
            id: grid.id().bits().to_le_bytes().to_vec(),
        })
        .collect()
    }

    /// A part that this process has.
    ///
    /// # Errors
    /// `NotFound` when it has no such part any more.
    pub(crate) fn own_part(&self, part: &GridPart) -> Result<Arc<PartitionGrid>> {
        let key = (part.name.clone(), part.number);
        let parts = self.parts();
        let own = parts.own.get(&key).map(|(_, grid)| Arc::clone(grid));
        own.filter(|grid| grid.id().bits().to_le_bytes().as_slice() == part.id)
            .ok_or_else(|| {
                let text = format!("this member has no such part of {:?} any more", part.name);
                Error::not_found(text)
            })
    }

    /// A part that this process has, by its id.
    pub(crate) fn part_with(&self, id: GridId) -> Option<Arc<PartitionGrid>> {
        let parts = self.parts();
        let mut own = parts.own.values().map(|(_, grid)| grid);
        own.find(|grid| grid.id() == id).map(Arc::clone)
    }

    /// Puts every grid under its name all of whose parts some member has. One that was made before stays as it was while parts of it are missing: statements over it fail rather than leave rows out.
    ///
    /// # Errors
    /// What stands in the way of any of them, once the others were looked at.
    pub(super) async fn gather(&self, members: &Members) -> Result<()> {
        let mut failed = Ok(());
        let mut found: BTreeMap<String, Vec<(GridPart, Member)>> = BTreeMap::new();
        for member in members.iter() {
            let parts = match member.incarnation() == members.own().incarnation() {
                true => Ok(self.own_parts()),
                false => self.parts_at(member).await,
            };
            match parts {
                Ok(parts) => {
                    for part in parts {
                        let of_grid = found.entry(part.name.clone()).or_default();
                        of_grid.push((part, member.clone()));
                    }
                }
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        for (name, parts) in found {
            let made = self.make(&name, parts).await;
            let made = made.map_err(|error| error.with_context("grid", name.as_str()));
            failed = failed.and(made);
        }
        failed
    }

    /// Tells all other members that the catalog that they share has changed; who does not hear it looks by itself.
    pub(crate) async fn tell_of_catalog(&self) {
        let members = self.members();
        let others = members.iter().skip(1);
        let telling = others.map(|member| async {
            let told = async { self.reach.client(member.uri()).await?.look_at_catalog().await };
            if let Err(error) = told.await {
                tracing::debug!(member = member.uri(), %error, "a member was not told of a change of the catalog");
            }
        });
        join_all(telling).await;
    }

    async fn parts_at(&self, member: &Member) -> Result<Vec<GridPart>> {
        self.reach.client(member.uri()).await?.parts().await
    }

    /// The grid of these parts, under its name, if they are all and others than before.
    async fn make(&self, name: &str, mut parts: Vec<(GridPart, Member)>) -> Result<()> {
        parts.sort_by_key(|(part, _)| part.number);
        check_numbers(&parts)?;
        let of = parts.first().map_or(0, |(part, _)| part.of);
        if parts.len() as u64 != of {
            return Ok(());
        }
        let ids: Vec<Vec<u8>> = parts.iter().map(|(part, _)| part.id.clone()).collect();
        let ours = match self.parts().made.get(name) {
            Some(made) if made.of == ids => return Ok(()),
            made => made.map(|made| made.id),
        };
        // What a statement put there instead is not ours.
        let is_ours = ours.is_some() && self.session.grid(name).ok().map(|grid| grid.id()) == ours;
        if !is_ours && self.session.tables().iter().any(|known| known == name) {
            let text = "this member has another grid or view under the name of one of the cluster";
            return Err(Error::invalid_argument(text)
                .with_hint("drop it, or contribute the parts under another name"));
        }
        let mut grids = Vec::with_capacity(parts.len());
        for some in parts.chunks(AT_ONCE) {
            let asked = some.iter().map(|(part, member)| self.part_of(part, member));
            grids.extend(try_join_all(asked).await?);
        }
        let (grids, samples): (Vec<_>, Vec<_>) = grids.into_iter().unzip();
        let grid = Arc::new(of_parts(&grids)?);
        let id = grid.id();
        let lengths = grids.iter().map(|grid| grid.num_rows());
        let samples: Vec<_> = samples.into_iter().zip(lengths).collect();
        let sample = sample_of_parts(&samples);
        self.session.register_sampled(name, grid, sample);
        let made = Made { id, of: ids };
        self.parts().made.insert(name.to_owned(), made);
        Ok(())
    }

    /// A part, and some of its rows.
    async fn part_of(
        &self,
        part: &GridPart,
        member: &Member,
    ) -> Result<(Arc<PartitionGrid>, Option<RecordBatch>)> {
        if member.incarnation() == self.members().own().incarnation() {
            let own = self.own_part(part)?;
            let sample = sample(&own, sample_rows(part));
            return Ok((own, sample));
        }
        let client = self.reach.client(member.uri()).await?;
        let (described, told, sample) = try_join!(
            client.part(part),
            client.part_statistics(part),
            client.part_sample(part)
        )?;
        let heard = Heard::read(&told, described.schema(), described.rows().num_intervals())?;
        let forbids = self.forbids_fetching;
        let part = MemberTile::of_part(&described, heard, (member.uri(), forbids), &self.reach)?;
        Ok((Arc::new(part), sample_told(&sample)?))
    }
}

/// How many rows of a part are looked at: together as many as of a grid of one process, and some of each.
fn sample_rows(part: &GridPart) -> u64 {
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

fn sample_told(message: &[u8]) -> Result<Option<RecordBatch>> {
    if message.is_empty() {
        return Ok(None);
    }
    Ok(StreamReader::try_new(Cursor::new(message), None)?
        .next()
        .transpose()?)
}

/// # Errors
/// `InvalidArgument` when two members have the same part, or do not agree on how many there are: nobody knows which of them to believe.
fn check_numbers(parts: &[(GridPart, Member)]) -> Result<()> {
    for pair in parts.windows(2) {
        let [(one, at), (other, at_other)] = pair else {
            continue;
        };
        let (at, at_other) = (at.uri(), at_other.uri());
        if one.of != other.of {
            let text = format!(
                "the members do not agree on how many parts the grid has: {} at {at}, {} at {at_other}",
                one.of, other.of
            );
            return Err(
                Error::invalid_argument(text).with_hint("contribute all parts with the same `of`")
            );
        }
        if one.number == other.number {
            let text = format!("two members have part {}: {at} and {at_other}", one.number);
            return Err(Error::invalid_argument(text).with_hint("withdraw one of them"));
        }
    }
    Ok(())
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
    if part.schema().fields() != first.schema().fields() {
        let text = format!(
            "the parts of a grid must have equal columns; those of part {number} are {:?}, those of part 0 {:?}",
            part.schema().fields(),
            first.schema().fields()
        );
        return Err(Error::invalid_argument(text));
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
