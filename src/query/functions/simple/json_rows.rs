//! What a text of JSON holds, in a row each.
//!
//! Comes in: texts of JSON, a key or a path. Goes out: lists side by side, of what is in them (`json_each`) or anywhere in them (`json_tree`): key, value, type, and where it is, as DuckDB has them. Never here: how lists become rows (`rewrite/laterals.rs`).

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, StringViewBuilder, StructArray, UInt64Builder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::internal_err;
use datafusion::error::Result;

use super::json_texts::SECTION;
use super::json_values::{Found, Json, Name};
use super::{Function, Takes};

/// The functions of lists, by those of rows, and how they are told to the engine.
pub(in crate::query) const OF_ROWS: [(&str, &str); 2] = [("json_each", EACH), ("json_tree", TREE)];

pub(super) const EACH: &str = "__json_each";
pub(super) const TREE: &str = "__json_tree";

/// The columns, in their order.
pub(in crate::query) const COLUMNS: [&str; 8] = [
    "key", "value", "type", "atom", "id", "parent", "fullkey", "path",
];

pub(super) const ALL: &[Function] = &[
    Function {
        name: EACH,
        aliases: &[],
        section: SECTION,
        about: "Lists of what is in a list or an object of JSON, at a key or a path; `FROM json_each(…)` makes rows of them.",
        takes: &[("json", Takes::Text), ("path", Takes::Text)],
        least: 1,
        repeats: false,
        returned: |_| Ok(DataType::Struct(fields())),
        made: |arrays| of_lists(arrays, each),
    },
    Function {
        name: TREE,
        aliases: &[],
        section: SECTION,
        about: "Lists of all values of a text of JSON, at a key or a path, itself the first; `FROM json_tree(…)` makes rows of them.",
        takes: &[("json", Takes::Text), ("path", Takes::Text)],
        least: 1,
        repeats: false,
        returned: |_| Ok(DataType::Struct(fields())),
        made: |arrays| of_lists(arrays, tree),
    },
];

fn fields() -> Fields {
    COLUMNS.iter().map(|name| field(name)).collect()
}

fn field(name: &str) -> FieldRef {
    let kind = match name {
        "id" | "parent" => DataType::UInt64,
        _ => DataType::Utf8View,
    };
    let element = Arc::new(Field::new_list_field(kind, true));
    Arc::new(Field::new(name, DataType::List(element), true))
}

/// A value of which a row is made.
struct Row<'a> {
    name: Option<Name<'a>>,
    found: Found<'a>,
    /// The number of what it is in, where that has a row, too.
    parent: Option<u64>,
    /// Where that is.
    path: String,
}

impl<'a> Row<'a> {
    /// That of a value that is in no other one.
    fn of_root(found: Found<'a>) -> Self {
        Self {
            name: None,
            path: found.path.clone(),
            found,
            parent: None,
        }
    }

    /// Those of what is in a value.
    fn within(found: &Found<'a>, parent: Option<u64>) -> impl Iterator<Item = Self> + use<'a> {
        let path = found.path.clone();
        found.within().map(move |(name, found)| Self {
            name: Some(name),
            found,
            parent,
            path: path.clone(),
        })
    }
}

/// The rows of a value: of what is in it, or of itself where nothing can be.
fn each<'a>(found: Found<'a>, row: &mut dyn FnMut(&Row<'a>) -> Result<()>) -> Result<()> {
    match found.value.is_nested() {
        true => Row::within(&found, None).try_for_each(|within| row(&within)),
        false => row(&Row::of_root(found)),
    }
}

/// The rows of a value, and of all that is in it.
fn tree<'a>(found: Found<'a>, row: &mut dyn FnMut(&Row<'a>) -> Result<()>) -> Result<()> {
    let mut waiting = vec![Row::of_root(found)];
    while let Some(next) = waiting.pop() {
        row(&next)?;
        let first = waiting.len();
        waiting.extend(Row::within(&next.found, Some(next.found.number)));
        if let Some(added) = waiting.get_mut(first..) {
            added.reverse();
        }
    }
    Ok(())
}

type Walk = for<'a> fn(Found<'a>, &mut dyn FnMut(&Row<'a>) -> Result<()>) -> Result<()>;

/// Calls what takes rows for each of one text.
fn walk(
    arrays: &[ArrayRef],
    place: usize,
    walk: Walk,
    row: &mut dyn FnMut(&Row<'_>) -> Result<()>,
) -> Result<()> {
    let (texts, paths) = match arrays {
        [texts] => (texts.as_string_view(), None),
        [texts, paths] => (texts.as_string_view(), Some(paths.as_string_view())),
        _ => return internal_err!("rows of {} columns", arrays.len()),
    };
    let path = match paths {
        None => "$",
        Some(paths) if paths.is_valid(place) => paths.value(place),
        Some(_) => return Ok(()),
    };
    if texts.is_null(place) {
        return Ok(());
    }
    let json = Json::read(texts.value(place))?;
    match json.at(path)? {
        Some(found) => walk(found, row),
        None => Ok(()),
    }
}

/// Lists side by side, of the rows of each text.
fn of_lists(arrays: &[ArrayRef], of: Walk) -> Result<ArrayRef> {
    let count = arrays.first().map_or(0, Array::len);
    let mut columns = Columns::default();
    let mut lengths = Vec::with_capacity(count);
    for place in 0..count {
        let mut length = 0;
        walk(arrays, place, of, &mut |row| {
            length += 1;
            columns.add(row)
        })?;
        lengths.push(length);
    }
    let offsets = OffsetBuffer::<i32>::from_lengths(lengths);
    let lists = columns.finish().into_iter().map(|values| {
        let element = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        let list = ListArray::try_new(element, offsets.clone(), values, None)?;
        Ok(Arc::new(list) as ArrayRef)
    });
    let lists = lists.collect::<Result<Vec<_>>>()?;
    let nulls: Option<NullBuffer> = None;
    Ok(Arc::new(StructArray::try_new(fields(), lists, nulls)?))
}

/// The values of all rows.
#[derive(Default)]
struct Columns {
    keys: StringViewBuilder,
    values: StringViewBuilder,
    types: StringViewBuilder,
    atoms: StringViewBuilder,
    ids: UInt64Builder,
    parents: UInt64Builder,
    full_keys: StringViewBuilder,
    paths: StringViewBuilder,
}

impl Columns {
    fn add(&mut self, row: &Row<'_>) -> Result<()> {
        let value = row.found.value;
        let text = value.text()?;
        let is_atom = !value.is_nested() && *value != Json::Null;
        let key = row.name.map(Name::text);
        self.keys.append_option(key);
        self.atoms.append_option(is_atom.then_some(&text));
        self.values.try_append_value(&text)?;
        self.types.append_value(value.type_name());
        self.ids.append_value(row.found.number);
        self.parents.append_option(row.parent);
        self.full_keys.try_append_value(&row.found.path)?;
        self.paths.try_append_value(&row.path)?;
        Ok(())
    }

    /// In the order of [`COLUMNS`].
    fn finish(mut self) -> [ArrayRef; 8] {
        [
            Arc::new(self.keys.finish()),
            Arc::new(self.values.finish()),
            Arc::new(self.types.finish()),
            Arc::new(self.atoms.finish()),
            Arc::new(self.ids.finish()),
            Arc::new(self.parents.finish()),
            Arc::new(self.full_keys.finish()),
            Arc::new(self.paths.finish()),
        ]
    }
}

/// How many bytes the rows of texts have at most.
pub(super) fn most_bytes(arrays: &[ArrayRef]) -> f64 {
    let count = arrays.first().map_or(0, Array::len);
    let mut bytes = 0.0;
    for place in 0..count {
        let walked = walk(arrays, place, tree, &mut |row| {
            bytes += of_row(row)?;
            Ok(())
        });
        // What is wrong is said when they are made.
        if walked.is_err() {
            return 0.0;
        }
    }
    bytes
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn of_row(row: &Row<'_>) -> Result<f64> {
    let texts = 2 * row.found.value.text()?.len() + 2 * row.found.path.len() + row.path.len();
    // Six views, and two numbers.
    Ok((texts + 6 * 16 + 2 * 8) as f64)
}

#[cfg(test)]
mod tests {
    use arrow::array::StringViewArray;

    use super::*;

    fn rows(text: &str, of: Walk) -> Vec<[String; 8]> {
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec![None, Some(text)]));
        let lists = of_lists(&[Arc::clone(&texts)], of).unwrap();
        let lists = lists.as_struct();
        let columns = lists.columns().iter().map(|column| {
            let column = column.as_list::<i32>();
            assert_eq!(column.value_length(0), 0);
            let values = arrow::compute::cast(&column.value(1), &DataType::Utf8).unwrap();
            let values = values.as_string::<i32>().iter();
            values
                .map(|value| value.unwrap_or("-").to_owned())
                .collect()
        });
        let columns: Vec<Vec<String>> = columns.collect();
        let count = columns.first().unwrap().len();
        let made: Vec<[String; 8]> = (0..count)
            .map(|row| std::array::from_fn(|column| columns[column][row].clone()))
            .collect();
        let bytes: usize = made.iter().flatten().map(String::len).sum();
        assert!(f64::from(u32::try_from(bytes).unwrap()) <= most_bytes(&[texts]));
        made
    }

    #[test]
    fn rows_say_what_is_where() {
        let each_of = rows(r#"{"a":null,"b c":[1]}"#, each);
        assert_eq!(
            each_of,
            [
                ["a", "null", "NULL", "-", "2", "-", "$.a", "$"],
                ["b c", "[1]", "ARRAY", "-", "4", "-", "$.\"b c\"", "$"],
            ]
        );
        assert_eq!(
            rows("5", each),
            [["-", "5", "UBIGINT", "5", "0", "-", "$", "$"]]
        );
        let none: [[&str; 8]; 0] = [];
        assert_eq!(rows("[]", each), none);
        let tree_of = rows(r#"[[1],{"k":[]}]"#, tree);
        assert_eq!(
            tree_of,
            [
                ["-", r#"[[1],{"k":[]}]"#, "ARRAY", "-", "0", "-", "$", "$"],
                ["0", "[1]", "ARRAY", "-", "1", "0", "$[0]", "$"],
                ["0", "1", "UBIGINT", "1", "2", "1", "$[0][0]", "$[0]"],
                ["1", r#"{"k":[]}"#, "OBJECT", "-", "3", "0", "$[1]", "$"],
                ["k", "[]", "ARRAY", "-", "5", "3", "$[1].k", "$[1]"],
            ]
        );
    }
}
