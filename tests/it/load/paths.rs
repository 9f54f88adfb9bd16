//! Which files a source stands for.

use super::*;

#[test]
fn a_folder_is_searched_through_in_the_order_of_paths() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("b/z.parq"), &frame(2..3), 10);
    write(&folder.path().join("a/deep/er/y.PARQUET"), &frame(1..2), 10);
    write(&folder.path().join("a/a.pq"), &frame(0..1), 10);
    fs::write(folder.path().join("notes.txt"), "no data").unwrap();
    assert_eq!(numbers_of(&load_path(folder.path()).unwrap()), [0, 1, 2]);
}

#[test]
fn names_that_begin_with_an_underscore_or_a_dot_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), &frame(0..1), 10);
    for name in [
        "_metadata",
        "_part.parquet",
        ".hidden.parquet",
        "_temporary/0/x.parquet",
    ] {
        write(&folder.path().join(name), &frame(5..6), 10);
    }
    fs::write(folder.path().join("_SUCCESS"), "").unwrap();
    assert_eq!(numbers_of(&load_path(folder.path()).unwrap()), [0]);
    let pattern = format!("{}/*", folder.path().display());
    assert_eq!(numbers_of(&load_text(&pattern).unwrap()), [0]);
    let named = folder.path().join("_part.parquet");
    assert_eq!(numbers_of(&load_path(&named).unwrap()), [5]);
}

#[test]
fn patterns_match_files_and_folders() {
    let folder = tempfile::tempdir().unwrap();
    for (number, name) in [
        "x1/a.parquet",
        "x1/b.parquet",
        "x2/a.parquet",
        "y/c/a.parquet",
    ]
    .iter()
    .enumerate()
    {
        let number = i64::try_from(number).unwrap();
        write(&folder.path().join(name), &frame(number..number + 1), 10);
    }
    let found = |pattern: &str| {
        let pattern = format!("{}/{pattern}", folder.path().display());
        numbers_of(&load_text(&pattern).unwrap())
    };
    assert_eq!(found("x?/*.parquet"), [0, 1, 2]);
    assert_eq!(found("x[2-9]/*"), [2]);
    assert_eq!(found("x*"), [0, 1, 2]);
    assert_eq!(found("**/a.parquet"), [0, 2, 3]);
    let none = load_text(&format!("{}/z*", folder.path().display()));
    refused(
        none,
        ErrorKind::NotFound,
        &["no file matches the pattern", "/z*"],
    );
    let wrong = load_text(&format!("{}/***", folder.path().display()));
    refused(wrong, ErrorKind::InvalidArgument, &["not a glob pattern"]);
}

#[test]
fn a_path_that_exists_is_no_pattern() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a[1].parquet"), &frame(0..1), 10);
    write(&folder.path().join("a1.parquet"), &frame(1..2), 10);
    assert_eq!(
        numbers_of(&load_path(&folder.path().join("a[1].parquet")).unwrap()),
        [0]
    );
    fs::remove_file(folder.path().join("a[1].parquet")).unwrap();
    assert_eq!(
        numbers_of(&load_path(&folder.path().join("a[1].parquet")).unwrap()),
        [1]
    );
}

#[test]
fn several_sources_are_sorted_and_each_file_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..3 {
        write(
            &folder.path().join(format!("{number}.parquet")),
            &frame(number..number + 1),
            10,
        );
    }
    let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let sources = [
        name("2.parquet"),
        name("0.parquet"),
        name("./2.parquet"),
        name("[01].parquet"),
    ];
    let grid = block_on(load(&sources, &LoadOptions::default())).unwrap();
    assert_eq!(numbers_of(&grid), [0, 1, 2]);
}

#[test]
fn odd_names_are_read() {
    for name in [
        "with space",
        "100%",
        "%41",
        "größe 数",
        "a#1",
        "#",
        "a?b*c",
        "q'\"",
        "k=v=w",
        "s3:",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name).join(format!("{name}.parquet"));
        write(&path, &frame(0..2), 10);
        assert_eq!(
            numbers_of(&load_path(folder.path()).unwrap()),
            [0, 1],
            "{name}"
        );
        assert_eq!(numbers_of(&load_path(&path).unwrap()), [0, 1], "{name}");
    }
}

#[test]
fn file_urls_are_decoded() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a b%.parquet"), &frame(0..2), 10);
    let path = folder.path().display();
    for url in [
        format!("file://{path}/a%20b%25.parquet"),
        format!("file://localhost{path}"),
        format!("FILE://{path}/*.parquet"),
    ] {
        assert_eq!(numbers_of(&load_text(&url).unwrap()), [0, 1], "{url}");
    }
    let elsewhere = load_text("file://host/a.parquet");
    refused(
        elsewhere,
        ErrorKind::InvalidArgument,
        &["a path of this host"],
    );
}

#[test]
fn relative_paths_start_at_the_current_folder() {
    let grid = load_text("data/airlines.parquet").unwrap();
    assert_eq!(grid.num_rows(), 16);
    assert_eq!(
        load_text("./data/../data/airlines.parquet")
            .unwrap()
            .num_rows(),
        16
    );
}

#[test]
fn what_does_not_exist_is_not_found() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("a.parquet");
    refused(
        load_path(&missing),
        ErrorKind::NotFound,
        &["no such file or folder", "a.parquet"],
    );
    refused(
        load_text("no/such/place"),
        ErrorKind::NotFound,
        &["relative paths start at"],
    );
    refused(
        load_text("no/such/*.parquet"),
        ErrorKind::NotFound,
        &["no file matches the pattern", "relative paths start at"],
    );
    let below = load_text("Cargo.toml/a.parquet");
    refused(below, ErrorKind::NotFound, &["Cargo.toml/a.parquet"]);
}

#[test]
fn a_folder_without_parquet_is_not_found() {
    let folder = tempfile::tempdir().unwrap();
    let looked_for = "*.parquet, *.parq, *.pq";
    refused(load_path(folder.path()), ErrorKind::NotFound, &[looked_for]);
    fs::write(folder.path().join("_SUCCESS"), "").unwrap();
    let name = folder.path().to_str().unwrap();
    refused(
        load_path(folder.path()),
        ErrorKind::NotFound,
        &[looked_for, name],
    );
}

#[test]
fn other_schemes_are_not_supported() {
    for (url, text) in [
        ("ftp://host/a.parquet", "`ftp`"),
        ("https://host/a.parquet?token=1", "a query"),
    ] {
        refused(load_text(url), ErrorKind::Unsupported, &[text, url]);
    }
    refused(
        load_text("s3:///a.parquet"),
        ErrorKind::InvalidArgument,
        &["the name of a bucket"],
    );
    refused(
        load_text(""),
        ErrorKind::InvalidArgument,
        &["must not be empty"],
    );
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_broken_ones_are_errors() {
    use std::os::unix::fs::symlink;
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(&other.path().join("far/a.parquet"), &frame(0..1), 10);
    symlink(other.path().join("far"), folder.path().join("near")).unwrap();
    assert_eq!(numbers_of(&load_path(folder.path()).unwrap()), [0]);
    symlink("nowhere", folder.path().join("b.parquet")).unwrap();
    refused(
        load_path(folder.path()),
        ErrorKind::NotFound,
        &["b.parquet"],
    );
    fs::remove_file(folder.path().join("b.parquet")).unwrap();
    symlink(folder.path(), folder.path().join("round")).unwrap();
    refused(
        load_path(folder.path()),
        ErrorKind::InvalidData,
        &["a link to a folder above", "round"],
    );
}

#[cfg(unix)]
#[test]
fn a_locked_folder_or_file_is_permission_denied() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (file, locked) = (
        folder.path().join("a.parquet"),
        folder.path().join("locked"),
    );
    write(&file, &frame(0..1), 10);
    write(&locked.join("b.parquet"), &frame(1..2), 10);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    // The superuser may read everything.
    if File::open(&file).is_err() {
        refused(
            load_path(&file),
            ErrorKind::PermissionDenied,
            &["a.parquet"],
        );
        refused(
            load_path(folder.path()),
            ErrorKind::PermissionDenied,
            &["locked"],
        );
    }
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).unwrap();
}
