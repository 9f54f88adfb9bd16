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

    /// The value at a key or a path, and how many values and keys stand before it.
    ///
    /// # Errors
    /// `Query` for a path that cannot be read, `Unsupported` for one of several values.
    pub(super) fn at(&self, path: &str) -> Result<Option<Found<'_>>> {
        let mut found = Found {
            value: self,
            number: 0,
            path: String::from("$"),
        };
        for step in steps_of(path)? {
            match found.into_step(&step) {
                Some(next) => found = next,
                None => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    /// How many values and keys there are in it, with itself.
    fn count(&self) -> u64 {
        match self {
            Self::List(values) => 1 + values.iter().map(Self::count).sum::<u64>(),
            Self::Object(pairs) => {
                1 + pairs
                    .iter()
                    .map(|(_, value)| 1 + value.count())
                    .sum::<u64>()
            }
            _ => 1,
        }
    }

    /// The text of it, without spaces.
    pub(super) fn text(&self) -> Result<String> {
        Ok(serde_json::to_string(self).map_err(|error| wrong(error.to_string()))?)
    }
}

/// A value within another.
pub(super) struct Found<'a> {
    pub(super) value: &'a Json,
    /// Its place among all values and keys, from 0.
    pub(super) number: u64,
    /// Where it is: `$.key[0]`.
    pub(super) path: String,
}

impl<'a> Found<'a> {
    fn into_step(self, step: &Step) -> Option<Self> {
        match (self.value, step) {
            (Json::Object(_), Step::Key(key)) => {
                let mut within = self.within();
                within.find_map(|(name, found)| (name == Name::Key(key)).then_some(found))
            }
            (Json::List(values), Step::Place(place)) => {
                let place = match usize::try_from(*place) {
                    Ok(place) => place,
                    Err(_) => values.len().checked_sub(usize::try_from(-place).ok()?)?,
                };
                self.within().nth(place).map(|(_, found)| found)
            }
            _ => None,
        }
    }

    /// What is in it, and under which names.
    pub(super) fn within(&self) -> impl Iterator<Item = (Name<'a>, Found<'a>)> + use<'a> {
        let path = self.path.clone();
        let (values, pairs): (&[Json], &[(String, Json)]) = match self.value {
            Json::List(values) => (values, &[]),
            Json::Object(pairs) => (&[], pairs),
            _ => (&[], &[]),
        };
        let values = values.iter().enumerate();
        let values = values.map(|(place, value)| (Name::Place(place), value));
        let pairs = pairs.iter().map(|(key, value)| (Name::Key(key), value));
        let mut number = self.number;
        values.chain(pairs).map(move |(name, value)| {
            // A key is a value, too.
            number += if matches!(name, Name::Key(_)) { 2 } else { 1 };
            let found = Found {
                value,
                number,
                path: format!("{path}{}", name.step()),
            };
            number += value.count() - 1;
            (name, found)
        })
    }
}

/// What a value is called within another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name<'a> {
    Key(&'a str),
    Place(usize),
}

impl Name<'_> {
    pub(super) fn text(self) -> String {
        match self {
            Self::Key(key) => key.to_owned(),
            Self::Place(place) => place.to_string(),
        }
    }

    /// As it stands in a path.
    fn step(self) -> String {
        match self {
            Self::Place(place) => format!("[{place}]"),
            Self::Key(key) if is_plain(key) => format!(".{key}"),
            Self::Key(key) => {
                let escaped = key.replace('\\', "\\\\").replace('"', "\\\"");
                format!(".\"{escaped}\"")
            }
        }
    }
}

/// Whether a key may stand in a path without quotation marks.
fn is_plain(key: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    key.starts_with(is_letter)
        && key
            .chars()
            .all(|letter| is_letter(letter) || letter.is_ascii_digit())
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
    fn values_are_found_by_paths_and_numbered_as_they_are_written() {
        let json = Json::read(r#"{"a": 1, "b": [1, {"x y": null}], "b": 2}"#).unwrap();
        for (path, number, shown, text) in [
            ("$", 0, "$", r#"{"a":1,"b":[1,{"x y":null}],"b":2}"#),
            ("a", 2, "$.a", "1"),
            ("$.b[-1].\"x y\"", 8, "$.b[1].\"x y\"", "null"),
            ("$.b[0]", 5, "$.b[0]", "1"),
        ] {
            let found = json.at(path).unwrap().unwrap();
            assert_eq!(
                (found.number, found.path.as_str()),
                (number, shown),
                "{path}"
            );
            assert_eq!(found.value.text().unwrap(), text, "{path}");
        }
        for path in ["$.c", "$.b[2]", "$.b[-3]", "$.a.b", "$[0]", "c"] {
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
