"""Groups that are made before joins with tables that only name them: answers beside DuckDB, and where the plans have them."""

from __future__ import annotations

import re

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg

ROWS = 120_000
ITEMS, SHOPS, DAYS = 400, 12, 90


def _tables() -> dict[str, pa.Table]:
    random = np.random.default_rng(7)
    item = random.integers(0, ITEMS, ROWS)
    facts = pa.table(
        {
            "item": pa.array(item, pa.int32(), mask=random.random(ROWS) < 0.01),
            "shop": pa.array(random.integers(0, SHOPS, ROWS), pa.int64()),
            "day": pa.array(random.integers(0, DAYS, ROWS), pa.int32()),
            "kind": pa.array([f"kind {number}" for number in random.integers(0, 5, ROWS)]),
            "number": pa.array(
                random.integers(-50, 50, ROWS), pa.int64(), mask=random.random(ROWS) < 0.02
            ),
            "part": pa.array(random.integers(0, 4, ROWS), pa.int64()),
            "price": pa.array(random.integers(0, 10_000, ROWS), pa.int64())
            .cast(pa.decimal128(19, 0))
            .cast(pa.decimal128(9, 2)),
            "serial": pa.array(np.arange(ROWS)),
            "share": pa.array(random.integers(0, 64, ROWS) / 4.0),
        }
    )
    # Item 399 is in no other table; of the others some are there twice, and names belong to several.
    items = [number for number in range(ITEMS - 1)] + [3, 5, 5]
    return {
        "facts": facts,
        "items": pa.table(
            {
                "item": pa.array(items, pa.int32()),
                "name": [f"a name that {number % 40} items have" for number in items],
                "brand": pa.array([number % 7 for number in items], pa.int64()),
                "weight": pa.array([number % 9 for number in items], pa.int64()),
            }
        ),
        "serials": pa.table({"serial": pa.array(np.arange(ROWS))}),
        "kinds": pa.table(
            {
                "kind": [f"kind {number}" for number in range(5)],
                "word": [f"word {number % 2}" for number in range(5)],
            }
        ),
        "shares": pa.table(
            {
                "share": [number / 4.0 for number in range(64)],
                "label": [f"label {number % 6}" for number in range(64)],
            }
        ),
        "brands": pa.table(
            {
                "brand": pa.array(range(7), pa.int64()),
                "maker": [f"maker {number % 3}" for number in range(7)],
            }
        ),
        "shops": pa.table(
            {
                "shop": pa.array(range(SHOPS), pa.int64()),
                "town": [None if number == 4 else f"town {number % 5}" for number in range(SHOPS)],
            }
        ),
        "days": pa.table(
            {
                "day": pa.array(range(DAYS), pa.int32()),
                "month": pa.array([number // 30 for number in range(DAYS)], pa.int32()),
            }
        ),
    }


TABLES = _tables()


def _tiled(table: pa.Table, rows: int) -> pg.Grid:
    return pg.from_arrow(pa.Table.from_batches(table.to_batches(max_chunksize=rows), table.schema))


@pytest.fixture(scope="module", params=[1, 3])
def session(request: pytest.FixtureRequest) -> pg.Session:
    session = pg.Session(threads=request.param)
    for name, table in TABLES.items():
        session.register(name, _tiled(table, 17_000))
    return session


@pytest.fixture(scope="module")
def peer() -> duckdb.DuckDBPyConnection:
    peer = duckdb.connect()
    for name, table in TABLES.items():
        peer.register(name, table)
    return peer


def _is_early(plan: str) -> bool:
    """Whether groups are made below a join."""
    lines = plan.splitlines()
    joins = [re.match(r"[ |]*", line).end() for line in lines if "JoinExec" in line]
    groups = [
        re.match(r"[ |]*", line).end() for line in lines if "AggregateExec: mode=Partial," in line
    ]
    return bool(joins) and any(group > min(joins) for group in groups)


def _rows(rows: list[tuple]) -> list[tuple]:
    return sorted(rows, key=lambda row: tuple((value is None, str(value)) for value in row))


def _same(session: pg.Session, peer: duckdb.DuckDBPyConnection, text: str) -> None:
    found = session.sql(text).to_arrow()
    assert _rows(
        list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    ) == _rows(peer.execute(text).fetchall())


EARLY = [
    # One table, keys of it, of the facts, and of both.
    "SELECT name, sum(number), count(*), count(number), min(number), max(price) FROM facts JOIN items USING (item) GROUP BY name",
    "SELECT name, kind, sum(price), avg(share) FROM facts JOIN items USING (item) GROUP BY name, kind",
    "SELECT i.item, name, brand, sum(number) FROM facts f JOIN items i ON i.item = f.item GROUP BY ALL",
    "SELECT kind = 'kind 3' AS is_third, name, sum(number) FROM facts JOIN items USING (item) GROUP BY ALL",
    "SELECT name, sum(number) FROM facts JOIN items ON CAST(facts.item AS BIGINT) = CAST(items.item AS BIGINT) GROUP BY name",
    "SELECT word, sum(number) FROM facts JOIN kinds USING (kind) GROUP BY word",
    "SELECT name, sum(number) FROM facts JOIN items ON facts.item IS NOT DISTINCT FROM items.item GROUP BY name",
    "SELECT weight / 4.0 AS w, sum(number) FROM facts JOIN items USING (item) GROUP BY w",
    "SELECT g.w, s FROM (SELECT weight / 4.0 AS w, sum(part) AS s FROM facts JOIN items USING (item) GROUP BY w) g JOIN facts f ON share = w WHERE f.item < 2",
    "SELECT upper(name) AS u, brand % 2 AS odd, sum(number) FROM facts JOIN items USING (item) GROUP BY ALL",
    # Several tables, a table of a table, and one that stands on either side.
    "SELECT name, town, sum(number), avg(number) FROM facts JOIN items USING (item) JOIN shops USING (shop) GROUP BY name, town",
    "SELECT town, month, count(*), sum(share) FROM shops JOIN facts USING (shop) JOIN days USING (day) GROUP BY town, month",
    "SELECT maker, name, sum(number) FROM facts JOIN items USING (item) JOIN brands USING (brand) GROUP BY maker, name",
    "SELECT maker, town, sum(price) FROM facts JOIN items USING (item) JOIN brands USING (brand) JOIN shops USING (shop) GROUP BY ALL",
    # A join that stays below, since its key would make too many groups.
    "SELECT name, sum(number) FROM facts JOIN days USING (day) JOIN items USING (item) JOIN shops USING (shop) GROUP BY name",
    "SELECT name, sum(number) FROM facts JOIN serials USING (serial) JOIN items USING (item) GROUP BY name",
    # Conditions of aggregates, and on the facts; constants; values that are worked out.
    "SELECT name, sum(number) FILTER (WHERE part = 2), count(*) FILTER (WHERE kind LIKE '%3') FROM facts JOIN items USING (item) GROUP BY name",
    "SELECT name, sum(price * 2), sum(price + price), max(share * 2 - 1) FROM facts JOIN items USING (item) WHERE part < 3 GROUP BY name",
    "SELECT name, sum(CASE WHEN part = 1 THEN price ELSE 0 END), bool_and(number < 49) FROM facts JOIN items USING (item) GROUP BY name",
    # Whole numbers that have room, since it is known between which they lie.
    "SELECT name, sum(CASE WHEN number - part > 3 THEN 1 ELSE 0 END), max(number * part + 7) FROM facts JOIN items USING (item) GROUP BY name",
    "SELECT name, sum(n) FROM (SELECT item, number + serial AS n FROM facts WHERE part < 3) JOIN items USING (item) GROUP BY name",
    "SELECT name, sum(1), avg(2), max('x') FROM facts JOIN items USING (item) GROUP BY name",
    # What comes after: HAVING, ORDER BY with LIMIT, windows, several sets of keys, groups of groups.
    "SELECT name, sum(number) AS s FROM facts JOIN items USING (item) GROUP BY name HAVING count(*) > 3500",
    "SELECT name, sum(number) AS s FROM facts JOIN items USING (item) GROUP BY name ORDER BY s DESC, name LIMIT 7",
    "SELECT name, kind, sum(number), grouping(name, kind) FROM facts JOIN items USING (item) GROUP BY ROLLUP (name, kind)",
    "SELECT name, town, sum(price) FROM facts JOIN items USING (item) JOIN shops USING (shop) GROUP BY CUBE (name, town)",
    "SELECT max(s), count(*) FROM (SELECT name, sum(number) AS s FROM facts JOIN items USING (item) GROUP BY name)",
    "SELECT name, s, rank() OVER (ORDER BY s DESC, name) FROM (SELECT name, sum(number) AS s FROM facts JOIN items USING (item) GROUP BY name)",
    "WITH t AS (SELECT name, sum(number) AS s FROM facts JOIN items USING (item) GROUP BY name) SELECT a.name, a.s - b.s FROM t a JOIN t b ON a.name = b.name",
]


@pytest.mark.parametrize("text", EARLY)
def test_groups_before_joins(
    session: pg.Session, peer: duckdb.DuckDBPyConnection, text: str
) -> None:
    assert _is_early(session.sql(text).explain())
    _same(session, peer, text)


LATE = [
    # Values of the table, of both sides; aggregates that are not put together of parts.
    "SELECT name, sum(weight) FROM facts JOIN items USING (item) GROUP BY name",
    "SELECT name, sum(weight * number) FROM facts JOIN items USING (item) GROUP BY name",
    "SELECT name, count(DISTINCT number) FROM facts JOIN items USING (item) GROUP BY name",
    "SELECT name, sum(number) FILTER (WHERE weight = 2) FROM facts JOIN items USING (item) GROUP BY name",
    "SELECT name, list_sort(array_agg(part))[1] FROM facts JOIN items USING (item) GROUP BY name",
    # Keys of both sides at once, conditions beside the keys of the join, other joins.
    "SELECT name || kind AS n, sum(number) FROM facts JOIN items USING (item) GROUP BY n",
    "SELECT name, sum(number) FROM facts JOIN items ON facts.item = items.item AND number > weight GROUP BY name",
    "SELECT name, sum(number) FROM facts LEFT JOIN items USING (item) GROUP BY name",
    "SELECT kind, sum(number) FROM facts SEMI JOIN items USING (item) GROUP BY kind",
    # A table that leaves few rows, and groups that are nearly as many as rows.
    "SELECT name, sum(number) FROM facts JOIN items USING (item) WHERE name LIKE '%7 items%' GROUP BY name",
    "SELECT name, number, day, part, sum(share) FROM facts JOIN items USING (item) GROUP BY ALL",
    "SELECT brand, town, month, kind, sum(part) FROM facts JOIN items USING (item) JOIN shops USING (shop) JOIN days USING (day) GROUP BY ALL",
    "SELECT sum(number) FROM facts JOIN items USING (item)",
    "SELECT label, sum(number) FROM facts JOIN shares USING (share) GROUP BY label",
]


@pytest.mark.parametrize("text", LATE)
def test_groups_after_joins(
    session: pg.Session, peer: duckdb.DuckDBPyConnection, text: str
) -> None:
    assert not _is_early(session.sql(text).explain())
    _same(session, peer, text)


def test_a_row_that_is_dropped_is_no_reason_of_an_error(session: pg.Session) -> None:
    """The facts of item 399, which no table has, are the only ones that fail."""
    facts = TABLES["facts"]
    item = facts["item"].to_numpy(zero_copy_only=False)
    number = pa.array(np.where(item == ITEMS - 1, 0, 5), pa.int64())
    whole = pa.array(np.where(item == ITEMS - 1, 2**62, 5), pa.int64())
    session.register(
        "failing", facts.append_column("divisor", number).append_column("whole", whole)
    )
    for value in [
        "100 / divisor",
        "100 % divisor",
        "whole * whole",
        "whole + whole + whole",
        "CAST(whole AS INTEGER)",
        "CAST(CAST(divisor AS VARCHAR) AS INTEGER)",
    ]:
        found = session.sql(
            f"SELECT name, count({value}) AS n FROM failing JOIN items USING (item) GROUP BY name"
        ).to_arrow()
        assert found.num_rows == 40, value
        assert sum(found["n"].to_pylist()) > 100_000, value
    # A sum without room is found where a group is done, and its rows were dropped before.
    assert (
        session.sql(
            "SELECT name, sum(whole) AS s FROM failing JOIN items USING (item) GROUP BY name"
        )
        .to_arrow()
        .num_rows
        == 40
    )
    with pytest.raises(pg.errors.QueryError, match="overflow|room"):
        session.sql("SELECT kind, sum(whole) AS s FROM failing GROUP BY kind").to_arrow()


def test_groups_with_little_memory(peer: duckdb.DuckDBPyConnection) -> None:
    session = pg.Session(threads=2, memory_limit=24_000_000)
    for name, table in TABLES.items():
        session.register(name, _tiled(table, 17_000))
    for text in EARLY[:8]:
        _same(session, peer, text)


def test_a_key_that_is_another_one_each_time_is_made_for_each_row(session: pg.Session) -> None:
    for key in ["weight + random()", "name || uuid()"]:
        text = f"SELECT {key} AS k, count(*) FROM facts JOIN items USING (item) GROUP BY k"
        assert session.sql(text).to_arrow().num_rows > 100_000
        text = f"SELECT k, count(*) FROM (SELECT {key} AS k FROM facts JOIN items USING (item)) GROUP BY k"
        assert session.sql(text).to_arrow().num_rows > 100_000


def test_conditions_get_to_the_columns_that_they_are_about() -> None:
    """A column may be called as a key that is worked out."""
    session = pg.Session(threads=2)
    facts = TABLES["facts"].append_column("key 0", pa.array(np.arange(ROWS) + 10_000))
    session.register("facts", _tiled(facts, 17_000))
    session.register("items", TABLES["items"])
    text = 'SELECT name, sum(number) AS s, max("key 0") FROM facts JOIN items ON CAST(facts.item AS BIGINT) = CAST(items.item AS BIGINT) GROUP BY name'
    assert _is_early(session.sql(text).explain())
    found = session.sql(text).to_arrow()
    plain = "SELECT name, sum(number) AS s FROM facts JOIN items USING (item) GROUP BY name"
    expected = session.sql(plain).to_arrow()
    assert found.num_rows == 40
    assert sum(found["s"].to_pylist()) == sum(expected["s"].to_pylist())
