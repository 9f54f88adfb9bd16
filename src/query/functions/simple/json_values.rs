//! What a text of JSON holds, as a tree that keeps the order of its keys.
//!
//! Comes in: a text, a path. Goes out: the values, what lies at the path, what types they are of, and texts of them. Never here: columns.

use std::sync::Arc;

use datafusion::error::Result;
use jiter::JsonValue;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Number;

use super::json_texts::no_json;
use super::wrong;
use crate::query::functions::json::{Step, steps_of};

/// A value of JSON.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    Null,
    Truth(bool),
    Number(Number),
    Text(String),
    List(Vec<Json>),
    /// Keys and values as they are written; a key may come twice.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// # Errors
    /// `Query` for a text that is no JSON.
    pub(super) fn read(text: &str) -> Result<Self> {
        let value = JsonValue::parse(text.as_bytes(), false);
        let value = value.map_err(|error| no_json(&error, text))?;
        Self::try_from(value).map_err(|error| no_json(&error, text))
    }

    /// The name of its type, as DuckDB has it.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Truth(_) => "BOOLEAN",
            Self::Number(number) if number.is_u64() => "UBIGINT",
            Self::Number(number) if number.is_i64() => "BIGINT",
            Self::Number(_) => "DOUBLE",
            Self::Text(_) => "VARCHAR",
            Self::List(_) => "ARRAY",
            Self::Object(_) => "OBJECT",
        }
    }

    pub(super) fn is_nested(&self) -> bool {
        matches!(self, Self::List(_) | Self::Object(_))
    }

    /// The value at a key or a path.
    ///
    /// # Errors
    /// `Query` for a path that cannot be read, `Unsupported` for one of several values.
    pub(super) fn at(&self, path: &str) -> Result<Option<&Self>> {
        let mut found = self;
        for step in steps_of(path)? {
            match found.place_of(&step).and_then(|place| found.within(place)) {
                Some((_, within)) => found = within,
                None => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    /// The place of what a step names among what is in the value. Of a key that comes twice the first counts.
    pub(super) fn place_of(&self, step: &Step) -> Option<usize> {
        match (self, step) {
            (Self::Object(pairs), Step::Key(key)) => {
                pairs.iter().position(|(known, _)| known == key)
            }
            (Self::List(values), Step::Place(place)) => match usize::try_from(*place) {
                Ok(place) => Some(place),
                Err(_) => values
                    .len()
                    .checked_sub(usize::try_from(place.unsigned_abs()).ok()?),
            },
            _ => None,
        }
    }

    /// What is in the value at a place, and its name there.
    pub(super) fn within(&self, place: usize) -> Option<(Name<'_>, &Self)> {
        match self {
            Self::List(values) => Some((Name::Place(place), values.get(place)?)),
            Self::Object(pairs) => {
                let (key, value) = pairs.get(place)?;
                Some((Name::Key(key), value))
            }
            _ => None,
        }
    }

    /// How many values and keys there are in it, with itself.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::List(values) => 1 + values.iter().map(Self::count).sum::<u64>(),
            Self::Object(pairs) => {
                let counts = pairs.iter().map(|(_, value)| 1 + value.count());
                1 + counts.sum::<u64>()
            }
            _ => 1,
        }
    }

    /// How many bytes its text has at most: a letter is written with six.
    pub(super) fn most_bytes(&self) -> usize {
        match self {
            Self::Null | Self::Truth(_) | Self::Number(_) => 24,
            Self::Text(text) => 6 * text.len() + 2,
            Self::List(values) => {
                2 + values
                    .iter()
                    .map(|value| 1 + value.most_bytes())
                    .sum::<usize>()
            }
            Self::Object(pairs) => {
                let each = |(key, value): &(String, Self)| 6 * key.len() + 4 + value.most_bytes();
                2 + pairs.iter().map(each).sum::<usize>()
            }
        }
    }

    /// The text of it, without spaces.
    pub(super) fn text(&self) -> Result<String> {
        Ok(serde_json::to_string(self).map_err(|error| wrong(error.to_string()))?)
    }
}

/// What a value is called within another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name<'a> {
    Key(&'a str),
    Place(usize),
}

impl Name<'_> {
    /// How many values it stands for: a key is a value, too.
    pub(super) fn count(self) -> u64 {
        match self {
            Self::Key(_) => 2,
            Self::Place(_) => 1,
        }
    }

    pub(super) fn text(self) -> String {
        match self {
            Self::Key(key) => key.to_owned(),
            Self::Place(place) => place.to_string(),
        }
    }

    /// Goes on with a path.
    pub(super) fn add_to(self, path: &mut String) {
        match self {
            Self::Place(place) => *path += &format!("[{place}]"),
            Self::Key(key) if is_plain(key) => {
                path.push('.');
                *path += key;
            }
            Self::Key(key) => {
                *path += ".\"";
                for letter in key.chars() {
                    if matches!(letter, '"' | '\\') {
                        path.push('\\');
                    }
                    path.push(letter);
                }
                path.push('"');
            }
        }
    }

    /// How many bytes that takes at most.
    pub(super) fn most_bytes(self) -> usize {
        match self {
            Self::Place(_) => 22,
            Self::Key(key) => 2 * key.len() + 3,
        }
    }
}

/// Whether a key may stand in a path without quotation marks.
fn is_plain(key: &str) -> bool {
    let is_one = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    key.starts_with(|letter: char| letter.is_ascii_alphabetic()) && key.chars().all(is_one)
}

impl TryFrom<JsonValue<'_>> for Json {
    type Error = &'static str;

    fn try_from(value: JsonValue<'_>) -> std::result::Result<Self, Self::Error> {
        Ok(match value {
            JsonValue::Null => Self::Null,
            JsonValue::Bool(value) => Self::Truth(value),
            JsonValue::Int(value) => match u64::try_from(value) {
                Ok(value) => Self::Number(Number::from(value)),
                Err(_) => Self::Number(Number::from(value)),
            },
            JsonValue::BigInt(value) => match u64::try_from(&value) {
                Ok(value) => Self::Number(Number::from(value)),
                Err(_) => of_float(value.to_string().parse().unwrap_or(f64::NAN))?,
            },
            JsonValue::Float(value) => of_float(value)?,
            JsonValue::Str(text) => Self::Text(text.into_owned()),
            JsonValue::Array(values) => {
                let values = Arc::unwrap_or_clone(values).into_iter();
                Self::List(
                    values
                        .map(Self::try_from)
                        .collect::<std::result::Result<_, _>>()?,
                )
            }
            JsonValue::Object(pairs) => {
                let pairs = Arc::unwrap_or_clone(pairs).into_iter();
                let pairs = pairs.map(|(key, value)| {
                    Ok::<_, &'static str>((key.into_owned(), Self::try_from(value)?))
                });
                Self::Object(pairs.collect::<std::result::Result<_, _>>()?)
            }
        })
    }
}

fn of_float(value: f64) -> std::result::Result<Json, &'static str> {
    let number = Number::from_f64(value).map(Json::Number);
    number.ok_or("a number out of the range of floats")
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Truth(value) => serializer.serialize_bool(*value),
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(values) => serializer.collect_seq(values),
            Self::Object(pairs) => {
                let mut map = serializer.serialize_map(Some(pairs.len()))?;
                for (key, value) in pairs {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_paths() {
        let json = Json::read(r#"{"a": 1, "b": [1, {"x y": null}], "b": 2}"#).unwrap();
        for (path, text) in [
            ("$", r#"{"a":1,"b":[1,{"x y":null}],"b":2}"#),
            ("a", "1"),
            ("$.b[-1].\"x y\"", "null"),
            ("$.b[#-2]", "1"),
            ("$.b[0]", "1"),
        ] {
            let found = json.at(path).unwrap().unwrap();
            assert_eq!(found.text().unwrap(), text, "{path}");
        }
        for path in [
            "$.c",
            "$.b[2]",
            "$.b[-3]",
            "$.b[-9223372036854775808]",
            "$.a.b",
            "$[0]",
            "c",
        ] {
            assert!(json.at(path).unwrap().is_none(), "{path}");
        }
        assert!(json.at("$.b[*]").is_err());
    }

    #[test]
    fn numbers_are_of_the_least_type_and_texts_are_written_anew() {
        for (text, kind, written) in [
            ("0", "UBIGINT", "0"),
            ("-1", "BIGINT", "-1"),
            ("18446744073709551615", "UBIGINT", "18446744073709551615"),
            ("18446744073709551616", "DOUBLE", "1.8446744073709552e+19"),
            ("1.50", "DOUBLE", "1.5"),
            ("0.09743057599473337", "DOUBLE", "0.09743057599473337"),
            (r#""é\n""#, "VARCHAR", r#""é\n""#),
            (" [ ] ", "ARRAY", "[]"),
        ] {
            let json = Json::read(text).unwrap();
            assert_eq!(
                (json.type_name(), json.text().unwrap().as_str()),
                (kind, written)
            );
        }
        for wrong in ["{'a': 1}", "", "[1] 2", "[NaN]", "[1,]", "1e400"] {
            assert!(Json::read(wrong).is_err(), "{wrong}");
        }
    }
}
