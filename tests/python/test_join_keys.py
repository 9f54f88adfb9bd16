"""Joins whose keys are held equal in more than one way, compared with DuckDB."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pytest

import partgrid as pg

TABLES = {
    "a": ("x", "y", "z"),
    "b": ("p", "q"),
    "c": ("u", "v"),
    "d": ("k",),
}
ROWS = {"a": 3000, "b": 400, "c": 60, "d": 5}


@pytest.fixture(scope="module")
def engines():
    """The same tables here and in DuckDB."""
    chosen = random.Random(7)
    session, duck = pg.Session(), duckdb.connect()
    for name, columns in TABLES.items():
        values = {
            column: [
                chosen.randrange(20) if chosen.random() > 0.02 else None for _ in range(ROWS[name])
            ]
            for column in columns
        }
        table = pa.table({column: pa.array(some, pa.int64()) for column, some in values.items()})
        session.register(name, pg.from_arrow(table))
        duck.register(name, table)
    return session, duck


def same(engines, text: str) -> None:
    session, duck = engines
    assert (
        session.sql(text).to_arrow().to_pylist() == duck.sql(text).to_arrow_table().to_pylist()
    ), text


@pytest.mark.parametrize(
    "condition",
    [
        "a.x = b.p AND a.y = b.p AND b.q = c.u",
        "a.x = a.y AND a.x = b.p AND b.q = c.u",
        "a.x = b.p AND b.q = c.u AND a.y = c.u AND b.p = b.q",
        "a.x = b.p AND a.z = c.u AND b.p = c.u",
        "a.x = b.p AND c.u = c.v AND b.p = c.v AND a.y = c.u",
    ],
)
def test_each_equality_counts(engines, condition: str) -> None:
    """Two columns of one table that are equal to the same column are equal to each other."""
    same(engines, f"SELECT count(*) AS n, sum(a.z) AS s FROM a, b, c WHERE {condition}")


def test_any_equalities_count(engines) -> None:
    """Random ones, over four tables."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chosen = random.Random(seed)
    columns = [f"{table}.{column}" for table, names in TABLES.items() for column in names]
    for _ in range(60):
        # Each table is joined, so that nothing is a product of all.
        pairs = [("a.x", "b.p"), ("b.q", "c.u"), ("c.v", "d.k")]
        pairs += [tuple(chosen.sample(columns, 2)) for _ in range(chosen.randrange(1, 4))]
        chosen.shuffle(pairs)
        condition = " AND ".join(f"{left} = {right}" for left, right in pairs)
        same(engines, f"SELECT count(*) AS n, sum(a.z) AS s FROM a, b, c, d WHERE {condition}")
