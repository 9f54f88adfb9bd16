//! Columns as arrays of numbers: views, copies, promotion, nulls.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Float16Array, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array,
    Int64Array, RecordBatch, StringArray, UInt8Array, UInt64Array,
};
use arrow::datatypes::{DataType, Field};
use partgrid::error::ErrorKind;
use partgrid::grid::{ElementType, FillValue, Gather, Numbers, Order, Tile, TileMemory, dense};
use proptest::prelude::*;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let columns = columns
        .into_iter()
        .map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn ints(values: Vec<Option<i64>>) -> ArrayRef {
    Arc::new(Int64Array::from(values))
}

fn field(data_type: DataType) -> Field {
    Field::new("n", data_type, true)
}

/// The elements of a packed block, as 64-bit floats.
fn floats(numbers: &Numbers) -> Vec<f64> {
    assert!(numbers.is_c_contiguous() || numbers.is_f_contiguous());
    let bytes = numbers.bytes().unwrap();
    bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|item| f64::from_ne_bytes(*item))
        .collect()
}

#[test]
fn a_column_and_a_slice_of_it_are_views() {
    let column = ints((0..10).map(Some).collect());
    let start = column.to_data().buffers()[0].as_ptr();
    let whole = Numbers::try_from_column(&field(DataType::Int64), &column, None).unwrap();
    assert_eq!(
        (whole.as_ptr(), whole.shape(), whole.strides()),
        (start, &[10][..], &[8][..])
    );
    let part =
        Numbers::try_from_column(&field(DataType::Int64), &column.slice(3, 4), None).unwrap();
    assert_eq!(
        (part.as_ptr(), part.shape()),
        (start.wrapping_add(24), &[4][..])
    );
    assert!(part.is_c_contiguous() && part.is_f_contiguous());
    assert_eq!((part.num_bytes(), part.element()), (32, ElementType::Int64));
}

#[test]
fn columns_of_a_dense_band_and_its_slices_are_one_strided_view() {
    let names = ["a", "b", "c"];
    let columns = names
        .iter()
        .map(|name| (*name, ints((0..5).map(Some).collect())));
    let block = dense(&batch(columns.collect())).unwrap();
    for (start, rows) in [(0, 5), (1, 3), (2, 0)] {
        let part = block.slice(start, rows);
        let numbers = Numbers::try_from_batch(&part, None).unwrap();
        assert_eq!(
            (numbers.shape(), numbers.strides()),
            (&[rows, 3][..], &[8, 64][..])
        );
        let first = block.column(0).to_data().buffers()[0].as_ptr();
        assert_eq!(numbers.as_ptr(), first.wrapping_add(8 * start));
        assert_eq!(numbers.is_f_contiguous(), rows == 0);
        let copy = numbers.copied();
        assert!(copy.is_f_contiguous());
        assert_eq!(copy.bytes().unwrap().len(), numbers.num_bytes());
    }
    let eight = ints((0..8).map(Some).collect());
    let packed = dense(&batch(vec![("a", Arc::clone(&eight)), ("b", eight)])).unwrap();
    assert!(
        Numbers::try_from_batch(&packed, None)
            .unwrap()
            .is_f_contiguous()
    );
}

#[test]
fn columns_that_are_one_array_stay_one_where_their_tile_is_to_lie_elsewhere() {
    let two = || {
        let column = || ints((0..5).map(Some).collect());
        batch(vec![("a", column()), ("b", column())])
    };
    let tile = Tile::try_from_batch(&dense(&two()).unwrap()).unwrap();
    let told = |batch: RecordBatch| {
        let memory = TileMemory::new(batch, None);
        let known = Arc::downgrade(&memory);
        tile.data().settle(memory);
        known
    };
    assert_eq!(told(two()).strong_count(), 0);
    let block = dense(&two()).unwrap();
    let place = block.column(1).to_data().buffers()[0].as_ptr();
    let known = told(block);
    assert_eq!(known.strong_count(), 1);
    let numbers = Numbers::try_from_batch(&tile.open().unwrap(), None).unwrap();
    assert_eq!(
        (numbers.shape(), numbers.strides()),
        (&[5, 2][..], &[8, 64][..])
    );
    assert_eq!(numbers.as_ptr().wrapping_add(64), place);
    assert_eq!(tile.open().unwrap(), two());
    drop(tile);
    assert_eq!(known.strong_count(), 0);
}

#[test]
fn columns_that_make_no_one_array_are_refused_with_the_remedy() {
    let (one, other) = (ints(vec![Some(1)]), ints(vec![Some(2)]));
    let small: ArrayRef = Arc::new(Int8Array::from(vec![1]));
    for (columns, got) in [
        (
            vec![("a", Arc::clone(&one)), ("b", other)],
            "columns at uneven distances or in several allocations",
        ),
        (vec![("a", one), ("b", small)], "columns of int64 and int8"),
        (vec![], "a batch without columns"),
    ] {
        let batch = match columns.is_empty() {
            true => RecordBatch::new_empty(Arc::new(arrow::datatypes::Schema::empty())),
            false => batch(columns),
        };
        let error = Numbers::try_from_batch(&batch, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            format!(
                "an array over the memory of a tile wants columns of one type at one distance in one allocation, got {got}\nhint: load the columns with dense=, or copy them with to_numpy()"
            )
        );
    }
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let error = Numbers::try_from_column(&field(DataType::Utf8), &text, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "an array holds int8 to int64, uint8 to uint64 or float16 to float64 without copying, the column is Utf8 (column: n)\nhint: cast to BIGINT or DOUBLE in SQL if the texts are numbers"
    );
}

#[test]
fn nulls_are_refused_with_count_column_and_remedy_or_filled() {
    let column = ints(vec![Some(1), None, None]);
    let error = Numbers::try_from_column(&field(DataType::Int64), &column, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert_eq!(
        error.to_string(),
        "an array has no nulls, the column has 2 (column: n)\nhint: give a value for them with fill_null=, or filter them out in SQL"
    );
    for fill in [FillValue::Int(-7), FillValue::Float(-7.0)] {
        let values =
            Numbers::try_from_column(&field(DataType::Int64), &column, Some(fill)).unwrap();
        let expected: Vec<u8> = [1_i64, -7, -7]
            .iter()
            .flat_map(|value| value.to_ne_bytes())
            .collect();
        assert_eq!(values.bytes().unwrap(), expected);
        let both =
            Numbers::try_from_batch(&batch(vec![("n", Arc::clone(&column))]), Some(fill)).unwrap();
        assert_eq!(
            (both.bytes().unwrap(), both.shape()),
            (&expected[..], &[3, 1][..])
        );
    }
    let whole = ints(vec![Some(1), Some(2)]);
    let same =
        Numbers::try_from_column(&field(DataType::Int64), &whole, Some(FillValue::Int(0))).unwrap();
    assert_eq!(same.as_ptr(), whole.to_data().buffers()[0].as_ptr());
}

#[test]
fn a_fill_value_that_the_type_does_not_hold_is_refused() {
    let small: ArrayRef = Arc::new(Int8Array::from(vec![Some(1), None]));
    let float: ArrayRef = Arc::new(Float32Array::from(vec![Some(1.0), None]));
    for (column, fill, text) in [
        (
            &small,
            FillValue::Int(128),
            "fill_null must be a value of int8, got 128",
        ),
        (
            &small,
            FillValue::Float(0.5),
            "fill_null must be a value of int8, got 0.5",
        ),
        (
            &small,
            FillValue::Float(f64::NAN),
            "fill_null must be a value of int8, got NaN",
        ),
        (
            &small,
            FillValue::Int(i128::MAX),
            "fill_null must be a value of int8, got 170141183460469231731687303715884105727",
        ),
        (
            &float,
            FillValue::Float(0.1),
            "fill_null must be a value of float32, got 0.1",
        ),
        (
            &float,
            FillValue::Int(16_777_217),
            "fill_null must be a value of float32, got 16777217",
        ),
    ] {
        let error =
            Numbers::try_from_column(&field(column.data_type().clone()), column, Some(fill))
                .unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::InvalidArgument, text)
        );
        assert_eq!(error.context("column"), Some("n"));
    }
    let nan = Some(FillValue::Float(f64::NAN));
    let nan = Numbers::try_from_column(&field(DataType::Float32), &float, nan).unwrap();
    assert!(f32::from_ne_bytes(nan.bytes().unwrap()[4..].try_into().unwrap()).is_nan());
}

#[test]
fn a_gathered_block_has_the_rows_of_all_batches_in_either_order() {
    let upper = batch(vec![
        ("a", Arc::new(Int8Array::from(vec![1, 2]))),
        ("b", Arc::new(Float64Array::from(vec![0.5, -0.0]))),
    ]);
    let lower = batch(vec![
        ("a", Arc::new(Int8Array::from(vec![Some(3), None]))),
        ("b", Arc::new(Float64Array::from(vec![f64::INFINITY, 4.0]))),
    ]);
    let batches = [upper, lower];
    let gather = Gather {
        fill: Some(FillValue::Int(9)),
        ..Gather::default()
    };
    let columns = Numbers::gathered(&batches, &gather).unwrap();
    assert_eq!(
        (columns.shape(), columns.strides()),
        (&[4, 2][..], &[8, 32][..])
    );
    assert_eq!(
        floats(&columns),
        [1.0, 2.0, 3.0, 9.0, 0.5, -0.0, f64::INFINITY, 4.0]
    );
    let rows = Numbers::gathered(
        &batches,
        &Gather {
            order: Order::Rows,
            ..gather
        },
    )
    .unwrap();
    assert_eq!((rows.shape(), rows.strides()), (&[4, 2][..], &[16, 8][..]));
    assert_eq!(
        floats(&rows),
        [1.0, 0.5, 2.0, -0.0, 3.0, f64::INFINITY, 9.0, 4.0]
    );
    let error = Numbers::gathered(&batches, &Gather::default()).unwrap_err();
    assert_eq!(
        (error.message(), error.context("column")),
        ("an array has no nulls, the column has 1", Some("a"))
    );
    assert_eq!(
        Numbers::gathered(&[], &Gather::default()).unwrap().shape(),
        [0, 0]
    );
}

#[test]
fn a_value_that_the_type_does_not_hold_is_refused_by_row_and_column() {
    let large = 9_007_199_254_740_993;
    let columns: Vec<(ArrayRef, ElementType, &str)> = vec![
        (
            ints(vec![Some(1), Some(large)]),
            ElementType::Float64,
            "float64 does not hold the value 9007199254740993 of row 1 exactly",
        ),
        (
            ints(vec![Some(i64::MAX)]),
            ElementType::Float64,
            "float64 does not hold the value 9223372036854775807 of row 0 exactly",
        ),
        (
            ints(vec![Some(-1)]),
            ElementType::UInt64,
            "uint64 does not hold the value -1 of row 0 exactly",
        ),
        (
            ints(vec![Some(1), Some(300)]),
            ElementType::UInt8,
            "uint8 does not hold the value 300 of row 1 exactly",
        ),
        (
            Arc::new(Float64Array::from(vec![1.5])),
            ElementType::Int64,
            "int64 does not hold the value 1.5 of row 0 exactly",
        ),
        (
            Arc::new(Float64Array::from(vec![f64::NAN])),
            ElementType::Int32,
            "int32 does not hold the value NaN of row 0 exactly",
        ),
        (
            Arc::new(Float64Array::from(vec![1e300])),
            ElementType::Float32,
            "float32 does not hold the value 1e300 of row 0 exactly",
        ),
        (
            Arc::new(UInt64Array::from(vec![u64::MAX])),
            ElementType::Int64,
            "int64 does not hold the value 18446744073709551615 of row 0 exactly",
        ),
        (
            ints(vec![Some(70_000)]),
            ElementType::Float16,
            "float16 does not hold the value 70000 of row 0 exactly",
        ),
    ];
    for (column, element, text) in columns {
        let gather = Gather {
            element: Some(element),
            ..Gather::default()
        };
        let error = Numbers::gathered(&[batch(vec![("n", column)])], &gather).unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::InvalidData, text)
        );
        assert_eq!(error.context("column"), Some("n"));
    }
    let kept: Vec<(ArrayRef, ElementType)> = vec![
        (
            Arc::new(Float64Array::from(vec![-0.0, 3.0])),
            ElementType::Int8,
        ),
        (
            Arc::new(Float64Array::from(vec![
                f64::from_bits(0x7ff8_0000_0000_0001),
                f64::NEG_INFINITY,
            ])),
            ElementType::Float16,
        ),
        (ints(vec![Some(1 << 62)]), ElementType::Float64),
        (
            Arc::new(Float16Array::from(vec![half::f16::MAX])),
            ElementType::Int32,
        ),
    ];
    for (column, element) in kept {
        let gather = Gather {
            element: Some(element),
            ..Gather::default()
        };
        let numbers = Numbers::gathered(&[batch(vec![("n", column)])], &gather).unwrap();
        assert_eq!(numbers.element(), element);
    }
}

#[test]
fn types_are_promoted_as_numpy_does() {
    use ElementType::{
        Float16, Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64,
    };
    for (elements, expected) in [
        (vec![Int8, Int32], Int32),
        (vec![Int8, UInt8], Int16),
        (vec![Int64, UInt32], Int64),
        (vec![Int8, UInt32], Int64),
        (vec![Int8, UInt64], Float64),
        (vec![UInt8, UInt16], UInt16),
        (vec![Int8, Float16], Float16),
        (vec![UInt16, Float16], Float32),
        (vec![Int32, Float32], Float64),
        (vec![Int16, UInt8, Float32], Float32),
    ] {
        assert_eq!(
            ElementType::promoted(elements.clone()),
            Some(expected),
            "{elements:?}"
        );
    }
    assert_eq!(ElementType::promoted([]), None);
    for name in ["int8", "uint64", "float16"] {
        assert_eq!(ElementType::try_from_name(name).unwrap().to_string(), name);
    }
    let error = ElementType::try_from_name("complex128").unwrap_err();
    assert_eq!(
        error.message(),
        "the type of an array must be int8 to int64, uint8 to uint64 or float16 to float64, got complex128"
    );
}

proptest! {
    #[test]
    fn a_gathered_block_is_each_value_at_its_place(
        lengths in prop::collection::vec(0_usize..600, 1..4),
        width in 1_usize..6,
        by_rows in any::<bool>(),
        small in any::<bool>(),
    ) {
        let value = |row: usize, column: usize| (row * 7 + column) % 200;
        let mut first = 0;
        let batches: Vec<RecordBatch> = lengths.iter().map(|length| {
            let columns = (0..width).map(|column| {
                let values = (first..first + length).map(|row| value(row, column) as u8);
                let values: ArrayRef = if small || column > 0 {
                    Arc::new(UInt8Array::from_iter_values(values))
                } else {
                    Arc::new(Int16Array::from_iter_values(values.map(i16::from)))
                };
                (format!("c{column}"), values)
            });
            let batch = RecordBatch::try_from_iter(columns).unwrap();
            first += length;
            batch
        }).collect();
        let order = if by_rows { Order::Rows } else { Order::Columns };
        let gather = Gather { order, element: Some(ElementType::Int32), fill: None };
        let numbers = Numbers::gathered(&batches, &gather).unwrap();
        let items = numbers.bytes().unwrap().as_chunks::<4>().0;
        prop_assert_eq!(items.len(), first * width);
        for row in 0..first {
            for column in 0..width {
                let place = (row * numbers.strides()[0] + column * numbers.strides()[1]) / 4;
                prop_assert_eq!(i32::from_ne_bytes(items[place]), value(row, column) as i32);
            }
        }
        let column: ArrayRef = Arc::new(Int32Array::from_iter_values((0..first).map(|row| row as i32)));
        prop_assert!(Numbers::try_from_column(&field(DataType::Int32), &column, None).unwrap().is_c_contiguous());
    }
}
