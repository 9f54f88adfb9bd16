//! Parquet files -> grid: what is found, what is kept, what is refused.

mod refused;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Date32Type, Field, Int32Type, Int64Type, Schema};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use partgrid::error::{Error, ErrorKind};
use partgrid::grid::PartitionGrid;
use partgrid::load::{LoadOptions, load};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::parquet_types::all_types;

#[test]
fn a_file_becomes_a_grid_of_its_rows() {
    let folder = folder();
    let path = write(folder.path(), "a.parquet", &[numbers(0..7)]);
    let grid = loaded(&path);
    assert_eq!((grid.num_rows(), grid.num_columns()), (7, 2));
    assert_eq!(ids(&grid), (0..7).collect::<Vec<_>>());
}

#[test]
fn files_of_a_folder_come_in_name_order_and_hidden_ones_are_left_out() {
    let folder = folder();
    for (name, rows) in [
        ("b.parquet", 10..12),
        ("a/z.parquet", 0..3),
        ("c.pq", 20..21),
    ] {
        write(folder.path(), name, &[numbers(rows)]);
    }
    write(folder.path(), "_temporary/x.parquet", &[numbers(90..91)]);
    write(folder.path(), ".hidden.parquet", &[numbers(91..92)]);
    fs::write(folder.path().join("_SUCCESS"), "").unwrap();
    fs::write(folder.path().join("notes.txt"), "no data").unwrap();
    let grid = loaded(folder.path());
    assert_eq!(ids(&grid), [0, 1, 2, 10, 11, 20]);
    assert_eq!(grid.rows().cuts(), [0, 3, 5, 6]);
}

#[test]
fn folder_names_become_typed_columns() {
    let folder = folder();
    let paths = [
        ("year=2023/day=2024-02-29/kind=a%20b/x.parquet", 0..1),
        (
            "year=2024/day=2024-03-01/kind=__HIVE_DEFAULT_PARTITION__/x.parquet",
            1..3,
        ),
    ];
    for (name, rows) in paths {
        write(folder.path(), name, &[numbers(rows)]);
    }
    let grid = loaded(folder.path());
    let field = |name: &str| grid.schema().field_with_name(name).unwrap().clone();
    assert_eq!(field("year"), Field::new("year", DataType::Int64, false));
    assert_eq!(field("day"), Field::new("day", DataType::Date32, false));
    assert_eq!(field("kind"), Field::new("kind", DataType::Utf8, true));
    let all = whole(&grid);
    assert_eq!(
        all.column(2).as_primitive::<Int64Type>().values(),
        &[2023, 2024, 2024]
    );
    assert_eq!(all.column(3).as_primitive::<Date32Type>().value(0), 19_782);
    let kinds: Vec<Option<&str>> = all.column(4).as_string::<i32>().iter().collect();
    assert_eq!(kinds, [Some("a b"), None, None]);
}

#[test]
fn folder_names_can_be_left_alone() {
    let folder = folder();
    write(folder.path(), "k=1/x.parquet", &[numbers(0..1)]);
    let options = LoadOptions::default().with_hive_partitioning(false);
    assert_eq!(load_with(folder.path(), &options).unwrap().num_columns(), 2);
    for source in ["k=1/x.parquet", "k=1", "k=1/*", "k=*/*"] {
        let grid = loaded(&folder.path().join(source));
        assert_eq!(grid.num_columns(), 3, "{source}");
    }
}

#[test]
fn different_folder_keys_are_refused() {
    let folder = folder();
    write(folder.path(), "a=1/x.parquet", &[numbers(0..1)]);
    let odd = write(folder.path(), "b=1/x.parquet", &[numbers(0..1)]);
    let error = refused(folder.path());
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert_eq!(error.context("file"), odd.to_str());
    assert!(error.message().contains("got [b]"), "{error}");
}

#[test]
fn a_column_that_is_also_a_folder_name_must_agree_with_it() {
    let folder = folder();
    let id = |values: Vec<i64>| -> RecordBatch {
        RecordBatch::try_from_iter([("k", Arc::new(Int64Array::from(values)) as ArrayRef)]).unwrap()
    };
    write(folder.path(), "good/k=1/x.parquet", &[id(vec![1, 1])]);
    assert_eq!(loaded(&folder.path().join("good")).num_columns(), 1);
    let bad = write(folder.path(), "bad/k=1/x.parquet", &[id(vec![1, 2])]);
    let error = refused(&folder.path().join("bad"));
    assert_eq!(
        (error.kind(), error.context("column")),
        (ErrorKind::InvalidData, Some("k"))
    );
    assert_eq!(error.context("file"), bad.to_str());
}

#[test]
fn patterns_match_like_a_shell() {
    let folder = folder();
    for (name, rows) in [
        ("m=1/a.parquet", 0..1),
        ("m=2/a.parquet", 1..2),
        ("m=2/b.bin", 2..3),
    ] {
        write(folder.path(), name, &[numbers(rows)]);
    }
    let load_pattern = |pattern: &str| ids(&loaded(&folder.path().join(pattern)));
    assert_eq!(load_pattern("*/*.parquet"), [0, 1]);
    assert_eq!(load_pattern("m=[2]/*"), [1, 2]);
    assert_eq!(load_pattern("**/b.???"), [2]);
    assert_eq!(
        refused(&folder.path().join("*.parquet")).kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        refused(&folder.path().join("x[/a")).kind(),
        ErrorKind::InvalidArgument
    );
}

#[test]
fn names_with_odd_letters_are_found() {
    let folder = folder();
    let names = [
        "a b.parquet",
        "50%.parquet",
        "a#1.parquet",
        "ä [x]*?.parquet",
        "%20.parquet",
    ];
    for name in names {
        let path = write(folder.path(), name, &[numbers(0..2)]);
        assert_eq!(loaded(&path).num_rows(), 2, "{name}");
    }
    assert_eq!(loaded(folder.path()).num_rows(), 2 * names.len() as u64);
}

#[test]
fn several_sources_are_one_grid_and_no_file_comes_twice() {
    let folder = folder();
    let first = write(folder.path(), "a.parquet", &[numbers(0..2)]);
    let second = write(folder.path(), "b.parquet", &[numbers(2..3)]);
    let url = format!("file://{}", second.to_str().unwrap());
    let sources = [
        url,
        text(&first),
        text(folder.path()),
        text(&folder.path().join("x/../a.parquet")),
    ];
    let grid = block_on(load(&sources, &LoadOptions::default())).unwrap();
    assert_eq!(ids(&grid), [0, 1, 2]);
}

#[test]
fn columns_are_matched_by_name_and_nullable_if_any_file_says_so() {
    let folder = folder();
    let first = numbers(0..2);
    let nullable = Schema::new(vec![
        Field::new("name", DataType::Utf8, true),
        Field::new("id", DataType::Int64, false),
    ]);
    let names = Arc::new(StringArray::from(vec![None, Some("x")]));
    let ids_column = Arc::new(Int64Array::from(vec![2, 3]));
    let second = RecordBatch::try_new(Arc::new(nullable), vec![names, ids_column]).unwrap();
    write(folder.path(), "a.parquet", &[first]);
    write(folder.path(), "b.parquet", &[second]);
    let grid = loaded(folder.path());
    assert_eq!(ids(&grid), [0, 1, 2, 3]);
    assert!(!grid.schema().field(0).is_nullable() && grid.schema().field(1).is_nullable());
    assert_eq!(whole(&grid).column(1).null_count(), 1);
}

#[test]
fn columns_can_be_chosen_in_any_order() {
    let folder = folder();
    write(folder.path(), "k=7/a.parquet", &[numbers(0..2)]);
    let choose = |names: &[&str]| {
        let names = names.iter().map(ToString::to_string).collect();
        load_with(folder.path(), &LoadOptions::default().with_columns(names))
    };
    let grid = choose(&["k", "name", "id"]).unwrap();
    let names: Vec<&str> = grid
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    assert_eq!(names, ["k", "name", "id"]);
    assert_eq!(
        whole(&grid).column(0).as_primitive::<Int64Type>().values(),
        &[7, 7]
    );
    assert_eq!(
        (
            choose(&[]).unwrap().num_rows(),
            choose(&[]).unwrap().num_columns()
        ),
        (2, 0)
    );
    assert_eq!(choose(&["k"]).unwrap().num_rows(), 2);
    let error = choose(&["nmae"]).unwrap_err();
    assert_eq!(error.hint(), Some("did you mean `name`?"));
    assert_eq!(
        choose(&["id", "id"]).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
}

#[test]
fn differences_between_files_are_all_reported_with_file_and_column() {
    let folder = folder();
    write(folder.path(), "a.parquet", &[numbers(0..1)]);
    let short = Arc::new(Int32Array::from(vec![1])) as ArrayRef;
    let changed = RecordBatch::try_from_iter([("id", short), ("extra", strings(1))]).unwrap();
    let second = write(folder.path(), "b.parquet", &[changed]);
    let error = refused(folder.path());
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert_eq!(
        (error.context("file"), error.context("column")),
        (second.to_str(), Some("id"))
    );
    let text = error.to_string();
    for part in [
        "column `id` is column 0 and Int32, expected Int64",
        "column `name` missing, expected Utf8",
        "column `extra` is column 1 (Utf8), not expected",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn every_type_field_and_metadata_survives() {
    let folder = folder();
    let batch = all_types(50);
    let path = write(folder.path(), "a.parquet", std::slice::from_ref(&batch));
    for tile_rows in [7, 1_000] {
        let options = LoadOptions::default().with_tile_rows(tile_rows);
        let grid = load_with(&path, &options).unwrap();
        assert_eq!(grid.schema(), &batch.schema());
        assert_eq!(whole(&grid), batch, "{tile_rows} rows a tile");
    }
}

#[test]
fn tiles_are_contiguous_and_know_their_statistics() {
    let folder = folder();
    let path = write(folder.path(), "a.parquet", &[numbers(0..100)]);
    let grid = load_with(&path, &LoadOptions::default().with_tile_rows(30)).unwrap();
    assert_eq!(grid.rows().cuts(), [0, 25, 50, 75, 100]);
    let known = grid.tile(&[2, 0]).unwrap().known_statistics(0).unwrap();
    let bounds = known.bounds.as_ref().unwrap().as_primitive::<Int64Type>();
    assert_eq!(
        (known.null_count, bounds.values().to_vec()),
        (0, vec![50, 74])
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_values_are_the_same_whatever_the_tile_size(
        rows in 0_i64..400,
        group_rows in 1_usize..120,
        tile_rows in 1_u64..150,
    ) {
        let folder = folder();
        let batch = numbers(0..rows);
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)).build();
        let path = write_with(folder.path(), "a.parquet", std::slice::from_ref(&batch), properties);
        let grid = load_with(&path, &LoadOptions::default().with_tile_rows(tile_rows)).unwrap();
        prop_assert_eq!(whole(&grid), batch);
    }
}

#[test]
fn the_flights_are_all_there() {
    let flights = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/flights");
    let grid = loaded(&flights);
    assert_eq!((grid.num_rows(), grid.num_columns()), (336_776, 19));
    assert_eq!(grid.rows().num_intervals(), 12);
    let zone = DataType::Timestamp(
        arrow::datatypes::TimeUnit::Microsecond,
        Some("America/New_York".into()),
    );
    assert_eq!(
        grid.schema()
            .field_with_name("time_hour")
            .unwrap()
            .data_type(),
        &zone
    );
    let distance = grid.column_index("distance").unwrap();
    assert_eq!(
        grid.schema()
            .field(distance)
            .metadata()
            .get("unit")
            .unwrap(),
        "miles"
    );
    let total: f64 = (0..12)
        .map(|band| {
            let batch = grid.open_row_band(band).unwrap();
            let column = batch
                .column(distance)
                .as_primitive::<arrow::datatypes::Float64Type>();
            arrow::compute::sum(column).unwrap()
        })
        .sum();
    assert!((total - 350_217_607.0).abs() < 0.5);
}

#[test]
fn a_dictionary_over_several_row_groups_is_one_batch() {
    let folder = folder();
    let keys: arrow::array::DictionaryArray<Int32Type> =
        (0..100).map(|row| ["a", "b", "c"][row % 3]).collect();
    let batch = RecordBatch::try_from_iter([("d", Arc::new(keys) as ArrayRef)]).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(10))
        .build();
    let path = write_with(
        folder.path(),
        "a.parquet",
        std::slice::from_ref(&batch),
        properties,
    );
    let grid = loaded(&path);
    assert_eq!(grid.tiles().len(), 1);
    let read = whole(&grid);
    assert_eq!(read.column(0).data_type(), batch.column(0).data_type());
    let text =
        |batch: &RecordBatch| arrow::compute::cast(batch.column(0), &DataType::Utf8).unwrap();
    assert_eq!(&text(&read), &text(&batch));
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

fn load_with(path: &Path, options: &LoadOptions) -> Result<PartitionGrid, Error> {
    block_on(load(&[text(path)], options))
}

fn loaded(path: &Path) -> PartitionGrid {
    load_with(path, &LoadOptions::default()).unwrap()
}

fn refused(path: &Path) -> Error {
    load_with(path, &LoadOptions::default()).unwrap_err()
}

/// All rows as one batch.
fn whole(grid: &PartitionGrid) -> RecordBatch {
    let bands = 0..grid.rows().num_intervals();
    let batches: Vec<RecordBatch> = bands
        .map(|band| grid.open_row_band(band).unwrap())
        .collect();
    concat_batches(grid.schema(), &batches).unwrap()
}

fn ids(grid: &PartitionGrid) -> Vec<i64> {
    whole(grid)
        .column(0)
        .as_primitive::<Int64Type>()
        .values()
        .to_vec()
}

fn strings(rows: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(
        (0..rows).map(|row| format!("row {row}")),
    ))
}

fn numbers(rows: std::ops::Range<i64>) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, false),
    ]);
    let count = rows.clone().count();
    let ids = Arc::new(Int64Array::from_iter_values(rows));
    RecordBatch::try_new(Arc::new(schema), vec![ids, strings(count)]).unwrap()
}

fn write(folder: &Path, name: &str, batches: &[RecordBatch]) -> PathBuf {
    write_with(folder, name, batches, WriterProperties::default())
}

fn write_with(
    folder: &Path,
    name: &str,
    batches: &[RecordBatch],
    properties: WriterProperties,
) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file = fs::File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batches[0].schema(), Some(properties)).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.close().unwrap();
    path
}
