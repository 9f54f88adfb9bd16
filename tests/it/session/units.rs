//! Times of different units in one expression, and bytes of a fixed length beside others.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryArray, RecordBatch, Time32SecondArray,
    Time64MicrosecondArray,
};
use partgrid::grid::PartitionGrid;

use super::World;

/// One o'clock and null in microseconds and in seconds, and bytes.
fn world() -> World {
    let world = World::new(&[1]);
    let fine = Time64MicrosecondArray::from(vec![Some(3_600_000_000), None]);
    let coarse = Time32SecondArray::from(vec![Some(3600), None]);
    let bytes = [Some([1_u8, 2]), None].into_iter();
    let bytes = FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes, 2).unwrap();
    let columns: [(&str, ArrayRef, bool); 3] = [
        ("fine", Arc::new(fine), true),
        ("coarse", Arc::new(coarse), true),
        ("bytes", Arc::new(bytes), true),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let grid = PartitionGrid::try_from_batches(batch.schema(), &[batch]).unwrap();
    world.session.register("clock", Arc::new(grid)).unwrap();
    world
}

/// The conditions hold for the first row; for the second they are what is given.
fn check(conditions: &[(&str, Option<bool>)]) {
    let world = world();
    for (condition, second) in conditions {
        for column in ["fine", "coarse"] {
            let condition = condition.replace('@', column);
            let batch = world.batch(&format!("SELECT {condition} FROM clock"));
            let found: Vec<Option<bool>> = batch.column(0).as_boolean().iter().collect();
            assert_eq!(found, [Some(true), *second], "{condition}");
        }
    }
}

#[test]
fn times_of_different_units_are_looked_for_in_lists() {
    check(&[
        ("@ IN (TIME '01:00:00', NULL)", None),
        ("@ IN (TIME '01:00:00', TIME '02:00:00')", None),
        (
            "@ IN (TIME '05:00:00', TIME '04:00:00', TIME '03:00:00', TIME '02:00:00', TIME '01:00:00')",
            None,
        ),
        (
            "@ NOT IN (TIME '06:00:00', TIME '05:00:00', TIME '04:00:00', TIME '03:00:00', TIME '02:00:00')",
            None,
        ),
    ]);
}

#[test]
fn times_of_different_units_are_values_of_one_expression() {
    check(&[
        (
            "coalesce(@, TIME '02:00:00') = TIME '01:00:00'",
            Some(false),
        ),
        ("ifnull(@, TIME '02:00:00') = TIME '01:00:00'", Some(false)),
        ("nvl(@, TIME '02:00:00') = TIME '01:00:00'", Some(false)),
        ("nvl(@, @) = TIME '01:00:00'", None),
        ("nullif(@, TIME '01:00:00') IS NULL", Some(true)),
        ("greatest(@, TIME '02:00:00') = TIME '02:00:00'", Some(true)),
        ("least(@, TIME '02:00:00') = TIME '01:00:00'", Some(false)),
        (
            "CASE @ WHEN TIME '01:00:00' THEN true ELSE false END",
            Some(false),
        ),
        (
            "CASE WHEN @ IS NULL THEN TIME '02:00:00' ELSE @ END = TIME '01:00:00'",
            Some(false),
        ),
    ]);
}

#[test]
fn bytes_of_a_fixed_length_go_beside_others() {
    let world = world();
    for (value, second) in [("X'0304'", vec![3, 4]), ("X'05'", vec![5])] {
        let batch = world.batch(&format!("SELECT coalesce(bytes, {value}) FROM clock"));
        let found = batch.column(0).as_binary::<i32>();
        assert_eq!(found.value(0), [1, 2]);
        assert_eq!(found.value(1), second, "{value}");
    }
    for function in ["coalesce", "nvl", "ifnull"] {
        let batch = world.batch(&format!("SELECT {function}(bytes, bytes) FROM clock"));
        assert_eq!(batch.column(0).null_count(), 1, "{function}");
        let batch = world.batch(&format!("SELECT {function}(bytes, X'00') FROM clock"));
        assert_eq!(batch.column(0).null_count(), 0, "{function}");
    }
}
