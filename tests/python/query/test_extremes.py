"""Floats in groups: min and max order NaN and infinities whatever the order of rows, and what others learn cuts no group."""

import itertools
import math

import pyarrow as pa
import pytest

import partgrid as pg

VALUES = [
    [0.9, math.nan, 0.5, None],
    [math.nan, 0.9, 0.5],
    [-math.inf],
    [math.inf],
    [math.nan],
    [None],
    [-math.inf, math.inf, None],
    [0.0, -0.0],
    [-1.5, -2.5],
]


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("threads", [1, 3])
def test_groups_give_what_the_whole_gives(kind: pa.DataType, threads: int) -> None:
    rows = [
        (number, value)
        for number, values in enumerate(VALUES)
        for order in itertools.permutations(values)
        for value in order
    ]
    table = pa.table(
        {"k": [row[0] for row in rows], "f": pa.array([row[1] for row in rows], pa.float64())}
    ).cast(pa.schema([("k", pa.int64()), ("f", kind)]))
    session = pg.Session(threads=threads)
    session.register("g", pg.from_arrow(table))
    found = session.sql("SELECT k, min(f) AS a, max(f) AS b FROM g GROUP BY k ORDER BY k")
    for row in found.to_arrow().to_pylist():
        whole = session.sql("SELECT min(f) AS a, max(f) AS b FROM g WHERE k = $1", [row["k"]])
        [wanted] = whole.to_arrow().to_pylist()
        assert repr((row["a"], row["b"])) == repr((wanted["a"], wanted["b"])), VALUES[row["k"]]
    [nan] = session.sql("SELECT max(f) AS b, min(f) AS a FROM g WHERE k = 0").to_arrow().to_pylist()
    assert math.isnan(nan["b"])
    assert nan["a"] == 0.5


@pytest.mark.parametrize("threads", [1, 3])
def test_what_a_join_learns_cuts_no_group_of_floats(threads: int) -> None:
    """GROUP BY takes -0.0 for 0.0; a condition that a join or a TopK sends to the scan does not."""
    table = pa.table({"f": [0.0, -0.0, 1.0, None], "k": [1, 2, 3, 4]})
    session = pg.Session(threads=threads)
    session.register("g", pg.from_arrow(table))
    groups = "(SELECT f, sum(k) AS c FROM g GROUP BY f)"
    joined = session.sql(f"SELECT x.c, y.c AS d FROM {groups} AS x JOIN {groups} AS y ON x.f = y.f")
    rows = sorted(tuple(row.values()) for row in joined.to_arrow().to_pylist())
    assert rows == [(3, 3), (3, 3)]
    for direction in ("", "DESC"):
        first = session.sql(f"SELECT f, c FROM {groups} ORDER BY f {direction} NULLS LAST LIMIT 2")
        assert sorted(first.to_arrow()["c"].to_pylist()) == [3, 3]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "keys",
    [
        "SELECT * FROM (VALUES (CAST(0.0 AS DOUBLE)), (CAST(3.0 AS DOUBLE))) AS v(f)",
        "SELECT * FROM (VALUES (CAST(-0.0 AS DOUBLE)), (CAST('NaN' AS DOUBLE))) AS v(f)",
        "SELECT f FROM g WHERE k = 1",
    ],
)
def test_a_join_takes_minus_zero_for_zero_whatever_the_scan_was_told(
    threads: int, keys: str
) -> None:
    """A few keys reach the scan as a list, which compares floats bit by bit."""
    table = pa.table({"f": [0.0, -0.0, 1.0, None, 3.0, math.nan], "k": [1, 2, 3, 4, 5, 6]})
    session = pg.Session(threads=threads)
    session.register("g", pg.from_arrow(table))
    one = session.sql(f"SELECT k FROM g JOIN ({keys}) AS w ON g.f = w.f ORDER BY k").to_arrow()
    two = session.sql(
        f"SELECT k FROM g JOIN (SELECT f, 1 AS one FROM ({keys}) AS w) AS v ON g.f = v.f AND g.k / g.k = v.one ORDER BY k"
    )
    inside = session.sql(f"SELECT k FROM g WHERE f IN ({keys}) ORDER BY k").to_arrow()
    others = [5] if "3.0" in keys else [6] if "NaN" in keys else []
    assert one["k"].to_pylist() == inside["k"].to_pylist() == [1, 2, *others]
    assert two.to_arrow()["k"].to_pylist() == [1, 2, *others]
