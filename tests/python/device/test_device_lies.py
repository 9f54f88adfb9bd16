"""Device arrays that are larger than memory, or that say of themselves what cannot be; engines that give something else; what consumers are told then."""

from __future__ import annotations

import ctypes
import gc
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from devices import Faulting
from partgrid import errors
from structs import Array, Counted, DeviceArray, device_struct, produce, schema_struct

HUGE = 2**62
# Of eight bytes each, more than any machine has, and less than there are addresses.
MORE_THAN_MEMORY = 2**45


@pytest.fixture
def driver() -> Faulting:
    device = Faulting()
    pg.register_copy_engine("kDLExtDev", device)
    return device


def told(
    change: Callable[[DeviceArray, list[Array]], None], columns: pa.Table | None = None
) -> Any:
    """A grid of one tile on the device, whose structs say something else than they hold."""
    given = pa.table({"a": [1, 2, 3]}) if columns is None else columns
    there = pg.from_arrow(given).to("kDLExtDev:0")
    schema, array = there.tile(0).__arrow_c_device_array__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    struct = DeviceArray.from_address(pointer(array, b"arrow_device_array"))
    places = (ctypes.c_void_p * struct.array.n_children).from_address(struct.array.children)
    change(struct, [Array.from_address(place) for place in places])
    return pg.from_arrow(Given((schema, array)))


class Given:
    def __init__(self, pair: Any) -> None:
        self.pair = pair

    def __arrow_c_device_array__(self, requested_schema: Any = None, **_kwargs: Any) -> Any:
        return self.pair


def lengths(length: int) -> Callable[[DeviceArray, list[Array]], None]:
    """All lengths."""

    def change(struct: DeviceArray, columns: list[Array]) -> None:
        struct.array.length = length
        for column in columns:
            column.length = length

    return change


@pytest.mark.parametrize(
    "copy",
    [
        lambda grid: grid.to("kDLCPU"),
        lambda grid: grid.sql("SELECT sum(a) FROM self").to_arrow(),
        lambda grid: grid.tile(0).column("a").to("kDLCPU"),
        lambda grid: grid.tile(0).column("a").__dlpack__(copy=True, max_version=(1, 1)),
        lambda grid: grid.write_parquet("never", overwrite=True),
    ],
)
@pytest.mark.usefixtures("driver")
def test_what_the_host_has_no_room_for_is_refused(
    copy: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    grid = told(lengths(MORE_THAN_MEMORY))
    assert grid.shape == (MORE_THAN_MEMORY, 1)
    with pytest.raises((errors.ResourcesExhaustedError, BufferError), match="of memory that may"):
        copy(grid)


@pytest.mark.usefixtures("driver")
def test_lengths_beyond_all_addresses_are_refused_and_shown() -> None:
    grid = told(lengths(HUGE))
    assert str(HUGE) in repr(grid).replace(",", "")
    assert grid.nbytes == 0
    for work in (
        lambda: grid.to("kDLCPU"),
        lambda: grid.sql("SELECT a FROM self LIMIT 1").to_arrow(),
    ):
        with pytest.raises(errors.InvalidDataError, match="smaller than the address space"):
            work()

    def only_rows(struct: DeviceArray, _columns: list[Array]) -> None:
        struct.array.length = HUGE

    with pytest.raises(errors.InvalidDataError, match="a child must hold at least"):
        told(only_rows)

    def offsets(_struct: DeviceArray, columns: list[Array]) -> None:
        columns[0].offset = HUGE

    assert told(offsets).nbytes == 0


@pytest.mark.parametrize("number", [2**31, 2**40, -2, -(2**40)])
@pytest.mark.usefixtures("driver")
def test_numbers_of_devices_that_are_none_are_refused(number: int) -> None:
    def change(struct: DeviceArray, _columns: list[Array]) -> None:
        struct.device_id = number

    with pytest.raises(errors.InvalidDataError, match=f"the number of a device.*got {number}"):
        told(change)


@pytest.mark.parametrize("error", [ValueError("hot"), KeyboardInterrupt(), MemoryError("full")])
def test_what_an_engine_raises_is_raised_as_it_is_in_tensors_too(error: BaseException) -> None:
    class Raising(Faulting):
        def read(self, *_arguments: int) -> bytes:
            raise error

    pg.register_copy_engine("kDLExtDev", Raising())
    column = pg.from_arrow(pa.table({"a": [1, 2]})).to("kDLExtDev:0").tile(0).column("a")
    with pytest.raises(type(error)) as caught:
        np.from_dlpack(column, device="cpu")
    assert caught.value is error


@pytest.mark.parametrize("made", [None, 1, (1, 2, 3), (0, None), (-1, None), ("a", None)])
def test_what_an_engine_must_give_is_said(made: Any) -> None:
    class Wrong(Faulting):
        def write(self, *_arguments: Any) -> Any:
            return made

    pg.register_copy_engine("kDLExtDev", Wrong())
    with pytest.raises(errors.InvalidDataError, match="the engine's write must give a handle"):
        pg.from_arrow(pa.table({"a": [1]})).to("kDLExtDev:0")


def test_what_an_engine_reads_must_be_bytes() -> None:
    class Wrong(Faulting):
        def read(self, *_arguments: int) -> Any:
            return None

    pg.register_copy_engine("kDLExtDev", Wrong())
    grid = pg.from_arrow(pa.table({"a": [1]})).to("kDLExtDev:0")
    with pytest.raises(errors.InvalidDataError, match="the engine's read must give bytes, got Non"):
        grid.to("kDLCPU")


@pytest.mark.parametrize("pair", [None, [1], (1, 2, 3)])
def test_what_a_producer_must_give_is_said(pair: Any) -> None:
    with pytest.raises(errors.ProtocolError, match="__arrow_c_device_array__ must return two"):
        pg.from_arrow(Given(pair))


@pytest.mark.usefixtures("driver")
def test_tiles_on_devices_are_not_taken_for_those_of_the_host() -> None:
    there = pg.from_arrow(pa.table({"a": [1, 2], "t": ["x", "y"]})).to("kDLExtDev:0")
    tile = there.tile(0)
    part = there.__partitioned__
    entry = next(iter(part["partitions"].values()))
    for work in (tile.to_arrow, tile.to_pandas, lambda: part["get"](entry["data"])):
        with pytest.raises(errors.NotLocalError, match=r'hint: .*to\("kDLCPU"\)'):
            work()
    # Also with the number that nobody needs.
    assert there.to("kDLCPU:0").to_arrow()["a"].to_pylist() == [1, 2]
    assert tile.to("kDLCPU:0").to_arrow()["t"].to_pylist() == ["x", "y"]
    with pytest.raises(TypeError, match=r'hint: copy its tile: tile.to\("kDLCPU"\)'):
        np.asarray(tile.column("t"))


def test_pinned_memory_is_there_already_and_nobody_copies_to_it() -> None:
    given = [Counted(schema_struct()), Counted(device_struct(3))]
    pair = tuple(counted.capsule for counted in given)
    grid = pg.from_arrow(produce("__arrow_c_device_array__", pair))
    own = grid.to_arrow()["b"].chunk(0).buffers()[1].address
    for device in ("kDLCUDAHost:0", "kDLCPU"):
        there = grid.to(device).to_arrow()
        assert there["b"].chunk(0).buffers()[1].address == own, device
    with pytest.raises(errors.UnsupportedError, match="its driver makes such memory"):
        pg.from_arrow(pa.table({"a": [1]})).to("kDLCUDAHost:0")


def test_a_handle_of_a_tile_on_a_device_says_so_in_other_processes(driver: Faulting) -> None:
    there = pg.from_arrow(pa.table({"a": [1, 2]})).to("kDLExtDev:0")
    text = """
import pickle, sys, partgrid as pg
grid = pickle.load(sys.stdin.buffer)
assert grid.tile(0).location[0][2] == "kDLExtDev:0", grid.tile(0).location
for work in (grid.to_arrow, lambda: grid.to("kDLCPU"), lambda: grid.sql("SELECT a FROM self").to_arrow()):
    try:
        work()
    except pg.errors.NotLocalError as error:
        assert "let that process copy the grid to its host" in str(error), error
    else:
        raise AssertionError("read")
"""
    ran = subprocess.run(
        [sys.executable, "-c", text],
        check=False,
        input=pickle.dumps(there),
        capture_output=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    # A server copies for whoever asks it.
    with pg.Server({"g": there}) as server:
        grid = pg.connect(server.uri).grid("g")
        assert grid.to("kDLCPU").to_arrow()["a"].to_pylist() == [1, 2]
        assert grid.sql("SELECT sum(a) AS s FROM self").to_arrow()["s"].to_pylist() == [3]
    assert driver.buffers


def test_a_buffer_in_a_cycle_is_collected() -> None:
    class Bytes(bytearray):
        held: Any

    for view in (pg.buffer.get_buffer, memoryview):
        value = Bytes(b"abc")
        value.held = view(value)
        alive = weakref.ref(value)
        del value
        gc.collect()
        assert alive() is None, view


def test_whoever_fails_to_make_a_grid_of_a_storage_leaves_that_of_another_frozen() -> None:
    names = [f"c{number}" for number in range(2000)]
    for turn in range(30):
        storage = pg.storage.ones((4, 2000), layout=(1, 0))
        made: list[pg.Grid] = []
        begin = threading.Barrier(2)

        def go(names: list[str] | None) -> None:
            begin.wait()  # noqa: B023 - runs within this turn
            try:
                made.append(pg.from_storage(storage, names=names))  # noqa: B023
            except errors.InvalidArgumentError:
                assert names is not None

        threads = [threading.Thread(target=go, args=(given,)) for given in (names[:-1], None)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 1, turn
        assert storage.is_frozen
        with pytest.raises(ValueError, match="read-only"):
            np.asarray(storage)[0, 0] = 5.0


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype("i8,f4"),
        np.dtype([("a", "f8"), ("b", "i4")]),
        np.dtype([("a", "u1"), ("b", "f8"), ("c", "u2")], align=True),
        np.dtype("V5"),
        np.dtype([("t", "M8[s]"), ("x", "f4")]),
    ],
)
def test_records_are_read_as_they_lie(dtype: np.dtype[Any]) -> None:
    storage = pg.storage.zeros((3,), dtype)
    array = np.asarray(storage)
    assert array.dtype == dtype
    assert array.shape == (3,)
    assert pg.storage.as_numpy(storage).dtype == dtype
    if dtype.names:
        name = dtype.names[-1]
        array[name][1] = 7
        assert storage[1][name] == 7
        assert pickle.loads(pickle.dumps(storage))[1][name] == 7


def test_gaps_in_records_are_fields_of_their_own() -> None:
    given = {"names": ["a", "b"], "formats": ["f8", "i4"], "offsets": [0, 9], "itemsize": 24}
    storage = pg.storage.zeros((3,), np.dtype(given))
    assert storage.dtype == np.dtype(given)
    array = np.asarray(storage)
    # As numpy's array interface has them.
    assert array.dtype.names == ("a", "f1", "b", "f3")
    array["b"][1] = 7
    assert storage[1]["b"] == 7
    assert array.strides == (24,)
