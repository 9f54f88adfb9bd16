//! Columns of grids as sections: blocks that meet, buffers that are shared, and every refusal.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float16Array, Int64Array, RecordBatch, new_null_array,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use partgrid::distarray::{DimData, Dist, ElementType, export};
use partgrid::error::ErrorKind;
use partgrid::grid::{AbsentTile, Axis, GridBuilder, PartitionGrid, Tile};

use crate::support::{column_of_every_type, int_grid};

#[test]
fn sections_share_the_memory_of_the_tiles() {
    let grid = int_grid(&[3, 4], &[1, 2]);
    let array = export(&grid, "c2").unwrap();
    assert_eq!(
        (array.size, array.element, array.column.as_str()),
        (7, ElementType::Int64, "c2")
    );
    for (row_band, section) in array.sections.iter().enumerate() {
        let batch = grid.tile(&[row_band, 1]).unwrap().open().unwrap();
        let values = batch.column(1).as_primitive::<Int64Type>().values();
        assert_eq!(section.buffer.as_ptr(), values.inner().as_ptr());
        assert_eq!(section.buffer.typed_data::<i64>(), &values[..]);
        assert_eq!(
            (section.rank, section.len, section.version),
            (row_band, values.len(), "0.10.0")
        );
    }
    assert_eq!(
        export(&grid, "c2").unwrap().sections[1].buffer.as_ptr(),
        array.sections[1].buffer.as_ptr()
    );
}

#[test]
fn sliced_tiles_give_exactly_their_elements_and_share_them() {
    let whole = int_grid(&[10, 5], &[1]);
    let address = export(&whole, "c0").unwrap().sections[0].buffer.as_ptr();
    let array = export(&whole.slice(4..12).unwrap(), "c0").unwrap();
    let values: Vec<&[i64]> = array
        .sections
        .iter()
        .map(|part| part.buffer.typed_data())
        .collect();
    assert_eq!(values, [&[400, 500, 600, 700, 800, 900][..], &[1000, 1100]]);
    assert_eq!(
        array.sections[0].buffer.as_ptr() as usize,
        address as usize + 4 * 8
    );
}

#[test]
fn blocks_meet_and_empty_ones_start_where_they_stop() {
    let array = export(&int_grid(&[0, 3, 0, 4, 0], &[1]), "c0").unwrap();
    let blocks: Vec<(u64, u64, u64, u64, u64)> = array
        .sections
        .iter()
        .map(|section| {
            let [
                DimData {
                    size,
                    proc_grid_size,
                    proc_grid_rank,
                    periodic: None,
                    dist:
                        Dist::Block {
                            start,
                            stop,
                            padding: None,
                        },
                },
            ] = section.dim_data[..]
            else {
                panic!("one dimension without padding");
            };
            assert_eq!(
                (stop - start, section.buffer.len()),
                (section.len as u64, section.len * 8)
            );
            (size, proc_grid_size, proc_grid_rank, start, stop)
        })
        .collect();
    assert_eq!(
        blocks,
        [
            (7, 5, 0, 0, 0),
            (7, 5, 1, 0, 3),
            (7, 5, 2, 3, 3),
            (7, 5, 3, 3, 7),
            (7, 5, 4, 7, 7)
        ]
    );
}

#[test]
fn every_element_type_has_its_python_format_and_width() {
    let expected = [
        (DataType::Int8, 'b', 1),
        (DataType::Int16, 'h', 2),
        (DataType::Int32, 'i', 4),
        (DataType::Int64, 'q', 8),
        (DataType::UInt8, 'B', 1),
        (DataType::UInt16, 'H', 2),
        (DataType::UInt32, 'I', 4),
        (DataType::UInt64, 'Q', 8),
        (DataType::Float16, 'e', 2),
        (DataType::Float32, 'f', 4),
        (DataType::Float64, 'd', 8),
    ];
    for (data_type, format, item_bytes) in expected {
        let values = arrow::compute::cast(&Int64Array::from(vec![1, 2, 3]), &data_type).unwrap();
        let array = export(&grid_of(vec![values]), "n").unwrap();
        assert_eq!(
            (array.element.format(), array.element.item_bytes()),
            (format, item_bytes)
        );
        assert_eq!(
            (array.sections[0].len, array.sections[0].buffer.len()),
            (3, 3 * item_bytes)
        );
    }
    let halves = Float16Array::from_iter_values([half(1.5)]);
    let array = export(&grid_of(vec![Arc::new(halves)]), "n").unwrap();
    assert_eq!(array.sections[0].buffer.as_slice(), [0, 0x3e]);
}

#[test]
fn every_other_type_is_refused_with_its_name() {
    let mut refused = 0;
    for (name, column) in column_of_every_type() {
        let data_type = column.data_type().clone();
        let number = (data_type.is_integer() || data_type.is_floating()) && !data_type.is_nested();
        let error = export(&grid_of(vec![column]), "n").unwrap_err();
        if number {
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{name} has nulls");
            continue;
        }
        refused += 1;
        assert_eq!(
            (error.kind(), error.context("column")),
            (ErrorKind::Unsupported, Some("n")),
            "{name}"
        );
        assert!(
            error
                .message()
                .ends_with(&format!("the column is {data_type}")),
            "{error}"
        );
    }
    assert_eq!(refused, column_of_every_type().len() - 11);
}

#[test]
fn refusals_say_which_cast_helps() {
    use arrow::datatypes::TimeUnit::Second;
    let dictionary = |value| DataType::Dictionary(Box::new(DataType::Int8), Box::new(value));
    for (data_type, hint) in [
        (
            DataType::Boolean,
            "booleans are stored as bits: cast to TINYINT in SQL",
        ),
        (
            DataType::Decimal128(5, 2),
            "cast to BIGINT or DOUBLE in SQL",
        ),
        (
            DataType::Date32,
            "cast to int64 in SQL: arrow_cast(column, 'Int64')",
        ),
        (
            DataType::Timestamp(Second, None),
            "cast to int64 in SQL: arrow_cast(column, 'Int64')",
        ),
        (
            DataType::Utf8,
            "cast to BIGINT or DOUBLE in SQL if the texts are numbers",
        ),
        (
            dictionary(DataType::Float32),
            "cast to the type of the values in SQL",
        ),
        (
            dictionary(DataType::Utf8View),
            "cast to BIGINT or DOUBLE in SQL if the texts are numbers",
        ),
        (
            DataType::new_list(DataType::Int8, true),
            "select the numbers inside as columns of their own in SQL",
        ),
    ] {
        let error = export(&grid_of(vec![new_null_array(&data_type, 1)]), "n").unwrap_err();
        assert_eq!(error.hint(), Some(hint), "{data_type}");
    }
}

#[test]
fn nulls_are_counted_and_placed() {
    let part = |values: Vec<Option<i64>>| Arc::new(Int64Array::from(values)) as ArrayRef;
    let parts = vec![
        part(vec![Some(1)]),
        part(vec![None, Some(2), None]),
        part(vec![None]),
    ];
    let error = export(&grid_of(parts), "n").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert_eq!(
        error.to_string(),
        "a distributed array has no nulls, the column has 3, the first in this tile (position: (1, 0), column: n)\nhint: filter them out in SQL, or replace them with coalesce()"
    );
}

#[test]
fn an_unknown_column_is_not_found_and_the_known_ones_are_listed() {
    let error = export(&int_grid(&[1], &[2]), "c3").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.hint(), Some("the columns are c0, c1"));
}

#[test]
fn a_tile_that_is_elsewhere_is_not_local_and_named() {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    let tile = AbsentTile::new(Arc::clone(&schema), 4, Vec::new());
    let mut builder = GridBuilder::try_new(schema, Axis::uncut(4), Axis::uncut(1)).unwrap();
    builder.set(&[0, 0], Tile::new(Arc::new(tile))).unwrap();
    let error = export(&builder.build().unwrap(), "n").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotLocal);
    assert_eq!(
        (error.context("position"), error.context("column")),
        (Some("(0, 0)"), Some("n"))
    );
}

#[test]
fn a_grid_without_rows_is_one_empty_section() {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Float64, true)]));
    let array = export(&PartitionGrid::try_from_batches(schema, &[]).unwrap(), "n").unwrap();
    assert_eq!(
        (array.size, array.sections.len(), array.sections[0].len),
        (0, 1, 0)
    );
    assert!(array.sections[0].buffer.is_empty());
}

fn grid_of(parts: Vec<ArrayRef>) -> PartitionGrid {
    let field = Field::new("n", parts[0].data_type().clone(), true);
    let schema = Arc::new(Schema::new(vec![field]));
    let batches: Vec<RecordBatch> = parts
        .into_iter()
        .map(|part| RecordBatch::try_new(Arc::clone(&schema), vec![part]).unwrap())
        .collect();
    PartitionGrid::try_from_batches(schema, &batches).unwrap()
}

fn half(
    value: f32,
) -> <arrow::datatypes::Float16Type as arrow::datatypes::ArrowPrimitiveType>::Native {
    <arrow::datatypes::Float16Type as arrow::datatypes::ArrowPrimitiveType>::Native::from_f32(value)
}
