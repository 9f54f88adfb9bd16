//! Statistics of every type: nulls counted, bounds exact, in the type of the column and in the order of Arrow's kernels.

use std::sync::Arc;

use arrow::array::types::Int32Type;
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, DictionaryArray, Float16Array, Float64Array,
    Int64Array, RecordBatch, StringArray, StringViewArray,
};
use arrow::compute::{SortOptions, cast, filter, is_not_null, sort};
use arrow::datatypes::{DataType, Field, Float16Type, Float64Type, Schema};
use partgrid::error::ErrorKind;
use partgrid::grid::{ColumnStatistics, Tile, column_statistics};

use crate::support::{column_of_every_type, flat_columns};

#[test]
fn bounds_of_every_flat_type_are_the_ends_of_the_sorted_column() {
    for (name, column) in flat_columns() {
        let found = statistics(&column);
        assert_eq!(
            found.null_count as usize,
            column.logical_null_count(),
            "{name}"
        );
        let compared = !matches!(
            column.data_type(),
            DataType::Null | DataType::Interval(_) | DataType::FixedSizeBinary(_)
        );
        assert_eq!(found.bounds.is_some(), compared, "{name}");
        let Some(bounds) = found.bounds else { continue };
        let present = filter(&column, &is_not_null(&column).unwrap()).unwrap();
        let sorted = sort(&present, Some(SortOptions::default())).unwrap();
        assert_eq!(
            (bounds.len(), bounds.data_type()),
            (2, column.data_type()),
            "{name}"
        );
        assert_eq!(
            bounds.slice(0, 1).to_data(),
            sorted.slice(0, 1).to_data(),
            "{name}"
        );
        assert_eq!(
            bounds.slice(1, 1).to_data(),
            sorted.slice(sorted.len() - 1, 1).to_data(),
            "{name}"
        );
    }
}

#[test]
fn types_that_are_not_compared_have_no_bounds_and_their_nulls_are_counted() {
    for (name, column) in column_of_every_type() {
        let found = statistics(&column);
        assert_eq!(
            found.null_count as usize,
            column.logical_null_count(),
            "{name}"
        );
        let nested = column.data_type().is_nested()
            || matches!(column.data_type(), DataType::Dictionary(_, _));
        assert!(!nested || found.bounds.is_none(), "{name}");
    }
    let words: DictionaryArray<Int32Type> = vec![Some("a"), None, Some("a")].into_iter().collect();
    assert_eq!(statistics(&(Arc::new(words) as ArrayRef)).null_count, 1);
}

#[test]
fn empty_columns_and_columns_of_nulls_have_no_bounds() {
    for (name, column) in column_of_every_type() {
        let found = statistics(&column.slice(0, 0));
        assert_eq!(
            (found.null_count, found.bounds.is_none()),
            (0, true),
            "{name}"
        );
    }
    for data_type in [
        DataType::Int8,
        DataType::Utf8,
        DataType::Float64,
        DataType::Boolean,
        DataType::BinaryView,
    ] {
        let found = statistics(&arrow::array::new_null_array(&data_type, 5));
        assert_eq!(
            (found.null_count, found.bounds.is_none()),
            (5, true),
            "{data_type}"
        );
    }
}

#[test]
fn floats_keep_the_sign_of_zero_and_put_nan_last() {
    let bounds = |values: Vec<f64>| {
        let column: ArrayRef = Arc::new(Float64Array::from(values));
        let bounds = statistics(&column).bounds.unwrap();
        let bounds = bounds.as_primitive::<Float64Type>();
        (bounds.value(0).to_bits(), bounds.value(1).to_bits())
    };
    assert_eq!(
        bounds(vec![0.0, -0.0]),
        ((-0.0_f64).to_bits(), 0.0_f64.to_bits())
    );
    assert_eq!(
        bounds(vec![1.0, f64::NAN, -2.0]),
        ((-2.0_f64).to_bits(), f64::NAN.to_bits())
    );
    assert_eq!(
        bounds(vec![f64::NAN]),
        (f64::NAN.to_bits(), f64::NAN.to_bits())
    );
    assert_eq!(
        bounds(vec![f64::INFINITY, f64::NEG_INFINITY]),
        (f64::NEG_INFINITY.to_bits(), f64::INFINITY.to_bits())
    );
    assert_eq!(
        bounds(vec![3.0, -f64::NAN]),
        ((-f64::NAN).to_bits(), 3.0_f64.to_bits())
    );
    let halves = cast(
        &Float64Array::from(vec![Some(0.5), None, Some(f64::NAN)]),
        &DataType::Float16,
    )
    .unwrap();
    let bounds = statistics(&halves).bounds.unwrap();
    let bounds: &Float16Array = bounds.as_primitive::<Float16Type>();
    assert!(bounds.value(0).to_f64() == 0.5 && bounds.value(1).is_nan());
}

#[test]
fn long_texts_and_booleans_are_exact() {
    let long = format!("{}b", "a".repeat(1000));
    let longer = format!("{}c", "a".repeat(1000));
    let words = vec![Some(longer.as_str()), None, Some(long.as_str())];
    for column in [
        Arc::new(StringArray::from(words.clone())) as ArrayRef,
        Arc::new(StringViewArray::from(words)),
    ] {
        let bounds = cast(&statistics(&column).bounds.unwrap(), &DataType::Utf8).unwrap();
        let bounds = bounds.as_string::<i32>();
        assert_eq!(
            (bounds.value(0), bounds.value(1)),
            (long.as_str(), longer.as_str())
        );
    }
    let column: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None, Some(true)]));
    let bounds = statistics(&column).bounds.unwrap();
    assert_eq!(bounds.as_boolean(), &BooleanArray::from(vec![true, true]));
}

#[test]
fn a_tile_works_its_statistics_out_once_or_takes_them_as_given() {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![3, 1, 2]));
    let tile = Tile::try_from_batch(&batch_of(&column)).unwrap();
    assert!(tile.known_statistics(0).is_none());
    assert_eq!(tile.column_statistics(0).unwrap().null_count, 0);
    let copy = tile.clone();
    assert!(std::ptr::eq(
        tile.known_statistics(0).unwrap(),
        copy.column_statistics(0).unwrap()
    ));
    assert_eq!(
        tile.column_statistics(1).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let given = ColumnStatistics {
        null_count: 9,
        bounds: None,
        is_ascending: None,
    };
    let told = Tile::with_statistics(Arc::clone(tile.data()), [Some(given)]);
    assert_eq!(told.column_statistics(0).unwrap().null_count, 9);
}

fn batch_of(column: &ArrayRef) -> RecordBatch {
    let field = Field::new("c", column.data_type().clone(), true);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::clone(column)]).unwrap()
}

fn statistics(column: &ArrayRef) -> ColumnStatistics {
    column_statistics(column)
}
