//! Wrong arguments, help, version, log, and the command as a function.

use super::{Folder, text};

#[test]
fn wrong_usage_is_exit_code_2_and_says_what_is_wrong() {
    let folder = Folder::new();
    let cases: [(&[&str], &str); 16] = [
        (&[], "Usage: partgrid"),
        (&["shw"], "unrecognized subcommand"),
        (&["show"], "PATH"),
        (&["show", "a", "--tile-rows", "0"], "0 is not in"),
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
        (
            &["sql", "SELECT 1", "--output", "a.txt"],
            "one of .csv, .json, .jsonl, .ndjson, .arrows, .arrow, .feather, .parquet, got \"a.txt\"; or say --format",
        ),
        (&["sql", "SELECT 1", "--output", "a"], "or say --format"),
        (
            &["sql", "SELECT 1", "--output", "a.xlsx"],
            "or say --format",
        ),
        (
            &["--server", "localhost:8815", "ls"],
            "must read like grpc://host:port or grpc+tls://host:port, got \"localhost:8815\"",
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
    let code = partgrid::cli::run(["", "show"].map(Into::into), &mut stdout, &mut stderr);
    assert!(
        code == 2 && text(&stderr).contains("Usage: partgrid show"),
        "{}",
        text(&stderr)
    );
}
