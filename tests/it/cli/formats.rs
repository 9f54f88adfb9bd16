//! Every format of a query result, read back and compared.

use std::fs;
use std::sync::Arc;

use arrow::array::{ListArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use arrow::ipc::reader::{FileReader, StreamReader};

use super::{Folder, failed, read_parquet, small, text, write_file};

const ALL: &str = "SELECT id, name, x FROM t ORDER BY id";

#[test]
fn a_table_tells_null_from_text_and_escapes_control_characters() {
    let output = Folder::new().run(&["sql", ALL, "--grid", "t=small.parquet"]);
    let expected = "\
┌────┬────────┬──────┐
│ id │ name   │    x │
╞════╪════════╪══════╡
│  1 │ a,\"b\"  │  0.5 │
│  2 │ NULL   │ NULL │
│  3 │ \"NULL\" │ -1.0 │
│  4 │ x\\ny   │  NaN │
└────┴────────┴──────┘
";
    assert_eq!(text(&output.stdout), expected);
    assert_eq!(
        (text(&output.stderr), output.status.code()),
        (String::new(), Some(0))
    );
}

#[test]
fn a_table_has_a_thousand_rows_unless_all_are_wanted() {
    let folder = Folder::new();
    let arguments = ["sql", "SELECT id FROM t", "--grid", "t=large.parquet"];
    let output = folder.run(&arguments);
    assert_eq!(text(&output.stdout).lines().count(), 1_004);
    assert_eq!(
        text(&output.stderr),
        "199,000 rows left out; --all shows them\n"
    );
    let arguments = [
        "sql",
        "SELECT id FROM t LIMIT 1001",
        "--grid",
        "t=large.parquet",
        "--all",
    ];
    let output = folder.run(&arguments);
    assert_eq!(text(&output.stdout).lines().count(), 1_005);
    assert!(output.stderr.is_empty());
}

#[test]
fn csv_has_a_header_and_quotes_where_needed() {
    let output = Folder::new().run(&["sql", ALL, "--grid", "t=small.parquet", "--format", "csv"]);
    let expected = "id,name,x\n1,\"a,\"\"b\"\"\",0.5\n2,,\n3,NULL,-1.0\n4,\"x\ny\",NaN\n";
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn csv_of_no_rows_is_its_header() {
    let query = "SELECT id, name FROM t WHERE id > 99";
    let output = Folder::new().run(&["sql", query, "--grid", "t=small.parquet", "--format", "csv"]);
    assert_eq!(text(&output.stdout), "id,name\n");
}

#[test]
fn csv_refuses_a_nested_column_before_it_writes() {
    let query = "SELECT id, [id, 2] AS pair FROM t";
    let output = Folder::new().run(&["sql", query, "--grid", "t=small.parquet", "--format", "csv"]);
    failed(
        &output,
        &[
            "CSV cannot hold a List",
            "column: pair",
            "hint: take --format json",
        ],
    );
}

#[test]
fn json_is_one_object_a_line_with_nulls() {
    let output = Folder::new().run(&["sql", ALL, "--grid", "t=small.parquet", "--format", "json"]);
    let expected = "\
{\"id\":1,\"name\":\"a,\\\"b\\\"\",\"x\":0.5}
{\"id\":2,\"name\":null,\"x\":null}
{\"id\":3,\"name\":\"NULL\",\"x\":-1.0}
{\"id\":4,\"name\":\"x\\ny\",\"x\":null}
";
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn json_and_parquet_refuse_two_columns_of_one_name() {
    let folder = Folder::new();
    let query = "SELECT a.id, b.id FROM t a JOIN t b USING (name)";
    for format in ["json", "parquet"] {
        let output = folder.run(&[
            "sql",
            query,
            "--grid",
            "t=small.parquet",
            "--format",
            format,
        ]);
        failed(
            &output,
            &["must have distinct names", "column: id", "hint: "],
        );
    }
}

#[test]
fn arrow_files_hold_the_same_values_as_arrow_streams() {
    let folder = Folder::new();
    let query = "SELECT * FROM t ORDER BY id";
    let start = ["sql", query, "--grid", "t=large.parquet"];
    let stream = folder.run(&[&start[..], &["--format", "arrow"]].concat());
    let stream = StreamReader::try_new(stream.stdout.as_slice(), None).unwrap();
    let schema = stream.schema();
    let wanted: Vec<RecordBatch> = stream.map(Result::unwrap).collect();
    let wanted = arrow::compute::concat_batches(&schema, &wanted).unwrap();
    for name in ["a.arrow", "a.feather", "a.FEATHER"] {
        let output = folder.run(&[&start[..], &["--output", name]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let file = fs::File::open(folder.path(name)).unwrap();
        let file = FileReader::try_new(file, None).unwrap();
        let got: Vec<RecordBatch> = file.map(Result::unwrap).collect();
        let got = arrow::compute::concat_batches(&schema, &got).unwrap();
        assert_eq!(got, wanted, "{name}");
    }
}

#[test]
fn arrow_is_a_stream_of_the_same_values() {
    let arguments = ["sql", ALL, "--grid", "t=small.parquet", "--format", "arrow"];
    let output = Folder::new().run(&arguments);
    let reader = StreamReader::try_new(output.stdout.as_slice(), None).unwrap();
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    assert_same(&batches, &small());
}

#[test]
fn parquet_holds_the_same_values() {
    let folder = Folder::new();
    let arguments = [
        "sql",
        ALL,
        "--grid",
        "t=small.parquet",
        "--format",
        "parquet",
    ];
    let output = folder.run(&arguments);
    fs::write(folder.path("back.parquet"), &output.stdout).unwrap();
    assert_same(&read_parquet(&folder.path("back.parquet")), &small());
}

#[test]
fn nested_values_are_written_as_json_and_parquet() {
    let folder = Folder::new();
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
        Some(vec![Some(1), None]),
        None,
        Some(vec![]),
    ]);
    let schema = Schema::new(vec![Field::new(
        "l",
        DataType::new_list(DataType::Int32, true),
        true,
    )]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(lists)]).unwrap();
    write_file(&folder.path("lists.parquet"), &batch);
    let arguments = [
        "sql",
        "SELECT l FROM t",
        "--grid",
        "t=lists.parquet",
        "--format",
        "json",
    ];
    let output = folder.run(&arguments);
    assert_eq!(
        text(&output.stdout),
        "{\"l\":[1,null]}\n{\"l\":null}\n{\"l\":[]}\n"
    );
    let arguments = [
        "sql",
        "SELECT l FROM t",
        "--grid",
        "t=lists.parquet",
        "-o",
        "b.parquet",
    ];
    assert_eq!(folder.run(&arguments).status.code(), Some(0));
    let back = read_parquet(&folder.path("b.parquet"));
    assert_eq!(back[0].column(0), batch.column(0));
}

/// Same names, types and values.
fn assert_same(batches: &[RecordBatch], expected: &RecordBatch) {
    let schema = batches[0].schema();
    let got = arrow::compute::concat_batches(&schema, batches).unwrap();
    for (got, wanted) in schema.fields().iter().zip(expected.schema().fields()) {
        assert_eq!(
            (got.name(), got.data_type()),
            (wanted.name(), wanted.data_type())
        );
    }
    assert_eq!(got.columns(), expected.columns());
}
