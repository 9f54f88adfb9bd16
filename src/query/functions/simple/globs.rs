//! Patterns as the shell has them, over whole texts: `*`, `?`, `[a-c]`, `[!a]`, and `\` before a letter that means itself.
//!
//! Comes in: texts and patterns. Goes out: whether the one is as the other says. Never here: names of files, whose folders such a pattern does not reach past (`load/source/pattern.rs`).

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use datafusion::common::internal_err;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_STRING;

use super::{Function, Takes, truth};

pub(super) const ALL: &[Function] = &[Function {
    name: "glob_matches",
    aliases: &[],
    section: DOC_SECTION_STRING,
    about: "Whether a text is as a pattern says in which '*' is any letters, '?' one, '[a-c]' one of some and '[!a]' one of all others; `text GLOB pattern` calls it.",
    takes: &[("text", Takes::Text), ("pattern", Takes::Text)],
    least: 2,
    repeats: false,
    returned: truth,
    made: |arrays| {
        let [texts, patterns] = arrays else {
            return internal_err!("glob_matches of {} columns", arrays.len());
        };
        Ok(Arc::new(matches(texts, patterns)))
    },
}];

fn matches(texts: &ArrayRef, patterns: &ArrayRef) -> BooleanArray {
    let rows = texts.as_string_view().iter().zip(patterns.as_string_view());
    let mut last: Option<(&str, Vec<Part>)> = None;
    let rows = rows.map(|(text, pattern)| {
        let (text, pattern) = (text?, pattern?);
        let parts = match last.take() {
            Some((known, parts)) if known == pattern => parts,
            _ => parts_of(pattern),
        };
        let is_so = is_as(text, &parts);
        last = Some((pattern, parts));
        Some(is_so)
    });
    rows.collect()
}

/// A part of a pattern.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Any,
    One,
    Letter(char),
    /// Whether it is one of these, or of all others.
    Among(bool, Vec<(char, char)>),
    /// What begins and does not end.
    Nothing,
}

fn parts_of(pattern: &str) -> Vec<Part> {
    let mut letters = pattern.chars().peekable();
    let mut parts = Vec::new();
    while let Some(letter) = letters.next() {
        let part = match letter {
            '*' if parts.last() == Some(&Part::Any) => continue,
            '*' => Part::Any,
            '?' => Part::One,
            '\\' => letters.next().map_or(Part::Nothing, Part::Letter),
            '[' => {
                let is_of_others = letters.next_if_eq(&'!').is_some();
                let mut ranges: Vec<(char, char)> = Vec::new();
                loop {
                    let begin = match letters.next() {
                        Some(']') if !ranges.is_empty() => {
                            break Part::Among(!is_of_others, ranges);
                        }
                        Some(letter) => letter,
                        None => break Part::Nothing,
                    };
                    let mut after = letters.clone();
                    let end = match (after.next(), after.next()) {
                        (Some('-'), Some(end)) if end != ']' => {
                            letters = after;
                            end
                        }
                        _ => begin,
                    };
                    ranges.push((begin, end));
                }
            }
            letter => Part::Letter(letter),
        };
        parts.push(part);
    }
    parts
}

/// Whether a text is as the parts say. What was tried for the last `*` is tried one letter further on, so that it takes no more than the product of both lengths.
fn is_as(text: &str, parts: &[Part]) -> bool {
    let (mut rest, mut place) = (text.chars(), 0);
    let mut any: Option<(std::str::Chars<'_>, usize)> = None;
    loop {
        match parts.get(place) {
            Some(Part::Any) => {
                place += 1;
                any = Some((rest.clone(), place));
                continue;
            }
            None if rest.as_str().is_empty() => return true,
            Some(part) => {
                let mut next = rest.clone();
                if next.next().is_some_and(|letter| is_one(letter, part)) {
                    (rest, place) = (next, place + 1);
                    continue;
                }
            }
            None => {}
        }
        let Some((from, behind)) = &mut any else {
            return false;
        };
        if from.next().is_none() {
            return false;
        }
        (rest, place) = (from.clone(), *behind);
    }
}

fn is_one(letter: char, part: &Part) -> bool {
    match part {
        Part::One => true,
        Part::Letter(wanted) => letter == *wanted,
        Part::Among(wanted, ranges) => {
            let mut ranges = ranges.iter();
            ranges.any(|(begin, end)| (*begin..=*end).contains(&letter)) == *wanted
        }
        Part::Any | Part::Nothing => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_the_shell() {
        let cases = [
            ("abc", "a*", true),
            ("abc", "A*", false),
            ("abc", "?b?", true),
            ("abc", "[a-c]*", true),
            ("abc", "[!a]*", false),
            ("a*c", "a\\*c", true),
            ("abc", "a\\*c", false),
            ("a]c", "a[]]c", true),
            ("", "*", true),
            ("abc", "", false),
            ("a-c", "a[-x]c", true),
            ("a^c", "a[^b]c", true),
            ("abc", "[", false),
            ("é", "?", true),
            ("-", "[a-]", true),
            ("x", "[a-]", false),
            ("a/b", "a*", true),
            ("aab", "*ab", true),
            ("aXbXc", "*X*X?", true),
            ("aXbX", "*X*X?", false),
            ("abcabd", "*ab[!c]", true),
        ];
        for (text, pattern, expected) in cases {
            assert_eq!(
                is_as(text, &parts_of(pattern)),
                expected,
                "{text} {pattern}"
            );
        }
        let long = "a".repeat(5_000);
        assert!(!is_as(
            &long,
            &parts_of(&"a*".repeat(2_000).replace("a*a*a*", "a*b*"))
        ));
    }
}
