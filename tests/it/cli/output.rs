//! Where results go: files, pipes, readers that leave, disks that are full.

use std::fs;
use std::io::Read;
use std::process::Stdio;

use arrow::array::RecordBatch;
use arrow::ipc::reader::StreamReader;

use super::{Folder, failed, read_parquet};

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
