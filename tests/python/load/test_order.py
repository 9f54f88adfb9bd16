"""Grids that are sorted or partitioned while they are loaded, against pyarrow and polars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from conftest import DATA

FLIGHTS = DATA / "flights"


def order_of(grid: pg.Grid) -> Any:
    return grid.sorted_by, grid.partitioned_by


@pytest.mark.parametrize(
    ("sort_by", "names", "descending"),
    [
        ("distance", ["distance"], [False]),
        ("dep_delay", ["dep_delay"], [False]),
        (("dep_delay", "descending"), ["dep_delay"], [True]),
        (["tailnum", ("time_hour", "descending")], ["tailnum", "time_hour"], [False, True]),
        (["carrier", "month", "day"], ["carrier", "month", "day"], [False] * 3),
    ],
)
@pytest.mark.parametrize(
    "wishes", [{}, {"tile_rows": 30_000}, {"tile_rows": 7_777, "tile_columns": 6}]
)
def test_rows_are_sorted_as_polars_sorts_them(
    sort_by: Any, names: list[str], descending: list[bool], wishes: dict[str, Any]
) -> None:
    grid = pg.read_parquet(FLIGHTS, sort_by=sort_by, **wishes)
    plain = pl.from_arrow(pg.read_parquet(FLIGHTS).to_arrow())
    assert isinstance(plain, pl.DataFrame)
    wanted = plain.sort(names, descending=descending, nulls_last=True, maintain_order=True)
    assert pl.from_arrow(grid.to_arrow()).equals(wanted)
    directions = ["descending" if each else "ascending" for each in descending]
    assert order_of(grid) == (list(zip(names, directions, strict=True)), [])
    rows = wishes.get("tile_rows", 1 << 20)
    assert grid.tiling[0] == -(-336_776 // rows)


def test_parts_keep_the_order_that_still_holds() -> None:
    grid = pg.read_parquet(FLIGHTS, sort_by=["carrier", "day"], tile_rows=50_000)
    both = [("carrier", "ascending"), ("day", "ascending")]
    assert grid[1000:5000].sorted_by == both
    assert grid[["day", "carrier"]].sorted_by == both
    assert grid[["carrier", "month"]].sorted_by == both[:1]
    assert grid[["day"]].sorted_by == []
    assert pg.read_parquet(FLIGHTS).sorted_by == []


@pytest.mark.parametrize("keys", ["carrier", ["origin", "dest"], ["dep_time"]])
@pytest.mark.parametrize("count", [1, 3, 40])
def test_equal_keys_are_in_one_row_band(keys: Any, count: int) -> None:
    grid = pg.read_parquet(FLIGHTS, partition_by=keys, num_partitions=count, sort_by="distance")
    names = [keys] if isinstance(keys, str) else keys
    assert order_of(grid) == ([("distance", "ascending")], names)
    assert grid.tiling == (count, 1)
    bands: dict[Any, int] = {}
    for band in range(count):
        tile = pl.from_arrow(grid.tile(band, 0).to_arrow())
        assert isinstance(tile, pl.DataFrame)
        assert tile["distance"].is_sorted()
        for key in tile.select(names).unique().rows():
            assert bands.setdefault(key, band) == band
    whole, plain = grid.to_arrow(), pg.read_parquet(FLIGHTS).to_arrow()
    by = [(name, "ascending") for name in plain.column_names]
    assert whole.sort_by(by).equals(plain.sort_by(by))
    assert len(set(bands.values())) > 1 or count == 1
    assert grid[["carrier", "origin", "dest", "dep_time"]].partitioned_by == names
    assert grid[:1000].partitioned_by == []
    assert grid[:1000].sorted_by == []


def test_two_grids_agree_on_where_a_key_is(tmp_path: Path) -> None:
    """Types of text and dictionaries do not matter, nulls have a place."""
    names = ["UA", "AA", None, "B6", "a name of more than twelve bytes"] * 20
    for number, kind in enumerate(
        [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
    ):
        keys = pa.array(names, pa.string()).cast(kind) if number < 3 else pa.array(names, kind)
        pq.write_table(pa.table({"k": keys, "n": range(100)}), tmp_path / f"{number}.parquet")
    found = []
    for path in sorted(tmp_path.iterdir()):
        grid = pg.read_parquet(path, partition_by="k", num_partitions=7)
        found.append([grid.tile(band, 0).to_arrow()["n"].to_pylist() for band in range(7)])
    assert all(each == found[0] for each in found)


def test_without_a_number_partitions_are_as_many_as_tiles() -> None:
    grid = pg.read_parquet(FLIGHTS, partition_by="tailnum", tile_rows=100_000)
    assert grid.tiling[0] == 4
    assert pg.read_parquet(FLIGHTS, partition_by="tailnum").tiling[0] == 1


def test_values_of_all_kinds_are_ordered(tmp_path: Path) -> None:
    columns = {
        "f": pa.array([1.5, float("nan"), -0.0, None, 0.0, float("inf"), -1.0, float("-inf")]),
        "b": pa.array([True, None, False, True, False, None, True, False]),
        "v": pa.array(
            ["b", None, "", "long text of many bytes", "a", "b", "ä", "B"], pa.string_view()
        ),
        "x": pa.array([b"b", None, b"", b"\xff", b"\0", b"a", b"b", b"c"]),
        "l": pa.array([[1], None, [], [1, 2], [0], [None], [3], [1]]),
        "s": pa.array([{"a": number % 3, "b": None} for number in range(8)]),
        "n": pa.array(range(8)),
    }
    table = pa.table(columns)
    for number in range(3):
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=3)
    for name in columns:
        for direction in ["ascending", "descending"]:
            grid = pg.read_parquet(tmp_path, sort_by=(name, direction), tile_rows=5)
            got = grid.to_arrow()
            assert got.num_rows == 24
            assert sorted(map(str, got.to_pylist())) == sorted(map(str, table.to_pylist() * 3))
            values = got[name].to_pylist()
            # Equal rows came together, nulls last.
            nulls = [value is None for value in values]
            assert nulls == sorted(nulls)
            if name in {"n", "v", "x", "b"}:
                known = [value for value in values if value is not None]
                encode = (lambda text: text.encode()) if name == "v" else (lambda value: value)
                assert known == sorted(known, key=encode, reverse=direction == "descending")


def test_dense_columns_stay_dense() -> None:
    grid = pg.read_parquet(
        FLIGHTS, dense=["dep_delay", "arr_delay"], sort_by="day", tile_rows=50_000
    )
    batch = grid.tile(1, 0).to_arrow()
    addresses = [batch[name].buffers()[1].address for name in ["dep_delay", "arr_delay"]]
    assert addresses[1] - addresses[0] == -(-50_000 * 8 // 64) * 64 or addresses[0] < addresses[1]
    plain = pg.read_parquet(FLIGHTS, sort_by="day")
    assert grid[["day", "dep_delay"]].to_arrow().equals(plain[["day", "dep_delay"]].to_arrow())


def test_sorted_tiles_hold_no_memory_of_the_others(tmp_path: Path) -> None:
    texts = pa.array([f"a text of more than twelve bytes {number}" for number in range(20_000)])
    random = np.random.default_rng(3).permutation(20_000)
    pq.write_table(
        pa.table({"t": texts.cast(pa.string_view()), "n": random}), tmp_path / "a.parquet"
    )
    grid = pg.read_parquet(tmp_path, sort_by="n", tile_rows=2_000)
    plain = pg.read_parquet(tmp_path)
    held = grid.tile(0, 0).to_arrow()["t"].nbytes
    assert held < plain.tile(0, 0).to_arrow()["t"].nbytes / 5


def test_sorting_under_a_memory_limit_spills(tmp_path: Path) -> None:
    wishes: dict[str, Any] = {"sort_by": "time_hour", "tile_rows": 10_000}
    plain = pg.read_parquet(FLIGHTS, **wishes)
    job = pg.load_parquet(FLIGHTS, memory_limit="24MB", spill_to=tmp_path, **wishes)
    assert job.result().to_arrow().equals(plain.to_arrow())
    assert job.progress().spilled_tiles > 0
    with pytest.raises(pg.errors.ResourcesExhaustedError, match="spill_to"):
        pg.read_parquet(FLIGHTS, memory_limit="24MB", **wishes)


def test_empty_sources_and_filters_without_rows() -> None:
    wishes: dict[str, Any] = {"filters": [("carrier", "=", "nobody")]}
    grid = pg.read_parquet(FLIGHTS, sort_by="day", **wishes)
    assert (grid.shape, grid.sorted_by) == ((0, 19), [("day", "ascending")])
    grid = pg.read_parquet(FLIGHTS, partition_by="day", num_partitions=3, **wishes)
    assert (grid.shape, grid.tiling) == ((0, 19), (3, 1))


@pytest.mark.parametrize(
    ("wishes", "kind", "text"),
    [
        ({"sort_by": "dy"}, pg.errors.NotFoundError, "dy"),
        ({"sort_by": ("day", "down")}, pg.errors.InvalidArgumentError, "descending"),
        ({"sort_by": "day", "columns": ["month"]}, pg.errors.NotFoundError, "day"),
        ({"partition_by": ["dy"]}, pg.errors.NotFoundError, "dy"),
        ({"num_partitions": 3}, pg.errors.InvalidArgumentError, "partition_by"),
        (
            {"partition_by": "day", "num_partitions": 0},
            pg.errors.InvalidArgumentError,
            "num_partitions",
        ),
        ({"partition_by": "day", "num_partitions": -1}, pg.errors.InvalidArgumentError, "got -1"),
        (
            {"partition_by": "day", "num_partitions": 10**12},
            pg.errors.InvalidArgumentError,
            "1048576",
        ),
        ({"tile_rows": -5}, pg.errors.InvalidArgumentError, "tile_rows must be at least 1"),
        ({"string_type": "text"}, pg.errors.InvalidArgumentError, "string_view"),
    ],
)
def test_wrong_wishes_are_refused(wishes: dict[str, Any], kind: type, text: str) -> None:
    with pytest.raises(kind, match=text):
        pg.read_parquet(FLIGHTS, **wishes)


def test_progress_tells_when_rows_are_read_and_not_yet_in_order(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    for number in range(4):
        columns = {f"n{column}": random.integers(0, 2**62, 300_000) for column in range(4)}
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet")
    job = pg.load_parquet(tmp_path, sort_by="n1", tile_rows=50_000)
    seen = []
    while not job.wait(0.002):
        seen.append(job.progress())
    arranging = [progress for progress in seen if progress.arranging]
    assert arranging
    assert all(progress.remaining is None for progress in arranging)
    assert all(progress.rows == progress.total_rows for progress in arranging)
    end = job.progress()
    assert (end.arranging, end.arranged_rows, end.remaining) == (False, 1_200_000, 0.0)
