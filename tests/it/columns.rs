//! A column of every type that Arrow has.
//!
//! Comes in: nothing. Goes out: arrays under names. The unit tests of the crate take this file in as well, so it names nothing of partgrid.

use std::sync::Arc;

use arrow::array::types::{Int32Type, IntervalDayTimeType, IntervalMonthDayNanoType};
use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, UnionFields, i256};

/// A struct array of the given fields, all nullable.
pub(crate) fn struct_of(fields: Vec<(&str, ArrayRef)>) -> StructArray {
    let pairs = fields.into_iter().map(|(name, array)| {
        (
            Arc::new(Field::new(name, array.data_type().clone(), true)),
            array,
        )
    });
    StructArray::from(pairs.collect::<Vec<(FieldRef, ArrayRef)>>())
}

/// One column of seven rows for every layout that Arrow has, most with a null, under a name for messages.
pub(crate) fn column_of_every_type() -> Columns {
    let mut columns = flat_columns();
    columns.extend(nested_columns());
    assert!(columns.iter().all(|(_, column)| column.len() == 7));
    columns
}

fn ints() -> Int32Array {
    Int32Array::from(vec![
        Some(1),
        None,
        Some(3),
        Some(4),
        Some(5),
        None,
        Some(7),
    ])
}

fn words() -> Vec<Option<&'static str>> {
    vec![
        Some("a"),
        None,
        Some(""),
        Some("a word of more than twelve bytes"),
        Some("é"),
        Some("f"),
        Some("g"),
    ]
}

/// Names, and columns.
type Columns = Vec<(&'static str, ArrayRef)>;

fn cast(array: &dyn Array, to: DataType) -> ArrayRef {
    arrow::compute::cast(array, &to).unwrap()
}

/// Columns without children.
pub(crate) fn flat_columns() -> Columns {
    [numbers(), times(), texts()].concat()
}

fn numbers() -> Columns {
    let number = |to: DataType| cast(&ints(), to);
    let wide = vec![
        Some(i256::MINUS_ONE),
        None,
        Some(i256::ONE),
        Some(i256::ZERO),
        None,
        Some(i256::MAX),
        None,
    ];
    vec![
        ("null", Arc::new(NullArray::new(7))),
        ("boolean", number(DataType::Boolean)),
        ("int8", number(DataType::Int8)),
        ("int16", number(DataType::Int16)),
        ("int32", number(DataType::Int32)),
        ("int64", number(DataType::Int64)),
        ("uint8", number(DataType::UInt8)),
        ("uint16", number(DataType::UInt16)),
        ("uint32", number(DataType::UInt32)),
        ("uint64", number(DataType::UInt64)),
        ("float16", number(DataType::Float16)),
        ("float32", number(DataType::Float32)),
        ("float64", number(DataType::Float64)),
        ("decimal32", number(DataType::Decimal32(5, 2))),
        ("decimal64", number(DataType::Decimal64(12, 2))),
        ("decimal128", number(DataType::Decimal128(20, 2))),
        (
            "decimal256",
            Arc::new(
                Decimal256Array::from(wide)
                    .with_precision_and_scale(76, 0)
                    .unwrap(),
            ),
        ),
    ]
}

fn longs() -> Int64Array {
    Int64Array::from(vec![
        Some(-4),
        None,
        Some(0),
        Some(86_400_000),
        Some(9),
        Some(1),
        Some(2),
    ])
}

fn times() -> Columns {
    use arrow::datatypes::TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    let time = |to: DataType| cast(&longs(), to);
    let number = |to: DataType| cast(&ints(), to);
    vec![
        ("date32", number(DataType::Date32)),
        ("date64", time(DataType::Date64)),
        ("time32", number(DataType::Time32(Second))),
        ("time64", time(DataType::Time64(Nanosecond))),
        ("timestamp", time(DataType::Timestamp(Microsecond, None))),
        (
            "timestamp_tz",
            time(DataType::Timestamp(Millisecond, Some("+02:00".into()))),
        ),
        ("duration", time(DataType::Duration(Second))),
        (
            "interval_months",
            Arc::new(IntervalYearMonthArray::from(vec![1, 2, 3, 4, 5, 6, 7])),
        ),
        (
            "interval_days",
            Arc::new(IntervalDayTimeArray::from_iter_values(
                (0..7).map(|day| IntervalDayTimeType::make_value(day, 5)),
            )),
        ),
        (
            "interval_nanoseconds",
            Arc::new(IntervalMonthDayNanoArray::from_iter_values(
                (0..7).map(|day| IntervalMonthDayNanoType::make_value(1, day, 5)),
            )),
        ),
    ]
}

fn texts() -> Columns {
    let bytes: Vec<Option<&[u8]>> = words()
        .into_iter()
        .map(|word| word.map(str::as_bytes))
        .collect();
    let fixed = vec![
        Some([1_u8, 2, 3]),
        None,
        Some([4, 5, 6]),
        Some([0; 3]),
        Some([7; 3]),
        Some([8; 3]),
        None,
    ];
    vec![
        ("utf8", Arc::new(StringArray::from(words()))),
        ("large_utf8", Arc::new(LargeStringArray::from(words()))),
        ("utf8_view", Arc::new(StringViewArray::from(words()))),
        ("binary", Arc::new(BinaryArray::from(bytes.clone()))),
        (
            "large_binary",
            Arc::new(LargeBinaryArray::from(bytes.clone())),
        ),
        ("binary_view", Arc::new(BinaryViewArray::from(bytes))),
        (
            "fixed_size_binary",
            Arc::new(
                FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed.into_iter(), 3).unwrap(),
            ),
        ),
    ]
}

/// Columns with children, dictionaries and runs.
pub(crate) fn nested_columns() -> Columns {
    let mut columns = [lists(), list_views(), fixed_lists(), structs()].concat();
    columns.extend([
        ("sparse_union", Arc::new(union_of(None)) as ArrayRef),
        (
            "dense_union",
            Arc::new(union_of(Some(vec![0, 1, 2, 3, 4, 5, 6]))),
        ),
        (
            "dictionary",
            Arc::new(DictionaryArray::<Int32Type>::from_iter(words())),
        ),
        ("runs", Arc::new(runs())),
    ]);
    columns
}

/// How many elements the lists have.
const LENGTHS: [usize; 7] = [2, 0, 1, 3, 0, 2, 1];

fn item(array: &dyn Array) -> FieldRef {
    Arc::new(Field::new("item", array.data_type().clone(), true))
}

fn nulls() -> Option<NullBuffer> {
    Some(NullBuffer::from(vec![
        true, true, false, true, true, true, false,
    ]))
}

fn offsets() -> OffsetBuffer<i32> {
    OffsetBuffer::from_lengths(LENGTHS)
}

/// The elements of lists.
fn nine() -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(10..19))
}

fn pairs() -> ArrayRef {
    Arc::new(struct_of(vec![
        (
            "x",
            Arc::new(Int32Array::from_iter_values(0..14)) as ArrayRef,
        ),
        (
            "y",
            Arc::new(StringArray::from_iter_values(
                (0..14).map(|n| format!("y{n}")),
            )) as ArrayRef,
        ),
    ]))
}

fn lists() -> Columns {
    let nine_pairs = pairs().slice(3, 9);
    let empty: ArrayRef = new_empty_array(&DataType::Utf8);
    vec![
        (
            "list",
            Arc::new(ListArray::new(item(&nine()), offsets(), nine(), nulls())),
        ),
        (
            "large_list",
            Arc::new(LargeListArray::new(
                item(&nine()),
                OffsetBuffer::from_lengths(LENGTHS),
                nine(),
                nulls(),
            )),
        ),
        (
            "list_of_nothing",
            Arc::new(ListArray::new(
                item(&empty),
                OffsetBuffer::from_lengths([0; 7]),
                empty,
                None,
            )),
        ),
        (
            "list_of_struct",
            Arc::new(ListArray::new(
                item(&nine_pairs),
                offsets(),
                nine_pairs,
                nulls(),
            )),
        ),
    ]
}

fn list_views() -> Columns {
    let starts = [7, 0, 6, 3, 0, 1, 0];
    vec![
        (
            "list_view",
            Arc::new(ListViewArray::new(
                item(&nine()),
                ScalarBuffer::from(starts.to_vec()),
                ScalarBuffer::from(
                    LENGTHS
                        .map(|length| i32::try_from(length).unwrap())
                        .to_vec(),
                ),
                nine(),
                nulls(),
            )),
        ),
        (
            "large_list_view",
            Arc::new(LargeListViewArray::new(
                item(&nine()),
                ScalarBuffer::from(starts.map(i64::from).to_vec()),
                ScalarBuffer::from(
                    LENGTHS
                        .map(|length| i64::try_from(length).unwrap())
                        .to_vec(),
                ),
                nine(),
                None,
            )),
        ),
    ]
}

fn fixed_lists() -> Columns {
    vec![
        (
            "fixed_size_list_of_struct",
            Arc::new(FixedSizeListArray::new(item(&pairs()), 2, pairs(), nulls())),
        ),
        (
            "fixed_size_list",
            Arc::new(FixedSizeListArray::new(
                item(&nine()),
                2,
                Arc::new(Int32Array::from_iter_values(0..14)),
                nulls(),
            )),
        ),
    ]
}

fn structs() -> Columns {
    let simple = struct_of(vec![
        ("n", Arc::new(ints()) as ArrayRef),
        ("w", Arc::new(StringArray::from(words())) as ArrayRef),
    ]);
    let simple = StructArray::new(simple.fields().clone(), simple.columns().to_vec(), nulls());
    let keys = StringArray::from_iter_values((0..9).map(|n| format!("k{n}")));
    let entry_fields = vec![
        Field::new("keys", DataType::Utf8, false),
        Field::new("values", DataType::Int32, true),
    ];
    let entries = StructArray::new(entry_fields.into(), vec![Arc::new(keys), nine()], None);
    let entries_field: FieldRef =
        Arc::new(Field::new("entries", entries.data_type().clone(), false));
    vec![
        ("struct", Arc::new(simple.clone())),
        (
            "struct_of_struct",
            Arc::new(struct_of(vec![("inner", Arc::new(simple) as ArrayRef)])),
        ),
        (
            "map",
            Arc::new(MapArray::new(
                entries_field,
                offsets(),
                entries,
                nulls(),
                false,
            )),
        ),
    ]
}

fn union_of(offsets: Option<Vec<i32>>) -> UnionArray {
    let children: Vec<ArrayRef> = vec![Arc::new(ints()), Arc::new(StringArray::from(words()))];
    let fields = [
        Field::new("n", DataType::Int32, true),
        Field::new("w", DataType::Utf8, true),
    ];
    let fields = UnionFields::try_new([2, 5], fields).unwrap();
    let ids = ScalarBuffer::from(vec![2_i8, 5, 2, 5, 5, 2, 5]);
    UnionArray::try_new(fields, ids, offsets.map(ScalarBuffer::from), children).unwrap()
}

fn runs() -> RunArray<Int32Type> {
    let ends = Int32Array::from(vec![2, 3, 6, 7]);
    RunArray::try_new(
        &ends,
        &StringArray::from(vec![Some("a"), None, Some("c"), Some("d")]),
    )
    .unwrap()
}
