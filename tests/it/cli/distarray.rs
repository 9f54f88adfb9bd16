//! `partgrid distarray check` on files that are valid, broken, unreadable.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::{Folder, text};

#[test]
fn a_valid_file_is_exit_code_0_and_says_so() {
    let folder = Folder::new();
    for (name, expected) in [
        ("0.10.0-2.6", "valid: 4 sections\n"),
        ("0.10.0-2.12", "valid: 8 sections\n"),
    ] {
        let output = folder.run(&["distarray", "check", &golden(name)]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(
            (text(&output.stdout).as_str(), output.stderr.len()),
            (expected, 0)
        );
        let output = folder.run(&["distarray", "check", &golden(name), "--json"]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
    }
}

#[test]
fn a_single_section_is_judged_alone() {
    let folder = Folder::new();
    let section = r#"{"__version__": "0.10.0", "buffer": {"shape": [5], "format": "d"}, "dim_data":
        [{"dist_type": "c", "size": 10, "proc_grid_size": 2, "proc_grid_rank": 0, "start": 0, "periodic": true}]}"#;
    fs::write(folder.path("one.json"), section).unwrap();
    let output = folder.run(&["distarray", "check", "one.json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let stdout = text(&output.stdout);
    assert!(
        stdout.ends_with("\n\nvalid: 1 section, 1 warning\n"),
        "{stdout}"
    );
    fs::write(folder.path("one.json"), format!("[{section}]")).unwrap();
    let output = folder.run(&["distarray", "check", "one.json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stdout).contains("X1"), "{output:?}");
}

#[test]
fn findings_are_a_table_or_a_json_object_a_line_and_exit_code_1() {
    let folder = Folder::new();
    let file = golden("0.10.0-2.9");
    let output = folder.run(&["distarray", "check", &file]);
    assert_eq!(
        (output.status.code(), output.stderr.len()),
        (Some(1), 0),
        "{output:?}"
    );
    let stdout = text(&output.stdout);
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(
        (lines.len(), lines[10]),
        (11, "8 errors in 4 sections"),
        "{stdout}"
    );
    let words: Vec<&str> = lines[1].split_whitespace().take(5).collect();
    assert_eq!(words, ["error", "D7", "0", "0", "padding"], "{stdout}");
    assert!(lines[1].ends_with("padding must be a tuple of two ints, got the list [0, 0]"));

    let output = folder.run(&["distarray", "check", &file, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let objects: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(objects.len(), 8);
    let expected = serde_json::json!({
        "rule": "D7", "severity": "error", "rank": 3, "dimension": 1, "key": "padding",
        "message": "padding must be a tuple of two ints, got the list [0, 0]",
    });
    assert_eq!(objects[7], expected);

    let output = folder.run(&["distarray", "check", &file, "--lenient"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).ends_with("valid: 4 sections, 8 warnings\n"));
}

#[test]
fn what_cannot_be_read_is_exit_code_2_and_named() {
    let folder = Folder::new();
    fs::write(folder.path("broken.json"), "[{]").unwrap();
    fs::write(folder.path("latin.json"), b"\"\xe9\"").unwrap();
    fs::write(folder.path("deep.json"), "[".repeat(100_000)).unwrap();
    let few = r#"{"shape": [2, 2], "format": "d", "values": [1]}"#;
    fs::write(folder.path("few.json"), few).unwrap();
    for (name, message) in [
        ("no.json", "could not be read"),
        (".", "could not be read"),
        ("broken.json", "JSON was expected"),
        ("latin.json", "must be UTF-8"),
        ("deep.json", "JSON was expected"),
        (
            "few.json",
            "one number for each element of the shape (2, 2), got 1",
        ),
    ] {
        let output = folder.run(&["distarray", "check", name]);
        assert_eq!(output.status.code(), Some(2), "{name} {output:?}");
        assert!(output.stdout.is_empty(), "{name}");
        let stderr = text(&output.stderr);
        assert!(
            stderr.contains(message) && stderr.contains(&format!("(file: {name})")),
            "{stderr}"
        );
    }
    let output = folder.run(&["distarray", "check"]);
    assert_eq!(output.status.code(), Some(2));
    let output = folder.run(&["distarray"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn texts_of_others_cannot_steer_the_terminal() {
    let folder = Folder::new();
    fs::write(folder.path("a.json"), r#"{"\u001b[2J": 1}"#).unwrap();
    let output = folder.run(&["distarray", "check", "a.json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!output.stdout.contains(&0x1b), "{output:?}");
    assert!(text(&output.stdout).contains("[2J"), "{output:?}");
}

fn golden(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = root.join(format!("data/protocol/{name}.json"));
    path.to_str().unwrap().to_owned()
}
