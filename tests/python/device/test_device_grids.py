"""Grids of tiles on devices: names of columns that come without them, which rows are copied, and what is counted of it.

Memory of the device here faults when the host touches it.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from devices import Faulting
from partgrid import errors
from structs import (
    CPU,
    Counted,
    DeviceArray,
    Schema,
    array_struct,
    device_struct,
    produce,
    taken,
)

TABLE = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]})


# Columns without names


def without_names(*types: pa.DataType) -> Counted:
    """A schema as pylibcudf fills it."""
    struct = Schema()
    pa.schema([pa.field("", kind) for kind in types])._export_to_c(ctypes.addressof(struct))
    return Counted(struct)


NAMELESS = (pa.int64(), pa.string())


def producer(method: str, array: ctypes.Structure) -> tuple[Any, list[Counted]]:
    """An object with one method that gives an array without names, and what of it is released."""
    pair = [without_names(*NAMELESS), Counted(array)]
    source = produce(method, tuple(each.capsule for each in pair))
    for each in pair:
        del each.capsule
    return source, pair


def on_device() -> ctypes.Structure:
    """An array in the memory of the driver."""
    _, array = pg.from_arrow(TABLE).to("kDLExtDev:2").tile(0).__arrow_c_device_array__()
    return taken(array, DeviceArray)


ARRAYS: dict[str, tuple[str, Callable[[], ctypes.Structure]]] = {
    "host": ("__arrow_c_array__", array_struct),
    "device array of the host": ("__arrow_c_device_array__", lambda: device_struct(CPU)),
    "pinned": ("__arrow_c_device_array__", lambda: device_struct(3)),
    "device": ("__arrow_c_device_array__", on_device),
}


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("names", [None, ["n", "t"]])
@pytest.mark.parametrize("where", ARRAYS)
def test_columns_without_names_are_numbered_or_get_those_that_are_given(
    where: str, names: list[str] | None
) -> None:
    method, make = ARRAYS[where]
    source, pair = producer(method, make())
    grid = pg.from_arrow(source, names)
    expected = names or ["column_0", "column_1"]
    assert grid.tile(0).columns == expected
    assert grid.tile(0).column(expected[0]).shape == (3,)
    found = grid.to("kDLCPU").to_arrow()
    assert found.to_pydict() == dict(zip(expected, TABLE.to_pydict().values(), strict=True))
    sums = grid.sql(f"SELECT sum({expected[0]}) AS s FROM self").to_arrow()
    assert sums["s"].to_pylist() == [6]
    # What is handed on has the names too.
    again = pg.from_arrow(grid.tile(0))
    assert (again.tile(0).columns, again.shape) == (expected, (3, 2))
    del source, grid, again, found
    gc.collect()
    assert [each.count for each in pair] == [1, 1]


def test_columns_of_frames_without_names_are_numbered_too() -> None:
    columns = TABLE.columns
    unnamed = pa.table(columns, names=["", ""])
    assert pg.from_arrow(unnamed).to_arrow().column_names == ["column_0", "column_1"]
    found = pg.sql("SELECT column_1 FROM t WHERE column_0 = 3", t=unnamed).to_arrow()
    assert found.to_pydict() == {"column_1": ["z"]}
    # Whoever names one column means it.
    half = pg.from_arrow(pa.table(columns, names=["a", ""]))
    assert half.to_arrow().column_names == ["a", ""]
    metadata = {b"about": b"flights"}
    given = pg.from_arrow(TABLE.replace_schema_metadata(metadata), names=["x", "y"]).to_arrow()
    assert (given.column_names, given.schema.metadata) == (["x", "y"], metadata)
    twice = pa.table(columns, names=["a", "a"])
    assert pg.from_arrow(twice, names=["a", "b"]).to_arrow().equals(TABLE)


def test_names_that_do_not_fit_are_refused() -> None:
    for names, text in [
        (["a"], "one name for each of the 2 columns, got 1"),
        (["a", "b", "c"], "one name for each of the 2 columns, got 3"),
        (["a", "a"], "must be distinct"),
        (5, "names must be"),
    ]:
        with pytest.raises(errors.InvalidArgumentError, match=text):
            pg.from_arrow(TABLE, names)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="must be distinct"):
        pg.from_arrow(pa.table(TABLE.columns, names=["a", "a"]))
    grid = pg.from_arrow(TABLE)
    with pytest.raises(errors.UnsupportedError, match="keep their names") as caught:
        pg.from_arrow(grid, names=["x", "y"])
    assert "SELECT a AS b FROM self" in str(caught.value)
    source, pair = producer("__arrow_c_device_array__", device_struct(2))
    with pytest.raises(errors.InvalidArgumentError, match="got 1"):
        pg.from_arrow(source, names=["a"])
    del source
    gc.collect()
    assert [each.count for each in pair] == [1, 1]


# What is copied


def numbers(rows: int = 1000) -> pa.Table:
    return pa.table({"a": np.arange(rows), "b": np.arange(rows), "t": ["x" * 100] * rows})


def test_what_sql_copies_is_counted_as_of_a_device(driver: Faulting) -> None:
    there = pg.from_arrow(numbers()).to("kDLExtDev:0")
    for grid, rows in ((there, 1000), (there[10:20], 10)):
        before = driver.read_bytes
        result = grid.sql("SELECT sum(a) AS s FROM self").collect()
        metrics = result.metrics
        assert metrics is not None
        copied = 8 * rows
        assert list(metrics.groups) == ["device"]
        group = metrics.groups["device"]
        assert (group["read_tiles"], group["rows"]) == (1, rows)
        assert (group["bytes"], group["copied_bytes"]) == (copied, copied)
        assert driver.read_bytes - before == copied


def test_of_some_rows_the_others_are_not_copied(driver: Faulting) -> None:
    there = pg.from_arrow(numbers()).to("kDLExtDev:1")
    part = there[10:20]

    def read(copy: Callable[[], object]) -> int:
        before = driver.read_bytes
        copy()
        return driver.read_bytes - before

    assert read(lambda: part[["a"]].to("kDLCPU")) == 80
    assert read(lambda: part.tile(0).column("a").to("kDLCPU")) == 80
    # One offset more than texts.
    assert read(lambda: part[["t"]].to("kDLCPU")) == 11 * 4 + 10 * 100
    assert read(lambda: part[["a"]].to("kDLExtDev:2")) == 80
    assert read(lambda: np.from_dlpack(part.tile(0).column("b"), device="cpu")) == 80
    assert read(lambda: there[5:5].to("kDLCPU")) == 0
    assert part.to("kDLCPU").to_arrow().equals(numbers().slice(10, 10))


def test_a_storage_of_a_tile_on_a_device_is_a_copy_on_the_host(driver: Faulting) -> None:
    there = pg.from_arrow(numbers().select(["a", "b"])).to("kDLExtDev:0")
    with pytest.raises(errors.UnsupportedError, match="dense"):
        there.tile(0).storage()
    storage = there[["b"]].tile(0).storage()
    assert (storage.device, storage.is_frozen) == (None, True)
    assert np.asarray(storage)[:, 0].tolist() == list(range(1000))
    assert driver.buffers


def test_a_file_copies_each_tile_once(driver: Faulting, tmp_path: Path) -> None:
    ours = pa.Table.from_batches(numbers().select(["a", "b"]).to_batches(max_chunksize=250))
    there = pg.from_arrow(ours).to("kDLExtDev:0")
    assert len(there.tiles) == 4
    there.write_parquet(tmp_path / "out")
    assert driver.read_bytes == 16_000
    assert pq.read_table(tmp_path / "out").sort_by("a").equals(ours.combine_chunks())


def test_a_table_that_is_read_twice_is_copied_for_each_reading(driver: Faulting) -> None:
    there = pg.from_arrow(numbers()).to("kDLExtDev:0")
    driver.read_bytes = 0
    joined = there.sql("SELECT count(*) AS c FROM self x JOIN self y ON x.a = y.a")
    assert joined.to_arrow()["c"].to_pylist() == [1000]
    assert driver.read_bytes == 16_000
