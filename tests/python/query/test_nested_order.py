"""First rows by lists and structs."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import partgrid as pg

NESTED = [None, *([*e] for n in range(4) for e in itertools.product([None, 1, 2, 3], repeat=n))]


@pytest.mark.parametrize("most", [1, 3, 9, 40])
@pytest.mark.parametrize("direction", ["", " DESC", " NULLS FIRST"])
def test_the_first_lists_and_structs_are_those_of_the_whole_order(
    direction: str, most: int
) -> None:
    """Each thread tells the others what comes too late: that must go by the same order, also for nulls within values."""
    lists = NESTED * 60
    pairs = [None if each is None else dict(zip("ab", each, strict=False)) for each in lists]
    table = pa.table(
        {
            "l": pa.array(lists, pa.list_(pa.int64())),
            "s": pa.array(pairs, pa.struct([("a", pa.int64()), ("b", pa.int64())])),
        }
    )
    session = pg.Session(threads=3)
    session.register("t", pg.from_arrow(pa.Table.from_batches(table.to_batches(1024))))
    for column in "ls":
        text = f"SELECT DISTINCT {column} AS v FROM t ORDER BY v{direction}"
        whole = session.sql(text).to_arrow()["v"].to_pylist()
        found = session.sql(f"{text} LIMIT {most}").to_arrow()["v"].to_pylist()
        assert found == whole[:most]
    if not direction:
        lasts = sorted(NESTED[1:], key=lambda each: [(v is None, v or 0) for v in each])
        ordered = session.sql("SELECT DISTINCT l FROM t ORDER BY l").to_arrow()["l"].to_pylist()
        assert ordered == [*lasts, None]
