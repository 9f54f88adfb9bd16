//! Sums and arithmetic of whole numbers, decimals and durations: exact, or an error.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal32Array, Decimal64Array, Decimal128Array,
    DurationNanosecondArray, Int64Array, RecordBatch,
};
use arrow::datatypes::{DataType, Decimal128Type, DurationNanosecondType, Int64Type, TimeUnit};
use partgrid::error::ErrorKind;
use partgrid::grid::PartitionGrid;
use proptest::prelude::*;

use super::World;

fn world(columns: Vec<(&str, ArrayRef)>) -> World {
    let world = World::new(&[1]);
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    // Several tiles, so that totals of several threads come together.
    let (half, rows) = (batch.num_rows() / 2, batch.num_rows());
    let parts = [batch.slice(0, half), batch.slice(half, rows - half)];
    let grid = PartitionGrid::try_from_batches(batch.schema(), &parts).unwrap();
    world.session.register("s", Arc::new(grid)).unwrap();
    world
}

/// What SQL says of numbers near the ends of 64 bits, beside sums in 128 bits.
fn check(rows: &[(i64, Option<i64>)]) {
    let groups = Int64Array::from_iter_values(rows.iter().map(|(group, _)| *group));
    let values: Int64Array = rows.iter().map(|(_, value)| *value).collect();
    let world = world(vec![("g", Arc::new(groups)), ("x", Arc::new(values))]);
    let mut totals: BTreeMap<i64, Option<i128>> = BTreeMap::new();
    for (group, value) in rows {
        let total = totals.entry(*group).or_default();
        if let Some(value) = value {
            *total = Some(total.unwrap_or_default() + i128::from(*value));
        }
    }
    let fits = |total: &Option<i128>| total.is_none_or(|total| i64::try_from(total).is_ok());
    let sql = "SELECT g, sum(x) FROM s GROUP BY g ORDER BY g";
    if !totals.values().all(fits) {
        let error = world.run_error(sql);
        assert_eq!(error.kind(), ErrorKind::Query);
        assert!(error.message().contains("has no room"), "{error}");
        return;
    }
    let batch = world.batch(sql);
    let found = batch.column(1).as_primitive::<Int64Type>();
    let expected: Int64Array = totals
        .values()
        .map(|total| total.map(|total| i64::try_from(total).unwrap()))
        .collect();
    assert_eq!(found, &expected);
}

fn near_the_ends() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![
        Just(None),
        (0..3_i64).prop_map(|less| Some(i64::MAX - less)),
        (0..3_i64).prop_map(|more| Some(i64::MIN + more)),
        (-3..3_i64).prop_map(Some),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn sums_of_groups_are_exact_or_an_error(
        rows in prop::collection::vec((0..4_i64, near_the_ends()), 2..40)
    ) {
        check(&rows);
    }
}

#[test]
fn short_decimals_have_long_sums() {
    let most = 999_999_999;
    let narrow = Decimal32Array::from(vec![most; 1000]).with_precision_and_scale(9, 2);
    let wide = Decimal64Array::from(vec![i64::from(most); 1000]).with_precision_and_scale(16, 2);
    let world = world(vec![
        ("a", Arc::new(narrow.unwrap())),
        ("b", Arc::new(wide.unwrap())),
    ]);
    for sql in [
        "SELECT sum(a), sum(b) FROM s",
        "SELECT sum(a), sum(b) FROM s GROUP BY a",
        "SELECT sum(a) OVER (), sum(b) OVER () FROM s LIMIT 1",
        "SELECT sum(DISTINCT a) * 1000, sum(DISTINCT b) * 1000 FROM s",
    ] {
        let batch = world.batch(sql);
        for column in batch.columns() {
            let sums = column.as_primitive::<Decimal128Type>();
            assert_eq!(sums.value(0), i128::from(most) * 1000, "{sql}");
        }
    }
    let types: Vec<DataType> = world
        .batch("SELECT sum(a), sum(b) FROM s")
        .columns()
        .iter()
        .map(|column| column.data_type().clone())
        .collect();
    assert_eq!(
        types,
        [DataType::Decimal128(19, 2), DataType::Decimal128(26, 2)]
    );
}

#[test]
fn decimals_of_38_digits_do_not_wrap_around() {
    let most = 10_i128.pow(38) - 1;
    let values = Decimal128Array::from(vec![most; 4]).with_precision_and_scale(38, 0);
    let world = world(vec![("x", Arc::new(values.unwrap()))]);
    for sql in [
        "SELECT sum(x) FROM s",
        "SELECT sum(x) FROM s GROUP BY x",
        "SELECT sum(x) FROM (SELECT x FROM s LIMIT 2)",
        "SELECT sum(x) OVER (ORDER BY x ROWS 1 PRECEDING) FROM s",
    ] {
        let error = world.run_error(sql);
        assert!(error.message().contains("has no room"), "{sql}: {error}");
    }
}

#[test]
fn durations_are_added_up_without_wrapping_around() {
    // 36 hours each; 100,000 of them are beyond 64 bits of nanoseconds.
    let each = 36 * 3_600_000_000_000_i64;
    let values = DurationNanosecondArray::from(vec![each; 100_000]);
    let world = world(vec![("d", Arc::new(values))]);
    for sql in [
        "SELECT avg(d) FROM s",
        "SELECT avg(d) FROM s GROUP BY d",
        "SELECT avg(d) OVER (ORDER BY d) FROM s ORDER BY d LIMIT 1",
    ] {
        let batch = world.batch(sql);
        let mean = batch.column(0).as_primitive::<DurationNanosecondType>();
        assert_eq!(mean.value(0), each, "{sql}");
    }
    let sum = world.batch("SELECT sum(d) FROM (SELECT d FROM s LIMIT 2)");
    let expected = DataType::Duration(TimeUnit::Nanosecond);
    assert_eq!(sum.column(0).data_type(), &expected);
    assert_eq!(
        sum.column(0)
            .as_primitive::<DurationNanosecondType>()
            .value(0),
        2 * each
    );
    let error = world.run_error("SELECT sum(d) FROM s");
    assert!(
        error
            .message()
            .contains("has no room in its type, Duration"),
        "{error}"
    );
    let empty = world.batch("SELECT avg(d), sum(d) FROM s WHERE d IS NULL");
    assert!(empty.columns().iter().all(|column| column.is_null(0)));
}

#[test]
fn several_sums_of_one_column_with_constants_stay_together() {
    let world = World::new(&[3, 4]);
    let batch =
        world.batch("SELECT sum(id + 1), sum(id + 2), sum(id), sum(3 + id), count(id) FROM t");
    let first = world.batch("SELECT sum(id), count(id) FROM t");
    let value = |batch: &RecordBatch, column: usize| {
        batch.column(column).as_primitive::<Int64Type>().value(0)
    };
    let (sum, count) = (value(&first, 0), value(&first, 1));
    for (column, more) in [(0, 1), (1, 2), (2, 0), (3, 3)] {
        assert_eq!(value(&batch, column), sum + more * count);
    }
    let most = i64::MAX - 30;
    for sql in [
        format!("SELECT sum(id + {most}), sum(id + 1) FROM t"),
        format!("SELECT sum(id + {most}) FROM t"),
        format!("SELECT sum(id + {most}), count(id) FROM t"),
    ] {
        let error = world.run_error(&sql);
        assert!(error.message().contains("has no room"), "{sql}: {error}");
    }
}
