"""What can fail is worked out only for the rows that the conditions beside it leave open, wherever they stand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import partgrid as pg


def answer(text: str, **tables: Any) -> list[tuple[Any, ...]]:
    rows = pg.sql(text, **tables).to_arrow().to_pylist()
    return [tuple(row.values()) for row in rows]


@pytest.fixture(params=[1, 3])
def divided(request: pytest.FixtureRequest) -> pg.Grid:
    """Rows of which every third has a zero, as one tile or as several."""
    ids = list(range(300))
    zeros = [None if n % 7 == 0 else n % 3 for n in ids]
    texts = ["n/a" if n % 3 == 0 else str(n) for n in ids]
    table = pa.table({"id": ids, "k": pa.array(zeros, pa.int64()), "s": texts})
    batches = table.to_batches(max_chunksize=300 // request.param)
    return pg.from_arrow(pa.Table.from_batches(batches))


EXPECTED = [n for n in range(300) if n % 7 and n % 3 == 1]

CONDITIONS = [
    "k <> 0 AND 2 / k > 1",
    "2 / k > 1 AND k <> 0",
    "NOT (k = 0 OR 2 / k <= 1)",
    "NOT (2 / k <= 1 OR k = 0)",
    "CASE WHEN k = 0 THEN false ELSE 2 / k > 1 END",
    "CASE WHEN k <> 0 THEN 2 / k > 1 END",
    "id >= 0 AND (k <> 0 AND (2 / k > 1 AND id < 1000))",
    "k <> 0 AND 2 % k = 0 AND 2 / k = 2",
    "abs(k) > 0 AND 2 / k > 1",
    "2 / k > 1 AND k + 0 > 0",
    "k % 3 <> 0 AND 2 / k > 1 AND length(s) > 0",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_of_rows(divided: pg.Grid, condition: str) -> None:
    text = f"SELECT id FROM t WHERE {condition} ORDER BY id"
    assert answer(text, t=divided) == [(n,) for n in EXPECTED]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_elsewhere(divided: pg.Grid, condition: str) -> None:
    values = answer(f"SELECT id, {condition} AS c FROM t ORDER BY id", t=divided)
    assert [n for n, holds in values if holds] == EXPECTED
    counted = (
        f"SELECT count(*) FILTER (WHERE {condition}), sum(id) FILTER (WHERE {condition}) FROM t"
    )
    assert answer(counted, t=divided) == [(len(EXPECTED), sum(EXPECTED))]
    kept = f"SELECT id % 2, count(*) FILTER (WHERE {condition}) FROM t GROUP BY 1 ORDER BY 1"
    odd = sum(n % 2 for n in EXPECTED)
    assert answer(kept, t=divided) == [(0, len(EXPECTED) - odd), (1, odd)]
    grouped = f"SELECT bool_or(c), count(*) FROM (SELECT {condition} AS c FROM t) GROUP BY c ORDER BY c NULLS FIRST"
    assert (True, len(EXPECTED)) in answer(grouped, t=divided)


def test_conditions_of_joins(divided: pg.Grid) -> None:
    other = pa.table({"o": [1, 2]})
    condition = "o <= id AND k <> 0 AND 2 / k > o"
    expected = [n for n in EXPECTED if n >= 1]
    inner = f"SELECT id FROM t JOIN other ON {condition} ORDER BY id"
    assert answer(inner, t=divided, other=other) == [(n,) for n in expected]
    left = f"SELECT count(o), count(*) FROM t LEFT JOIN other ON {condition}"
    assert answer(left, t=divided, other=other) == [(len(expected), 300)]
    crossed = "SELECT count(*) FROM t CROSS JOIN other WHERE k = 0 OR 2 / k > o"
    zeros = sum(1 for n in range(300) if n % 7 and n % 3 == 0)
    assert answer(crossed, t=divided, other=other) == [(2 * zeros + len(EXPECTED),)]
    keyed = "SELECT count(*) FROM t a JOIN t b ON a.id = b.id AND a.k <> 0 AND b.id / a.k >= 0"
    assert answer(keyed, t=divided) == [(sum(1 for n in range(300) if n % 7 and n % 3),)]


def test_casts_of_texts(divided: pg.Grid) -> None:
    for condition in [
        "s <> 'n/a' AND s::INT > 290",
        "s::INT > 290 AND s <> 'n/a'",
        "s ~ '^[0-9]+$' AND CAST(s AS INT) > 290",
        "upper(s) <> 'N/A' AND length(s) < 4 AND s::INT > 290",
    ]:
        found = answer(f"SELECT id FROM t WHERE {condition} ORDER BY id", t=divided)
        assert found == [(n,) for n in range(291, 300) if n % 3]
    inner = "SELECT count(*) FROM (SELECT * FROM t WHERE s <> 'n/a') WHERE s::INT > 290"
    assert answer(inner, t=divided) == [(6,)]


def test_what_joins_learn_fails_for_no_row(divided: pg.Grid) -> None:
    inner = "SELECT 2 / b.k FROM t b WHERE b.k <> 0 AND 2 / b.k > 0"
    found = answer(f"SELECT count(*) FROM t WHERE k IN ({inner})", t=divided)
    assert found == [(sum(1 for n in range(300) if n % 7 and n % 3),)]


def test_long_chains_that_fail_end(divided: pg.Grid) -> None:
    chain = " OR ".join(f"id < -{n}" for n in range(1, 60))
    with pytest.raises(pg.errors.QueryError, match="by zero"):
        answer(f"SELECT count(*) FROM t WHERE 2 / k > 5 OR {chain}", t=divided)
    text = f"SELECT count(*) FROM t WHERE 2 / k > 5 OR {chain} OR k = 0"
    zeros = sum(1 for n in range(300) if n % 7 and n % 3 == 0)
    assert answer(text, t=divided) == [(zeros,)]


def test_what_nothing_guards_is_an_error(divided: pg.Grid) -> None:
    for text in [
        "SELECT id FROM t WHERE id >= 0 AND 2 / k > 1",
        "SELECT id FROM t WHERE k >= 0 AND 2 / k > 1",
        "SELECT id FROM t WHERE id < 0 OR 2 / k > 1",
        "SELECT count(*) FILTER (WHERE id >= 0 AND 2 / k > 1) FROM t",
    ]:
        with pytest.raises(pg.errors.QueryError, match="by zero"):
            answer(text, t=divided)
