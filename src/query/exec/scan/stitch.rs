//! Column bands of one row band -> one batch.
//!
//! Comes in: a grid, a row band, the wanted columns in any order. Goes out: a batch with exactly these columns, without copying what is here already. Only the
//! tiles that hold a wanted column are touched. Never here: which row bands.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;

use super::tally::Tally;
use crate::error::{Error, Result};
use crate::grid::{PartitionGrid, Tile, bytes_apart, slice_bytes};
use crate::location::Locality;
use crate::query::plan::statistics::facts::Facts;

/// The wanted columns of a grid, grouped by the column band that holds them. Made once for a scan.
#[derive(Debug, Clone)]
pub(in crate::query) struct Stitch {
    /// Column band -> (column within the band, place in the result).
    bands: BTreeMap<usize, Vec<(usize, usize)>>,
    num_columns: usize,
    schema: SchemaRef,
    numbers: Numbers,
}

/// Which row bands and which column bands of another grid those of a grid are; bands of which nothing is said have their own numbers.
pub(in crate::query) type Numbers = [Vec<usize>; 2];

impl Stitch {
    /// For the columns `columns` of the grid, in this order.
    pub(in crate::query) fn try_new(grid: &PartitionGrid, columns: &[usize]) -> Result<Self> {
        let mut bands: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
        for (place, column) in columns.iter().enumerate() {
            let (band, local) = grid
                .columns()
                .locate(*column as u64)
                .ok_or_else(|| Error::internal(format!("the grid has no column {column}")))?;
            let local = usize::try_from(local).unwrap_or(usize::MAX);
            bands.entry(band).or_default().push((local, place));
        }
        Ok(Self {
            bands,
            num_columns: columns.len(),
            schema: Arc::new(grid.schema().project(columns)?),
            numbers: Numbers::default(),
        })
    }

    /// The same over some bands of another grid: errors name tiles by their positions there.
    #[cfg(feature = "distributed")]
    #[must_use]
    pub(super) fn with_numbers(self, numbers: Numbers) -> Self {
        Self { numbers, ..self }
    }

    /// Which bands of another grid it reads, where that was said.
    #[cfg(feature = "distributed")]
    pub(super) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// The position of a tile as errors name it.
    pub(super) fn named(&self, (row_band, band): (usize, usize)) -> [usize; 2] {
        let [row_bands, bands] = &self.numbers;
        [
            row_bands.get(row_band).copied().unwrap_or(row_band),
            bands.get(band).copied().unwrap_or(band),
        ]
    }

    /// The column bands that are touched, and which of their columns.
    pub(in crate::query) fn bands(&self) -> impl Iterator<Item = (usize, Vec<usize>)> + '_ {
        self.bands
            .iter()
            .map(|(band, wanted)| (*band, locals(wanted)))
    }

    /// How far the furthest tile of a row band is that is touched.
    pub(in crate::query) fn furthest(&self, facts: &Facts, row_band: usize) -> Locality {
        let localities = facts.localities(row_band);
        let touched = self.bands.keys().filter_map(|band| localities.get(*band));
        touched.max().copied().unwrap_or(Locality::Memory)
    }

    /// The number of columns.
    pub(super) fn num_columns(&self) -> usize {
        self.num_columns
    }

    /// The column of the result at a place, as the tile at a row band and one of its columns.
    pub(super) fn origin<'a>(
        &self,
        grid: &'a PartitionGrid,
        (row_band, place): (usize, usize),
    ) -> Option<(&'a Tile, usize)> {
        let mut bands = self.bands.iter();
        bands.find_map(|(band, wanted)| {
            let (local, _) = wanted.iter().find(|(_, other)| *other == place)?;
            Some((grid.row_band(row_band).get(*band)?, *local))
        })
    }

    /// Whether bytes of a row band are not in the memory of this process.
    pub(super) fn is_far(&self, facts: &Facts, row_band: usize) -> bool {
        let (tiles, localities) = (facts.grid().row_band(row_band), facts.localities(row_band));
        self.bands.keys().any(|band| {
            let found = tiles.get(*band).zip(localities.get(*band));
            found.is_some_and(|(tile, locality)| is_brought(tile, *locality))
        })
    }

    /// Puts the columns at the places that are wanted and still missing into `columns`, for all rows of one row band.
    pub(super) async fn fetch(
        &self,
        (facts, row_band, tally): (&Facts, usize, &Tally),
        columns: &mut [Option<ArrayRef>],
        is_wanted: impl Fn(usize) -> bool + Send,
    ) -> Result<()> {
        let grid = facts.grid();
        let localities = facts.localities(row_band);
        for (band, wanted) in &self.bands {
            let is_missing = |(_, place): &&(usize, usize)| {
                is_wanted(*place) && columns.get(*place).is_some_and(Option::is_none)
            };
            let wanted: Vec<_> = wanted.iter().filter(is_missing).copied().collect();
            if wanted.is_empty() {
                continue;
            }
            let locals = locals(&wanted);
            let tile = grid.tile(&[row_band, *band])?;
            let batch = tile
                .data()
                .fetch(&locals)
                .await
                .map_err(|error| error.with_position(&self.named((row_band, *band))))?;
            let locality = localities.get(*band).copied().unwrap_or(Locality::Process);
            if is_brought(tile, locality) {
                tally.bring(locality, slice_bytes(&batch));
            } else {
                // Whoever gives the same buffers twice has copied nothing.
                let again = tile.data().open_columns(&locals)?;
                tally.copy(locality, bytes_apart(&batch, &again));
            }
            for ((_, place), column) in wanted.iter().zip(batch.columns()) {
                if let Some(slot) = columns.get_mut(*place) {
                    *slot = Some(ArrayRef::clone(column));
                }
            }
        }
        Ok(())
    }

    /// The batch of all columns of one row band.
    pub(super) fn batch(
        &self,
        facts: &Facts,
        row_band: usize,
        columns: Vec<Option<ArrayRef>>,
    ) -> Result<RecordBatch> {
        let rows = facts
            .grid()
            .rows()
            .interval(row_band)
            .map(|rows| rows.end - rows.start);
        let num_rows = rows.and_then(|rows| usize::try_from(rows).ok());
        let options = RecordBatchOptions::new().with_row_count(num_rows);
        let columns = columns.into_iter().flatten().collect();
        let schema = SchemaRef::clone(&self.schema);
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}

fn locals(wanted: &[(usize, usize)]) -> Vec<usize> {
    wanted.iter().map(|(local, _)| *local).collect()
}

/// Whether the bytes of a tile are not in the memory of this process before it is fetched.
pub(super) fn is_brought(tile: &Tile, locality: Locality) -> bool {
    tile.data().is_lazy() || matches!(locality, Locality::Device | Locality::Process)
}
