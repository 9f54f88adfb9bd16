//! What the word before the cursor may become.
//!
//! Comes in: a line up to the cursor, the names that there are. Goes out: words that begin like it. Never here: keys.

use super::super::engine::Words;

/// Words of SQL that people write.
const KEYWORDS: [&str; 79] = [
    "ALL",
    "ANALYZE",
    "AND",
    "ANTI",
    "AS",
    "ASC",
    "ASOF",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "COLLATE",
    "COLUMNS",
    "COUNT",
    "CREATE",
    "CROSS",
    "DEALLOCATE",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DROP",
    "ELSE",
    "END",
    "EXCEPT",
    "EXCLUDE",
    "EXECUTE",
    "EXISTS",
    "EXPLAIN",
    "FALSE",
    "FILTER",
    "FIRST",
    "FROM",
    "FULL",
    "GLOB",
    "GROUP",
    "HAVING",
    "ILIKE",
    "IN",
    "INNER",
    "INTERSECT",
    "INTERVAL",
    "IS",
    "JOIN",
    "LAST",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "NULLS",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "PARTITION",
    "PIVOT",
    "PREPARE",
    "QUALIFY",
    "RENAME",
    "REPLACE",
    "RIGHT",
    "SELECT",
    "SEMI",
    "SHOW",
    "SUMMARIZE",
    "TABLE",
    "TABLES",
    "TABLESAMPLE",
    "THEN",
    "TRUE",
    "UNION",
    "UNPIVOT",
    "USING",
    "VALUES",
    "VIEW",
    "WHERE",
    "WITH",
];

/// The words of one moment.
pub(super) struct Completer<'a> {
    words: &'a Words,
    commands: &'a [&'a str],
}

impl<'a> Completer<'a> {
    pub(super) fn new(words: &'a Words, commands: &'a [&'a str]) -> Self {
        Self { words, commands }
    }

    /// Where the word before the end begins, and what it may become, sorted.
    pub(super) fn complete(&self, before: &str) -> (usize, Vec<String>) {
        let of_word = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '"';
        let start = before.rfind(|letter| !of_word(letter)).map_or(0, |gap| {
            gap + before
                .get(gap..)
                .and_then(|rest| rest.chars().next())
                .map_or(1, char::len_utf8)
        });
        if before.starts_with(['.', '\\']) && !before.contains(' ') {
            let found = self
                .commands
                .iter()
                .filter(|command| command.starts_with(before));
            return (0, found.map(|command| (*command).to_owned()).collect());
        }
        let word = before.get(start..).unwrap_or_default();
        if word.is_empty() {
            return (start, Vec::new());
        }
        let mut found: Vec<String> = self
            .words
            .tables
            .iter()
            .chain(&self.words.columns)
            .filter(|name| begins(name, word.trim_start_matches('"')))
            .map(|name| quoted(name))
            .collect();
        let keywords = KEYWORDS.iter().filter(|keyword| begins(keyword, word));
        let as_written = |keyword: &&str| {
            let lower = word.chars().all(|letter| !letter.is_uppercase());
            if lower {
                keyword.to_lowercase()
            } else {
                (*keyword).to_owned()
            }
        };
        found.extend(keywords.map(as_written));
        if found.is_empty() {
            found.extend(
                self.words
                    .functions
                    .iter()
                    .filter(|name| begins(name, word))
                    .cloned(),
            );
        }
        found.sort();
        found.dedup();
        (start, found)
    }
}

fn begins(name: &str, word: &str) -> bool {
    name.to_lowercase().starts_with(&word.to_lowercase())
}

/// A name as SQL finds it.
fn quoted(name: &str) -> String {
    let plain = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name
            .chars()
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
    if plain {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// What all texts begin with.
pub(super) fn common_start(texts: &[String]) -> String {
    let Some((first, rest)) = texts.split_first() else {
        return String::new();
    };
    let alike = |(place, letter): &(usize, char)| {
        rest.iter()
            .all(|text| text.chars().nth(*place) == Some(*letter))
    };
    first
        .chars()
        .enumerate()
        .take_while(alike)
        .map(|(_, letter)| letter)
        .collect()
}
