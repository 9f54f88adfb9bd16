//! Arrow PyCapsules for devices, in and out.
//!
//! Comes in: batches of ours, or objects with `__arrow_c_device_stream__` or `__arrow_c_device_array__`. Goes out: capsules of memory of the CPU, or batches. Never here:
//! reading of C structs, which `partgrid::device` does.

#![expect(
    unsafe_code,
    reason = "the PyCapsule interface hands out a pointer to a C struct"
)]

use std::ffi::CStr;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ffi_stream::FFI_ArrowArrayStream;
use partgrid::device::{
    ArrowDeviceArray, ArrowDeviceArrayStream, export_device_batch, export_device_stream,
    import_device_batch, import_device_stream,
};
use partgrid::error::Result as CoreResult;
use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyDict, PyTuple};

use crate::capsule::{SCHEMA, checked, requested_batch, take_schema};
use crate::error::Outcome;

const STREAM: &CStr = c"arrow_device_array_stream";
const ARRAY: &CStr = c"arrow_device_array";

/// A pair of capsules, schema and device array, of one batch, in the requested schema if one is given.
pub(crate) fn device_array_capsules<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
    requested: Option<&Bound<'py, PyAny>>,
) -> Outcome<Bound<'py, PyTuple>> {
    let (schema, array) = export_device_batch(&requested_batch(batch, requested)?)?;
    let schema = PyCapsule::new_with_value(py, schema, SCHEMA)?;
    let array = PyCapsule::new_with_value(py, array, ARRAY)?;
    Ok(PyTuple::new(py, [schema, array])?)
}

/// A capsule with a device stream of what a C stream gives.
pub(crate) fn device_stream_capsule(
    py: Python<'_>,
    stream: FFI_ArrowArrayStream,
) -> Outcome<Bound<'_, PyCapsule>> {
    Ok(PyCapsule::new_with_value(
        py,
        export_device_stream(stream),
        STREAM,
    )?)
}

/// Refuses keyword arguments, which the interface reserves for later versions; `None` may be ignored.
pub(crate) fn refuse_reserved(kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    for (name, value) in kwargs.into_iter().flatten() {
        if !value.is_none() {
            return Err(PyNotImplementedError::new_err(format!(
                "the Arrow C Device interface of partgrid knows no argument {name}, only requested_schema"
            )));
        }
    }
    Ok(())
}

/// The schema and the batches of an object that has only the methods for devices; `None` when it has neither.
pub(crate) fn device_batches_of(
    object: &Bound<'_, PyAny>,
) -> Outcome<Option<(SchemaRef, Vec<RecordBatch>)>> {
    if object.hasattr("__arrow_c_device_stream__")? {
        let capsule = object.call_method0("__arrow_c_device_stream__")?;
        let stream = import_device_stream(take_stream(&capsule)?)?;
        let schema = stream.schema();
        let batches = object
            .py()
            .detach(|| stream.collect::<CoreResult<Vec<_>>>())?;
        return Ok(Some((schema, batches)));
    }
    if object.hasattr("__arrow_c_device_array__")? {
        let pair = object.call_method0("__arrow_c_device_array__")?;
        let (schema, array): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
        let batch = import_device_batch(take_array(&array)?, &take_schema(&schema)?)?;
        return Ok(Some((batch.schema(), vec![batch])));
    }
    Ok(None)
}

fn take_stream(capsule: &Bound<'_, PyAny>) -> Outcome<ArrowDeviceArrayStream> {
    let pointer = checked(capsule, STREAM)?.pointer_checked(Some(STREAM))?;
    // SAFETY: a capsule of this name holds an `ArrowDeviceArrayStream`; `from_raw` leaves a released one behind.
    Ok(unsafe { ArrowDeviceArrayStream::from_raw(pointer.cast().as_ptr()) })
}

fn take_array(capsule: &Bound<'_, PyAny>) -> Outcome<ArrowDeviceArray> {
    let pointer = checked(capsule, ARRAY)?.pointer_checked(Some(ARRAY))?;
    // SAFETY: a capsule of this name holds an `ArrowDeviceArray`; `from_raw` leaves a released one behind.
    Ok(unsafe { ArrowDeviceArray::from_raw(pointer.cast().as_ptr()) })
}
