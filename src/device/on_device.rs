//! The Arrow C Device interface for batches in the memory of this host.
//!
//! Comes in: batches and streams of ours, or device arrays and device streams of another library. Goes out: the structs of `abi.rs`, or batches; what must be waited for is waited for here,
//! since whoever has memory of the host may read it at once. Never here: memory that this process cannot read, which is refused by name.
//!
//! Follows <https://arrow.apache.org/docs/format/CDeviceDataInterface.html>.

#![expect(unsafe_code, reason = "calls and is called through C callbacks")]

use std::ffi::{CString, c_char, c_int, c_void};

use arrow::array::{Array, RecordBatch, StructArray};
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow::ffi_stream::FFI_ArrowArrayStream;

use crate::device::abi::{ARROW_DEVICE_CPU, ArrowDeviceArray, ArrowDeviceArrayStream};
use crate::device::engine::{Event, copy_engine};
use crate::device::import::{ImportedStream, import_batch, import_stream};
use crate::device::node::broken;
use crate::error::{Error, ErrorKind, Result};
use crate::location::Device;

/// The numbers of EINVAL and ENOSYS on Linux.
const INVALID: c_int = 22;
const NOT_SUPPORTED: c_int = 38;

/// A batch as schema and device array, on the CPU, over the same buffers.
///
/// # Errors
/// `Unsupported` when the C Data interface cannot carry the schema.
pub fn export_device_batch(batch: &RecordBatch) -> Result<(FFI_ArrowSchema, ArrowDeviceArray)> {
    let schema = FFI_ArrowSchema::try_from(batch.schema().as_ref());
    let schema =
        schema.map_err(|error| Error::unsupported(error.to_string()).with_source(error))?;
    let array = FFI_ArrowArray::new(&StructArray::from(batch.clone()).to_data());
    Ok((schema, ArrowDeviceArray::on_cpu(array)))
}

/// Takes over a device array whose buffers this process can read, waits for its event if it has one, and makes a batch of it.
///
/// # Errors
/// `NotLocal` for a device whose memory this process cannot read, `Unsupported` for a device that the interface does not define and for an event that no engine knows; what the driver says of
/// the event; else as [`import_batch`].
pub fn import_device_batch(
    array: ArrowDeviceArray,
    schema: &FFI_ArrowSchema,
) -> Result<RecordBatch> {
    import_batch(readable(array)?, schema)
}

/// A stream of ours as a device stream on the CPU.
#[must_use]
pub fn export_device_stream(stream: FFI_ArrowArrayStream) -> ArrowDeviceArrayStream {
    ArrowDeviceArrayStream {
        device_type: ARROW_DEVICE_CPU,
        get_schema: Some(exported_schema),
        get_next: Some(exported_next),
        get_last_error: Some(exported_error),
        release: Some(exported_release),
        private_data: Box::into_raw(Box::new(stream)).cast(),
    }
}

/// Takes over a device stream whose arrays this process can read, and asks it for its schema.
///
/// # Errors
/// As [`import_device_batch`] for the device, else as [`import_stream`].
pub fn import_device_stream(stream: ArrowDeviceArrayStream) -> Result<ImportedStream> {
    if stream.release.is_none() {
        return Err(broken("the Arrow C device stream was released already"));
    }
    check_device(stream.device_type, -1)?;
    if stream.get_schema.is_none() || stream.get_next.is_none() {
        return Err(broken(
            "the Arrow C device stream lacks `get_schema` or `get_next`",
        ));
    }
    let adapter = Box::new(Adapter {
        stream,
        error: None,
    });
    import_stream(FFI_ArrowArrayStream {
        get_schema: Some(adapted_schema),
        get_next: Some(adapted_next),
        get_last_error: Some(adapted_error),
        release: Some(adapted_release),
        private_data: Box::into_raw(adapter).cast(),
    })
}

/// The array, when its buffers can be read here; by now what fills them is done. Dropping it otherwise releases it.
fn readable(array: ArrowDeviceArray) -> Result<FFI_ArrowArray> {
    check_device(array.device_type, array.device_id)?;
    if !array.sync_event.is_null() {
        wait(&array)?;
    }
    Ok(array.array)
}

/// Waits by the engine of the GPU whose memory it is, or that has pinned it.
fn wait(array: &ArrowDeviceArray) -> Result<()> {
    let refused = || {
        Error::unsupported(format!(
            "an array on {} with a sync_event must be waited for, which needs the device's own library",
            device_name(array.device_type, array.device_id)
        ))
        .with_hint("synchronize the producer, or copy the array to the CPU first")
    };
    let ordinal = u32::try_from(array.device_id).unwrap_or(0);
    let device = Device::try_new(array.device_type, Some(ordinal))?;
    let device = device.of_events().ok_or_else(refused)?;
    let engine = copy_engine(device).map_err(|error| refused().with_source(error))?;
    engine.wait(ordinal, Event(array.sync_event.expose_provenance()))
}

fn check_device(device_type: i32, device_id: i64) -> Result<()> {
    if Device::try_new(device_type, None).is_ok_and(Device::is_host_readable) {
        return Ok(());
    }
    let name = device_name(device_type, device_id);
    Err(match Device::try_new(device_type, None) {
        Ok(_) => Error::new(
            ErrorKind::NotLocal,
            format!("the array is in the memory of {name}, which this process cannot read"),
        )
        .with_hint("copy it to the CPU first"),
        Err(_) => Error::unsupported(format!("the Arrow C Device interface defines no {name}")),
    })
}

fn device_name(device_type: i32, device_id: i64) -> String {
    match Device::try_new(device_type, u32::try_from(device_id).ok()) {
        Ok(known) => known.to_string(),
        Err(_) => format!("device type {device_type}"),
    }
}

/// Our stream behind a device stream.
///
/// # Safety
/// `stream` must be null or a stream that `export_device_stream` made.
unsafe fn inner<'a>(stream: *mut ArrowDeviceArrayStream) -> Option<&'a mut FFI_ArrowArrayStream> {
    // SAFETY: as the caller vouches.
    let stream = unsafe { stream.as_mut() }?;
    // SAFETY: `export_device_stream` put the box there, and `exported_release` sets the pointer to null.
    unsafe { stream.private_data.cast::<FFI_ArrowArrayStream>().as_mut() }
}

unsafe extern "C" fn exported_schema(
    stream: *mut ArrowDeviceArrayStream,
    out: *mut FFI_ArrowSchema,
) -> c_int {
    // SAFETY: the consumer calls this with the stream that it is part of.
    let Some(inner) = (unsafe { inner(stream) }) else {
        return INVALID;
    };
    match inner.get_schema {
        // SAFETY: our own callback with our own stream.
        Some(get_schema) => unsafe { get_schema(inner, out) },
        None => INVALID,
    }
}

unsafe extern "C" fn exported_next(
    stream: *mut ArrowDeviceArrayStream,
    out: *mut ArrowDeviceArray,
) -> c_int {
    // SAFETY: as for the schema.
    let Some(inner) = (unsafe { inner(stream) }) else {
        return INVALID;
    };
    let Some(get_next) = inner.get_next else {
        return INVALID;
    };
    let mut array = FFI_ArrowArray::empty();
    // SAFETY: our own callback with our own stream.
    let code = unsafe { get_next(inner, &raw mut array) };
    if code == 0 {
        // SAFETY: `out` is a place for one struct, which need not be one yet.
        unsafe { out.write(ArrowDeviceArray::on_cpu(array)) };
    }
    code
}

unsafe extern "C" fn exported_error(stream: *mut ArrowDeviceArrayStream) -> *const c_char {
    // SAFETY: as for the schema.
    let Some(inner) = (unsafe { inner(stream) }) else {
        return std::ptr::null();
    };
    match inner.get_last_error {
        // SAFETY: our own callback with our own stream.
        Some(get_last_error) => unsafe { get_last_error(inner) },
        None => std::ptr::null(),
    }
}

unsafe extern "C" fn exported_release(stream: *mut ArrowDeviceArrayStream) {
    // SAFETY: as for the schema.
    let Some(stream) = (unsafe { stream.as_mut() }) else {
        return;
    };
    let inner = std::mem::replace(&mut stream.private_data, std::ptr::null_mut());
    if !inner.is_null() {
        // SAFETY: `export_device_stream` put the box there, and the pointer is null from now on.
        drop(unsafe { Box::from_raw(inner.cast::<FFI_ArrowArrayStream>()) });
    }
    stream.release = None;
}

/// A device stream of another library behind a plain stream that `import_stream` reads.
struct Adapter {
    stream: ArrowDeviceArrayStream,
    /// What was refused here, not by the producer.
    error: Option<CString>,
}

impl Adapter {
    /// # Safety
    /// `stream` must be null or a stream that `import_device_stream` made.
    unsafe fn of<'a>(stream: *mut FFI_ArrowArrayStream) -> Option<&'a mut Self> {
        // SAFETY: as the caller vouches.
        let stream = unsafe { stream.as_mut() }?;
        // SAFETY: `import_device_stream` put the box there, and `adapted_release` sets the pointer to null.
        unsafe { stream.private_data.cast::<Self>().as_mut() }
    }

    fn next(&mut self) -> Result<FFI_ArrowArray, c_int> {
        let get_next = self.stream.get_next.ok_or(INVALID)?;
        let mut array = ArrowDeviceArray::empty();
        // SAFETY: a stream that is not released may be asked by its own callback; `array` is a place for one struct.
        let code = unsafe { get_next(&raw mut self.stream, &raw mut array) };
        if code != 0 {
            return Err(code);
        }
        if array.array.is_released() {
            return Ok(array.array);
        }
        readable(array).map_err(|error| {
            self.error = CString::new(error.to_string()).ok();
            NOT_SUPPORTED
        })
    }
}

unsafe extern "C" fn adapted_schema(
    stream: *mut FFI_ArrowArrayStream,
    out: *mut FFI_ArrowSchema,
) -> c_int {
    // SAFETY: called by `import_stream` with the stream that it got.
    let Some(adapter) = (unsafe { Adapter::of(stream) }) else {
        return INVALID;
    };
    match adapter.stream.get_schema {
        // SAFETY: a stream that is not released may be asked by its own callback; `out` is a place for one struct.
        Some(get_schema) => unsafe { get_schema(&raw mut adapter.stream, out) },
        None => INVALID,
    }
}

unsafe extern "C" fn adapted_next(
    stream: *mut FFI_ArrowArrayStream,
    out: *mut FFI_ArrowArray,
) -> c_int {
    // SAFETY: as for the schema.
    let Some(adapter) = (unsafe { Adapter::of(stream) }) else {
        return INVALID;
    };
    match adapter.next() {
        Ok(array) => {
            // SAFETY: `out` is a place for one struct.
            unsafe { out.write(array) };
            0
        }
        Err(code) => code,
    }
}

unsafe extern "C" fn adapted_error(stream: *mut FFI_ArrowArrayStream) -> *const c_char {
    // SAFETY: as for the schema.
    let Some(adapter) = (unsafe { Adapter::of(stream) }) else {
        return std::ptr::null();
    };
    match (&adapter.error, adapter.stream.get_last_error) {
        (Some(error), _) => error.as_ptr(),
        // SAFETY: the last call of the stream failed, as this callback wants.
        (None, Some(get_last_error)) => unsafe { get_last_error(&raw mut adapter.stream) },
        (None, None) => std::ptr::null(),
    }
}

unsafe extern "C" fn adapted_release(stream: *mut FFI_ArrowArrayStream) {
    // SAFETY: as for the schema.
    let Some(stream) = (unsafe { stream.as_mut() }) else {
        return;
    };
    let adapter: *mut c_void = std::mem::replace(&mut stream.private_data, std::ptr::null_mut());
    if !adapter.is_null() {
        // SAFETY: `import_device_stream` put the box there, and the pointer is null from now on.
        drop(unsafe { Box::from_raw(adapter.cast::<Adapter>()) });
    }
    stream.release = None;
}
