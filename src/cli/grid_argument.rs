//! `NAME=PATH`: a grid and the name under which SQL finds it.
//!
//! Comes in: one argument. Goes out: the name as SQL sees it, and where to load from. Never here: loading.

/// A name and where its grid comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GridArgument {
    /// Folded to lower case unless it was quoted, as SQL does with table names.
    pub(super) name: String,
    /// File, folder, pattern or URL.
    pub(super) path: String,
}

/// Reads `NAME=PATH` or `"NAME"=PATH`; two quotes within quotes stand for one.
pub(super) fn parse(text: &str) -> Result<GridArgument, String> {
    let (name, path) = if text.starts_with('"') {
        quoted(text)?
    } else {
        let pair = text.split_once('=');
        let (name, path) = pair.ok_or("a grid must be given as NAME=PATH, the `=` is missing")?;
        if !is_identifier(name) {
            return Err(format!(
                "a table name must have letters, digits and `_` only and not start with a digit, got {name:?}; quote any other name: '\"{name}\"={path}'"
            ));
        }
        (name.to_lowercase(), path)
    };
    if path.is_empty() {
        return Err("a grid must be given as NAME=PATH, the path is missing".to_owned());
    }
    Ok(GridArgument {
        name,
        path: path.to_owned(),
    })
}

fn quoted(text: &str) -> Result<(String, &str), String> {
    let mut name = String::new();
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((place, character)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        match (character, next) {
            ('"', Some('"')) => {
                characters.next();
                name.push('"');
            }
            ('"', Some('=')) if !name.is_empty() => {
                return Ok((name, text.get(place + 2..).unwrap_or_default()));
            }
            ('"', _) => break,
            (other, _) => name.push(other),
        }
    }
    Err(format!(
        "a quoted table name must read like '\"My table\"=PATH', got {text:?}"
    ))
}

fn is_identifier(name: &str) -> bool {
    let starts = name.starts_with(|first: char| first.is_alphabetic() || first == '_');
    starts
        && name
            .chars()
            .all(|character| character.is_alphanumeric() || character == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fold_as_in_sql_and_keep_their_case_in_quotes() {
        let cases = [
            ("Flights=a.parquet", "flights", "a.parquet"),
            ("t=s3://b/k?x=1", "t", "s3://b/k?x=1"),
            ("\"My = table\"=a", "My = table", "a"),
            ("\"a\"\"b\"=a", "a\"b", "a"),
        ];
        for (text, name, path) in cases {
            let found = parse(text).unwrap();
            assert_eq!(
                (found.name.as_str(), found.path.as_str()),
                (name, path),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_pair_is_refused() {
        for text in [
            "",
            "a.parquet",
            "=a",
            "t=",
            "1t=a",
            "my-t=a",
            "\"t=a",
            "\"\"=a",
            "\"t\"x=a",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
