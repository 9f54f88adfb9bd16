//! Answers whose columns share a name, and the places of errors of a run.

use std::sync::Arc;

use arrow::array::{AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type};
use partgrid::error::ErrorKind;
use partgrid::query::{Parameters, QueryOptions};

use super::{World, numbers};

#[test]
fn errors_of_a_run_show_the_place_where_only_one_can_be_meant() {
    let world = World::new(&[3]);
    let place = |sql: &str| world.run_error(sql).place().map(str::to_owned);
    let marked = |sql: &str, mark: &str| {
        let at = sql.find(mark).unwrap();
        let under = format!("{}{}", " ".repeat(at), "^".repeat(mark.len()));
        Some(format!("line 1, column {}:\n  {sql}\n  {under}", at + 1))
    };
    let sql = "SELECT 7 / id FROM t";
    assert_eq!(place(sql), marked(sql, "/"));
    let sql = "SELECT arrow_cast(id, 'Decimal128(38, 0)') * arrow_cast('90000000000000000000000000000000000000', 'Decimal128(38, 0)') FROM t";
    let at = place(sql).unwrap();
    assert!(at.starts_with("line 1, column 44:"), "{at}");
    let sql = "SELECT CAST(name AS BIGINT) FROM t";
    assert_eq!(place(sql), marked(sql, "CAST(name"));
    let sql = "SELECT t.name::BIGINT FROM t";
    assert_eq!(place(sql), marked(sql, "name::BIGINT"));
    for sql in [
        "SELECT 7 / id, 8 / id FROM t",
        "SELECT CAST(id AS BIGINT), name::BIGINT FROM t",
        "SELECT CAST(name || '' AS BIGINT) FROM t",
    ] {
        assert_eq!(place(sql), None, "{sql}");
    }
    world.status("CREATE VIEW v AS SELECT 7 / id AS x FROM t");
    assert_eq!(place("SELECT x, 1.5 / 3 AS y FROM v"), None);
}

#[test]
fn columns_of_an_answer_may_share_a_name() {
    let world = World::new(&[3]);
    let both = [
        ("SELECT id, id FROM t", ["id", "id"]),
        ("SELECT id AS a, id + 1 AS \"a\" FROM t", ["a", "a"]),
        (
            "SELECT t.id, o.id FROM t JOIN t o ON t.id = o.id",
            ["id", "id"],
        ),
        ("SELECT id + 1, id + 1 FROM t", ["id + 1", "id + 1"]),
        ("SELECT sum(id), sum(id) FROM t", ["sum(id)", "sum(id)"]),
        ("SELECT id, 7 AS id FROM t", ["id", "id"]),
        (
            "SELECT id * 2 AS id, upper(name) AS name FROM t ORDER BY t.id, lower(t.name)",
            ["id", "name"],
        ),
        (
            "SELECT t.id, count(*) AS id FROM t GROUP BY t.id ORDER BY t.id",
            ["id", "id"],
        ),
        (
            "SELECT id, (SELECT 7) AS id FROM t ORDER BY t.id DESC",
            ["id", "id"],
        ),
        (
            "SELECT id, id FROM t UNION ALL SELECT id, id FROM t",
            ["id", "id"],
        ),
        (
            "SELECT id, id FROM t ORDER BY id DESC LIMIT 2",
            ["id", "id"],
        ),
    ];
    for (sql, names) in both {
        let batch = world.batch(sql);
        let schema = batch.schema();
        let found: Vec<&str> = schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        assert_eq!(found, names, "{sql}");
    }
    let batch = world.batch("SELECT *, id, id AS name FROM t ORDER BY id DESC");
    let schema = batch.schema();
    let names: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
    assert_eq!(names, ["id", "name", "id", "name"]);
    assert_eq!(
        batch.column(2).as_primitive::<Int64Type>().values(),
        &[2, 1, 0]
    );
    let plan = world.batch("EXPLAIN SELECT id, id FROM t");
    assert!(plan.num_rows() > 0);
}

#[test]
fn expressions_that_differ_in_a_cast_only_are_told_apart() {
    let world = World::new(&[3]);
    let sql = "SELECT sum(CAST(id AS DOUBLE)), sum(CAST(id AS BIGINT)), id::INT, id::DOUBLE FROM t GROUP BY id::INT, id::DOUBLE ORDER BY 3";
    let batch = world.batch(sql);
    let schema = batch.schema();
    let kinds: Vec<&DataType> = schema
        .fields()
        .iter()
        .map(|field| field.data_type())
        .collect();
    use DataType::{Float64, Int32, Int64};
    assert_eq!(kinds, [&Float64, &Int64, &Int32, &Float64]);
    let names: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
    assert_eq!(
        names[..2],
        ["sum(CAST(id AS DOUBLE))", "sum(CAST(id AS BIGINT))"]
    );
    assert_eq!(
        batch.column(1).as_primitive::<Int64Type>().values(),
        &[0, 1, 2]
    );
    let sql =
        "SELECT sum(CAST(id AS DOUBLE)) OVER () AS a, sum(CAST(id AS BIGINT)) OVER () AS b FROM t";
    assert_eq!(world.batch(sql).num_rows(), 3);
    let prepared = world
        .runtime
        .block_on(world.session.prepare("SELECT id, id FROM t WHERE id > $1"));
    let one = Parameters::InOrder(vec![Arc::new(Int64Array::from(vec![1]))]);
    let prepared = prepared.unwrap();
    let options = QueryOptions::default();
    let query = prepared.query(one, &options);
    let query = world.runtime.block_on(query).unwrap();
    assert_eq!(query.schema().field(1).name(), "id");
    assert_eq!(numbers(&world.runtime, &query), [2]);
}

#[test]
fn names_that_would_mean_something_else_are_refused_as_before() {
    let world = World::new(&[3]);
    for sql in [
        "SELECT id AS a, name AS a FROM t ORDER BY a",
        "SELECT *, * FROM t",
        "SELECT a FROM (SELECT id AS a, name AS a FROM t)",
    ] {
        let error = world.error(sql);
        assert_eq!(error.kind(), ErrorKind::Query, "{sql}");
        assert!(error.hint().is_some(), "{sql}: {error}");
    }
    assert!(
        world
            .error("SELECT id, id, nope FROM t")
            .message()
            .contains("no column `nope`")
    );
    assert!(
        world
            .error("SELECT partgrid_cast(id, 'x') FROM t")
            .message()
            .contains("no function")
    );
}

#[test]
fn columns_of_intervals_and_bytes_are_called_as_they_are_written() {
    let world = World::new(&[3]);
    world.status("CREATE TABLE kept AS SELECT id, (INTERVAL '1 day'), x'ab' FROM t");
    let day = "DATE '2013-01-31' + INTERVAL '1 day'";
    let alone = format!("SELECT {day}");
    let grouped = format!("SELECT {day}, count(*) FROM t GROUP BY 1 ORDER BY {day}");
    for (sql, name) in [
        ("SELECT INTERVAL '1 day'", "INTERVAL '1 day'"),
        (
            "SELECT INTERVAL '1 day', INTERVAL '1 day'",
            "INTERVAL '1 day'",
        ),
        (
            "SELECT (SELECT INTERVAL '1 day')",
            "(SELECT INTERVAL '1 day')",
        ),
        (
            "SELECT \"INTERVAL '1 day'\", \"X'ab'\" FROM kept",
            "INTERVAL '1 day'",
        ),
        (alone.as_str(), day),
        (grouped.as_str(), day),
        (
            "SELECT * FROM unnest([INTERVAL '1 day'])",
            "unnest([INTERVAL '1 day'])",
        ),
    ] {
        let schema = world.batch(sql).schema();
        assert_eq!(schema.field(0).name(), name, "{sql}");
    }
}

#[test]
fn views_without_columns_have_rows_and_no_value() {
    let world = World::new(&[3]);
    world.status("CREATE VIEW nothing AS SELECT FROM t");
    assert_eq!(world.numbers("SELECT count(*) FROM nothing"), [3]);
    let sql = "SELECT id FROM t WHERE EXISTS (SELECT * FROM nothing) ORDER BY id";
    assert_eq!(world.numbers(sql), [0, 1, 2]);
    world.status("CREATE VIEW again AS SELECT * FROM nothing");
    for sql in [
        "SELECT (SELECT * FROM nothing)",
        "SELECT id FROM t WHERE id = (SELECT again.* FROM again LIMIT 1)",
        "CREATE VIEW wrong AS SELECT (SELECT * FROM again) AS x",
    ] {
        let error = world.error(sql);
        assert_eq!(error.kind(), ErrorKind::Query, "{sql}: {error}");
        assert!(error.message().ends_with("got none"), "{sql}: {error}");
    }
}

#[test]
fn columns_without_a_name_are_called_as_they_are_written() {
    let world = World::new(&[3]);
    let names = |sql: &str| -> Vec<String> {
        let schema = world.batch(sql).schema();
        let names = schema.fields().iter().map(|field| field.name().clone());
        names.collect()
    };
    let cases = [
        (
            "SELECT id+1, SUM(t.ID), 'x' FROM t GROUP BY id + 1",
            vec!["id + 1", "sum(t.id)", "'x'"],
        ),
        (
            "SELECT * FROM (SELECT id + 1, (SELECT max(id) FROM t) FROM t) AS q",
            vec!["id + 1", "(SELECT max(id) FROM t)"],
        ),
        (
            "SELECT id IN (SELECT 1), (SELECT min(id) AS least FROM t), (SELECT t.id FROM t LIMIT 1) FROM t",
            vec![
                "id IN (SELECT 1)",
                "(SELECT min(id) AS least FROM t)",
                "(SELECT t.id FROM t LIMIT 1)",
            ],
        ),
        (
            "SELECT row_number() OVER (ORDER BY id), count(*) FROM t GROUP BY id",
            vec!["row_number() OVER (ORDER BY id)", "count(*)"],
        ),
    ];
    for (sql, expected) in cases {
        assert_eq!(names(sql), expected, "{sql}");
    }
    world.status("CREATE TABLE made AS SELECT id * 2, name FROM t");
    assert_eq!(names("SELECT * FROM made"), ["id * 2", "name"]);
    world.status("CREATE VIEW seen AS SELECT id * 2, upper(name) FROM t");
    assert_eq!(names("SELECT * FROM seen"), ["id * 2", "upper(name)"]);
}
