//! What `get` of another library returned -> a batch.

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema, SchemaRef};
use partgrid::error::Error;
use partgrid::partitioned::fault;
use pyo3::exceptions::{PyImportError, PyKeyboardInterrupt};
use pyo3::prelude::*;

use crate::capsule::batches_of;
use crate::error::{Outcome, exception};
use crate::grid::PyGrid;
use crate::partitioned::PyHandle;

/// The data object at `path` as one batch; columns of arrays are called after their number in the frame, of which the first is `first`.
pub(super) fn batch_of(path: &str, object: &Bound<'_, PyAny>, first: u64) -> Outcome<RecordBatch> {
    let py = object.py();
    let found = match kind_of(object)? {
        Kind::Handle => object
            .cast::<PyHandle>()
            .map_err(PyErr::from)?
            .get()
            .batch(py),
        Kind::Arrow => one_batch(object),
        Kind::Pandas => pandas_table(object).and_then(|table| one_batch(&table)),
        Kind::Array => of_array(object, first),
        Kind::Other => {
            let class = object.get_type().qualname()?;
            let text = format!("must be a frame or an array, got {class}");
            let error = fault(path, text);
            let hint = "Arrow PyCapsules, pandas, numpy and DLPack are understood";
            return Err(error.with_hint(hint).into());
        }
    };
    found.map_err(|error| at(py, path, error))
}

enum Kind {
    Handle,
    Arrow,
    Pandas,
    Array,
    Other,
}

fn kind_of(object: &Bound<'_, PyAny>) -> PyResult<Kind> {
    if object.is_instance_of::<PyHandle>() {
        return Ok(Kind::Handle);
    }
    let class = object.get_type();
    // pandas makes columns of indexes when it is asked for Arrow.
    let module: String = class.getattr("__module__")?.extract().unwrap_or_default();
    if module == "pandas" || module.starts_with("pandas.") {
        return Ok(Kind::Pandas);
    }
    for name in [
        "__arrow_c_array__",
        "__arrow_c_device_array__",
        "__arrow_c_stream__",
    ] {
        if object.hasattr(name)? {
            return Ok(Kind::Arrow);
        }
    }
    for name in ["__array_interface__", "__dlpack__"] {
        if object.hasattr(name)? {
            return Ok(Kind::Array);
        }
    }
    Ok(Kind::Other)
}

/// All batches of an Arrow object as one: the only one as it is, several copied together.
pub(crate) fn one_batch(object: &Bound<'_, PyAny>) -> Outcome<RecordBatch> {
    let (schema, mut batches) = batches_of(object)?;
    match (batches.pop(), batches.is_empty()) {
        (None, _) => Ok(RecordBatch::new_empty(schema)),
        (Some(only), true) => Ok(only),
        (Some(last), false) => {
            batches.push(last);
            Ok(concat_batches(&schema, &batches)?)
        }
    }
}

fn of_array(object: &Bound<'_, PyAny>, first: u64) -> Outcome<RecordBatch> {
    let package = object.py().import("partgrid")?;
    let reader = match object.hasattr("__array_interface__")? {
        true => "from_numpy",
        false => "from_dlpack",
    };
    // An array without dimensions is one value.
    let dimensions: Option<usize> = match object.getattr_opt("ndim")? {
        Some(dimensions) => dimensions.extract().ok(),
        None => None,
    };
    let object = match dimensions {
        Some(0) => &object.call_method1("reshape", (1,))?,
        _ => object,
    };
    let grid = package.getattr(reader)?.call1((object,))?;
    let grid = grid.cast::<PyGrid>().map_err(PyErr::from)?;
    let batch = grid.get().core().open_row_band(0)?;
    let fields = batch.schema_ref().fields().iter();
    let named = (first..)
        .zip(fields)
        .map(|(number, field)| Field::clone(field).with_name(format!("column_{number}")));
    let schema = SchemaRef::new(Schema::new(named.collect::<Vec<Field>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().to_vec();
    Ok(RecordBatch::try_new_with_options(
        schema, columns, &options,
    )?)
}

/// Row labels of a part of a frame are its numbers in the whole.
fn pandas_table<'py>(object: &Bound<'py, PyAny>) -> Outcome<Bound<'py, PyAny>> {
    let helpers = object.py().import("partgrid._frames")?;
    let reader = helpers.getattr("pandas_to_arrow")?;
    Ok(reader.call1((object, "range"))?)
}

/// The error under the path; that a library is missing, and an interrupt, are what they are.
fn at(py: Python<'_>, path: &str, error: crate::error::Raised) -> crate::error::Raised {
    let cause = PyErr::from(error);
    if cause.is_instance_of::<PyImportError>(py) || cause.is_instance_of::<PyKeyboardInterrupt>(py)
    {
        return cause.into();
    }
    let text: Result<String, PyErr> = cause.value(py).str().map(|text| text.to_string());
    let fault: Error = fault(path, text.unwrap_or_default());
    let ours = exception(py, &fault);
    ours.set_cause(py, Some(cause));
    ours.into()
}
