//! The `partgrid` command as its users meet it: the real binary on small files.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use arrow::array::{Float64Array, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use arrow::ipc::reader::StreamReader;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tempfile::TempDir;

const ALL: &str = "SELECT id, name, x FROM t ORDER BY id";

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
fn a_large_result_streams_whole_in_every_format() {
    let folder = Folder::new();
    let query = "SELECT id, x FROM t";
    for (format, file) in [
        ("csv", "a.csv"),
        ("json", "a.jsonl"),
        ("parquet", "a.parquet"),
    ] {
        let arguments = ["sql", query, "--grid", "t=large.parquet", "--output", file];
        let output = folder.run(&arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(
            output.stdout.is_empty() && output.stderr.is_empty(),
            "{format}"
        );
    }
    let lines = |file| {
        fs::read_to_string(folder.path(file))
            .unwrap()
            .lines()
            .count()
    };
    assert_eq!((lines("a.csv"), lines("a.jsonl")), (200_001, 200_000));
    let rows: usize = read_parquet(&folder.path("a.parquet"))
        .iter()
        .map(RecordBatch::num_rows)
        .sum();
    assert_eq!(rows, 200_000);
    let arguments = [
        "sql",
        query,
        "--grid",
        "t=large.parquet",
        "--format",
        "arrow",
    ];
    let output = folder.run(&arguments);
    let reader = StreamReader::try_new(output.stdout.as_slice(), None).unwrap();
    assert_eq!(
        reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>(),
        200_000
    );
}

#[test]
fn an_output_file_replaces_the_old_one_only_when_it_is_whole() {
    let folder = Folder::new();
    fs::create_dir(folder.path("out")).unwrap();
    fs::write(folder.path("out/a.csv"), "old").unwrap();
    let fails_late = "SELECT 1 / (id - 150000) AS y FROM t";
    let arguments = [
        "sql",
        fails_late,
        "--grid",
        "t=large.parquet",
        "--output",
        "out/a.csv",
    ];
    failed(&folder.run(&arguments), &["ivide by zero"]);
    assert_eq!(fs::read_to_string(folder.path("out/a.csv")).unwrap(), "old");
    assert_eq!(fs::read_dir(folder.path("out")).unwrap().count(), 1);
    let arguments = ["sql", "SELECT 1 AS one", "--output", "out/a.csv"];
    assert_eq!(folder.run(&arguments).status.code(), Some(0));
    assert_eq!(
        fs::read_to_string(folder.path("out/a.csv")).unwrap(),
        "one\n1\n"
    );
    assert_eq!(fs::read_dir(folder.path("out")).unwrap().count(), 1);
}

#[cfg(unix)]
#[test]
fn an_output_file_has_usual_permissions_and_links_are_followed() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = Folder::new();
    fs::write(folder.path("usual"), "").unwrap();
    let mode = |file| {
        fs::metadata(folder.path(file))
            .unwrap()
            .permissions()
            .mode()
    };
    folder.run(&["sql", "SELECT 1 AS one", "--output", "new.csv"]);
    assert_eq!(mode("new.csv"), mode("usual"));
    symlink(folder.path("usual"), folder.path("link.csv")).unwrap();
    folder.run(&["sql", "SELECT 1 AS one", "--output", "link.csv"]);
    assert!(
        fs::symlink_metadata(folder.path("link.csv"))
            .unwrap()
            .is_symlink()
    );
    assert_eq!(
        fs::read_to_string(folder.path("usual")).unwrap(),
        "one\n1\n"
    );
}

#[test]
fn an_output_in_a_missing_folder_is_an_error() {
    let output = Folder::new().run(&["sql", "SELECT 1", "--output", "nowhere/a.csv"]);
    failed(
        &output,
        &[
            "could not be written",
            "there is no such folder",
            "nowhere/a.csv",
        ],
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
    failed(&output, &["error: "]);
}

#[test]
fn wrong_usage_is_exit_code_2_and_says_what_is_wrong() {
    let folder = Folder::new();
    let cases: [(&[&str], &str); 13] = [
        (&[], "Usage: partgrid"),
        (&["shw"], "unrecognized subcommand"),
        (&["show"], "PATH"),
        (&["show", "a", "--tile-rows", "0"], "0 is not in"),
        (&["sql"], "QUERY"),
        (&["sql", "SELECT 1", "-f", "a.sql"], "cannot be used with"),
        (
            &["sql", "SELECT 1", "--grid", "small.parquet"],
            "the `=` is missing",
        ),
        (&["sql", "SELECT 1", "--grid", "t="], "the path is missing"),
        (&["sql", "SELECT 1", "--grid", "1t=a"], "a table name must"),
        (
            &["sql", "SELECT 1", "--grid", "t=a", "--grid", "T=b"],
            "\"t\" is given twice",
        ),
        (
            &["sql", "SELECT 1", "--memory-limit", "lots"],
            "a size must read like 512MB",
        ),
        (&["sql", "SELECT 1", "--threads", "0"], "0 is not in"),
        (
            &["sql", "SELECT 1", "--all", "--format", "csv"],
            "--all goes with a table only",
        ),
    ];
    for (arguments, message) in cases {
        let output = folder.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {output:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(
            text(&output.stderr).contains(message),
            "{arguments:?} {output:?}"
        );
    }
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
        &["only statements that read"],
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

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let folder = Folder::new();
    let query = "SELECT id, x FROM t";
    for format in [&["csv"][..], &["json"], &["arrow"], &["table", "--all"]] {
        let start = ["sql", query, "--grid", "t=large.parquet", "--format"];
        let mut command = folder.command(&[&start, format].concat());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 10]).unwrap();
        drop(stdout);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{format:?} {output:?}");
        assert!(output.stderr.is_empty(), "{format:?} {output:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let folder = Folder::new();
    let query = "SELECT * FROM t";
    let device = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command =
        folder.command(&["sql", query, "--grid", "t=large.parquet", "--format", "csv"]);
    let output = command.stdout(device).output().unwrap();
    failed(&output, &["the result could not be written"]);
    let file = [
        "sql",
        query,
        "--grid",
        "t=large.parquet",
        "--format",
        "csv",
        "-o",
        "/dev/full",
    ];
    failed(
        &folder.run(&file),
        &["the result could not be written", "/dev/full"],
    );
    assert!(!fs::metadata("/dev/full").unwrap().is_file());
}

#[test]
fn version_and_help_go_to_standard_output() {
    let folder = Folder::new();
    let version = folder.run(&["--version"]);
    assert_eq!(
        text(&version.stdout),
        format!("partgrid {}\n", env!("CARGO_PKG_VERSION"))
    );
    for arguments in [&["--help"][..], &["show", "--help"], &["sql", "--help"]] {
        let help = folder.run(arguments);
        assert_eq!((help.status.code(), help.stderr.len()), (Some(0), 0));
        assert!(text(&help.stdout).contains("\nEXAMPLES\n"), "{help:?}");
    }
    let help = text(&folder.run(&["--help"]).stdout);
    assert!(
        help.contains("\nEXIT CODES\n") && help.contains("PARTGRID_LOG"),
        "{help}"
    );
    let help = text(&folder.run(&["sql", "--help"]).stdout);
    assert!(help.contains("newline-delimited JSON"), "{help}");
}

#[test]
fn the_log_is_silent_until_it_is_asked_for() {
    let folder = Folder::new();
    let arguments = ["sql", "SELECT 1 AS one", "--format", "csv"];
    let log = |level| {
        folder
            .command(&arguments)
            .env("PARTGRID_LOG", level)
            .output()
            .unwrap()
    };
    let debug = log("debug");
    assert_eq!(text(&debug.stdout), "one\n1\n");
    assert!(
        text(&debug.stderr).contains("DEBUG partgrid::cli::sql: planned"),
        "{debug:?}"
    );
    assert!(log("").stderr.is_empty());
    let wrong = log("a=b=c");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("PARTGRID_LOG"), "{wrong:?}");
}

#[test]
fn the_command_is_a_function_with_writers_of_the_callers_choice() {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let arguments = ["any name", "sql", "SELECT 2 AS two", "--format", "json"];
    let code = partgrid::cli::run(arguments.map(Into::into), &mut stdout, &mut stderr);
    assert_eq!(
        (code, text(&stdout), text(&stderr)),
        (0, "{\"two\":2}\n".into(), String::new())
    );
    let code = partgrid::cli::run(["", "sql"].map(Into::into), &mut stdout, &mut stderr);
    assert!(
        code == 2 && text(&stderr).contains("Usage: partgrid sql"),
        "{}",
        text(&stderr)
    );
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

/// A folder with `small.parquet` (see [`small`]) and `large.parquet` (200,000 rows, written in row groups of 20,000).
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(TempDir::new().unwrap());
        write_file(&folder.path("small.parquet"), &small());
        let ids = Int64Array::from_iter_values(0..200_000);
        let xs = Float64Array::from_iter_values((0..200_000).map(|id| f64::from(id % 2_000)));
        let batch = RecordBatch::try_from_iter([
            ("id", Arc::new(ids) as Arc<dyn arrow::array::Array>),
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
    let columns: Vec<Arc<dyn arrow::array::Array>> = vec![
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
