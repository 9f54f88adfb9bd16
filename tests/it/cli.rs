//! The `partgrid` command as its users meet it: the real binary on small files.

mod distarray;
mod formats;
mod hints;
mod output;
mod usage;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use arrow::array::{Array, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tempfile::TempDir;

#[test]
fn show_draws_the_tiles_and_lists_the_columns() {
    let folder = Folder::new();
    let child = folder
        .command(&["show", "small.parquet", "--columns", "id,name"])
        .env("PARTGRID_HOST", "192.0.2.7")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let process = child.id();
    let output = child.wait_with_output().unwrap();
    let expected = "\
4 rows x 2 columns in 1 x 1 tile, 65 B
    id, name
  ┌──────────────┐
0 │ 4 rows, 65 B │
  └──────────────┘
192.0.2.7 pid 4711: 1 tile

column  type            nulls
id      Int64 not null      0
name    Utf8                1
";
    let shown = text(&output.stdout).replace(&format!("pid {process}:"), "pid 4711:");
    assert_eq!(shown, expected);
}

#[test]
fn show_cuts_tiles_of_the_wanted_number_of_rows() {
    let folder = Folder::new();
    let output = folder.run(&["show", "small.parquet", "--tile-rows", "2"]);
    assert!(text(&output.stdout).starts_with("4 rows x 3 columns in 2 x 1 tiles"));
}

#[test]
fn show_takes_columns_from_folder_names_unless_told_not_to() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("data/year=2013")).unwrap();
    fs::copy(
        folder.path("small.parquet"),
        folder.path("data/year=2013/a.parquet"),
    )
    .unwrap();
    let with = folder.run(&["show", "data"]);
    assert!(text(&with.stdout).contains("\nyear "), "{with:?}");
    let without = folder.run(&["show", "data", "--no-hive"]);
    assert!(!text(&without.stdout).contains("\nyear "), "{without:?}");
    assert!(
        text(&without.stdout).starts_with("4 rows x 3 columns"),
        "{without:?}"
    );
}

#[test]
fn a_query_comes_from_a_file_or_from_standard_input() {
    let folder = Folder::new();
    fs::write(folder.path("query.sql"), "SELECT count(*) AS n\nFROM t;\n").unwrap();
    let rest = ["--grid", "t=small.parquet", "--format", "csv"];
    let output = folder.run(&[&["sql", "-f", "query.sql"], &rest[..]].concat());
    assert_eq!(text(&output.stdout), "n\n4\n", "{output:?}");
    for start in [&["sql", "-"][..], &["sql", "-f", "-"]] {
        let mut command = folder.command(&[start, &rest].concat());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(b"SELECT max(id) AS n FROM t")
            .unwrap();
        assert_eq!(text(&child.wait_with_output().unwrap().stdout), "n\n4\n");
    }
}

#[test]
fn a_query_file_that_is_missing_or_too_long_is_an_error() {
    let folder = Folder::new();
    failed(
        &folder.run(&["sql", "-f", "no.sql"]),
        &["could not be read", "file: no.sql"],
    );
    fs::write(folder.path("long.sql"), vec![b' '; 300_000]).unwrap();
    failed(
        &folder.run(&["sql", "-f", "long.sql"]),
        &["262144 bytes", "file: long.sql"],
    );
    fs::write(folder.path("latin.sql"), b"SELECT '\xe9'").unwrap();
    failed(
        &folder.run(&["sql", "-f", "latin.sql"]),
        &["must be UTF-8", "file: latin.sql"],
    );
}

#[test]
fn table_names_fold_to_lower_case_unless_quoted() {
    let folder = Folder::new();
    let query = "SELECT count(*) AS n FROM Small JOIN \"My table\" USING (id)";
    let grids = [
        "--grid",
        "SMALL=small.parquet",
        "--grid",
        "\"My table\"=small.parquet",
    ];
    let output = folder.run(&[&["sql", query, "--format", "csv"], &grids[..]].concat());
    assert_eq!(text(&output.stdout), "n\n4\n", "{output:?}");
}

#[test]
fn threads_and_memory_limit_reach_the_query() {
    let folder = Folder::new();
    let query = "SELECT x, count(*) AS n FROM t GROUP BY x ORDER BY x LIMIT 1";
    let rest = [
        "--grid",
        "t=large.parquet",
        "--format",
        "csv",
        "--threads",
        "1",
    ];
    let output = folder.run(&[&["sql", query], &rest[..]].concat());
    assert_eq!(text(&output.stdout), "x,n\n0.0,100\n", "{output:?}");
    let output = folder.run(&[&["sql", query, "--memory-limit", "1kB"], &rest[..]].concat());
    failed(
        &output,
        &["error: ", "the memory limit of the session, 1.0 kB"],
    );
}

#[test]
fn a_failing_query_says_why_on_standard_error_only() {
    let folder = Folder::new();
    let output = folder.run(&["sql", "SELECT nme FROM t", "--grid", "t=small.parquet"]);
    failed(
        &output,
        &["error: no column `nme`", "\nhint: did you mean `name`?\n"],
    );
    failed(&folder.run(&["sql", "SELEC 1"]), &["error: "]);
    failed(&folder.run(&["sql", "SELECT * FROM missing"]), &["missing"]);
    failed(
        &folder.run(&["sql", "DROP TABLE t"]),
        &["no table `t`", "line 1, column 12:"],
    );
}

#[test]
fn a_missing_file_or_column_is_named() {
    let folder = Folder::new();
    failed(
        &folder.run(&["show", "no.parquet"]),
        &["error: ", "no.parquet"],
    );
    failed(
        &folder.run(&["sql", "SELECT 1", "--grid", "t=no.parquet"]),
        &["no.parquet"],
    );
    let output = folder.run(&["show", "small.parquet", "--columns", "id,nme"]);
    failed(&output, &["nme", "hint: did you mean `name`?"]);
    fs::write(folder.path("text.parquet"), "no Parquet").unwrap();
    failed(&folder.run(&["show", "text.parquet"]), &["text.parquet"]);
}

/// A folder with `small.parquet` (see [`small`]) and `large.parquet` (200,000 rows, written in row groups of 20,000).
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(TempDir::new().unwrap());
        write_file(&folder.path("small.parquet"), &small());
        let ids = Int64Array::from_iter_values(0..200_000);
        let xs = Float64Array::from_iter_values((0..200_000).map(|id| f64::from(id % 2_000)));
        let batch = RecordBatch::try_from_iter([
            ("id", Arc::new(ids) as Arc<dyn Array>),
            ("x", Arc::new(xs)),
        ]);
        write_file(&folder.path("large.parquet"), &batch.unwrap());
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_partgrid"));
        command.args(arguments).current_dir(self.0.path());
        command
            .env_remove("PARTGRID_LOG")
            .env_remove("PARTGRID_HOST");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

fn small() -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("x", DataType::Float64, true),
    ]);
    let names = vec![Some("a,\"b\""), None, Some("NULL"), Some("x\ny")];
    let xs = vec![Some(0.5), None, Some(-1.0), Some(f64::NAN)];
    let columns: Vec<Arc<dyn Array>> = vec![
        Arc::new(Int64Array::from(vec![1, 2, 3, 4])),
        Arc::new(StringArray::from(names)),
        Arc::new(Float64Array::from(xs)),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

fn write_file(path: &Path, batch: &RecordBatch) {
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_max_row_group_row_count(Some(20_000))
        .build();
    let file = fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn read_parquet(path: &Path) -> Vec<RecordBatch> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(path).unwrap());
    reader
        .unwrap()
        .build()
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

/// Exit code 1, nothing on standard output, each of the texts on standard error.
fn failed(output: &Output, texts: &[&str]) {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    for wanted in texts {
        assert!(text(&output.stderr).contains(wanted), "{wanted} {output:?}");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
