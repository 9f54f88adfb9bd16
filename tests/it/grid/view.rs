//! Views: some rows or columns of a grid, over the same buffers; and sliced nested columns, rebuilt so that kernels read them rightly.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray, RecordBatch, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema};
use partgrid::error::ErrorKind;
use partgrid::grid::{PartitionGrid, compact};
use proptest::prelude::*;

use crate::support::{column_of_every_type, int_grid, nested_columns};

#[test]
fn selected_columns_come_in_the_order_asked_and_share_their_buffers() {
    let grid = int_grid(&[2, 3], &[2, 1, 2]);
    let view = grid.select(&["c4", "c0", "c1", "c2"]).unwrap();
    let names: Vec<&str> = view
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    assert_eq!(names, ["c4", "c0", "c1", "c2"]);
    assert_eq!(view.columns().cuts(), [0, 1, 3, 4]);
    for row_band in 0..2 {
        let (ours, theirs) = (
            view.open_row_band(row_band).unwrap(),
            grid.open_row_band(row_band).unwrap(),
        );
        for (place, source) in [4, 0, 1, 2].into_iter().enumerate() {
            assert_eq!(address(ours.column(place)), address(theirs.column(source)));
            assert_eq!(ours.column(place), theirs.column(source));
        }
    }
}

#[test]
fn sliced_rows_share_their_buffers_and_bands_outside_are_dropped() {
    let grid = int_grid(&[4, 4, 0, 4], &[1, 1]);
    let view = grid.slice(5..9).unwrap();
    assert_eq!(view.rows().cuts(), [0, 3, 3, 4]);
    let first = view.tile(&[0, 1]).unwrap().open().unwrap();
    assert_eq!(
        first.column(0).as_primitive::<Int64Type>().values()[..],
        [501, 601, 701]
    );
    let source = grid.tile(&[1, 1]).unwrap().open().unwrap();
    assert_eq!(address(first.column(0)), address(source.column(0)) + 8);
    let whole = grid.slice(0..12).unwrap();
    assert!(Arc::ptr_eq(
        whole.tile(&[1, 0]).unwrap().data(),
        grid.tile(&[1, 0]).unwrap().data()
    ));
    assert_ne!(whole.id(), grid.id());
}

#[test]
fn views_of_views_and_empty_views_keep_the_schema() {
    let grid = int_grid(&[4, 4], &[3]);
    let view = grid
        .slice(2..7)
        .unwrap()
        .select(&["c2"])
        .unwrap()
        .slice(1..4)
        .unwrap();
    let values: Vec<i64> = (0..view.rows().num_intervals())
        .flat_map(|band| {
            view.open_row_band(band)
                .unwrap()
                .column(0)
                .as_primitive::<Int64Type>()
                .values()
                .to_vec()
        })
        .collect();
    assert_eq!(values, [302, 402, 502]);
    let empty = grid.slice(3..3).unwrap();
    assert_eq!((empty.num_rows(), empty.schema()), (0, grid.schema()));
    let none = grid.select(&[] as &[&str]).unwrap();
    assert_eq!((none.num_columns(), none.num_rows()), (0, 8));
}

#[test]
fn wrong_rows_and_names_are_refused() {
    let grid = int_grid(&[4], &[2]);
    let error = grid.slice(2..5).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rows must be a range within 0..4, got 2..5"
    );
    #[expect(
        clippy::reversed_empty_ranges,
        reason = "the wrong range is what is tested"
    )]
    let backwards = grid.slice(3..1).unwrap_err();
    assert_eq!(backwards.kind(), ErrorKind::InvalidArgument);
    assert_eq!(
        grid.select(&["c9"]).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        grid.select(&["c0", "c0"]).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
}

#[test]
fn every_type_keeps_its_values_in_tiles_made_of_slices() {
    for (name, column) in column_of_every_type() {
        let field = Field::new(name, column.data_type().clone(), true);
        let whole = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![column]).unwrap();
        let parts = [whole.slice(0, 3), whole.slice(3, 1), whole.slice(4, 3)];
        let grid = PartitionGrid::try_from_batches(whole.schema(), &parts).unwrap();
        let view = grid.slice(1..6).unwrap();
        for (grid, expected) in [(&grid, whole.clone()), (&view, whole.slice(1, 5))] {
            let bands = 0..grid.rows().num_intervals();
            let mut row = 0;
            for band in bands {
                let batch = grid.open_row_band(band).unwrap();
                assert_eq!(
                    batch,
                    expected.slice(row, batch.num_rows()),
                    "{name} band {band}"
                );
                batch.column(0).to_data().validate_full().unwrap();
                row += batch.num_rows();
            }
            assert_eq!(row, expected.num_rows());
        }
    }
}

#[test]
fn compacted_nested_slices_begin_at_offset_0_and_end_with_their_child() {
    for (name, column) in nested_columns() {
        let field = Field::new(name, column.data_type().clone(), true);
        let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![column]).unwrap();
        let slice = batch.slice(2, 3);
        let compacted = compact(&slice).unwrap();
        assert_eq!(compacted, slice, "{name}");
        if let Some(list) = compacted.column(0).as_list_opt::<i32>() {
            assert_eq!(list.offsets()[0], 0);
            assert_eq!(
                *list.offsets().last().unwrap() as usize,
                list.values().len()
            );
        }
        if let Some(map) = compacted.column(0).as_map_opt() {
            assert_eq!((map.offsets()[0], map.entries().len()), (0, 4));
        }
        let again = compact(&compacted).unwrap();
        assert_eq!(again, compacted, "{name}");
    }
}

#[test]
fn flat_columns_of_a_batch_with_sliced_lists_are_not_copied() {
    let lists = lists_of_two(4);
    let ints: ArrayRef = Arc::new(Int32Array::from_iter_values(0..4));
    let fields = vec![
        Field::new("l", lists.data_type().clone(), true),
        Field::new("n", DataType::Int32, true),
    ];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![lists, ints])
        .unwrap()
        .slice(1, 2);
    let compacted = compact(&batch).unwrap();
    assert_eq!(address(compacted.column(1)), address(batch.column(1)));
    assert_ne!(
        address(&list_values(compacted.column(0))),
        address(&list_values(batch.column(0)))
    );
    assert_eq!(list_values(compacted.column(0)).len(), 4);
}

#[test]
fn a_cast_of_a_compacted_list_reads_its_own_rows() {
    let field = Field::new("item", DataType::Int32, true);
    let wanted = DataType::FixedSizeList(Arc::new(field), 2);
    let structs = |column: ArrayRef| -> ArrayRef {
        let field = Field::new("l", column.data_type().clone(), true);
        Arc::new(StructArray::new(vec![field].into(), vec![column], None))
    };
    let tile_of = |column: ArrayRef| {
        let field = Field::new("c", column.data_type().clone(), true);
        let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![column]).unwrap();
        let grid = PartitionGrid::try_from_batches(batch.schema(), &[batch]).unwrap();
        grid.slice(2..4)
            .unwrap()
            .open_row_band(0)
            .unwrap()
            .column(0)
            .clone()
    };
    for list in [
        tile_of(lists_of_two(5)),
        tile_of(structs(lists_of_two(5)))
            .as_struct()
            .column(0)
            .clone(),
    ] {
        let fixed = cast(&list, &wanted).unwrap();
        let values = fixed.as_fixed_size_list().values().clone();
        assert_eq!(
            values.as_primitive::<Int32Type>().values()[..],
            [4, 5, 6, 7]
        );
    }
}

proptest! {
    #[test]
    fn any_slice_of_any_tiling_has_the_rows_of_the_whole(lengths in proptest::collection::vec(0_u64..5, 1..6), ends in (0_u64..30, 0_u64..30)) {
        let grid = int_grid(&lengths, &[1, 2]);
        let whole = joined(&grid);
        let total = grid.num_rows();
        let (start, stop) = (ends.0.min(ends.1).min(total), ends.0.max(ends.1).min(total));
        let view = grid.slice(start..stop).unwrap();
        prop_assert_eq!(view.num_rows(), stop - start);
        prop_assert_eq!(joined(&view), whole.slice(start as usize, (stop - start) as usize));
    }
}

fn joined(grid: &PartitionGrid) -> RecordBatch {
    let bands: Vec<RecordBatch> = (0..grid.rows().num_intervals())
        .map(|band| grid.open_row_band(band).unwrap())
        .collect();
    concat_batches(grid.schema(), &bands).unwrap()
}

/// Rows `[0, 1]`, `[2, 3]`, ...
fn lists_of_two(num_rows: usize) -> ArrayRef {
    let values = Arc::new(Int32Array::from_iter_values(0..2 * num_rows as i32));
    let field = Arc::new(Field::new("item", DataType::Int32, true));
    Arc::new(ListArray::new(
        field,
        OffsetBuffer::from_lengths(vec![2; num_rows]),
        values,
        None,
    ))
}

fn list_values(column: &ArrayRef) -> ArrayRef {
    Arc::clone(column.as_list::<i32>().values())
}

fn address(column: &ArrayRef) -> usize {
    column.to_data().buffers()[0].as_ptr() as usize
}
