//! Parts of paths of files.
//!
//! Comes in: texts with slashes, of either kind where nothing else is said. Goes out: the name of the file, the folders before it. Never here: files.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListBuilder, StringViewArray, StringViewBuilder};
use datafusion::error::Result;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_STRING;

use super::{Function, Takes, text, texts, wrong};

pub(super) const ALL: &[Function] = &[
    Function {
        name: "parse_filename",
        aliases: &[],
        section: DOC_SECTION_STRING,
        about: "What lies behind the last separator of a path, without the extension where that is said. The separator is 'both_slash', 'forward_slash', 'backslash' or 'system'.",
        takes: &[
            ("path", Takes::Text),
            ("trim_extension", Takes::Truth),
            ("separator", Takes::Text),
        ],
        least: 1,
        repeats: false,
        returned: text,
        made: |arrays| {
            let trims = arrays.get(1).map(|array| array.as_boolean());
            parts(arrays, 2, |path, separators, row| {
                let trims = match trims {
                    Some(trims) if trims.is_null(row) => return None,
                    Some(trims) => trims.value(row),
                    None => false,
                };
                Some(file_name(path, separators, trims))
            })
        },
    },
    Function {
        name: "parse_dirname",
        aliases: &[],
        section: DOC_SECTION_STRING,
        about: "The first folder of a path: what lies before the first separator, or that where the path begins with one.",
        takes: &[("path", Takes::Text), ("separator", Takes::Text)],
        least: 1,
        repeats: false,
        returned: text,
        made: |arrays| {
            parts(arrays, 1, |path, separators, _| {
                Some(first_folder(path, separators))
            })
        },
    },
    Function {
        name: "parse_dirpath",
        aliases: &[],
        section: DOC_SECTION_STRING,
        about: "The folders of a path: what lies before the last separator.",
        takes: &[("path", Takes::Text), ("separator", Takes::Text)],
        least: 1,
        repeats: false,
        returned: text,
        made: |arrays| {
            parts(arrays, 1, |path, separators, _| {
                Some(folders(path, separators))
            })
        },
    },
    Function {
        name: "parse_path",
        aliases: &[],
        section: DOC_SECTION_STRING,
        about: "The folders of a path and the file in a list; the first is the separator where the path begins with one.",
        takes: &[("path", Takes::Text), ("separator", Takes::Text)],
        least: 1,
        repeats: false,
        returned: texts,
        made: all_parts,
    },
];

/// What parts a path into folders.
fn separators(name: &str) -> Result<&'static [char]> {
    match name {
        "both_slash" => Ok(&['/', '\\']),
        "forward_slash" => Ok(&['/']),
        "backslash" => Ok(&['\\']),
        "system" => Ok(&[std::path::MAIN_SEPARATOR]),
        other => Err(wrong(format!(
            "the separator must be 'both_slash', 'forward_slash', 'backslash' or 'system', got '{other}'"
        ))
        .into()),
    }
}

fn file_name<'a>(path: &'a str, separators: &[char], trims: bool) -> &'a str {
    let name = path.rsplit(separators).next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some((stem, _)) if trims => stem,
        _ => name,
    }
}

fn folders<'a>(path: &'a str, separators: &[char]) -> &'a str {
    match path.rfind(separators) {
        // The path is this separator.
        Some(0) if path.len() == 1 => path,
        Some(end) => &path[..end],
        None => "",
    }
}

fn first_folder<'a>(path: &'a str, separators: &[char]) -> &'a str {
    match path.find(separators) {
        // Separators are of one byte.
        Some(0) => &path[..1],
        Some(end) => &path[..end],
        None => "",
    }
}

/// The paths with the separators of each row; `None` where one of both is null.
fn rows<'a>(
    arrays: &'a [ArrayRef],
    place: usize,
) -> impl Iterator<Item = Result<Option<(&'a str, &'static [char])>>> {
    let paths = arrays.first().map(|array| array.as_string_view());
    let names = arrays.get(place).map(|array| array.as_string_view());
    let count = paths.map_or(0, StringViewArray::len);
    (0..count).map(move |row| {
        let at = |texts: &'a StringViewArray| texts.is_valid(row).then(|| texts.value(row));
        let name = names.map_or(Some("both_slash"), at);
        match paths.and_then(at).zip(name) {
            Some((path, name)) => Ok(Some((path, separators(name)?))),
            None => Ok(None),
        }
    })
}

fn parts(
    arrays: &[ArrayRef],
    place: usize,
    part: impl for<'a> Fn(&'a str, &[char], usize) -> Option<&'a str>,
) -> Result<ArrayRef> {
    let made: StringViewArray = rows(arrays, place)
        .enumerate()
        .map(|(row, both)| Ok(both?.and_then(|(path, separators)| part(path, separators, row))))
        .collect::<Result<_>>()?;
    Ok(Arc::new(made))
}

fn all_parts(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for both in rows(arrays, 1) {
        let Some((path, separators)) = both? else {
            lists.append_null();
            continue;
        };
        if path.starts_with(separators) {
            lists.values().append_value(&path[..1]);
        }
        for part in path.split(separators).filter(|part| !part.is_empty()) {
            lists.values().append_value(part);
        }
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_between_separators() {
        let both = separators("both_slash").unwrap();
        for (path, name, stem, folder) in [
            ("path/to/file.csv", "file.csv", "file", "path"),
            ("/a/b", "b", "b", "/"),
            ("a\\b/c.tar.gz", "c.tar.gz", "c.tar", "a"),
            (".bashrc", ".bashrc", "", ""),
            ("a/", "", "", "a"),
            ("", "", "", ""),
        ] {
            assert_eq!(file_name(path, both, false), name);
            assert_eq!(file_name(path, both, true), stem);
            assert_eq!(first_folder(path, both), folder);
        }
        assert!(separators("x").is_err());
    }
}
