"""DESCRIBE of queries and SUMMARIZE: over every type, names of all kinds, few and many rows, one table and views."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

import partgrid as pg
from partgrid.errors import QueryError

TYPES = {
    "whole": pa.array([1, 2, None, 5], pa.int16()),
    "unsigned": pa.array([1, 2, None, 2**64 - 1], pa.uint64()),
    "float": pa.array([1.5, -2.5, None, float("nan")], pa.float32()),
    "half": pa.array([1.5, 2.5, None, 0.5], pa.float16()),
    "decimal": pa.array([Decimal("1.50"), Decimal("-2.50"), None, Decimal(0)], pa.decimal128(9, 2)),
    "text": pa.array(["b", "a", None, ""], pa.string()),
    "view": pa.array(["b", "a", None, ""], pa.string_view()),
    "entry": pa.array(["b", "a", None, "b"]).dictionary_encode(),
    "bytes": pa.array([b"\xff", b"a", None, b""], pa.binary()),
    "truth": pa.array([True, False, None, True]),
    "day": pa.array([dt.date(2013, 7, 1), dt.date(1, 1, 1), None, dt.date(2013, 7, 1)]),
    "at": pa.array([0, 1, None, 2], pa.timestamp("us", "Europe/Rome")),
    "clock": pa.array([0, 1, None, 2], pa.time32("s")),
    "length": pa.array([0, 1, None, 2], pa.duration("ms")),
    "list": pa.array([[1], [], None, [None]], pa.list_(pa.int64())),
    "struct": pa.array([{"a": 1}, {"a": None}, None, {"a": 2}]),
    "map": pa.array([[("k", 1)], [], None, [("k", 1)]], pa.map_(pa.string(), pa.int64())),
    "nothing": pa.nulls(4),
}


@pytest.fixture(name="session")
def _session() -> pg.Session:
    session = pg.Session()
    session.register("t", pg.from_arrow(pa.table(TYPES)))
    return session


def rows(result: pg.Result) -> dict[str, dict[str, object]]:
    """The rows by the name of the column that they are about."""
    return {row["column_name"]: row for row in result.to_arrow().to_pylist()}


def test_all_types_are_summed_up(session: pg.Session) -> None:
    told = rows(session.sql("SUMMARIZE t"))
    assert list(told) == list(TYPES)
    assert all(row["count"] == 4 for row in told.values())
    shares = {name: row["null_percentage"] for name, row in told.items()}
    assert shares == {name: 100.0 if name == "nothing" else 25.0 for name in TYPES}
    extremes = {name: (row["min"], row["max"]) for name, row in told.items()}
    assert extremes["whole"] == ("1", "5")
    assert extremes["unsigned"] == ("1", str(2**64 - 1))
    assert extremes["float"] == ("-2.5", "NaN")
    assert extremes["decimal"] == ("-2.50", "1.50")
    assert extremes["text"] == extremes["view"] == ("", "b")
    assert extremes["entry"] == ("a", "b")
    assert extremes["day"] == ("0001-01-01", "2013-07-01")
    assert extremes["truth"] == ("false", "true")
    for name in ("bytes", "list", "struct", "map", "nothing"):
        assert extremes[name] == (None, None)
    different = {name: row["approx_unique"] for name, row in told.items()}
    assert different["whole"] == 3
    assert different["entry"] == 2
    assert different["day"] == 2
    assert different["list"] == 3
    assert (told["whole"]["avg"], told["whole"]["q50"]) == (pytest.approx(8 / 3), 2.0)
    assert told["decimal"]["avg"] == pytest.approx(-1 / 3)
    assert told["text"]["avg"] is None
    assert told["at"]["data_type"].startswith("Timestamp")


def test_types_are_those_of_the_answer(session: pg.Session) -> None:
    for query in (
        "SELECT * FROM t",
        "SELECT whole + 1 AS a, float * decimal AS b, coalesce(entry, 'x') AS c FROM t",
        "SELECT day AS d, day AS d FROM t",
        "SELECT max(list) FROM t GROUP BY truth",
        "(SELECT whole FROM t UNION ALL SELECT 1.5)",
        "WITH x AS (SELECT at FROM t) FROM x",
    ):
        told = session.sql(f"DESCRIBE {query}").to_arrow()
        schema = session.sql(query).to_arrow().schema
        assert told["column_name"].to_pylist() == schema.names, query
        if len(set(schema.names)) == len(schema.names):
            session.sql(f"CREATE OR REPLACE TABLE r AS {query}")
            kept = session.sql("DESCRIBE r").to_arrow()
            assert told["data_type"].to_pylist() == kept["data_type"].to_pylist(), query


@pytest.mark.parametrize("name", ["a b", 'q"uote', "it's", "SELECT", "ö", "A", "__0"])
def test_names_of_all_kinds(name: str) -> None:
    session = pg.Session()
    session.register("t", pg.from_arrow(pa.table({name: [1, 2], "other": [3, 4]})))
    told = rows(session.sql("SUMMARIZE t"))
    assert list(told) == [name, "other"]
    assert (told[name]["min"], told["other"]["max"]) == ("1", "4")


def test_columns_of_one_name_and_no_rows(session: pg.Session) -> None:
    told = session.sql("SUMMARIZE SELECT 1 AS a, 2 AS a").to_arrow()
    assert told["column_name"].to_pylist() == ["a", "a"]
    assert told["min"].to_pylist() == ["1", "2"]
    empty = rows(session.sql("SUMMARIZE SELECT * FROM t WHERE whole > 99"))
    assert all(row["count"] == 0 and row["null_percentage"] is None for row in empty.values())


def test_many_columns_stay_in_order() -> None:
    session = pg.Session()
    columns = {f"c{place}": [place, None, place + 1] for place in range(70)}
    session.register("t", pg.from_arrow(pa.table(columns)))
    for text in ("SUMMARIZE t", "SUMMARIZE SELECT * FROM t WHERE c0 >= 0 OR c0 IS NULL"):
        told = session.sql(text).to_arrow()
        assert told["column_name"].to_pylist() == list(columns)
        assert told["max"].to_pylist() == [str(place + 1) for place in range(70)]
    assert "__place" not in told.column_names


def test_values_of_parameters_and_prepared_statements(session: pg.Session) -> None:
    told = rows(session.sql("SUMMARIZE SELECT whole + $1 AS a FROM t", [10]))
    assert told["a"]["min"] == "11"
    prepared = session.prepare("SUMMARIZE SELECT whole FROM t WHERE whole < $1")
    assert rows(prepared.sql([3]))["whole"]["count"] == 2
    assert rows(prepared.sql([9]))["whole"]["count"] == 3


def test_only_queries_are_described(session: pg.Session) -> None:
    for text in ("SUMMARIZE CREATE VIEW v AS SELECT 1", "DESCRIBE CREATE VIEW v AS SELECT 1"):
        with pytest.raises(QueryError):
            session.sql(text)
    with pytest.raises(QueryError, match="no table `none`"):
        session.sql("SUMMARIZE none")
    assert rows(session.sql("SUMMARIZE SELECT FROM t")) == {}
