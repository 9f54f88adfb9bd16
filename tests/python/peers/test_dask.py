"""Dask and grids: partitions become row bands and back; labels, types and values are kept, or refused; in one process nothing is copied."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("dask.dataframe", reason="dask is not installed")

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa

import partgrid as pg

ROME = ZoneInfo("Europe/Rome")
ZONED = [datetime(2020, 1, day, tzinfo=ROME) for day in range(1, 6)]
VALUES: dict[str, Any] = {
    "ints": np.arange(5, dtype=np.int16),
    "masked": pd.array([1, None, 3, None, 2**62], "Int64"),
    "floats": np.array([1.5, np.nan, -0.0, np.inf, 2.0]),
    "nulls": pd.array([1.5, None, float("nan"), None, 2.0], pd.ArrowDtype(pa.float64())),
    "texts": pd.array(["a", None, "c", "", "e"], pd.ArrowDtype(pa.string())),
    "categories": pd.Categorical(["b", "a", None, "b", "a"], ["b", "a"], ordered=True),
    "zoned": pd.DatetimeIndex(ZONED),
    "decimals": pd.array([Decimal("1.10"), None] * 2 + [None], pd.ArrowDtype(pa.decimal128(9, 2))),
    "lists": pd.array([[1], None, [], [2, None], [3]], pd.ArrowDtype(pa.list_(pa.int64()))),
}


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """The texts of dask itself are not what is tested here."""
    with dask.config.set({"dataframe.convert-string": False, "scheduler": "threads"}):
        yield


@pytest.mark.parametrize("name", list(VALUES))
def test_values_are_kept_in_both_directions(name: str) -> None:
    frame = pd.DataFrame({name: VALUES[name]})
    whole = pg.from_pandas(frame).to_arrow()
    grid = pg.from_dask(dd.from_pandas(frame, npartitions=2))
    assert grid.cuts[0] == (0, 3, 5)
    assert alike(grid.to_arrow(), whole)
    there = grid.to_dask()
    assert (there.npartitions, there.divisions) == (2, (0, 3, 4))
    assert alike(pg.from_dask(there).to_arrow(), whole)
    assert str(there.dtypes[name]) == str(there.compute().dtypes[name])


def test_types_are_those_that_pandas_alone_would_give() -> None:
    schema = pg.from_dask(dd.from_pandas(pd.DataFrame(VALUES), npartitions=3)).to_arrow().schema
    assert schema.field("zoned").type.tz == "Europe/Rome"
    assert schema.field("categories").type.ordered
    assert schema.field("decimals").type == pa.decimal128(9, 2)
    assert schema.field("ints").type == pa.int16()


def test_nothing_is_copied_in_this_process() -> None:
    frame = dd.from_pandas(pd.DataFrame({"v": np.arange(1000.0)}), npartitions=4)
    theirs = [part["v"].to_numpy() for part in dask.compute(*frame.to_delayed())]
    grid = pg.from_dask(frame)
    places = [chunk.buffers()[1].address for chunk in grid.to_arrow()["v"].chunks]
    assert places == [values.ctypes.data for values in theirs]
    parts = dask.compute(*grid.to_dask().to_delayed())
    assert [place(part["v"]) for part in parts] == places


def test_memory_is_kept_as_long_as_dask_needs_it() -> None:
    frame = pg.from_arrow(pa.table({"v": np.arange(1000.0)})).to_dask()
    assert frame["v"].sum().compute() == 499_500


def test_labels_that_are_numbers_are_none() -> None:
    frame = pd.DataFrame({"v": range(6)})
    through = dd.from_pandas(frame, npartitions=2)
    anew = dd.concat([dd.from_pandas(frame[:3], npartitions=1)] * 2, interleave_partitions=False)
    for each in (through, anew, through.reset_index(drop=True)):
        assert pg.from_dask(each).cuts[0] == (0, 3, 6)
    with pytest.raises(
        pg.errors.InvalidArgumentError, match=r"partition 0: the rows have labels.*\n.*keep"
    ):
        pg.from_dask(dd.from_pandas(frame[2:], npartitions=2))
    with pytest.raises(pg.errors.InvalidArgumentError, match=r"partition \d: the rows have labels"):
        pg.from_dask(through[through.v > 1])


def test_labels_are_kept_left_away_and_restored() -> None:
    frame = pd.DataFrame({"v": [1.5, 2.5, 3.5]}, index=pd.Index([10, 20, 30], name="k"))
    there = dd.from_pandas(frame, npartitions=2)
    grid = pg.from_dask(there, index="keep")
    assert grid.columns == ["k", "v"]
    assert list(grid.to_pandas(index="k").index) == [10, 20, 30]
    assert pg.from_dask(there, index="drop").columns == ["v"]
    with pytest.raises(pg.errors.InvalidArgumentError, match='index must be "keep"'):
        pg.from_dask(there, index="yes")


def test_a_series_is_a_grid_of_one_column() -> None:
    series = dd.from_pandas(pd.Series([1, 2, 3], name="s"), npartitions=2)
    assert pg.from_dask(series).columns == ["s"]
    assert pg.from_dask(series.rename(None)).columns == ["column_0"]


def test_partitions_of_nulls_only_take_the_type_of_the_others() -> None:
    parts = [[None, None], ["x", None], [None]]
    frame = dd.from_delayed(
        [dask.delayed(pd.DataFrame)({"v": pd.Series(part, dtype=object)}) for part in parts],
        meta=pd.DataFrame({"v": pd.Series([], dtype=object)}),
    )
    assert pg.from_dask(frame).to_arrow()["v"].to_pylist() == [None, None, "x", None, None]
    assert pg.from_dask(frame).to_arrow().schema.field("v").type == pa.string()


def test_decimals_take_the_width_of_the_widest() -> None:
    parts = [["1.5"], ["22.25"], ["100"]]
    made = [{"v": pd.Series([Decimal(text) for text in part], dtype=object)} for part in parts]
    frame = dd.from_delayed(
        [dask.delayed(pd.DataFrame)(part) for part in made], meta=pd.DataFrame(made[0])
    )
    found = pg.from_dask(frame).to_arrow()["v"]
    assert found.type == pa.decimal128(5, 2)
    assert found.to_pylist() == [Decimal("1.50"), Decimal("22.25"), Decimal("100.00")]


def test_partitions_of_different_types_are_refused_with_the_position() -> None:
    parts = [dask.delayed(pd.DataFrame)({"v": [value]}) for value in (1, "x")]
    frame = dd.from_delayed(parts, meta=pd.DataFrame({"v": [1]}), verify_meta=False)
    with pytest.raises(
        pg.errors.InvalidArgumentError,
        match=r"those above have `v` Int64.*position: \(1, 0\)\)\n.*one type in the whole frame",
    ):
        pg.from_dask(frame)
    mixed = dd.from_pandas(pd.DataFrame({"v": [1, "x"]}, dtype=object), npartitions=1)
    with pytest.raises(pg.errors.UnsupportedError, match="partition 0: .*one type, got int, str"):
        pg.from_dask(mixed)


@pytest.mark.parametrize("wrong", [pd.DataFrame({"a": [1]}), dask.delayed(5), [1]])
def test_what_is_no_frame_of_dask_is_refused(wrong: Any) -> None:
    with pytest.raises(
        pg.errors.InvalidArgumentError, match=r"must be a dask\.dataframe\.DataFrame or .*, got "
    ):
        pg.from_dask(wrong)


@pytest.mark.parametrize("npartitions", [1, 3])
def test_empty_partitions_and_frames(npartitions: int) -> None:
    frame = dd.from_pandas(pd.DataFrame({"a": range(6), "b": range(6)}), npartitions=npartitions)
    none = frame[frame.a > 100]
    grid = pg.from_dask(none, index="drop")
    assert (grid.shape, grid.tiling) == ((0, 2), (npartitions, 1))
    back = grid.to_dask()
    assert back.npartitions == npartitions
    assert back.divisions == (None,) * (npartitions + 1)
    assert list(back.compute().columns) == ["a", "b"]
    assert len(back) == 0


def test_an_empty_row_band_among_others() -> None:
    table = pa.table({"a": [1, 2, 3]})
    batches = [table[:2], table[:0], table[2:]]
    grid = pg.from_dask(
        dd.from_delayed([dask.delayed(pg.from_arrow(batch).to_pandas()) for batch in batches])
    )
    assert grid.cuts[0] == (0, 2, 2, 3)
    frame = grid.to_dask()
    assert frame.divisions == (None,) * 4
    assert [len(part) for part in dask.compute(*frame.to_delayed())] == [2, 0, 1]
    assert list(frame.compute().index) == [0, 1, 2]


def test_columns_in_bands_one_column_and_none() -> None:
    from partgrid._native import _from_parts  # noqa: PLC0415

    left, right = pa.table({"a": [1, 2]}), pa.table({"b": ["x", "y"], "c": [1.5, None]})
    grid = _from_parts([[left, right], [left, right]])
    assert grid.tiling == (2, 2)
    frame = grid.to_dask()
    assert list(frame.columns) == ["a", "b", "c"]
    assert frame.divisions == (0, 2, 3)
    assert frame["a"].sum().compute() == 6
    assert list(frame.loc[2:3, "b"].compute()) == ["x", "y"]


def test_a_grid_without_columns_keeps_its_rows() -> None:
    grid = pg.from_pandas(pd.DataFrame(index=range(3)))
    assert grid.shape == (3, 0)
    frame = grid.to_dask()
    assert len(frame.compute()) == 3
    assert pg.from_dask(frame).shape == (3, 0)


def test_a_lazy_grid_is_read_when_dask_computes(tmp_path: Path) -> None:
    table = pa.table({"a": list(range(1000)), "b": ["text"] * 1000})
    pg.from_arrow(table).write_parquet(tmp_path / "t")
    frame = pg.read_parquet(tmp_path / "t", lazy=True).to_dask()
    gone = pg.read_parquet(tmp_path / "t", lazy=True).to_dask()
    assert frame["a"].sum().compute() == sum(range(1000))
    (tmp_path / "t" / "part-00000.parquet").unlink()
    assert list(gone.columns) == ["a", "b"]
    with pytest.raises(pg.errors.PathNotFoundError):
        gone.compute()


def test_processes_get_the_data_with_the_graph() -> None:
    grid = pg.from_arrow(pa.table({"v": list(range(100)), "t": ["x"] * 100}))[10:20]
    with dask.config.set(scheduler="processes", num_workers=1):
        assert grid.to_dask()["v"].sum().compute() == sum(range(10, 20))
        back = pg.from_dask(grid.to_dask())
    assert back.to_arrow().equals(grid.to_arrow())


def test_rows_come_here_where_no_client_would_compute() -> None:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    frame = dd.from_pandas(pd.DataFrame({"v": range(4)}), npartitions=2)
    for where in (None, "here"):
        assert type(pg.from_dask(frame, where=where)) is pg.Grid
    with (
        distributed.Client(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ),
        dask.config.set(scheduler="threads"),
    ):
        # There is a client, and dask was told to compute otherwise since.
        assert type(pg.from_dask(frame)) is pg.Grid


def test_a_row_band_travels_without_the_rows_around_it() -> None:
    import pickle  # noqa: PLC0415

    from partgrid.engines.dask import RowBand, frame_of  # noqa: PLC0415

    grid = pg.from_arrow(pa.table({"v": np.arange(100_000.0)}))
    sent = pickle.dumps(RowBand(grid[500:600], 500, "name"))
    assert len(sent) < 2_000
    frame = frame_of(pickle.loads(sent))
    assert (frame.index.start, frame.index.stop) == (500, 600)
    assert list(frame["v"]) == list(range(500, 600))


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_a_distributed_client_gets_the_data_and_gives_it_back(processes: bool) -> None:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    table = pa.table({"v": list(range(100)), "t": pa.array(["x", None] * 50).dictionary_encode()})
    grid = pg.from_dask(dd.from_pandas(pg.from_arrow(table).to_pandas(), npartitions=3))
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=processes, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
        dask.config.set(scheduler=None),
    ):
        frame = grid.to_dask()
        assert frame.npartitions == 3
        assert frame.divisions == (*grid.cuts[0][:-1], 99)
        assert frame["v"].sum().compute() == sum(range(100))
        back = pg.from_dask(frame, where="here")
    assert alike(back.to_arrow(), grid.to_arrow())


def test_an_asynchronous_client_gets_the_data_with_the_graph() -> None:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    grid = pg.from_arrow(pa.table({"v": list(range(100))}))

    async def total() -> int:
        async with distributed.Client(
            n_workers=1, threads_per_worker=1, asynchronous=True, dashboard_address=None
        ) as client:
            return await client.compute(grid.to_dask()["v"].sum())

    with dask.config.set(scheduler=None):
        assert asyncio.run(total()) == sum(range(100))


def place(series: pd.Series) -> int:
    """Where the values of an Arrow-backed column lie."""
    return pa.array(series.array).buffers()[1].address


def alike(ours: pa.Table, wanted: pa.Table) -> bool:
    """Types and values, where NaN is NaN."""
    if ours.schema != wanted.schema:
        return False
    return all(
        [str(value) if isinstance(value, float) and math.isnan(value) else value for value in left]
        == [
            str(value) if isinstance(value, float) and math.isnan(value) else value
            for value in right
        ]
        for left, right in (
            (ours[name].to_pylist(), wanted[name].to_pylist()) for name in ours.column_names
        )
    )
