"""Tiles in the memory of devices, with a device that is written in Python: handles into a dict."""

import gc
import itertools
from typing import Any

import nanoarrow.device
import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from devices import has_cuda
from partgrid import errors
from type_samples import others, samples


class Cards:
    """A device. Each buffer has a handle that is no address of the host."""

    def __init__(self) -> None:
        self.buffers: dict[int, bytes] = {}
        self.handles = itertools.count(0x10)
        self.read_bytes = 0
        self.waited: list[tuple[int, int]] = []

    def read(self, ordinal: int, handle: int, start: int, nbytes: int) -> memoryview:
        assert ordinal in range(4)
        self.read_bytes += nbytes
        return memoryview(self.buffers[handle])[start : start + nbytes]

    def write(self, _ordinal: int, data: bytes) -> tuple[int, "Owner"]:
        handle = next(self.handles)
        self.buffers[handle] = data
        return handle, Owner(self.buffers, handle)

    def wait(self, ordinal: int, event: int) -> None:
        self.waited.append((ordinal, event))


class Owner:
    """Frees a buffer with itself."""

    def __init__(self, buffers: dict[int, bytes], handle: int) -> None:
        self.buffers, self.handle = buffers, handle

    def __del__(self) -> None:
        del self.buffers[self.handle]


@pytest.fixture
def cards() -> Cards:
    device = Cards()
    pg.register_copy_engine("kDLExtDev", device)
    return device


def table() -> pa.Table:
    return pa.table({"n": pa.array([1, None, 3], pa.int64()), "t": ["a", "bc", None]})


SAMPLES = samples() | others()


@pytest.mark.parametrize("name", SAMPLES)
def test_every_type_goes_there_and_comes_back(cards: Cards, name: str) -> None:
    column = SAMPLES[name]
    ours = pa.table({"c": column})
    there = pg.from_arrow(ours).to("kDLExtDev:1")
    assert there.tile(0).location[0][2] == "kDLExtDev:1"
    again = pg.from_arrow(there.tile(0))
    assert again.tile(0).location[0][2] == "kDLExtDev:1"
    back = again.to("kDLCPU").to_arrow()
    assert back.equals(pg.from_arrow(ours).to_arrow())
    del there, again, back
    gc.collect()
    assert not cards.buffers


def test_sql_copies_only_the_columns_it_needs(cards: Cards) -> None:
    numbers = pa.array(range(1000), pa.int64())
    there = pg.from_arrow(pa.table({"a": numbers, "b": numbers, "t": ["x" * 100] * 1000})).to(
        "kDLExtDev:0"
    )
    cards.read_bytes = 0
    assert there.sql("SELECT sum(a) AS s FROM self WHERE a >= 500").to_arrow()["s"].to_pylist() == [
        374_750
    ]
    assert cards.read_bytes == 8000
    assert there.tile(0).nbytes >= 16_000


def test_what_wants_memory_of_the_host_is_refused_with_the_remedy(cards: Cards) -> None:
    there = pg.from_arrow(table()).to("kDLExtDev:2")
    tile = there.tile(0)
    for read in (
        there.to_arrow,
        there.to_pandas,
        tile.__arrow_c_array__,
        lambda: pa.record_batch(there[["n"]].to_arrow()),
    ):
        with pytest.raises(errors.NotLocalError, match="in the memory of kDLExtDev:2") as caught:
            read()
        assert 'to("kDLCPU")' in str(caught.value)
    assert cards.read_bytes == 0
    with pytest.raises(errors.UnsupportedError, match="without requested_schema"):
        tile.__arrow_c_device_array__(
            pa.schema([("n", pa.int32()), ("t", pa.string())]).__arrow_c_schema__()
        )
    assert "kDLExtDev:2" in repr(tile)
    assert tile.to("kDLCPU").to_pandas().equals(pg.from_arrow(table()).to_pandas())
    assert (tile.to("kDLCPU").position, tile.to("kDLExtDev:2").location) == (
        tile.position,
        tile.location,
    )


def test_nanoarrow_takes_it_and_pyarrow_refuses_it_and_both_release_it_once(cards: Cards) -> None:
    tile = pg.from_arrow(table()).to("kDLExtDev:3").tile(0)
    taken = nanoarrow.device.c_device_array(tile)
    assert (taken.device_type_id, taken.device_id, taken.array.length) == (12, 3, 3)
    del tile
    gc.collect()
    assert cards.buffers
    back = pg.from_arrow(taken)
    del taken
    assert back.to("kDLCPU").to_arrow().equals(table())
    with pytest.raises(KeyError, match="12"):
        pa.record_batch(back.tile(0))
    pair: Any = back.tile(0).__arrow_c_device_array__()
    del back
    gc.collect()
    assert cards.buffers, "the capsule keeps it"
    del pair
    gc.collect()
    assert not cards.buffers


def test_views_and_streams_of_a_device_share_its_memory(cards: Cards) -> None:
    ours = pg.from_arrow(pa.concat_tables([table(), table()]))
    there = ours.to("kDLExtDev:0")
    count = len(cards.buffers)
    part = there[1:5, ["t"]]
    streamed = pg.from_arrow(_OnlyDeviceStream(part))
    assert len(cards.buffers) == count
    assert streamed.to("kDLCPU").to_arrow().to_pylist() == ours[1:5, ["t"]].to_arrow().to_pylist()
    assert streamed.tile(0).location[0][2] == "kDLExtDev:0"


class _OnlyDeviceStream:
    """Hides all methods but one."""

    def __init__(self, grid: pg.Grid) -> None:
        self.grid = grid

    def __arrow_c_device_stream__(self, requested_schema: Any = None, **kwargs: Any) -> Any:
        return self.grid.__arrow_c_device_stream__(requested_schema, **kwargs)


def test_wrong_devices_and_engines_are_refused(cards: Cards) -> None:
    grid = pg.from_arrow(table())
    with pytest.raises(
        errors.InvalidArgumentError, match="device must be a device such as"
    ) as caught:
        grid.to("cuda:1")
    assert "hint: device='kDLCUDA:1'" in str(caught.value)
    with pytest.raises(errors.UnsupportedError, match="nothing copies to and from kDLMetal:0"):
        grid.to("kDLMetal:0")
    with pytest.raises(errors.InvalidArgumentError, match="read without an engine"):
        pg.register_copy_engine("kDLCPU", cards)
    with pytest.raises(errors.InvalidArgumentError, match="object has no read"):
        pg.register_copy_engine("kDLVPI", object())
    assert grid.to("kDLCPU").to_arrow().equals(table())


def test_errors_of_an_engine_are_raised_as_they_are() -> None:
    class Broken(Cards):
        def write(self, _ordinal: int, _data: bytes) -> tuple[int, Owner]:
            raise OSError("the card is hot")

    class Short(Cards):
        def read(self, ordinal: int, handle: int, start: int, nbytes: int) -> memoryview:
            return super().read(ordinal, handle, start, nbytes)[:-1]

    grid = pg.from_arrow(pa.table({"n": np.arange(5)}))
    pg.register_copy_engine("kDLHexagon", Broken())
    with pytest.raises(OSError, match="the card is hot"):
        grid.to("kDLHexagon:0")
    pg.register_copy_engine("kDLWebGPU", Short())
    there = grid.to("kDLWebGPU:0")
    with pytest.raises(errors.InvalidDataError, match="read must give 40 bytes, got 39"):
        there.to("kDLCPU")


@pytest.mark.skipif(has_cuda(), reason="there is a driver of CUDA on this machine")
def test_cuda_without_a_driver_says_so() -> None:
    with pytest.raises(errors.NotFoundError, match="no CUDA driver") as caught:
        pg.from_arrow(table()).to("kDLCUDA:0")
    assert "install the NVIDIA driver" in str(caught.value)
