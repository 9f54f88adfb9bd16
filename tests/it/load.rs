//! Loading Parquet files: which are found, what is kept, where tiles are cut. Types, broken and changed input have files of their own.

mod broken;
mod hive;
mod hostile;
mod paths;
mod types;
mod write;

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use partgrid::error::{Error, ErrorKind, Result};
use partgrid::grid::PartitionGrid;
use partgrid::load::{LoadOptions, load};
use proptest::prelude::*;

#[test]
fn a_file_becomes_a_grid_with_its_values_and_statistics() {
    let folder = tempfile::tempdir().unwrap();
    let batch = frame(0..10);
    write(&folder.path().join("a.parquet"), &batch, 4);
    let grid = load_path(&folder.path().join("a.parquet")).unwrap();
    assert_eq!(rows_of(&grid), batch);
    let known = |column| grid.tiles()[0].column_statistics(column).unwrap();
    let bounds = known(0).bounds.as_ref().unwrap();
    assert_eq!(bounds.as_primitive::<Int64Type>().values(), &[0, 9]);
    let text = grid.tiles()[0].column_statistics(1).unwrap();
    assert_eq!((known(0).null_count, text.null_count), (0, 4));
    let bounds = text.bounds.as_ref().unwrap();
    assert_eq!(bounds.as_string::<i32>().value(1), "row 8");
}

#[test]
fn columns_are_matched_by_name_in_the_order_of_the_first_file() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), &frame(0..5), 10);
    let turned = frame(5..9).project(&[1, 0]).unwrap();
    write(&folder.path().join("b.parquet"), &turned, 10);
    assert_eq!(rows_of(&load_path(folder.path()).unwrap()), frame(0..9));
}

#[test]
fn columns_can_be_chosen_and_ordered() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("k=7/a.parquet"), &frame(0..5), 2);
    let chosen = |names: &[&str]| {
        let names = names.iter().map(ToString::to_string).collect();
        load_with(folder.path(), &LoadOptions::default().with_columns(names))
    };
    assert_eq!(
        column_names(&chosen(&["k", "text", "number"]).unwrap()),
        ["k", "text", "number"]
    );
    assert_eq!(
        rows_of(&chosen(&["text"]).unwrap()),
        frame(0..5).project(&[1]).unwrap()
    );
    let none = chosen(&[]).unwrap();
    assert_eq!((none.num_columns(), none.num_rows()), (0, 5));
    assert_eq!(none.tiles()[0].open().unwrap().num_rows(), 5);
    let only_folder = chosen(&["k"]).unwrap();
    assert_eq!((only_folder.num_columns(), only_folder.num_rows()), (1, 5));
    let unknown = chosen(&["txt"]).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    assert_eq!(unknown.hint(), Some("did you mean `text`?"));
    assert_eq!(
        chosen(&["text", "text"]).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
}

#[test]
fn a_column_nullable_in_any_file_is_nullable() {
    let folder = tempfile::tempdir().unwrap();
    let required = Schema::new(vec![Field::new("number", DataType::Int64, false)]);
    let optional = Schema::new(vec![Field::new("number", DataType::Int64, true)]);
    let full: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let holed: ArrayRef = Arc::new(Int64Array::from(vec![Some(3), None]));
    let batch = |schema, column| RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap();
    write(&folder.path().join("a.parquet"), &batch(required, full), 10);
    assert!(
        !load_path(folder.path())
            .unwrap()
            .schema()
            .field(0)
            .is_nullable()
    );
    write(
        &folder.path().join("b.parquet"),
        &batch(optional, holed),
        10,
    );
    let grid = load_path(folder.path()).unwrap();
    assert!(grid.schema().field(0).is_nullable());
    assert_eq!(rows_of(&grid).column(0).null_count(), 1);
}

#[test]
fn metadata_is_that_of_the_first_file() {
    let folder = tempfile::tempdir().unwrap();
    let marked = |unit: &str| {
        let field = Field::new("number", DataType::Int64, false)
            .with_metadata([("unit".to_owned(), unit.to_owned())].into());
        let schema =
            Schema::new_with_metadata(vec![field], [("origin".to_owned(), unit.to_owned())].into());
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(Int64Array::from(vec![1]))]).unwrap()
    };
    write(&folder.path().join("b.parquet"), &marked("mile"), 10);
    write(&folder.path().join("a.parquet"), &marked("metre"), 10);
    let grid = load_path(folder.path()).unwrap();
    assert_eq!(grid.schema().as_ref(), marked("metre").schema().as_ref());
}

#[test]
fn files_without_rows_give_no_tile_unless_all_are_empty() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), &frame(0..0), 10);
    let empty = load_path(folder.path()).unwrap();
    assert_eq!(
        (empty.num_rows(), empty.tiles().len(), empty.num_columns()),
        (0, 1, 2)
    );
    write(&folder.path().join("b.parquet"), &frame(0..3), 10);
    let grid = load_path(folder.path()).unwrap();
    assert_eq!((grid.num_rows(), grid.tiles().len()), (3, 1));
}

#[test]
fn options_of_zero_are_refused() {
    for options in [
        LoadOptions::default().with_tile_rows(0),
        LoadOptions::default().with_concurrency(0),
    ] {
        let error = load_with(Path::new("."), &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    let none = block_on(load(&[], &LoadOptions::default())).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn without_a_runtime_load_is_an_error() {
    let ready = futures::executor::block_on(load(&["x".to_owned()], &LoadOptions::default()));
    assert_eq!(ready.unwrap_err().kind(), ErrorKind::InvalidArgument);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn values_do_not_depend_on_the_size_of_tiles(
        files in prop::collection::vec(0_i64..120, 1..4),
        group_rows in 1_usize..50,
        tile_rows in 1_u64..150,
        concurrency in 1_usize..6,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut start = 0;
        for (number, rows) in files.iter().enumerate() {
            let batch = frame(start..start + rows);
            write(&folder.path().join(format!("{number}.parquet")), &batch, group_rows);
            start += rows;
        }
        let options = LoadOptions::default().with_tile_rows(tile_rows).with_concurrency(concurrency);
        let grid = load_with(folder.path(), &options).unwrap();
        prop_assert_eq!(rows_of(&grid), frame(0..start));
        for tile in grid.tiles() {
            prop_assert!(tile.num_rows() <= tile_rows + tile_rows.div_ceil(2));
        }
    }
}

#[test]
fn tiles_follow_row_groups() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), &frame(0..100), 20);
    let cuts = |tile_rows| {
        let options = LoadOptions::default().with_tile_rows(tile_rows);
        load_with(folder.path(), &options)
            .unwrap()
            .rows()
            .cuts()
            .to_vec()
    };
    assert_eq!(cuts(20), [0, 20, 40, 60, 80, 100]);
    assert_eq!(cuts(40), [0, 40, 80, 100]);
    assert_eq!(cuts(10), (0..=10).map(|cut| cut * 10).collect::<Vec<_>>());
    assert_eq!(cuts(1000), [0, 100]);
}

#[test]
fn the_flights_of_2013_add_up() {
    let flights = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/flights");
    let grid = load_path(&flights).unwrap();
    assert_eq!((grid.num_rows(), grid.tiles().len()), (336_776, 12));
    assert_eq!(grid.schema().field(grid.num_columns() - 1).name(), "month");
    let time = grid.schema().field_with_name("time_hour").unwrap();
    let zone = Some("America/New_York".into());
    assert_eq!(
        time.data_type(),
        &DataType::Timestamp(TimeUnit::Microsecond, zone)
    );
    let distance = grid.column_index("distance").unwrap();
    assert_eq!(grid.schema().field(distance).metadata()["unit"], "miles");
    let sum: f64 = grid
        .tiles()
        .iter()
        .flat_map(|tile| {
            let batch = tile.open().unwrap();
            let column = batch
                .column(distance)
                .as_primitive::<arrow::datatypes::Float64Type>();
            column.values().to_vec()
        })
        .sum();
    assert!((sum - 350_217_607.0).abs() < 0.5, "{sum}");
}

#[test]
fn a_dictionary_over_several_row_groups_is_one_batch() {
    let folder = tempfile::tempdir().unwrap();
    let keys: arrow::array::DictionaryArray<Int32Type> =
        (0..100).map(|row| ["a", "b", "c"][row % 3]).collect();
    let batch = RecordBatch::try_from_iter([("d", Arc::new(keys) as ArrayRef)]).unwrap();
    write(&folder.path().join("a.parquet"), &batch, 10);
    let grid = load_path(folder.path()).unwrap();
    assert_eq!(grid.tiles().len(), 1);
    let read = rows_of(&grid);
    assert_eq!(read.column(0).data_type(), batch.column(0).data_type());
    let text =
        |batch: &RecordBatch| arrow::compute::cast(batch.column(0), &DataType::Utf8).unwrap();
    assert_eq!(&text(&read), &text(&batch));
}

/// Rows of a number and a text that is null in every third row but the first.
fn frame(numbers: std::ops::Range<i64>) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("number", DataType::Int64, false),
        Field::new("text", DataType::Utf8, true),
    ]);
    let texts = numbers
        .clone()
        .map(|number| (number % 3 != 0).then(|| format!("row {number}")));
    let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    RecordBatch::try_new(Arc::new(schema), vec![numbers, texts]).unwrap()
}

/// Writes a file in row groups of `group_rows`, and the folders above it.
fn write(path: &Path, batch: &RecordBatch, group_rows: usize) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows))
        .build();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(future)
}

fn load_text(source: &str) -> Result<PartitionGrid> {
    block_on(load(&[source.to_owned()], &LoadOptions::default()))
}

fn load_path(path: &Path) -> Result<PartitionGrid> {
    load_text(path.to_str().unwrap())
}

fn load_with(path: &Path, options: &LoadOptions) -> Result<PartitionGrid> {
    block_on(load(&[path.to_str().unwrap().to_owned()], options))
}

/// All rows of a grid as one batch.
fn rows_of(grid: &PartitionGrid) -> RecordBatch {
    let batches: Vec<_> = (0..grid.rows().num_intervals())
        .map(|band| grid.open_row_band(band).unwrap())
        .collect();
    concat_batches(grid.schema(), &batches).unwrap()
}

fn column_names(grid: &PartitionGrid) -> Vec<&str> {
    grid.schema()
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect()
}

fn numbers_of(grid: &PartitionGrid) -> Vec<i64> {
    let column = grid.column_index("number").unwrap();
    rows_of(grid)
        .column(column)
        .as_primitive::<Int64Type>()
        .values()
        .to_vec()
}

fn refused(result: Result<PartitionGrid>, kind: ErrorKind, texts: &[&str]) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    for text in texts {
        assert!(
            error.to_string().contains(text),
            "`{text}` is not in: {error}"
        );
    }
    error
}
