//! Answers over nulls that the engine's own rules get wrong, and forms that are refused because it would.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields, Int64Type};
use partgrid::error::ErrorKind;
use partgrid::grid::PartitionGrid;

use super::World;

/// A name and values.
type Column<'a> = (&'a str, &'a [Option<i64>]);

/// A world with tables of the given integer columns.
fn with_tables(tables: &[(&str, &[Column])]) -> World {
    let world = World::new(&[1]);
    for (name, columns) in tables {
        let columns = columns.iter().map(|(column, values)| {
            let values: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
            (*column, values, true)
        });
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        register(&world, name, &batch);
    }
    world
}

fn register(world: &World, name: &str, batch: &RecordBatch) {
    let grid = PartitionGrid::try_from_batches(batch.schema(), std::slice::from_ref(batch));
    world
        .session
        .register(name, Arc::new(grid.unwrap()))
        .unwrap();
}

fn values(world: &World, sql: &str) -> Vec<Option<i64>> {
    let batch = world.batch(sql);
    let mut values: Vec<_> = batch.column(0).as_primitive::<Int64Type>().iter().collect();
    values.sort_unstable();
    values
}

#[test]
fn min_and_max_of_two_columns_see_all_rows() {
    let world = World::new(&[1]);
    let rows = 40_000;
    let mut late = vec![None; rows - 1];
    late.push(Some(5));
    let columns: [(&str, ArrayRef, bool); 3] = [
        ("a", Arc::new(Int64Array::from(vec![9; rows])), true),
        ("b", Arc::new(Int64Array::from(late)), true),
        (
            "id",
            Arc::new(Int64Array::from_iter_values(0..40_000)),
            true,
        ),
    ];
    register(
        &world,
        "w",
        &RecordBatch::try_from_iter_with_nullable(columns).unwrap(),
    );
    for _ in 0..5 {
        let batch = world.batch("SELECT max(a), min(b) FROM w WHERE id >= 0");
        let value = |column: usize| batch.column(column).as_primitive::<Int64Type>().value(0);
        assert_eq!(
            (value(0), value(1), batch.column(1).null_count()),
            (9, 5, 0)
        );
    }
}

#[test]
fn lists_that_hold_null_are_unknown_where_they_must_be() {
    let world = with_tables(&[("t", &[("x", &[Some(0), Some(1), Some(2), None])])]);
    for (condition, expected) in [
        ("x NOT IN (1, 0) OR x NOT IN (1, NULL)", vec![Some(2)]),
        ("x IN (1, 2, 3, 4) AND x NOT IN (1, NULL)", vec![]),
        ("x IN (1, NULL)", vec![Some(1)]),
        ("x NOT IN (1, NULL)", vec![]),
        ("(x IN (1, NULL)) IS NULL", vec![None, Some(0), Some(2)]),
        ("NOT (x IN (7, NULL) AND x > 0)", vec![Some(0)]),
    ] {
        assert_eq!(
            values(&world, &format!("SELECT x FROM t WHERE {condition}")),
            expected,
            "{condition}"
        );
    }
}

#[test]
fn membership_of_a_query_is_exact() {
    let world = with_tables(&[
        ("t", &[("x", &[Some(1), Some(2), None])]),
        ("u", &[("x", &[Some(1), None])]),
    ]);
    let inner = "(SELECT x FROM u)";
    for (condition, expected) in [
        (format!("x IN {inner}"), vec![Some(1)]),
        (format!("x NOT IN {inner}"), vec![]),
        (format!("NOT (x IN {inner})"), vec![]),
        (format!("x IN {inner} OR x > 1"), vec![Some(1), Some(2)]),
        (format!("x NOT IN {inner} AND x > 1"), vec![]),
        (format!("x NOT IN {inner} OR x > 100"), vec![]),
        (format!("(x NOT IN {inner}) IS NULL"), vec![None, Some(2)]),
        (format!("NOT (x IN {inner} AND x > 0)"), vec![]),
        (
            format!("CASE WHEN x NOT IN {inner} THEN true ELSE false END"),
            vec![],
        ),
        (
            format!("CASE WHEN x NOT IN {inner} THEN false ELSE true END"),
            vec![None, Some(1), Some(2)],
        ),
        (format!("1 NOT IN {inner}"), vec![]),
        (format!("3 NOT IN {inner}"), vec![]),
    ] {
        assert_eq!(
            values(&world, &format!("SELECT x FROM t WHERE {condition}")),
            expected,
            "{condition}"
        );
    }
}

#[test]
fn a_field_of_a_null_struct_is_null() {
    let world = World::new(&[1]);
    let inner = Fields::from(vec![Field::new("b", DataType::Int64, true)]);
    let b: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let nested = StructArray::new(
        inner.clone(),
        vec![b],
        Some(NullBuffer::from(vec![true, true, false])),
    );
    let fields = Fields::from(vec![
        Field::new("a", DataType::Int64, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("n", DataType::Struct(inner), true),
    ]);
    let children: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(1), Some(0), None])),
        Arc::new(StringArray::from(vec!["x", "", "z"])),
        Arc::new(nested),
    ];
    let parent = StructArray::new(
        fields,
        children,
        Some(NullBuffer::from(vec![true, false, true])),
    );
    let id: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let columns = [
        ("id", id, false),
        ("st", Arc::new(parent) as ArrayRef, true),
    ];
    register(
        &world,
        "s",
        &RecordBatch::try_from_iter_with_nullable(columns).unwrap(),
    );
    for (sql, expected) in [
        ("SELECT st.a FROM s", vec![None, None, Some(1)]),
        ("SELECT st['n']['b'] FROM s", vec![None, None, Some(1)]),
        ("SELECT id FROM s WHERE st.a = 0", vec![]),
        (
            "SELECT id FROM s WHERE st.a IS NULL",
            vec![Some(2), Some(3)],
        ),
        (
            "SELECT id FROM s WHERE st.n.b IS NULL",
            vec![Some(2), Some(3)],
        ),
        ("SELECT count(st.s) FROM s", vec![Some(2)]),
        (
            "SELECT count(*) FROM s GROUP BY st.s IS NULL",
            vec![Some(1), Some(2)],
        ),
    ] {
        assert_eq!(values(&world, sql), expected, "{sql}");
    }
}

#[test]
fn joins_of_three_tables_keep_their_kinds_of_equality() {
    let world = with_tables(&[
        ("t1", &[("x", &[None])]),
        ("u1", &[("x", &[None]), ("y", &[Some(1)])]),
        ("v1", &[("y", &[Some(1)])]),
    ]);
    for (sql, expected) in [
        (
            "SELECT count(*) FROM t1 JOIN u1 ON t1.x = u1.x JOIN v1 ON u1.y IS NOT DISTINCT FROM v1.y",
            0,
        ),
        (
            "SELECT count(*) FROM t1 JOIN u1 ON (t1.x IS NOT DISTINCT FROM u1.x) JOIN v1 ON u1.y = v1.y",
            1,
        ),
        (
            "SELECT count(*) FROM t1, u1, v1 WHERE t1.x IS NOT DISTINCT FROM u1.x",
            1,
        ),
    ] {
        assert_eq!(values(&world, sql), [Some(expected)], "{sql}");
    }
}

#[test]
fn what_would_be_ignored_or_misread_is_refused() {
    let world = World::new(&[3]);
    for (sql, text) in [
        (
            "SELECT * FROM t TABLESAMPLE (1 PERCENT) REPEATABLE (42)",
            "a sample is another one each time, REPEATABLE is not supported",
        ),
        (
            "SELECT * FROM t FOR UPDATE",
            "FOR UPDATE and FOR SHARE lock rows, and grids never change",
        ),
    ] {
        let error = world.error(sql);
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Unsupported, text),
            "{sql}"
        );
        assert!(error.hint().is_some(), "{sql}");
    }
    for right in [
        "SELECT id FROM t WHERE (id IS NOT DISTINCT FROM 1) AND name = 'row 1'",
        "SELECT id FROM t WHERE id IS NOT DISTINCT FROM 1 AND name = 'row 1'",
        "SELECT id FROM t WHERE name = 'row 1' AND NOT id IS DISTINCT FROM 1 OR id = 9",
    ] {
        assert_eq!(world.numbers(right), [1], "{right}");
    }
    assert_eq!(
        world.numbers("SELECT count(*) FROM (SELECT id FROM t UNION ALL SELECT id FROM t)"),
        [6]
    );
}

#[test]
fn texts_that_would_be_planned_for_ever_are_refused() {
    let world = World::new(&[3]);
    let casts = format!("SELECT {}1{}", "cast(".repeat(60), " AS INT)".repeat(60));
    let arrays = format!("SELECT {}1{}", "array[".repeat(60), "]".repeat(60));
    let cases = |depth| {
        let (begin, end) = ("CASE WHEN true THEN ".repeat(depth), " END".repeat(depth));
        format!("SELECT {begin}1{end}")
    };
    let exists = format!(
        "SELECT 1 WHERE {}true{}",
        "EXISTS (SELECT 1 WHERE ".repeat(20),
        ")".repeat(20)
    );
    let doubling = (1..30).map(|k| format!(", c{k} AS (SELECT a.x FROM c{0} a, c{0} b)", k - 1));
    let doubling: String = doubling.collect();
    let doubling = format!("WITH c0 AS (SELECT 1 AS x){doubling} SELECT count(*) FROM c29");
    for (sql, text) in [
        (
            casts,
            "parentheses, brackets and CASE may be nested 40 deep, these are deeper",
        ),
        (
            arrays,
            "parentheses, brackets and CASE may be nested 40 deep, these are deeper",
        ),
        (
            cases(41),
            "parentheses, brackets and CASE may be nested 40 deep, these are deeper",
        ),
        (exists, "queries may be nested 16 deep, these are deeper"),
        (doubling, "the names of WITH may stand for 1000 queries"),
    ] {
        let error = world.error(&sql);
        assert_eq!(error.kind(), ErrorKind::ResourcesExhausted, "{text}");
        assert!(error.message().starts_with(text), "{error}");
    }
    let deep = format!("SELECT {}1{}", "(".repeat(39), ")".repeat(39));
    assert_eq!(world.numbers(&deep), [1]);
    assert_eq!(world.numbers(&cases(39)), [1]);
    // Side by side they are not nested.
    let many = format!("SELECT {}1", "CASE WHEN true THEN 0 END + ".repeat(100));
    assert_eq!(world.numbers(&many), [1]);
    let recursive = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT max(n) FROM r";
    assert_eq!(world.numbers(recursive), [5]);
}
