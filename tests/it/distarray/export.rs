//! Columns of grids as sections: blocks that meet, buffers that are shared, and every refusal.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float16Array, Int64Array, RecordBatch, new_null_array,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use partgrid::distarray::{
    Columns, DimData, Dist, DistArray, ElementType, ExportOptions, Section, Version,
};
use partgrid::distarray::{Distribution, Halo, Map, Parts, Reason};
use partgrid::error::{ErrorKind, Result};
use partgrid::grid::{AbsentTile, Axis, GridBuilder, PartitionGrid, Tile, dense};

use crate::support::{column_of_every_type, int_grid};

#[test]
fn sections_share_the_memory_of_the_tiles() {
    let grid = int_grid(&[3, 4], &[1, 2]);
    let array = export(&grid, "c2").unwrap();
    assert_eq!(array.distribution.shape(), [7]);
    assert_eq!(
        (array.element, array.columns),
        (ElementType::Int64, vec!["c2".to_owned()])
    );
    assert_eq!(array.copies, []);
    for (row_band, section) in array.sections.iter().enumerate() {
        let batch = grid.tile(&[row_band, 1]).unwrap().open().unwrap();
        let values = batch.column(1).as_primitive::<Int64Type>().values();
        assert_eq!(bytes(section).as_ptr(), values.inner().as_ptr());
        assert_eq!(ints(section), &values[..]);
        assert_eq!(
            (section.rank, section.version, section.is_copy),
            (row_band, Version::V0_10, false)
        );
    }
    assert_eq!(
        bytes(&export(&grid, "c2").unwrap().sections[1]).as_ptr(),
        bytes(&array.sections[1]).as_ptr()
    );
}

#[test]
fn sliced_tiles_give_exactly_their_elements_and_share_them() {
    let whole = int_grid(&[10, 5], &[1]);
    let address = bytes(&export(&whole, "c0").unwrap().sections[0]).as_ptr();
    let array = export(&whole.slice(4..12).unwrap(), "c0").unwrap();
    let values: Vec<Vec<i64>> = array.sections.iter().map(ints).collect();
    assert_eq!(
        values,
        [vec![400, 500, 600, 700, 800, 900], vec![1000, 1100]]
    );
    assert_eq!(
        bytes(&array.sections[0]).as_ptr() as usize,
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
            assert_eq!((stop - start) * 8, bytes(section).len() as u64);
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
        assert_eq!(bytes(&array.sections[0]).len(), 3 * item_bytes);
    }
    let halves = Float16Array::from_iter_values([half(1.5)]);
    let array = export(&grid_of(vec![Arc::new(halves)]), "n").unwrap();
    assert_eq!(bytes(&array.sections[0]), [0, 0x3e]);
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
        (DataType::Boolean, "cast=\"uint8\" exports its numbers"),
        (
            DataType::Decimal128(5, 2),
            "cast=\"float64\" exports its numbers",
        ),
        (DataType::Date32, "cast=\"int32\" exports its numbers"),
        (
            DataType::Timestamp(Second, None),
            "cast=\"int64\" exports its numbers",
        ),
        (
            DataType::Utf8,
            "cast to BIGINT or DOUBLE in SQL if the texts are numbers",
        ),
        (
            dictionary(DataType::Float32),
            "cast=\"float32\" exports its numbers",
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
        "a distributed array has no nulls, the column has 3, the first in this tile (position: (1, 0), column: n)\nhint: give a value for them with fill_null=, or replace them with coalesce() in SQL"
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
        (array.distribution.shape(), array.sections.len()),
        (vec![0], 1)
    );
    assert!(bytes(&array.sections[0]).is_empty());
}

#[test]
fn several_columns_are_blocks_of_rows_and_columns_and_dense_ones_are_shared() {
    let grid = dense_grid(&[3, 0, 2], 3);
    let names = ["c0", "c1", "c2"].map(str::to_owned);
    let options = ExportOptions {
        copy: Some(false),
        ..ExportOptions::default()
    };
    let array = partgrid::distarray::export(&grid, Columns::Several(&names[..]), &options).unwrap();
    assert_eq!(array.distribution.shape(), [5, 3]);
    for (row_band, section) in array.sections.iter().enumerate() {
        let numbers = section.numbers.as_ref().unwrap();
        let batch = grid.tile(&[row_band, 0]).unwrap().open().unwrap();
        assert_eq!(numbers.shape(), [batch.num_rows(), 3]);
        if batch.num_rows() > 0 {
            let first = batch.column(0).as_primitive::<Int64Type>().values();
            assert_eq!(numbers.as_ptr(), first.inner().as_ptr());
            assert_eq!(numbers.strides(), [8, 64]);
        }
        let sizes: Vec<u64> = section
            .dim_data
            .iter()
            .map(|each| each.proc_grid_size)
            .collect();
        assert_eq!(sizes, [3, 1]);
    }
}

#[test]
fn runs_of_columns_of_one_band_are_blocks_in_the_order_of_the_names() {
    let grid = int_grid(&[2, 1], &[2, 2]);
    let names = ["c3", "c2", "c0"].map(str::to_owned);
    let array = several(&grid, &names).unwrap();
    let maps = array.distribution.maps();
    assert_eq!(maps[1].cuts().unwrap().cuts(), [0, 2, 3]);
    let whole = array.redistributed(
        &Distribution::try_new(vec![
            Map::block(&Axis::uncut(3)),
            Map::block(&Axis::uncut(3)),
        ])
        .unwrap(),
    );
    assert_eq!(
        ints(&whole.unwrap().sections[0]),
        [3, 2, 0, 103, 102, 100, 203, 202, 200]
    );
    assert_eq!(array.copies[0].reason, Reason::Place);
    assert_eq!(
        several(&grid, &[]).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
}

#[test]
fn distributions_of_every_kind_have_the_values_at_their_indices() {
    let grid = int_grid(&[3, 4, 0, 5], &[1]);
    let array = export(&grid, "c0").unwrap();
    let lists: Vec<Arc<[i64]>> = vec![Arc::from([7, 0]), Arc::from([]), Arc::from([11, 3, 2])];
    let halo = Halo {
        width: 2,
        boundary: [1, 3],
        ..Halo::default()
    };
    let even = Map::block(&Axis::try_even(12, 3).unwrap());
    for map in [
        Map::try_cyclic(12, 5, 1).unwrap(),
        Map::try_cyclic(12, 2, 5).unwrap(),
        // A selection of rows.
        Map::try_unstructured(5, lists, true).unwrap(),
        even.try_with_halo(&halo, Version::V0_10).unwrap(),
    ] {
        let to = Distribution::try_new(vec![map.clone()]).unwrap();
        let moved = array.redistributed(&to).unwrap();
        assert_eq!(moved.copies[0].reason, Reason::Moved);
        for section in &moved.sections {
            let held = map.held(section.rank).unwrap();
            let expected: Vec<i64> = held
                .iter()
                .flat_map(|part| {
                    (0..part.indices.len()).map(|at| part.indices.get(at).unwrap() * 100)
                })
                .collect();
            assert_eq!(ints(section), expected, "{map:?} rank {}", section.rank);
            assert!(section.is_copy);
        }
    }
}

#[test]
fn halos_follow_the_version_and_leave_empty_ranks_out() {
    let cuts = Axis::try_from_lengths([3, 0, 3, 2]).unwrap();
    let map = Map::block(&cuts);
    let halo = Halo {
        width: 1,
        ..Halo::default()
    };
    let padded = map.try_with_halo(&halo, Version::V0_10).unwrap();
    let widths: Vec<_> = (0..4)
        .map(|rank| {
            padded
                .dim_data(rank, Version::V0_10)
                .unwrap()
                .padding()
                .unwrap()
        })
        .collect();
    assert_eq!(widths, [[0, 0], [0, 0], [0, 1], [1, 0]]);
    let periodic = Halo {
        periodic: true,
        ..halo
    };
    let even = Map::block(&Axis::try_even(8, 2).unwrap());
    let old = even.try_with_halo(&periodic, Version::V0_9).unwrap();
    assert_eq!(old.local_len(0), Some(6));
    let dictionary = old.dim_data(1, Version::V0_9).unwrap();
    assert_eq!(
        (dictionary.periodic, dictionary.padding()),
        (Some(true), Some([1, 1]))
    );
    let new = even.try_with_halo(&periodic, Version::V0_10).unwrap();
    assert_eq!(new.local_len(0), Some(5));
    let wide = Halo { width: 5, ..halo };
    assert_eq!(
        even.try_with_halo(&wide, Version::V0_10)
            .unwrap_err()
            .message(),
        "padding must be at most what each rank owns: rank 0 owns 4, got 5"
    );
    let cyclic = Map::try_cyclic(8, 2, 1).unwrap();
    assert_eq!(
        cyclic
            .try_with_halo(&halo, Version::V0_10)
            .unwrap_err()
            .kind(),
        ErrorKind::Unsupported
    );
    let ends = Halo {
        boundary: [1, 0],
        ..periodic
    };
    assert_eq!(
        even.try_with_halo(&ends, Version::V0_9).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
}

#[test]
fn one_section_for_each_rank_joins_its_tiles() {
    let grid = int_grid(&[3, 2], &[1, 1]);
    let options = ExportOptions {
        parts: Parts::Ranks,
        ..ExportOptions::default()
    };
    let names = ["c0", "c1"].map(str::to_owned);
    let array = partgrid::distarray::export(&grid, Columns::Several(&names), &options).unwrap();
    assert_eq!(array.sections.len(), 1);
    assert_eq!(
        ints(&array.sections[0]),
        [0, 100, 200, 300, 400, 1, 101, 201, 301, 401]
    );
    assert_eq!(array.copies[0].reason, Reason::Joined);
}

pub(super) fn export(grid: &PartitionGrid, column: &str) -> Result<DistArray> {
    partgrid::distarray::export(grid, Columns::One(column), &ExportOptions::default())
}

fn several(grid: &PartitionGrid, names: &[String]) -> Result<DistArray> {
    partgrid::distarray::export(grid, Columns::Several(names), &ExportOptions::default())
}

/// The bytes of the elements, in the order in which they lie.
fn bytes(section: &Section) -> &[u8] {
    section.numbers.as_ref().unwrap().bytes().unwrap()
}

pub(super) fn ints(section: &Section) -> Vec<i64> {
    let chunks = bytes(section).chunks_exact(8);
    chunks
        .map(|chunk| i64::from_ne_bytes(chunk.try_into().unwrap()))
        .collect()
}

/// Row bands whose columns lie in one allocation.
fn dense_grid(rows: &[u64], columns: u64) -> PartitionGrid {
    let plain = int_grid(rows, &[columns]);
    let bands = 0..plain.rows().num_intervals();
    let batches = bands.map(|band| dense(&plain.open_row_band(band).unwrap()).unwrap());
    let batches: Vec<RecordBatch> = batches.collect();
    PartitionGrid::try_from_batches(Arc::clone(plain.schema()), &batches).unwrap()
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
