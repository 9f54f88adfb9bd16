"""PIVOT and UNPIVOT whose columns the rows say, beside DuckDB; with parameters, prepared, in a server, over rows that change."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import duckdb
import pyarrow as pa
import pytest

import partgrid as pg

ROWS = 5_000


def _table() -> pa.Table:
    rng = random.Random(8)

    def some(values: list[Any]) -> list[Any]:
        return [None if rng.random() < 0.05 else rng.choice(values) for _ in range(ROWS)]

    return pa.table(
        {
            "i": pa.array(some([-3, 0, 7, 12]), pa.int16()),
            "u": pa.array(some([0, 2**64 - 1]), pa.uint64()),
            "s": some(["a", "b c", "", "it's", 'a "name"']),
            "c": pa.array(some(["x", "y"])).dictionary_encode(),
            "b": some([True, False]),
            "f": some([0.5, -1.25, 3.0]),
            "p": pa.array(some([Decimal("1.50"), Decimal("-2.25")]), pa.decimal128(9, 2)),
            "d": some([dt.date(2020, 1, 1), dt.date(1969, 12, 31)]),
            "t": pa.array(
                some([dt.datetime(2020, 1, 1, 12), dt.datetime(2021, 2, 3)]), pa.timestamp("us")
            ),
            "g": some([1, 2, 3]),
            "x": pa.array(range(ROWS), pa.int64()),
        }
    )


TABLE = _table()


@pytest.fixture(scope="module")
def peer() -> duckdb.DuckDBPyConnection:
    peer = duckdb.connect()
    peer.register("t", TABLE)
    return peer


@pytest.fixture(params=[1, 3], scope="module")
def session(request: pytest.FixtureRequest) -> pg.Session:
    session = pg.Session(threads=request.param)
    cut = pa.Table.from_batches(TABLE.to_batches(max_chunksize=700), TABLE.schema)
    session.register("t", pg.from_arrow(cut))
    return session


def _rows(table: pa.Table) -> tuple[list[str], list[tuple[Any, ...]]]:
    """With columns in the order of their names, and rows in any."""
    names = sorted(table.column_names)
    columns = [table.column(name).to_pylist() for name in names]
    return names, sorted(zip(*columns, strict=True), key=repr)


def _alike(session: pg.Session, peer: duckdb.DuckDBPyConnection, text: str) -> None:
    found, expected = session.sql(text).to_arrow(), peer.sql(text).to_arrow_table()
    assert _rows(found) == _rows(expected), text


@pytest.mark.parametrize("column", ["i", "u", "s", "c", "b", "f", "p", "d", "t"])
def test_values_of_every_type_become_columns(
    session: pg.Session, peer: duckdb.DuckDBPyConnection, column: str
) -> None:
    for rest in ("USING count(*)", "USING max(x), min(x) AS least", ""):
        _alike(session, peer, f"PIVOT t ON {column} {rest} GROUP BY g")


def test_random_pivots_have_the_answers_of_duckdb(
    session: pg.Session, peer: duckdb.DuckDBPyConnection
) -> None:
    rng = random.Random(5)
    aggregates = ["max(x)", "count(*)", "count(s)", "min(s)", "max(x) + 1", "avg(i)", "bool_or(b)"]
    for _ in range(60):
        columns = rng.sample(["i", "s", "c", "b", "d"], rng.randint(1, 2))
        on = ", ".join(
            rng.choice([column, column, f"{column} IN (SELECT max({column}) FROM t)"])
            for column in columns
        )
        used = rng.sample(aggregates, rng.randint(1, 2))
        source = rng.choice(["t", "(FROM t WHERE x % 3 = 1)", "(SELECT * FROM t WHERE i > 0)"])
        text = f"PIVOT {source} ON {on} USING {', '.join(used)} GROUP BY g"
        _alike(session, peer, rng.choice([text, f"FROM ({text})", f"WITH p AS ({text}) FROM p"]))


def test_columns_are_in_the_order_of_the_values() -> None:
    table = pa.table({"k": [10, 2, 1, None], "x": [1, 2, 3, 4]})
    text = "PIVOT t ON k USING sum(x)"
    assert pg.sql(text, t=table).to_arrow().to_pylist() == [{"1": 3, "2": 2, "10": 1}]
    text = "SELECT * FROM t PIVOT (sum(x) FOR k IN (ANY ORDER BY k DESC))"
    assert pg.sql(text, t=table).to_arrow().to_pylist() == [{"10": 1, "2": 2, "1": 3}]
    text = "SELECT * FROM t PIVOT (sum(x) FOR k IN (SELECT k FROM t WHERE k > 1 ORDER BY k))"
    assert pg.sql(text, t=table).to_arrow().to_pylist() == [{"2": 2, "10": 1}]


def test_they_are_those_of_the_rows_of_the_moment() -> None:
    session = pg.Session()
    session.register("t", pa.table({"k": ["a"], "x": [1]}))
    assert session.sql("PIVOT t ON k USING sum(x)").to_arrow().column_names == ["a"]
    prepared = session.prepare("PIVOT t ON k USING sum(x)")
    session.register("t", pa.table({"k": ["b", "c"], "x": [1, 2]}))
    assert session.sql("PIVOT t ON k USING sum(x)").to_arrow().column_names == ["b", "c"]
    # A prepared statement has said which columns it has.
    assert prepared.sql().to_arrow().to_pylist() == [{"a": None}]


def test_parameters_choose_rows_values_and_columns() -> None:
    table = pa.table({"k": ["a", "b", "a"], "l": [1, 2, 3], "x": [10, 20, 30]})
    text = "PIVOT (FROM t WHERE l > $1) ON k USING sum(x * $2)"
    found = pg.sql("SELECT * FROM (" + text + ")", params=[1, 2], t=table).to_arrow()
    assert found.column_names == ["l", "a", "b"]
    assert sorted(found.to_pylist(), key=repr) == [
        {"l": 2, "a": None, "b": 40},
        {"l": 3, "a": 60, "b": None},
    ]
    named = "PIVOT (FROM t WHERE l > $least) ON k USING sum(x) GROUP BY k"
    assert pg.sql(named, params={"least": 2}, t=table).to_arrow().column_names == ["k", "a"]


def test_a_table_keeps_the_columns_and_a_view_has_none_to_keep() -> None:
    session = pg.Session()
    session.register("t", pa.table({"k": ["a", "b"], "x": [1, 2]}))
    session.sql("CREATE TABLE kept AS PIVOT t ON k USING sum(x)").to_arrow()
    session.sql("CREATE VIEW known AS PIVOT t ON k IN ('b') USING sum(x)").to_arrow()
    assert session.sql("FROM kept").to_arrow().to_pylist() == [{"a": 1, "b": 2}]
    assert session.sql("FROM known").to_arrow().to_pylist() == [{"b": 2}]
    with pytest.raises(pg.errors.QueryError, match="name the values"):
        session.sql("CREATE VIEW unknown AS PIVOT t ON k USING sum(x)")
    described = session.sql("DESCRIBE PIVOT t ON k USING sum(x)").to_arrow()
    assert described.column(0).to_pylist() == ["a", "b"]
    assert session.sql("SUMMARIZE PIVOT t ON k USING sum(x)").to_arrow().num_rows == 2
    plans = session.sql("EXPLAIN PIVOT t ON k USING sum(x)").to_arrow()["plan"].to_pylist()
    assert "GridScan" in plans[-1]


def test_clients_of_a_server_ask_for_them_too() -> None:
    with pg.Server(http=None) as server:
        server.register("t", pa.table({"k": ["a", "b"], "x": [1, 2]}))
        with adbc.connect(server.uri, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("PIVOT t ON k USING sum(x)")
            assert cursor.fetch_arrow_table().to_pylist() == [{"a": 1, "b": 2}]
            cursor.adbc_prepare("PIVOT t ON k USING max(x)")
            cursor.execute("PIVOT t ON k USING max(x)")
            assert cursor.fetch_arrow_table().to_pylist() == [{"a": 1, "b": 2}]


def test_names_of_columns_and_tables_may_be_pivot() -> None:
    pivot = pa.table({"pivot": [1, 2], "unpivot": [3, 4]})
    text = (
        "SELECT p.pivot AS pivot FROM pivot AS p JOIN pivot AS unpivot ON p.pivot = unpivot.pivot"
    )
    assert pg.sql(text, pivot=pivot).to_arrow().to_pylist() == [{"pivot": 1}, {"pivot": 2}]
    text = "PIVOT pivot ON pivot USING sum(unpivot)"
    assert pg.sql(text, pivot=pivot).to_arrow().to_pylist() == [{"1": 3, "2": 4}]


def test_what_is_wrong_is_shown_where_it_stands() -> None:
    table = pa.table({"k": ["a"], "x": [1]})
    for text, said in (
        ("SELECT *\nFROM (PIVOT t ON kk USING sum(x))", "no column `kk`.*line 2, column 18"),
        ("PIVOT t ON k USING summ(x)", "no function `summ`"),
        ("PIVOT t ON k IN (SELECT 1, 2) USING sum(x)", "column"),
        ("PIVOT t USING sum(x)", r"PIVOT t ON k USING sum\(x\)"),
        ("SELECT * FROM t PIVOT (sum(x) FOR k IN (ANY ORDER BY x))", "order of what is turned by"),
    ):
        with pytest.raises(pg.PartgridError, match=f"(?s){said}"):
            pg.sql(text, t=table)
