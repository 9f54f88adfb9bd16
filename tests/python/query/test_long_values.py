"""Long lists and texts that operators repeat for many rows, within a memory limit: answers, and what the process takes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, resource, sys
import numpy as np, pyarrow as pa
import partgrid as pg

rows = 20_000
long = pa.array([np.arange(60_000 + row) for row in range(4)])
session = pg.Session(memory_limit="200MB", threads=2)
session.register("t", pa.table({"id": np.arange(rows) % 4, "a": np.arange(rows)}))
session.register("u", pa.table({"id": np.arange(4), "l": long}))
session.register("w", pa.table({"a": np.arange(6_000), "s": ["z" * 30] * 6_000}))
session.register("s", pa.table({"id": np.arange(4), "x": ["y" * 400_000] * 4}))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = session.sql(sys.argv[1]).to_arrow().to_pylist()[0]
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([list(found.values()), (after - before) // 1024]))
"""

SUM = sum(range(20_000))


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("SELECT max(array_length(l)), max(a) FROM t JOIN u ON t.id = u.id", [60_003, 19_999]),
        ("SELECT max(array_length(l)), max(a) FROM u JOIN t ON t.id = u.id", [60_003, 19_999]),
        ("SELECT max(array_length(l)), sum(a) FROM t LEFT JOIN u USING (id)", [60_003, SUM]),
        ("SELECT max(array_length(l)), count(*) FROM t JOIN u ON t.id < u.id", [60_003, 30_000]),
        ("SELECT max(array_length(l)), count(*) FROM t, u WHERE a < 900", [60_003, 3_600]),
        (
            "SELECT max(length(CASE WHEN a % 2 = 0 THEN (SELECT max(x) FROM s) ELSE 'z' END)), sum(a) FROM t",
            [400_000, SUM],
        ),
        (
            "SELECT max(length(v)), count(*) FROM (SELECT string_agg(s, ',') OVER (ORDER BY a) AS v FROM w)"
            " WHERE length(v) % 2 = 0 OR length(v) > 0",
            [185_999, 6_000],
        ),
        ("SELECT max(length(x)), count(*) FROM t JOIN s USING (id)", [400_000, 20_000]),
        (
            "SELECT max(array_length(v)), count(*) FROM (SELECT lag(l) OVER (ORDER BY a) AS v"
            " FROM t JOIN u USING (id) WHERE a < 2000)",
            [60_003, 2_000],
        ),
        (
            "SELECT max(array_length(make_array(l, l))), count(*) FROM t JOIN u USING (id)",
            [2, 20_000],
        ),
        (
            "SELECT max(array_length(g.v)), count(*) FROM t JOIN"
            " (SELECT id, array_agg(a) AS v FROM t GROUP BY id) g USING (id)",
            [5_000, 20_000],
        ),
        (
            "SELECT max(array_length(v)), count(*) FROM t, (SELECT array_agg(a) AS v FROM t) WHERE a < 4000",
            [20_000, 4_000],
        ),
    ],
)
def test_what_is_repeated_is_made_in_batches_that_fit(query: str, answer: list[int]) -> None:
    command = [sys.executable, "-c", PROGRAM, query]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found, megabytes = json.loads(done.stdout)
    assert found == answer
    # Twice the limit: operators allocate beside the pool, and the allocator keeps some.
    assert megabytes < 400, megabytes
