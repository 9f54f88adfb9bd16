//! Columns and row bands on a device: handed out without a copy, side by side, and what cannot be.

#![expect(unsafe_code, reason = "plays a producer that contradicts itself")]

use std::mem::MaybeUninit;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, UInt8Array};
use arrow::datatypes::Schema;
use arrow::ffi::FFI_ArrowArray;
use partgrid::device::{
    CopyEngine, DeviceBatch, DeviceBuffer, DeviceTile, Event, device_row_bands,
    register_copy_engine,
};
use partgrid::error::{ErrorKind, Result};
use partgrid::grid::{Axis, GridBuilder, PartitionGrid, Tile, named};
use partgrid::location::Device;

use super::engine::{device, seen, table};

fn with_nulls(num_rows: i64) -> RecordBatch {
    let numbers: Int64Array = (0..num_rows)
        .map(|row| (row % 7 != 3).then_some(row))
        .collect();
    RecordBatch::try_from_iter([("m", Arc::new(numbers) as ArrayRef)]).unwrap()
}

#[test]
fn batches_of_one_device_come_side_by_side_without_a_copy() {
    let ordinal = 9;
    let device = device(ordinal);
    let there = |batch: &RecordBatch| DeviceBatch::try_copy_to(batch, device).unwrap();
    let wholes = (there(&table(50)), there(&with_nulls(60)));
    let (buffers, read) = (seen(ordinal).buffers, seen(ordinal).bytes_read);
    // Rows of each that begin elsewhere.
    let left = wholes.0.view(10..40, &[1, 0]).unwrap();
    let right = wholes.1.view(20..50, &[0]).unwrap();
    let both = DeviceBatch::try_beside(vec![left.clone(), right.clone()]).unwrap();
    let (schema, array) = both.export().unwrap();
    assert_eq!(
        (seen(ordinal).buffers, seen(ordinal).bytes_read),
        (buffers, read)
    );
    drop((wholes, left, right, both));
    let taken = DeviceBatch::try_import(array, &schema).unwrap();
    let columns = |batch: &RecordBatch, start| {
        let batch = batch.slice(start, 30);
        batch
            .columns()
            .iter()
            .rev()
            .map(Arc::clone)
            .collect::<Vec<_>>()
    };
    let expected = [columns(&table(50), 10), columns(&with_nulls(60), 20)].concat();
    let host = taken.copy_to_host(&[0, 1, 2]).unwrap();
    assert_eq!(host.columns(), expected);
    let part = taken.view(5..9, &[2]).unwrap().column(0).unwrap();
    assert_eq!(&part.copy_to_host().unwrap(), &expected[2].slice(5, 4));
    drop((taken, part));
    assert_eq!(seen(ordinal).buffers, 0);
}

#[test]
fn columns_get_other_names_over_the_same_buffers() {
    let ordinal = 18;
    let there = DeviceBatch::try_copy_to(&table(3), device(ordinal)).unwrap();
    let buffers = seen(ordinal).buffers;
    let names = ["x", "y"].map(str::to_owned);
    let schema = named(&there.schema(), Some(&names)).unwrap();
    let renamed = there.under(&schema).unwrap();
    assert_eq!((renamed.schema(), seen(ordinal).buffers), (schema, buffers));
    assert_eq!(
        renamed.copy_to_host(&[0, 1]).unwrap().columns(),
        table(3).columns()
    );
    let error = there.under(&with_nulls(3).schema()).unwrap_err();
    assert_eq!(
        error.message(),
        "another schema must have the types of the columns"
    );
}

#[test]
fn what_cannot_come_side_by_side_is_refused() {
    let there = |ordinal, rows| DeviceBatch::try_copy_to(&table(rows), device(ordinal)).unwrap();
    let error = DeviceBatch::try_beside(vec![there(10, 3), there(11, 3)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let text = "batches side by side must be on one device, got kDLExtDev:10 and kDLExtDev:11";
    assert_eq!(error.message(), text);
    let error = DeviceBatch::try_beside(vec![there(10, 3), there(10, 4)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let error = DeviceBatch::try_beside(Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!((seen(10).buffers, seen(11).buffers), (0, 0));
}

/// A grid of one row band, with a column band for each batch.
fn beside(tiles: Vec<Tile>) -> PartitionGrid {
    let fields = tiles
        .iter()
        .flat_map(|tile| tile.data().schema().fields().to_vec());
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let rows = Axis::try_from_lengths([3]).unwrap();
    let columns = tiles
        .iter()
        .map(|tile| tile.data().schema().fields().len() as u64);
    let columns = Axis::try_from_lengths(columns).unwrap();
    let mut builder = GridBuilder::try_new(schema, rows, columns).unwrap();
    for (band, tile) in tiles.into_iter().enumerate() {
        builder.set(&[0, band], tile).unwrap();
    }
    builder.build().unwrap()
}

#[test]
fn row_bands_of_a_grid_are_on_one_device_or_refused() {
    let on = |batch: &RecordBatch, device: Device| {
        let batch = DeviceBatch::try_copy_to(batch, device).unwrap();
        Tile::new(Arc::new(DeviceTile::new(batch)))
    };
    let here = |batch: &RecordBatch| Tile::try_from_batch(batch).unwrap();
    let (left, right) = (table(3), with_nulls(3));
    assert!(
        device_row_bands(&beside(vec![here(&left), here(&right)]))
            .unwrap()
            .is_none()
    );
    let together = beside(vec![on(&left, device(12)), on(&right, device(12))]);
    let (found, bands) = device_row_bands(&together).unwrap().unwrap();
    assert_eq!((found, bands.len()), (device(12), 1));
    assert_eq!(bands[0].schema().fields(), together.schema().fields());
    for (tiles, text) in [
        (
            vec![on(&left, device(12)), on(&right, device(13))],
            "batches side by side must be on one device, got kDLExtDev:12 and kDLExtDev:13",
        ),
        (
            vec![on(&left, device(12)), here(&right)],
            "the tiles of a device stream must be on one type of device, got kDLExtDev:12 and kDLCPU",
        ),
        (
            vec![here(&left), on(&right, device(12))],
            "the tiles of a device stream must be on one type of device, got kDLExtDev:12 and kDLCPU",
        ),
    ] {
        let error = device_row_bands(&beside(tiles)).unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Unsupported, text)
        );
        assert!(error.to_string().contains("(position: (0, 0))"), "{error}");
        assert!(error.hint().unwrap().contains("kDLCPU"), "{error}");
    }
}

#[test]
#[cfg(feature = "sql")]
fn sql_and_copies_take_column_bands_of_the_host_and_of_a_device_together() {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use partgrid::device::grid_to;
    use partgrid::location::Locality::{Device as OnDevice, Memory};
    use partgrid::query::{Session, SessionOptions};

    let ordinal = 19;
    let there = DeviceBatch::try_copy_to(&with_nulls(3), device(ordinal)).unwrap();
    let there = Tile::new(Arc::new(DeviceTile::new(there)));
    let grid = beside(vec![Tile::try_from_batch(&table(3)).unwrap(), there]);
    let session = Session::try_new(&SessionOptions::default()).unwrap();
    session.register("g", Arc::new(grid.clone())).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let query = session.sql("SELECT sum(n + m) AS s, count(t) AS c FROM g WHERE n > 0");
    let query = runtime.block_on(query).unwrap();
    let batches = runtime.block_on(query.collect()).unwrap();
    let [sum, count] = [0, 1].map(|column| batches[0].column(column).as_primitive::<Int64Type>());
    assert_eq!((sum.value(0), count.value(0)), (6, 2));
    let groups = query.metrics().unwrap().groups;
    let copied = groups
        .iter()
        .map(|group| (group.locality, group.copied_bytes));
    assert_eq!(copied.collect::<Vec<_>>(), [(Memory, 0), (OnDevice, 24)]);
    assert_eq!(seen(ordinal).bytes_read, 24);
    let error = grid.open_row_band(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotLocal);
    let here = runtime.block_on(grid_to(&grid, Device::CPU)).unwrap();
    assert!(Arc::ptr_eq(here.tiles()[0].data(), grid.tiles()[0].data()));
    assert_eq!(
        here.open_row_band(0).unwrap().column(2),
        with_nulls(3).column(0)
    );
    assert_eq!(seen(ordinal).bytes_read, 48);
}

#[test]
fn one_event_is_handed_on_and_several_are_waited_for() {
    let ordinal = 14;
    let with_event = |batch: &RecordBatch, event: usize| {
        let there = DeviceBatch::try_copy_to(batch, device(ordinal)).unwrap();
        let (schema, mut array) = there.export().unwrap();
        array.sync_event = std::ptr::with_exposed_provenance_mut(event);
        DeviceBatch::try_import(array, &schema).unwrap()
    };
    let beside = |left, right| {
        let batches = vec![
            with_event(&table(3), left),
            with_event(&with_nulls(3), right),
        ];
        DeviceBatch::try_beside(batches).unwrap().event()
    };
    assert_eq!(beside(0, 0), None);
    assert_eq!(beside(64, 0), Some(Event(64)));
    assert_eq!(beside(64, 64), Some(Event(64)));
    assert_eq!(seen(ordinal).waited, []);
    assert_eq!(beside(64, 128), None);
    assert_eq!(seen(ordinal).waited, [Event(64), Event(128)]);
}

#[test]
fn rows_that_are_null_as_a_whole_are_never_lost() {
    let ordinal = 15;
    let bits = [0b101_u8];
    let bitmap = DeviceBatch::try_copy_to(
        &RecordBatch::try_from_iter([(
            "bits",
            Arc::new(UInt8Array::from_iter_values(bits)) as ArrayRef,
        )])
        .unwrap(),
        device(ordinal),
    )
    .unwrap();
    let bitmap = bitmap.column(0).unwrap().numbers().unwrap();
    for (declared, refused) in [(1, true), (-1, true), (0, false)] {
        let there = DeviceBatch::try_copy_to(&table(3), device(ordinal)).unwrap();
        let (schema, mut array) = there.export().unwrap();
        array.array.null_count = declared;
        // SAFETY: a struct has one buffer, its bitmap, in a list that belongs to the array.
        unsafe {
            *array.array.buffers = std::ptr::with_exposed_provenance(bitmap.address());
        }
        let taken = DeviceBatch::try_import(array, &schema).unwrap();
        let outcomes = [
            taken.export().map(drop),
            taken.column(0).unwrap().export().map(drop),
            taken.column(0).unwrap().numbers().map(drop),
            DeviceBatch::try_beside(vec![taken.clone(), there]).map(drop),
        ];
        for outcome in outcomes {
            let told = outcome.map_err(|error| error.to_string().contains("null as a whole"));
            assert_eq!(told, if refused { Err(true) } else { Ok(()) }, "{declared}");
        }
    }
}

#[test]
fn columns_that_contradict_themselves_are_refused() {
    let ordinal = 16;
    let broken = |change: fn(&mut FFI_ArrowArray)| {
        let there = DeviceBatch::try_copy_to(&with_nulls(9), device(ordinal)).unwrap();
        let (schema, array) = there.export().unwrap();
        // SAFETY: the exported array has one child.
        let child = unsafe { *array.array.children };
        // SAFETY: as above.
        change(unsafe { &mut *child });
        match DeviceBatch::try_import(array, &schema) {
            Ok(taken) => taken.column(0).unwrap().numbers().unwrap_err(),
            Err(error) => error,
        }
    };
    for (change, text) in [
        (
            (|child| child.length = 8) as fn(&mut FFI_ArrowArray),
            "a child must hold at least the 0 + 9 values of its parent, got 8",
        ),
        (|child| child.n_buffers = 1, "the type wants 2 buffers"),
        (
            |child| {
                // SAFETY: two buffers, of which this is the second.
                let second = unsafe { child.buffers.add(1) };
                // SAFETY: as above.
                unsafe { *second = std::ptr::null() };
            },
            "the buffer of the values is absent",
        ),
        (
            // SAFETY: two buffers, of which this is the first.
            |child| unsafe { *child.buffers = std::ptr::null() },
            "nulls are declared, and the validity bitmap is absent",
        ),
        (|child| child.offset = -1, "offset of an Arrow C array"),
        (|child| child.offset = i64::MAX / 2, "the address space"),
    ] {
        let error = broken(change);
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        assert!(error.to_string().contains(text), "{text}: {error}");
    }
}

/// Gives back less than it was to fill.
#[derive(Debug)]
struct Lazy;

impl CopyEngine for Lazy {
    fn wait(&self, _: u32, _: Event) -> Result<()> {
        Ok(())
    }

    fn read(&self, _: u32, _: usize, _: usize, _: &mut [u8]) -> Result<()> {
        Ok(())
    }

    fn read_new<'a>(
        &self,
        _: u32,
        _: usize,
        _: usize,
        out: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8]> {
        let (first, _) = out.split_at_mut(1);
        Ok(first.write_copy_of_slice(&[7]))
    }

    fn write(&self, _: u32, bytes: &[u8]) -> Result<DeviceBuffer> {
        Ok(DeviceBuffer::new(1, bytes.len(), Box::new(())))
    }
}

#[test]
fn memory_that_an_engine_did_not_fill_is_never_handed_out() {
    let hexagon = Device::try_new(16, Some(0)).unwrap();
    register_copy_engine(hexagon, Arc::new(Lazy)).unwrap();
    let there = DeviceBatch::try_copy_to(&table(3), hexagon).unwrap();
    let error = there.copy_to_host(&[0]).unwrap_err();
    assert_eq!(error.message(), "an engine filled other memory");
}
