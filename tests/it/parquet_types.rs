//! A batch with a column of every type that Parquet keeps.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::*;
use half::f16;

/// A batch with a column of every type that Parquet keeps, every third value null where the name does not end with `!`.
pub(crate) fn all_types(rows: usize) -> RecordBatch {
    let columns = [flat(rows), temporal(rows), nested(rows)].concat();
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, array)| {
            let field = Field::new(*name, array.data_type().clone(), !name.ends_with('!'));
            field.with_metadata(HashMap::from([("of".to_owned(), (*name).to_owned())]))
        })
        .collect();
    let metadata = HashMap::from([("made by".to_owned(), "a test".to_owned())]);
    let schema = Schema::new_with_metadata(fields, metadata);
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(schema), arrays).unwrap()
}

type Column = (&'static str, ArrayRef);

fn some<T>(rows: usize, value: impl Fn(usize) -> T) -> Vec<Option<T>> {
    (0..rows)
        .map(|row| (row % 3 != 1).then(|| value(row)))
        .collect()
}

fn flat(rows: usize) -> Vec<Column> {
    let text = |row: usize| format!("value {row}, longer than a view holds inline");
    let texts = some(rows, text);
    let keys = Int16Array::from(some(rows, |row| (row % 2) as i16));
    let dictionary = DictionaryArray::new(keys, Arc::new(StringArray::from(vec!["x", "y"])));
    let decimal = Decimal128Array::from(some(rows, |row| row as i128 * 100 - 7));
    let wide = Decimal256Array::from(some(rows, |row| i256::from_i128(row as i128)));
    let fixed = some(rows, |row| vec![row as u8; 3]);
    vec![
        (
            "int8",
            Arc::new(Int8Array::from(some(rows, |row| row as i8))),
        ),
        (
            "int16",
            Arc::new(Int16Array::from(some(rows, |row| row as i16))),
        ),
        (
            "int32",
            Arc::new(Int32Array::from(some(rows, |row| row as i32))),
        ),
        (
            "int64!",
            Arc::new(Int64Array::from_iter_values(0..rows as i64)),
        ),
        (
            "uint8",
            Arc::new(UInt8Array::from(some(rows, |row| row as u8))),
        ),
        (
            "uint16",
            Arc::new(UInt16Array::from(some(rows, |row| row as u16))),
        ),
        (
            "uint32",
            Arc::new(UInt32Array::from(some(rows, |row| u32::MAX - row as u32))),
        ),
        (
            "uint64",
            Arc::new(UInt64Array::from(some(rows, |row| u64::MAX - row as u64))),
        ),
        (
            "float16",
            Arc::new(Float16Array::from(some(rows, |row| {
                f16::from_f32(row as f32)
            }))),
        ),
        (
            "float32",
            Arc::new(Float32Array::from(some(rows, |row| row as f32 / 3.0))),
        ),
        (
            "float64",
            Arc::new(Float64Array::from(some(rows, |row| row as f64 / 7.0))),
        ),
        (
            "boolean",
            Arc::new(BooleanArray::from(some(rows, |row| row % 2 == 0))),
        ),
        (
            "string!",
            Arc::new(StringArray::from_iter_values((0..rows).map(text))),
        ),
        ("string", Arc::new(StringArray::from(texts.clone()))),
        (
            "large_string",
            Arc::new(LargeStringArray::from(texts.clone())),
        ),
        (
            "string_view",
            Arc::new(
                texts
                    .iter()
                    .map(Option::as_deref)
                    .collect::<StringViewArray>(),
            ),
        ),
        (
            "binary",
            Arc::new(
                some(rows, |row| vec![0_u8, row as u8])
                    .into_iter()
                    .collect::<BinaryArray>(),
            ),
        ),
        (
            "fixed_binary",
            Arc::new(
                FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed.into_iter(), 3).unwrap(),
            ),
        ),
        (
            "decimal128",
            Arc::new(decimal.with_precision_and_scale(20, 2).unwrap()),
        ),
        (
            "decimal256",
            Arc::new(wide.with_precision_and_scale(50, 3).unwrap()),
        ),
        ("dictionary", Arc::new(dictionary)),
        ("null", Arc::new(NullArray::new(rows))),
    ]
}

fn temporal(rows: usize) -> Vec<Column> {
    let numbers = || some(rows, |row| row as i64 * 86_400_000);
    let small = || some(rows, |row| row as i32);
    vec![
        ("date32", Arc::new(Date32Array::from(small()))),
        ("time32", Arc::new(Time32MillisecondArray::from(small()))),
        (
            "time64",
            Arc::new(Time64MicrosecondArray::from(some(rows, |row| row as i64))),
        ),
        (
            "timestamp_ms",
            Arc::new(TimestampMillisecondArray::from(numbers())),
        ),
        (
            "timestamp_ns",
            Arc::new(TimestampNanosecondArray::from(numbers())),
        ),
        (
            "timestamp_zone",
            Arc::new(TimestampMicrosecondArray::from(numbers()).with_timezone("Europe/Rome")),
        ),
        (
            "duration",
            Arc::new(DurationMillisecondArray::from(numbers())),
        ),
    ]
}

fn nested(rows: usize) -> Vec<Column> {
    let nulls = || Some(NullBuffer::from_iter((0..rows).map(|row| row % 3 != 1)));
    let item = |data_type: DataType| Arc::new(Field::new("item", data_type, true));
    let numbers = Arc::new(Int64Array::from_iter_values(0..2 * rows as i64)) as ArrayRef;
    let offsets = OffsetBuffer::<i32>::from_lengths(std::iter::repeat_n(2, rows));
    let wide_offsets = OffsetBuffer::<i64>::from_lengths(std::iter::repeat_n(2, rows));
    let list = ListArray::new(
        item(DataType::Int64),
        offsets.clone(),
        Arc::clone(&numbers),
        nulls(),
    );
    let large = LargeListArray::new(
        item(DataType::Int64),
        wide_offsets,
        Arc::clone(&numbers),
        nulls(),
    );
    let fixed = FixedSizeListArray::new(item(DataType::Int64), 2, Arc::clone(&numbers), nulls());
    let inner = point(2 * rows, None);
    let of_structs = ListArray::new(
        item(inner.data_type().clone()),
        offsets.clone(),
        Arc::new(inner),
        nulls(),
    );
    let outer = {
        let inner: ArrayRef = Arc::new(point(rows, nulls()));
        let field = Field::new("inner", inner.data_type().clone(), true);
        StructArray::new(vec![field].into(), vec![inner], nulls())
    };
    vec![
        ("list", Arc::new(list)),
        ("large_list", Arc::new(large)),
        ("fixed_size_list", Arc::new(fixed)),
        ("list_of_struct", Arc::new(of_structs)),
        ("struct", Arc::new(point(rows, nulls()))),
        ("struct_of_struct", Arc::new(outer)),
        ("map", Arc::new(map(rows, offsets, nulls()))),
    ]
}

fn point(rows: usize, nulls: Option<NullBuffer>) -> StructArray {
    let x = Arc::new(Int32Array::from(some(rows, |row| row as i32))) as ArrayRef;
    let y = Arc::new(StringArray::from(some(rows, |row| row.to_string()))) as ArrayRef;
    let fields = vec![
        Field::new("x", DataType::Int32, true),
        Field::new("y", DataType::Utf8, true),
    ];
    StructArray::new(fields.into(), vec![x, y], nulls)
}

fn map(rows: usize, offsets: OffsetBuffer<i32>, nulls: Option<NullBuffer>) -> MapArray {
    let keys = Arc::new(StringArray::from_iter_values(
        (0..2 * rows).map(|key| key.to_string()),
    ));
    let values = Arc::new(Int32Array::from(some(2 * rows, |row| row as i32)));
    let fields = Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Int32, true),
    ]);
    let entries = StructArray::new(fields.clone(), vec![keys, values], None);
    let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
    MapArray::new(field, offsets, entries, nulls, false)
}
