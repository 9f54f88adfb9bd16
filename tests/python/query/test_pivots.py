"""PIVOT and UNPIVOT whose columns the rows say, beside DuckDB; with parameters, prepared, in a server, over rows that change."""

from __future__ import annotations

import datetime as dt
import random
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import duckdb
import pyarrow as pa
import pytest

import partgrid as pg
from members import cluster
from services import write_tokens

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
    columns = [[_plain(value) for value in table.column(name).to_pylist()] for name in names]
    return names, sorted(zip(*columns, strict=True), key=repr)


def _plain(value: Any) -> Any:
    """Numbers of different types are one, and floats as far as sums of other orders are alike."""
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return float(value)
    return float(f"{value:.9g}") if isinstance(value, float) else value


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
    aggregates = [
        "max(x)",
        "count(*) AS n",
        "count(s)",
        "min(s)",
        "max(x) + 1 AS more",
        "avg(i)",
        "bool_or(b)",
    ]
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


AGGREGATES = [
    "count(*)",
    "count(s)",
    "count(DISTINCT s)",
    "first(i ORDER BY x)",
    "last(i ORDER BY x)",
    "list(x ORDER BY x)",
    "string_agg(s, '-' ORDER BY x)",
    "sum(x) + 1",
    "coalesce(sum(i), 0) * 2",
    "avg(i)",
    "sum(p)",
    "median(x)",
    "arg_max(s, x)",
    "max_by(d, x)",
    "any_value(g)",
    "quantile_cont(x, 0.25)",
    "stddev(x)",
    "bool_and(b)",
    "max(t) FILTER (WHERE b)",
    "mad(x)",
    "entropy(i)",
]


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_aggregates_of_few_values_and_of_many(
    session: pg.Session, peer: duckdb.DuckDBPyConnection, aggregate: str
) -> None:
    few = "(SELECT *, x % 4 AS k FROM t WHERE x % 16 <> g)"
    many = "(SELECT *, x % 61 AS k, x % 5 AS l FROM t WHERE x % 122 <> g)"
    for source, on in ((few, "k"), (many, "k"), (many, "l, k"), (many, "k IN (1, 2, 70)")):
        text = f"PIVOT {source} ON {on} USING {aggregate} GROUP BY g"
        _alike(session, peer, text)
    both = f"PIVOT {many} ON k USING {aggregate} AS first, max(x) AS second GROUP BY g, b"
    _alike(session, peer, both)


def test_many_values_in_groups_of_all_other_columns(
    session: pg.Session, peer: duckdb.DuckDBPyConnection
) -> None:
    texts = "CAST(x % 41 AS VARCHAR) AS k"
    for columns in (f"{texts}, x", f"{texts}, x, g, d", f"{texts}, x, g AS value, c AS place"):
        sources = [f"(SELECT {columns} FROM t)", f"(SELECT {columns} FROM t WHERE x < 0)"]
        # Nothing would be left of the first without rows.
        for source in sources if "g" in columns else sources[:1]:
            _alike(session, peer, f"PIVOT {source} ON k USING max(x)")
            _alike(session, peer, f"PIVOT {source} ON k USING count(*) AS n, min(x)")
    listed = ", ".join(f"'{number}'" for number in range(35, 60))
    text = (
        f"FROM (SELECT {texts}, x, g FROM t) PIVOT (sum(x) AS s, count(*) AS n FOR k IN ({listed}))"
    )
    _alike(session, peer, text)


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


def test_question_marks_are_numbered_as_they_are_written() -> None:
    table = pa.table({"k": ["a", "b", "a"], "l": [1, 2, 3], "x": [10, 20, 30]})
    text = "PIVOT (FROM t WHERE l > ?) ON k USING sum(x * ?) GROUP BY l"
    found = pg.sql(text, params=[2, 100], t=table).to_arrow()
    assert found.to_pylist() == [{"l": 3, "a": 3000}]
    text = "UNPIVOT (FROM t WHERE l < ?) ON x + ? AS more INTO NAME n VALUE v"
    found = pg.sql(text, params=[2, 5], t=table).to_arrow()
    assert found.to_pylist() == [{"k": "a", "l": 1, "n": "more", "v": 15}]


def test_parameters_may_be_of_the_question_alone() -> None:
    table = pa.table({"k": ["a", "b"], "x": [10, 20]})
    text = "PIVOT t ON k IN (SELECT $1) USING sum(x + $2)"
    found = pg.sql(text, params=["b", 1], t=table).to_arrow()
    assert found.to_pylist() == [{"b": 21}]
    with pytest.raises(pg.errors.QueryError, match=r"values came for \$1, \$2, \$3"):
        pg.sql(text, params=["b", 1, 2], t=table)
    session = pg.Session()
    session.register("t", table)
    with pytest.raises(pg.errors.QueryError, match=r"(?s)depend on .* \$1.*name the values"):
        session.prepare("PIVOT (FROM t WHERE x > $1) ON k USING sum(x)")
    for text in (
        "PIVOT t ON k USING sum(x + $1)",
        "FROM t PIVOT (sum(x + $1) FOR k IN ('a', 'b'))",
    ):
        session.sql(f"PREPARE kept AS {text}").to_arrow()
        assert session.sql("EXECUTE kept(1)").to_arrow().to_pylist() == [{"a": 11, "b": 21}]
        session.sql("DEALLOCATE kept").to_arrow()
    prepared = session.prepare("PIVOT t ON k USING sum(x + $1)")
    assert prepared.sql([1]).to_arrow().to_pylist() == [{"a": 11, "b": 21}]


def test_rows_that_change_meanwhile_are_those_of_one_moment() -> None:
    session = pg.Session(threads=2)
    tables = [pa.table({"k": [f"{letter}{n}" for n in range(5)], "x": [1] * 5}) for letter in "ab"]
    session.register("t", tables[0])
    is_over = threading.Event()

    def replacing() -> None:
        while not is_over.is_set():
            for table in tables:
                session.register("t", table)

    other = threading.Thread(target=replacing)
    other.start()
    try:
        for _ in range(60):
            [row] = session.sql("PIVOT t ON k USING sum(x)").to_arrow().to_pylist()
            assert set(row.values()) == {1}, row
    finally:
        is_over.set()
        other.join()


def test_a_question_is_within_the_time_and_the_memory_of_the_statement() -> None:
    session = pg.Session(threads=2)
    slow = "(SELECT a.i % 3 AS k FROM range(100000) a(i), range(100000) b(i) WHERE (a.i * b.i) % 7 = 9)"
    with pytest.raises(pg.errors.ResourcesExhaustedError, match="timeout of 0.5 seconds"):
        session.sql(f"PIVOT {slow} ON k", timeout=0.5)
    long = pa.table({"k": [str(n) * 5_000 for n in range(20)]})
    with pytest.raises(pg.errors.ResourcesExhaustedError, match=r"(?s)65536 bytes.*ON k IN"):
        pg.sql("PIVOT t ON k", t=long)
    many = ", ".join(f"sum(x + {number}) AS s{number}" for number in range(2_000))
    with pytest.raises(pg.errors.ResourcesExhaustedError, match="may make 2000 columns"):
        pg.sql(f"PIVOT t ON k USING {many}", t=pa.table({"k": [1, 2], "x": [1, 2]}))
    wide = " + ".join(["x"] * 400)
    with pytest.raises(pg.errors.ResourcesExhaustedError, match=r"50000 parts"):
        pg.sql(f"PIVOT t ON k USING sum({wide})", t=pa.table({"k": range(100), "x": range(100)}))


def test_columns_that_are_called_alike_are_numbered() -> None:
    table = pa.table({"g": ["a", "b"], "k": ["g", "g_1"], "x": [1, 2]})
    text = "PIVOT t ON k USING sum(x) GROUP BY g ORDER BY g"
    found = pg.sql(f"SELECT * FROM ({text})", t=table).to_arrow()
    assert found.column_names == ["g", "g_1", "g_1_1"]
    assert found.to_pylist()[0] == {"g": "a", "g_1": 1, "g_1_1": None}


def test_floats_are_equal_whatever_their_sign_of_zero() -> None:
    table = pa.table({"f": [0.0, -0.0, float("nan"), 1.5], "x": [1, 2, 3, 4]})
    [row] = pg.sql("PIVOT t ON f USING sum(x)", t=table).to_arrow().to_pylist()
    assert sorted(row.values()) == [3, 3, 4]


def test_an_order_of_the_values_is_kept() -> None:
    table = pa.table({"k": [3, 1, 2], "x": [1, 2, 3]})
    for text in (
        "FROM t PIVOT (sum(x) FOR k IN (SELECT k FROM t ORDER BY x DESC))",
        "PIVOT t ON k IN (SELECT DISTINCT k FROM t ORDER BY k DESC LIMIT 3) USING sum(x)",
    ):
        names = pg.sql(text, t=table).to_arrow().column_names
        assert names == (["2", "1", "3"] if "FOR" in text else ["3", "2", "1"])


def test_columns_become_rows(session: pg.Session, peer: duckdb.DuckDBPyConnection) -> None:
    for text in (
        "UNPIVOT t ON s, c INTO NAME n VALUE v",
        "UNPIVOT (SELECT x, i, g FROM t) ON COLUMNS(* EXCLUDE (x)) INTO NAME n VALUE v",
        "UNPIVOT (SELECT x, i, g FROM t) ON *",
        "UNPIVOT (SELECT x, i, g, p, f FROM t) ON (i, f), (g, f) INTO NAME n VALUE v, w",
        "SELECT n, sum(v) AS v FROM (UNPIVOT (SELECT x, g FROM t) ON x, g INTO NAME n VALUE v) GROUP BY n",
        "PIVOT (UNPIVOT (SELECT b, x, g FROM t) ON x, g INTO NAME n VALUE v) ON n USING sum(v)",
    ):
        _alike(session, peer, text)


def test_members_of_a_cluster_ask_all_rows(tmp_path: Path) -> None:
    with cluster(tmp_path, of=2) as members:
        connection = pg.connect(members[0].uri)
        text = "PIVOT sales ON who USING count(*) AS n, max(x) AS m GROUP BY g"
        rows = connection.sql(text).to_arrow().to_pylist()
        assert len(rows) == 7
        assert sum(row["0_n"] + row["1_n"] for row in rows) == 2_000
        many = connection.sql("PIVOT sales ON g USING sum(x) GROUP BY who").to_arrow()
        assert many.column_names == ["who", *map(str, range(7))]
        assert sorted(many["who"].to_pylist()) == [0, 1]


def test_who_may_read_alone_asks_nothing_else(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens", reader={})
    with pg.Server(http=None, tokens=tmp_path / "tokens") as server:
        server.register("t", pa.table({"k": ["a", "b"], "x": [1, 2]}))
        connection = pg.connect(server.uri, token=tokens["reader"])
        assert connection.sql("PIVOT t ON k USING sum(x)").to_arrow().num_columns == 2
        with pytest.raises(pg.errors.PermissionDeniedError, match="right to write"):
            connection.sql("CREATE TABLE kept AS PIVOT t ON k USING sum(x)")


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
        ("PIVOT t ON k IN (SELECT 1, 2) USING sum(x)", "2 columns"),
        ("PIVOT t ON k IN (SELECT nosuch FROM t) USING sum(x)", "nosuch.*line 1, column 25"),
        ("PIVOT t ON kk IN (SELECT k FROM t) USING sum(x)", "kk.*line 1, column 12"),
        ("PIVOT t ON k IN () USING sum(x)", "values, each of one column"),
        ("PIVOT t ON k USING", r"say by what: PIVOT t ON k USING sum\(x\)"),
        ("UNPIVOT t ON x INTO VALUE v NAME n", "INTO NAME n VALUE v"),
        ("SELECT __pivot_on(k), sum(x) FROM t", "no function `__pivot_on`"),
        ("PIVOT t USING sum(x)", r"PIVOT t ON k USING sum\(x\)"),
        ("SELECT * FROM t PIVOT (sum(x) FOR k IN (ANY ORDER BY x))", "order of what is turned by"),
    ):
        with pytest.raises(pg.PartgridError, match=f"(?s){said}"):
            pg.sql(text, t=table)
