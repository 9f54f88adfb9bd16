//! Whatever a producer handed out -> values that the core judges.
//!
//! Comes in: any Python object. Goes out: a `Value`. Never here: judgement; code of the producer, as far as that can be (dictionaries and tuples are read directly); exceptions.

use partgrid::distarray::{BufferFacts, Value};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMemoryView, PyString, PyTuple,
};

/// How deep values are looked into: a section is a dictionary of a tuple of dictionaries of tuples.
const DEPTH: usize = 6;

/// Which integers of buffers are read: nobody reads those of "buffer".
const READ: &str = "indices";

/// The value of an object.
pub(super) fn value_of(object: &Bound<'_, PyAny>) -> Value {
    read(object, DEPTH, false)
}

/// The value of an object that holds integers: those of a buffer are read.
pub(super) fn indices_of(object: &Bound<'_, PyAny>) -> Value {
    read(object, DEPTH, true)
}

fn read(object: &Bound<'_, PyAny>, depth: usize, integers: bool) -> Value {
    let type_name = || name_of(object);
    if object.is_none() {
        return Value::Null;
    }
    if let Ok(value) = object.cast::<PyBool>() {
        return Value::Bool(value.is_true());
    }
    if let Ok(value) = object.cast::<PyInt>() {
        return Value::Int(int_of(value));
    }
    if let Ok(value) = object.cast::<PyFloat>() {
        return Value::Float(value.value());
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Value::Text(text.to_string_lossy().into_owned());
    }
    if depth == 0 {
        return Value::Other(type_name());
    }
    let below = |item: Bound<'_, PyAny>| read(&item, depth - 1, false);
    if let Ok(list) = object.cast::<PyList>() {
        return Value::List(list.iter().map(below).collect());
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return Value::Tuple(tuple.iter().map(below).collect());
    }
    if let Ok(dictionary) = object.cast::<PyDict>() {
        // Code of the producer may run below, and change it.
        let Ok(dictionary) = dictionary.copy() else {
            return Value::Other(type_name());
        };
        let entries = dictionary.iter().map(|(key, value)| {
            let key = read(&key, depth - 1, false);
            let integers = matches!(&key, Value::Text(text) if text == READ);
            (key, read(&value, depth - 1, integers))
        });
        return Value::Dict(entries.collect());
    }
    integral(object)
        .or_else(|| buffer(object, integers))
        .unwrap_or_else(|| Value::Other(type_name()))
}

/// Integers of other types, such as numpy's; arrays of one number also offer `__index__`, but have a length.
fn integral(object: &Bound<'_, PyAny>) -> Option<Value> {
    let class = object.get_type();
    if class.hasattr("__len__").ok()? || !class.hasattr("__index__").ok()? {
        return None;
    }
    let value = object.call_method0("__index__").ok()?;
    Some(Value::Integral {
        value: int_of(value.cast::<PyInt>().ok()?),
        type_name: name_of(object),
    })
}

fn buffer(object: &Bound<'_, PyAny>, integers: bool) -> Option<Value> {
    let view = PyMemoryView::from(object).ok()?;
    let facts = BufferFacts {
        format: view.getattr("format").ok()?.extract().ok()?,
        item_bytes: view.getattr("itemsize").ok()?.extract().ok()?,
        shape: view.getattr("shape").ok()?.extract().ok()?,
        type_name: name_of(object),
        integers: partgrid::distarray::Integers::Unread,
    };
    if !integers || facts.shape.len() != 1 {
        return Some(Value::Buffer(facts));
    }
    let bytes = view.call_method0("tobytes").ok()?;
    let bytes = bytes.cast::<PyBytes>().ok()?;
    Some(Value::Buffer(facts.with_integers(bytes.as_bytes())))
}

/// The integer, or the nearest of 128 bits.
fn int_of(value: &Bound<'_, PyInt>) -> i128 {
    value.extract().unwrap_or_else(|_| match value.lt(0) {
        Ok(true) => i128::MIN,
        _ => i128::MAX,
    })
}

/// The name of its type.
pub(super) fn name_of(object: &Bound<'_, PyAny>) -> String {
    let name = object.get_type().name();
    name.map_or_else(|_| "object".to_owned(), |name| name.to_string())
}
