//! Fixtures that several modules need.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema};
use partgrid::grid::{Axis, GridBuilder, PartitionGrid, Tile};

pub(crate) use crate::columns::{column_of_every_type, flat_columns, nested_columns, struct_of};
pub(crate) use crate::counting::allocated_bytes;

/// A grid of the given band lengths whose columns `c0`, `c1`, ... hold `row * 100 + column` as 64-bit integers.
pub(crate) fn int_grid(row_lengths: &[u64], column_lengths: &[u64]) -> PartitionGrid {
    let rows = Axis::try_from_lengths(row_lengths.iter().copied()).unwrap();
    let columns = Axis::try_from_lengths(column_lengths.iter().copied()).unwrap();
    let field = |column: u64| Field::new(format!("c{column}"), DataType::Int64, true);
    let schema = Schema::new((0..columns.extent()).map(field).collect::<Vec<_>>());
    let mut builder =
        GridBuilder::try_new(Arc::new(schema), rows.clone(), columns.clone()).unwrap();
    for (row_band, row_range) in rows.intervals().enumerate() {
        for (column_band, column_range) in columns.intervals().enumerate() {
            let part = Schema::new(column_range.clone().map(field).collect::<Vec<_>>());
            let values = column_range.map(|column| {
                let values = row_range.clone().map(|row| (row * 100 + column) as i64);
                Arc::new(Int64Array::from_iter_values(values)) as ArrayRef
            });
            let options = RecordBatchOptions::new()
                .with_row_count(Some((row_range.end - row_range.start) as usize));
            let batch =
                RecordBatch::try_new_with_options(Arc::new(part), values.collect(), &options);
            let tile = Tile::try_from_batch(&batch.unwrap()).unwrap();
            builder.set(&[row_band, column_band], tile).unwrap();
        }
    }
    builder.build().unwrap()
}
