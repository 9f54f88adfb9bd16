//! Arrow PyCapsules in and out.
//!
//! Comes in: Python objects with `__arrow_c_stream__` or `__arrow_c_array__`, and batches of ours. Goes out: batches, and capsules named as the Arrow PyCapsule
//! interface says. Never here: reading of C structs, which `partgrid::device` does.

use std::cell::RefCell;
use std::ffi::CStr;

use arrow::array::{Array, ArrayRef, RecordBatch, StructArray, make_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow::ffi_stream::FFI_ArrowArrayStream;
use arrow::util::display::FormatOptions;
use partgrid::device::{export_stream, import_batch, import_stream};
use partgrid::error::{Error, ErrorKind, Result as CoreResult};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyTuple};

use crate::argument::shown;
use crate::device::device_batches_of;
use crate::error::{Outcome, exception};
use crate::runtime::drop_attached;
use crate::stream::INTERRUPTED;

const STREAM: &CStr = c"arrow_array_stream";
pub(crate) const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// A value that the wanted type cannot hold is an error, not a null.
const STRICT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: FormatOptions::new(),
};

thread_local! {
    /// Why a stream ended that was last read on this thread, if that was an error.
    static FAILED: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// Has another library read one of our streams. A C stream carries a text but no exception, so that an error of ours comes back as a class of that library: it is raised as ours
/// again, with that of the library as its cause.
pub(crate) fn raised_as_ours<'py>(
    py: Python<'py>,
    read: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    FAILED.with(RefCell::take);
    let theirs = match read() {
        Ok(frame) => return Ok(frame),
        Err(theirs) => theirs,
    };
    match FAILED.with(RefCell::take) {
        // An interrupt is raised by the interpreter.
        Some(error) if error.message() != INTERRUPTED => {
            let ours = exception(py, &error);
            ours.set_cause(py, Some(theirs));
            Err(ours)
        }
        _ => Err(theirs),
    }
}

/// A capsule with a C stream of the batches, in the requested schema if one is given.
pub(crate) fn stream_capsule<'py>(
    py: Python<'py>,
    schema: SchemaRef,
    batches: impl Iterator<Item = CoreResult<RecordBatch>> + Send + 'static,
    requested: Option<&Bound<'py, PyAny>>,
) -> Outcome<Bound<'py, PyCapsule>> {
    let stream = c_stream(schema, batches, requested)?;
    Ok(PyCapsule::new_with_value(py, stream, STREAM)?)
}

/// A C stream of the batches, in the requested schema if one is given.
pub(crate) fn c_stream(
    schema: SchemaRef,
    batches: impl Iterator<Item = CoreResult<RecordBatch>> + Send + 'static,
    requested: Option<&Bound<'_, PyAny>>,
) -> Outcome<FFI_ArrowArrayStream> {
    // What goes wrong between the core and the consumer is told to the consumer, and noted for `raised_as_ours`.
    let batches = batches.inspect(|batch| {
        if let Err(error) = batch {
            // It may have begun as an exception, and the consumer may have released the GIL.
            drop_attached(FAILED.with(|failed| failed.replace(Some(error.clone()))));
        }
    });
    Ok(match requested_schema(&schema, requested)? {
        None => export_stream(schema, batches)?,
        Some(wanted) => {
            let target = SchemaRef::clone(&wanted);
            let casts = batches.map(move |batch| cast_batch(&batch?, &target));
            export_stream(wanted, casts)?
        }
    })
}

/// A pair of capsules, schema and array, of one batch, in the requested schema if one is given.
pub(crate) fn array_capsules<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
    requested: Option<&Bound<'py, PyAny>>,
) -> Outcome<Bound<'py, PyTuple>> {
    let batch = requested_batch(batch, requested)?;
    let schema = FFI_ArrowSchema::try_from(batch.schema().as_ref())?;
    let array = FFI_ArrowArray::new(&StructArray::from(batch).to_data());
    let schema = PyCapsule::new_with_value(py, schema, SCHEMA)?;
    let array = PyCapsule::new_with_value(py, array, ARRAY)?;
    Ok(PyTuple::new(py, [schema, array])?)
}

/// The batch in the requested schema if one is given.
pub(crate) fn requested_batch(
    batch: &RecordBatch,
    requested: Option<&Bound<'_, PyAny>>,
) -> Outcome<RecordBatch> {
    Ok(match requested_schema(&batch.schema(), requested)? {
        None => batch.clone(),
        Some(wanted) => cast_batch(batch, &wanted)?,
    })
}

/// A capsule of a schema.
pub(crate) fn schema_capsule<'py>(
    py: Python<'py>,
    schema: &Schema,
) -> Outcome<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema)?;
    Ok(PyCapsule::new_with_value(py, schema, SCHEMA)?)
}

/// A capsule of the schema of one column.
pub(crate) fn field_capsule<'py>(py: Python<'py>, field: &Field) -> Outcome<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(field)?;
    Ok(PyCapsule::new_with_value(py, schema, SCHEMA)?)
}

/// The schema and the batches of any object with `__arrow_c_stream__` or `__arrow_c_array__`, or one of these for devices. Buffers are shared.
pub(crate) fn batches_of(object: &Bound<'_, PyAny>) -> Outcome<(SchemaRef, Vec<RecordBatch>)> {
    let py = object.py();
    if object.hasattr("__arrow_c_stream__")? {
        let capsule = object.call_method0("__arrow_c_stream__")?;
        let stream = import_stream(take_stream(&capsule)?)?;
        let schema = stream.schema();
        let batches = py.detach(|| stream.collect::<CoreResult<Vec<_>>>())?;
        // Streams of pyarrow leave away batches without rows, and with them categories.
        if !batches.is_empty() || !object.hasattr("__arrow_c_array__")? {
            return Ok((schema, batches));
        }
    }
    if object.hasattr("__arrow_c_array__")? {
        let pair = object.call_method0("__arrow_c_array__")?;
        let (schema, array): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
            pair.extract().map_err(|_| {
                let got = shown(&pair);
                let text = format!(
                    "__arrow_c_array__ must return two capsules, schema and array, got {got}"
                );
                Error::new(ErrorKind::Protocol, text)
            })?;
        let batch = import_batch(take_array(&array)?, &take_schema(&schema)?)?;
        return Ok((batch.schema(), vec![batch]));
    }
    if let Some(found) = device_batches_of(object)? {
        return Ok(found);
    }
    let class = object.get_type().qualname()?;
    Err(Error::new(
        ErrorKind::Protocol,
        format!("an object with __arrow_c_stream__ or __arrow_c_array__ was expected, got {class}"),
    )
    .with_hint(remedy(object)?)
    .into())
}

/// What makes a frame of something that is none.
pub(crate) fn remedy(object: &Bound<'_, PyAny>) -> Outcome<&'static str> {
    let class = object.get_type().qualname()?;
    Ok(match class.to_str()? {
        "LazyFrame" => "a LazyFrame has no rows yet: give what collect() makes of it",
        "dict" | "list" => "pyarrow.table({…}) makes a frame of columns",
        "ndarray" => "from_numpy makes a grid of an array",
        _ => FRAMES,
    })
}

/// What is said of other classes.
pub(crate) const FRAMES: &str = "pyarrow, polars, pandas 3, duckdb and arro3 frames have it; from_pandas and from_numpy make grids of others";

pub(crate) fn checked<'a, 'py>(
    capsule: &'a Bound<'py, PyAny>,
    name: &CStr,
) -> Outcome<&'a Bound<'py, PyCapsule>> {
    let wrong = || {
        Error::new(
            ErrorKind::Protocol,
            format!("a PyCapsule named {name:?} was expected, got {capsule}"),
        )
    };
    let capsule = capsule.cast::<PyCapsule>().map_err(|_| wrong())?;
    if capsule.is_valid_checked(Some(name)) {
        Ok(capsule)
    } else {
        Err(wrong().into())
    }
}

#[expect(
    unsafe_code,
    reason = "the PyCapsule interface hands out a pointer to a C struct"
)]
fn take_stream(capsule: &Bound<'_, PyAny>) -> Outcome<FFI_ArrowArrayStream> {
    let pointer = checked(capsule, STREAM)?.pointer_checked(Some(STREAM))?;
    // SAFETY: a capsule of this name holds an `ArrowArrayStream`; `from_raw` leaves a released one behind, so that the capsule's destructor does nothing.
    Ok(unsafe { FFI_ArrowArrayStream::from_raw(pointer.cast().as_ptr()) })
}

#[expect(
    unsafe_code,
    reason = "the PyCapsule interface hands out a pointer to a C struct"
)]
fn take_array(capsule: &Bound<'_, PyAny>) -> Outcome<FFI_ArrowArray> {
    let pointer = checked(capsule, ARRAY)?.pointer_checked(Some(ARRAY))?;
    // SAFETY: a capsule of this name holds an `ArrowArray`; `from_raw` leaves a released one behind.
    Ok(unsafe { FFI_ArrowArray::from_raw(pointer.cast().as_ptr()) })
}

#[expect(
    unsafe_code,
    reason = "the PyCapsule interface hands out a pointer to a C struct"
)]
pub(crate) fn take_schema(capsule: &Bound<'_, PyAny>) -> Outcome<FFI_ArrowSchema> {
    let pointer = checked(capsule, SCHEMA)?.pointer_checked(Some(SCHEMA))?;
    // SAFETY: a capsule of this name holds an `ArrowSchema`; `from_raw` leaves a released one behind.
    Ok(unsafe { FFI_ArrowSchema::from_raw(pointer.cast().as_ptr()) })
}

/// The schema that a consumer asks for; `None` when it asks for none, or for what it gets anyway.
fn requested_schema(
    ours: &Schema,
    requested: Option<&Bound<'_, PyAny>>,
) -> Outcome<Option<SchemaRef>> {
    let Some(capsule) = requested else {
        return Ok(None);
    };
    // Read in place: the capsule stays the consumer's.
    let schema = {
        let pointer = checked(capsule, SCHEMA)?.pointer_checked(Some(SCHEMA))?;
        Schema::try_from(borrow_schema(pointer.cast()))?
    };
    let names = |schema: &Schema| -> Vec<String> {
        schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    };
    if names(&schema) != names(ours) {
        return Err(Error::invalid_argument(format!(
            "the requested schema must have the columns {:?}, got {:?}",
            names(ours),
            names(&schema)
        ))
        .into());
    }
    Ok((schema != *ours).then(|| SchemaRef::new(schema)))
}

#[expect(
    unsafe_code,
    reason = "the PyCapsule interface hands out a pointer to a C struct"
)]
fn borrow_schema<'a>(pointer: std::ptr::NonNull<FFI_ArrowSchema>) -> &'a FFI_ArrowSchema {
    // SAFETY: the capsule was checked to hold an `ArrowSchema`, and its owner keeps it while the call that passed it runs.
    unsafe { pointer.as_ref() }
}

fn cast_batch(batch: &RecordBatch, wanted: &SchemaRef) -> CoreResult<RecordBatch> {
    let pairs = batch.columns().iter().zip(wanted.fields());
    let columns: CoreResult<Vec<_>> = pairs
        .map(|(column, field)| {
            exactly(column, field.data_type()).map_err(|error| error.with_column(field.name()))
        })
        .collect();
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        SchemaRef::clone(wanted),
        columns?,
        &options,
    )?)
}

/// The column as another type that holds every value exactly. Times get or lose their zone as pyarrow has it: the moments in UTC stay.
fn exactly(column: &ArrayRef, wanted: &DataType) -> CoreResult<ArrayRef> {
    if column.data_type() == wanted {
        return Ok(ArrayRef::clone(column));
    }
    let between = match (column.data_type(), wanted) {
        (DataType::Timestamp(_, zone), DataType::Timestamp(unit, _)) => {
            DataType::Timestamp(*unit, zone.clone())
        }
        _ => wanted.clone(),
    };
    let cast = cast_with_options(column, &between, &STRICT)?;
    let back = cast_with_options(&cast, column.data_type(), &STRICT)?;
    if back.as_ref() != column.as_ref() {
        return Err(Error::invalid_data(format!(
            "not all values of type {} can be {wanted} without a change",
            column.data_type()
        ))
        .with_hint("cast them in SQL, which says how they change"));
    }
    if between == *wanted {
        return Ok(cast);
    }
    let zoned = cast.to_data().into_builder().data_type(wanted.clone());
    Ok(make_array(zoned.build()?))
}
