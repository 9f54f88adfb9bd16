//! The Arrow C Data and C Stream interfaces: every type, sliced and whole, through the C structs; broken producers; panics that stay inside.

mod broken;
mod columns;
mod dlpack;
mod engine;
mod on_device;

use std::ffi::c_void;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, Int32Array, RecordBatch, RecordBatchOptions, StringArray,
    StructArray, make_array, new_empty_array,
};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use partgrid::device::{export_stream, import_batch, import_stream};
use partgrid::error::{Error, ErrorKind, Result};

use crate::support::column_of_every_type;

#[test]
fn every_type_comes_back_from_a_stream_whole_sliced_and_empty() {
    for (name, column) in column_of_every_type() {
        for (offset, len) in [(0, column.len()), (2, 3), (0, 0), (column.len(), 0)] {
            let batch = single(name, &column.slice(offset, len));
            let stream = export_stream(batch.schema(), [Ok(batch.clone())].into_iter()).unwrap();
            let back = import_stream(stream).unwrap();
            assert_eq!(back.schema(), batch.schema(), "{name}");
            let back: Vec<RecordBatch> = back.map(Result::unwrap).collect();
            assert_eq!(back, [batch], "{name} {offset} {len}");
            back[0].column(0).to_data().validate_full().unwrap();
        }
    }
}

#[test]
fn every_type_within_a_struct_is_cut_by_the_offset_of_its_parent() {
    for (name, column) in column_of_every_type() {
        for (offset, len) in [(0, column.len()), (2, 3), (4, 0)] {
            let parent = parent_with_offset(name, &column, offset, len);
            let back = import_batch(FFI_ArrowArray::new(&parent), &schema_of(&parent)).unwrap();
            assert_eq!(
                back.column(0),
                &column.slice(offset, len),
                "{name} {offset} {len}"
            );
            back.column(0).to_data().validate_full().unwrap();
        }
    }
}

#[test]
fn every_type_with_an_offset_of_its_own_keeps_rows_and_nulls() {
    for (name, column) in column_of_every_type() {
        for (offset, len) in [(1, 5), (2, 3), (6, 1)] {
            let child = with_own_offset(&column, offset, len);
            assert_eq!(child.offset(), offset, "{name}");
            let parent = wrap(name, child, 0, len);
            let back = import_batch(FFI_ArrowArray::new(&parent), &schema_of(&parent)).unwrap();
            assert_eq!(
                back.column(0),
                &column.slice(offset, len),
                "{name} {offset} {len}"
            );
        }
    }
}

#[test]
fn every_type_two_structs_deep_is_cut_by_both_offsets() {
    for (name, column) in column_of_every_type() {
        let middle = parent_with_offset(name, &column, 1, 4);
        let outer = wrap("outer", middle, 2, 2);
        let back = import_batch(FFI_ArrowArray::new(&outer), &schema_of(&outer)).unwrap();
        let inner = back.column(0).as_struct().column(0);
        assert_eq!(inner, &column.slice(3, 2), "{name}");
    }
}

#[test]
fn values_are_shared_and_released_with_the_last_batch() {
    let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..1000));
    let weak_buffer = column.to_data().buffers()[0].clone();
    let address = weak_buffer.as_ptr();
    let batch = single("n", &column);
    drop(column);
    let stream = export_stream(batch.schema(), [Ok(batch)].into_iter()).unwrap();
    let back = import_stream(stream).unwrap().next().unwrap().unwrap();
    assert_eq!(back.column(0).to_data().buffers()[0].as_ptr(), address);
    assert!(weak_buffer.strong_count() > 1);
    drop(back);
    assert_eq!(weak_buffer.strong_count(), 1);
}

#[test]
fn arrow_itself_panics_on_a_struct_in_a_struct_with_an_offset() {
    let column: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3, 4, 5]));
    let outer = wrap("outer", parent_with_offset("n", &column, 0, 5), 3, 2);
    let theirs = catch_unwind(|| make_array(outer.clone()));
    let theirs_is_right = theirs.is_ok_and(|array| {
        let rows = array.as_struct().column(0).as_struct().column(0).clone();
        rows.as_primitive::<Int32Type>().values()[..] == [4, 5]
    });
    assert!(
        !theirs_is_right,
        "arrow is repaired: the import may use its own conversion again"
    );
    let ours = import_batch(FFI_ArrowArray::new(&outer), &schema_of(&outer)).unwrap();
    let rows = ours.column(0).as_struct().column(0).clone();
    assert_eq!(rows.as_primitive::<Int32Type>().values()[..], [4, 5]);
}

#[test]
fn a_sparse_union_with_an_offset_keeps_its_rows() {
    let (_, union) = column_of_every_type()
        .into_iter()
        .find(|(name, _)| *name == "sparse_union")
        .unwrap();
    let data = union.to_data();
    let shifted = data
        .clone()
        .into_builder()
        .offset(2)
        .len(3)
        .build()
        .unwrap();
    let parent = wrap("u", shifted, 0, 3);
    let back = import_batch(FFI_ArrowArray::new(&parent), &schema_of(&parent)).unwrap();
    assert_eq!(back.column(0), &union.slice(2, 3));
}

#[test]
fn strings_of_length_0_need_no_buffers_and_may_have_an_offset() {
    for data_type in [DataType::Utf8, DataType::LargeBinary, DataType::Utf8View] {
        let mut child = FFI_ArrowArray::new(&new_empty_array(&data_type).to_data());
        child.offset = 7;
        child.buffers = Box::leak(Box::new([std::ptr::null::<c_void>(); 3])).as_mut_ptr();
        let schema = Schema::new(vec![Field::new("text", data_type.clone(), true)]);
        let batch = import_batch(
            parent_by_hand(child, 0),
            &FFI_ArrowSchema::try_from(&schema).unwrap(),
        )
        .unwrap();
        assert_eq!((batch.num_rows(), batch.num_columns()), (0, 1));
        batch.column(0).to_data().validate_full().unwrap();
    }
    // The same within a list that has rows: the list is not empty, its child is.
    let lists = column_of_every_type()
        .into_iter()
        .find(|(name, _)| *name == "list_of_nothing")
        .unwrap()
        .1;
    let batch = single("l", &lists);
    let data = StructArray::from(batch.clone()).to_data();
    assert_eq!(
        import_batch(FFI_ArrowArray::new(&data), &schema_of(&data)).unwrap(),
        batch
    );
}

#[test]
fn a_batch_without_columns_keeps_its_rows() {
    let options = RecordBatchOptions::new().with_row_count(Some(5));
    let batch =
        RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
    let stream = export_stream(batch.schema(), [Ok(batch)].into_iter()).unwrap();
    let rows: Vec<usize> = import_stream(stream)
        .unwrap()
        .map(|batch| batch.unwrap().num_rows())
        .collect();
    assert_eq!(rows, [5]);
}

#[test]
fn metadata_of_schema_and_fields_comes_back() {
    let with = |key: &str| [(key.to_owned(), "value".to_owned())].into();
    let field = Field::new("n", DataType::Int32, false).with_metadata(with("ARROW:extension:name"));
    let schema = Arc::new(Schema::new(vec![field]).with_metadata(with("table")));
    let stream = export_stream(Arc::clone(&schema), std::iter::empty()).unwrap();
    assert_eq!(import_stream(stream).unwrap().schema(), schema);
}

#[test]
fn an_error_of_the_iterator_ends_the_stream_with_its_text() {
    let items = [
        Ok(ints(2)),
        Err(Error::not_found("tile\0gone").with_position(&[3])),
        Ok(ints(2)),
    ];
    let mut stream =
        import_stream(export_stream(ints(0).schema(), items.into_iter()).unwrap()).unwrap();
    assert_eq!(stream.next().unwrap().unwrap(), ints(2));
    let error = stream.next().unwrap().unwrap_err();
    assert!(
        error
            .message()
            .ends_with("tile\u{fffd}gone (position: (3,))"),
        "{error}"
    );
    assert!(stream.next().is_none());
}

#[test]
fn a_panic_in_the_iterator_becomes_an_error_and_the_stream_ends() {
    let items = (0..3).map(|number| {
        if number == 1 {
            panic!("number {number}")
        } else {
            Ok(ints(2))
        }
    });
    let exported = export_stream(ints(0).schema(), items).unwrap();
    let mut stream = import_stream(exported).unwrap();
    assert!(stream.next().unwrap().is_ok());
    let error = stream.next().unwrap().unwrap_err();
    assert!(
        error
            .message()
            .ends_with("panic while making the next batch: number 1"),
        "{error}"
    );
    assert!(stream.next().is_none());
}

#[test]
fn a_panic_in_the_destructor_of_the_iterator_stays_inside() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    struct Bomb;
    impl Iterator for Bomb {
        type Item = Result<RecordBatch>;
        fn next(&mut self) -> Option<Self::Item> {
            Some(Ok(ints(1)))
        }
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            DROPS.fetch_add(1, Ordering::Relaxed);
            std::panic::panic_any(7_u8);
        }
    }
    drop(export_stream(ints(0).schema(), Bomb).unwrap());
    assert_eq!(DROPS.load(Ordering::Relaxed), 1);
}

#[test]
fn a_batch_that_differs_from_the_schema_of_its_stream_is_an_error() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let stream = export_stream(ints(0).schema(), [Ok(single("n", &texts))].into_iter()).unwrap();
    let error = import_stream(stream).unwrap().next().unwrap().unwrap_err();
    assert!(
        error
            .message()
            .contains("a batch differs from the schema of its stream"),
        "{error}"
    );
}

#[test]
fn a_schema_that_cannot_cross_is_refused_before_the_stream_exists() {
    let name = Schema::new(vec![Field::new("a\0b", DataType::Int32, true)]);
    let zone = DataType::Timestamp(arrow::datatypes::TimeUnit::Second, Some("a\0b".into()));
    let zone = Schema::new(vec![Field::new("t", zone, true)]);
    for schema in [name, zone] {
        let error = export_stream(Arc::new(schema), std::iter::empty()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}

fn single(name: &str, column: &ArrayRef) -> RecordBatch {
    let field = Field::new(name, column.data_type().clone(), true);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::clone(column)]).unwrap()
}

fn ints(num_rows: i32) -> RecordBatch {
    single(
        "n",
        &(Arc::new(Int32Array::from_iter_values(0..num_rows)) as ArrayRef),
    )
}

fn ints_schema() -> FFI_ArrowSchema {
    let schema: SchemaRef = ints(0).schema();
    FFI_ArrowSchema::try_from(schema.as_ref()).unwrap()
}

fn schema_of(data: &ArrayData) -> FFI_ArrowSchema {
    FFI_ArrowSchema::try_from(data.data_type()).unwrap()
}

/// A struct of one whole child, cut by its own offset and length, as the C Data interface and pyarrow do it.
fn wrap(name: &str, child: ArrayData, offset: usize, len: usize) -> ArrayData {
    let field = Field::new(name, child.data_type().clone(), true);
    let parts = ArrayData::builder(DataType::Struct(vec![field].into()))
        .offset(offset)
        .len(len);
    parts.add_child_data(child).build().unwrap()
}

/// The rows of a column as an array with an offset, as the C Data interface has it: buffers, bitmap and children whole.
fn with_own_offset(column: &ArrayRef, offset: usize, len: usize) -> ArrayData {
    let data = column.to_data();
    let nulls = data.nulls().map(|nulls| nulls.slice(offset, len));
    let parts = ArrayData::builder(data.data_type().clone())
        .offset(offset)
        .len(len)
        .nulls(nulls);
    // Typed arrays of booleans may begin within a byte; these fixtures all begin at 0.
    assert_eq!(data.offset(), 0);
    parts
        .buffers(data.buffers().to_vec())
        .child_data(data.child_data().to_vec())
        .build()
        .unwrap()
}

fn parent_with_offset(name: &str, child: &ArrayRef, offset: usize, len: usize) -> ArrayData {
    wrap(name, child.to_data(), offset, len)
}

/// A C struct array around a child that no `ArrayData` would allow. Leaks the child, as nobody else would release it.
fn parent_by_hand(child: FFI_ArrowArray, length: i64) -> FFI_ArrowArray {
    extern "C" fn release(_: *mut FFI_ArrowArray) {}
    FFI_ArrowArray {
        length,
        n_buffers: 1,
        n_children: 1,
        buffers: Box::leak(Box::new([std::ptr::null::<c_void>()])).as_mut_ptr(),
        children: Box::leak(Box::new([Box::into_raw(Box::new(child))])).as_mut_ptr(),
        release: Some(release),
        ..FFI_ArrowArray::empty()
    }
}
