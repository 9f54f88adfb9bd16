"""Modin and grids: its cells become tiles and back, on Ray and on Dask; labels, types and values are kept, or refused.

Each engine runs in a program of its own, since Modin chooses once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("modin.pandas", reason="modin is not installed")

import modin.config
import modin.pandas as mpd
import numpy as np
import pandas as pd
import pyarrow as pa
from modin.distributed.dataframe.pandas import from_partitions, unwrap_partitions

import partgrid as pg

ROME = ZoneInfo("Europe/Rome")
VALUES: dict[str, Any] = {
    "ints": np.arange(5, dtype=np.int16),
    "masked": pd.array([1, None, 3, None, 2**62], "Int64"),
    "floats": np.array([1.5, np.nan, -0.0, np.inf, 2.0]),
    "nulls": pd.array([1.5, None, float("nan"), None, 2.0], pd.ArrowDtype(pa.float64())),
    "texts": ["a", None, "c", "", "e"],
    "categories": pd.Categorical(["b", "a", None, "b", "a"], ["b", "a"], ordered=True),
    "zoned": pd.DatetimeIndex([datetime(2020, 1, day, tzinfo=ROME) for day in range(1, 6)]),
    "decimals": [Decimal("1.10"), None, Decimal("3.333"), None, Decimal("100")],
    "lists": pd.array([[1], None, [], [2, None], [3]], pd.ArrowDtype(pa.list_(pa.int64()))),
}


@pytest.fixture(scope="module", params=["Ray", "Dask"], autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Small cells: two rows and two columns."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    name = request.param
    modin.config.Engine.put(name)
    modin.config.NPartitions.put(3)
    modin.config.MinRowPartitionSize.put(2)
    modin.config.MinColumnPartitionSize.put(2)
    if name == "Ray":
        ray = pytest.importorskip("ray", reason="ray is not installed")
        ray.init(num_cpus=2, object_store_memory=200_000_000, include_dashboard=False)
        yield name
        ray.shutdown()
        return
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster):
        yield name


@pytest.fixture(scope="module")
def whole() -> pa.Table:
    """What pandas alone would give."""
    return pg.from_pandas(pd.DataFrame(VALUES)).to_arrow()


def test_cells_become_tiles_and_values_are_kept(whole: pa.Table) -> None:
    frame = mpd.DataFrame(pd.DataFrame(VALUES))
    cells = unwrap_partitions(frame, axis=None)
    grid = pg.from_modin(frame)
    assert grid.tiling == (len(cells), len(cells[0])) == (3, 3)
    assert grid.cuts == ((0, 2, 4, 5), (0, 3, 6, 9))
    assert grid.to_arrow().schema == whole.schema
    assert repr(grid.to_arrow().to_pydict()) == repr(whole.to_pydict())


def test_tiles_become_cells_and_values_are_kept(whole: pa.Table) -> None:
    grid = pg.from_modin(mpd.DataFrame(pd.DataFrame(VALUES)))
    frame = grid.to_modin()
    assert isinstance(frame, mpd.DataFrame)
    assert len(unwrap_partitions(frame, axis=None)) == 3
    assert list(frame.index) == [0, 1, 2, 3, 4]
    assert repr(frame.modin.to_pandas().to_dict()) == repr(grid.to_pandas().to_dict())
    back = pg.from_modin(frame)
    assert back.cuts == grid.cuts
    assert back.to_arrow().schema.equals(whole.schema)
    assert repr(back.to_arrow().to_pydict()) == repr(whole.to_pydict())


def test_labels_are_right_wherever_they_are_used() -> None:
    grid = pg.from_modin(mpd.DataFrame({"a": range(7), "b": range(7), "c": range(7)}))
    frame = grid.to_modin()
    assert frame["c"].sum() == 21
    assert list(frame[frame.a > 4].index) == [5, 6]
    assert frame.loc[5, "b"] == 5
    assert list(mpd.concat([frame, frame], ignore_index=True).index) == list(range(14))


def test_work_of_modin_before_and_after_keeps_the_values() -> None:
    frame = mpd.DataFrame({"a": [3, 1, 2, 5, 4], "b": list("caedb"), "c": range(5)})
    done = frame.sort_values("a").reset_index(drop=True).rename(columns={"c": "z"})
    grid = pg.from_modin(done)
    assert grid.to_arrow().to_pydict() == {
        "a": [1, 2, 3, 4, 5],
        "b": list("aecbd"),
        "z": [1, 2, 0, 4, 3],
    }


def test_row_labels_are_named_kept_left_away_and_restored() -> None:
    labels = pd.Index(list("vwxyz"), name="k")
    frame = mpd.DataFrame(pd.DataFrame({name: range(5) for name in "abcde"}, index=labels))
    with pytest.raises(pg.errors.InvalidArgumentError, match='rows have labels.*\n.*index="keep"'):
        pg.from_modin(frame)
    grid = pg.from_modin(frame, index="keep")
    assert grid.columns == ["k", *"abcde"]
    assert list(grid.to_pandas(index="k").index) == list("vwxyz")
    assert pg.from_modin(frame, index="drop").columns == list("abcde")
    some = mpd.DataFrame({name: range(5) for name in "abcde"})
    some = some[some.a > 1]
    with pytest.raises(pg.errors.InvalidArgumentError, match="rows have labels"):
        pg.from_modin(some)
    assert pg.from_modin(some, index="keep").to_arrow()["index"].to_pylist() == [2, 3, 4]
    with pytest.raises(pg.errors.InvalidArgumentError, match='index must be "keep"'):
        pg.from_modin(frame, index="yes")


def test_a_label_called_as_a_column_of_another_cell_is_refused() -> None:
    frame = mpd.DataFrame({name: range(5) for name in "abcde"}).rename_axis("e")
    with pytest.raises(pg.errors.InvalidArgumentError, match="labels are called 'e'"):
        pg.from_modin(frame, index="keep")


def test_a_series_is_a_grid_of_one_column() -> None:
    frame = mpd.DataFrame({"a": range(5), "b": range(5)})
    assert pg.from_modin(frame["b"]).columns == ["b"]
    assert pg.from_modin(frame["b"].rename(None)).columns == ["column_0"]
    assert pg.from_modin(frame["b"]).tiling == (3, 1)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(),
        pd.DataFrame(index=range(3)),
        pd.DataFrame({"a": pd.Series([], dtype="float32")}),
        pd.DataFrame({"a": [1]}),
    ],
    ids=["nothing", "rows", "columns", "one value"],
)
def test_frames_without_rows_or_columns(frame: pd.DataFrame) -> None:
    grid = pg.from_modin(mpd.DataFrame(frame))
    assert grid.shape == frame.shape
    assert grid.to_arrow().schema == pg.from_pandas(frame).to_arrow().schema
    assert grid.to_modin().shape == frame.shape
    assert list(grid.to_modin().columns) == list(frame.columns)


def test_row_bands_without_rows_are_left_away() -> None:
    from partgrid._native import _from_parts  # noqa: PLC0415

    top, none = pa.table({"a": [1, 2]}), pa.table({"a": pa.array([], pa.int64())})
    grid = _from_parts([[none], [top], [none], [top]])
    assert grid.cuts[0] == (0, 0, 2, 2, 4)
    frame = grid.to_modin()
    assert len(unwrap_partitions(frame, axis=None)) == 2
    assert list(frame.index) == [0, 1, 2, 3]
    assert list(frame["a"]) == [1, 2, 1, 2]


def test_cells_of_nulls_only_take_the_type_of_those_below() -> None:
    column = pd.Series([None, None, None, None, "x"], dtype=object)
    assert pg.from_modin(mpd.DataFrame({"v": column})).to_arrow()["v"].to_pylist() == list(column)


def test_what_cannot_be_kept_is_refused_with_its_cell() -> None:
    frame = mpd.DataFrame(pd.DataFrame({"a": [1, 2, 3, "x"]}, dtype=object))
    with pytest.raises(
        pg.errors.UnsupportedError, match=r"partition \(1, 0\): .*one type, got int, str"
    ):
        pg.from_modin(frame)
    numbers = mpd.DataFrame({"a": [1, 2, 3, 4]}).rename(columns={"a": 0})
    with pytest.raises(pg.errors.InvalidArgumentError, match="must be texts, got 0"):
        pg.from_modin(numbers)
    with pytest.raises(pg.errors.InvalidArgumentError, match=r"must be a modin\.pandas\.DataFrame"):
        pg.from_modin(pd.DataFrame({"a": [1]}))


def test_ray_of_this_machine_shares_its_memory(engine: str) -> None:
    if engine != "Ray":
        pytest.skip("the workers of Dask send copies")
    import ray  # noqa: PLC0415

    part = ray.put(pd.DataFrame({"v": np.arange(100_000.0)}))
    grid = pg.from_modin(from_partitions([[part]], axis=None))
    assert "plasma" in mapping(grid.to_arrow()["v"].chunk(0).buffers()[1].address)
    numbers = pa.array(np.arange(100_000.0))
    assert "plasma" not in mapping(numbers.buffers()[1].address)


@pytest.mark.parametrize("name", ["ray", "dask"])
def test_modin_starts_its_engine_for_the_first_frame(name: str, engine: str) -> None:
    if name != engine.lower():
        pytest.skip("once for each engine")
    code = (
        "import pyarrow as pa, partgrid as pg\n"
        "if __name__ == '__main__':\n"
        "    print(pg.from_arrow(pa.table({'a': [1, 2]})).to_modin()['a'].sum())\n"
    )
    memory = {"ray": "200000000", "dask": "4000000000"}[name]
    wishes = {"MODIN_ENGINE": name, "MODIN_CPUS": "2", "MODIN_MEMORY": memory}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | wishes, capture_output=True, check=False
    )
    assert done.stdout.decode().split()[-1:] == ["3"], done.stderr.decode()


def test_other_engines_are_refused_with_the_remedy() -> None:
    engine = modin.config.Engine.get()
    grid = pg.from_modin(mpd.DataFrame({"a": [1]}))
    try:
        modin.config.Engine.put("Python")
        with pytest.raises(pg.errors.UnsupportedError, match=r"Ray and Dask of Modin, got Python"):
            grid.to_modin()
    finally:
        modin.config.Engine.put(engine)


def mapping(address: int) -> str:
    """The file that lies at an address of this process, or nothing."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, _, end = line.split()[0].partition("-")
        if int(start, 16) <= address < int(end, 16):
            return line
    return ""
