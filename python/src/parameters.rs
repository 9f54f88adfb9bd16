//! `params=`: Python values -> typed values for the parameters of SQL.
//!
//! Comes in: a list or tuple, or a dict. Goes out: arrays of one value each, in the type that fits the Python type; scalars of numpy and pyarrow keep theirs. Values never become
//! SQL text. Never here: what a statement makes of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, DurationMicrosecondArray,
    Float64Array, Int64Array, ListArray, NullArray, StringArray, Time64MicrosecondArray,
    TimestampMicrosecondArray, UInt64Array, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, cast_with_options, concat};
use arrow::datatypes::{DataType, Field, TimeUnit};
use partgrid::error::Error;
use partgrid::query::Parameters;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyMemoryView, PyString, PyTuple,
};

use crate::argument::{items, shown, text};
use crate::capsule::batches_of;
use crate::error::Outcome;

/// The day 1970-01-01 as Python numbers days.
const EPOCH_DAY: i64 = 719_163;

const STRICT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: arrow::util::display::FormatOptions::new(),
};

/// The values of the argument `params`.
pub(crate) fn parameters(given: Option<&Bound<'_, PyAny>>) -> Outcome<Parameters> {
    let Some(given) = given.filter(|given| !given.is_none()) else {
        return Ok(Parameters::default());
    };
    if let Ok(pairs) = given.cast::<PyDict>() {
        let mut values = BTreeMap::new();
        for (name, given) in pairs {
            let Some(name) = text(&name) else {
                let got = shown(&name);
                let text = format!("params must have texts as names, got {got}");
                return Err(Error::invalid_argument(text).into());
            };
            let place = format!("params[{name:?}]");
            values.insert(
                name.trim_start_matches('$').to_owned(),
                value(&given, &place)?,
            );
        }
        return Ok(Parameters::ByName(values));
    }
    let Some(given) = items(given) else {
        let text = format!(
            "params must be a list of values for $1 and ?, or a dict of values for $name, got {}",
            shown(given)
        );
        return Err(Error::invalid_argument(text)
            .with_hint("write params=[value]")
            .into());
    };
    let named = |(number, given)| value(given, &format!("params[{number}]"));
    Ok(Parameters::InOrder(
        given
            .iter()
            .enumerate()
            .map(named)
            .collect::<Outcome<_>>()?,
    ))
}

/// One value as an array of one. `place` is how an error calls it.
pub(crate) fn value(given: &Bound<'_, PyAny>, place: &str) -> Outcome<ArrayRef> {
    if given.is_none() || is_missing(given)? {
        return Ok(Arc::new(NullArray::new(1)));
    }
    if let Some(array) = plain(given)? {
        return Ok(array);
    }
    if let Some(array) = of_library(given)? {
        return Ok(array);
    }
    if let Some(array) = of_standard_library(given, place)? {
        return Ok(array);
    }
    if let Some(parts) = items(given) {
        return list(&parts, place);
    }
    let text = format!(
        "{place} must be None, a bool, number, text, bytes, date, time, datetime, timedelta, Decimal, UUID, a list of these, or a scalar of numpy or pyarrow, got {}",
        shown(given)
    );
    Err(Error::invalid_argument(text).into())
}

/// Whether it is what a library has in place of a value: `pandas.NA`, `numpy.ma.masked`.
fn is_missing(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    let modules = given.py().import("sys")?.getattr("modules")?;
    for (module, name) in [("pandas", "NA"), ("numpy.ma", "masked")] {
        if let Ok(module) = modules.get_item(module)
            && module.getattr(name).is_ok_and(|missing| missing.is(given))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Values of the language itself. Subclasses of its types are those of other libraries, except for truth values.
fn plain(given: &Bound<'_, PyAny>) -> Outcome<Option<ArrayRef>> {
    if given.is_instance_of::<PyBool>() {
        return Ok(Some(Arc::new(BooleanArray::from(vec![
            given.extract::<bool>()?,
        ]))));
    }
    if given.hasattr("dtype")? {
        return Ok(None);
    }
    if given.is_instance_of::<PyInt>() {
        return whole(given).map(Some);
    }
    if given.is_instance_of::<PyFloat>() {
        return Ok(Some(Arc::new(Float64Array::from(vec![
            given.extract::<f64>()?,
        ]))));
    }
    if given.is_instance_of::<PyString>() {
        return Ok(Some(Arc::new(StringArray::from(vec![
            given.extract::<String>()?,
        ]))));
    }
    let bytes = given.is_instance_of::<PyBytes>()
        || given.is_instance_of::<PyByteArray>()
        || given.is_instance_of::<PyMemoryView>();
    if bytes {
        let bytes = given.py().get_type::<PyBytes>().call1((given,))?;
        let bytes: Vec<u8> = bytes.extract()?;
        return Ok(Some(Arc::new(BinaryArray::from_vec(vec![&bytes]))));
    }
    Ok(None)
}

fn whole(given: &Bound<'_, PyAny>) -> Outcome<ArrayRef> {
    if let Ok(number) = given.extract::<i64>() {
        return Ok(Arc::new(Int64Array::from(vec![number])));
    }
    if let Ok(number) = given.extract::<u64>() {
        return Ok(Arc::new(UInt64Array::from(vec![number])));
    }
    let digits = given.str()?.to_string();
    decimal(&digits, digits.trim_start_matches('-').len(), 0)
}

/// A decimal from its text.
fn decimal(digits: &str, precision: usize, scale: i8) -> Outcome<ArrayRef> {
    let precision = u8::try_from(precision.max(1))
        .ok()
        .filter(|precision| *precision <= 76);
    let Some(precision) = precision else {
        let text = format!("a number among params may have 76 digits, got {digits}");
        return Err(Error::invalid_argument(text).into());
    };
    let wanted = if precision <= 38 {
        DataType::Decimal128(precision, scale)
    } else {
        DataType::Decimal256(precision, scale)
    };
    let digits: ArrayRef = Arc::new(StringArray::from(vec![digits]));
    Ok(cast_with_options(&digits, &wanted, &STRICT)?)
}

/// Scalars of numpy, which keep their type, and of pyarrow.
fn of_library(given: &Bound<'_, PyAny>) -> Outcome<Option<ArrayRef>> {
    let py = given.py();
    if given.hasattr("as_py")? && given.hasattr("type")? {
        let pyarrow = py.import("pyarrow")?;
        let array = pyarrow.call_method1("array", (vec![given], given.getattr("type")?))?;
        return one_column(&pyarrow.call_method1("record_batch", (vec![array], vec!["value"]))?)
            .map(Some);
    }
    let dimensions = match given.hasattr("item")? && given.hasattr("dtype")? {
        true => given.getattr("ndim")?.extract::<usize>().ok(),
        false => None,
    };
    if dimensions != Some(0) {
        return Ok(None);
    }
    let dtype = given.getattr("dtype")?;
    let kind: String = dtype.getattr("kind")?.extract()?;
    if kind == "M" || kind == "m" {
        return moment(given, &dtype, kind == "M").map(Some);
    }
    let name: String = dtype.getattr("name")?.extract()?;
    let wanted = match name.as_str() {
        "int8" => Some(DataType::Int8),
        "int16" => Some(DataType::Int16),
        "int32" => Some(DataType::Int32),
        "uint8" => Some(DataType::UInt8),
        "uint16" => Some(DataType::UInt16),
        "uint32" => Some(DataType::UInt32),
        "uint64" => Some(DataType::UInt64),
        "float16" => Some(DataType::Float16),
        "float32" => Some(DataType::Float32),
        _ => None,
    };
    let item = given.call_method0("item")?;
    let Some(array) = plain(&item)? else {
        return Ok(None);
    };
    Ok(Some(match wanted {
        Some(wanted) => cast_with_options(&array, &wanted, &STRICT)?,
        None => array,
    }))
}

/// `numpy.datetime64` and `numpy.timedelta64`, in their unit or the next finer one that Arrow has.
fn moment(given: &Bound<'_, PyAny>, dtype: &Bound<'_, PyAny>, absolute: bool) -> Outcome<ArrayRef> {
    let numpy = given.py().import("numpy")?;
    let (unit, _): (String, i64) = numpy.call_method1("datetime_data", (dtype,))?.extract()?;
    if absolute && matches!(unit.as_str(), "Y" | "M" | "W" | "D") {
        return day(given);
    }
    let (unit, wanted) = match unit.as_str() {
        "ns" | "ps" | "fs" | "as" => ("ns", TimeUnit::Nanosecond),
        "us" => ("us", TimeUnit::Microsecond),
        "ms" => ("ms", TimeUnit::Millisecond),
        _ => ("s", TimeUnit::Second),
    };
    let kind = if absolute { 'M' } else { 'm' };
    let number: i64 = given
        .call_method1("astype", (format!("{kind}8[{unit}]"),))?
        .call_method1("astype", ("int64",))?
        .call_method0("item")?
        .extract()?;
    let wanted = if absolute {
        DataType::Timestamp(wanted, None)
    } else {
        DataType::Duration(wanted)
    };
    // The value that stands for none, NaT.
    if number == i64::MIN {
        return Ok(new_null_array(&wanted, 1));
    }
    let number: ArrayRef = Arc::new(Int64Array::from(vec![number]));
    Ok(cast_with_options(&number, &wanted, &STRICT)?)
}

/// A `numpy.datetime64` of days or longer units, of which the first day counts.
fn day(given: &Bound<'_, PyAny>) -> Outcome<ArrayRef> {
    let days = given.call_method1("astype", ("M8[D]",))?;
    let days: i64 = days
        .call_method1("astype", ("int64",))?
        .call_method0("item")?
        .extract()?;
    if days == i64::MIN {
        return Ok(new_null_array(&DataType::Date32, 1));
    }
    let days: ArrayRef = Arc::new(Int64Array::from(vec![days]));
    let days = cast_with_options(&days, &DataType::Int32, &STRICT)?;
    Ok(cast_with_options(&days, &DataType::Date32, &STRICT)?)
}

/// Values of `datetime`, `decimal` and `uuid`.
fn of_standard_library(given: &Bound<'_, PyAny>, place: &str) -> Outcome<Option<ArrayRef>> {
    let py = given.py();
    let is = |module: &str, class: &str| -> PyResult<bool> {
        given.is_instance(&py.import(module)?.getattr(class)?)
    };
    if is("datetime", "datetime")? {
        return match of_pandas(given, "nanosecond", "to_datetime64")? {
            Some(moment) => in_zone_of(moment, given).map(Some),
            None => datetime(given).map(Some),
        };
    }
    if is("datetime", "date")? {
        let day: i64 = given.call_method0("toordinal")?.extract()?;
        let days = i32::try_from(day - EPOCH_DAY).unwrap_or(i32::MAX);
        return Ok(Some(Arc::new(Date32Array::from(vec![days]))));
    }
    if is("datetime", "time")? {
        if !given.getattr("tzinfo")?.is_none() {
            let text = format!(
                "{place} must be a time without a zone, got {}",
                shown(given)
            );
            return Err(Error::invalid_argument(text).into());
        }
        let part = |name: &str| given.getattr(name)?.extract::<i64>();
        let seconds = (part("hour")? * 60 + part("minute")?) * 60 + part("second")?;
        let microseconds = seconds * 1_000_000 + part("microsecond")?;
        return Ok(Some(Arc::new(Time64MicrosecondArray::from(vec![
            microseconds,
        ]))));
    }
    if is("datetime", "timedelta")? {
        if let Some(duration) = of_pandas(given, "nanoseconds", "to_timedelta64")? {
            return Ok(Some(duration));
        }
        let microseconds = microseconds(given)?;
        return Ok(Some(Arc::new(DurationMicrosecondArray::from(vec![
            microseconds,
        ]))));
    }
    if is("decimal", "Decimal")? {
        return of_decimal(given, place).map(Some);
    }
    if is("uuid", "UUID")? {
        return Ok(Some(Arc::new(StringArray::from(vec![
            given.str()?.to_string(),
        ]))));
    }
    Ok(None)
}

/// A `pandas.Timestamp` or `Timedelta` with nanoseconds, and `pandas.NaT`, of which the classes of Python know nothing.
fn of_pandas(
    given: &Bound<'_, PyAny>,
    nanoseconds: &str,
    to_numpy: &str,
) -> Outcome<Option<ArrayRef>> {
    // Those of NaT are not a number.
    let is_whole = match given.getattr_opt(nanoseconds)? {
        Some(part) => part.eq(0)?,
        None => true,
    };
    if is_whole {
        return Ok(None);
    }
    let moment = given.call_method0(to_numpy)?;
    of_library(&moment)
}

/// What numpy gives of a moment in a zone, which is that in UTC.
fn in_zone_of(moment: ArrayRef, given: &Bound<'_, PyAny>) -> Outcome<ArrayRef> {
    match moment.data_type() {
        DataType::Timestamp(unit, None) if !given.getattr("tzinfo")?.is_none() => {
            let instant = DataType::Timestamp(*unit, Some("UTC".into()));
            Ok(cast_with_options(&moment, &instant, &STRICT)?)
        }
        _ => Ok(moment),
    }
}

fn microseconds(duration: &Bound<'_, PyAny>) -> PyResult<i64> {
    let class = duration.py().import("datetime")?.getattr("timedelta")?;
    duration.floor_div(class.call1((0, 0, 1))?)?.extract()
}

fn datetime(given: &Bound<'_, PyAny>) -> Outcome<ArrayRef> {
    let module = given.py().import("datetime")?;
    let zone = given.getattr("tzinfo")?;
    let class = module.getattr("datetime")?;
    let utc = module.getattr("timezone")?.getattr("utc")?;
    if zone.is_none() {
        let since = given.sub(class.call1((1970, 1, 1))?)?;
        return Ok(Arc::new(TimestampMicrosecondArray::from(vec![
            microseconds(&since)?,
        ])));
    }
    let epoch = class.call1((1970, 1, 1, 0, 0, 0, 0, utc))?;
    let since = microseconds(&given.sub(epoch)?)?;
    let array = TimestampMicrosecondArray::from(vec![since]).with_timezone("UTC");
    Ok(Arc::new(array))
}

fn of_decimal(given: &Bound<'_, PyAny>, place: &str) -> Outcome<ArrayRef> {
    let parts = given.call_method0("as_tuple")?;
    let digits = parts
        .getattr("digits")?
        .cast_into::<PyTuple>()
        .map_err(PyErr::from)?
        .len();
    // NaN and infinity have a letter here.
    let Ok(exponent) = parts.getattr("exponent")?.extract::<i64>() else {
        let text = format!("{place} must be a finite Decimal, got {}", shown(given));
        return Err(Error::invalid_argument(text).into());
    };
    let scale = usize::try_from(-exponent.min(0)).unwrap_or(usize::MAX);
    let zeros = usize::try_from(exponent.max(0)).unwrap_or(usize::MAX);
    let precision = digits.saturating_add(zeros).max(scale);
    let written = given
        .call_method1("__format__", ("f",))?
        .extract::<String>()?;
    let scale = i8::try_from(scale).unwrap_or(i8::MAX);
    decimal(&written, precision, scale)
}

/// A list, of values of one type.
fn list(parts: &[Bound<'_, PyAny>], place: &str) -> Outcome<ArrayRef> {
    let values: Vec<ArrayRef> = parts
        .iter()
        .enumerate()
        .map(|(number, part)| value(part, &format!("{place}[{number}]")))
        .collect::<Outcome<_>>()?;
    let mut types = values
        .iter()
        .map(|value| value.data_type())
        .filter(|kind| **kind != DataType::Null);
    let first = types.next().cloned().unwrap_or(DataType::Null);
    let one = types.clone().all(|kind| *kind == first);
    let numbers = first.is_numeric() && types.all(DataType::is_numeric);
    let wanted = match (one, numbers) {
        (true, _) => first,
        (false, true) => DataType::Float64,
        (false, false) => {
            let text = format!("{place} must be a list of values of one type");
            return Err(Error::invalid_argument(text).into());
        }
    };
    let cast = values
        .iter()
        .map(|value| cast_with_options(value, &wanted, &STRICT));
    let values: Vec<ArrayRef> = cast.collect::<Result<_, _>>()?;
    let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
    let values = if values.is_empty() {
        new_null_array(&wanted, 0)
    } else {
        concat(&values)?
    };
    let offsets = OffsetBuffer::from_lengths([values.len()]);
    let item = Arc::new(Field::new_list_field(wanted, true));
    Ok(Arc::new(ListArray::try_new(item, offsets, values, None)?))
}

/// The only column of an object with Arrow capsules, which has one batch.
pub(crate) fn one_column(object: &Bound<'_, PyAny>) -> Outcome<ArrayRef> {
    let (schema, batches) = batches_of(object)?;
    let empty = || {
        schema
            .fields()
            .first()
            .map(|field| new_null_array(field.data_type(), 0))
    };
    let first = batches
        .first()
        .and_then(|batch| batch.columns().first().cloned());
    Ok(first
        .or_else(empty)
        .ok_or_else(|| Error::internal("an answer without columns"))?)
}
