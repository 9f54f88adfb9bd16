//! What a text of JSON holds, in a row each.
//!
//! Comes in: texts of JSON, a key or a path. Goes out: lists of rows, of what is in them (`json_each`) or anywhere in them (`json_tree`): key, value, type, and where it is, as DuckDB has them. Never here: how lists become rows (`rewrite/laterals.rs`).

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Builder, ListArray, StringViewBuilder, StructArray,
    UInt64Builder,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::internal_err;
use datafusion::error::Result;

use super::json_texts::SECTION;
use super::json_values::{Json, Name};
use super::{Function, Takes};
use crate::query::functions::json::steps_of;

/// The functions of lists, by those of rows, and how they are told to the engine.
pub(in crate::query) const OF_ROWS: [(&str, &str); 2] = [("json_each", EACH), ("json_tree", TREE)];

pub(super) const EACH: &str = "__json_each";
pub(super) const TREE: &str = "__json_tree";

/// The columns, in their order.
pub(in crate::query) const COLUMNS: [&str; 8] = [
    "key", "value", "type", "atom", "id", "parent", "fullkey", "path",
];

/// The column of `WITH ORDINALITY`.
pub(in crate::query) const ORDINALITY: &str = "ordinality";

pub(super) const ALL: &[Function] = &[
    Function {
        name: EACH,
        aliases: &[],
        section: SECTION,
        about: "A list of what is in a list or an object of JSON, at a key or a path; `FROM json_each(…)` makes rows of it.",
        takes: &[("json", Takes::Text), ("path", Takes::Text)],
        least: 1,
        repeats: false,
        returned,
        made: |arrays| of_rows(arrays, Depth::One),
    },
    Function {
        name: TREE,
        aliases: &[],
        section: SECTION,
        about: "A list of all values of a text of JSON, at a key or a path, itself the first; `FROM json_tree(…)` makes rows of it.",
        takes: &[("json", Takes::Text), ("path", Takes::Text)],
        least: 1,
        repeats: false,
        returned,
        made: |arrays| of_rows(arrays, Depth::All),
    },
];

fn returned(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::new_list(DataType::Struct(fields()), true))
}

fn fields() -> Fields {
    let names = COLUMNS.into_iter().chain([ORDINALITY]);
    let field = |name| {
        let kind = match name {
            "id" | "parent" => DataType::UInt64,
            ORDINALITY => DataType::Int64,
            _ => DataType::Utf8View,
        };
        Arc::new(Field::new(name, kind, true))
    };
    names.map(field).collect()
}

/// Of which values there are rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// Of what is in a value, or of the value where nothing can be.
    One,
    /// Of a value, and of all that is in it.
    All,
}

/// A value of which a row is made.
struct Row<'a> {
    name: Option<Name<'a>>,
    value: &'a Json,
    /// Its place among all values and keys of the text, from 0.
    number: u64,
    /// The number of what it is in, where that has a row, too.
    parent: Option<u64>,
    /// Where that is; of a value that is in none, where it is itself.
    path: &'a str,
}

/// What is done with each row.
type Each<'a> = dyn FnMut(&Row<'_>) -> Result<()> + 'a;

/// Goes over the rows of a text.
fn walk(arrays: &[ArrayRef], place: usize, depth: Depth, each: &mut Each<'_>) -> Result<()> {
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
    let (mut found, mut number, mut path_there) = (&json, 0, String::from("$"));
    for step in steps_of(path)? {
        let Some(place) = found.place_of(&step) else {
            return Ok(());
        };
        let before = (0..place).filter_map(|place| found.within(place));
        number += before
            .map(|(name, value)| name.count() - 1 + value.count())
            .sum::<u64>();
        let Some((name, within)) = found.within(place) else {
            return Ok(());
        };
        number += name.count();
        name.add_to(&mut path_there);
        found = within;
    }
    if depth == Depth::All || !found.is_nested() {
        each(&Row {
            name: None,
            value: found,
            number,
            parent: None,
            path: &path_there,
        })?;
    }
    walk_within((found, number), &mut path_there, depth, each)?;
    Ok(())
}

/// Goes over the rows of what is in a value with a number. Gives the number of the last value that is in it.
fn walk_within(
    (value, mut number): (&Json, u64),
    path: &mut String,
    depth: Depth,
    each: &mut Each<'_>,
) -> Result<u64> {
    let parent = (depth == Depth::All).then_some(number);
    for (name, within) in (0..).map_while(|place| value.within(place)) {
        number += name.count();
        each(&Row {
            name: Some(name),
            value: within,
            number,
            parent,
            path,
        })?;
        if depth == Depth::All && within.is_nested() {
            let length = path.len();
            name.add_to(path);
            number = walk_within((within, number), path, depth, each)?;
            path.truncate(length);
        } else {
            number += within.count() - 1;
        }
    }
    Ok(number)
}

/// Lists of the rows of each text.
fn of_rows(arrays: &[ArrayRef], depth: Depth) -> Result<ArrayRef> {
    let count = arrays.first().map_or(0, Array::len);
    let mut columns = Columns::default();
    let mut lengths = Vec::with_capacity(count);
    for place in 0..count {
        let mut length = 0;
        walk(arrays, place, depth, &mut |row| {
            length += 1;
            columns.add(row, i64::try_from(length).unwrap_or(i64::MAX))
        })?;
        lengths.push(length);
    }
    let columns = columns.finish();
    let rows = StructArray::try_new(fields(), columns, None)?;
    let element = Arc::new(Field::new_list_field(rows.data_type().clone(), true));
    let offsets = OffsetBuffer::<i32>::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(
        element,
        offsets,
        Arc::new(rows),
        None,
    )?))
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
    ordinalities: Int64Builder,
}

impl Columns {
    fn add(&mut self, row: &Row<'_>, ordinality: i64) -> Result<()> {
        let text = row.value.text()?;
        let is_atom = !row.value.is_nested() && *row.value != Json::Null;
        let mut full_key = row.path.to_owned();
        if let Some(name) = row.name {
            name.add_to(&mut full_key);
        }
        self.keys.append_option(row.name.map(Name::text));
        self.atoms.append_option(is_atom.then_some(&text));
        self.values.try_append_value(&text)?;
        self.types.append_value(row.value.type_name());
        self.ids.append_value(row.number);
        self.parents.append_option(row.parent);
        self.full_keys.try_append_value(&full_key)?;
        self.paths.try_append_value(row.path)?;
        self.ordinalities.append_value(ordinality);
        Ok(())
    }

    /// In the order of [`fields`].
    fn finish(mut self) -> Vec<ArrayRef> {
        vec![
            Arc::new(self.keys.finish()),
            Arc::new(self.values.finish()),
            Arc::new(self.types.finish()),
            Arc::new(self.atoms.finish()),
            Arc::new(self.ids.finish()),
            Arc::new(self.parents.finish()),
            Arc::new(self.full_keys.finish()),
            Arc::new(self.paths.finish()),
            Arc::new(self.ordinalities.finish()),
        ]
    }
}

/// How many bytes the rows of texts have at most, of each value in them or of all.
pub(super) fn most_bytes_of_each(arrays: &[ArrayRef]) -> f64 {
    most_bytes(arrays, Depth::One)
}

pub(super) fn most_bytes_of_tree(arrays: &[ArrayRef]) -> f64 {
    most_bytes(arrays, Depth::All)
}

fn most_bytes(arrays: &[ArrayRef], depth: Depth) -> f64 {
    let mut bytes = 0.0;
    for place in 0..arrays.first().map_or(0, Array::len) {
        let walked = walk(arrays, place, depth, &mut |row| {
            bytes += of_row(row);
            Ok(())
        });
        // What is wrong is said when they are made, which ends there.
        if walked.is_err() {
            break;
        }
    }
    bytes
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn of_row(row: &Row<'_>) -> f64 {
    let name = row.name.map_or(0, Name::most_bytes);
    let texts = 2 * row.value.most_bytes() + 2 * row.path.len() + 2 * name;
    // Six views, and three numbers.
    (texts + 6 * 16 + 3 * 8) as f64
}

#[cfg(test)]
mod tests {
    use arrow::array::StringViewArray;

    use super::*;

    fn rows(text: &str, path: &str, depth: Depth) -> Vec<Vec<String>> {
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec![None, Some(text)]));
        let paths: ArrayRef = Arc::new(StringViewArray::from(vec![path, path]));
        let arguments = [texts, paths];
        let lists = of_rows(&arguments, depth).unwrap();
        let lists = lists.as_list::<i32>();
        assert_eq!(lists.value_length(0), 0);
        let found = lists.value(1);
        let columns = found.as_struct().columns().iter().map(|values| {
            let values = arrow::compute::cast(values, &DataType::Utf8).unwrap();
            let values = values.as_string::<i32>().iter();
            values
                .map(|value| value.unwrap_or("-").to_owned())
                .collect()
        });
        let columns: Vec<Vec<String>> = columns.collect();
        let made: Vec<Vec<String>> = (0..found.len())
            .map(|row| columns.iter().map(|column| column[row].clone()).collect())
            .collect();
        let bytes: usize = made.iter().flatten().map(String::len).sum();
        let bytes = f64::from(u32::try_from(bytes).unwrap());
        assert!(bytes <= most_bytes(&arguments, depth), "{text}");
        made
    }

    #[test]
    fn one_wrong_text_does_not_hide_others() {
        let long = format!("[{}0]", "0,".repeat(10_000));
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec![long.as_str(), "x"]));
        assert!(most_bytes(&[texts], Depth::One) > 1_000_000.0);
    }

    #[test]
    fn rows_say_what_is_where() {
        let each = rows(r#"{"a":null,"b c":[1]}"#, "$", Depth::One);
        assert_eq!(
            each,
            [
                ["a", "null", "NULL", "-", "2", "-", "$.a", "$", "1"],
                ["b c", "[1]", "ARRAY", "-", "4", "-", "$.\"b c\"", "$", "2"],
            ]
        );
        let one = rows("5", "$", Depth::One);
        assert_eq!(one, [["-", "5", "UBIGINT", "5", "0", "-", "$", "$", "1"]]);
        assert!(rows("[]", "$", Depth::One).is_empty());
        assert!(rows("[]", "$[0]", Depth::All).is_empty());
        let tree = rows(r#"[[1],{"k":[]}]"#, "$", Depth::All);
        assert_eq!(
            tree,
            [
                [
                    "-",
                    r#"[[1],{"k":[]}]"#,
                    "ARRAY",
                    "-",
                    "0",
                    "-",
                    "$",
                    "$",
                    "1"
                ],
                ["0", "[1]", "ARRAY", "-", "1", "0", "$[0]", "$", "2"],
                ["0", "1", "UBIGINT", "1", "2", "1", "$[0][0]", "$[0]", "3"],
                [
                    "1",
                    r#"{"k":[]}"#,
                    "OBJECT",
                    "-",
                    "3",
                    "0",
                    "$[1]",
                    "$",
                    "4"
                ],
                ["k", "[]", "ARRAY", "-", "5", "3", "$[1].k", "$[1]", "5"],
            ]
        );
        let within = rows(r#"{"a":[7,8],"b":[1,{"c":2}]}"#, "$.b", Depth::All);
        let places: Vec<[&str; 3]> = within
            .iter()
            .map(|row| [row[4].as_str(), row[5].as_str(), row[6].as_str()])
            .collect();
        assert_eq!(
            places,
            [
                ["6", "-", "$.b"],
                ["7", "6", "$.b[0]"],
                ["8", "6", "$.b[1]"],
                ["10", "8", "$.b[1].c"],
            ]
        );
    }
}
