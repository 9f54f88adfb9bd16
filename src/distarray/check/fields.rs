//! The values of one dictionary under their keys.
//!
//! Comes in: a dictionary of unknown content. Goes out: each value as what it must be, [`Field::Absent`] or [`Field::Broken`], which is told. Never here: what values mean together.

use std::collections::HashSet;
use std::sync::Arc;

use crate::distarray::check::{Log, Rule};
use crate::distarray::value::{Integers, Value};
use crate::distarray::version::Version;

/// What stands under a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Field<T> {
    /// Nothing.
    #[default]
    Absent,
    /// Something that is not allowed.
    Broken,
    /// A value.
    Given(T),
}

impl<T: Clone> Field<T> {
    /// The value, if there is one.
    pub(super) fn given(&self) -> Option<T> {
        match self {
            Self::Given(value) => Some(value.clone()),
            Self::Absent | Self::Broken => None,
        }
    }

    /// The value, or what stands for an absent one; `None` when it is broken.
    pub(super) fn or(&self, default: T) -> Option<T> {
        match self {
            Self::Given(value) => Some(value.clone()),
            Self::Absent => Some(default),
            Self::Broken => None,
        }
    }
}

/// A key, the rule for it, and the least value.
#[derive(Debug, Clone, Copy)]
pub(super) struct IntKey {
    pub(super) key: &'static str,
    pub(super) rule: Rule,
    pub(super) least: u64,
    pub(super) required: bool,
}

/// An integer of at least the least value and below 2^63.
pub(super) fn int(dict: &Value, wanted: IntKey, log: &mut Log) -> Field<u64> {
    let IntKey {
        key, rule, least, ..
    } = wanted;
    let Some(value) = dict.get(key) else {
        if wanted.required {
            log.error(rule, Some(key), format!("the key `{key}` must be there"));
            return Field::Broken;
        }
        return Field::Absent;
    };
    let number = match plain_int(value, key, log) {
        Some(number) => i64::try_from(number)
            .ok()
            .and_then(|number| u64::try_from(number).ok()),
        None => None,
    };
    match number.filter(|number| *number >= least) {
        Some(number) => Field::Given(number),
        None => {
            let text =
                format!("{key} must be an int of at least {least} and below 2^63, got {value}");
            log.error(rule, Some(key), text);
            Field::Broken
        }
    }
}

/// The value of an integer; one of another type is told.
fn plain_int(value: &Value, key: &'static str, log: &mut Log) -> Option<i128> {
    match value {
        Value::Int(number) => Some(*number),
        Value::Integral { value: number, .. } => {
            let text = format!("{key} must be a plain int, got {value}");
            log.bearable(Rule::D13, Some(key), text);
            Some(*number)
        }
        _ => None,
    }
}

pub(super) fn boolean(dict: &Value, key: &'static str, rule: Rule, log: &mut Log) -> Field<bool> {
    match dict.get(key) {
        None => Field::Absent,
        Some(Value::Bool(value)) => Field::Given(*value),
        Some(other) => {
            let text = format!("{key} must be True or False, got {other}");
            log.error(rule, Some(key), text);
            Field::Broken
        }
    }
}

/// Two widths.
pub(super) fn padding(dict: &Value, log: &mut Log) -> Field<[u64; 2]> {
    const KEY: &str = "padding";
    let Some(value) = dict.get(KEY) else {
        return Field::Absent;
    };
    let items = match value {
        Value::Tuple(items) => items,
        Value::List(items) => {
            let text = format!("padding must be a tuple of two ints, got the list {value}");
            log.bearable(Rule::D7, Some(KEY), text);
            items
        }
        _ => &Vec::new(),
    };
    let widths: Vec<u64> = items
        .iter()
        .filter_map(|item| {
            let number = plain_int(item, KEY, log)?;
            i64::try_from(number)
                .ok()
                .and_then(|number| u64::try_from(number).ok())
        })
        .collect();
    if let ([left, right], 2) = (widths.as_slice(), items.len()) {
        return Field::Given([*left, *right]);
    }
    let text = format!("padding must be a tuple of two ints of at least 0, got {value}");
    log.error(Rule::D7, Some(KEY), text);
    Field::Broken
}

/// The global indices of an unstructured dimension.
pub(super) fn indices(dict: &Value, version: Option<Version>, log: &mut Log) -> Field<Arc<[i64]>> {
    const KEY: Option<&str> = Some("indices");
    let Some(value) = dict.get("indices") else {
        log.error(Rule::D11, KEY, "the key `indices` must be there");
        return Field::Broken;
    };
    let read = match value {
        Value::Buffer(facts) if facts.is_integer() && facts.shape.len() == 1 => {
            match &facts.integers {
                Integers::Read(read) if Some(read.len() as u64) == facts.shape.first().copied() => {
                    Ok(Arc::clone(read))
                }
                Integers::Read(read) => Err(format!(
                    "indices must have as many values as its shape says, got {} for {value}",
                    read.len()
                )),
                Integers::TooLarge(large) => {
                    Err(format!("indices must be below 2^63, got {large}"))
                }
                Integers::Unread => Err(format!("indices must have values, got only {value}")),
            }
        }
        Value::List(items)
            if version.is_some_and(|version| version.rules().prints_list_indices) =>
        {
            let text = format!("indices must be a buffer of ints, got the list {value}");
            log.bearable(Rule::D11, KEY, text);
            listed(items)
        }
        other => Err(format!(
            "indices must be a buffer of ints in one dimension, got {other}"
        )),
    };
    match read.and_then(|read| once_each(&read).map(|()| read)) {
        Ok(read) => Field::Given(read),
        Err(text) => {
            log.error(Rule::D11, KEY, text);
            Field::Broken
        }
    }
}

fn listed(items: &[Value]) -> Result<Arc<[i64]>, String> {
    let number = |item: &Value| match item {
        Value::Int(value) | Value::Integral { value, .. } => {
            i64::try_from(*value).map_err(|_| format!("indices must be below 2^63, got {value}"))
        }
        other => Err(format!("indices must be ints, got {other}")),
    };
    items.iter().map(number).collect()
}

fn once_each(indices: &[i64]) -> Result<(), String> {
    let rises = indices
        .windows(2)
        .all(|pair| matches!(pair, [one, next] if one < next));
    if rises {
        return Ok(());
    }
    let mut known = HashSet::with_capacity(indices.len());
    match indices.iter().find(|index| !known.insert(**index)) {
        None => Ok(()),
        Some(twice) => Err(format!(
            "indices must have each index once, got {twice} twice"
        )),
    }
}
