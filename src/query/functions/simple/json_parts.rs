//! Types, shapes and other spellings of texts of JSON.
//!
//! Comes in: texts of JSON; keys and paths as of `->`. Goes out: names of types and texts as DuckDB has them. Never here: what lies at a path as it is (`functions/json.rs`), rows of what a text holds (`json_rows.rs`).

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringViewArray};
use datafusion::error::Result;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::PrettyFormatter;

use super::json_texts::{SECTION, only};
use super::json_values::Json;
use super::{Function, Takes, text, wrong};

pub(super) const ALL: &[Function] = &[
    Function {
        name: "json_type",
        aliases: &[],
        section: SECTION,
        about: "The type of a text of JSON, or of what it has at a key or a path: OBJECT, ARRAY, VARCHAR, UBIGINT, BIGINT, DOUBLE, BOOLEAN or NULL.",
        takes: &[("json", Takes::Text), ("path", Takes::Text)],
        least: 1,
        repeats: false,
        returned: text,
        made: |arrays| of_values(arrays, |json| Ok(Some(json.type_name().to_owned()))),
    },
    Function {
        name: "json_value",
        aliases: &[],
        section: SECTION,
        about: "The text of JSON at a key or a path, but null where there is null, a list or an object.",
        takes: &[("json", Takes::Text), ("path", Takes::Text)],
        least: 2,
        repeats: false,
        returned: text,
        made: |arrays| {
            of_values(arrays, |json| match json {
                Json::Null | Json::List(_) | Json::Object(_) => Ok(None),
                value => value.text().map(Some),
            })
        },
    },
    Function {
        name: "json_structure",
        aliases: &[],
        section: SECTION,
        about: "The types of a text of JSON as a text of JSON: those of all elements of a list as one, which is JSON where they differ.",
        takes: &[("json", Takes::Text), ("path", Takes::Text)],
        least: 1,
        repeats: false,
        returned: text,
        made: |arrays| of_values(arrays, |json| Kind::of(json).named().text().map(Some)),
    },
    Function {
        name: "json_merge_patch",
        aliases: &[],
        section: SECTION,
        about: "A text of JSON changed by others in turn, by RFC 7396: what is null there is left out; null where the last is.",
        takes: &[("json", Takes::Text), ("patch", Takes::Text)],
        least: 2,
        repeats: true,
        returned: text,
        made: merge_patch,
    },
];

/// Its texts are longer.
pub(super) const PRETTY: &Function = &Function {
    name: "json_pretty",
    aliases: &[],
    section: SECTION,
    about: "A text of JSON with each value on a line of its own.",
    takes: &[("json", Takes::Text)],
    least: 1,
    repeats: false,
    returned: text,
    made: |arrays| of_values(arrays, |json| pretty(json).map(Some)),
};

/// What is made of a value of JSON in each row, or of what lies at a path in it.
fn of_values(
    arrays: &[ArrayRef],
    made: impl Fn(&Json) -> Result<Option<String>>,
) -> Result<ArrayRef> {
    let (texts, paths) = match arrays {
        [texts, paths] => (texts.as_string_view(), Some(paths.as_string_view())),
        _ => (only(arrays)?.as_string_view(), None),
    };
    let one = |row: usize| {
        let path = match paths {
            None => "$",
            Some(paths) if paths.is_valid(row) => paths.value(row),
            Some(_) => return Ok(None),
        };
        if texts.is_null(row) {
            return Ok(None);
        }
        let json = Json::read(texts.value(row))?;
        match json.at(path)? {
            Some(found) => made(found),
            None => Ok(None),
        }
    };
    let made: StringViewArray = (0..texts.len()).map(one).collect::<Result<_>>()?;
    Ok(Arc::new(made))
}

fn pretty(json: &Json) -> Result<String> {
    let mut out = Vec::new();
    let mut serializer =
        Serializer::with_formatter(&mut out, PrettyFormatter::with_indent(b"    "));
    json.serialize(&mut serializer)
        .map_err(|error| wrong(error.to_string()))?;
    Ok(String::from_utf8(out).map_err(|error| wrong(error.to_string()))?)
}

/// The type of a value, with one for all elements of a list.
#[derive(Debug)]
enum Kind {
    Named(&'static str),
    List(Box<Kind>),
    Object(Keys),
}

/// The types of the values of keys, in the order in which keys come.
#[derive(Debug, Default)]
struct Keys {
    kinds: Vec<(String, Kind)>,
    places: HashMap<String, usize>,
}

/// What nothing is known of.
const NOTHING: Kind = Kind::Named("NULL");

impl Kind {
    fn of(json: &Json) -> Self {
        match json {
            Json::List(values) => {
                let kinds = values.iter().map(Self::of);
                Self::List(Box::new(kinds.reduce(Self::and).unwrap_or(NOTHING)))
            }
            Json::Object(pairs) => {
                let mut keys = Keys::default();
                for (key, value) in pairs {
                    keys.add(key, Self::of(value));
                }
                Self::Object(keys)
            }
            other => Self::Named(other.type_name()),
        }
    }

    /// The type of values of two types.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Named("NULL"), other) | (other, Self::Named("NULL")) => other,
            (Self::List(one), Self::List(other)) => Self::List(Box::new(one.and(*other))),
            (Self::Object(mut one), Self::Object(other)) => {
                for (key, kind) in other.kinds {
                    one.add(&key, kind);
                }
                Self::Object(one)
            }
            (Self::Named(one), Self::Named(other)) => Self::Named(of_both(one, other)),
            _ => Self::Named("JSON"),
        }
    }

    /// As JSON.
    fn named(self) -> Json {
        match self {
            Self::Named(name) => Json::Text(name.to_owned()),
            Self::List(kind) => Json::List(vec![kind.named()]),
            Self::Object(keys) => {
                let kinds = keys.kinds.into_iter();
                Json::Object(kinds.map(|(key, kind)| (key, kind.named())).collect())
            }
        }
    }
}

impl Keys {
    fn add(&mut self, key: &str, kind: Kind) {
        let known = self.places.get(key);
        match known.and_then(|place| self.kinds.get_mut(*place)) {
            Some((_, known)) => {
                let before = std::mem::replace(known, NOTHING);
                *known = before.and(kind);
            }
            None => {
                self.places.insert(key.to_owned(), self.kinds.len());
                self.kinds.push((key.to_owned(), kind));
            }
        }
    }
}

fn of_both(one: &'static str, other: &'static str) -> &'static str {
    const NUMBERS: [&str; 4] = ["UBIGINT", "BIGINT", "HUGEINT", "DOUBLE"];
    match (one, other) {
        (one, other) if one == other => one,
        (one, other) if !NUMBERS.contains(&one) || !NUMBERS.contains(&other) => "JSON",
        ("DOUBLE", _) | (_, "DOUBLE") => "DOUBLE",
        _ => "HUGEINT",
    }
}

fn merge_patch(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let columns: Vec<&StringViewArray> =
        arrays.iter().map(|array| array.as_string_view()).collect();
    let rows = columns.first().map_or(0, |column| column.len());
    let one = |row: usize| {
        let mut merged: Option<Json> = None;
        for column in &columns {
            let patch = column.is_valid(row).then(|| Json::read(column.value(row)));
            merged = match (merged, patch.transpose()?) {
                (Some(target), Some(patch)) => Some(patched(target, patch)),
                (_, patch) => patch,
            };
        }
        merged.map(|json| json.text()).transpose()
    };
    let texts: StringViewArray = (0..rows).map(one).collect::<Result<_>>()?;
    Ok(Arc::new(texts))
}

/// A value with a patch of RFC 7396.
fn patched(target: Json, patch: Json) -> Json {
    let Json::Object(changes) = patch else {
        return patch;
    };
    let mut pairs: Vec<Option<(String, Json)>> = match target {
        Json::Object(pairs) => pairs.into_iter().map(Some).collect(),
        _ => Vec::new(),
    };
    let named = |(place, pair): (usize, &Option<(String, Json)>)| {
        pair.as_ref().map(|(key, _)| (key.clone(), place))
    };
    // Of a key that comes twice the first counts.
    let places = pairs.iter().enumerate().rev().filter_map(named);
    let mut places: HashMap<String, usize> = places.collect();
    for (key, change) in changes {
        let known = places.remove(&key);
        let before = known.and_then(|place| pairs.get_mut(place)?.take());
        if change != Json::Null {
            let before = before.map_or(Json::Null, |(_, value)| value);
            places.insert(key.clone(), pairs.len());
            pairs.push(Some((key, patched(before, change))));
        }
    }
    Json::Object(pairs.into_iter().flatten().collect())
}

/// How many bytes the lines of texts have at most.
pub(super) fn most_bytes(arrays: &[ArrayRef]) -> f64 {
    let Ok(Some(texts)) = only(arrays).map(|texts| texts.as_string_view_opt()) else {
        return 0.0;
    };
    let lines = texts.iter().flatten().filter_map(|text| {
        let json = Json::read(text).ok()?;
        Some(of_lines(&json, 1.0))
    });
    lines.sum()
}

/// What comes of a value, whose elements are so many steps from the margin.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn of_lines(json: &Json, depth: f64) -> f64 {
    // A line break, a comma, and as much before what is within.
    let before = depth.mul_add(4.0, 8.0);
    match json {
        Json::Text(text) => written(text),
        Json::List(values) => {
            let lines = values
                .iter()
                .map(|value| before + of_lines(value, depth + 1.0));
            lines.sum::<f64>() + before
        }
        Json::Object(pairs) => {
            let lines = pairs
                .iter()
                .map(|(key, value)| before + written(key) + of_lines(value, depth + 1.0));
            lines.sum::<f64>() + before
        }
        _ => 24.0,
    }
}

/// A letter is written with six at most.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn written(text: &str) -> f64 {
    (text.len() as f64).mul_add(6.0, 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_all_elements_are_one() {
        for (text, wanted) in [
            ("[]", r#"["NULL"]"#),
            ("[1,2.5]", r#"["DOUBLE"]"#),
            ("[1,-1]", r#"["HUGEINT"]"#),
            ("[null,1]", r#"["UBIGINT"]"#),
            (
                r#"[{"a":1},{"b":2,"a":"x"}]"#,
                r#"[{"a":"JSON","b":"UBIGINT"}]"#,
            ),
            ("[[],[1]]", r#"[["UBIGINT"]]"#),
            (r#"[[1],{"a":1}]"#, r#"["JSON"]"#),
            ("[true,1]", r#"["JSON"]"#),
            ("5", r#""UBIGINT""#),
        ] {
            let json = Json::read(text).unwrap();
            assert_eq!(Kind::of(&json).named().text().unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn patches_are_those_of_the_rfc() {
        // Appendix A of RFC 7396.
        for (target, patch, wanted) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (
                r#"{"a":{"b":"c"}}"#,
                r#"{"a":{"b":"d","c":null}}"#,
                r#"{"a":{"b":"d"}}"#,
            ),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            let read = |text| Json::read(text).unwrap();
            let got = patched(read(target), read(patch)).text().unwrap();
            assert_eq!(got, wanted, "{target} {patch}");
        }
    }

    #[test]
    fn lines_are_not_longer_than_estimated() {
        for text in [
            "[]",
            "{}",
            "5",
            r#"{"a":[1,{"b":"x\"y\n"}],"c":-1.5e-10,"d":[[[[1,2,null]]]]}"#,
        ] {
            let json = Json::read(text).unwrap();
            let length = u32::try_from(pretty(&json).unwrap().len()).unwrap();
            assert!(f64::from(length) <= of_lines(&json, 1.0), "{text}");
        }
    }
}
