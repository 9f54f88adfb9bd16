//! Building grids: what is refused, and with which words.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use partgrid::error::{Error, ErrorKind};
use partgrid::grid::{Axis, GridBuilder, PartitionGrid, Tile, named, named_batches};

#[test]
fn a_complete_grid_is_built_and_two_have_different_ids() {
    let build = || {
        let mut builder = two_bands();
        builder.set(&[1, 0], tile(2)).unwrap();
        builder.set(&[0, 0], tile(3)).unwrap();
        builder.build().unwrap()
    };
    let grid = build();
    assert_eq!(
        (grid.num_rows(), grid.num_columns(), grid.tiles().len()),
        (5, 2, 2)
    );
    assert_ne!(grid.id(), build().id());
    assert_eq!(grid.open_row_band(1).unwrap().num_rows(), 2);
}

#[test]
fn a_missing_tile_is_named() {
    let mut builder = two_bands();
    builder.set(&[0, 0], tile(3)).unwrap();
    refused(
        &builder.build().unwrap_err(),
        "a tile is missing (position: (1, 0))",
    );
}

#[test]
fn a_position_takes_one_tile() {
    let mut builder = two_bands();
    builder.set(&[0, 0], tile(3)).unwrap();
    let error = builder.set(&[0, 0], tile(3)).unwrap_err();
    refused(&error, "the position already has a tile (position: (0, 0))");
}

#[test]
fn a_tile_outside_the_grid_is_not_found() {
    let error = two_bands().set(&[2, 0], tile(3)).unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (
            ErrorKind::NotFound,
            "no tile at position (2, 0), the grid has 2 x 1 tiles"
        )
    );
}

#[test]
fn a_tile_must_have_the_rows_of_its_band() {
    let error = two_bands().set(&[1, 0], tile(3)).unwrap_err();
    refused(
        &error,
        "the tile must have the 2 rows of its row band, got 3 (position: (1, 0))",
    );
}

#[test]
fn a_tile_must_have_the_fields_of_its_band() {
    let set = |fields: Vec<Field>| {
        let columns = fields.iter().map(|field| match field.data_type() {
            DataType::Int32 => Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef,
            _ => Arc::new(StringArray::from(vec!["a", "b"])),
        });
        let columns = columns.collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        two_bands()
            .set(&[1, 0], Tile::try_from_batch(&batch).unwrap())
            .unwrap_err()
    };
    let n = || Field::new("n", DataType::Int32, false);
    let w = || Field::new("w", DataType::Utf8, true);
    refused(
        &set(vec![n()]),
        "the tile must have the 2 columns of its column band, got 1 (position: (1, 0))",
    );
    refused(
        &set(vec![n(), Field::new("v", DataType::Utf8, true)]),
        "a column of the tile must be `w` Utf8, got `v` Utf8 (column: w, position: (1, 0))",
    );
    refused(
        &set(vec![n(), Field::new("w", DataType::Int32, true)]),
        "a column of the tile must be `w` Utf8, got `w` Int32 (column: w, position: (1, 0))",
    );
    refused(
        &set(vec![Field::new("n", DataType::Int32, true), w()]),
        "a column of the tile must be `n` Int32 not null, got `n` Int32 (column: n, position: (1, 0))",
    );
}

#[test]
fn a_field_that_is_never_null_fits_where_nulls_are_allowed() {
    let fields = vec![
        Field::new("n", DataType::Int32, false),
        Field::new("w", DataType::Utf8, false),
    ];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![1, 2])),
        Arc::new(StringArray::from(vec!["a", "b"])),
    ];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    assert!(
        two_bands()
            .set(&[1, 0], Tile::try_from_batch(&batch).unwrap())
            .is_ok()
    );
}

#[test]
fn names_that_repeat_and_column_axes_that_end_elsewhere_are_refused() {
    let twice = Schema::new(vec![
        Field::new("n", DataType::Int32, true),
        Field::new("n", DataType::Utf8, true),
    ]);
    let error = GridBuilder::try_new(Arc::new(twice), Axis::uncut(1), Axis::uncut(2)).unwrap_err();
    refused(
        &error,
        "column names of a grid must be distinct, this one repeats (column: n)",
    );
    let error = GridBuilder::try_new(schema(), Axis::uncut(1), Axis::uncut(3)).unwrap_err();
    refused(
        &error,
        "the column axis must end with the number of columns, 2, got 3",
    );
}

#[test]
fn batches_of_other_columns_are_refused_and_none_make_one_empty_tile() {
    let other = RecordBatch::new_empty(Arc::new(Schema::new(vec![Field::new(
        "x",
        DataType::Int32,
        true,
    )])));
    let error = PartitionGrid::try_from_batches(schema(), &[other]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let empty = PartitionGrid::try_from_batches(schema(), &[]).unwrap();
    assert_eq!(
        (empty.num_rows(), empty.tiles().len(), empty.num_columns()),
        (0, 1, 2)
    );
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int32, false),
        Field::new("w", DataType::Utf8, true),
    ]))
}

fn two_bands() -> GridBuilder {
    let rows = Axis::try_from_lengths([3, 2]).unwrap();
    GridBuilder::try_new(schema(), rows, Axis::uncut(2)).unwrap()
}

fn tile(num_rows: i32) -> Tile {
    let words = (0..num_rows).map(|row| Some(format!("w{row}")));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from_iter_values(0..num_rows)),
        Arc::new(StringArray::from_iter(words)),
    ];
    Tile::try_from_batch(&RecordBatch::try_new(schema(), columns).unwrap()).unwrap()
}

fn refused(error: &Error, text: &str) {
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::InvalidArgument, text)
    );
}

#[test]
fn columns_without_names_are_numbered_and_wrong_names_are_refused() {
    let column = || Arc::new(Int32Array::from_iter_values(0..3)) as ArrayRef;
    let grid = PartitionGrid::try_from_columns(vec![column(), column()], None).unwrap();
    let names: Vec<&str> = grid
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    assert_eq!((names, grid.num_rows()), (vec!["column_0", "column_1"], 3));
    let short = Arc::new(Int32Array::from_iter_values(0..2)) as ArrayRef;
    let named = |names: [&str; 2]| Some(names.map(str::to_owned).to_vec());
    for (columns, names, text) in [
        (
            vec![],
            None,
            "a grid is made of at least one column, got an array without any",
        ),
        (
            vec![column()],
            named(["a", "b"]),
            "names must have one name for each of the 1 columns, got 2",
        ),
        (
            vec![column(), column()],
            named(["a", "a"]),
            "column names of a grid must be distinct, this one repeats",
        ),
        (
            vec![column(), short],
            None,
            "Invalid argument error: all columns in a record batch must have the same length",
        ),
    ] {
        let error = PartitionGrid::try_from_columns(columns, names).unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::InvalidArgument, text)
        );
    }
}

#[test]
fn schemas_without_names_are_numbered_and_others_are_left_unless_names_are_given() {
    let schema = |names: [&str; 2]| -> SchemaRef {
        let fields = names.map(|name| Field::new(name, DataType::Int32, true));
        let about = [("about".to_owned(), "flights".to_owned())].into();
        Arc::new(Schema::new(fields.to_vec()).with_metadata(about))
    };
    let given = ["x", "y"].map(str::to_owned);
    for (theirs, names, ours) in [
        (["", ""], None, ["column_0", "column_1"]),
        (["a", ""], None, ["a", ""]),
        (["a", "b"], None, ["a", "b"]),
        (["", ""], Some(&given[..]), ["x", "y"]),
        (["a", "a"], Some(&given[..]), ["x", "y"]),
    ] {
        assert_eq!(named(&schema(theirs), names).unwrap(), schema(ours));
        let batches = [RecordBatch::new_empty(schema(theirs))];
        let (found, batches) = named_batches(&schema(theirs), &batches, names).unwrap();
        assert_eq!((&found, &batches[0].schema()), (&schema(ours), &found));
    }
    let error = named(&schema(["", ""]), Some(&given[..1])).unwrap_err();
    let text = "names must have one name for each of the 2 columns, got 1";
    refused(&error, text);
}
