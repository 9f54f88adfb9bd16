//! The Arrow C Device interface: batches and streams there and back, and devices that cannot be read.

#![expect(unsafe_code, reason = "plays a producer of another device")]

use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use arrow::ffi::FFI_ArrowSchema;
use partgrid::device::{
    ArrowDeviceArray, ArrowDeviceArrayStream, CopyEngine, DeviceBuffer, Event, copy_engine,
    export_device_batch, export_device_stream, export_stream, import_device_batch,
    import_device_stream, register_copy_engine,
};
use partgrid::error::{Error, ErrorKind, Result};
use partgrid::location::Device;

use super::single;

fn batch() -> RecordBatch {
    single(
        "n",
        &(Arc::new(Int32Array::from_iter_values(0..50)) as ArrayRef),
    )
}

fn address(batch: &RecordBatch) -> *const u8 {
    batch.column(0).to_data().buffers()[0].as_ptr()
}

fn stream_of(batches: Vec<Result<RecordBatch>>) -> ArrowDeviceArrayStream {
    export_device_stream(export_stream(batch().schema(), batches.into_iter()).unwrap())
}

#[test]
fn a_batch_is_on_the_cpu_and_comes_back_without_a_copy() {
    let ours = batch();
    let buffer = ours.column(0).to_data().buffers()[0].clone();
    let (schema, array) = export_device_batch(&ours).unwrap();
    assert_eq!(
        (array.device_type, array.device_id, array.reserved),
        (1, -1, [0; 3])
    );
    assert!(array.sync_event.is_null());
    let back = import_device_batch(array, &schema).unwrap();
    assert_eq!((&back, address(&back)), (&ours, address(&ours)));
    drop(ours);
    assert_eq!(buffer.strong_count(), 2);
    drop(back);
    assert_eq!(buffer.strong_count(), 1);
    drop(export_device_batch(&batch()).unwrap());
}

#[test]
fn memory_of_the_host_is_read_and_other_devices_are_refused_by_name() {
    for device_type in [3, 11, 13] {
        let (schema, mut array) = export_device_batch(&batch()).unwrap();
        array.device_type = device_type;
        assert_eq!(import_device_batch(array, &schema).unwrap(), batch());
    }
    for (device_type, device_id, kind, text) in [
        (
            2,
            1,
            ErrorKind::NotLocal,
            "the array is in the memory of kDLCUDA:1, which this process cannot read",
        ),
        (
            8,
            0,
            ErrorKind::NotLocal,
            "the array is in the memory of kDLMetal:0, which this process cannot read",
        ),
        (
            10,
            -1,
            ErrorKind::NotLocal,
            "the array is in the memory of kDLROCM, which this process cannot read",
        ),
        (
            -5,
            0,
            ErrorKind::Unsupported,
            "the Arrow C Device interface defines no device type -5",
        ),
    ] {
        let ours = batch();
        let buffer = ours.column(0).to_data().buffers()[0].clone();
        let (schema, mut array) = export_device_batch(&ours).unwrap();
        (array.device_type, array.device_id) = (device_type, device_id);
        let error = import_device_batch(array, &schema).unwrap_err();
        assert_eq!((error.kind(), error.message()), (kind, text));
        drop(ours);
        assert_eq!(buffer.strong_count(), 1, "released");
    }
}

/// What the driver of ROCm would be told, which also has the events of memory that it has pinned.
#[derive(Debug)]
struct Waits(Mutex<Vec<(u32, Event)>>);

impl CopyEngine for Waits {
    fn wait(&self, ordinal: u32, event: Event) -> Result<()> {
        self.0.lock().unwrap().push((ordinal, event));
        match ordinal {
            7 => Err(Error::internal("the driver is gone")),
            _ => Ok(()),
        }
    }

    fn read(&self, _: u32, _: usize, _: usize, _: &mut [u8]) -> Result<()> {
        panic!("memory of the host is read in place")
    }

    fn write(&self, _: u32, _: &[u8]) -> Result<DeviceBuffer> {
        panic!("nothing is written")
    }
}

fn with_event(device_type: i32, device_id: i64) -> (FFI_ArrowSchema, ArrowDeviceArray) {
    let (schema, mut array) = export_device_batch(&batch()).unwrap();
    (array.device_type, array.device_id) = (device_type, device_id);
    array.sync_event = std::ptr::with_exposed_provenance_mut(4096);
    (schema, array)
}

#[test]
fn an_event_of_memory_of_the_host_is_waited_for_by_the_engine_of_its_gpu() {
    let engine = Arc::new(Waits(Mutex::default()));
    let rocm = Device::try_new(10, None).unwrap();
    register_copy_engine(rocm, Arc::clone(&engine) as _).unwrap();
    for device_id in [3, -1] {
        let (schema, array) = with_event(11, device_id);
        assert_eq!(import_device_batch(array, &schema).unwrap(), batch());
    }
    let waited = engine.0.lock().unwrap().clone();
    assert_eq!(waited, [(3, Event(4096)), (0, Event(4096))]);
    let (schema, array) = with_event(11, 7);
    let error = import_device_batch(array, &schema).unwrap_err();
    assert_eq!(error.message(), "the driver is gone");
}

#[test]
fn an_event_that_no_engine_knows_is_refused() {
    let cuda = copy_engine(Device::try_new(2, None).unwrap());
    for (device_type, name) in [
        (1, "kDLCPU:0"),
        (3, "kDLCUDAHost:0"),
        (13, "kDLCUDAManaged:0"),
    ] {
        // A driver would follow the pointer.
        if device_type != 1 && cuda.is_ok() {
            continue;
        }
        let (schema, array) = with_event(device_type, 0);
        let error = import_device_batch(array, &schema).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            format!(
                "an array on {name} with a sync_event must be waited for, which needs the device's own library\nhint: synchronize the producer, or copy the array to the CPU first"
            )
        );
    }
}

#[test]
fn a_released_array_is_refused() {
    let schema = FFI_ArrowSchema::try_from(batch().schema().as_ref()).unwrap();
    let error = import_device_batch(ArrowDeviceArray::empty(), &schema).unwrap_err();
    assert_eq!(error.message(), "the Arrow C array was released already");
}

#[test]
fn a_stream_gives_its_batches_and_its_errors() {
    let ours = batch();
    let failed = Err(Error::invalid_data("the third one is broken"));
    let stream = stream_of(vec![Ok(ours.clone()), Ok(batch()), failed]);
    assert_eq!(stream.device_type, 1);
    let mut back = import_device_stream(stream).unwrap();
    let first = back.next().unwrap().unwrap();
    assert_eq!((&first, address(&first)), (&ours, address(&ours)));
    assert!(back.next().unwrap().is_ok());
    let error = back.next().unwrap().unwrap_err();
    assert!(
        error.message().contains("the third one is broken"),
        "{error}"
    );
    assert!(back.next().is_none());
}

#[test]
fn a_stream_that_is_not_read_to_its_end_is_released() {
    let ours = batch();
    let buffer = ours.column(0).to_data().buffers()[0].clone();
    drop(stream_of(vec![Ok(ours.clone())]));
    let mut back = import_device_stream(stream_of(vec![Ok(ours.clone()), Ok(ours)])).unwrap();
    let first = back.next().unwrap().unwrap();
    drop(back);
    assert_eq!(first.num_rows(), 50);
    drop(first);
    assert_eq!(buffer.strong_count(), 1);
}

#[test]
fn streams_of_other_devices_or_without_callbacks_are_refused() {
    let mut elsewhere = stream_of(vec![]);
    elsewhere.device_type = 2;
    let mut lacking = stream_of(vec![]);
    lacking.get_next = None;
    for (stream, kind, text) in [
        (
            elsewhere,
            ErrorKind::NotLocal,
            "the array is in the memory of kDLCUDA, which this process cannot read",
        ),
        (
            lacking,
            ErrorKind::InvalidData,
            "the Arrow C device stream lacks `get_schema` or `get_next`",
        ),
        (
            ArrowDeviceArrayStream::empty(),
            ErrorKind::InvalidData,
            "the Arrow C device stream was released already",
        ),
    ] {
        let error = import_device_stream(stream).unwrap_err();
        assert_eq!((error.kind(), error.message()), (kind, text));
    }
}

#[test]
fn an_array_of_another_device_within_a_stream_is_refused_by_name() {
    unsafe extern "C" fn on_cuda(
        stream: *mut ArrowDeviceArrayStream,
        out: *mut ArrowDeviceArray,
    ) -> c_int {
        let (_, mut array) = export_device_batch(&batch()).unwrap();
        (array.device_type, array.device_id) = (2, 0);
        assert!(!stream.is_null());
        // SAFETY: `out` is a place for one struct.
        unsafe { out.write(array) };
        0
    }
    let mut stream = stream_of(vec![]);
    stream.get_next = Some(on_cuda);
    let error = import_device_stream(stream)
        .unwrap()
        .next()
        .unwrap()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error
            .message()
            .starts_with("the array is in the memory of kDLCUDA:0, which this process cannot read"),
        "{error}"
    );
}
