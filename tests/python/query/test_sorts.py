"""Sorts of all rows: the order of keys of all types, in memory and in files."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg

NUM_ROWS = 30_000


@pytest.fixture(name="rows", scope="module")
def _rows() -> pa.Table:
    random = np.random.default_rng(7)

    def some(values: pa.Array) -> pa.Array:
        return pa.array(values.to_pylist(), values.type, mask=random.random(NUM_ROWS) < 0.1)

    numbers = random.integers(-50, 50, NUM_ROWS)
    begin = datetime.datetime(2001, 1, 1)
    texts = [f"begins as all do, {number}" for number in numbers]
    return pa.table(
        {
            "n": pa.array(random.permutation(NUM_ROWS)),
            "small": some(pa.array(numbers, pa.int8())),
            "large": some(pa.array(random.integers(-(2**63), 2**63 - 1, NUM_ROWS))),
            "unsigned": some(pa.array(random.integers(0, 2**64 - 1, NUM_ROWS, np.uint64))),
            "flag": some(pa.array(numbers % 2 == 0)),
            "float": some(pa.array(np.where(numbers == 7, np.inf, numbers / 7))),
            "money": some(pa.array([Decimal(int(n)) / 100 for n in numbers], pa.decimal128(9, 2))),
            "long money": some(
                pa.array([Decimal(int(n)) * 10**30 for n in numbers], pa.decimal128(38, 0))
            ),
            "day": some(pa.array([begin.date() + datetime.timedelta(int(n)) for n in numbers])),
            "moment": some(pa.array([begin + datetime.timedelta(0, int(n)) for n in numbers])),
            "text": some(pa.array(texts)),
            "view": some(pa.array(texts, pa.string_view())),
            "bytes": some(pa.array([text.encode()[17:] for text in texts], pa.binary())),
            "list": some(pa.array([[int(n), n % 3] for n in numbers], pa.list_(pa.int64()))),
            "word": some(pa.array(texts).dictionary_encode()),
            "nothing": pa.nulls(NUM_ROWS, pa.int64()),
        }
    )


@pytest.fixture(name="grid", scope="module")
def _grid(rows: pa.Table) -> pg.Grid:
    return pg.from_arrow(pa.Table.from_batches(rows.to_batches(max_chunksize=1_700), rows.schema))


def value_of(value: object) -> object:
    """What python compares."""
    return value.as_py() if isinstance(value, pa.Scalar) else value


def expected(rows: pa.Table, keys: list[tuple[str, bool, bool]]) -> list[int]:
    """The numbers of the rows, by keys that descend or not, with nulls first or not."""
    numbers = list(range(rows.num_rows))
    columns = {name: rows[name].to_pylist() for name, _, _ in keys}
    for name, descending, nulls_first in reversed(keys):
        values = columns[name]
        numbers = sorted(
            [number for number in numbers if values[number] is not None],
            key=lambda number: value_of(values[number]),
            reverse=descending,
        ) + [number for number in numbers if values[number] is None]
        if nulls_first:
            numbers.sort(key=lambda number: values[number] is not None)
    names = rows["n"].to_pylist()
    return [names[number] for number in numbers]


KEYS = [
    "small",
    "large",
    "unsigned",
    "flag",
    "float",
    "money",
    "long money",
    "day",
    "moment",
    "text",
    "view",
    "bytes",
    "list",
    "word",
    "nothing",
]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", KEYS)
def test_rows_are_in_the_order_of_their_keys(
    rows: pa.Table, grid: pg.Grid, name: str, threads: int
) -> None:
    session = pg.Session(threads=threads)
    session.register("t", grid)
    for descending, nulls_first in [(False, False), (True, False), (False, True), (True, True)]:
        way = f"{'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"
        query = session.sql(f'SELECT * FROM t ORDER BY "{name}" {way}, small {way}, n')
        found = query.to_arrow()
        keys = [(name, descending, nulls_first), ("small", descending, nulls_first)]
        wanted = expected(rows, [*keys, ("n", False, False)])
        assert found["n"].to_pylist() == wanted, way
        # All other columns go with their rows.
        places = np.argsort(rows["n"].to_numpy())[wanted]
        for column in ("text", "view", "list", "word", "money"):
            values = rows[column].to_pylist()
            assert found[column].to_pylist() == [values[place] for place in places], column
    assert "PackedSort" in session.sql(f'SELECT * FROM t ORDER BY "{name}"').explain(analyze=True)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT n AS m, large FROM t ORDER BY n",
        "SELECT large, n AS m FROM t ORDER BY m DESC, large",
        "SELECT text AS a, text AS b, n AS m FROM t ORDER BY b, m",
        "SELECT n AS m FROM t ORDER BY large, n LIMIT 9000 OFFSET 100",
        "SELECT n + 1 AS m, large FROM t ORDER BY small, n",
    ],
)
def test_partitions_are_merged_at_once_below_other_names(grid: pg.Grid, text: str) -> None:
    alone, several = (pg.Session(threads=threads) for threads in (1, 3))
    for session in (alone, several):
        session.register("t", grid)
    assert several.sql(text).to_arrow().equals(alone.sql(text).to_arrow())
    plan = several.sql(text).explain(analyze=True)
    # The first few of many go another way.
    if "LIMIT" not in text:
        assert "PackedSortMergeExec" in plan
        assert "SortPreservingMerge" not in plan


def test_rows_with_equal_keys_stay_as_they_came(rows: pa.Table, grid: pg.Grid) -> None:
    session = pg.Session(threads=1)
    session.register("t", grid)
    found = session.sql("SELECT n FROM t ORDER BY small DESC NULLS LAST").to_arrow()
    assert found["n"].to_pylist() == expected(rows, [("small", True, False)])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("keys", ["large, text", "text DESC, n", "float, n"])
def test_rows_without_room_are_sorted_in_files(grid: pg.Grid, keys: str, threads: int) -> None:
    small, large = (pg.Session(threads=threads, memory_limit=limit) for limit in (2_000_000, None))
    for session in (small, large):
        session.register("t", grid)
    text = f"SELECT n, text, large FROM t ORDER BY {keys}, n"
    outside, inside = small.sql(text), large.sql(text)
    assert outside.to_arrow().equals(inside.to_arrow())
    assert outside.metrics.spilled_bytes > 0
    assert inside.metrics.spilled_bytes == 0
    assert outside.metrics.peak_memory <= 2_000_000


def test_many_dictionaries_become_one() -> None:
    words = [f"word {number % 7}" for number in range(3_000)]
    chunks = [
        pa.array(words[start : start + 30]).dictionary_encode() for start in range(0, 3_000, 30)
    ]
    rows = pa.table({"n": list(range(3_000)), "w": pa.chunked_array(chunks)})
    session = pg.Session(threads=2)
    session.register("t", pg.from_arrow(rows))
    found = session.sql("SELECT w, n FROM t ORDER BY n DESC").to_arrow()
    assert found["w"].to_pylist() == words[::-1]
    for chunk in found["w"].chunks:
        # Those of all chunks one after the other, not once more for each batch.
        assert len(chunk.dictionary) <= 707


def test_sorts_that_are_not_read_to_their_end_let_go_of_their_memory(
    grid: pg.Grid,
) -> None:
    session = pg.Session(threads=2)
    session.register("t", grid)
    for _ in range(3):
        with session.sql("SELECT * FROM t ORDER BY large").stream() as batches:
            assert next(batches).num_rows > 0
    assert session.sql("SELECT count(*) AS c FROM t").to_arrow()["c"].to_pylist() == [NUM_ROWS]
