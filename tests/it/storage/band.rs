//! Storages as dense bands of grids, and dense bands as storages: the same addresses, frozen, freed once.

#![expect(unsafe_code, reason = "writes elements through their address")]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Float64Type;
use partgrid::error::{ErrorKind, Result};
use partgrid::grid::{ElementType, Numbers, dense, dense_stride};
use partgrid::location::Device;
use partgrid::storage::{Fill, Host, Item, Memory, MemorySource, Parameters, Plan, Storage};

use super::{dims, floats};

/// Columns that lie one behind the other, aligned to 64 bytes; the value is `row + 100 * column`.
fn columns(rows: usize, count: usize) -> Arc<Storage> {
    let parameters = Parameters {
        layout: Some(vec![1, 0]),
        alignment_size: Some(64),
        ..Parameters::default()
    };
    let storage = floats(&[rows, count], &parameters, Fill::Zeros);
    for column in 0..count {
        for row in 0..rows {
            let at = row * 8 + column * storage.plan().strides()[1];
            // SAFETY: an element of a storage that nobody else knows.
            unsafe {
                storage
                    .as_ptr()
                    .wrapping_add(at)
                    .cast::<f64>()
                    .write((row + 100 * column) as f64)
            };
        }
    }
    storage
}

#[test]
fn a_storage_becomes_a_dense_tile_over_the_same_memory() {
    for (rows, count) in [(5, 3), (8, 1), (1, 4), (0, 2)] {
        let storage = columns(rows, count);
        let names = (0..count).map(|column| format!("c{column}")).collect();
        let grid = storage.try_into_grid(Some(names)).unwrap();
        assert!(storage.is_frozen() && storage.try_write().is_none());
        let batch = grid.tile(&[0, 0]).unwrap().open().unwrap();
        assert_eq!((batch.num_rows(), batch.num_columns()), (rows, count));
        let stride = storage.plan().strides()[1];
        for (number, column) in batch.columns().iter().enumerate() {
            let values = column.as_primitive::<Float64Type>();
            if rows > 0 {
                let start = storage.as_ptr().wrapping_add(number * stride);
                assert_eq!(values.values().as_ptr().cast(), start.cast_const());
            }
            let expected: Vec<f64> = (0..rows).map(|row| (row + 100 * number) as f64).collect();
            assert_eq!(values.values(), &expected[..]);
        }
        if rows > 0 && count > 1 {
            assert_eq!(dense_stride(batch.columns()), Some(stride));
        }
    }
}

/// Memory of the host that tells when it is freed.
#[derive(Debug, Default)]
struct Watched(Arc<AtomicUsize>);

#[derive(Debug)]
struct WatchedMemory {
    memory: Box<dyn Memory>,
    freed: Arc<AtomicUsize>,
}

impl MemorySource for Watched {
    fn device(&self) -> Device {
        Device::CPU
    }

    fn allocate(&self, num_bytes: usize, zeroed: bool) -> Result<Box<dyn Memory>> {
        Ok(Box::new(WatchedMemory {
            memory: Host.allocate(num_bytes, zeroed)?,
            freed: Arc::clone(&self.0),
        }))
    }
}

impl Memory for WatchedMemory {
    fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr()
    }

    fn num_bytes(&self) -> usize {
        self.memory.num_bytes()
    }

    fn device(&self) -> Device {
        self.memory.device()
    }

    fn fill(&mut self, range: Range<usize>, pattern: &[u8]) -> Result<()> {
        self.memory.fill(range, pattern)
    }
}

impl Drop for WatchedMemory {
    fn drop(&mut self) {
        self.freed.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn the_memory_lives_as_long_as_the_storage_or_the_grid() {
    let source = Watched::default();
    let plan = Plan::try_new(&[100], 8, &Parameters::default()).unwrap();
    let item = Item::Number(ElementType::Float64);
    let value = 2.5_f64.to_ne_bytes();
    let storage = Storage::try_new(plan, item, Fill::Item(&value), &source).unwrap();
    let freed = || source.0.load(Ordering::SeqCst);
    let grid = storage.try_into_grid(None).unwrap();
    drop(storage);
    let column = grid
        .tile(&[0, 0])
        .unwrap()
        .open()
        .unwrap()
        .column(0)
        .slice(99, 1);
    drop(grid);
    assert_eq!(freed(), 0);
    assert_eq!(column.as_primitive::<Float64Type>().value(0), 2.5);
    drop(column);
    assert_eq!(freed(), 1);
}

#[test]
fn a_storage_is_not_frozen_while_somebody_can_write_nor_for_a_grid_that_cannot_be() {
    let storage = columns(4, 2);
    let one = storage.try_write().unwrap();
    let other = storage.try_write().unwrap();
    let error = storage.try_into_grid(None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().ends_with("2 of its views can"), "{error}");
    drop((one, other));
    let error = storage
        .try_into_grid(Some(vec!["a".to_owned()]))
        .unwrap_err();
    assert_eq!(
        error.message(),
        "names must have one name for each of the 2 columns, got 1"
    );
    assert!(!storage.is_frozen());
    drop(storage.try_write().unwrap());
    assert!(storage.try_into_grid(None).is_ok());
    // Twice is as good as once, and a wrong wish afterwards thaws nothing.
    assert!(storage.try_into_grid(None).is_ok());
    assert!(storage.try_into_grid(Some(vec![])).is_err());
    assert!(storage.is_frozen());
}

#[test]
fn writers_and_freezing_never_meet() {
    for _ in 0..200 {
        let storage = columns(4, 2);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let guard = storage.try_write();
                        let saw_frozen = storage.is_frozen();
                        (guard.is_some(), saw_frozen)
                    })
                })
                .collect();
            let frozen = storage.try_into_grid(None).is_ok();
            for writer in writers {
                let (may_write, saw_frozen) = writer.join().unwrap();
                assert!(!(may_write && saw_frozen));
                assert!(may_write || frozen);
            }
        });
    }
}

#[test]
fn what_is_no_columns_is_refused_with_the_remedy() {
    let refusal = |storage: Arc<Storage>| storage.try_into_grid(None).unwrap_err();
    let rows_first = refusal(floats(&[4, 3], &Parameters::default(), Fill::Zeros));
    assert_eq!(rows_first.kind(), ErrorKind::InvalidArgument);
    assert!(
        rows_first
            .hint()
            .unwrap()
            .starts_with("make it with layout=(1, 0)")
    );
    let deep = refusal(floats(&[4, 3, 2], &Parameters::default(), Fill::Zeros));
    assert_eq!(
        deep.message(),
        "a storage of one or two dimensions becomes columns, got 3"
    );
    let point = refusal(floats(&[], &Parameters::default(), Fill::Zeros));
    assert_eq!(
        point.message(),
        "a storage of one or two dimensions becomes columns, got 0"
    );
    let plan = Plan::try_new(&[4], 1, &Parameters::default()).unwrap();
    let flags = refusal(Storage::try_new(plan, Item::Bool, Fill::Zeros, &Host).unwrap());
    assert_eq!(flags.kind(), ErrorKind::Unsupported);
    assert!(flags.message().ends_with("got bool"), "{flags}");
}

#[test]
fn a_dense_tile_is_a_storage_over_the_same_memory() {
    let column = |start: i64| Arc::new(Int64Array::from_iter_values(start..start + 10)) as ArrayRef;
    let batch = RecordBatch::try_from_iter([("a", column(0)), ("b", column(50))]).unwrap();
    let batch = dense(&batch).unwrap();
    for (rows, alignment) in [
        (batch.clone(), 64),
        (batch.slice(1, 4), 1),
        (batch.slice(8, 2), 64),
    ] {
        let numbers = Numbers::try_from_batch(&rows, None).unwrap();
        let (address, strides) = (numbers.as_ptr(), numbers.strides().to_vec());
        let storage = Storage::try_over(numbers, Some(dims("IK"))).unwrap();
        assert_eq!(storage.as_ptr().cast_const(), address);
        assert_eq!(storage.plan().strides(), strides);
        assert_eq!(storage.plan().layout(), [1, 0]);
        assert_eq!(storage.plan().alignment_size(), alignment);
        assert_eq!(storage.item().element(), Some(ElementType::Int64));
        let storage = Arc::new(storage);
        assert!(storage.is_frozen() && storage.try_write().is_none());
        let copy = storage.try_copy().unwrap();
        let at = copy.plan().strides()[1] + 8;
        // SAFETY: the second element of the second column.
        let value = unsafe { copy.as_ptr().wrapping_add(at).cast::<i64>().read() };
        assert_eq!(
            value,
            rows.column(1)
                .as_primitive::<arrow::datatypes::Int64Type>()
                .value(1)
        );
        assert!(!copy.is_frozen());
        // And a grid again, over the same memory still.
        let grid = storage.try_into_grid(None).unwrap();
        let again = grid.tile(&[0, 0]).unwrap().open().unwrap();
        let start = again.column(0).to_data().buffers()[0].as_ptr();
        assert_eq!(start, address);
    }
    let numbers = Numbers::try_from_batch(&batch, None).unwrap();
    let error = Storage::try_over(numbers, Some(dims("IJK"))).unwrap_err();
    assert_eq!(
        error.message(),
        "dims must have one entry for each of the 2 dimensions, got 3"
    );
}
