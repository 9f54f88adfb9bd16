//! DLPack: tensors of ours and of others, whole and strided; broken ones; each released exactly once.

#![expect(
    unsafe_code,
    reason = "plays another library, which hands over raw pointers"
)]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Float32Type, Int16Type, Int32Type, Int64Type, UInt8Type};
use partgrid::device::dlpack::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
    FLAG_IS_COPIED, FLAG_READ_ONLY, ManagedTensor, export_tensor, import_tensor,
};
use partgrid::error::ErrorKind;
use partgrid::grid::{Numbers, dense};

const V1: Option<(u32, u32)> = Some((1, 0));

fn ints() -> (ArrayRef, Numbers) {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
    let field = Field::new("n", DataType::Int64, true);
    let numbers = Numbers::try_from_column(&field, &column, None).unwrap();
    (column, numbers)
}

#[test]
fn a_tensor_of_ours_is_read_only_over_the_same_memory() {
    let (column, numbers) = ints();
    let address = column.to_data().buffers()[0].as_ptr();
    let raw = export_tensor(&numbers, DLDevice::CPU, V1, false)
        .unwrap()
        .into_raw()
        .cast::<DLManagedTensorVersioned>();
    // SAFETY: just exported, and released below.
    let tensor = unsafe { raw.as_ref() };
    assert_eq!(tensor.version, DLPackVersion { major: 1, minor: 0 });
    assert_eq!(tensor.flags, FLAG_READ_ONLY);
    let inner = tensor.dl_tensor;
    assert_eq!(inner.data.cast_const().cast(), address);
    assert_eq!((inner.ndim, inner.byte_offset), (1, 0));
    assert_eq!(inner.device, DLDevice::CPU);
    assert_eq!(
        inner.dtype,
        DLDataType {
            code: 0,
            bits: 64,
            lanes: 1
        }
    );
    // SAFETY: a list of one number, as `ndim` says.
    assert_eq!(unsafe { *inner.shape }, 100);
    // SAFETY: as above.
    assert_eq!(unsafe { *inner.strides }, 1);
    // SAFETY: taken back once.
    drop(unsafe { ManagedTensor::from_versioned(raw) });
}

#[test]
fn it_comes_back_without_a_copy_and_is_released_with_the_last_column() {
    let (column, numbers) = ints();
    let buffer = column.to_data().buffers()[0].clone();
    drop(column);
    let tensor = export_tensor(&numbers, DLDevice::CPU, V1, false).unwrap();
    drop(numbers);
    let back = import_tensor(tensor).unwrap();
    assert_eq!(back[0].to_data().buffers()[0].as_ptr(), buffer.as_ptr());
    assert_eq!(
        back[0].as_primitive::<Int64Type>().values()[..],
        (0..100).collect::<Vec<i64>>()[..]
    );
    assert_eq!(buffer.strong_count(), 2);
    drop(back);
    assert_eq!(buffer.strong_count(), 1);
}

#[test]
fn a_dense_band_comes_back_as_columns_over_the_same_memory() {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..5));
    let batch = RecordBatch::try_from_iter([("a", Arc::clone(&column)), ("b", column)]).unwrap();
    let block = dense(&batch).unwrap().slice(1, 3);
    let numbers = Numbers::try_from_batch(&block, None).unwrap();
    let back = import_tensor(export_tensor(&numbers, DLDevice::CPU, V1, false).unwrap()).unwrap();
    for (ours, theirs) in block.columns().iter().zip(&back) {
        assert_eq!(ours, theirs);
        let place = |column: &ArrayRef| {
            Numbers::try_from_column(&Field::new("n", DataType::Int64, true), column, None)
                .unwrap()
                .as_ptr()
        };
        assert_eq!(place(ours), place(theirs));
    }
    let again =
        RecordBatch::try_from_iter([("a", Arc::clone(&back[0])), ("b", Arc::clone(&back[1]))])
            .unwrap();
    assert_eq!(
        Numbers::try_from_batch(&again, None).unwrap().strides(),
        [8, 64]
    );
}

#[test]
fn a_consumer_of_an_old_version_gets_a_copy_or_a_refusal() {
    let (_, numbers) = ints();
    for old in [None, Some((0, 8))] {
        let error = export_tensor(&numbers, DLDevice::CPU, old, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            "Arrow memory is read-only, which DLPack can say since version 1.0, and the consumer takes an older one\nhint: pass copy=True, or max_version=(1, 0) where the consumer takes it"
        );
        let copy = export_tensor(&numbers, DLDevice::CPU, old, true).unwrap();
        assert!(!copy.is_versioned());
        let back = import_tensor(copy).unwrap();
        assert_ne!(back[0].to_data().buffers()[0].as_ptr(), numbers.as_ptr());
        assert_eq!(back[0].len(), 100);
    }
    let raw = export_tensor(&numbers, DLDevice::CPU, Some((1, 9)), true)
        .unwrap()
        .into_raw()
        .cast::<DLManagedTensorVersioned>();
    // SAFETY: just exported, and released on the next line.
    assert_eq!(unsafe { raw.as_ref() }.flags, FLAG_IS_COPIED);
    // SAFETY: taken back once.
    drop(unsafe { ManagedTensor::from_versioned(raw) });
}

#[test]
fn a_tensor_of_ours_that_nobody_takes_is_released() {
    let (column, numbers) = ints();
    let buffer = column.to_data().buffers()[0].clone();
    drop(column);
    drop(export_tensor(&numbers, DLDevice::CPU, V1, false).unwrap());
    drop(export_tensor(&numbers, DLDevice::CPU, V1, true).unwrap());
    drop(export_tensor(&numbers, DLDevice::CPU, None, true).unwrap());
    drop(numbers);
    assert_eq!(buffer.strong_count(), 1);
}

#[test]
fn neighbours_are_shared_and_others_are_copied_each_released_once() {
    for versioned in [false, true] {
        let mut theirs = Foreign::<i32>::new(vec![0, 1, 2, 3, 4, 5, 6, 7], &[4, 2], Some(&[1, 4]));
        let address = theirs.tensor().data.cast_const().cast::<u8>();
        let columns = import_tensor(theirs.managed(versioned)).unwrap();
        assert_eq!(
            columns[1].to_data().buffers()[0].as_ptr(),
            address.wrapping_add(16)
        );
        assert_eq!(
            columns[1].as_primitive::<Int32Type>().values()[..],
            [4, 5, 6, 7]
        );
        assert_eq!(theirs.releases(), 0);
        drop(columns);
        assert_eq!(theirs.releases(), 1);
        for strides in [None, Some([2_i64, 1])] {
            let strides = strides.as_ref().map(<[i64; 2]>::as_slice);
            let mut theirs = Foreign::<i32>::new(vec![0, 1, 2, 3, 4, 5, 6, 7], &[4, 2], strides);
            let columns = import_tensor(theirs.managed(versioned)).unwrap();
            assert_eq!(theirs.releases(), 1, "nothing shares it");
            assert_eq!(
                columns[0].as_primitive::<Int32Type>().values()[..],
                [0, 2, 4, 6]
            );
            assert_eq!(
                columns[1].as_primitive::<Int32Type>().values()[..],
                [1, 3, 5, 7]
            );
        }
    }
}

#[test]
fn strides_may_be_negative_or_zero_and_memory_may_be_unaligned() {
    let mut backwards = Foreign::<i16>::new(vec![1, 2, 3], &[3], Some(&[-1]));
    backwards.tensor().byte_offset = 4;
    let columns = import_tensor(backwards.managed(true)).unwrap();
    assert_eq!(
        columns[0].as_primitive::<Int16Type>().values()[..],
        [3, 2, 1]
    );
    let mut one = Foreign::<f32>::new(vec![2.5], &[3], Some(&[0]));
    let columns = import_tensor(one.managed(true)).unwrap();
    assert_eq!(
        columns[0].as_primitive::<Float32Type>().values()[..],
        [2.5, 2.5, 2.5]
    );
    let mut odd = Foreign::<u8>::new(vec![9, 1, 0, 0, 0, 2, 0, 0, 0], &[2], None);
    odd.tensor().byte_offset = 1;
    odd.tensor().dtype = DLDataType {
        code: 0,
        bits: 32,
        lanes: 1,
    };
    let columns = import_tensor(odd.managed(true)).unwrap();
    assert_eq!(columns[0].as_primitive::<Int32Type>().values()[..], [1, 2]);
    assert_eq!(odd.releases(), 1);
}

#[test]
fn booleans_become_bits_and_empty_tensors_empty_columns() {
    let mut flags = Foreign::<u8>::new(vec![0, 1, 2, 0], &[4], None);
    flags.tensor().dtype = DLDataType {
        code: 6,
        bits: 8,
        lanes: 1,
    };
    let columns = import_tensor(flags.managed(true)).unwrap();
    assert_eq!(
        columns[0].as_ref(),
        &BooleanArray::from(vec![false, true, true, false]) as &dyn Array
    );
    assert_eq!(flags.releases(), 1);
    for (shape, num_columns) in [([0, 3], 3), ([5, 0], 0)] {
        let mut empty = Foreign::<u8>::new(vec![], &shape, None);
        empty.tensor().data = std::ptr::null_mut();
        let columns = import_tensor(empty.managed(true)).unwrap();
        assert_eq!((columns.len(), empty.releases()), (num_columns, 1));
        assert!(
            columns
                .iter()
                .all(|column| column.as_primitive::<UInt8Type>().is_empty())
        );
    }
}

#[test]
fn broken_tensors_are_refused_and_released_once() {
    type Damage = fn(&mut DLTensor);
    let damages: Vec<(Damage, ErrorKind, &str)> = vec![
        (
            |tensor| tensor.ndim = -1,
            ErrorKind::InvalidData,
            "ndim of a DLPack tensor must be 0 or more, got -1",
        ),
        (
            |tensor| tensor.ndim = 0,
            ErrorKind::InvalidArgument,
            "an array must have one or two dimensions to become columns, got 0",
        ),
        (
            |tensor| tensor.ndim = i32::MAX,
            ErrorKind::InvalidArgument,
            "an array must have one or two dimensions to become columns, got 2147483647",
        ),
        (
            |tensor| tensor.data = std::ptr::null_mut(),
            ErrorKind::InvalidData,
            "an array of 2 x 2 elements has no data: its address is null",
        ),
        (
            |tensor| tensor.shape = std::ptr::null_mut(),
            ErrorKind::InvalidData,
            "a DLPack tensor must have a shape",
        ),
        (
            |tensor| set(tensor.shape, -4),
            ErrorKind::InvalidData,
            "the shape of a DLPack tensor must be 0 or more, got [-4, 2]",
        ),
        (
            |tensor| set(tensor.shape, i64::MAX),
            ErrorKind::InvalidData,
            "the elements of an array must fit the address space",
        ),
        (
            |tensor| set(tensor.shape.wrapping_add(1), 1 << 40),
            ErrorKind::ResourcesExhausted,
            "an array may become at most 1048576 columns, got 1099511627776",
        ),
        (
            |tensor| set(tensor.strides, i64::MAX),
            ErrorKind::InvalidData,
            "the strides of a DLPack tensor must fit the address space",
        ),
        (
            |tensor| set(tensor.strides, i64::MAX / 8),
            ErrorKind::InvalidData,
            "the elements of an array must fit the address space",
        ),
        (
            |tensor| tensor.byte_offset = u64::MAX,
            ErrorKind::InvalidData,
            "byte_offset of a DLPack tensor must fit the address space, got 18446744073709551615",
        ),
        (
            |tensor| tensor.dtype.lanes = 4,
            ErrorKind::Unsupported,
            "columns are made of tensors of int8 to int64, uint8 to uint64, float16 to float64 or bool, got int64 x 4",
        ),
        (
            |tensor| tensor.dtype.code = 5,
            ErrorKind::Unsupported,
            "columns are made of tensors of int8 to int64, uint8 to uint64, float16 to float64 or bool, got complex64 x 1",
        ),
        (
            |tensor| tensor.dtype.code = 4,
            ErrorKind::Unsupported,
            "columns are made of tensors of int8 to int64, uint8 to uint64, float16 to float64 or bool, got bfloat64 x 1",
        ),
        (
            |tensor| tensor.dtype.code = 77,
            ErrorKind::Unsupported,
            "columns are made of tensors of int8 to int64, uint8 to uint64, float16 to float64 or bool, got type code 77, bits 64 x 1",
        ),
        (
            |tensor| tensor.dtype.bits = 4,
            ErrorKind::Unsupported,
            "columns are made of tensors of int8 to int64, uint8 to uint64, float16 to float64 or bool, got int4 x 1",
        ),
        (
            |tensor| tensor.device.device_type = 2,
            ErrorKind::NotLocal,
            "the tensor is in the memory of kDLCUDA:0, which this process cannot read",
        ),
        (
            |tensor| tensor.device.device_type = 99,
            ErrorKind::NotLocal,
            "the tensor is in the memory of device type 99, which this process cannot read",
        ),
    ];
    for (damage, kind, text) in damages {
        for versioned in [false, true] {
            let mut theirs = Foreign::<i64>::new(vec![1, 2, 3, 4], &[2, 2], Some(&[2, 1]));
            damage(theirs.tensor());
            let error = import_tensor(theirs.managed(versioned)).unwrap_err();
            assert_eq!((error.kind(), error.message()), (kind, text));
            assert_eq!(theirs.releases(), 1, "{text}");
        }
    }
}

#[test]
fn a_tensor_of_another_major_version_is_refused_and_released() {
    let mut theirs = Foreign::<i64>::new(vec![1], &[1], None);
    theirs.version = DLPackVersion { major: 2, minor: 3 };
    let error = import_tensor(theirs.managed(true)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a DLPack tensor must be of version 1, got 2.3\nhint: ask the producer for max_version=(1, 0)"
    );
    assert_eq!(theirs.releases(), 1);
}

#[test]
fn a_tensor_without_a_deleter_is_borrowed_for_ever() {
    let mut theirs = Foreign::<i64>::new(vec![1, 2], &[2], None);
    theirs.without_deleter = true;
    let columns = import_tensor(theirs.managed(false)).unwrap();
    assert_eq!(columns[0].len(), 2);
    drop(columns);
    assert_eq!(theirs.releases(), 0);
}

#[test]
fn threads_that_drop_columns_release_the_tensor_once() {
    let mut theirs = Foreign::<i64>::new((0..400).collect(), &[100, 4], Some(&[1, 100]));
    let columns = import_tensor(theirs.managed(true)).unwrap();
    std::thread::scope(|scope| {
        for column in columns {
            scope.spawn(move || assert_eq!(column.len(), 100));
        }
    });
    assert_eq!(theirs.releases(), 1);
}

fn set(place: *mut i64, value: i64) {
    // SAFETY: a number of a list that `Foreign` owns.
    unsafe { *place = value };
}

/// A tensor of another library, which counts how often it is released.
struct Foreign<T> {
    values: Vec<T>,
    shape: Vec<i64>,
    strides: Vec<i64>,
    tensor: DLTensor,
    version: DLPackVersion,
    without_deleter: bool,
    releases: Arc<AtomicUsize>,
}

trait Element {
    const DTYPE: DLDataType;
}

macro_rules! elements {
    ($($native:ty, $code:expr, $bits:expr);*) => {$(
        impl Element for $native {
            const DTYPE: DLDataType = DLDataType { code: $code, bits: $bits, lanes: 1 };
        }
    )*};
}
elements!(u8, 1, 8; i16, 0, 16; i32, 0, 32; i64, 0, 64; f32, 2, 32);

impl<T: Element> Foreign<T> {
    fn new(values: Vec<T>, shape: &[i64], strides: Option<&[i64]>) -> Box<Self> {
        let tensor = DLTensor {
            data: std::ptr::null_mut(),
            device: DLDevice {
                device_type: 1,
                device_id: 0,
            },
            ndim: shape.len() as i32,
            dtype: T::DTYPE,
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let mut foreign = Box::new(Self {
            values,
            shape: shape.to_vec(),
            strides: strides.unwrap_or_default().to_vec(),
            tensor,
            version: DLPackVersion { major: 1, minor: 1 },
            without_deleter: false,
            releases: Arc::default(),
        });
        foreign.tensor.data = foreign.values.as_mut_ptr().cast();
        foreign.tensor.shape = foreign.shape.as_mut_ptr();
        if strides.is_some() {
            foreign.tensor.strides = foreign.strides.as_mut_ptr();
        }
        foreign
    }

    fn tensor(&mut self) -> &mut DLTensor {
        &mut self.tensor
    }

    fn releases(&self) -> usize {
        self.releases.load(Ordering::SeqCst)
    }

    fn managed(&mut self, versioned: bool) -> ManagedTensor {
        let manager_ctx = Arc::into_raw(self.releases.clone())
            .cast_mut()
            .cast::<c_void>();
        if versioned {
            let managed = DLManagedTensorVersioned {
                version: self.version,
                manager_ctx,
                deleter: (!self.without_deleter).then_some(released_versioned),
                flags: 0,
                dl_tensor: self.tensor,
            };
            // SAFETY: the box is freed by the deleter.
            unsafe { ManagedTensor::from_versioned(NonNull::from(Box::leak(Box::new(managed)))) }
        } else {
            let managed = DLManagedTensor {
                dl_tensor: self.tensor,
                manager_ctx,
                deleter: (!self.without_deleter).then_some(released_plain),
            };
            // SAFETY: as above.
            unsafe { ManagedTensor::from_plain(NonNull::from(Box::leak(Box::new(managed)))) }
        }
    }
}

unsafe extern "C" fn released_plain(tensor: *mut DLManagedTensor) {
    // SAFETY: the box that `managed` leaked.
    count(unsafe { Box::from_raw(tensor) }.manager_ctx);
}

unsafe extern "C" fn released_versioned(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: as above.
    count(unsafe { Box::from_raw(tensor) }.manager_ctx);
}

fn count(context: *mut c_void) {
    // SAFETY: the count that `managed` gave away.
    let releases = unsafe { Arc::from_raw(context.cast::<AtomicUsize>()) };
    releases.fetch_add(1, Ordering::SeqCst);
}
