//! Tiles on a device, with a device whose memory faults when anybody but its driver reads it.

#![expect(unsafe_code, reason = "plays the driver of a device")]

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, Once};

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, RecordBatch, StringArray,
    StringViewArray, StructArray,
};
use arrow::datatypes::Int64Type;
use arrow::ffi::FFI_ArrowArray;
use partgrid::device::{
    ArrowDeviceArrayStream, CopyEngine, DeviceBatch, DeviceBuffer, DeviceTile, Event, copy_engine,
    export_device_batch, export_device_batches, grid_to, read_device_stream, register_copy_engine,
    tile_to,
};
use partgrid::error::{Error, ErrorKind, Result};
use partgrid::grid::{PartitionGrid, Tile};
use partgrid::location::Device;

use super::single;
use crate::support::column_of_every_type;

/// What an ordinal has seen. Each test has an ordinal of its own, since all tests share the engine.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) buffers: usize,
    pub(super) bytes_read: usize,
    pub(super) waited: Vec<Event>,
}

static SEEN: Mutex<BTreeMap<u32, Seen>> = Mutex::new(BTreeMap::new());

pub(super) fn seen(ordinal: u32) -> Seen {
    SEEN.lock().unwrap().entry(ordinal).or_default().clone()
}

fn note(ordinal: u32, change: impl FnOnce(&mut Seen)) {
    change(SEEN.lock().unwrap().entry(ordinal).or_default());
}

unsafe extern "C" {
    fn mmap(
        place: *mut c_void,
        len: usize,
        rights: c_int,
        flags: c_int,
        file: c_int,
        at: i64,
    ) -> *mut c_void;
    fn mprotect(place: *mut c_void, len: usize, rights: c_int) -> c_int;
    fn munmap(place: *mut c_void, len: usize) -> c_int;
}

const NONE: c_int = 0;
const READ_WRITE: c_int = 3;
const PRIVATE_ANONYMOUS: c_int = 0x22;

/// Pages that nobody may touch unless the driver says so.
struct Pages {
    ordinal: u32,
    place: *mut c_void,
    len: usize,
}

// SAFETY: the pages belong to this struct alone.
unsafe impl Send for Pages {}
// SAFETY: as above; the driver holds a lock while it opens them.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `write`, unmapped once.
        assert_eq!(unsafe { munmap(self.place, self.len) }, 0);
        note(self.ordinal, |seen| seen.buffers -= 1);
    }
}

/// One at a time opens pages: two buffers never share one, but two copies may read the same buffer.
static OPEN: Mutex<()> = Mutex::new(());

#[derive(Debug)]
struct Guarded;

fn opened<T>(place: *mut c_void, len: usize, work: impl FnOnce(*mut u8) -> T) -> T {
    let _open = OPEN.lock().unwrap();
    // SAFETY: whole pages that the driver mapped.
    assert_eq!(unsafe { mprotect(place, len, READ_WRITE) }, 0);
    let done = work(place.cast());
    // SAFETY: as above.
    assert_eq!(unsafe { mprotect(place, len, NONE) }, 0);
    done
}

impl CopyEngine for Guarded {
    fn wait(&self, ordinal: u32, event: Event) -> Result<()> {
        note(ordinal, |seen| seen.waited.push(event));
        Ok(())
    }

    fn read(&self, ordinal: u32, handle: usize, start: usize, out: &mut [u8]) -> Result<()> {
        note(ordinal, |seen| seen.bytes_read += out.len());
        let place = std::ptr::with_exposed_provenance_mut(handle);
        opened(place, start + out.len(), |bytes| {
            // SAFETY: the pages hold at least as many bytes.
            let first = unsafe { bytes.add(start) };
            // SAFETY: the pages hold at least as many bytes from there on, and are open now.
            unsafe { first.copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
        });
        Ok(())
    }

    fn write(&self, ordinal: u32, bytes: &[u8]) -> Result<DeviceBuffer> {
        if ordinal == FULL {
            return Err(Error::new(
                ErrorKind::ResourcesExhausted,
                "the device is full",
            ));
        }
        assert!(!bytes.is_empty());
        // SAFETY: asks for new pages.
        let place = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes.len(),
                NONE,
                PRIVATE_ANONYMOUS,
                -1,
                0,
            )
        };
        let pages = Pages {
            ordinal,
            place,
            len: bytes.len(),
        };
        note(ordinal, |seen| seen.buffers += 1);
        opened(place, bytes.len(), |place| {
            // SAFETY: the pages hold as many bytes, and are open now.
            unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        });
        Ok(DeviceBuffer::new(
            place.expose_provenance(),
            bytes.len(),
            Box::new(pages),
        ))
    }
}

/// The ordinal of a device without room.
const FULL: u32 = 99;

pub(super) fn device(ordinal: u32) -> Device {
    static REGISTER: Once = Once::new();
    let device = Device::try_new(12, Some(ordinal)).unwrap();
    REGISTER.call_once(|| register_copy_engine(device, Arc::new(Guarded)).unwrap());
    device
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(work)
}

#[test]
fn every_type_goes_to_a_device_and_comes_back() {
    let device = device(1);
    for (name, column) in column_of_every_type() {
        for (offset, len) in [(0, column.len()), (2, 3), (0, 0), (column.len(), 0)] {
            let ours = single(name, &column.slice(offset, len));
            let there = DeviceBatch::try_copy_to(&ours, device).unwrap();
            assert_eq!((there.num_rows(), there.device()), (len, device));
            assert_eq!(
                there.copy_to_host(&[0]).unwrap(),
                ours,
                "{name} {offset} {len}"
            );
            // As another library would take it.
            let (schema, array) = there.export().unwrap();
            assert_eq!((array.device_type, array.device_id), (12, 1));
            let counted = there.memory_bytes();
            drop(there);
            let taken = DeviceBatch::try_import(array, &schema).unwrap();
            assert_eq!(
                taken.copy_to_host(&[0]).unwrap(),
                ours,
                "{name} {offset} {len}"
            );
            if len > 0 {
                // What is counted from the struct alone leaves out what buffers hold beyond the values.
                assert!(taken.memory_bytes() <= counted, "{name} {offset} {len}");
                let rows = taken.view(1..len, &[0]).unwrap();
                assert_eq!(
                    rows.copy_to_host(&[0]).unwrap(),
                    ours.slice(1, len - 1),
                    "{name}"
                );
                let (schema, array) = rows.export().unwrap();
                let rows = DeviceBatch::try_import(array, &schema).unwrap();
                drop(taken);
                assert_eq!(
                    rows.copy_to_host(&[0]).unwrap(),
                    ours.slice(1, len - 1),
                    "{name}"
                );
            }
        }
    }
    assert_eq!(seen(1).buffers, 0, "all buffers were freed");
}

pub(super) fn table(num_rows: i64) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..num_rows));
    let texts: StringArray = (0..num_rows)
        .map(|row| Some(format!("row {row}")))
        .collect();
    let texts: ArrayRef = Arc::new(texts);
    RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap()
}

#[test]
fn children_that_a_consumer_moves_out_keep_the_memory() {
    let there = DeviceBatch::try_copy_to(&table(9), device(2)).unwrap();
    let (_, array) = there.export().unwrap();
    drop(there);
    // SAFETY: the exported array has two children, of which this is the second.
    let second = unsafe { array.array.children.add(1) };
    // SAFETY: as above.
    let second = unsafe { *second };
    // SAFETY: a child that is moved out is marked as released.
    let child = unsafe { std::ptr::replace(second, FFI_ArrowArray::empty()) };
    drop(array);
    assert!(seen(2).buffers > 0);
    assert_eq!((child.length, child.n_buffers), (9, 3));
    drop(child);
    assert_eq!(seen(2).buffers, 0);
}

#[test]
fn an_event_is_waited_for_once_before_the_first_copy() {
    let there = DeviceBatch::try_copy_to(&table(4), device(3)).unwrap();
    let (schema, mut array) = there.export().unwrap();
    array.sync_event = std::ptr::with_exposed_provenance_mut(4096);
    let taken = DeviceBatch::try_import(array, &schema).unwrap();
    assert_eq!(seen(3).waited, []);
    assert_eq!(taken.memory_bytes(), 4 * 8 + 5 * 4 + 4 * 5);
    let (_, again) = taken.export().unwrap();
    assert_eq!(
        again.sync_event.addr(),
        4096,
        "whoever takes it must wait as well"
    );
    assert_eq!(
        seen(3).waited,
        [Event(4096)],
        "to count the bytes of the texts"
    );
    for _ in 0..2 {
        taken.copy_to_host(&[0, 1]).unwrap();
    }
    assert_eq!(seen(3).waited, [Event(4096)]);
}

#[test]
fn tiles_say_where_they_are_and_are_copied_by_column() {
    let device = device(4);
    let batches = [table(10), table(20)];
    let grid = PartitionGrid::try_from_batches(batches[0].schema(), &batches).unwrap();
    grid.tiles()[0].column_statistics(0).unwrap();
    let there = block_on(grid_to(&grid, device)).unwrap();
    assert_eq!(there.rows().cuts(), grid.rows().cuts());
    let tile = &there.tiles()[0];
    assert_eq!(tile.locations()[0].device(), device);
    assert!(
        tile.known_statistics(0).is_some(),
        "what is known stays known"
    );
    let error = there.open_row_band(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotLocal);
    assert!(
        error
            .to_string()
            .contains("the tile is in the memory of kDLExtDev:4"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("kDLCPU"), "{error}");
    assert_eq!(seen(4).bytes_read, 0);
    let batch = block_on(tile.data().fetch(&[0])).unwrap();
    assert_eq!(
        batch.column(0).as_primitive::<Int64Type>().values().len(),
        10
    );
    assert_eq!(seen(4).bytes_read, 80, "only the column that was asked for");
    let same = block_on(tile_to(tile, device)).unwrap();
    assert!(Arc::ptr_eq(same.data(), tile.data()));
    let back = block_on(grid_to(&there, Device::CPU)).unwrap();
    for (band, batch) in batches.iter().enumerate() {
        assert_eq!(&back.open_row_band(band).unwrap(), batch);
    }
    let there_in_part = there.slice(5..25).unwrap().select(&["t"]).unwrap();
    let part = block_on(grid_to(&there_in_part, Device::CPU)).unwrap();
    let expected = grid.slice(5..25).unwrap().select(&["t"]).unwrap();
    for band in 0..2 {
        assert_eq!(
            part.open_row_band(band).unwrap(),
            expected.open_row_band(band).unwrap()
        );
    }
    drop((there, there_in_part, same));
    assert_eq!(seen(4).buffers, 0);
}

#[test]
fn of_a_slice_the_rows_alone_are_copied() {
    let ordinal = 17;
    let flags = BooleanArray::from_iter((0..100).map(|row| Some(row % 3 == 0)));
    let views: StringViewArray = (0..100).map(|row| Some(format!("view {row}"))).collect();
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(
        (0..100).map(|row| Some([Some(row), None])),
    );
    let whole = table(100);
    let [numbers, texts] = [0, 1].map(|number| Arc::clone(whole.column(number)));
    let structs = StructArray::from(whole);
    let columns: [(&str, ArrayRef, usize); 6] = [
        ("numbers", numbers, 10 * 8),
        // One offset more than texts, each of six bytes.
        ("texts", texts, 11 * 4 + 10 * 6),
        ("flags", Arc::new(flags), 2),
        ("views", Arc::new(views), 10 * 16),
        ("structs", Arc::new(structs), 10 * 8 + 11 * 4 + 10 * 6),
        // Two values for each row, and the bits of these.
        ("lists", Arc::new(lists), 11 * 4 + 20 * 8 + 3),
    ];
    for (name, column, num_bytes) in columns {
        let ours = single(name, &column);
        let there = DeviceBatch::try_copy_to(&ours, device(ordinal)).unwrap();
        let rows = there.view(10..20, &[0]).unwrap();
        let before = seen(ordinal).bytes_read;
        assert_eq!(rows.copy_to_host(&[0]).unwrap(), ours.slice(10, 10));
        assert_eq!(seen(ordinal).bytes_read - before, num_bytes, "{name}");
        let none = there.view(10..10, &[0]).unwrap();
        assert_eq!(none.copy_to_host(&[0]).unwrap().num_rows(), 0);
        assert_eq!(seen(ordinal).bytes_read - before, num_bytes, "{name}");
    }
}

#[test]
#[cfg(feature = "sql")]
fn sql_copies_the_columns_that_it_needs() {
    use partgrid::location::Locality;
    use partgrid::query::{Session, SessionOptions};

    let grid = PartitionGrid::try_from_batches(table(1).schema(), &[table(1000)]).unwrap();
    let there = block_on(grid_to(&grid, device(5))).unwrap();
    let session = Session::try_new(&SessionOptions::default()).unwrap();
    session.register("t", Arc::new(there)).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let query = session.sql("SELECT sum(n) AS s, count(*) AS c FROM t WHERE n >= 500");
    let query = runtime.block_on(query).unwrap();
    let batches = runtime.block_on(query.collect()).unwrap();
    assert_eq!(
        batches[0].column(0).as_primitive::<Int64Type>().value(0),
        374_750
    );
    assert_eq!(
        batches[0].column(1).as_primitive::<Int64Type>().value(0),
        500
    );
    assert_eq!(seen(5).bytes_read, 8000);
    let groups = query.metrics().unwrap().groups;
    let [group] = groups.as_slice() else {
        panic!("{groups:?}")
    };
    assert_eq!((group.locality, group.read_tiles), (Locality::Device, 1));
    assert_eq!((group.bytes, group.copied_bytes), (8000, 8000));
}

#[test]
fn a_device_without_an_engine_or_room_is_refused_with_the_remedy() {
    device(6);
    let vulkan = Device::try_new(7, Some(0)).unwrap();
    let error = copy_engine(vulkan).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error
            .message()
            .starts_with("nothing copies to and from kDLVulkan:0"),
        "{error}"
    );
    assert!(
        error.hint().unwrap().contains("register an engine"),
        "{error}"
    );
    let error = register_copy_engine(Device::CPU, Arc::new(Guarded)).unwrap_err();
    assert_eq!(
        error.message(),
        "the memory of kDLCPU is read without an engine"
    );
    let error = DeviceBatch::try_copy_to(&table(3), device(FULL)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourcesExhausted);
    assert!(error.to_string().contains("(column: n)"), "{error}");
    assert_eq!(seen(FULL).buffers, 0);
}

#[test]
fn an_imported_array_is_released_once_whatever_becomes_of_it() {
    for fate in ["kept", "refused", "dropped"] {
        let ordinal = 7;
        let there = DeviceBatch::try_copy_to(&table(5), device(ordinal)).unwrap();
        let (schema, mut array) = there.export().unwrap();
        drop(there);
        match fate {
            "kept" => {
                let tile = DeviceTile::new(DeviceBatch::try_import(array, &schema).unwrap());
                let tile = Tile::new(Arc::new(tile));
                assert!(seen(ordinal).buffers > 0);
                drop(tile);
            }
            "refused" => {
                array.device_type = -5;
                let error = DeviceBatch::try_import(array, &schema).unwrap_err();
                let text = "the Arrow C Device interface defines no device type -5";
                assert_eq!(error.message(), text);
            }
            _ => drop(array),
        }
        assert_eq!(seen(ordinal).buffers, 0, "{fate}");
    }
}

#[test]
fn streams_carry_batches_of_a_device_there_and_back() {
    let there = |rows| DeviceBatch::try_copy_to(&table(rows), device(8)).unwrap();
    let schema = table(0).schema();
    let export = |batches: Vec<Result<DeviceBatch>>| -> ArrowDeviceArrayStream {
        export_device_batches(device(8), &schema, batches.into_iter()).unwrap()
    };
    let stream = export(vec![Ok(there(3)), Ok(there(0)), Ok(there(2))]);
    assert_eq!(stream.device_type, 12);
    let (read, batches) = read_device_stream(stream).unwrap();
    assert_eq!(read, schema);
    let rows: Vec<RecordBatch> = batches
        .iter()
        .map(|batch| batch.copy_to_host(&[0, 1]).unwrap())
        .collect();
    assert_eq!(rows, [table(3), table(0), table(2)]);
    drop(batches);
    let lost = Err(Error::new(ErrorKind::PartitionLost, "the tile is lost"));
    let error = read_device_stream(export(vec![Ok(there(3)), lost])).unwrap_err();
    assert_eq!(error.message(), "the tile is lost");
    drop(export(vec![Ok(there(3))]));
    let error = read_device_stream(ArrowDeviceArrayStream::empty()).unwrap_err();
    assert!(error.message().contains("released already"), "{error}");
    assert_eq!(seen(8).buffers, 0);
    // A batch of the host is read in place.
    let (schema, array) = export_device_batch(&table(1)).unwrap();
    assert!(
        Device::try_new(array.device_type, None)
            .unwrap()
            .is_host_readable()
    );
    drop((schema, array));
}
