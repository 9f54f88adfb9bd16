"""Every struct that crosses a capsule is released exactly once: imported, refused, or dropped unused; as consumer and as producer.

The producers here are made with ctypes and count. pyarrow fills their structs; the callback that it puts there is called by one that counts first.
"""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from structs import (
    BATCH,
    CPU,
    CUDA,
    KEPT,
    Array,
    Counted,
    DeviceArray,
    DeviceStream,
    Managed,
    Schema,
    Stream,
    Versioned,
    array_struct,
    device_stream_struct,
    device_struct,
    no_format,
    produce,
    release,
    released,
    schema_struct,
    stream_struct,
    taken,
    tensor_of,
    too_long,
)

ARRAYS: list[tuple[str, Callable[[], Schema], Callable[[], ctypes.Structure], type | None]] = [
    ("__arrow_c_array__", schema_struct, array_struct, None),
    ("__arrow_c_array__", no_format, array_struct, pg.PartgridError),
    ("__arrow_c_array__", schema_struct, too_long, pg.errors.InvalidDataError),
    ("__arrow_c_device_array__", schema_struct, device_struct, None),
    ("__arrow_c_device_array__", no_format, device_struct, pg.PartgridError),
    (
        "__arrow_c_device_array__",
        schema_struct,
        lambda: device_struct(CPU, 8),
        pg.PartgridError,
    ),
]


@pytest.mark.parametrize(("method", "schema", "array", "error"), ARRAYS)
def test_arrays_and_their_schemas(
    method: str, schema: Callable[[], Any], array: Callable[[], Any], error: type | None
) -> None:
    schema_given, array_given = Counted(schema()), Counted(array())
    source = produce(method, (schema_given.capsule, array_given.capsule))
    if error is None:
        grid = pg.from_arrow(source)
        assert grid.to_arrow().to_pydict() == BATCH.to_pydict()
        assert array_given.count == 0
        del grid
        gc.collect()
        assert array_given.count == 1
    else:
        with pytest.raises(error):
            pg.from_arrow(source)
    del source
    assert released(schema_given, array_given) == [1, 1]


def test_an_array_on_a_device_is_kept_as_long_as_its_grid() -> None:
    schema_given, array_given = Counted(schema_struct()), Counted(device_struct(CUDA))
    source = produce("__arrow_c_device_array__", (schema_given.capsule, array_given.capsule))
    grid = pg.from_arrow(source)
    assert grid.tile(0).location[0][2].startswith("kDLCUDA")
    with pytest.raises(pg.errors.NotLocalError, match="kDLCUDA"):
        grid.to_arrow()
    part = grid[1:3, ["b"]].tile(0)
    del grid, source
    assert released(schema_given) == [1]
    exported = part.__arrow_c_device_array__()
    del part
    gc.collect()
    assert array_given.count == 0
    del exported
    assert released(array_given) == [1]


@pytest.mark.parametrize("method", ["__arrow_c_array__", "__arrow_c_device_array__"])
def test_capsules_of_another_name_stay_their_producers(method: str) -> None:
    struct = device_struct if "device" in method else array_struct
    schema_given, array_given = Counted(schema_struct()), Counted(struct(), b"another")
    source = produce(method, (schema_given.capsule, array_given.capsule))
    with pytest.raises(pg.errors.ProtocolError, match="PyCapsule named"):
        pg.from_arrow(source)
    assert array_given.count == 0
    del source
    assert released(schema_given, array_given) == [1, 1]


def test_a_part_of_an_array_keeps_the_whole() -> None:
    schema_given, array_given = Counted(schema_struct()), Counted(array_struct())
    source = produce("__arrow_c_array__", (schema_given.capsule, array_given.capsule))
    part = pg.from_arrow(source)[1:3, ["b"]].to_arrow()
    gc.collect()
    assert array_given.count == 0
    assert part["b"].to_pylist() == [None, "z"]
    del part, source
    assert released(schema_given, array_given) == [1, 1]


def failing(struct: Any, where: str) -> Any:
    """The stream with a callback that fails."""
    fail = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: 5)
    KEPT.append(fail)
    setattr(struct, where, ctypes.cast(fail, ctypes.c_void_p).value)
    return struct


STREAMS: list[tuple[str, Callable[[], ctypes.Structure], type | None]] = [
    ("__arrow_c_stream__", stream_struct, None),
    ("__arrow_c_stream__", lambda: failing(stream_struct(), "get_schema"), pg.PartgridError),
    ("__arrow_c_stream__", lambda: failing(stream_struct(), "get_next"), pg.PartgridError),
    ("__arrow_c_device_stream__", device_stream_struct, None),
    (
        "__arrow_c_device_stream__",
        lambda: failing(device_stream_struct(), "get_next"),
        pg.PartgridError,
    ),
    # Its arrays say that they are on the CPU.
    ("__arrow_c_device_stream__", lambda: device_stream_struct(CUDA), pg.errors.InvalidDataError),
]


@pytest.mark.parametrize(("method", "stream", "error"), STREAMS)
def test_streams(method: str, stream: Callable[[], Any], error: type | None) -> None:
    given = Counted(stream())
    source = produce(method, given.capsule)
    if error is None:
        assert pg.from_arrow(source).shape == (6, 2)
        assert given.count == 1
    else:
        with pytest.raises(error):
            pg.from_arrow(source)
    del source
    assert released(given) == [1]


@pytest.mark.parametrize("wrong", [None, "names", "format"])
def test_a_requested_schema_stays_that_of_the_consumer(wrong: str | None) -> None:
    other = pa.record_batch({"z": [1]})
    struct = {None: schema_struct, "names": lambda: schema_struct(other), "format": no_format}[
        wrong
    ]()
    for name in ("__arrow_c_stream__", "__arrow_c_device_stream__"):
        given = Counted(
            struct if name == "__arrow_c_stream__" else schema_struct(other if wrong else BATCH)
        )
        export = getattr(pg.from_arrow(BATCH), name)
        if wrong is None:
            export(given.capsule)
        else:
            with pytest.raises(pg.PartgridError):
                export(given.capsule)
        assert given.count == 0
        assert released(given) == [1]


TENSORS: list[tuple[dict[str, int], type | None]] = [
    ({}, None),
    ({"device": CUDA}, pg.errors.NotLocalError),
    ({"ndim": 3}, pg.errors.InvalidArgumentError),
    ({"code": 5}, pg.errors.UnsupportedError),
]


@pytest.mark.parametrize("versioned", [False, True], ids=["legacy", "versioned"])
@pytest.mark.parametrize(("wishes", "error"), TENSORS)
def test_tensors(wishes: dict[str, int], error: type | None, versioned: bool) -> None:
    tensor = tensor_of(**wishes)
    given = Counted(Versioned(1, 0, None, None, 0, tensor) if versioned else Managed(tensor))
    source = produce("__dlpack__", given.capsule)
    if error is None:
        grid = pg.from_dlpack(source)
        assert grid.to_numpy().tolist() == [[float(row)] for row in range(6)]
        gc.collect()
        assert given.count == 0
        with pytest.raises(pg.errors.ProtocolError, match="nobody has used"):
            pg.from_dlpack(source)
        del grid
    else:
        with pytest.raises(error):
            pg.from_dlpack(source)
    gc.collect()
    assert given.count == 1
    del source
    assert released(given) == [1]


def test_a_tensor_of_a_version_to_come_is_released() -> None:
    given = Counted(Versioned(9, 0, None, None, 0, tensor_of()))
    source = produce("__dlpack__", given.capsule)
    with pytest.raises(pg.PartgridError, match="9"):
        pg.from_dlpack(source)
    assert given.count == 1
    del source
    assert released(given) == [1]


MADE: list[Callable[[], ctypes.Structure]] = [
    schema_struct,
    array_struct,
    stream_struct,
    device_struct,
    device_stream_struct,
    lambda: Managed(tensor_of()),
    lambda: Versioned(1, 0, None, None, 0, tensor_of()),
]


@pytest.mark.parametrize("make", MADE)
def test_what_nobody_takes_is_released_by_its_capsule(make: Callable[[], Any]) -> None:
    assert released(Counted(make())) == [1]


class Owned(np.ndarray):
    """An array that weak references can watch."""


def ours() -> tuple[pg.Grid, weakref.ref[Any]]:
    values: Any = np.arange(1000.0).view(Owned)
    alive = weakref.ref(values)
    return pg.from_numpy(values), alive


OURS: dict[str, tuple[type[ctypes.Structure], Callable[[pg.Grid], Any]]] = {
    "array": (Array, lambda grid: grid.tile(0).__arrow_c_array__()[1]),
    "device array": (DeviceArray, lambda grid: grid.tile(0).__arrow_c_device_array__()[1]),
    "stream": (Stream, lambda grid: grid.__arrow_c_stream__()),
    "device stream": (DeviceStream, lambda grid: grid.__arrow_c_device_stream__()),
    "tensor": (
        Versioned,
        lambda grid: grid.tile(0).column("column_0").__dlpack__(max_version=(1, 0)),
    ),
}


@pytest.mark.parametrize("name", list(OURS))
def test_what_we_give_lives_until_the_consumer_releases_it(name: str) -> None:
    kind, export = OURS[name]
    grid, alive = ours()
    capsule = export(grid)
    struct = taken(capsule, kind)
    del grid, capsule
    gc.collect()
    assert alive() is not None
    release(struct)
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("name", list(OURS))
def test_what_we_give_and_nobody_takes_is_released(name: str) -> None:
    _, export = OURS[name]
    grid, alive = ours()
    capsule = export(grid)
    del grid
    gc.collect()
    assert alive() is not None
    del capsule
    gc.collect()
    assert alive() is None


def test_a_batch_out_of_our_stream_outlives_the_stream() -> None:
    grid, alive = ours()
    stream = taken(grid.__arrow_c_stream__(), Stream)
    batch = Array()
    get_next = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(stream.get_next)
    assert get_next(ctypes.addressof(stream), ctypes.addressof(batch)) == 0
    del grid
    release(stream)
    gc.collect()
    assert (alive() is not None, batch.length) == (True, 1000)
    release(batch)
    gc.collect()
    assert alive() is None


def test_our_schemas_are_released_by_either_side() -> None:
    grid, _ = ours()
    for source in (grid, grid.tile(0), grid.__partitioned__["schema"]):
        struct = taken(source.__arrow_c_schema__(), Schema)
        assert struct.format == b"+s"
        release(struct)
        source.__arrow_c_schema__()


def test_a_refused_wish_leaves_nothing_behind() -> None:
    grid, alive = ours()
    wanted = pa.schema([("other", pa.int8())]).__arrow_c_schema__()
    for export in (
        grid.__arrow_c_stream__,
        grid.__arrow_c_device_stream__,
        grid.tile(0).__arrow_c_array__,
        grid.tile(0).__arrow_c_device_array__,
    ):
        with pytest.raises(pg.errors.InvalidArgumentError, match="requested schema"):
            export(wanted)
    with pytest.raises(BufferError):
        grid.tile(0).column("column_0").__dlpack__()
    del grid, export
    gc.collect()
    assert alive() is None
