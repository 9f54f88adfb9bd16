"""Windows from the first row of a partition to the row itself, and from some rows before it, beside DuckDB."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from beside_duckdb import Both, columns, with_nulls

NUM_ROWS = 120_000


@pytest.fixture(name="both", scope="module", params=[1, 3])
def _both(request: pytest.FixtureRequest) -> Both:
    random = np.random.default_rng(1)
    rows = {
        "g": with_nulls(random, pa.array(random.integers(0, 40, NUM_ROWS))),
        "t": pa.array([f"key {number}" for number in random.integers(0, 7, NUM_ROWS)]),
        # Different, with few values, and mostly equal.
        "o": pa.array(random.permutation(NUM_ROWS)),
        "p": with_nulls(random, pa.array(random.integers(0, 90, NUM_ROWS))),
        "q": pa.array(random.random(NUM_ROWS) < 0.00005),
        **columns(random, NUM_ROWS),
    }
    return Both.over({"t": pa.table(rows)}, request.param)


FUNCTIONS = {
    "numbers": ["row_number()"],
    "ranks": ["rank()", "dense_rank()"],
    "counts": ["count(*)", "count(i)", "count(s)"],
    "sums": ["sum(i)", "sum(d)", "sum(x)", "avg(x)"],
    "extremes": ["max(i)", "min(d)", "max(x)", "min(s)", "max(m)", "min(m)"],
}

ORDERS = {
    "different": "PARTITION BY g ORDER BY o",
    "descending": "PARTITION BY g, t ORDER BY o DESC",
    "few": "PARTITION BY t ORDER BY p NULLS FIRST, o % 5",
    "equal": "PARTITION BY t ORDER BY q",
    "none": "ORDER BY p, o",
}

FRAMES = {
    "usual": "",
    "rows": "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "range": "RANGE UNBOUNDED PRECEDING",
    "none before": "ROWS BETWEEN CURRENT ROW AND CURRENT ROW",
    "few before": "ROWS 6 PRECEDING",
    "many before": "ROWS 9000 PRECEDING",
}


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_values_so_far_are_those_of_duckdb(both: Both, kind: str, order: str, frame: str) -> None:
    frame = FRAMES[frame]
    if "ROWS" in frame and order in ("few", "equal"):
        # Which row comes first is nobody's promise.
        frame = f", o {frame}"
    elif kind == "numbers":
        frame = ", o"
    window = f"({ORDERS[order]} {frame})"
    values = [f"{function} OVER {window}" for function in FUNCTIONS[kind]]
    items = ", ".join(f"{value} AS w{place}" for place, value in enumerate(values))
    text = f"SELECT o, {items} FROM t ORDER BY o"
    values = enumerate(FUNCTIONS[kind])
    floats = tuple(f"w{place}" for place, function in values if "(x)" in function)
    query = both.agree(text, floats, rtol=1e-12)
    assert "RunningWindowAggExec" in query.explain(analyze=True)


@pytest.mark.parametrize(
    "value",
    [
        "sum(i) FILTER (WHERE b) OVER (PARTITION BY g ORDER BY o)",
        "sum(i) OVER (PARTITION BY g ORDER BY o RANGE BETWEEN 300 PRECEDING AND CURRENT ROW)",
        "sum(i) FILTER (WHERE b) OVER (PARTITION BY g ORDER BY o ROWS 3 PRECEDING)",
        "sum(i) OVER (PARTITION BY g ORDER BY o ROWS BETWEEN 9 PRECEDING AND 3 PRECEDING)",
        "sum(i) OVER (PARTITION BY g ORDER BY o ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING)",
        "count(i) OVER (PARTITION BY g ORDER BY o ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
        "sum(i) OVER (PARTITION BY g)",
        "lag(i) OVER (PARTITION BY g ORDER BY o)",
    ],
)
def test_other_windows_are_those_of_duckdb_too(both: Both, value: str) -> None:
    # Called otherwise, too: a name says nothing of a filter.
    for items in (f"{value} AS w", f"{value} AS w, sum(i) OVER (PARTITION BY g ORDER BY o) AS v"):
        text = f"SELECT o, {items} FROM t ORDER BY o"
        both.agree(text)


def test_what_is_above_gets_rows_in_their_order(
    both: Both,
) -> None:
    texts = [
        "SELECT o, s FROM (SELECT o, sum(i) OVER (ORDER BY o) AS s FROM t) WHERE s > 100 ORDER BY o LIMIT 9",
        "SELECT t, max(n) AS n FROM (SELECT t, row_number() OVER (PARTITION BY t ORDER BY o) AS n FROM t) GROUP BY t ORDER BY t",
        "SELECT g, o FROM t QUALIFY rank() OVER (PARTITION BY g ORDER BY o) <= 2 ORDER BY o",
        "SELECT count(*) AS n, sum(r) AS s FROM (SELECT dense_rank() OVER (ORDER BY p) AS r FROM t)",
    ]
    for text in texts:
        both.agree(text)


def test_a_sum_that_has_no_room_is_told(both: Both) -> None:
    text = "SELECT sum(9223372036854775000 + i - i) OVER (ORDER BY o) AS s FROM t"
    with pytest.raises(pg.errors.QueryError, match="has no room in its type"):
        both.session.sql(text).to_arrow()


def test_a_total_within_equal_keys_is_nobodys() -> None:
    most = 2**63 - 1
    rows = pa.table({"k": [1, 1, 1, 2], "v": [most, 10, -20, 5]})
    for size in (1, 2, 4):
        session = pg.Session(threads=1)
        batches = rows.to_batches(max_chunksize=size)
        session.register("t", pg.from_arrow(pa.Table.from_batches(batches)))
        text = "SELECT sum(v) OVER (ORDER BY k) AS s FROM t"
        assert session.sql(text).to_arrow()["s"].to_pylist() == [most - 10] * 3 + [most - 5]


def test_nulls_that_a_frame_begins_with_have_their_place() -> None:
    rows = pa.table({"id": [0, 1, 2, 3], "v": pa.array([None, 3, 2, None], pa.int64())})
    for value in ("min(v)", "max(-v)", "sum(v)"):
        for order in ("DESC NULLS LAST", "DESC NULLS FIRST", "ASC NULLS LAST", "ASC NULLS FIRST"):
            window = f"{value} OVER (ORDER BY id ROWS UNBOUNDED PRECEDING)"
            text = f"SELECT {window} AS w FROM t ORDER BY w {order}"
            found = pg.sql(text, t=pg.from_arrow(rows)).to_arrow()["w"].to_pylist()
            there = sorted((w for w in found if w is not None), reverse="DESC" in order)
            nulls = [None] * found.count(None)
            assert found == (there + nulls if "LAST" in order else nulls + there), text


def test_no_rows_have_no_values() -> None:
    session = pg.Session(threads=2)
    session.register("t", pg.from_arrow(pa.table({"i": pa.array([], pa.int64())})))
    text = "SELECT i, sum(i) OVER (ORDER BY i) AS s FROM t"
    assert session.sql(text).to_arrow().num_rows == 0
