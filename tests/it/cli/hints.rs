//! Remedies are said in the words of the command: options of the verb at hand, never arguments of functions.

use std::fs;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};

use super::{Folder, failed, small, text, write_file};

#[test]
fn hints_name_options_that_the_verb_has() {
    let folder = Folder::new();
    let other: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    let other = RecordBatch::try_from_iter([("id", other)]).unwrap();
    fs::create_dir(folder.path("differ")).unwrap();
    write_file(&folder.path("differ/a.parquet"), &small());
    write_file(&folder.path("differ/b.parquet"), &other);
    for name in ["k=1/a.parquet", "b.parquet"] {
        let path = folder.path("folders").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_file(&path, &small());
    }
    let load = ["load", "--out", "out"];
    let limit = ["--memory-limit", "1kB"];
    let widen = ["--schema-evolution", "widen"];
    let sort = "SELECT value, value % 1000 AS k FROM generate_series(1, 1000000) ORDER BY k, value";
    let spill = [
        "--threads",
        "2",
        "--memory-limit",
        "8MB",
        "--spill-limit",
        "1kB",
    ];
    let cases: [(Vec<&str>, &str); 9] = [
        (
            [&load[..], &["large.parquet"], &limit].concat(),
            "hint: raise --memory-limit, give --spill-to a folder, load fewer --columns, or choose a smaller --tile-rows",
        ),
        (
            [&load[..], &["differ"]].concat(),
            "hint: --schema-evolution union fills missing columns",
        ),
        (
            [&load[..], &["differ"], &widen].concat(),
            "hint: no type holds the values of both exactly: load these files apart, or without the column",
        ),
        (
            vec!["show", "differ"],
            "hint: `partgrid load --schema-evolution union` fills",
        ),
        ([&load[..], &["folders"]].concat(), "hint: --no-hive takes"),
        (vec!["show", "folders"], "hint: --no-hive takes"),
        (
            vec!["sql", "SELECT 1", "--grid", "t=folders"],
            "hint: `partgrid load --no-hive` takes",
        ),
        (
            [&["sql", sort], &spill[..]].concat(),
            "hint: raise --spill-limit or --memory-limit",
        ),
        (
            vec!["sql", "SET x = 1"],
            "hint: settings are no statements: the command takes --timeout, --memory-limit and others",
        ),
    ];
    for (arguments, hint) in cases {
        failed(&folder.run(&arguments), &[hint]);
    }
    let copy = ["copy", "small.parquet", "out"];
    assert_eq!(folder.run(&copy).status.code(), Some(0));
    failed(&folder.run(&copy), &["hint: --overwrite replaces them"]);
    let output = folder.run(&[&copy[..], &["--json"]].concat());
    assert!(
        text(&output.stdout).contains("hint: --overwrite replaces them"),
        "{output:?}"
    );
}

#[test]
fn a_wrong_direction_is_named_unless_a_column_has_that_name() {
    let folder = Folder::new();
    let load = |sort_by: &str, path: &str, out: &str| {
        folder.run(&["load", path, "--out", out, "--sort-by", sort_by])
    };
    for sort_by in ["id:up", "id:"] {
        let output = load(sort_by, "small.parquet", "out");
        let direction = sort_by.trim_start_matches("id:");
        failed(
            &output,
            &[
                "--sort-by must say \"asc\", \"ascending\", \"desc\" or \"descending\" behind a name",
                &format!("got \"{direction}\" (column: id)"),
            ],
        );
    }
    failed(&load("nme", "small.parquet", "out"), &["no column `nme`"]);
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![2, 3, 1]));
    let batch = RecordBatch::try_from_iter([("y:up", ids)]).unwrap();
    write_file(&folder.path("colon.parquet"), &batch);
    for (sort_by, expected) in [
        ("y:up", [1, 2, 3]),
        ("y:up:ascending", [1, 2, 3]),
        ("y:up:desc", [3, 2, 1]),
        ("y:up:descending", [3, 2, 1]),
    ] {
        let out = sort_by.replace(':', "-");
        let output = load(sort_by, "colon.parquet", &out);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let written = super::read_parquet(&folder.path(&out).join("part-00000.parquet"));
        let column = written[0].column(0).to_data();
        assert_eq!(Int64Array::from(column).values(), &expected, "{sort_by}");
    }
}
