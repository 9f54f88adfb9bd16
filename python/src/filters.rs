//! `filters=`: tuples as pyarrow and Polars users write them -> conditions of the core.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, StringArray, UInt64Array,
    new_null_array,
};
use arrow::datatypes::DataType;
use partgrid::error::Error;
use partgrid::load::{FilterCondition, FilterOperator};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyList, PySet, PyString, PyTuple};

use crate::error::Outcome;

/// The groups of conditions: a list of tuples is one group, a list of lists of tuples are several.
pub(crate) fn filters(wish: &Bound<'_, PyAny>) -> Outcome<Vec<Vec<FilterCondition>>> {
    let groups: Vec<Bound<'_, PyAny>> = wish.try_iter()?.collect::<PyResult<_>>()?;
    let plain = groups.iter().all(|each| each.is_instance_of::<PyTuple>());
    if plain && !groups.is_empty() {
        return Ok(vec![group(&groups)?]);
    }
    let several = groups.iter().map(|each| {
        let conditions: Vec<Bound<'_, PyAny>> = each.try_iter()?.collect::<PyResult<_>>()?;
        group(&conditions)
    });
    several.collect()
}

fn group(conditions: &[Bound<'_, PyAny>]) -> Outcome<Vec<FilterCondition>> {
    conditions.iter().map(condition).collect()
}

fn condition(tuple: &Bound<'_, PyAny>) -> Outcome<FilterCondition> {
    let wrong = || {
        let shown = tuple.repr().map(|text| text.to_string());
        Error::invalid_argument(format!(
            "a filter must be a tuple (column, operator, value), got {}",
            shown.unwrap_or_default()
        ))
        .with_hint("operators are =, ==, !=, <, <=, >, >=, in, not in, is null, is not null")
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
    let (Ok(column), Ok(name)) = (column.extract::<String>(), name.extract::<String>()) else {
        return Err(wrong().into());
    };
    let operator = operator(&name).ok_or_else(wrong)?;
    let values = match (operator, value) {
        (FilterOperator::IsNull | FilterOperator::IsNotNull, None) => Vec::new(),
        (FilterOperator::IsNull | FilterOperator::IsNotNull, Some(value)) if value.is_none() => {
            Vec::new()
        }
        (FilterOperator::IsNull | FilterOperator::IsNotNull, Some(_)) => return Err(wrong().into()),
        (_, None) => return Err(wrong().into()),
        (FilterOperator::In | FilterOperator::NotIn, Some(values)) => several(values)?,
        (_, Some(value)) => vec![value.clone()],
    };
    Ok(FilterCondition {
        column,
        operator,
        values: literals(&values)?,
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

fn several<'py>(values: &Bound<'py, PyAny>) -> Outcome<Vec<Bound<'py, PyAny>>> {
    let collection = values.is_instance_of::<PyList>()
        || values.is_instance_of::<PyTuple>()
        || values.is_instance_of::<PySet>();
    if !collection {
        let text = "the filters `in` and `not in` take a list, tuple or set";
        return Err(Error::invalid_argument(text).into());
    }
    Ok(values.try_iter()?.collect::<PyResult<_>>()?)
}

/// Python values of one type as an array. What Arrow can read from text (dates, times, decimals) goes as text.
fn literals(values: &[Bound<'_, PyAny>]) -> Outcome<ArrayRef> {
    let all = |is: fn(&Bound<'_, PyAny>) -> bool| !values.is_empty() && values.iter().all(is);
    if values.is_empty() || values.iter().any(|value| value.is_none()) {
        return Ok(new_null_array(&DataType::Null, values.len()));
    }
    if all(|value| value.is_instance_of::<PyBool>()) {
        let values: Vec<bool> = extracted(values)?;
        return Ok(Arc::new(BooleanArray::from(values)));
    }
    if all(|value| value.is_instance_of::<PyInt>()) {
        return match extracted::<i64>(values) {
            Ok(values) => Ok(Arc::new(Int64Array::from(values))),
            Err(_) => Ok(Arc::new(UInt64Array::from(extracted::<u64>(values)?))),
        };
    }
    if all(|value| value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>()) {
        let values: Vec<f64> = extracted(values)?;
        return Ok(Arc::new(Float64Array::from(values)));
    }
    if all(|value| value.is_instance_of::<PyBytes>()) {
        let values: Vec<Vec<u8>> = extracted(values)?;
        return Ok(Arc::new(BinaryArray::from_iter_values(values)));
    }
    let texts = values.iter().map(|value| match value.cast::<PyString>() {
        Ok(text) => Ok(text.to_string()),
        Err(_) => Ok(value.str()?.to_string()),
    });
    let texts: Vec<String> = texts.collect::<PyResult<_>>()?;
    Ok(Arc::new(StringArray::from(texts)))
}

fn extracted<T>(values: &[Bound<'_, PyAny>]) -> PyResult<Vec<T>>
where
    T: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>,
{
    values.iter().map(|value| value.extract::<T>()).collect()
}
