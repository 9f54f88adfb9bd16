//! Keeps the order of the source: headers, import direction, who may name which library, where `unsafe` may stand, file sizes and names.
//!
//! Reads the source as text; comments and string literals do not count. Never here: anything that a compiler lint keeps.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    missing_docs,
    reason = "a test may fail by panicking"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The module folders of the core, and what each may use besides itself (STYLE: imports go down only).
const DIRECTION: [(&str, &[&str]); 19] = [
    ("error", &[]),
    ("memory", &["error"]),
    ("still", &[]),
    ("quiet", &[]),
    ("location", &["error"]),
    ("grid", &["error", "location"]),
    ("storage", &["error", "memory", "location", "grid"]),
    ("share", &["error", "quiet", "location", "grid"]),
    ("device", &["error", "memory", "location", "grid"]),
    ("partitioned", &["error", "location", "grid"]),
    ("distarray", &["error", "location", "grid"]),
    ("load", BELOW_LOAD),
    ("query", BELOW_LOAD),
    ("flight", &["error", "memory", "quiet", "location", "grid"]),
    ("catalog", BELOW_CATALOG),
    ("client", BELOW_SERVE),
    ("cluster", BELOW_CLUSTER),
    ("serve", BELOW_SERVER),
    ("cli", BELOW_CLI),
];
const BELOW_LOAD: &[&str] = &[
    "error",
    "memory",
    "still",
    "quiet",
    "location",
    "grid",
    "storage",
    "share",
    "device",
    "partitioned",
    "distarray",
];
const BELOW_CATALOG: &[&str] = &[
    "error", "memory", "still", "location", "grid", "share", "load",
];
const BELOW_SERVE: &[&str] = &[
    "error",
    "memory",
    "still",
    "location",
    "grid",
    "storage",
    "share",
    "device",
    "partitioned",
    "distarray",
    "load",
    "query",
    "flight",
    "catalog",
];
const BELOW_SERVER: &[&str] = &[
    "error",
    "memory",
    "still",
    "location",
    "grid",
    "storage",
    "share",
    "device",
    "partitioned",
    "distarray",
    "load",
    "query",
    "flight",
    "catalog",
    "cluster",
];
const BELOW_CLUSTER: &[&str] = &[
    "error", "memory", "quiet", "location", "grid", "share", "load", "query", "flight", "catalog",
    "client",
];
const BELOW_CLI: &[&str] = &[
    "error",
    "memory",
    "location",
    "grid",
    "storage",
    "share",
    "device",
    "partitioned",
    "distarray",
    "load",
    "query",
    "flight",
    "catalog",
    "client",
    "cluster",
    "serve",
];

/// Libraries that only some folders may name.
const LIBRARIES: [(&str, &[&str]); 7] = [
    ("parquet", &["load"]),
    ("object_store", &["load", "catalog"]),
    ("datafusion", &["query", "cluster"]),
    ("pyo3", &["python"]),
    ("arrow_flight", &["flight", "client", "serve"]),
    ("tonic", &["flight", "client", "cluster", "serve"]),
    ("axum", &["serve"]),
];

/// The folders that may hold `unsafe`; tests may too, under their own `expect`.
const UNSAFE: [&str; 5] = ["device", "share", "storage", "python", "tests"];

const MAX_LINES: usize = 500;

#[test]
fn the_source_is_in_order() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut faults = Vec::new();
    let mut num_files = 0;
    for folder in ["src", "python/src", "tests"] {
        for path in rust_files(&root.join(folder)) {
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            faults.extend(check_file(name, &text));
            num_files += 1;
        }
    }
    assert!(num_files > 20, "only {num_files} files were found");
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn a_forbidden_import_is_found_however_it_is_written() {
    for text in [
        "use crate::query::Session;",
        "use crate::{error::Error, query};",
        "use crate::{\n    error::Error,\n    query::{Session, table},\n};",
        "fn f() { crate::query::run() }",
        "pub use crate :: query ;",
        "fn f(x: crate::query::Session) {}",
        "pub(in crate::query) fn f() {}",
        "use super::super::query::Session;",
    ] {
        let faults = check_file("src/grid/made_up.rs", &format!("//! Doc.\n{text}"));
        assert_eq!(
            faults,
            ["src/grid/made_up.rs: `grid` may not use `query`"],
            "{text}"
        );
    }
}

#[test]
fn siblings_may_not_use_each_other_and_nobody_uses_upwards() {
    for (user, used) in [
        ("share", "device"),
        ("partitioned", "distarray"),
        ("load", "query"),
        ("query", "load"),
        ("error", "location"),
        ("location", "grid"),
        ("device", "cli"),
        ("query", "cli"),
        ("storage", "share"),
        ("distarray", "load"),
    ] {
        let faults = check_file(
            &format!("src/{user}/a.rs"),
            &format!("//! Doc.\nuse crate::{used}::X;"),
        );
        assert_eq!(
            faults,
            [format!("src/{user}/a.rs: `{user}` may not use `{used}`")]
        );
    }
}

#[test]
fn a_folder_without_a_row_in_the_table_is_a_fault() {
    let faults = check_file("src/novel/mod.rs", "//! Doc.\nuse crate::error::Error;");
    assert_eq!(
        faults,
        ["src/novel/mod.rs: `novel` has no row in the table of tests/tidy.rs"]
    );
}

#[test]
fn allowed_imports_comments_and_texts_are_no_faults() {
    let text = "//! Doc.\n// use crate::query::Session;\n/* crate::load */ use crate::{error::{Error, Result}, grid::Tile};\n\
        const A: &str = \"crate::query parquet \\\" unsafe\";\nconst B: char = '\"';\nuse crate::share::handle::Handle;\nfn f<'a>(x: &'a str) {}\n";
    assert!(
        check_file("src/share/a.rs", text).is_empty(),
        "{:?}",
        check_file("src/share/a.rs", text)
    );
    assert!(check_file("src/lib.rs", "//! Doc.\npub use crate::query::Session;").is_empty());
}

#[test]
fn libraries_are_named_only_where_they_belong() {
    for (path, library) in [
        ("src/grid/a.rs", "parquet"),
        ("src/query/a.rs", "object_store"),
        ("src/load/a.rs", "datafusion"),
        ("src/query/a.rs", "pyo3"),
        ("src/cli/a.rs", "datafusion"),
        ("python/src/a.rs", "parquet"),
    ] {
        let faults = check_file(path, &format!("//! Doc.\nuse {library}::x::Y;"));
        assert_eq!(
            faults,
            [format!(
                "{path}: only {} may name `{library}`",
                owners(library)
            )]
        );
    }
    for text in ["use pyo3::prelude;", "use pyo3_arrow::PyTable;"] {
        assert!(check_file("python/src/a.rs", &format!("//! Doc.\n{text}")).is_empty());
    }
    assert!(
        check_file(
            "src/load/a.rs",
            "//! Doc.\nuse parquet::file; use object_store::path;"
        )
        .is_empty()
    );
    assert!(
        check_file(
            "src/grid/a.rs",
            "//! Doc.\nfn parquet() {} mod x { use super::datafusion_x; }"
        )
        .is_empty()
    );
    assert_eq!(
        check_file("src/grid/a.rs", "//! Doc.\nuse datafusion_common::X;").len(),
        1
    );
}

#[test]
fn unsafe_stands_only_where_it_may() {
    let text = "//! Doc.\nfn f() { unsafe { g() } }";
    assert_eq!(
        check_file("src/grid/a.rs", text),
        ["src/grid/a.rs: `unsafe` may stand only in device, share, storage, python, tests"]
    );
    for path in [
        "src/device/a.rs",
        "src/share/a.rs",
        "src/storage/a.rs",
        "python/src/a.rs",
        "tests/it/a.rs",
    ] {
        assert!(check_file(path, text).is_empty());
    }
    assert!(check_file("src/grid/a.rs", "//! Doc.\n#![expect(unsafe_code)]").is_empty());
}

#[test]
fn headers_lengths_and_names_are_checked() {
    assert_eq!(
        check_file("src/grid/a.rs", "use std::fmt;"),
        ["src/grid/a.rs: must start with `//!`"]
    );
    let long = format!("//! Doc.\n{}", "\n".repeat(MAX_LINES));
    assert_eq!(
        check_file("src/grid/a.rs", &long),
        ["src/grid/a.rs: 501 lines, at most 500"]
    );
    for name in ["utils", "common", "helpers", "scan_v2"] {
        let faults = check_file(&format!("src/grid/{name}.rs"), "//! Doc.");
        assert_eq!(
            faults,
            [format!(
                "src/grid/{name}.rs: a name must say what is inside"
            )]
        );
    }
    assert_eq!(check_file("src/grid/utils/mod.rs", "//! Doc.").len(), 1);
}

/// Everything that is wrong with one file; `path` is relative to the repository.
fn check_file(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if !text.starts_with("//!") {
        faults.push("must start with `//!`".to_owned());
    }
    let num_lines = text.lines().count();
    if num_lines > MAX_LINES {
        faults.push(format!("{num_lines} lines, at most {MAX_LINES}"));
    }
    let vague =
        |part: &str| matches!(part, "utils" | "common" | "helpers" | "v2") || part.ends_with("_v2");
    if path.trim_end_matches(".rs").split('/').any(vague) {
        faults.push("a name must say what is inside".to_owned());
    }
    let folder = folder_of(path);
    let tokens = tokens_of(text);
    faults.extend(check_imports(folder, &tokens));
    faults.extend(check_libraries(folder, &tokens));
    if !UNSAFE.contains(&folder) && tokens.iter().any(|token| token == "unsafe") {
        faults.push(format!("`unsafe` may stand only in {}", UNSAFE.join(", ")));
    }
    faults
        .into_iter()
        .map(|fault| format!("{path}: {fault}"))
        .collect()
}

fn check_imports(folder: &str, tokens: &[String]) -> Vec<String> {
    if matches!(folder, "lib" | "main" | "python" | "tests") {
        return Vec::new();
    }
    let Some((_, allowed)) = DIRECTION.iter().find(|(name, _)| *name == folder) else {
        return vec![format!(
            "`{folder}` has no row in the table of tests/tidy.rs"
        )];
    };
    let known = |name: &str| DIRECTION.iter().any(|(module, _)| *module == name);
    let used = used_modules(tokens);
    let wrong = used
        .iter()
        .filter(|name| known(name) && *name != folder && !allowed.contains(&name.as_str()));
    wrong
        .map(|name| format!("`{folder}` may not use `{name}`"))
        .collect()
}

/// The first path segment after each `crate::` and `super::`, also of each branch of `crate::{...}`.
fn used_modules(tokens: &[String]) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for start in 0..tokens.len() {
        let climbs = matches!(tokens[start].as_str(), "crate" | "super");
        if !climbs || tokens.get(start + 1).is_none_or(|next| next != "::") {
            continue;
        }
        let Some(next) = tokens.get(start + 2) else {
            continue;
        };
        if next != "{" {
            used.insert(next.clone());
            continue;
        }
        let mut depth = 0;
        for (place, token) in tokens.iter().enumerate().skip(start + 2) {
            match token.as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
            let begins_branch = matches!(tokens[place - 1].as_str(), "{" | ",");
            if depth == 1 && begins_branch {
                used.insert(token.clone());
            }
        }
    }
    used
}

/// A library is named by a path that begins with its crate name or that of a crate of its family (`datafusion_common`).
fn check_libraries(folder: &str, tokens: &[String]) -> Vec<String> {
    if folder == "tests" {
        return Vec::new();
    }
    let named = |library: &str| {
        let family = format!("{library}_");
        tokens.windows(2).enumerate().any(|(place, pair)| {
            let begins = place == 0 || tokens[place - 1] != "::";
            begins && (pair[0] == library || pair[0].starts_with(&family)) && pair[1] == "::"
        })
    };
    let wrong = LIBRARIES
        .iter()
        .filter(|(library, owners)| !owners.contains(&folder) && named(library));
    wrong
        .map(|(library, _)| format!("only {} may name `{library}`", owners(library)))
        .collect()
}

fn owners(library: &str) -> String {
    let (_, owners) = LIBRARIES.iter().find(|(name, _)| *name == library).unwrap();
    owners.join(", ")
}

/// `src/grid/axis.rs` -> `grid`, `src/error.rs` -> `error`, everything of the extension -> `python`, of the tests -> `tests`.
fn folder_of(path: &str) -> &str {
    let mut parts = path.split('/');
    match parts.next() {
        Some("src") => parts.next().unwrap_or("").trim_end_matches(".rs"),
        Some(first) => first,
        None => "",
    }
}

/// Words, `::` and single signs, without comments and without what stands in quotes.
fn tokens_of(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => text_length(rest),
            '\'' => quote_length(rest),
            _ if first.is_alphanumeric() || first == '_' => {
                let end = rest.find(|sign: char| !(sign.is_alphanumeric() || sign == '_'));
                let end = end.unwrap_or(rest.len());
                match raw_text_length(&rest[..end], &rest[end..]) {
                    Some(raw) => end + raw,
                    None => {
                        tokens.push(rest[..end].to_owned());
                        end
                    }
                }
            }
            _ if rest.starts_with("::") => {
                tokens.push("::".to_owned());
                2
            }
            _ => {
                if !first.is_whitespace() {
                    tokens.push(first.to_string());
                }
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    tokens
}

/// The length of a text literal from its opening quote on.
fn text_length(rest: &str) -> usize {
    let mut escaped = false;
    for (place, sign) in rest.char_indices().skip(1) {
        match sign {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return place + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of a raw text literal after its prefix `r` or `br`: up to the quote with as many hashes as at the start.
fn raw_text_length(prefix: &str, rest: &str) -> Option<usize> {
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    if !matches!(prefix, "r" | "br" | "cr") || !rest[hashes..].starts_with('"') {
        return None;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let body = &rest[hashes + 1..];
    Some(
        body.find(&close)
            .map_or(rest.len(), |end| hashes + 1 + end + close.len()),
    )
}

/// The length of a character literal, or 1 for the quote of a lifetime.
fn quote_length(rest: &str) -> usize {
    let mut signs = rest.char_indices().skip(1);
    match (signs.next(), signs.next()) {
        (Some((_, '\\')), Some(_)) => rest[3..].find('\'').map_or(rest.len(), |end| 3 + end + 1),
        (Some(_), Some((close, '\''))) => close + 1,
        _ => 1,
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
