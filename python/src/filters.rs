//! `filters=`: tuples as pyarrow and Polars users write them -> conditions of the core.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, IntervalMonthDayNanoArray,
    StringArray, UInt64Array, new_null_array,
};
use arrow::datatypes::{DataType, IntervalMonthDayNanoType};
use partgrid::error::Error;
use partgrid::load::{FilterCondition, FilterOperator};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDelta, PyDict, PyFloat, PyInt, PyString, PyTuple,
};

use crate::argument::shown;
use crate::error::Outcome;

/// What a hint says of operators.
const OPERATORS: &str =
    "operators are =, ==, !=, <>, <, <=, >, >=, in, not in, is null, is not null";

/// The groups of conditions: a list of tuples is one group, a list of lists of tuples are several.
pub(crate) fn filters(wish: &Bound<'_, PyAny>) -> Outcome<Vec<Vec<FilterCondition>>> {
    if let Some(tuple) = as_condition(wish) {
        return Err(no_list(wish).with_hint(format!("filters=[{tuple}]")).into());
    }
    let groups = parts(wish).ok_or_else(|| no_list(wish))?;
    let plain = groups.iter().all(|each| each.is_instance_of::<PyTuple>());
    if plain && !groups.is_empty() {
        return Ok(vec![group(&groups)?]);
    }
    let several = groups.iter().map(|each| {
        if let Some(tuple) = as_condition(each).filter(|_| !each.is_instance_of::<PyTuple>()) {
            let alone = groups.len() == 1;
            let hint = if alone {
                format!("filters=[{tuple}]")
            } else {
                format!("write {tuple}")
            };
            return Err(no_list(wish).with_hint(hint).into());
        }
        let conditions = parts(each).ok_or_else(|| no_list(wish))?;
        group(&conditions)
    });
    several.collect()
}

fn no_list(wish: &Bound<'_, PyAny>) -> Error {
    Error::invalid_argument(format!(
        "filters must be a list of tuples (column, operator, value), or a list of such lists, got {}",
        shown(wish)
    ))
}

/// A tuple or list that reads like a condition, as the tuple it should be.
fn as_condition(object: &Bound<'_, PyAny>) -> Option<String> {
    let parts = parts(object)?;
    let starts = parts.first()?.is_instance_of::<PyString>();
    let named = parts.get(1)?.extract::<String>().ok()?;
    if !starts || parts.len() > 3 || operator(&named).is_none() {
        return None;
    }
    Some(shown(PyTuple::new(object.py(), parts).ok()?.as_any()))
}

/// What an object holds, if it is no text, no bytes and no mapping.
fn parts<'py>(object: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    let other = object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyBytes>()
        || object.is_instance_of::<PyByteArray>()
        || object.is_instance_of::<PyDict>();
    if other {
        return None;
    }
    object.try_iter().ok()?.collect::<PyResult<_>>().ok()
}

fn group(conditions: &[Bound<'_, PyAny>]) -> Outcome<Vec<FilterCondition>> {
    conditions.iter().map(condition).collect()
}

fn condition(tuple: &Bound<'_, PyAny>) -> Outcome<FilterCondition> {
    let wrong = || {
        let got = shown(tuple);
        let text = format!("a filter must be a tuple (column, operator, value), got {got}");
        Error::invalid_argument(text).with_hint(OPERATORS)
    };
    let parts: Vec<Bound<'_, PyAny>> = match tuple.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().collect(),
        Err(_) => return Err(wrong().into()),
    };
    let (column, name, value) = match parts.as_slice() {
        [column, name] => (column, name, None),
        [column, name, value] => (column, name, Some(value)),
        _ => return Err(wrong().into()),
    };
    let Ok(column) = column.extract::<String>() else {
        return Err(wrong().into());
    };
    let operator = name
        .extract::<String>()
        .ok()
        .and_then(|name| operator(&name));
    let operator = operator.ok_or_else(|| {
        let (got, of) = (shown(name), shown(tuple));
        Error::invalid_argument(format!(
            "a filter has an unknown operator, got {got} in {of}"
        ))
        .with_hint(OPERATORS)
    })?;
    let values = match (operator, value) {
        (FilterOperator::IsNull | FilterOperator::IsNotNull, None) => Vec::new(),
        (FilterOperator::IsNull | FilterOperator::IsNotNull, Some(value)) if value.is_none() => {
            Vec::new()
        }
        (FilterOperator::IsNull | FilterOperator::IsNotNull, Some(_)) => return Err(wrong().into()),
        (_, None) => return Err(wrong().into()),
        (FilterOperator::In | FilterOperator::NotIn, Some(values)) => several(values)?,
        (_, Some(value)) => vec![plain(value)?],
    };
    let values = literals(&values)?;
    Ok(FilterCondition {
        column,
        operator,
        values,
    })
}

fn operator(name: &str) -> Option<FilterOperator> {
    Some(match name.to_lowercase().as_str() {
        "=" | "==" => FilterOperator::Equal,
        "!=" | "<>" => FilterOperator::NotEqual,
        "<" => FilterOperator::Less,
        "<=" => FilterOperator::LessOrEqual,
        ">" => FilterOperator::Greater,
        ">=" => FilterOperator::GreaterOrEqual,
        "in" => FilterOperator::In,
        "not in" => FilterOperator::NotIn,
        "is null" => FilterOperator::IsNull,
        "is not null" => FilterOperator::IsNotNull,
        _ => return None,
    })
}

/// The values of `in` and `not in`, as plain Python values.
fn several<'py>(values: &Bound<'py, PyAny>) -> Outcome<Vec<Bound<'py, PyAny>>> {
    let refused = || {
        let got = shown(values);
        Error::invalid_argument(format!(
            "the filters `in` and `not in` take a list, tuple, set, range or array of values, got {got}"
        ))
    };
    // Whole arrays turn into Python values at once. Those of times would turn into numbers without a unit.
    let of_times = kind(values).is_some_and(|kind| kind == "M" || kind == "m");
    for method in ["to_pylist", "tolist", "to_list"] {
        if !of_times && values.hasattr(method)? {
            let list = values.call_method0(method)?;
            return Ok(parts(&list).ok_or_else(refused)?);
        }
    }
    let values = parts(values).ok_or_else(refused)?;
    let mut plain_values = Vec::with_capacity(values.len());
    for value in values {
        plain_values.push(plain(&value)?);
    }
    Ok(plain_values)
}

/// The letter that numpy and pandas have for the kind of values.
fn kind(object: &Bound<'_, PyAny>) -> Option<String> {
    let data_type = object.getattr("dtype").ok()?;
    data_type.getattr("kind").ok()?.extract().ok()
}

/// A scalar of numpy or pyarrow as a Python value; others as they are.
fn plain<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if value.hasattr("as_py")? {
        return value.call_method0("as_py");
    }
    if kind(value).is_none_or(|kind| kind == "M") || !value.hasattr("item")? {
        return Ok(value.clone());
    }
    let item = value.call_method0("item")?;
    // Nanoseconds come as a number without a unit.
    let is_bare = kind(value).is_some_and(|kind| kind == "m") && !item.is_instance_of::<PyDelta>();
    Ok(if is_bare { value.clone() } else { item })
}

/// What values are compared as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Truth,
    Number,
    Bytes,
    Text,
    Duration,
}

impl Family {
    /// `None` for what is no value of a column.
    fn of(value: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        if value.is_instance_of::<PyBool>() {
            return Ok(Some(Self::Truth));
        }
        if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>() {
            return Ok(Some(Self::Number));
        }
        if value.is_instance_of::<PyBytes>() {
            return Ok(Some(Self::Bytes));
        }
        if value.is_instance_of::<PyString>() {
            return Ok(Some(Self::Text));
        }
        if value.is_instance_of::<PyDelta>() {
            return Ok(Some(Self::Duration));
        }
        let is = |module: &str, class: &str| {
            let class = value.py().import(module)?.getattr(class)?;
            value.is_instance(&class)
        };
        if is("decimal", "Decimal")? {
            return Ok(Some(Self::Number));
        }
        let as_text = is("datetime", "date")?
            || is("datetime", "time")?
            || is("uuid", "UUID")?
            || kind(value).is_some_and(|kind| kind == "M");
        Ok(as_text.then_some(Self::Text))
    }
}

/// Python values of one family as an array. What Arrow can read from text (dates, times, decimals) goes as text.
fn literals(values: &[Bound<'_, PyAny>]) -> Outcome<ArrayRef> {
    if values.is_empty() || values.iter().any(|value| value.is_none()) {
        return Ok(new_null_array(&DataType::Null, values.len()));
    }
    let family = family(values)?;
    let all = |is: fn(&Bound<'_, PyAny>) -> bool| values.iter().all(is);
    Ok(match family {
        Family::Truth => Arc::new(BooleanArray::from(extracted::<bool>(values)?)),
        Family::Bytes => {
            let values = extracted::<Vec<u8>>(values)?;
            Arc::new(BinaryArray::from_iter_values(values))
        }
        Family::Duration => Arc::new(durations(values)?),
        Family::Number if all(|value| value.is_instance_of::<PyInt>()) => whole_numbers(values)?,
        Family::Number
            if all(|value| {
                value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>()
            }) =>
        {
            let values = extracted::<f64>(values).map_err(|_| too_large(values))?;
            Arc::new(Float64Array::from(values))
        }
        Family::Number | Family::Text => {
            let texts = values.iter().map(|value| Ok(value.str()?.to_string()));
            let texts: Vec<String> = texts.collect::<PyResult<_>>()?;
            Arc::new(StringArray::from(texts))
        }
    })
}

/// The one family of values.
fn family(values: &[Bound<'_, PyAny>]) -> Outcome<Family> {
    let mut one = None;
    for value in values {
        let family = Family::of(value)?.ok_or_else(|| {
            let text = format!(
                "a filter value must be a number, text, bytes, bool, date, time, datetime, timedelta or Decimal, got {}",
                shown(value)
            );
            let error = Error::invalid_argument(text);
            match parts(value) {
                Some(_) => error.with_hint("the operators that take several values are in and not in"),
                None => error,
            }
        })?;
        if one.is_some_and(|one| one != family) {
            let first = values.first().map(shown).unwrap_or_default();
            let text = format!(
                "the values of a filter must be of one type, got {first} and {}",
                shown(value)
            );
            return Err(Error::invalid_argument(text).into());
        }
        one = Some(family);
    }
    Ok(one.ok_or_else(|| Error::internal("a filter without values"))?)
}

fn whole_numbers(values: &[Bound<'_, PyAny>]) -> Outcome<ArrayRef> {
    if let Ok(values) = extracted::<i64>(values) {
        return Ok(Arc::new(Int64Array::from(values)));
    }
    let values = extracted::<u64>(values).map_err(|_| too_large(values))?;
    Ok(Arc::new(UInt64Array::from(values)))
}

fn too_large(values: &[Bound<'_, PyAny>]) -> Error {
    let does_not_fit = |value: &&Bound<'_, PyAny>| value.extract::<i64>().is_err();
    let got = values.iter().find(does_not_fit).map(shown);
    Error::invalid_argument(format!(
        "the whole numbers of a filter must all fit 64 bits, signed or unsigned, got {}",
        got.unwrap_or_default()
    ))
    .with_hint("decimal.Decimal takes longer ones")
}

/// Times between two moments, in a type that Arrow casts to durations of any unit and to nothing else that counts.
fn durations(values: &[Bound<'_, PyAny>]) -> Outcome<IntervalMonthDayNanoArray> {
    let mut intervals = Vec::with_capacity(values.len());
    for value in values {
        let unit = value.py().import("datetime")?.getattr("timedelta")?;
        let microsecond = unit.call1((0, 0, 1))?;
        let rest = value.rem(&microsecond)?;
        if rest.is_truthy()? {
            let text = format!(
                "a timedelta in a filter must be whole microseconds, got {}",
                shown(value)
            );
            return Err(Error::invalid_argument(text).into());
        }
        let count: Option<i64> = value.floor_div(&microsecond)?.extract().ok();
        let nanoseconds = count
            .and_then(|count| count.checked_mul(1_000))
            .ok_or_else(|| {
                let text = format!(
                    "a timedelta in a filter must be less than 292 years, got {}",
                    shown(value)
                );
                Error::invalid_argument(text)
            })?;
        intervals.push(IntervalMonthDayNanoType::make_value(0, 0, nanoseconds));
    }
    Ok(IntervalMonthDayNanoArray::from(intervals))
}

fn extracted<T>(values: &[Bound<'_, PyAny>]) -> PyResult<Vec<T>>
where
    T: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>,
{
    values.iter().map(|value| value.extract::<T>()).collect()
}
