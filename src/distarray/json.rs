//! Values out of JSON text.
//!
//! Comes in: JSON in which an array stands for a tuple. Goes out: a [`Value`]. Objects with these keys alone stand for what JSON has no word for:
//!
//! | object | value |
//! | --- | --- |
//! | `{"list": [...]}` | a list |
//! | `{"shape": [...], "format": "d", "values": [...]}` | a buffer, its elements in C order; "values" may be left out |
//! | `{"integral": 3, "type": "numpy.int64"}` | an integer of another type |
//! | `{"other": "module"}` | anything else, by the name of its type |
//!
//! Never here: reading of files, judgement.

use serde_json::Value as Json;

use crate::distarray::value::{BufferFacts, Integers, Value};
use crate::error::{Error, Result};

/// Reads one value.
///
/// # Errors
/// `InvalidData` for what is no JSON or is nested too deep, for a number beyond 64 bits, and for a buffer whose parts do not fit each other.
pub fn from_json(text: &str) -> Result<Value> {
    let json: Json = serde_json::from_str(text).map_err(|error| {
        Error::invalid_data(format!("JSON was expected, got {error}")).with_source(error)
    })?;
    value_of(json)
}

fn value_of(json: Json) -> Result<Value> {
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(value),
        Json::Number(number) => number_of(&number)?,
        Json::String(text) => Value::Text(text),
        Json::Array(items) => Value::Tuple(all_of(items)?),
        Json::Object(entries) => {
            let keys: Vec<&str> = entries.keys().map(String::as_str).collect();
            match keys.as_slice() {
                ["list"] => match entries.into_iter().next() {
                    Some((_, Json::Array(items))) => Value::List(all_of(items)?),
                    _ => return Err(wrong("\"list\" must be an array")),
                },
                ["other"] => match entries.get("other") {
                    Some(Json::String(name)) => Value::Other(name.clone()),
                    _ => return Err(wrong("\"other\" must be the name of a type")),
                },
                ["integral", "type"] | ["type", "integral"] => integral_of(&entries)?,
                _ if is_buffer(&keys) => Value::Buffer(buffer_of(&entries)?),
                _ => {
                    let pairs = entries
                        .into_iter()
                        .map(|(key, value)| Ok((Value::Text(key), value_of(value)?)));
                    Value::Dict(pairs.collect::<Result<_>>()?)
                }
            }
        }
    })
}

fn all_of(items: Vec<Json>) -> Result<Vec<Value>> {
    items.into_iter().map(value_of).collect()
}

fn number_of(number: &serde_json::Number) -> Result<Value> {
    let int = number.as_i64().map(i128::from);
    let int = int.or_else(|| number.as_u64().map(i128::from));
    match (int, number.as_f64()) {
        (Some(value), _) => Ok(Value::Int(value)),
        (None, Some(value)) => Ok(Value::Float(value)),
        (None, None) => Err(wrong("a number must fit 64 bits")),
    }
}

type Entries = serde_json::Map<String, Json>;

fn integral_of(entries: &Entries) -> Result<Value> {
    let value = entries.get("integral").and_then(Json::as_i64);
    match (value, entries.get("type")) {
        (Some(value), Some(Json::String(name))) => Ok(Value::Integral {
            value: value.into(),
            type_name: name.clone(),
        }),
        _ => Err(wrong(
            "\"integral\" must be an integer and \"type\" the name of its type",
        )),
    }
}

fn is_buffer(keys: &[&str]) -> bool {
    let known = |key: &&str| matches!(*key, "shape" | "format" | "values" | "type");
    keys.contains(&"shape") && keys.contains(&"format") && keys.iter().all(known)
}

fn buffer_of(entries: &Entries) -> Result<BufferFacts> {
    let shape = entries.get("shape").and_then(Json::as_array);
    let shape = shape.and_then(|shape| shape.iter().map(Json::as_u64).collect::<Option<Vec<_>>>());
    let shape = shape.ok_or_else(|| wrong("\"shape\" must be an array of integers"))?;
    let format = entries.get("format").and_then(Json::as_str);
    let format = format.ok_or_else(|| wrong("\"format\" must be a text"))?;
    let item_bytes = item_bytes(format).ok_or_else(|| {
        wrong(&format!(
            "\"format\" must be one letter of the struct module, after a byte order or without, got {format:?}"
        ))
    })?;
    let type_name = match entries.get("type") {
        None => "buffer",
        Some(Json::String(name)) => name,
        Some(_) => return Err(wrong("\"type\" must be a text")),
    };
    let mut facts = BufferFacts {
        format: format.to_owned(),
        item_bytes,
        shape,
        type_name: type_name.to_owned(),
        integers: Integers::Unread,
    };
    if let Some(values) = entries.get("values") {
        facts.integers = elements_of(&facts, values)?;
    }
    Ok(facts)
}

/// The integers among the elements, after looking whether there are as many as the shape says.
fn elements_of(facts: &BufferFacts, values: &Json) -> Result<Integers> {
    let Some(values) = values.as_array() else {
        return Err(wrong("\"values\" must be an array"));
    };
    let wanted = facts
        .shape
        .iter()
        .try_fold(1_u64, |product, extent| product.checked_mul(*extent));
    if wanted != Some(values.len() as u64) {
        let text = format!(
            "\"values\" must have one number for each element of the shape {}, got {}",
            super::value::shape_text(&facts.shape),
            values.len()
        );
        return Err(wrong(&text));
    }
    if values.iter().any(|value| !value.is_number()) {
        return Err(wrong("\"values\" must be numbers"));
    }
    if !facts.is_integer() {
        return Ok(Integers::Unread);
    }
    let large = values
        .iter()
        .filter(|value| !value.is_i64())
        .find_map(Json::as_u64);
    if let Some(large) = large {
        return Ok(Integers::TooLarge(large));
    }
    let read: Option<Vec<i64>> = values.iter().map(Json::as_i64).collect();
    match read {
        Some(read) => Ok(Integers::Read(read.into())),
        None => Err(wrong("\"values\" of an integer format must be integers")),
    }
}

/// The width of a format of the `struct` module; `None` for what is no single letter of a number.
fn item_bytes(format: &str) -> Option<usize> {
    let standard = format.starts_with(['=', '<', '>', '!']);
    let code = format
        .strip_prefix(['@', '=', '<', '>', '!'])
        .unwrap_or(format);
    Some(match code {
        "b" | "B" | "?" | "c" => 1,
        "h" | "H" | "e" => 2,
        "i" | "I" | "f" => 4,
        "l" | "L" if standard => 4,
        "l" | "L" | "q" | "Q" | "d" => 8,
        "n" | "N" if !standard => 8,
        "Zf" => 8,
        "Zd" => 16,
        _ => return None,
    })
}

fn wrong(text: &str) -> Error {
    Error::invalid_data(text)
}
