//! The sections of a distributed array -> a grid.
//!
//! Comes in: a distribution, and of each rank the columns of the elements that it owns. Goes out: a grid: blocks stay where they are and become tiles, other distributions are gathered into
//! the order of the global indices. Never here: halo elements, which whoever calls has left away; reading of buffers.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::interleave;
use arrow::datatypes::{Field, Schema, SchemaRef};

use crate::distarray::distribution::Distribution;
use crate::distarray::map::{Map, Place};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::{Axis, GridBuilder, PartitionGrid, Tile};

/// Makes a grid of an array of at most two dimensions: dimension 0 is rows, dimension 1 columns; one dimension is a frame of one column, none a frame of one value. `sections` has for each
/// rank the columns of what it owns, in the order of its buffer. Row bands and column bands are the blocks of the ranks; a dimension that is cyclic or unstructured becomes one band.
/// Without `names` columns are called `column_0` and so on. Nothing is copied unless rows are cyclic or unstructured.
///
/// # Errors
/// `Unsupported` for more than two dimensions, and for labels of an unstructured dimension that are not 0 up to its size; `InvalidArgument` for another number of names or of sections;
/// `Protocol` with the rank when a section has other columns than its rank owns.
pub fn import(
    distribution: &Distribution,
    sections: &[Vec<ArrayRef>],
    names: Option<&[String]>,
) -> Result<PartitionGrid> {
    fits_frame(distribution)?;
    let single = Map::block(&Axis::uncut(1));
    let dimension = |number: usize| distribution.maps().get(number).unwrap_or(&single);
    let (rows, columns) = (dimension(0), dimension(1));
    let frame = Frame::try_new(rows, columns, sections)?;
    let schema = frame.schema(names)?;
    let mut builder = GridBuilder::try_new(
        Arc::clone(&schema),
        frame.rows.axis.clone(),
        frame.columns.axis.clone(),
    )?;
    for row_band in 0..frame.rows.axis.num_intervals() {
        for (column_band, range) in frame.columns.axis.intervals().enumerate() {
            let batch = frame.tile(row_band, range, &schema)?;
            builder.set(&[row_band, column_band], Tile::try_from_batch(&batch)?)?;
        }
    }
    builder.build()
}

/// Whether an array has as many dimensions as a frame can have.
///
/// # Errors
/// `Unsupported` for more than two.
pub fn fits_frame(distribution: &Distribution) -> Result<()> {
    match distribution.maps().len() {
        0..=2 => Ok(()),
        more => {
            let text = format!("a frame has at most 2 dimensions, the array has {more}");
            Err(Error::unsupported(text))
        }
    }
}

/// One dimension of the grid.
struct Band {
    axis: Axis,
    /// Where each index is: nothing when it is blocks, whose ranks are the intervals.
    places: Option<Vec<Place>>,
}

impl Band {
    fn try_new(map: &Map) -> Result<Self> {
        if let Some(cuts) = map.cuts() {
            let axis = cuts.clone();
            return Ok(Self { axis, places: None });
        }
        let size = i64::try_from(map.size()).unwrap_or(i64::MAX);
        let all: Vec<i64> = (0..size).collect();
        let mut places = Vec::new();
        map.locate_all(&all, &mut places).map_err(|_| {
            let text = format!(
                "the indices of an unstructured dimension must be 0 to {size} to become rows or columns of a frame"
            );
            Error::unsupported(text).with_hint("give it other labels, or import the ranks one by one")
        })?;
        let axis = Axis::uncut(map.size());
        let places = Some(places);
        Ok(Self { axis, places })
    }

    /// The place of an index: of blocks by its interval.
    fn place(&self, index: u64) -> Option<Place> {
        match &self.places {
            Some(places) => places.get(usize::try_from(index).ok()?).copied(),
            None => {
                let (rank, local) = self.axis.locate(index)?;
                let local = usize::try_from(local).ok()?;
                Some(Place { rank, local })
            }
        }
    }
}

struct Frame<'a> {
    rows: Band,
    columns: Band,
    /// The number of grid ranks of the columns.
    width: usize,
    sections: &'a [Vec<ArrayRef>],
}

impl<'a> Frame<'a> {
    fn try_new(rows: &Map, columns: &Map, sections: &'a [Vec<ArrayRef>]) -> Result<Self> {
        let wanted = rows.num_ranks() * columns.num_ranks();
        if sections.len() != wanted {
            let text = format!("there must be {wanted} sections, got {}", sections.len());
            return Err(Error::invalid_argument(text));
        }
        for (rank, section) in sections.iter().enumerate() {
            let owned = |map: &Map, rank| {
                let count = map.num_owned(rank).unwrap_or(0);
                usize::try_from(count).unwrap_or(usize::MAX)
            };
            let height = owned(rows, rank / columns.num_ranks());
            let width = owned(columns, rank % columns.num_ranks());
            let other = section.iter().find(|column| column.len() != height);
            if section.len() != width || other.is_some() {
                let (got, other) = (section.len(), other.map_or(height, |column| column.len()));
                let text = format!(
                    "the rank owns {height} x {width} elements, its section has {other} x {got}"
                );
                let error = Error::new(ErrorKind::Protocol, text);
                return Err(error.with_context("rank", rank.to_string()));
            }
        }
        Ok(Self {
            rows: Band::try_new(rows)?,
            columns: Band::try_new(columns)?,
            width: columns.num_ranks(),
            sections,
        })
    }

    fn schema(&self, names: Option<&[String]>) -> Result<SchemaRef> {
        let count = self.columns.axis.extent();
        if let Some(names) = names
            && names.len() as u64 != count
        {
            let text = format!(
                "names must have one name for each of {count} columns, got {}",
                names.len()
            );
            return Err(Error::invalid_argument(text));
        }
        let fields = (0..count).map(|column| {
            let place = self.columns.place(column);
            let found = place.and_then(|place| self.column(0, place));
            let found = found.ok_or_else(|| Error::internal("every column has a place"))?;
            let given = usize::try_from(column)
                .ok()
                .and_then(|column| names?.get(column).cloned());
            let name = given.unwrap_or_else(|| format!("column_{column}"));
            let nullable = self
                .sections
                .iter()
                .flatten()
                .any(|each| each.null_count() > 0);
            Ok(Field::new(name, found.data_type().clone(), nullable))
        });
        Ok(Arc::new(Schema::new(fields.collect::<Result<Vec<_>>>()?)))
    }

    /// The column at a place, of the rows of a grid rank.
    fn column(&self, row_rank: usize, place: Place) -> Option<&ArrayRef> {
        let section = row_rank.checked_mul(self.width)?.checked_add(place.rank)?;
        self.sections.get(section)?.get(place.local)
    }

    fn tile(
        &self,
        row_band: usize,
        columns: std::ops::Range<u64>,
        schema: &SchemaRef,
    ) -> Result<RecordBatch> {
        let missing = || Error::internal("every element has a place");
        let bounds = |index: u64| usize::try_from(index).map_err(|_| missing());
        let (first, stop) = (bounds(columns.start)?, bounds(columns.end)?);
        let part = schema.project(&(first..stop).collect::<Vec<_>>())?;
        let arrays = columns.map(|column| {
            let place = self.columns.place(column).ok_or_else(missing)?;
            match &self.rows.places {
                None => self.column(row_band, place).cloned().ok_or_else(missing),
                Some(places) => self.gathered(places, place),
            }
        });
        let rows = self.rows.axis.interval(row_band).unwrap_or(0..0);
        let options = RecordBatchOptions::new();
        let options = options.with_row_count(Some(bounds(rows.end - rows.start)?));
        let arrays: Vec<ArrayRef> = arrays.collect::<Result<_>>()?;
        Ok(RecordBatch::try_new_with_options(
            Arc::new(part),
            arrays,
            &options,
        )?)
    }

    /// A column whose rows are here and there.
    fn gathered(&self, rows: &[Place], column: Place) -> Result<ArrayRef> {
        let ranks = self.sections.len() / self.width.max(1);
        let parts: Option<Vec<&dyn Array>> = (0..ranks)
            .map(|rank| self.column(rank, column).map(AsRef::as_ref))
            .collect();
        let parts = parts.ok_or_else(|| Error::internal("every rank has every column"))?;
        let rows: Vec<(usize, usize)> = rows.iter().map(|row| (row.rank, row.local)).collect();
        Ok(interleave(&parts, &rows)?)
    }
}
