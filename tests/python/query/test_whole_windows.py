"""Windows of whole partitions, beside DuckDB: without a sort, and with one where somebody wants it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from beside_duckdb import Both, columns, with_nulls

NUM_ROWS = 60_000


@pytest.fixture(name="rows", scope="module")
def _rows() -> pa.Table:
    random = np.random.default_rng(3)
    keys = [f"key {number}" for number in random.integers(0, 9, NUM_ROWS)]
    return pa.table(
        {
            "n": pa.array(random.permutation(NUM_ROWS)),
            "g": with_nulls(random, pa.array(random.integers(0, 500, NUM_ROWS))),
            "t": with_nulls(random, pa.array(keys)),
            **columns(random, NUM_ROWS),
        }
    )


@pytest.fixture(name="both", scope="module", params=[1, 3])
def _both(request: pytest.FixtureRequest, rows: pa.Table) -> Both:
    return Both.over({"t": rows}, request.param)


PARTITIONS = {
    "numbers": "PARTITION BY g",
    "texts": "PARTITION BY t",
    "both": "PARTITION BY t, g",
    "expressions": "PARTITION BY g % 3, upper(t)",
    "all rows": "",
    "alone": "PARTITION BY n",
}


@pytest.mark.parametrize("partition", PARTITIONS)
def test_rows_get_the_values_of_their_partitions(both: Both, partition: str) -> None:
    over = f"OVER ({PARTITIONS[partition]})"
    functions = [
        "sum(i)",
        "sum(d)",
        "count(*)",
        "count(s)",
        "count(DISTINCT i)",
        "min(i)",
        "max(d)",
        "min(s)",
        "max(m)",
        "bool_or(b)",
        "sum(i) FILTER (WHERE b)",
        "bit_xor(i)",
    ]
    items = [f"{function} {over} AS w{place}" for place, function in enumerate(functions)]
    floats = [f"sum(x) {over} AS x0", f"avg(i) {over} AS x1", f"stddev_pop(x) {over} AS x2"]
    text = f"SELECT n, {', '.join(items + floats)} FROM t ORDER BY n"
    query = both.agree(text, ("x0", "x1", "x2"))
    assert "WholeWindowAggExec" in query.explain(analyze=True)


def test_frames_of_all_rows_are_the_same(
    both: Both,
) -> None:
    all_rows = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    both.agree(f"SELECT n, sum(i) OVER (PARTITION BY g {all_rows}) AS w FROM t ORDER BY n")
    both.agree(
        f"SELECT n, sum(i) OVER (PARTITION BY g ORDER BY n {all_rows}) AS w FROM t ORDER BY n"
    )


BY_KEY = (
    "SELECT g, w FROM (SELECT g, sum(i) OVER (PARTITION BY g) AS w FROM t) ORDER BY g NULLS LAST"
)


@pytest.mark.parametrize(
    "text",
    [
        # The order of keys is wanted above.
        "SELECT g, n, sum(i) OVER (PARTITION BY g) AS w FROM t ORDER BY g NULLS LAST, n",
        "SELECT g, max(w) AS m FROM (SELECT g, sum(i) OVER (PARTITION BY g) AS w FROM t) GROUP BY g ORDER BY g NULLS LAST LIMIT 9",
        "SELECT n, w, row_number() OVER (PARTITION BY g ORDER BY n) AS r FROM (SELECT g, n, sum(i) OVER (PARTITION BY g) AS w FROM t) ORDER BY n",
        "SELECT n, sum(i) OVER (PARTITION BY g) AS w, rank() OVER (PARTITION BY g ORDER BY n) AS r, max(i) OVER (PARTITION BY t) AS v FROM t ORDER BY n",
        # Partitions of partitions, and joins of them.
        "SELECT n, sum(w) OVER (PARTITION BY t) AS v FROM (SELECT n, t, sum(i) OVER (PARTITION BY g) AS w FROM t) ORDER BY n",
        "SELECT a.n, a.w, b.v FROM (SELECT n, sum(i) OVER (PARTITION BY g) AS w FROM t) a "
        "JOIN (SELECT n, max(i) OVER (PARTITION BY t) AS v FROM t) b USING (n) ORDER BY 1",
        "SELECT n, 100.0 * i / nullif(sum(i) OVER (PARTITION BY g), 0) AS part FROM t WHERE n < 900 ORDER BY n",
        "SELECT count(*) AS c FROM (SELECT i, avg(i) OVER (PARTITION BY g) AS a FROM t) WHERE i > a",
        "SELECT n, sum(i) OVER (PARTITION BY g) AS w FROM t WHERE n < 0",
        "SELECT sum(sum(i)) OVER (PARTITION BY t) AS w, t, g FROM t GROUP BY t, g ORDER BY t NULLS LAST, g NULLS LAST",
        "SELECT n, sum(i) OVER (PARTITION BY g) AS w FROM t ORDER BY g NULLS FIRST, n DESC LIMIT 20",
        # Which rows are counted is a matter of their order.
        f"SELECT sum(w) AS w, max(g) AS g, count(*) AS c FROM ({BY_KEY} LIMIT 9)",
        f"SELECT sum(w) AS w, max(g) AS g, count(*) AS c FROM ({BY_KEY} OFFSET 59990)",
        f"SELECT (SELECT max(g) FROM ({BY_KEY} LIMIT 1)) AS g, (SELECT min(g) FROM ({BY_KEY} LIMIT 1 OFFSET 700)) AS h",
        f"SELECT count(*) AS c, max(g) AS g FROM ({BY_KEY} LIMIT 300) AS a WHERE w > 3",
        f"SELECT count(*) AS c FROM (SELECT 5 AS g) AS u JOIN ({BY_KEY} LIMIT 900) AS v USING (g)",
    ],
)
def test_what_stands_above_is_the_same(both: Both, text: str) -> None:
    both.agree(text, ("part",))


def test_no_rows_are_sorted_for_it(both: Both) -> None:
    text = (
        "SELECT count(*) AS c FROM (SELECT i, sum(i) OVER (PARTITION BY g) AS w FROM t) WHERE i > w"
    )
    assert "SortExec" not in both.session.sql(text).explain(analyze=True)


def test_lists_of_partitions_are_left_to_the_engine(
    both: Both,
) -> None:
    text = "SELECT n, len(array_agg(i) OVER (PARTITION BY g, t)) AS w FROM t ORDER BY n"
    both.agree(text)
    assert "WholeWindowAggExec" not in both.session.sql(text).explain(analyze=True)


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_without_room_are_kept_in_files(rows: pa.Table, threads: int) -> None:
    text = "SELECT n, s, x, d, sum(i) OVER (PARTITION BY g) AS w, min(s) OVER (PARTITION BY g) AS v FROM t"
    answers = []
    for limit in (3_000_000, None):
        session = pg.Session(threads=threads, memory_limit=limit)
        session.register("t", pg.from_arrow(rows))
        # What stands above needs no memory.
        query = session.sql(
            f"SELECT count(*) AS c, sum(w) AS w, max(v) AS v, sum(d) AS d, min(s) AS s FROM ({text})"
        )
        answers.append(query.to_arrow().to_pylist())
        spilled = query.metrics.spilled_bytes
        assert (spilled > 0) == (limit is not None)
        if limit:
            assert query.metrics.peak_memory <= limit
    assert answers[0] == answers[1]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("keys", ["n", "s, n", "n * 2"])
def test_so_many_partitions_that_there_is_no_room_are_sorted(
    rows: pa.Table, keys: str, threads: int
) -> None:
    text = f"SELECT n, count(*) OVER (PARTITION BY {keys}) AS w, max(s) OVER (PARTITION BY {keys}) AS v FROM t"
    text = f"SELECT count(*) AS c, sum(w) AS w, sum(w * n) AS p, max(v) AS v FROM ({text})"
    answers = []
    for limit in (5_000_000, None):
        session = pg.Session(threads=threads, memory_limit=limit)
        session.register("t", pg.from_arrow(rows))
        query = session.sql(text)
        answers.append(query.to_arrow().to_pylist())
        assert (query.metrics.spilled_bytes > 0) == (limit is not None)
    assert answers[0] == answers[1]
