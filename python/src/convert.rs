//! Frames of other libraries from an object with Arrow capsules.
//!
//! Comes in: one of our objects. Goes out: a pyarrow, pandas or polars object over the same buffers. Each library is imported only when it is asked for. Never
//! here: copies.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Fields, Schema};
use partgrid::grid::check_chosen;
use pyo3::exceptions::{PyImportError, PyNotImplementedError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::argument::{Given, optional};
use partgrid::error::Error;

use crate::capsule::{batches_of, raised_as_ours, schema_capsule, stream_capsule};
use crate::device::device_batch;
use crate::error::{Outcome, exception};
use crate::tile::PyTile;
use crate::wishes::Names;

/// The module, or an `ImportError` that says what to install.
pub(crate) fn import<'py>(
    py: Python<'py>,
    module: &str,
    wanted_by: &str,
) -> PyResult<Bound<'py, PyModule>> {
    py.import(module).map_err(|error| {
        if error.is_instance_of::<PyImportError>(py) {
            let package = module.replace('.', "-");
            let text = format!("{wanted_by} needs {module}\nhint: pip install {package}");
            let missing = PyImportError::new_err(text);
            missing.set_cause(py, Some(error));
            missing
        } else {
            error
        }
    })
}

/// A `pyarrow.Table` over the same buffers.
pub(crate) fn to_arrow<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let pyarrow = import(object.py(), "pyarrow", "to_arrow")?;
    raised_as_ours(object.py(), || pyarrow.call_method1("table", (object,)))
}

/// A `pandas.DataFrame` of Arrow-backed columns (`pandas.ArrowDtype`) over the same buffers.
pub(crate) fn to_pandas<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    check_on_host(object)?;
    let py = object.py();
    let pandas = import(py, "pandas", "to_pandas")?;
    let pyarrow = import(py, "pyarrow", "to_pandas")?;
    let options = PyDict::new(py);
    options.set_item("types_mapper", pandas.getattr("ArrowDtype")?)?;
    options.set_item("ignore_metadata", true)?;
    let table = raised_as_ours(py, || pyarrow.call_method1("table", (object,)))?;
    let made = table.call_method("to_pandas", (), Some(&options));
    made.map_err(
        |error| match error.is_instance_of::<PyNotImplementedError>(py) {
            true => refused_by("pandas", error, py),
            false => error,
        },
    )
}

/// The same, with the columns of an argument `index` as row labels.
pub(crate) fn to_labelled_pandas<'py>(
    object: &Bound<'py, PyAny>,
    schema: &Schema,
    index: Option<Given<Names>>,
) -> Outcome<Bound<'py, PyAny>> {
    let Some(Names(names)) = optional(index, "index")? else {
        return Ok(to_pandas(object)?);
    };
    check_chosen(schema, "index", &names)?;
    Ok(to_pandas(object)?.call_method1("set_index", (names,))?)
}

/// A `polars.DataFrame` over the same buffers, where polars has the type (it copies strings into views of its own).
pub(crate) fn to_polars<'py>(
    object: &Bound<'py, PyAny>,
    schema: &Schema,
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let polars = import(py, "polars", "to_polars")?;
    let wide = with_wide_decimals(object, schema)?;
    let object = wide.as_ref().unwrap_or(object);
    let made = raised_as_ours(py, || polars.call_method1("DataFrame", (object,)));
    made.map_err(|error| {
        // Polars panics at types that it does not have; nobody catches that by chance.
        let is_panic = error
            .get_type(py)
            .name()
            .is_ok_and(|name| name == "PanicException");
        if !is_panic {
            return error;
        }
        refused_by("polars", error, py)
    })
}

/// An error of a library that does not have the type of a column.
fn refused_by(library: &str, error: PyErr, py: Python<'_>) -> PyErr {
    let text = format!("{library} cannot hold the columns: {}", error.value(py));
    let hint = format!("cast the column in SQL to a type that {library} has");
    let ours = exception(py, &Error::unsupported(text).with_hint(hint));
    ours.set_cause(py, Some(error));
    ours
}

/// The object with decimals of 128 bits in place of those of 32 and 64, if it has such: polars takes their bytes for those of 128.
fn with_wide_decimals<'py>(
    object: &Bound<'py, PyAny>,
    schema: &Schema,
) -> Outcome<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    let fields: Fields = schema.fields().iter().map(wide).collect();
    if fields == *schema.fields() {
        return Ok(None);
    }
    let wanted = Schema::new_with_metadata(fields, schema.metadata().clone());
    let wanted = schema_capsule(py, &wanted)?;
    let stream = match object.hasattr("__arrow_c_stream__")? {
        true => object.call_method1("__arrow_c_stream__", (wanted,))?,
        // A tile.
        false => {
            let (schema, batches) = batches_of(object)?;
            let batches = batches.into_iter().map(Ok);
            stream_capsule(py, schema, batches, Some(&wanted))?.into_any()
        }
    };
    let stream = PyStream(stream.unbind());
    Ok(Some(Bound::new(py, stream)?.into_any()))
}

fn wide(field: &FieldRef) -> FieldRef {
    let kind = match field.data_type() {
        DataType::Decimal32(digits, scale) | DataType::Decimal64(digits, scale) => {
            DataType::Decimal128(*digits, *scale)
        }
        DataType::List(inner) => DataType::List(wide(inner)),
        DataType::LargeList(inner) => DataType::LargeList(wide(inner)),
        DataType::FixedSizeList(inner, size) => DataType::FixedSizeList(wide(inner), *size),
        DataType::Map(inner, sorted) => DataType::Map(wide(inner), *sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(wide).collect()),
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(kind))
}

/// A stream of batches as libraries ask objects for it.
#[pyclass(frozen)]
struct PyStream(Py<PyAny>);

#[pymethods]
impl PyStream {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__(
        &self,
        py: Python<'_>,
        requested_schema: Option<Bound<'_, PyAny>>,
    ) -> Py<PyAny> {
        // Nobody has to follow such a wish.
        drop(requested_schema);
        self.0.clone_ref(py)
    }
}

/// Refuses an object that is no array: without a refusal numpy makes an array of one object.
pub(crate) fn refuse_numpy(what: &str, hint: &str) -> PyErr {
    PyTypeError::new_err(format!("{what} is no array\nhint: {hint}"))
}

/// What a function of a module of `partgrid.engines` makes of an object.
pub(crate) fn to_engine<'py>(
    module: &str,
    function: &str,
    object: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let module = object.py().import(module)?;
    module.call_method1(function, (object,))
}

/// A `pyarrow.RecordBatch` over the same buffers.
pub(crate) fn to_arrow_batch<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    check_on_host(object)?;
    let pyarrow = import(object.py(), "pyarrow", "to_arrow")?;
    pyarrow.call_method1("record_batch", (object,))
}

/// Refuses a tile on a device: pyarrow asks such an object for the device, and knows none.
fn check_on_host(object: &Bound<'_, PyAny>) -> Outcome<()> {
    match object.cast::<PyTile>() {
        Ok(tile) if device_batch(tile.get().tile()).is_some() => {
            tile.get().tile().open()?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// An `arro3.core.RecordBatch` over the same buffers.
pub(crate) fn to_arro3<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let arro3 = import(object.py(), "arro3.core", "arro3")?;
    let class = arro3.getattr("RecordBatch")?;
    class.call_method1("from_arrow", (object,))
}

/// A `pyarrow.Schema`.
pub(crate) fn to_arrow_schema<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let pyarrow = import(object.py(), "pyarrow", "schema")?;
    pyarrow.call_method1("schema", (object,))
}
