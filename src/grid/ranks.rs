//! Grids of SPMD programs: every rank has some of the tiles, all ranks have the same outline.
//!
//! Comes in: what each rank said of its part, and the part of this rank. Goes out: the grid of all, on each rank the same but for which tiles are here; [`Ranks`], who has which tile.
//! Never here: communication (whoever calls has gathered what the ranks said), decisions that ranks could make differently: the same parts give the same errors everywhere.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};

use crate::error::{Error, Result};
use crate::grid::PartitionGrid;
use crate::grid::absent::AbsentTile;
use crate::grid::axis::Axis;
use crate::grid::build::GridBuilder;
use crate::grid::tile::Tile;
use crate::location::Location;

/// Who has which tile of a grid of an SPMD program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranks {
    rank: usize,
    num_ranks: usize,
    /// The rank of each tile, row-major.
    owners: Arc<[usize]>,
}

impl Ranks {
    /// `rank` of `num_ranks`, and the rank that has each tile, in row-major order.
    ///
    /// # Errors
    /// `InvalidArgument` when a number is not below `num_ranks`.
    pub fn try_new(rank: usize, num_ranks: usize, owners: impl Into<Arc<[usize]>>) -> Result<Self> {
        let owners = owners.into();
        let wrong = owners
            .iter()
            .chain([&rank])
            .find(|rank| **rank >= num_ranks);
        if let Some(wrong) = wrong {
            let text = format!("a rank must be less than {num_ranks}, got {wrong}");
            return Err(Error::invalid_argument(text));
        }
        Ok(Self {
            rank,
            num_ranks,
            owners,
        })
    }

    /// The rank of this process.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub fn num_ranks(&self) -> usize {
        self.num_ranks
    }

    /// The rank that has each tile, in row-major order of positions.
    #[must_use]
    pub fn owners(&self) -> &[usize] {
        &self.owners
    }

    /// The same ranks for a grid made of these tiles, by their numbers in row-major order.
    pub(super) fn of_tiles(&self, tiles: &[usize]) -> Self {
        let owner = |tile: &usize| self.owners.get(*tile).copied().unwrap_or(self.rank);
        Self {
            owners: tiles.iter().map(owner).collect(),
            ..*self
        }
    }
}

/// What one rank says of its part to all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankPart {
    /// Where its tiles are.
    pub location: Location,
    /// Its rows; without it, none.
    pub outline: Option<Outline>,
    /// Where its grid is a part of an SPMD program already: which tiles of the whole it has, row-major. The outline is then that of the whole.
    pub locals: Option<Vec<bool>>,
}

/// A grid without its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// The columns.
    pub schema: SchemaRef,
    /// Rows of each row band.
    pub row_lengths: Vec<u64>,
    /// The cuts between column bands.
    pub column_cuts: Vec<u64>,
}

impl Outline {
    /// That of a grid.
    #[must_use]
    pub fn of(grid: &PartitionGrid) -> Self {
        let lengths = grid.rows().intervals().map(|rows| rows.end - rows.start);
        Self {
            schema: Arc::clone(grid.schema()),
            row_lengths: lengths.collect(),
            column_cuts: grid.columns().cuts().to_vec(),
        }
    }
}

impl PartitionGrid {
    /// The grid of all ranks: the row bands of rank 0, those of rank 1 below them, and so on. `local` is the part of this rank, whose tiles are shared; a rank without an outline has one
    /// empty row band. When the grids of all ranks are parts of one whole already, it is that whole, and the lowest rank that has a tile owns it. A column is nullable where one rank says so. Metadata of the schema is that of the lowest rank with rows.
    ///
    /// # Errors
    /// On all ranks alike: `InvalidArgument` when two ranks have other columns or cuts between columns, or when no rank has any; the text names the ranks.
    pub fn try_from_ranks(parts: &[RankPart], rank: usize, local: Option<&Self>) -> Result<Self> {
        if parts.iter().any(|part| part.locals.is_some()) {
            return adopted(parts, rank, local);
        }
        let (schema, columns) = agreed(parts)?;
        let bands: Vec<(usize, u64)> = parts
            .iter()
            .enumerate()
            .flat_map(|(rank, part)| {
                let lengths = part
                    .outline
                    .as_ref()
                    .map(|outline| outline.row_lengths.clone());
                let lengths = lengths.unwrap_or_else(|| vec![0]);
                lengths.into_iter().map(move |length| (rank, length))
            })
            .collect();
        let rows = Axis::try_from_lengths(bands.iter().map(|(_, length)| *length))?;
        let owners = bands
            .iter()
            .flat_map(|(owner, _)| std::iter::repeat_n(*owner, columns.num_intervals()));
        let ranks = Ranks::try_new(rank, parts.len(), owners.collect::<Vec<usize>>())?;
        let first = bands.iter().position(|(owner, _)| *owner == rank);
        let first = first.ok_or_else(|| Error::internal("every rank has a row band"))?;
        let mut builder =
            GridBuilder::try_new(Arc::clone(&schema), rows, columns.clone())?.with_ranks(ranks)?;
        for (row_band, (owner, length)) in bands.iter().enumerate() {
            for (band, range) in columns.intervals().enumerate() {
                let fields = fields_of(&schema, range);
                let tile = match (local, *owner == rank) {
                    (Some(local), true) => local.tile(&[row_band - first, band])?.clone(),
                    (None, true) => {
                        let schema = Arc::new(Schema::new(fields));
                        Tile::try_from_batch(&RecordBatch::new_empty(schema))?
                    }
                    (_, false) => {
                        let place = parts.get(*owner).map(|part| part.location.clone());
                        let schema = Arc::new(Schema::new(fields));
                        let places = place.into_iter().collect();
                        Tile::new(Arc::new(AbsentTile::new(schema, *length, places)))
                    }
                };
                builder.set(&[row_band, band], tile)?;
            }
        }
        builder.build()
    }

    /// The rows whose tiles this rank has, as a grid of their own. `None` for a grid of no SPMD program.
    ///
    /// # Errors
    /// `Unsupported`, on all ranks alike, when the row bands of a rank do not lie together or in the order of the ranks, or when two ranks share a row band.
    pub fn rank_part(&self) -> Result<Option<Self>> {
        let (Some(ranks), Some(rows)) = (self.ranks(), self.rank_rows()?) else {
            return Ok(None);
        };
        match rows.get(ranks.rank()) {
            Some(range) if range.start < range.end => self.slice(range.clone()).map(Some),
            _ => Self::try_from_batches(Arc::clone(self.schema()), &[]).map(Some),
        }
    }

    /// The rows of each rank. `None` for a grid of no SPMD program.
    ///
    /// # Errors
    /// As [`Self::rank_part`].
    pub fn rank_rows(&self) -> Result<Option<Vec<std::ops::Range<u64>>>> {
        let Some(ranks) = self.ranks() else {
            return Ok(None);
        };
        let width = self.columns().num_intervals();
        let mut lengths = vec![0_u64; ranks.num_ranks()];
        let mut before = 0;
        for (row_band, owners) in ranks.owners().chunks(width.max(1)).enumerate() {
            let owner = owners.first().copied().unwrap_or(0);
            if let Some(column_band) = owners.iter().position(|other| *other != owner) {
                let text =
                    "two ranks have tiles of one row band; only rows may be cut between ranks";
                return Err(Error::unsupported(text).with_position(&[row_band, column_band]));
            }
            if owner < before {
                let text = format!(
                    "the rows must lie in the order of the ranks, but rank {owner} has rows below those of rank {before}"
                );
                return Err(Error::unsupported(text).with_position(&[row_band, 0]));
            }
            before = owner;
            let rows = self.rows().interval(row_band).unwrap_or(0..0);
            if let Some(length) = lengths.get_mut(owner) {
                *length += rows.end - rows.start;
            }
        }
        Ok(Some(Axis::try_from_lengths(lengths)?.intervals().collect()))
    }
}

/// The whole of which the grids of all ranks are parts already.
fn adopted(
    parts: &[RankPart],
    rank: usize,
    local: Option<&PartitionGrid>,
) -> Result<PartitionGrid> {
    let first = parts.first().and_then(|part| part.outline.as_ref());
    for (rank, part) in parts.iter().enumerate() {
        let shape = |outline: &Outline| (outline.row_lengths.clone(), outline.column_cuts.clone());
        let same = part.outline.as_ref().map(shape) == first.map(shape);
        let alike =
            parts.first().map(|first| first.locals.is_some()) == Some(part.locals.is_some());
        if !alike || !same {
            let text = format!(
                "either all ranks bring rows of their own, or all bring the same grid of an SPMD program: rank 0 and rank {rank} differ"
            );
            return Err(Error::invalid_argument(text));
        }
    }
    let (schema, columns) = agreed(parts)?;
    let Some(local) = local else {
        return Err(Error::internal("a rank with an outline has a grid"));
    };
    let has = |part: &RankPart, tile: usize| {
        let locals = part.locals.as_ref();
        locals.is_some_and(|locals| locals.get(tile) == Some(&true))
    };
    let owners = (0..local.tiles().len()).map(|tile| {
        let owner = parts.iter().position(|part| has(part, tile));
        owner.ok_or_else(|| {
            let position = local.geometry().position(tile).unwrap_or_default();
            Error::invalid_argument("no rank has the tile").with_position(&position)
        })
    });
    let owners: Vec<usize> = owners.collect::<Result<_>>()?;
    let ranks = Ranks::try_new(rank, parts.len(), owners.clone())?;
    let mut builder =
        GridBuilder::try_new(Arc::clone(&schema), local.rows().clone(), columns.clone())?
            .with_ranks(ranks)?;
    let tiles = local.geometry().positions().zip(local.tiles()).zip(owners);
    for ((position, tile), owner) in tiles {
        if owner == rank {
            builder.set(&position, tile.clone())?;
            continue;
        }
        let range = position.get(1).and_then(|band| columns.interval(*band));
        let fields = fields_of(&schema, range.unwrap_or(0..0));
        let place = parts.get(owner).map(|part| part.location.clone());
        let places = place.into_iter().collect();
        let tile = AbsentTile::new(Arc::new(Schema::new(fields)), tile.num_rows(), places);
        builder.set(&position, Tile::new(Arc::new(tile)))?;
    }
    builder.build()
}

/// Columns and cuts on which all ranks agree.
fn agreed(parts: &[RankPart]) -> Result<(SchemaRef, Axis)> {
    let mut said = parts.iter().enumerate().filter_map(|(rank, part)| {
        let outline = part.outline.as_ref()?;
        Some((rank, outline))
    });
    let Some((first, outline)) = said.next() else {
        let text = "at least one rank must have data, so that the columns are known";
        return Err(Error::invalid_argument(text));
    };
    let mut fields: Vec<Field> = outline
        .schema
        .fields()
        .iter()
        .map(|field| field.as_ref().clone())
        .collect();
    for (rank, other) in said {
        check_columns((first, outline), (rank, other))?;
        for (field, found) in fields.iter_mut().zip(other.schema.fields()) {
            if found.is_nullable() {
                field.set_nullable(true);
            }
        }
    }
    let schema = Schema::new_with_metadata(fields, outline.schema.metadata().clone());
    Ok((
        Arc::new(schema),
        Axis::try_new(outline.column_cuts.clone())?,
    ))
}

fn check_columns(
    (first, wanted): (usize, &Outline),
    (rank, found): (usize, &Outline),
) -> Result<()> {
    let (columns, others) = (wanted.schema.fields(), found.schema.fields());
    if columns.len() != others.len() {
        return Err(Error::invalid_argument(format!(
            "all ranks must have the same columns: rank {first} has {}, rank {rank} has {}",
            columns.len(),
            others.len()
        )));
    }
    for (field, other) in columns.iter().zip(others) {
        if field.name() != other.name() || field.data_type() != other.data_type() {
            let shown = |field: &Field| format!("`{}` {}", field.name(), field.data_type());
            return Err(Error::invalid_argument(format!(
                "all ranks must have the same columns: rank {first} has {}, rank {rank} has {}",
                shown(field),
                shown(other)
            ))
            .with_column(field.name()));
        }
    }
    if wanted.column_cuts != found.column_cuts {
        return Err(Error::invalid_argument(format!(
            "all ranks must cut columns alike: rank {first} cuts at {:?}, rank {rank} at {:?}",
            wanted.column_cuts, found.column_cuts
        )));
    }
    Ok(())
}

fn fields_of(schema: &SchemaRef, range: std::ops::Range<u64>) -> Vec<Arc<Field>> {
    let bounds = |index: u64| usize::try_from(index).unwrap_or(usize::MAX);
    let fields = schema.fields().iter();
    let wanted = fields.skip(bounds(range.start));
    wanted
        .take(bounds(range.end - range.start))
        .map(Arc::clone)
        .collect()
}
