//! Texts of JSON: `j -> 'a'`, `j ->> '$.a[0]'`, and the functions by the names that PostgreSQL and DuckDB have for them. What reads them is the library `datafusion-functions-json`.
//!
//! Comes in: a context of the engine; an operator or a call in a parsed statement. Goes out: the same with the functions; calls whose paths are keys, one after the other. Never here: values of several types in one column, which
//! nothing else that reads Arrow knows (`json_get` of the library), and metadata of columns.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, interleave, take};
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value,
};
use datafusion_functions_json::udfs;

use crate::error::{Error, ErrorKind, Result};
use crate::query::plan::types::bare::{bare, values_of};
use crate::query::rewrite::called::called;
use crate::query::rewrite::dialect::ARROW;
use crate::query::rewrite::written::without_parentheses;

/// What `->` is.
const JSON: &str = "json_get_json";
/// What `->>` is.
const TEXT: &str = "json_as_text";

/// Adds the functions.
pub(super) fn add_to(context: &SessionContext) {
    for function in functions() {
        context.register_udf(ScalarUDF::from(OfJson::new(function)));
    }
}

/// Those that take a text of JSON, and keys.
fn functions() -> [Arc<ScalarUDF>; 10] {
    [
        udfs::json_as_text_udf(),
        udfs::json_contains_udf(),
        udfs::json_get_array_udf(),
        udfs::json_get_bool_udf(),
        udfs::json_get_float_udf(),
        udfs::json_get_int_udf(),
        udfs::json_get_json_udf(),
        udfs::json_get_str_udf(),
        udfs::json_length_udf(),
        udfs::json_object_keys_udf(),
    ]
}

/// Whether a function is one of them.
fn is_known_function(name: &str) -> bool {
    functions().iter().any(|function| {
        let mut aliases = function.aliases().iter();
        function.name() == name || aliases.any(|alias| alias == name)
    })
}

/// One of the functions, which also takes paths that are not written in the statement, and NULL; of dictionaries it takes the values.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfJson {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl OfJson {
    fn new(inner: Arc<ScalarUDF>) -> Self {
        let signature = Signature::user_defined(inner.signature().volatility);
        Self { inner, signature }
    }
}

impl ScalarUDFImpl for OfJson {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        // What is something else is refused by the library, in its words.
        let coerced = types.iter().enumerate().map(|(place, kind)| match kind {
            DataType::Null => DataType::Utf8,
            kind if place > 0 && kind.is_integer() => DataType::Int64,
            kind => values_of(kind).clone(),
        });
        Ok(coerced.collect())
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        let kind = self.inner.return_type(types)?;
        Ok(bare(&kind).unwrap_or(kind))
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let is_null = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(scalar) if scalar.is_null());
        if call.args.is_empty() || call.args.iter().any(is_null) {
            let kind = call.return_field.data_type();
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from(kind)?));
        }
        let given = call.args.clone();
        let found = self.found(call)?;
        // The library says that what is null has no key.
        match found.data_type() {
            DataType::Boolean => where_known(found, &given),
            kind => match bare(&kind) {
                Some(kind) => found.cast_to(&kind, None),
                None => Ok(found),
            },
        }
    }
}

/// Truth values, but null where something is that they are about.
fn where_known(found: ColumnarValue, given: &[ColumnarValue]) -> DataFusionResult<ColumnarValue> {
    let ColumnarValue::Array(found) = found else {
        return Ok(found);
    };
    let mut nulls = found.logical_nulls();
    for value in given {
        if let ColumnarValue::Array(value) = value {
            nulls = NullBuffer::union(nulls.as_ref(), value.logical_nulls().as_ref());
        }
    }
    let values = found.as_boolean().values().clone();
    Ok(ColumnarValue::Array(Arc::new(BooleanArray::new(
        values, nulls,
    ))))
}

impl OfJson {
    fn found(&self, mut call: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let keys = call.args.split_off(1);
        if let [ColumnarValue::Array(paths)] = keys.as_slice()
            && has_path(paths)?
        {
            return self.by_paths(&call, paths);
        }
        for key in keys {
            match &key {
                ColumnarValue::Scalar(scalar) => match scalar.try_as_str().flatten() {
                    Some(path) if is_path(path) => {
                        let steps = steps(path)?.into_iter().map(Step::scalar);
                        call.args.extend(steps.map(ColumnarValue::Scalar));
                    }
                    _ => call.args.push(key),
                },
                ColumnarValue::Array(_) => call.args.push(key),
            }
        }
        self.inner.invoke_with_args(call)
    }

    /// What lies at the path that each row has: the rows of one path at once.
    fn by_paths(
        &self,
        call: &ScalarFunctionArgs,
        paths: &ArrayRef,
    ) -> DataFusionResult<ColumnarValue> {
        let texts = ColumnarValue::values_to_arrays(&call.args)?;
        let [texts] = texts.as_slice() else {
            return datafusion::common::internal_err!("{} of {} texts", self.name(), texts.len());
        };
        let texts = match texts.len() == paths.len() {
            true => Arc::clone(texts),
            false => ScalarValue::try_from_array(texts, 0)?.to_array_of_size(paths.len())?,
        };
        let paths = cast(paths, &DataType::Utf8)?;
        let mut rows: HashMap<Option<&str>, Vec<u32>> = HashMap::new();
        for (row, path) in (0..).zip(paths.as_string::<i32>()) {
            rows.entry(path).or_default().push(row);
        }
        let mut places = vec![(0, 0); paths.len()];
        let mut parts = Vec::with_capacity(rows.len());
        for (part, (path, rows)) in rows.into_iter().enumerate() {
            let count = rows.len();
            for (row, place) in rows.iter().zip(0..) {
                if let Some(found) = places.get_mut(*row as usize) {
                    *found = (part, place);
                }
            }
            let texts = take(&texts, &UInt32Array::from(rows), None)?;
            let path = ScalarValue::Utf8(path.map(str::to_owned));
            let args = vec![ColumnarValue::Array(texts), ColumnarValue::Scalar(path)];
            let values = self.invoke_with_args(ScalarFunctionArgs {
                args,
                number_rows: count,
                ..call.clone()
            })?;
            parts.push(values.into_array(count)?);
        }
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        Ok(ColumnarValue::Array(interleave(&parts, &places)?))
    }
}

/// Whether one of the texts is a path.
fn has_path(keys: &ArrayRef) -> DataFusionResult<bool> {
    if !keys.data_type().is_string() {
        return Ok(false);
    }
    let keys = cast(keys, &DataType::Utf8View)?;
    Ok(keys.as_string_view().iter().flatten().any(is_path))
}

/// Whether [`in_words`] has something to do with it.
pub(in crate::query) fn is_written(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryOp { op, .. } => function_of(op).is_some(),
        Expr::Function(call) => arguments_of(call)
            .is_some_and(|arguments| arguments.iter().skip(1).any(|key| path_of(key).is_some())),
        _ => false,
    }
}

/// Puts calls in place of operators, and keys in place of paths.
///
/// # Errors
/// `Query` for a path that cannot be read, `Unsupported` for one of several values.
pub(in crate::query) fn in_words(expr: &mut Expr) -> Result<()> {
    match expr {
        Expr::BinaryOp { left, op, right } => {
            if let Some(name) = function_of(op) {
                *expr = found(name, left, [right.as_ref()])?;
            }
        }
        Expr::Function(call) => {
            if let Some(arguments) = arguments_of(call)
                && let Some((json, keys)) = arguments.split_first()
            {
                *expr = found(
                    &call.name.to_string().to_lowercase(),
                    json,
                    keys.iter().copied(),
                )?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn function_of(op: &BinaryOperator) -> Option<&'static str> {
    match op {
        BinaryOperator::Custom(name) if name == ARROW => Some(JSON),
        BinaryOperator::LongArrow => Some(TEXT),
        _ => None,
    }
}

/// The arguments of a call of one of the functions.
fn arguments_of(call: &Function) -> Option<Vec<&Expr>> {
    if !is_known_function(&call.name.to_string().to_lowercase()) {
        return None;
    }
    let FunctionArguments::List(list) = &call.args else {
        return None;
    };
    let arguments = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
        _ => None,
    });
    arguments.collect()
}

/// The call of a function for what lies at keys. What is taken from what was taken is found at once.
fn found<'a>(name: &str, json: &Expr, keys: impl IntoIterator<Item = &'a Expr>) -> Result<Expr> {
    let mut all = Vec::new();
    for key in keys {
        match path_of(key) {
            Some(path) => all.extend(steps(path)?.into_iter().map(Step::literal)),
            None if matches!(without_parentheses(key), Expr::Array(_)) => {
                let text = format!("functions of JSON take one path, got {key}");
                return Err(
                    Error::unsupported(text).with_hint("name each path in a call of its own")
                );
            }
            None => all.push(without_parentheses(key).clone()),
        }
    }
    let mut json = without_parentheses(json);
    // Several keys must be known.
    if all.iter().all(is_known)
        && let Expr::Function(call) = json
        && call.name.to_string() == JSON
        && let Some(arguments) = arguments_of(call)
        && let Some((within, before)) = arguments.split_first()
        && before.iter().copied().all(is_known)
    {
        all.splice(0..0, before.iter().map(|key| (*key).clone()));
        json = within;
    }
    Ok(called(name, std::iter::once(json.clone()).chain(all)))
}

fn is_known(key: &Expr) -> bool {
    matches!(key, Expr::Value(_))
}

/// A text that is a path: `$`, `$.a`, `$[0]`.
fn path_of(key: &Expr) -> Option<&str> {
    let Expr::Value(value) = without_parentheses(key) else {
        return None;
    };
    let Value::SingleQuotedString(text) = &value.value else {
        return None;
    };
    is_path(text).then_some(text)
}

fn is_path(text: &str) -> bool {
    text == "$" || text.starts_with("$.") || text.starts_with("$[")
}

/// A part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    /// A place in a list, from 0, or from the end.
    Place(i64),
}

impl Step {
    fn literal(self) -> Expr {
        Expr::value(match self {
            Self::Key(key) => Value::SingleQuotedString(key),
            Self::Place(place) => Value::Number(place.to_string(), false),
        })
    }

    fn scalar(self) -> ScalarValue {
        match self {
            Self::Key(key) => ScalarValue::from(key),
            Self::Place(place) => ScalarValue::from(place),
        }
    }
}

/// The keys and numbers of a path, or the one key that a text is.
///
/// # Errors
/// `Query` for a path that cannot be read, `Unsupported` for one of several values.
pub(super) fn steps_of(text: &str) -> Result<Vec<Step>> {
    match is_path(text) {
        true => steps(text),
        false => Ok(vec![Step::Key(text.to_owned())]),
    }
}

/// The keys and numbers of a path.
fn steps(path: &str) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    while !rest.is_empty() {
        let (step, after) = step(rest).ok_or_else(|| unread(path, rest))?;
        steps.push(step);
        rest = after;
    }
    Ok(steps)
}

/// The first step of what is left of a path, and what comes after it.
fn step(rest: &str) -> Option<(Step, &str)> {
    if let Some(rest) = rest.strip_prefix('[') {
        let (number, after) = rest.split_once(']')?;
        let number = number.trim();
        // From the end, as in SQLite and DuckDB.
        let number = number
            .strip_prefix('#')
            .filter(|number| number.starts_with('-'))
            .unwrap_or(number);
        return Some((Step::Place(number.parse().ok()?), after));
    }
    let rest = rest.strip_prefix('.')?;
    if let Some(quoted) = rest.strip_prefix('"') {
        return quoted_key(quoted).map(|(key, after)| (Step::Key(key), after));
    }
    let (key, after) = rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len()));
    let is_one = !key.is_empty() && key != "*";
    is_one.then(|| (Step::Key(key.to_owned()), after))
}

/// A key up to its quotation mark, and what comes after that. Marks and backslashes in it have a backslash before them.
fn quoted_key(text: &str) -> Option<(String, &str)> {
    let mut key = String::new();
    let mut letters = text.char_indices().peekable();
    while let Some((place, letter)) = letters.next() {
        match letter {
            '"' => return Some((key, text.get(place + 1..)?)),
            '\\' => match letters.next_if(|(_, next)| matches!(next, '"' | '\\')) {
                Some((_, escaped)) => key.push(escaped),
                None => key.push(letter),
            },
            _ => key.push(letter),
        }
    }
    None
}

fn unread(path: &str, rest: &str) -> Error {
    let text = format!("the path '{path}' must be of keys and numbers, got `{rest}` in it");
    match rest.contains(['*', '?']) || rest.starts_with("..") {
        true => Error::unsupported(format!("{text}, which is several values"))
            .with_hint("the values of a list in a row each: unnest(json_get_array(json, 'key'))"),
        false => Error::new(ErrorKind::Query, text).with_hint("such as '$.key[0].\"another key\"'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::rewrite::row_in::parsed;

    fn written(text: &str) -> String {
        let mut expr = parsed(text).unwrap();
        in_words(&mut expr).unwrap();
        expr.to_string()
    }

    #[test]
    fn operators_and_paths_are_calls_with_keys() {
        let cases = [
            ("t.j ->> 0", "json_as_text(t.j, 0)"),
            ("j ->> '$'", "json_as_text(j)"),
            (
                "j ->> '$.a[2].\"b.c\".d'",
                "json_as_text(j, 'a', 2, 'b.c', 'd')",
            ),
            ("json_length(j, '$[-1]')", "json_length(j, -1)"),
            (
                r#"json_length(j, '$."".a."b\"\\c\d"')"#,
                r#"json_length(j, '', 'a', 'b"\c\d')"#,
            ),
            (
                "json_as_text(json_get_json(j, 'a'), 'b')",
                "json_as_text(j, 'a', 'b')",
            ),
            (
                "json_as_text(json_get_json(j, k), 'b')",
                "json_as_text(json_get_json(j, k), 'b')",
            ),
            ("json_as_text(j, '$a')", "json_as_text(j, '$a')"),
        ];
        for (text, expected) in cases {
            assert_eq!(written(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for path in [
            "$.", "$[", "$[a]", "$.a[*]", "$.*", "$..a", "$.\"a", "$.a[0]b",
        ] {
            assert!(steps(path).is_err(), "{path}");
        }
        let error = steps("$.a[*].b").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("got `[*].b` in it"), "{error}");
    }
}
