"""Lambdas in SQL, decimals beside floats, and timestamps of coarse units: what DuckDB cannot do, or only Python can ask.

Comes in: frames of pyarrow. Goes out: answers. Never here: what DuckDB has, too (`sql/lambdas.slt`, `numbers.slt`, `time.slt`).
"""

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest

import partgrid as pg


def rows(text: str, *arguments: Any, **grids: pa.Table) -> list[dict[str, Any]]:
    session = pg.Session()
    for name, table in grids.items():
        session.register(name, pg.from_arrow(table))
    return session.sql(text, *arguments).to_arrow().to_pylist()


LISTS = pa.table({"k": [1, 2, 3], "l": [[1, 2], [3, None], None]})


def test_queries_within_lambdas_are_worked_out_before() -> None:
    text = "SELECT k, list_transform(l, x -> x + (SELECT max(k) FROM t)) AS m FROM t ORDER BY k"
    assert rows(text, t=LISTS) == [
        {"k": 1, "m": [4, 5]},
        {"k": 2, "m": [6, None]},
        {"k": 3, "m": None},
    ]
    text = (
        "SELECT k, list_transform(l, x -> x + (SELECT sum(b.k) FROM t AS b WHERE b.k < t.k)) AS m "
        "FROM t ORDER BY k"
    )
    assert rows(text, t=LISTS) == [
        {"k": 1, "m": [None, None]},
        {"k": 2, "m": [4, None]},
        {"k": 3, "m": None},
    ]


def test_parameters_within_lambdas() -> None:
    text = "SELECT list_filter(l, x -> x > $1) AS m FROM t WHERE k = $2"
    assert rows(text, [1, 1], t=LISTS) == [{"m": [2]}]
    assert rows(text, [5, 2], t=LISTS) == [{"m": []}]


def test_a_plan_says_what_a_lambda_does() -> None:
    plan = str(rows("EXPLAIN SELECT list_transform(l, x -> x + k) AS m FROM t", t=LISTS))
    assert "array_transform[(x) -> " in plan


def test_lambdas_over_many_tiles_and_slices() -> None:
    count = 10_000
    lists = pa.array([[i, i + 1] if i % 3 else None for i in range(count + 7)])
    table = pa.table({"i": pa.array(range(7, count + 7)), "l": lists.slice(7)})
    batches = [table.slice(at, 999) for at in range(0, count, 999)]
    grid = pg.from_arrow(pa.concat_tables(batches))
    session = pg.Session()
    session.register("t", grid)
    text = (
        "SELECT count(*) AS n FROM t WHERE l IS NOT NULL "
        "AND list_transform(l, x -> x - i) = [0, 1] AND len(list_filter(l, x -> x = i)) = 1"
    )
    told = session.sql(text).to_arrow().to_pylist()
    assert told == [{"n": sum(i % 3 != 0 for i in range(7, count + 7))}]


def test_what_lies_below_null_lists_is_not_asked() -> None:
    values = pa.array([0, 5, 0, 2], pa.int64())
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 4], pa.int32()), values, mask=pa.array([True, False, False])
    )
    table = pa.table({"l": lists.slice(0, 2)})
    assert rows("SELECT list_transform(l, x -> 10 / x) AS m FROM t", t=table) == [
        {"m": None},
        {"m": [2]},
    ]
    with pytest.raises(pg.errors.QueryError, match="zero"):
        rows("SELECT list_transform(l, x -> 10 / x) AS m FROM t", t=pa.table({"l": lists}))


def test_lambdas_without_parameters_in_them_and_without_rows() -> None:
    assert rows("SELECT list_transform(l, x -> 7) AS m FROM t WHERE k < 3 ORDER BY k", t=LISTS) == [
        {"m": [7, 7]},
        {"m": [7, 7]},
    ]
    assert rows("SELECT list_transform(l, x -> x + k) AS m FROM t WHERE k > 9", t=LISTS) == []


FAR = pa.table(
    {
        "t": pa.array([dt.datetime(9999, 12, 31), dt.datetime(1, 1, 1), None], pa.timestamp("ms")),
        "k": [1, 2, 3],
    }
)


def test_moments_far_away_are_compared_with_now() -> None:
    assert rows("SELECT k FROM t WHERE t > now()", t=FAR) == [{"k": 1}]
    assert rows("SELECT k FROM t WHERE t < now() - INTERVAL '1 hour'", t=FAR) == [{"k": 2}]
    moment = dt.datetime(2020, 1, 1, 0, 0, 15, 500)
    assert rows("SELECT k FROM t WHERE t <= $1", [moment], t=FAR) == [{"k": 2}]


def test_a_parameter_between_two_seconds() -> None:
    seconds = [dt.datetime(2020, 1, 1, 0, 0, second) for second in (15, 16)]
    table = pa.table({"t": pa.array(seconds, pa.timestamp("s"))})
    between = dt.datetime(2020, 1, 1, 0, 0, 15, 500_000)
    for operator, count in [("=", 0), ("<>", 2), ("<", 1), ("<=", 1), (">", 1), (">=", 1)]:
        text = f"SELECT count(*) AS n FROM t WHERE t {operator} $1"
        assert rows(text, [between], t=table) == [{"n": count}], operator


def test_decimals_beside_what_is_written_are_decimals() -> None:
    price = pa.array([decimal.Decimal("0.10"), None], pa.decimal128(10, 2))
    table = pa.table({"p": price, "f": [0.1, 1e300]})
    told = rows(
        "SELECT coalesce(p, 0.0) AS a, CASE WHEN p > 0.05 THEN p ELSE 0.125 END AS b FROM t",
        t=table,
    )
    assert told == [
        {"a": decimal.Decimal("0.10"), "b": decimal.Decimal("0.100")},
        {"a": decimal.Decimal("0.00"), "b": decimal.Decimal("0.125")},
    ]
    told = rows("SELECT coalesce(p, f) AS a, p = f AS b FROM t", t=table)
    assert told == [{"a": 0.1, "b": True}, {"a": 1e300, "b": None}]
    assert rows("SELECT count(*) AS n FROM t WHERE p = $1", [0.1], t=table) == [{"n": 1}]


def test_fields_as_columns_are_called_as_the_fields() -> None:
    table = pa.table({"s": [{"a": 1, "b": {"c": [2, 3]}}]})
    assert rows("SELECT t.s.a, s.b.c FROM t", t=table) == [{"a": 1, "c": [2, 3]}]
    assert rows("SELECT u.x FROM t, unnest(t.s.b.c) AS u(x) ORDER BY x", t=table) == [
        {"x": 2},
        {"x": 3},
    ]


def test_a_condition_of_an_aggregate_comes_before_its_lambda() -> None:
    table = pa.table({"l": [[0, 1], [3], [0]], "ok": [False, True, None]})
    text = "SELECT max(list_transform(l, y -> 10 / y)) FILTER (WHERE ok) AS m FROM t"
    assert rows(text, t=table) == [{"m": [3]}]


def test_a_parameter_gives_a_list_another_type() -> None:
    table = pa.table({"n": pa.array([1], pa.int32())})
    text = "SELECT list_transform([n, $1], y -> y + 1) AS m FROM t"
    assert rows(text, [1.5], t=table) == [{"m": [2.0, 2.5]}]
    assert rows(text, [2], t=table) == [{"m": [2, 3]}]


def test_long_decimals_beside_what_is_written() -> None:
    longest = decimal.Decimal("9" * 38)
    table = pa.table({"d": pa.array([longest, decimal.Decimal(0)], pa.decimal128(38, 0))})
    assert rows("SELECT d < 0.1 AS a FROM t", t=table) == [{"a": False}, {"a": True}]
    hundreds = pa.array([decimal.Decimal(100)], pa.decimal128(5, -2))
    assert rows("SELECT h = 0.1 AS a FROM t", t=pa.table({"h": hundreds})) == [{"a": False}]


def test_dictionaries_of_decimals_beside_floats() -> None:
    prices = pa.array([decimal.Decimal("2.50"), None], pa.decimal128(10, 2)).dictionary_encode()
    table = pa.table({"p": prices, "f": [2.5, float("nan")]})
    assert rows("SELECT p = f AS a, p > 1e300 AS b FROM t", t=table) == [
        {"a": True, "b": False},
        {"a": None, "b": None},
    ]


def test_calls_within_calls_are_planned_at_once() -> None:
    text = "[1, 2, 3]"
    for number in range(12):
        text = f"list_filter({text}, x -> x > {number % 2})"
    assert rows(f"SELECT {text} AS l") == [{"l": [2, 3]}]


def test_long_numbers_beside_decimals_that_have_no_room_for_them() -> None:
    kind = pa.decimal128(38, 10)
    values = [decimal.Decimal("12345678901234567890.5"), decimal.Decimal("1.5"), None]
    table = pa.table({"d": pa.array(values, kind)})
    text = (
        "SELECT d = 1.5000000000000000000001 AS a, d < 99999999999999999999 AS b, "
        "d BETWEEN 1.4999999999999999999999 AND 99999999999999999999.5 AS c FROM t"
    )
    assert [tuple(row.values()) for row in rows(text, t=table)] == [
        (False, True, True),
        (False, True, True),
        (None, None, None),
    ]
