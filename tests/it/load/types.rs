//! Every type comes back as it was written, whatever the tiles.

use arrow::array::builder::{Int64Builder, MapBuilder, StringBuilder};
use arrow::array::types::Int32Type;
use arrow::array::{
    FixedSizeBinaryArray, FixedSizeListArray, LargeListArray, ListArray, NullArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{Fields, IntervalUnit, TimeUnit};
use parquet::arrow::arrow_writer::ArrowWriterOptions;

use super::*;

const NUM_ROWS: usize = 23;

#[test]
fn every_type_is_kept_with_its_values() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    for (name, column) in flat_columns().into_iter().chain(nested_columns()) {
        let batch = RecordBatch::try_from_iter_with_nullable([(&name, column, true)]).unwrap();
        write(&path, &batch, 5);
        for tile_rows in [2, 5, 9, 1000] {
            let options = LoadOptions::default().with_tile_rows(tile_rows);
            let grid = load_with(&path, &options).unwrap();
            assert_eq!(grid.schema(), &batch.schema(), "{name}");
            assert_eq!(rows_of(&grid), batch, "{name} in tiles of {tile_rows}");
        }
    }
}

#[test]
fn all_types_in_one_file_are_kept_with_their_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let columns: Vec<_> = flat_columns().into_iter().chain(nested_columns()).collect();
    let fields = columns.iter().map(|(name, column)| {
        Field::new(name, column.data_type().clone(), true)
            .with_metadata([("made of".to_owned(), name.clone())].into())
    });
    let metadata = [("title".to_owned(), "all types".to_owned())].into();
    let schema = Schema::new_with_metadata(fields.collect::<Fields>(), metadata);
    let arrays = columns
        .iter()
        .map(|(_, column)| Arc::clone(column))
        .collect();
    let batch = RecordBatch::try_new(Arc::new(schema), arrays).unwrap();
    write(&path, &batch, 7);
    let grid = load_path(&path).unwrap();
    assert_eq!(grid.schema(), &batch.schema());
    assert_eq!(grid.tiles().len(), 1);
    assert_eq!(rows_of(&grid), batch);
}

#[test]
fn without_an_arrow_schema_types_are_those_of_parquet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let names = [
        "LargeUtf8",
        "Dictionary(Int32, Utf8)",
        "Int16",
        "Timestamp(ms, \"UTC\")",
    ];
    let columns = flat_columns()
        .into_iter()
        .filter(|(name, _)| names.contains(&name.as_str()));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let options = ArrowWriterOptions::new().with_skip_arrow_metadata(true);
    let file = File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new_with_options(file, batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let grid = load_path(&path).unwrap();
    for (got, wrote) in grid.schema().fields().iter().zip(batch.schema().fields()) {
        let expected = match wrote.data_type() {
            DataType::LargeUtf8 | DataType::Dictionary(_, _) => &DataType::Utf8,
            same => same,
        };
        assert_eq!(got.data_type(), expected);
        let values = cast(
            rows_of(&grid).column_by_name(got.name()).unwrap(),
            wrote.data_type(),
        );
        assert_eq!(
            &values.unwrap(),
            batch.column_by_name(wrote.name()).unwrap()
        );
    }
}

#[test]
fn nested_fields_nullable_in_any_file_are_nullable() {
    let list = |item: &str, nullable: bool, last: Option<i64>| {
        let field = Arc::new(Field::new(item, DataType::Int64, nullable));
        let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(2), last]));
        let offsets = OffsetBuffer::new(vec![0, 1, 3].into());
        let list: ArrayRef = Arc::new(ListArray::new(Arc::clone(&field), offsets, values, None));
        let inner = Fields::from(vec![Field::new("list", list.data_type().clone(), false)]);
        let column: ArrayRef = Arc::new(StructArray::new(inner, vec![list], None));
        RecordBatch::try_from_iter([("s", column)]).unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    write(
        &folder.path().join("a.parquet"),
        &list("item", false, Some(3)),
        9,
    );
    write(
        &folder.path().join("b.parquet"),
        &list("element", true, None),
        9,
    );
    let expected = concat_batches(
        &list("item", true, None).schema(),
        &[list("item", true, Some(3)), list("item", true, None)],
    );
    assert_eq!(
        rows_of(&load_path(folder.path()).unwrap()),
        expected.unwrap()
    );
}

#[test]
fn a_change_of_unit_zone_or_width_is_a_change_of_type() {
    let columns = flat_columns();
    let put = |path: &Path, column: &ArrayRef| {
        write(
            path,
            &RecordBatch::try_from_iter([("x", Arc::clone(column))]).unwrap(),
            9,
        );
    };
    let folder = tempfile::tempdir().unwrap();
    for (first, second) in columns.iter().zip(columns.iter().skip(1)) {
        put(&folder.path().join("a.parquet"), &first.1);
        put(&folder.path().join("b.parquet"), &second.1);
        let texts = [first.0.as_str(), second.0.as_str(), "column: x"];
        refused(load_path(folder.path()), ErrorKind::InvalidData, &texts);
    }
}

/// One column for each flat type, named after it, with nulls.
pub(super) fn flat_columns() -> Vec<(String, ArrayRef)> {
    use DataType::*;
    let dictionary = |key: DataType, value: DataType| Dictionary(Box::new(key), Box::new(value));
    let zone = |name: &str| Some(Arc::from(name));
    let types = [
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Float16,
        Float32,
        Float64,
        Decimal32(7, 2),
        Decimal64(15, 3),
        Decimal128(20, 2),
        Decimal128(38, 0),
        Decimal256(60, 5),
        Utf8,
        LargeUtf8,
        Utf8View,
        Binary,
        LargeBinary,
        BinaryView,
        dictionary(Int8, Utf8),
        dictionary(Int32, Utf8),
        dictionary(UInt16, LargeUtf8),
        Date32,
        Date64,
        Time32(TimeUnit::Second),
        Time32(TimeUnit::Millisecond),
        Time64(TimeUnit::Microsecond),
        Time64(TimeUnit::Nanosecond),
        Duration(TimeUnit::Second),
        Duration(TimeUnit::Nanosecond),
        Timestamp(TimeUnit::Second, None),
        Timestamp(TimeUnit::Millisecond, zone("UTC")),
        Timestamp(TimeUnit::Microsecond, zone("America/New_York")),
        Timestamp(TimeUnit::Nanosecond, None),
        Timestamp(TimeUnit::Nanosecond, zone("+05:30")),
        Interval(IntervalUnit::YearMonth),
    ];
    let mut columns: Vec<(String, ArrayRef)> = types
        .iter()
        .map(|data_type| (data_type.to_string(), flat_column(data_type)))
        .collect();
    let fixed = (0..NUM_ROWS).map(|row| (row % 4 != 1).then_some([row as u8; 3]));
    let fixed = FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, 3).unwrap();
    columns.push((fixed.data_type().to_string(), Arc::new(fixed)));
    columns.push((Null.to_string(), Arc::new(NullArray::new(NUM_ROWS))));
    columns
}

fn flat_column(data_type: &DataType) -> ArrayRef {
    let numbers: Int64Array = (0..NUM_ROWS as i64)
        .map(|row| (row % 4 != 1).then_some(row * 3))
        .collect();
    let texts: StringArray = numbers
        .iter()
        .map(|number| number.map(|number| format!("text number {}", number % 5)))
        .collect();
    let narrow = || cast(&numbers, &DataType::Int32).unwrap();
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Dictionary(_, _) => {
            cast(&texts, data_type)
        }
        DataType::Binary | DataType::LargeBinary => cast(&texts, data_type),
        DataType::BinaryView => cast(&cast(&texts, &DataType::Binary).unwrap(), data_type),
        DataType::Date32 | DataType::Time32(_) | DataType::Interval(_) => {
            cast(&narrow(), data_type)
        }
        DataType::Date64 => cast(&cast(&narrow(), &DataType::Date32).unwrap(), data_type),
        _ => cast(&numbers, data_type),
    }
    .unwrap()
}

pub(super) fn nested_columns() -> Vec<(String, ArrayRef)> {
    let some = |row: usize| row % 5 != 3;
    let lists: Vec<_> = (0..NUM_ROWS)
        .map(|row| {
            some(row).then(|| (0..row % 4).map(move |at| (at != 1).then_some((row * at) as i32)))
        })
        .collect();
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(lists.clone());
    let large = LargeListArray::from_iter_primitive::<Int32Type, _, _>(lists);
    let pairs = (0..NUM_ROWS as i32).map(|row| some(row as usize).then(|| vec![Some(row), None]));
    let fixed = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(pairs, 2);
    let structs = structs(NUM_ROWS);
    let lengths = (0..NUM_ROWS).map(|row| if some(row) { row % 3 } else { 0 });
    let offsets = OffsetBuffer::<i32>::from_lengths(lengths);
    let inner = structs_ref(*offsets.last().unwrap() as usize);
    let item = Arc::new(Field::new("item", inner.data_type().clone(), true));
    let nulls: NullBuffer = (0..NUM_ROWS).map(some).collect();
    let list_of_struct = ListArray::new(item, offsets, inner, Some(nulls));
    vec![
        ("list".to_owned(), Arc::new(list)),
        ("large_list".to_owned(), Arc::new(large)),
        ("fixed_size_list".to_owned(), Arc::new(fixed)),
        ("struct".to_owned(), Arc::new(structs)),
        ("list of struct".to_owned(), Arc::new(list_of_struct)),
        ("map".to_owned(), maps()),
    ]
}

/// Structs of a number and a struct of a text.
fn structs(num_rows: usize) -> StructArray {
    let numbers: Int64Array = (0..num_rows as i64)
        .map(|row| (row % 3 != 1).then_some(row))
        .collect();
    let texts: StringArray = (0..num_rows)
        .map(|row| (row % 2 == 1).then(|| row.to_string()))
        .collect();
    let inner = Fields::from(vec![Field::new("text", DataType::Utf8, true)]);
    let inner = StructArray::new(inner, vec![Arc::new(texts)], None);
    let fields = Fields::from(vec![
        Field::new("number", DataType::Int64, true),
        Field::new("inner", inner.data_type().clone(), false),
    ]);
    let nulls: NullBuffer = (0..num_rows).map(|row| row % 6 != 5).collect();
    StructArray::new(
        fields,
        vec![Arc::new(numbers), Arc::new(inner)],
        Some(nulls),
    )
}

fn structs_ref(num_rows: usize) -> ArrayRef {
    Arc::new(structs(num_rows))
}

fn maps() -> ArrayRef {
    let mut builder = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    for row in 0..NUM_ROWS {
        for entry in 0..row % 3 {
            builder.keys().append_value(format!("key {entry}"));
            builder
                .values()
                .append_option((entry == 1).then_some(row as i64));
        }
        builder.append(row % 7 != 6).unwrap();
    }
    Arc::new(builder.finish())
}
