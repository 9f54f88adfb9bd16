//! Arrow PyCapsules for devices, in and out.
//!
//! Comes in: batches of ours, or objects with `__arrow_c_device_stream__` or `__arrow_c_device_array__`. Goes out: capsules, batches, or grids of tiles on devices. Never here:
//! reading of C structs, which `partgrid::device` does.

#![expect(
    unsafe_code,
    reason = "the PyCapsule interface hands out a pointer to a C struct"
)]

use std::any::Any;
use std::ffi::CStr;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ffi::FFI_ArrowSchema;
use arrow::ffi_stream::FFI_ArrowArrayStream;
use partgrid::device::{
    ArrowDeviceArray, ArrowDeviceArrayStream, DeviceBatch, DeviceTile, ReadableTile,
    export_device_batch, export_device_batches, export_device_stream, import_device_batch,
    import_device_stream, read_device_stream,
};
use partgrid::error::{Error, ErrorKind, Result as CoreResult};
use partgrid::grid::{Axis, GridBuilder, PartitionGrid, Tile, TileData, named, named_batches};
use partgrid::location::Device;
use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyDict, PyTuple};

use crate::argument::shown;
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

/// A pair of capsules of what was exported from a device. It is not cast: that would need the device.
pub(crate) fn device_capsules(
    py: Python<'_>,
    exported: (FFI_ArrowSchema, ArrowDeviceArray),
) -> Outcome<Bound<'_, PyTuple>> {
    let (schema, array) = exported;
    let schema = PyCapsule::new_with_value(py, schema, SCHEMA)?;
    let array = PyCapsule::new_with_value(py, array, ARRAY)?;
    Ok(PyTuple::new(py, [schema, array])?)
}

/// The batch of a tile that lies on a device.
pub(crate) fn device_batch(tile: &Tile) -> Option<&DeviceBatch> {
    let data: &dyn Any = tile.data().as_ref();
    data.downcast_ref::<DeviceTile>().map(DeviceTile::batch)
}

/// Refuses to cast what lies on a device.
pub(crate) fn refuse_cast(requested: Option<&Bound<'_, PyAny>>) -> Outcome<()> {
    if requested.is_none() {
        return Ok(());
    }
    let text = "a tile on a device is handed out as it is, without requested_schema";
    Err(Error::unsupported(text)
        .with_hint("copy it to the host first: to(\"kDLCPU\")")
        .into())
}

/// A capsule with a device stream of batches on one type of device.
pub(crate) fn device_batches_capsule<'py>(
    py: Python<'py>,
    device: Device,
    schema: &SchemaRef,
    batches: Vec<DeviceBatch>,
) -> Outcome<Bound<'py, PyCapsule>> {
    let stream = export_device_batches(device, schema, batches.into_iter().map(Ok))?;
    Ok(PyCapsule::new_with_value(py, stream, STREAM)?)
}

/// What the methods for devices of an object gave.
enum Found {
    /// Memory that this process reads, and whose it is.
    Host(SchemaRef, Vec<RecordBatch>, Device),
    Device(SchemaRef, Vec<DeviceBatch>),
}

/// Asks an object for its memory by the methods for devices; `None` when it has neither, or a plain stream and no device array.
fn found(object: &Bound<'_, PyAny>) -> Outcome<Option<Found>> {
    let py = object.py();
    let readable = |number| Device::try_new(number, None).is_ok_and(Device::is_host_readable);
    if object.hasattr("__arrow_c_device_stream__")? && !object.hasattr("__arrow_c_stream__")? {
        let stream = take_stream(&object.call_method0("__arrow_c_device_stream__")?)?;
        if !readable(stream.device_type) {
            let (schema, batches) = py.detach(|| read_device_stream(stream))?;
            return Ok(Some(Found::Device(schema, batches)));
        }
        let device = Device::try_new(stream.device_type, None)?;
        let stream = import_device_stream(stream)?;
        let schema = stream.schema();
        let batches = py.detach(|| stream.collect::<CoreResult<Vec<_>>>())?;
        return Ok(Some(Found::Host(schema, batches, device)));
    }
    if !object.hasattr("__arrow_c_device_array__")? {
        return Ok(None);
    }
    let pair = object.call_method0("__arrow_c_device_array__")?;
    let Ok((schema, array)) = pair.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
        let text = format!(
            "__arrow_c_device_array__ must return two capsules, schema and array, got {}",
            shown(&pair)
        );
        return Err(Error::new(ErrorKind::Protocol, text).into());
    };
    let (array, schema) = (take_array(&array)?, take_schema(&schema)?);
    if readable(array.device_type) {
        let device = Device::try_new(array.device_type, u32::try_from(array.device_id).ok())?;
        // What must be waited for may want the GIL.
        let batch = py.detach(move || import_device_batch(array, &schema))?;
        return Ok(Some(Found::Host(batch.schema(), vec![batch], device)));
    }
    let batch = DeviceBatch::try_import(array, &schema)?;
    Ok(Some(Found::Device(batch.schema(), vec![batch])))
}

/// A grid over the memory of an object that has the methods for devices, see [`found`]. Memory of a device stays there. Its columns have the names that are given, see
/// [`named`].
pub(crate) fn device_grid_of(
    object: &Bound<'_, PyAny>,
    names: Option<&[String]>,
) -> Outcome<Option<PartitionGrid>> {
    Ok(match found(object)? {
        Some(Found::Host(schema, batches, device)) => {
            let (schema, batches) = named_batches(&schema, &batches, names)?;
            if device.device_type() == Device::CPU.device_type() {
                return Ok(Some(PartitionGrid::try_from_batches(schema, &batches)?));
            }
            let tiles = batches
                .iter()
                .map(|batch| ReadableTile::try_new(batch, device));
            Some(grid_of(schema, tiles.collect::<CoreResult<_>>()?)?)
        }
        Some(Found::Device(schema, batches)) => {
            let schema = named(&schema, names)?;
            let tiles = batches
                .iter()
                .map(|batch| batch.under(&schema).map(DeviceTile::new));
            let tiles = tiles.collect::<CoreResult<_>>()?;
            Some(grid_of(schema, tiles)?)
        }
        None => None,
    })
}

/// A grid of row bands.
fn grid_of<T: TileData>(schema: SchemaRef, tiles: Vec<T>) -> Outcome<PartitionGrid> {
    let rows = Axis::try_from_lengths(tiles.iter().map(TileData::num_rows))?;
    let columns = Axis::try_from_lengths([schema.fields().len() as u64])?;
    let mut builder = GridBuilder::try_new(schema, rows, columns)?;
    for (row_band, tile) in tiles.into_iter().enumerate() {
        builder.set(&[row_band, 0], Tile::new(Arc::new(tile)))?;
    }
    Ok(builder.build()?)
}

/// The schema and the batches of an object that has only the methods for devices; `None` when it has neither. Memory that this process cannot read is refused by name.
pub(crate) fn device_batches_of(
    object: &Bound<'_, PyAny>,
) -> Outcome<Option<(SchemaRef, Vec<RecordBatch>)>> {
    Ok(match found(object)? {
        Some(Found::Host(schema, batches, _)) => Some((schema, batches)),
        Some(Found::Device(schema, batches)) => {
            let batches = batches
                .into_iter()
                .map(|batch| DeviceTile::new(batch).open());
            Some((schema, batches.collect::<CoreResult<_>>()?))
        }
        None => None,
    })
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
