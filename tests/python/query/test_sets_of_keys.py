"""ROLLUP, CUBE and GROUPING SETS beside DuckDB: groups of fewer keys are made of those of more."""

from __future__ import annotations

import random

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg

ROWS = 60_000
KEYS = ["a", "b", "c", "d"]


def _table() -> pa.Table:
    chosen = np.random.default_rng(3)

    def some(values: np.ndarray, kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind, mask=chosen.random(ROWS) < 0.03)

    return pa.table(
        {
            "a": some(chosen.integers(0, 40, ROWS), pa.int32()),
            "b": some(
                np.array([f"a text that is long {n}" for n in range(25)])[
                    chosen.integers(0, 25, ROWS)
                ],
                pa.string(),
            ),
            "c": some(chosen.integers(0, 3, ROWS).astype(bool), pa.bool_()),
            "d": some(chosen.integers(0, 30, ROWS) / 4.0, pa.float64()),
            "n": some(chosen.integers(-100, 100, ROWS), pa.int64()),
            "p": pa.array(chosen.integers(0, 10_000, ROWS))
            .cast(pa.decimal128(19, 0))
            .cast(pa.decimal128(9, 2)),
        }
    )


TABLE = _table()


@pytest.fixture(scope="module")
def peer() -> duckdb.DuckDBPyConnection:
    peer = duckdb.connect()
    peer.register("t", TABLE)
    peer.register("nobody", TABLE.slice(0, 0))
    return peer


def _session(**options: object) -> pg.Session:
    session = pg.Session(**options)
    session.register(
        "t",
        pg.from_arrow(pa.Table.from_batches(TABLE.to_batches(max_chunksize=7_000), TABLE.schema)),
    )
    session.register("nobody", TABLE.slice(0, 0))
    return session


@pytest.fixture(
    scope="module",
    params=[{"threads": 1}, {"threads": 3}, {"threads": 2, "memory_limit": 24_000_000}],
    ids=["1", "3", "little"],
)
def session(request: pytest.FixtureRequest) -> pg.Session:
    return _session(**request.param)


def _sets(chosen: random.Random) -> str:
    """A way to write several sets of keys."""
    some = chosen.sample(KEYS, chosen.randint(2, 4))
    kind = chosen.randrange(4)
    if kind == 0:
        return f"ROLLUP ({', '.join(some)})"
    if kind == 1:
        return f"CUBE ({', '.join(some)})"
    if kind == 2:
        return f"{some[0]}, ROLLUP ({', '.join(some[1:])})"
    sets = [chosen.sample(some, chosen.randint(0, len(some))) for _ in range(chosen.randint(2, 5))]
    sets += [some] * chosen.randint(0, 2)
    return f"GROUPING SETS ({', '.join('(' + ', '.join(each) + ')' for each in sets)})"


# The last ones are not put together in several steps.
VALUES = [
    "sum(n)",
    "count(*)",
    "count(n)",
    "avg(n)",
    "min(b)",
    "max(d)",
    "sum(p)",
    "bool_or(c)",
    "sum(n) FILTER (WHERE c)",
    "count(DISTINCT n)",
    "list_sort(array_agg(n))[1]",
]


@pytest.mark.parametrize("seed", range(40))
def test_sets_of_keys(session: pg.Session, peer: duckdb.DuckDBPyConnection, seed: int) -> None:
    chosen = random.Random(seed)
    sets = _sets(chosen)
    keys = [
        key
        for key in KEYS
        if key in sets.replace("ROLLUP", "").replace("CUBE", "").replace("GROUPING SETS", "")
    ]
    values = chosen.sample(VALUES[: 9 if chosen.random() < 0.7 else None], chosen.randint(1, 3))
    source = chosen.choice(
        ["t", "t", "t", "nobody", "(SELECT * FROM t WHERE a < 9)", "(SELECT * FROM t LIMIT 1)"]
    )
    if "LIMIT" in source:
        source = "(SELECT * FROM t ORDER BY a, b, c, d, n, p LIMIT 1)"
    mask = f"grouping({', '.join(keys)})" if keys else "0"
    text = f"SELECT {', '.join([*keys, mask, *values])} FROM {source} GROUP BY {sets}"
    found = session.sql(text).to_arrow()
    rows = sorted(zip(*(column.to_pylist() for column in found.columns), strict=True), key=str)
    assert rows == sorted(peer.execute(text).fetchall(), key=str), text
    result = session.sql(
        f"SELECT count(*) FROM ({text}) WHERE {keys[0] if keys else 1} IS NOT NULL"
    )
    assert len(result.to_arrow()) == 1


def test_groups_of_fewer_keys_are_few_before_the_last_step() -> None:
    """A step that gives the rows of all keys once for each set would give three times as many."""
    session = _session(threads=1)
    explained = session.sql("SELECT a, d, n, count(*) FROM t GROUP BY ROLLUP (a, d, n)").explain(
        analyze=True
    )
    [line] = [line for line in explained.splitlines() if "ExpandExec" in line]
    groups = len(session.sql("SELECT DISTINCT a, d, n FROM t").to_arrow())
    given = len(session.sql("SELECT a, d, n FROM t GROUP BY ROLLUP (a, d, n)").to_arrow())
    assert groups > 30_000
    # The one group of no key is made by the last step, of those of one key.
    one_key = len(session.sql("SELECT DISTINCT a FROM t").to_arrow())
    shown = f"output_rows={(given - 1 + one_key) / 1000:.2f} K"
    assert shown in line, (shown, line)
