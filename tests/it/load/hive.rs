//! Columns from folder names.

use arrow::array::{Date32Array, Int32Array};

use super::*;

#[test]
fn nested_keys_become_columns_behind_those_of_the_files() {
    let folder = tempfile::tempdir().unwrap();
    for (year, month, start) in [("2012", "12", 0), ("2013", "01", 2), ("2013", "02", 4)] {
        let path = folder
            .path()
            .join(format!("year={year}/month={month}/a.parquet"));
        write(&path, &frame(start..start + 2), 1);
    }
    let options = LoadOptions::default().with_tile_rows(1);
    let grid = load_with(folder.path(), &options).unwrap();
    assert_eq!(column_names(&grid), ["number", "text", "year", "month"]);
    let rows = rows_of(&grid);
    let values = |column: usize| {
        rows.column(column)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    assert_eq!(values(2), [2012, 2012, 2013, 2013, 2013, 2013]);
    assert_eq!(values(3), [12, 12, 1, 1, 2, 2]);
    assert!(!grid.schema().field(3).is_nullable());
    let known = grid.tiles()[5].column_statistics(3).unwrap();
    let bounds = known.bounds.as_ref().unwrap();
    assert_eq!(bounds.as_primitive::<Int64Type>().values(), &[2, 2]);
    let without = LoadOptions::default().with_hive_partitioning(false);
    assert_eq!(
        column_names(&load_with(folder.path(), &without).unwrap()),
        ["number", "text"]
    );
}

#[test]
fn types_are_inferred_over_all_folders() {
    let typed = |values: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        for (number, value) in values.iter().enumerate() {
            write(
                &folder.path().join(format!("k={value}/{number}.parquet")),
                &frame(0..1),
                9,
            );
        }
        let grid = load_path(folder.path()).unwrap();
        let field = grid.schema().field(2).clone();
        (field.data_type().clone(), field.is_nullable())
    };
    let null = "__HIVE_DEFAULT_PARTITION__";
    assert_eq!(typed(&["1", "-2", "007"]), (DataType::Int64, false));
    assert_eq!(typed(&["1", null]), (DataType::Int64, true));
    assert_eq!(
        typed(&["2013-01-31", "1969-12-31"]),
        (DataType::Date32, false)
    );
    assert_eq!(typed(&["2013-02-30"]), (DataType::Utf8, false));
    assert_eq!(typed(&["2013-1-3"]), (DataType::Utf8, false));
    assert_eq!(typed(&["1", "2013-01-31"]), (DataType::Utf8, false));
    for text in ["+1", "1.0", "1e3", "", "9223372036854775808", "-"] {
        assert_eq!(typed(&[text]), (DataType::Utf8, false), "{text}");
    }
    assert_eq!(typed(&[null]), (DataType::Utf8, true));
}

#[test]
fn values_are_decoded() {
    let folder = tempfile::tempdir().unwrap();
    for value in ["a%2Fb", "c%20d", "größe", "__HIVE_DEFAULT_PARTITION__"] {
        write(
            &folder.path().join(format!("the%20key={value}/x.parquet")),
            &frame(0..1),
            9,
        );
    }
    let grid = load_path(folder.path()).unwrap();
    assert_eq!(grid.schema().field(2).name(), "the key");
    let expected = StringArray::from(vec![None, Some("a/b"), Some("c d"), Some("größe")]);
    assert_eq!(rows_of(&grid).column(2).as_string::<i32>(), &expected);
    let dates = tempfile::tempdir().unwrap();
    write(
        &dates.path().join("day=1970-01-03/x.parquet"),
        &frame(0..1),
        9,
    );
    let grid = load_path(dates.path()).unwrap();
    assert_eq!(
        rows_of(&grid).column(2).as_ref(),
        &Date32Array::from(vec![2]) as &dyn Array
    );
}

#[test]
fn folders_below_the_source_count_and_those_it_ends_with() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("a=1/plain/b=2/c=3");
    write(&inner.join("x.parquet"), &frame(0..1), 9);
    let names = |source: &Path| {
        let grid = load_path(source).unwrap();
        column_names(&grid)[2..]
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(folder.path()), ["a", "b", "c"]);
    assert_eq!(names(&folder.path().join("a=1")), ["a", "b", "c"]);
    assert_eq!(names(&folder.path().join("a=1/plain/b=2")), ["b", "c"]);
    assert_eq!(names(&folder.path().join("a=1/*/b=2")), ["a", "b", "c"]);
    assert_eq!(
        names(&folder.path().join("a=1/plain/b=2/c=*/*")),
        ["b", "c"]
    );
    // A file that is named itself: the run right above it.
    assert_eq!(names(&inner.join("x.parquet")), ["b", "c"]);
}

#[test]
fn keys_must_be_the_same_for_all_files() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a=1/b=2/x.parquet"), &frame(0..1), 9);
    write(&folder.path().join("b=1/a=2/y.parquet"), &frame(0..1), 9);
    let texts = [
        "[a, b]",
        "[b, a]",
        "x.parquet",
        "y.parquet",
        "hive_partitioning=False",
    ];
    refused(load_path(folder.path()), ErrorKind::InvalidData, &texts);
    let twice = tempfile::tempdir().unwrap();
    write(&twice.path().join("a=1/a=2/x.parquet"), &frame(0..1), 9);
    refused(
        load_path(twice.path()),
        ErrorKind::InvalidData,
        &["same key", "column: a"],
    );
}

#[test]
fn a_column_of_the_file_is_kept_and_must_agree_with_its_folder() {
    let month = |values: Vec<Option<i32>>| {
        let column: ArrayRef = Arc::new(Int32Array::from(values));
        RecordBatch::try_from_iter_with_nullable([("month", column, true)]).unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("month=01/a.parquet");
    write(&path, &month(vec![Some(1), Some(1)]), 9);
    let grid = load_path(folder.path()).unwrap();
    assert_eq!(rows_of(&grid), month(vec![Some(1), Some(1)]));
    write(&path, &month(vec![Some(1), Some(2)]), 9);
    let texts = [
        "`01`",
        "`2`",
        "a.parquet",
        "column: month",
        "hive_partitioning=False",
    ];
    refused(load_path(folder.path()), ErrorKind::InvalidData, &texts);
    write(&path, &month(vec![Some(1), None]), 9);
    refused(
        load_path(folder.path()),
        ErrorKind::InvalidData,
        &["`01`", "`null`"],
    );
    let kept = LoadOptions::default().with_hive_partitioning(false);
    assert_eq!(
        rows_of(&load_with(folder.path(), &kept).unwrap()),
        month(vec![Some(1), None])
    );
    fs::remove_file(&path).unwrap();
    let text = folder.path().join("month=January/a.parquet");
    write(&text, &month(vec![Some(1)]), 9);
    refused(
        load_path(folder.path()),
        ErrorKind::InvalidData,
        &["`January`", "Int32"],
    );
    fs::remove_file(&text).unwrap();
    let null = folder
        .path()
        .join("month=__HIVE_DEFAULT_PARTITION__/a.parquet");
    write(&null, &month(vec![None]), 9);
    assert_eq!(
        rows_of(&load_path(folder.path()).unwrap()),
        month(vec![None])
    );
}
