//! One section: its keys, its version, its buffer (rules T1 to T7).
//!
//! Comes in: a value. Goes out: what could be made out of it, for the rules across ranks. Never here: other sections.

use crate::distarray::check::dimension::{self, SeenDim};
use crate::distarray::check::{Log, Rule};
use crate::distarray::value::{BufferFacts, Value, shape_text};
use crate::distarray::version::Version;

const KEYS: [&str; 3] = ["__version__", "buffer", "dim_data"];

/// What could be made out of a section.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) version: Option<Version>,
    pub(super) version_text: Option<String>,
    pub(super) buffer: Option<BufferFacts>,
    /// `None` where "dim_data" is no sequence of dictionaries.
    pub(super) dims: Option<Vec<SeenDim>>,
}

pub(super) fn check(section: &Value, log: &mut Log) -> Seen {
    log.dimension = None;
    let Value::Dict(entries) = section else {
        let text = format!("a section must be a dict, got {section}");
        log.error(Rule::T1, None, text);
        return Seen::default();
    };
    for key in KEYS {
        if section.get(key).is_none() {
            log.error(
                Rule::T2,
                Some(key),
                format!("the key `{key}` must be there"),
            );
        }
    }
    let known = |key: &Value| matches!(key, Value::Text(text) if KEYS.contains(&text.as_str()));
    for (key, _) in entries.iter().filter(|(key, _)| !known(key)) {
        let text = format!(
            "a section must have the keys {} and no other, got {key}",
            KEYS.join(", ")
        );
        log.error(Rule::T2, None, text);
    }
    let mut seen = Seen::default();
    if let Some(value) = section.get("__version__") {
        see_version(value, &mut seen, log);
    }
    seen.buffer = section.get("buffer").and_then(|value| buffer(value, log));
    if let Some(value) = section.get("dim_data") {
        seen.dims = dim_data(value, &seen, log);
    }
    seen
}

fn see_version(value: &Value, seen: &mut Seen, log: &mut Log) {
    let Value::Text(text) = value else {
        let text = format!("__version__ must be a text such as '0.10.0', got {value}");
        log.error(Rule::T3, Some("__version__"), text);
        return;
    };
    seen.version_text = Some(text.clone());
    match Version::try_from_text(text) {
        Ok(version) => seen.version = Some(version),
        Err(_) => {
            let text = format!(
                "__version__ must be 0.9 or 0.10 and a patch number, such as '0.10.0', got {value}"
            );
            log.error(Rule::T3, Some("__version__"), text);
        }
    }
}

fn buffer(value: &Value, log: &mut Log) -> Option<BufferFacts> {
    let Value::Buffer(facts) = value else {
        let text = format!("buffer must have the buffer interface, got {value}");
        log.error(Rule::T4, Some("buffer"), text);
        return None;
    };
    if facts
        .shape
        .iter()
        .any(|extent| i64::try_from(*extent).is_err())
    {
        let text = format!("buffer must have extents below 2^63, got {value}");
        log.error(Rule::T4, Some("buffer"), text);
        return None;
    }
    Some(BufferFacts {
        integers: crate::distarray::value::Integers::Unread,
        ..facts.clone()
    })
}

fn dim_data(value: &Value, seen: &Seen, log: &mut Log) -> Option<Vec<SeenDim>> {
    let single;
    let items = match value {
        Value::Tuple(items) => items.as_slice(),
        other => {
            let text = format!("dim_data must be a tuple of dicts, got {other}");
            log.error(Rule::T5, Some("dim_data"), text);
            match other {
                Value::List(items) => items.as_slice(),
                // As two of the printed examples have it: the brackets of a tuple, but no comma.
                Value::Dict(entries) if !entries.is_empty() => {
                    single = [other.clone()];
                    &single[..]
                }
                _ => return None,
            }
        }
    };
    let shape = seen.buffer.as_ref().map(|facts| facts.shape.as_slice());
    if let Some(shape) = shape
        && shape.len() != items.len()
    {
        let text = format!(
            "dim_data must have one dict for each dimension of the buffer of shape {}, got {}",
            shape_text(shape),
            items.len()
        );
        log.error(Rule::T7, Some("dim_data"), text);
    }
    let matching = shape.filter(|shape| shape.len() == items.len());
    let mut dims = Vec::new();
    let mut all = true;
    for (number, item) in items.iter().enumerate() {
        log.dimension = Some(number);
        if let Value::Dict(_) = item {
            let extent = matching.and_then(|shape| shape.get(number)).copied();
            dims.push(dimension::check(item, extent, seen.version, log));
        } else {
            let text = format!("dim_data must hold dicts, got {item}");
            log.error(Rule::T6, Some("dim_data"), text);
            all = false;
        }
    }
    log.dimension = None;
    all.then_some(dims)
}
