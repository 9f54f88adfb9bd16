//! Broken producers: structs that contradict themselves, and streams that fail.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int32Array, StringArray, StructArray, UnionArray};
use arrow::datatypes::{DataType, Field, Schema, UnionFields, UnionMode};
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow::ffi_stream::FFI_ArrowArrayStream;
use partgrid::device::{export_stream, import_batch, import_stream};
use partgrid::error::ErrorKind;

use super::{ints, ints_schema, parent_by_hand, schema_of};
use crate::support::struct_of;

#[test]
fn structs_that_contradict_themselves_are_invalid_data() {
    type Damage = fn(&mut FFI_ArrowArray);
    let damages: [(Damage, &str); 8] = [
        (
            |array| array.length = -1,
            "length of an Arrow C array must be 0 or more, got -1",
        ),
        (
            |array| array.offset = -3,
            "offset of an Arrow C array must be 0 or more, got -3",
        ),
        (
            |array| array.length = i64::MAX,
            "a buffer must be smaller than the address space",
        ),
        (
            |array| array.n_buffers = 1,
            "the type wants 2 buffers and 0 children, got 1 and 0",
        ),
        (
            |array| array.n_buffers = -1,
            "n_buffers of an Arrow C array must be 0 or more, got -1",
        ),
        (
            |array| array.n_children = 4,
            "the type wants 2 buffers and 0 children, got 2 and 4",
        ),
        (
            |array| array.buffers = std::ptr::null_mut(),
            "2 buffers are declared, and the list of buffers is absent",
        ),
        (
            |array| array.null_count = 2,
            "2 nulls are declared, and the validity bitmap is absent",
        ),
    ];
    for (damage, text) in damages {
        let mut child = FFI_ArrowArray::new(&Int32Array::from(vec![1, 2, 3]).to_data());
        damage(&mut child);
        let error = import_batch(parent_by_hand(child, 3), &ints_schema()).unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::InvalidData, text)
        );
        assert_eq!(error.context("column"), Some("n"));
    }
}

#[test]
fn a_child_that_is_absent_released_or_short_is_invalid_data() {
    let ints = || FFI_ArrowArray::new(&Int32Array::from(vec![1, 2, 3]).to_data());
    let mut without_children = parent_by_hand(ints(), 3);
    without_children.children = std::ptr::null_mut();
    let mut with_null_child = parent_by_hand(ints(), 3);
    with_null_child.children = Box::leak(Box::new([std::ptr::null_mut()])).as_mut_ptr();
    let released = parent_by_hand(FFI_ArrowArray::empty(), 3);
    let short = parent_by_hand(ints(), 4);
    let mut two = parent_by_hand(ints(), 3);
    two.n_children = 2;
    for (array, text) in [
        (without_children, "child 0 is absent"),
        (with_null_child, "child 0 is absent"),
        (released, "the Arrow C array was released already"),
        (
            short,
            "a child must hold at least the 0 + 4 values of its parent, got 3",
        ),
        (two, "the type wants 1 buffers and 1 children, got 1 and 2"),
    ] {
        let error = import_batch(array, &ints_schema()).unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::InvalidData, text)
        );
    }
    let error = import_batch(FFI_ArrowArray::empty(), &ints_schema()).unwrap_err();
    assert_eq!(error.message(), "the Arrow C array was released already");
}

#[test]
fn offsets_and_keys_that_lead_outside_are_invalid_data() {
    let texts = StringArray::from(vec!["a", "b", "c"]).to_data();
    // The C struct has no lengths of buffers, so that only the producer could know; falling offsets can be seen.
    let mut child = FFI_ArrowArray::new(&texts);
    let falling_offsets = Box::leak(Box::new([0_i32, 2, 1, 3]));
    let buffers = Box::leak(Box::new([
        std::ptr::null(),
        falling_offsets.as_ptr().cast::<c_void>(),
        texts.buffers()[1].as_ptr().cast::<c_void>(),
    ]));
    child.buffers = buffers.as_mut_ptr();
    let schema = Schema::new(vec![Field::new("n", DataType::Utf8, true)]);
    let error = import_batch(
        parent_by_hand(child, 3),
        &FFI_ArrowSchema::try_from(&schema).unwrap(),
    )
    .unwrap_err();
    assert_eq!(
        error.message(),
        "offsets must start at 0 or more and not decrease"
    );

    let bad_ids = UnionFields::try_new([3], [Field::new("a", DataType::Int32, true)]).unwrap();
    let ids = Box::leak(Box::new([3_i8, 9, 3]));
    let good = UnionArray::try_new(
        bad_ids.clone(),
        vec![3_i8; 3].into(),
        None,
        vec![Arc::new(Int32Array::from(vec![1, 2, 3]))],
    );
    let mut child = FFI_ArrowArray::new(&good.unwrap().to_data());
    child.buffers = Box::leak(Box::new([ids.as_ptr().cast::<c_void>()])).as_mut_ptr();
    let schema = Schema::new(vec![Field::new(
        "n",
        DataType::Union(bad_ids, UnionMode::Sparse),
        true,
    )]);
    let error = import_batch(
        parent_by_hand(child, 3),
        &FFI_ArrowSchema::try_from(&schema).unwrap(),
    )
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(
        error.message().contains("Type Ids values must match"),
        "{error}"
    );
}

#[test]
fn an_array_that_is_no_struct_is_an_invalid_argument() {
    let array = Int32Array::from(vec![1]).to_data();
    let schema = FFI_ArrowSchema::try_from(&DataType::Int32).unwrap();
    let error = import_batch(FFI_ArrowArray::new(&array), &schema).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().ends_with("got format 'i'"), "{error}");
}

#[test]
fn rows_that_are_null_as_a_whole_are_refused() {
    let inner = struct_of(vec![(
        "n",
        Arc::new(Int32Array::from(vec![1, 2, 3])) as ArrayRef,
    )]);
    let nulls = Some(vec![true, false, true].into());
    let array = StructArray::new(inner.fields().clone(), inner.columns().to_vec(), nulls).to_data();
    let error = import_batch(FFI_ArrowArray::new(&array), &schema_of(&array)).unwrap_err();
    assert_eq!(
        error.message(),
        "the rows of a batch cannot be null as a whole, got 1 nulls"
    );
}

#[test]
fn a_stream_that_is_released_or_lacks_a_callback_is_invalid_data() {
    let whole = || export_stream(ints(0).schema(), std::iter::empty()).unwrap();
    let mut without_schema = whole();
    without_schema.get_schema = None;
    let mut without_next = whole();
    without_next.get_next = None;
    for (stream, text) in [
        (
            FFI_ArrowArrayStream::empty(),
            "the Arrow C stream was released already",
        ),
        (without_schema, "the Arrow C stream lacks `get_schema`"),
        (without_next, "the Arrow C stream lacks `get_next`"),
    ] {
        let error = import_stream(stream).unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::InvalidData, text)
        );
    }
}

#[test]
fn the_text_and_number_of_a_producer_error_are_kept() {
    extern "C" fn out_of_memory(_: *mut FFI_ArrowArrayStream, _: *mut FFI_ArrowArray) -> c_int {
        12
    }
    extern "C" fn text(_: *mut FFI_ArrowArrayStream) -> *const c_char {
        c"the producer ran out of memory".as_ptr()
    }
    let mut stream = export_stream(ints(0).schema(), std::iter::empty()).unwrap();
    stream.get_next = Some(out_of_memory);
    stream.get_last_error = Some(text);
    let mut stream = import_stream(stream).unwrap();
    let error = stream.next().unwrap().unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (
            ErrorKind::ResourcesExhausted,
            "the producer ran out of memory"
        )
    );
    assert!(
        stream.next().is_none(),
        "a failed stream is not asked again"
    );
}

#[test]
fn a_producer_error_without_text_names_its_number() {
    extern "C" fn fail(_: *mut FFI_ArrowArrayStream, _: *mut FFI_ArrowSchema) -> c_int {
        77
    }
    let mut stream = export_stream(ints(0).schema(), std::iter::empty()).unwrap();
    stream.get_schema = Some(fail);
    let error = import_stream(stream).unwrap_err();
    assert_eq!(
        error.message(),
        "the Arrow C stream failed with error number 77 and no text"
    );
}

#[test]
fn a_schema_with_broken_counts_or_endless_depth_is_invalid_data() {
    let mut negative = FFI_ArrowSchema::try_from(ints(0).schema().as_ref()).unwrap();
    negative.n_children = -2;
    let error = import_batch(FFI_ArrowArray::empty(), &negative).unwrap_err();
    assert_eq!(
        error.message(),
        "n_children of an Arrow C schema must be 0 or more, got -2"
    );
    let deep = (0..100).fold(DataType::Int8, |inner, _| DataType::new_list(inner, true));
    let deep = Schema::new(vec![Field::new("deep", deep, true)]);
    let error = import_batch(
        FFI_ArrowArray::empty(),
        &FFI_ArrowSchema::try_from(&deep).unwrap(),
    )
    .unwrap_err();
    assert_eq!(error.message(), "types may nest at most 64 deep");
}
