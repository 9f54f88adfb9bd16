//! Tiles in segments.
//!
//! Comes in: the content of a segment, of this process or of another one. Goes out: tiles over the mapped memory. Never here: sockets, descriptors of others.

use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;

use super::segment::{self, Content};
use super::wire::Part;
use crate::error::{Error, Result};
use crate::grid::{ColumnBytes, GridId, Region, TileData, TileMemory, compact};
use crate::location::{Locality, Location};

/// Why this process has a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It is the memory of a tile, of this process or of another one.
    Tile,
    /// Others read a copy of a tile in private memory.
    Copy,
    /// The same of a lent grid, whose tile may lie there from then on.
    Lent,
}

/// A segment that this process has mapped.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) content: Content,
    /// Handed to those who ask; only the owner has it.
    pub(super) file: Option<File>,
    /// Where the owner is, if that is another process.
    owner: Option<Location>,
    pub(super) purpose: Purpose,
    /// What a lent tile keeps as long as it lies here.
    pub(super) settled: OnceLock<Weak<TileMemory>>,
    /// The tile for which it was made, for lists. Set once by whoever makes the grid.
    pub(super) name: OnceLock<(GridId, Vec<usize>)>,
}

impl Mapped {
    /// Copies a batch into a segment of this process.
    ///
    /// # Errors
    /// As [`segment::publish`].
    pub(super) fn publish(batch: &RecordBatch, purpose: Purpose) -> Result<Arc<Self>> {
        let (file, content) = segment::publish(batch)?;
        Ok(Arc::new(Self {
            content,
            file: Some(file),
            owner: None,
            purpose,
            settled: OnceLock::new(),
            name: OnceLock::new(),
        }))
    }

    /// What another process sent.
    pub(super) fn received(content: Content, owner: Location) -> Arc<Self> {
        Arc::new(Self {
            content,
            file: None,
            owner: Some(owner),
            purpose: Purpose::Tile,
            settled: OnceLock::new(),
            name: OnceLock::new(),
        })
    }

    /// Whether it is there for readers alone, and the tile lies elsewhere.
    pub(super) fn is_copy(&self) -> bool {
        let lies_here = |memory: &Weak<TileMemory>| memory.strong_count() > 0;
        match self.purpose {
            Purpose::Tile => false,
            Purpose::Copy => true,
            Purpose::Lent => !self.settled.get().is_some_and(lies_here),
        }
    }
}

/// A tile in memory that processes of one user and host share. Any of them reads it in place.
#[derive(Debug)]
pub struct SharedTile {
    mapped: Arc<Mapped>,
    /// Some rows and columns of the segment; all without.
    part: Option<(Range<usize>, Box<[usize]>)>,
    schema: SchemaRef,
    /// Of a tile of another process: where it lies in its grid.
    region: Option<Region>,
    bytes: ColumnBytes,
}

impl SharedTile {
    pub(super) fn new(mapped: Arc<Mapped>) -> Self {
        Self {
            bytes: ColumnBytes::new(mapped.content.batch.num_columns()),
            schema: mapped.content.batch.schema(),
            mapped,
            part: None,
            region: None,
        }
    }

    /// The tile of another process, which begins at `start` in its grid.
    ///
    /// # Errors
    /// `InvalidData` when the segment has no such rows and columns.
    pub(super) fn received(
        mapped: Arc<Mapped>,
        part: Option<Part>,
        start: Vec<u64>,
    ) -> Result<Self> {
        let whole = Self::new(mapped);
        let tile = match part {
            None => whole,
            Some(part) => whole.part_of(&part)?,
        };
        let num_columns = tile.schema.fields().len() as u64;
        let shape = [tile.num_rows(), num_columns];
        let region = Region::try_new(start, shape);
        let region = region.map_err(|error| Error::invalid_data(error.message()))?;
        let region = Some(region);
        Ok(Self { region, ..tile })
    }

    fn part_of(&self, part: &Part) -> Result<Self> {
        let number = |row: u64| usize::try_from(row).ok();
        let rows = number(part.rows.start).zip(number(part.rows.end));
        let rows = rows.map(|(start, stop)| start..stop);
        let columns: Option<Vec<usize>> = part
            .columns
            .iter()
            .map(|column| usize::try_from(*column).ok())
            .collect();
        let num_rows = self.mapped.content.batch.num_rows();
        let within = |rows: &Range<usize>| rows.start <= rows.end && rows.end <= num_rows;
        match (rows.filter(within), columns) {
            (Some(rows), Some(columns)) => self.viewed(rows, &columns),
            _ => Err(Error::invalid_data(
                "a shared tile has not the rows that its owner said",
            )),
        }
    }

    fn viewed(&self, rows: Range<usize>, columns: &[usize]) -> Result<Self> {
        let schema = self.schema.project(columns)?;
        let part = match &self.part {
            None => (rows, columns.into()),
            Some((all, known)) => {
                let below = columns.iter().filter_map(|column| known.get(*column));
                let start = all.start + rows.start;
                (start..start + rows.len(), below.copied().collect())
            }
        };
        Ok(Self {
            mapped: Arc::clone(&self.mapped),
            part: Some(part),
            bytes: ColumnBytes::new(columns.len()),
            schema: Arc::new(schema),
            region: None,
        })
    }

    pub(super) fn mapped(&self) -> &Arc<Mapped> {
        &self.mapped
    }

    /// What a reader must know beside the segment; `None` when that does not fit a packet.
    pub(super) fn wire_part(&self) -> Option<Option<Part>> {
        let Some((rows, columns)) = &self.part else {
            return Some(None);
        };
        let numbers = columns.iter().map(|column| u32::try_from(*column).ok());
        let columns: Vec<u32> = numbers.collect::<Option<_>>()?;
        let rows = rows.start as u64..rows.end as u64;
        (columns.len() <= Part::MAX_COLUMNS).then_some(Some(Part { rows, columns }))
    }

    /// Of a tile of another process: where it lies in its grid.
    #[must_use]
    pub fn region(&self) -> Option<&Region> {
        self.region.as_ref()
    }

    /// The bytes of the segment: those of the tile, padding and schema.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.mapped.content.segment_bytes
    }

    /// The bytes of the segment that had to be copied because they were not aligned; none of what partgrid wrote.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        self.mapped.content.copied_bytes
    }
}

#[async_trait]
impl TileData for SharedTile {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn num_rows(&self) -> u64 {
        let all = self.mapped.content.batch.num_rows();
        self.part.as_ref().map_or(all, |(rows, _)| rows.len()) as u64
    }

    fn memory_bytes(&self) -> u64 {
        match self.part {
            None => self.mapped.content.memory_bytes,
            Some(_) => self.bytes.all(|| self.open()),
        }
    }

    fn column_bytes(&self, columns: &[usize]) -> u64 {
        self.bytes.of(columns, || self.open())
    }

    fn locations(&self) -> Vec<Location> {
        let here = Location::here();
        let owner = self.mapped.owner.iter().filter(|owner| **owner != here);
        let mut locations: Vec<Location> = owner.cloned().collect();
        locations.insert(0, here);
        locations
    }

    fn locality(&self) -> Locality {
        Locality::Shared
    }

    fn open(&self) -> Result<RecordBatch> {
        let batch = &self.mapped.content.batch;
        match &self.part {
            None => Ok(batch.clone()),
            Some((rows, columns)) => {
                let part = batch.project(columns)?.slice(rows.start, rows.len());
                compact(&part)
            }
        }
    }

    fn open_columns(&self, columns: &[usize]) -> Result<RecordBatch> {
        match &self.part {
            None => Ok(self.mapped.content.batch.project(columns)?),
            Some((rows, _)) => self.viewed(0..rows.len(), columns)?.open(),
        }
    }

    fn view(&self, rows: Range<usize>, columns: &[usize]) -> Option<Result<Arc<dyn TileData>>> {
        let view = self.viewed(rows, columns);
        Some(view.map(|tile| Arc::new(tile) as _))
    }
}
