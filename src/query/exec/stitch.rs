//! Column bands of one row band -> one batch.
//!
//! Comes in: a grid, a row band, the wanted columns in any order. Goes out: a batch with exactly these columns, without copying what is here already. Only the
//! tiles that hold a wanted column are touched. Never here: which row bands.

use std::collections::BTreeMap;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;

use crate::error::{Error, Result};
use crate::grid::PartitionGrid;

/// The wanted columns of a grid, grouped by the column band that holds them. Made once for a scan.
#[derive(Debug, Clone)]
pub(in crate::query) struct Stitch {
    /// Column band -> (column within the band, place in the result).
    bands: BTreeMap<usize, Vec<(usize, usize)>>,
    num_columns: usize,
    schema: SchemaRef,
}

impl Stitch {
    /// For the columns `columns` of the grid, in this order; `schema` is that of the result.
    pub(in crate::query) fn try_new(
        grid: &PartitionGrid,
        columns: &[usize],
        schema: SchemaRef,
    ) -> Result<Self> {
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
            schema,
        })
    }

    /// The batch of all rows of one row band.
    pub(in crate::query) async fn fetch(
        &self,
        grid: &PartitionGrid,
        row_band: usize,
    ) -> Result<RecordBatch> {
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.num_columns];
        for (band, wanted) in &self.bands {
            let locals: Vec<usize> = wanted.iter().map(|(local, _)| *local).collect();
            let tile = grid.tile(&[row_band, *band])?;
            let batch = tile
                .data()
                .fetch(&locals)
                .await
                .map_err(|error| error.with_position(&[row_band, *band]))?;
            for ((_, place), column) in wanted.iter().zip(batch.columns()) {
                if let Some(slot) = columns.get_mut(*place) {
                    *slot = Some(ArrayRef::clone(column));
                }
            }
        }
        let rows = grid
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
