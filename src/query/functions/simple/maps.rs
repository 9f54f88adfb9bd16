//! Maps of several, and of lists.
//!
//! Comes in: maps, lists of structs of two fields. Goes out: maps. Never here: keys and values alone, which the engine has.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, StructArray, new_empty_array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast, concat, interleave};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use arrow::row::{RowConverter, SortField};
use datafusion::common::{internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_MAP;

use super::{Function, Takes, without_signs, wrong};

pub(super) const ALL: &[Function] = &[
    Function {
        name: "map_concat",
        aliases: &[],
        section: DOC_SECTION_MAP,
        about: "A map of what is in several of one type; of one key the last value counts.",
        takes: &[("map", Takes::Map), ("other", Takes::Map)],
        least: 2,
        repeats: true,
        returned: one_type,
        made: merged,
    },
    Function {
        name: "map_from_entries",
        aliases: &[],
        section: DOC_SECTION_MAP,
        about: "A map of a list of structs of a key and a value.",
        takes: &[("entries", Takes::List)],
        least: 1,
        repeats: false,
        returned: |types| Ok(DataType::Map(entries_of(types)?, false)),
        made: of_lists,
    },
];

/// The type that all maps have, whatever their parts are called; what is null is of any.
fn one_type(types: &[DataType]) -> Result<DataType> {
    let known = types.iter().filter(|kind| !kind.is_null());
    let mut wanted: Option<(DataType, DataType)> = None;
    for kind in known {
        let (Some(key), Some(value)) = parts(kind) else {
            return internal_err!("entries of {kind}");
        };
        wanted = match wanted {
            None => Some((bare(key).clone(), bare(value).clone())),
            Some((of_keys, of_values))
                if are_alike(&of_keys, key) && are_alike(&of_values, value) =>
            {
                // Of a map of nothing nothing is known.
                Some((known_of(of_keys, key), known_of(of_values, value)))
            }
            Some((of_keys, of_values)) => {
                return plan_err!(
                    "map_concat takes maps of one type, got those of {of_keys} to {of_values} and {key} to {value}"
                );
            }
        };
    }
    match wanted {
        Some((key, value)) => Ok(DataType::Map(entries(&key, &value), false)),
        None => plan_err!("map_concat takes maps, got nothing but null"),
    }
}

fn known_of(one: DataType, other: &DataType) -> DataType {
    match one.is_null() {
        true => bare(other).clone(),
        false => one,
    }
}

/// The type of values, however they are stored.
fn bare(kind: &DataType) -> &DataType {
    match kind {
        DataType::Dictionary(_, values) => bare(values),
        DataType::RunEndEncoded(_, values) => bare(values.data_type()),
        kind => kind,
    }
}

/// The types of keys and values.
fn parts(map: &DataType) -> (Option<&DataType>, Option<&DataType>) {
    let fields: &[FieldRef] = match map {
        DataType::Map(field, _) => match field.data_type() {
            DataType::Struct(fields) => fields,
            _ => &[],
        },
        _ => &[],
    };
    let part = |place: usize| fields.get(place).map(|field| field.data_type());
    (part(0), part(1))
}

fn entries(key: &DataType, value: &DataType) -> FieldRef {
    let key = Field::new("key", key.clone(), false);
    let value = Field::new("value", value.clone(), true);
    let entries = DataType::Struct(Fields::from(vec![key, value]));
    Arc::new(Field::new("entries", entries, false))
}

/// Whether values of both types are the same: names of elements and whether some may be null do not count.
fn are_alike(one: &DataType, other: &DataType) -> bool {
    match (bare(one), bare(other)) {
        (DataType::Null, _) | (_, DataType::Null) => true,
        (DataType::List(one), DataType::List(other))
        | (DataType::LargeList(one), DataType::LargeList(other)) => {
            are_alike(one.data_type(), other.data_type())
        }
        (DataType::Map(..), DataType::Map(..)) => {
            let ((key, value), (other_key, other_value)) = (parts(one), parts(other));
            let alike = |one: Option<_>, other: Option<_>| {
                one.zip(other)
                    .is_some_and(|(one, other)| are_alike(one, other))
            };
            alike(key, other_key) && alike(value, other_value)
        }
        (DataType::Struct(ones), DataType::Struct(others)) => {
            let mut both = ones.iter().zip(others);
            ones.len() == others.len()
                && both.all(|(one, other)| {
                    one.name() == other.name() && are_alike(one.data_type(), other.data_type())
                })
        }
        (one, other) => one == other,
    }
}

fn merged(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let types: Vec<DataType> = arrays
        .iter()
        .map(|array| array.data_type().clone())
        .collect();
    let wanted = one_type(&types)?;
    let DataType::Map(field, _) = &wanted else {
        return internal_err!("{wanted} is no map");
    };
    let rows = arrays.first().map_or(0, Array::len);
    let arrays = arrays.iter().filter(|array| !array.data_type().is_null());
    let arrays: Vec<ArrayRef> = arrays
        .map(|array| cast(array, &wanted))
        .collect::<Result<_, _>>()?;
    let maps: Vec<&MapArray> = arrays
        .iter()
        .filter_map(|array| array.as_map_opt())
        .collect();
    let keys: Vec<&dyn Array> = maps.iter().map(|map| map.keys().as_ref()).collect();
    let values: Vec<&dyn Array> = maps.iter().map(|map| map.values().as_ref()).collect();
    let Some(first) = maps.first() else {
        return internal_err!("no map of several");
    };
    let merged = Merged::of(&maps, first.key_type(), rows)?;
    let entries = match field.data_type() {
        DataType::Struct(fields) => {
            let columns = vec![
                interleave(&keys, &merged.keys)?,
                interleave(&values, &merged.values)?,
            ];
            StructArray::try_new(fields.clone(), columns, None)?
        }
        other => return internal_err!("a map of {other}"),
    };
    let offsets = OffsetBuffer::from_lengths(merged.lengths);
    let nulls = NullBuffer::from(merged.is_there);
    Ok(Arc::new(MapArray::try_new(
        Arc::clone(field),
        offsets,
        entries,
        Some(nulls),
        false,
    )?))
}

/// Where the entries of maps of several are: in which map, and at which place there.
struct Merged {
    keys: Vec<(usize, usize)>,
    values: Vec<(usize, usize)>,
    /// How many each row has.
    lengths: Vec<usize>,
    is_there: Vec<bool>,
}

impl Merged {
    /// A key stays where it came first, with the value that came last.
    fn of(maps: &[&MapArray], key_type: &DataType, rows: usize) -> Result<Self> {
        let converter = RowConverter::new(vec![SortField::new(key_type.clone())])?;
        let of_keys = maps
            .iter()
            .map(|map| converter.convert_columns(&[without_signs(map.keys())]))
            .collect::<Result<Vec<_>, _>>()?;
        let mut merged = Self {
            keys: Vec::new(),
            values: Vec::new(),
            lengths: Vec::with_capacity(rows),
            is_there: Vec::with_capacity(rows),
        };
        for row in 0..rows {
            let begin = merged.keys.len();
            let mut known = HashMap::new();
            let there = maps.iter().zip(&of_keys).enumerate();
            for (number, (map, keys)) in there.filter(|(_, (map, _))| map.is_valid(row)) {
                for place in span(map.value_offsets(), row)? {
                    match known.entry(keys.row(place)) {
                        Entry::Vacant(entry) => {
                            entry.insert(merged.keys.len());
                            merged.keys.push((number, place));
                            merged.values.push((number, place));
                        }
                        Entry::Occupied(entry) => {
                            if let Some(known) = merged.values.get_mut(*entry.get()) {
                                *known = (number, place);
                            }
                        }
                    }
                }
            }
            merged.lengths.push(merged.keys.len() - begin);
            merged
                .is_there
                .push(maps.iter().any(|map| map.is_valid(row)));
        }
        Ok(merged)
    }
}

/// The places of the entries of a row.
fn span(offsets: &[i32], row: usize) -> Result<std::ops::Range<usize>> {
    match offsets.get(row..row + 2) {
        Some([begin, end]) => match (usize::try_from(*begin), usize::try_from(*end)) {
            (Ok(begin), Ok(end)) => Ok(begin..end),
            _ => internal_err!("entries before the first"),
        },
        _ => internal_err!("a row that is not there"),
    }
}

/// The field of the entries that a list of structs becomes.
fn entries_of(types: &[DataType]) -> Result<FieldRef> {
    let refused = |got: &DataType| {
        plan_err!("map_from_entries takes a list of structs of a key and a value, got {got}")
    };
    let Some(DataType::List(element)) = types.first() else {
        return internal_err!("entries in no list");
    };
    let fields: &[FieldRef] = match element.data_type() {
        DataType::Struct(fields) => fields,
        DataType::Null => return Ok(entries(&DataType::Null, &DataType::Null)),
        other => return refused(other),
    };
    let [key, value] = fields else {
        return refused(element.data_type());
    };
    Ok(entries(key.data_type(), value.data_type()))
}

fn of_lists(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let [lists] = arrays else {
        return internal_err!("a map of several lists");
    };
    let field = entries_of(&[lists.data_type().clone()])?;
    let lists = lists.as_list::<i32>();
    // What lies behind lists that are null is in none.
    let mut parts = Vec::new();
    let mut lengths = Vec::with_capacity(lists.len());
    for row in 0..lists.len() {
        let length = match lists.is_valid(row) {
            true => {
                let part = lists.value(row);
                let length = part.len();
                parts.push(part);
                length
            }
            false => 0,
        };
        lengths.push(length);
    }
    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    let entries = match parts.is_empty() {
        true => lists.values().slice(0, 0),
        false => concat(&parts)?,
    };
    if entries.data_type().is_null() {
        if !entries.is_empty() {
            return Err(wrong("a key of a map must not be null").into());
        }
        return Ok(new_null_maps(&field, lists));
    }
    let entries = entries.as_struct();
    let [keys, values] = entries.columns() else {
        return internal_err!("entries of other than two fields");
    };
    if entries.null_count() > 0 || keys.logical_null_count() > 0 {
        return Err(wrong("a key of a map must not be null").into());
    }
    let offsets = OffsetBuffer::from_lengths(lengths);
    check_different(keys, &offsets)?;
    let entries = match field.data_type() {
        DataType::Struct(fields) => {
            let columns = vec![Arc::clone(keys), Arc::clone(values)];
            StructArray::try_new(fields.clone(), columns, None)?
        }
        other => return internal_err!("a map of {other}"),
    };
    let nulls = lists.nulls().cloned();
    Ok(Arc::new(MapArray::try_new(
        field, offsets, entries, nulls, false,
    )?))
}

/// Maps of nothing.
fn new_null_maps(field: &FieldRef, lists: &ListArray) -> ArrayRef {
    let entries = new_empty_array(field.data_type());
    let offsets = OffsetBuffer::new_zeroed(lists.len());
    let nulls = lists.nulls().cloned();
    let entries = entries.as_struct().clone();
    Arc::new(MapArray::new(
        Arc::clone(field),
        offsets,
        entries,
        nulls,
        false,
    ))
}

/// Refuses a key that a map would have twice.
fn check_different(keys: &ArrayRef, offsets: &OffsetBuffer<i32>) -> Result<()> {
    let converter = RowConverter::new(vec![SortField::new(keys.data_type().clone())])?;
    let rows = converter.convert_columns(&[without_signs(keys)])?;
    for row in 0..offsets.len().saturating_sub(1) {
        let mut known = std::collections::HashSet::new();
        for place in span(offsets, row)? {
            if !known.insert(rows.row(place)) {
                let value = keys.slice(place, 1);
                let shown = datafusion::common::ScalarValue::try_from_array(&value, 0)?;
                return Err(
                    wrong(format!("a map has each key once, {shown} is there twice")).into(),
                );
            }
        }
    }
    Ok(())
}
