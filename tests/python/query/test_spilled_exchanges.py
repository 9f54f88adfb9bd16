"""Rows under way between threads that go into files: nobody waits for what waits for them."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg

NUM_ROWS = 100_000


@pytest.fixture(name="rows", scope="module")
def _rows() -> pa.Table:
    random = np.random.default_rng(3)
    texts = pa.array(["x" * (number % 60) + str(number) for number in range(NUM_ROWS)])
    return pa.table(
        {
            "k": random.integers(0, 50, NUM_ROWS),
            "u": random.integers(0, NUM_ROWS, NUM_ROWS),
            "s": texts.cast(pa.string_view()),
        }
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) AS n, max(m) AS m FROM (SELECT u, max(s) AS m FROM t GROUP BY u)",
        "SELECT sum(c) AS n, max(s) AS m FROM (SELECT s, count(*) OVER (PARTITION BY k) AS c FROM t)",
    ],
)
def test_queries_end_where_exchanges_go_into_files(rows: pa.Table, text: str) -> None:
    expected = pg.sql(text, t=rows).to_arrow().to_pylist()
    spilled = 0
    for _ in range(8):
        session = pg.Session(threads=2, memory_limit=4_000_000, timeout=120)
        session.register("t", pg.from_arrow(rows))
        query = session.sql(text)
        assert query.to_arrow().to_pylist() == expected
        spilled += query.metrics.spilled_bytes
    assert spilled > 0


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are counted in /proc")
def test_parts_that_were_spilled_are_one_open_file(rows: pa.Table) -> None:
    session = pg.Session(threads=2, memory_limit=4_000_000)
    session.register("t", pg.from_arrow(rows))
    text = "SELECT count(*) AS n FROM (SELECT u, max(s) AS m FROM t GROUP BY u)"
    before = len(os.listdir("/proc/self/fd"))
    larger = pg.Session(threads=2, memory_limit=8_000_000)
    larger.register("t", pg.from_arrow(rows))
    with larger.sql("SELECT u FROM t ORDER BY u, k").stream() as batches:
        assert next(batches).num_rows > 0
        assert len(os.listdir("/proc/self/fd")) < before + 10
    files = 0
    for _ in range(5):
        query = session.sql(text)
        query.to_arrow()
        files += query.metrics.spilled_files
    assert files > 10
    assert len(os.listdir("/proc/self/fd")) < before + 10
