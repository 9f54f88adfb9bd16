//! Streams of batches on devices.
//!
//! Comes in: an `ArrowDeviceArrayStream` of another library, or batches of ours on one type of device. Goes out: batches, or such a stream. Never here: copying.
//!
//! Follows "Device Stream Interface" of <https://arrow.apache.org/docs/format/CDeviceDataInterface.html>.

#![expect(unsafe_code, reason = "calls and is called through C callbacks")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::ffi::FFI_ArrowSchema;

use crate::device::abi::{ArrowDeviceArray, ArrowDeviceArrayStream};
use crate::device::device_batch::DeviceBatch;
use crate::device::guard::contain;
use crate::device::import::{import_schema, kind_of};
use crate::device::node::broken;
use crate::error::{Error, ErrorKind, Result};
use crate::location::Device;

/// The numbers of EIO and EINVAL on Linux.
const FAILED: c_int = 5;
const INVALID: c_int = 22;

/// Reads a device stream of any device to its end. Nothing is read of the memory of the device.
///
/// # Errors
/// `InvalidData` when the stream contradicts the interface, else the producer's own text; as [`DeviceBatch::try_import`].
pub fn read_device_stream(
    mut stream: ArrowDeviceArrayStream,
) -> Result<(SchemaRef, Vec<DeviceBatch>)> {
    let (Some(get_schema), Some(get_next), Some(_)) =
        (stream.get_schema, stream.get_next, stream.release)
    else {
        return Err(broken(
            "the Arrow C device stream was released already, or lacks `get_schema` or `get_next`",
        ));
    };
    let mut schema = FFI_ArrowSchema::empty();
    // SAFETY: a stream that is not released may be asked by its own callback; `schema` is a place for one struct.
    let code = unsafe { get_schema(&raw mut stream, &raw mut schema) };
    check(&mut stream, code)?;
    let mut batches = Vec::new();
    loop {
        let mut array = ArrowDeviceArray::empty();
        // SAFETY: as above.
        let code = unsafe { get_next(&raw mut stream, &raw mut array) };
        check(&mut stream, code)?;
        if array.array.is_released() {
            return Ok((import_schema(&schema)?, batches));
        }
        if array.device_type != stream.device_type {
            return Err(broken(format!(
                "all arrays of an Arrow C device stream must be on its device type {}, got one on {}",
                stream.device_type, array.device_type
            )));
        }
        batches.push(DeviceBatch::try_import(array, &schema)?);
    }
}

fn check(stream: &mut ArrowDeviceArrayStream, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let text = match stream.get_last_error {
        // SAFETY: the stream is not released, and its last call failed, as this callback wants.
        Some(get_last_error) => unsafe { get_last_error(stream) },
        None => std::ptr::null(),
    };
    if text.is_null() {
        let text = format!("the Arrow C device stream failed with error number {code} and no text");
        return Err(Error::new(kind_of(code), text));
    }
    // SAFETY: not null, hence a text that ends with 0 and stays until the next call.
    let text = unsafe { CStr::from_ptr(text) };
    Err(Error::new(kind_of(code), text.to_string_lossy()))
}

/// A device stream of batches that lie on devices of one type, each with the columns of `schema`.
///
/// # Errors
/// `Unsupported` when the C Data interface cannot carry the schema.
pub fn export_device_batches<I>(
    device: Device,
    schema: &SchemaRef,
    batches: I,
) -> Result<ArrowDeviceArrayStream>
where
    I: Iterator<Item = Result<DeviceBatch>> + Send + 'static,
{
    contain(ErrorKind::Unsupported, "exporting the schema", || {
        FFI_ArrowSchema::try_from(schema.as_ref())
            .map(drop)
            .map_err(|error| Error::unsupported(error.to_string()).with_source(error))
    })?;
    let exported = Box::new(Exported {
        schema: Arc::clone(schema),
        device_type: device.device_type(),
        batches: Some(Box::new(batches)),
        error: None,
    });
    Ok(ArrowDeviceArrayStream {
        device_type: device.device_type(),
        get_schema: Some(get_schema),
        get_next: Some(get_next),
        get_last_error: Some(get_last_error),
        release: Some(release),
        private_data: Box::into_raw(exported).cast(),
    })
}

struct Exported {
    schema: SchemaRef,
    device_type: i32,
    /// `None` after the end and after an error.
    batches: Option<Box<dyn Iterator<Item = Result<DeviceBatch>> + Send>>,
    error: Option<CString>,
}

impl Exported {
    /// # Safety
    /// `stream` must be null or a stream that `export_device_batches` made.
    unsafe fn of<'a>(stream: *mut ArrowDeviceArrayStream) -> Option<&'a mut Self> {
        // SAFETY: as the caller vouches.
        let stream = unsafe { stream.as_mut() }?;
        // SAFETY: `export_device_batches` put the box there, and `release` sets the pointer to null.
        unsafe { stream.private_data.cast::<Self>().as_mut() }
    }

    fn next(&mut self) -> Result<ArrowDeviceArray> {
        let batches = &mut self.batches;
        let (schema, device_type) = (&self.schema, self.device_type);
        contain(ErrorKind::Internal, "making the next batch", || {
            let Some(batch) = batches.as_mut().and_then(Iterator::next).transpose()? else {
                *batches = None;
                return Ok(ArrowDeviceArray::empty());
            };
            if batch.schema().fields() != schema.fields() {
                return Err(Error::internal(
                    "a batch differs from the schema of its stream",
                ));
            }
            if batch.device().device_type() != device_type {
                return Err(Error::unsupported(format!(
                    "all batches of a stream must be on one type of device, got one on {}",
                    batch.device()
                )));
            }
            Ok(batch.export()?.1)
        })
    }

    fn failed(&mut self, error: &Error) -> c_int {
        let text = error.to_string().replace('\0', "\u{fffd}");
        self.error = CString::new(text).ok();
        self.batches = None;
        FAILED
    }
}

unsafe extern "C" fn get_schema(
    stream: *mut ArrowDeviceArrayStream,
    out: *mut FFI_ArrowSchema,
) -> c_int {
    // SAFETY: the consumer calls this with the stream that it is part of.
    let Some(exported) = (unsafe { Exported::of(stream) }) else {
        return INVALID;
    };
    match FFI_ArrowSchema::try_from(exported.schema.as_ref()) {
        Ok(schema) => {
            // SAFETY: `out` is a place for one struct, which need not be one yet.
            unsafe { out.write(schema) };
            0
        }
        Err(error) => exported.failed(&Error::unsupported(error.to_string())),
    }
}

unsafe extern "C" fn get_next(
    stream: *mut ArrowDeviceArrayStream,
    out: *mut ArrowDeviceArray,
) -> c_int {
    // SAFETY: as for the schema.
    let Some(exported) = (unsafe { Exported::of(stream) }) else {
        return INVALID;
    };
    match exported.next() {
        Ok(array) => {
            // SAFETY: `out` is a place for one struct, which need not be one yet.
            unsafe { out.write(array) };
            0
        }
        Err(error) => exported.failed(&error),
    }
}

unsafe extern "C" fn get_last_error(stream: *mut ArrowDeviceArrayStream) -> *const c_char {
    // SAFETY: as for the schema.
    let exported = unsafe { Exported::of(stream) };
    let text = exported.and_then(|exported| exported.error.as_ref());
    text.map_or(std::ptr::null(), |text| text.as_ptr())
}

unsafe extern "C" fn release(stream: *mut ArrowDeviceArrayStream) {
    // SAFETY: as for the schema.
    let Some(stream) = (unsafe { stream.as_mut() }) else {
        return;
    };
    stream.release = None;
    let exported = std::mem::replace(&mut stream.private_data, std::ptr::null_mut());
    if exported.is_null() {
        return;
    }
    // SAFETY: `export_device_batches` put the box there, and the pointer is null from now on.
    let exported = unsafe { Box::from_raw(exported.cast::<Exported>()) };
    let dropped = contain(ErrorKind::Internal, "ending a stream", || {
        drop(exported);
        Ok(())
    });
    if let Err(error) = dropped {
        tracing::error!("{error}");
    }
}
