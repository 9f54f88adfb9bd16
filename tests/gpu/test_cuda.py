"""Tiles on a GPU of NVIDIA: values, contexts, events, and that nothing is copied that need not be."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from driver import Driver
from partgrid import errors
from structs import Counted, DeviceArray, DeviceStream, Schema, produce, taken
from type_samples import others, samples

SAMPLES = samples() | others()


def table(rows: int = 1000) -> pa.Table:
    return pa.table({"n": np.arange(rows), "t": [f"row {row}" for row in range(rows)]})


@pytest.mark.without_gpu
def test_without_a_driver_the_error_says_what_to_do() -> None:
    with pytest.raises(errors.NotFoundError, match="CUDA driver") as caught:
        pg.from_arrow(table()).to("kDLCUDA:0")
    # There may be a driver that finds no GPU.
    assert "install the NVIDIA driver" in str(caught.value) or "failed" in str(caught.value)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_type_goes_to_the_gpu_and_comes_back(name: str) -> None:
    ours = pg.from_arrow(pa.table({"c": SAMPLES[name]}))
    there = ours.to("kDLCUDA:0")
    assert there.tile(0).location[0][2] == "kDLCUDA:0"
    assert there.to("kDLCPU").to_arrow().equals(ours.to_arrow())
    assert there[2:7].to("kDLCPU").to_arrow().equals(ours[2:7].to_arrow())
    again = pg.from_arrow(there.tile(0))
    assert again.to("kDLCPU").to_arrow().equals(ours.to_arrow())


def cell(first: int, rows: int, band: int) -> pa.Table:
    numbers = [None if row % 7 == band else row for row in range(first, first + rows)]
    texts = [f"{band} {row}" for row in range(first, first + rows)]
    return pa.table({f"n{band}": pa.array(numbers, pa.int64()), f"t{band}": texts})


def test_a_device_stream_of_two_row_and_two_column_bands_comes_back() -> None:
    cells = [[cell(first, rows, band) for band in (0, 1)] for first, rows in ((0, 40), (40, 60))]
    ours = pg._native._from_parts(cells)
    there = ours.to("kDLCUDA:0")
    assert there.tiling == (2, 2)
    for grid in (there, there[30:70, ["t1", "n0"]]):
        given = Counted(taken(grid.__arrow_c_device_stream__(), DeviceStream))
        again = pg.from_arrow(produce("__arrow_c_device_stream__", given.capsule))
        assert [tile.location[0][2] for tile in again.tiles] == ["kDLCUDA:0"] * 2
        found = again.to("kDLCPU").to_arrow().to_pylist()
        assert found == grid.to("kDLCPU").to_arrow().to_pylist()
        del given.capsule
        gc.collect()
        assert given.count == 1
    assert there.to("kDLCPU").to_arrow().equals(ours.to_arrow())


def test_the_memory_is_that_of_the_gpu() -> None:
    column = pg.from_arrow(table()).to("kDLCUDA:0").tile(0).column("n")
    with Driver() as driver:
        assert driver.is_on_device(column.address)
        out = np.empty(1000, "i8")
        driver.to_host(out.ctypes.data, column.address, out.nbytes)
        assert out.tolist() == list(range(1000))


@pytest.mark.parametrize("value", [0.0, 1.0, -2.25])
@pytest.mark.parametrize("shape", [(7,), (64, 33, 5), (3_000_000,)])
def test_storages_are_made_and_filled_on_the_gpu(shape: tuple[int, ...], value: float) -> None:
    storage = pg.storage.full(shape, value, device="gpu", alignment_size=128)
    assert storage.address % 128 == 0
    assert storage.__dlpack_device__() == (2, 0)
    with Driver() as driver:
        assert driver.is_on_device(storage.address)
        # In C order, and nothing lies between elements of one dimension.
        rows = [(storage.address, shape[-1])] if len(shape) == 1 else []
        first, second = (*shape, 0)[:2]
        for i in range(first if not rows else 0):
            for j in range(second):
                place = storage.address + i * storage.strides[0] + j * storage.strides[1]
                rows.append((place, shape[-1]))
        for place, count in rows:
            out = np.empty(count)
            driver.to_host(out.ctypes.data, place, out.nbytes)
            assert (out == value).all()


def test_sql_reads_what_is_on_the_gpu() -> None:
    there = pg.from_arrow(table()).to("kDLCUDA:0")
    found = there.sql("SELECT sum(n) AS s, max(t) AS t FROM self WHERE n >= 500").to_arrow()
    assert found.to_pylist() == [{"s": 374_750, "t": "row 999"}]


def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(errors.NotFoundError, match="no kDLCUDA:99: this machine has"):
        pg.from_arrow(table()).to("kDLCUDA:99")


def test_the_context_of_the_thread_stays() -> None:
    with Driver() as driver:
        driver.call("cuCtxSetCurrent", None)
        there = pg.from_arrow(table()).to("kDLCUDA:0")
        assert driver.current() == 0
        driver.call("cuCtxSetCurrent", ctypes.c_void_p(driver.context))
        there.to("kDLCPU")
        del there
        gc.collect()
        assert driver.current() == driver.context


def with_event(tile: pg.Tile, event: ctypes.c_void_p) -> pg.Grid:
    """The same memory as another library would give it, with an event."""
    schema, array = tile.__arrow_c_device_array__()
    struct = taken(array, DeviceArray)
    struct.sync_event = ctypes.addressof(event)
    pair = Counted(taken(schema, Schema)), Counted(struct)
    grid = pg.from_arrow(produce("__arrow_c_device_array__", tuple(each.capsule for each in pair)))
    for each in pair:
        del each.capsule
    return grid


READS: dict[str, Any] = {
    "copy to the host": lambda grid: grid.to("kDLCPU").to_arrow()["n"].to_pylist(),
    "SQL": lambda grid: grid.sql("SELECT n FROM self").to_arrow()["n"].to_pylist(),
    "column": lambda grid: memoryview(grid.tile(0).column("n").to("kDLCPU")).tolist(),
}


@pytest.mark.parametrize("how", READS)
def test_an_event_is_waited_for_before_the_memory_is_read(how: str) -> None:
    there = pg.from_arrow(pa.table({"n": np.zeros(1000, "i8")})).to("kDLCUDA:0")
    with Driver() as driver:
        stream = driver.stream()
        driver.write_late(there.tile(0).column("n").address, 7, 1000, stream)
        event = driver.event(stream)
        grid = with_event(there.tile(0), event)
        assert not driver.is_done(event), "nothing waits for an import"
        assert READS[how](grid) == [7] * 1000
        assert driver.is_done(event)


@pytest.mark.parametrize("how", ["DLPack", "__cuda_array_interface__"])
def test_consumers_without_events_get_memory_that_is_ready(how: str) -> None:
    there = pg.from_arrow(pa.table({"n": np.zeros(1000, "i8")})).to("kDLCUDA:0")
    with Driver() as driver:
        stream = driver.stream()
        driver.write_late(there.tile(0).column("n").address, 7, 1000, stream)
        event = driver.event(stream)
        column = with_event(there.tile(0), event).tile(0).column("n")
        column.__dlpack__(stream=-1, max_version=(1, 0))
        assert not driver.is_done(event), "-1 does not wait"
        if how == "DLPack":
            column.__dlpack__(stream=stream, max_version=(1, 0))
        else:
            _ = column.__cuda_array_interface__
        assert driver.is_done(event)


def test_who_knows_events_gets_them() -> None:
    there = pg.from_arrow(pa.table({"n": np.zeros(1000, "i8")})).to("kDLCUDA:0")
    with Driver() as driver:
        stream = driver.stream()
        driver.write_late(there.tile(0).column("n").address, 7, 1000, stream)
        event = driver.event(stream)
        column = with_event(there.tile(0), event).tile(0).column("n")
        with pg.buffer.get_buffer(column) as buffer:
            assert (buffer.device_info, buffer.sync_event) == ((2, 0), ctypes.addressof(event))
        assert not driver.is_done(event)
