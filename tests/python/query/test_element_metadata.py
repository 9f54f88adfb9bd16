"""Lists whose elements have metadata, as those of Iceberg tables have: single values, windows and unions of them."""

from __future__ import annotations

import pyarrow as pa
import pytest

import partgrid as pg

FIELD = pa.field("element", pa.int64(), metadata={"PARQUET:field_id": "3"})
ROWS = [[1, 2], [3], None, [0]]


@pytest.fixture(name="session", params=["list", "large", "fixed"])
def _session(request: pytest.FixtureRequest) -> pg.Session:
    kind = {"list": pa.list_(FIELD), "large": pa.large_list(FIELD), "fixed": pa.list_(FIELD, 2)}
    rows = [row and (row * 2)[:2] for row in ROWS] if request.param == "fixed" else ROWS
    table = pa.table({"k": [1, 1, 2, 2], "l": pa.array(rows, kind[request.param])})
    session = pg.Session()
    session.register("t", pg.from_arrow(table))
    # The same without metadata.
    bare = table.set_column(1, "l", table["l"].cast(without(kind[request.param])))
    session.register("b", pg.from_arrow(bare))
    return session


def without(kind: pa.DataType) -> pa.DataType:
    """The type without metadata."""
    element = pa.field("element", pa.int64())
    if pa.types.is_large_list(kind):
        return pa.large_list(element)
    return pa.list_(element, 2) if pa.types.is_fixed_size_list(kind) else pa.list_(element)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT max(l) AS x, min(l) AS y FROM t",
        "SELECT k, max(l) AS x FROM t GROUP BY k ORDER BY k",
        "SELECT max(l) FILTER (WHERE k = 1) AS x FROM t",
        "SELECT arg_max(l, k) AS x FROM t WHERE k = 1 AND l[1] = 3",
        "SELECT first_value(l ORDER BY k, l) AS x, any_value(l) IS NULL AS y FROM t",
        "SELECT k, lag(l) OVER (ORDER BY k, l) AS x, lead(l, 2) OVER (ORDER BY k, l) AS y FROM t ORDER BY k, l",
        "SELECT k, first_value(l) OVER w AS x, nth_value(l, 2) OVER w AS z FROM t WINDOW w AS (ORDER BY k, l ROWS 1 PRECEDING) ORDER BY k, l",
        "SELECT k, max(l) OVER (PARTITION BY k) AS x FROM t ORDER BY k, l",
        "SELECT (SELECT max(l) FROM t) AS x",
        "SELECT * FROM t PIVOT (max(l) FOR k IN (1, 2))",
        "SELECT l FROM t UNION ALL SELECT [7, 8] ORDER BY l",
        "SELECT l FROM t UNION SELECT l FROM b ORDER BY l",
        "SELECT k FROM t WHERE l = (SELECT max(l) FROM t WHERE k = 1)",
    ],
)
def test_answers_are_those_without_metadata(session: pg.Session, query: str) -> None:
    found = session.sql(query).to_arrow().to_pylist()
    assert found == session.sql(query.replace("FROM t", "FROM b")).to_arrow().to_pylist()


def test_what_is_passed_on_keeps_it(session: pg.Session) -> None:
    for query in (
        "SELECT l FROM t",
        "SELECT l FROM t UNION ALL SELECT l FROM t",
        "SELECT DISTINCT l FROM t",
    ):
        kind = session.sql(query).to_arrow().schema.field("l").type
        assert kind.value_field.metadata == {b"PARQUET:field_id": b"3"}, query
