"""Tiles in buffers of OpenCL, whose handles are objects of the driver and no addresses. Runs on the CPU, with PoCL."""

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from partgrid import errors
from structs import Counted, DeviceArray, Schema, produce, taken

cl = pytest.importorskip(
    "pyopencl", reason="pyopencl is not installed; make test-peers installs it"
)


class Engine:
    """Copies by a queue of OpenCL."""

    def __init__(self) -> None:
        self.context = cl.create_some_context(interactive=False)
        self.queue = cl.CommandQueue(self.context)
        self.waited = 0

    def read(self, _ordinal: int, handle: int, start: int, nbytes: int) -> np.ndarray:
        out = np.empty(nbytes, np.uint8)
        buffer = cl.Buffer.from_int_ptr(handle)
        cl.enqueue_copy(self.queue, out, buffer, src_offset=start, is_blocking=True)
        return out

    def write(self, _ordinal: int, data: bytes) -> tuple[int, Any]:
        buffer = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, len(data))
        cl.enqueue_copy(self.queue, buffer, data, is_blocking=True)
        return buffer.int_ptr, buffer

    def wait(self, _ordinal: int, event: int) -> None:
        self.waited += 1
        # A `sync_event` leads to the event of the driver: it is a `cl_event *`.
        place = ctypes.c_void_p.from_address(event)
        cl.Event.from_int_ptr(place.value).wait()


@pytest.fixture(scope="module")
def engine() -> Engine:
    made = Engine()
    pg.register_copy_engine("kDLOpenCL", made)
    return made


def table() -> pa.Table:
    return pa.table(
        {
            "n": pa.array([None if row % 5 == 3 else row for row in range(1000)], pa.int64()),
            "x": np.linspace(0, 1, 1000),
            "t": [f"row {row}" for row in range(1000)],
            "l": [list(range(row % 4)) for row in range(1000)],
        }
    )


@pytest.mark.usefixtures("engine")
def test_values_go_into_opencl_and_come_back() -> None:
    there = pg.from_arrow(table()).to("kDLOpenCL:0")
    assert there.tile(0).location[0][2] == "kDLOpenCL:0"
    with pytest.raises(errors.NotLocalError, match="kDLOpenCL:0"):
        there.to_arrow()
    assert there.to("kDLCPU").to_arrow().equals(table())
    assert there[100:200].to("kDLCPU").to_arrow().equals(table().slice(100, 100))


@pytest.mark.usefixtures("engine")
def test_sql_reads_what_lies_in_opencl() -> None:
    there = pg.from_arrow(table()).to("kDLOpenCL:0")
    got = (
        there.sql("SELECT count(n) AS c, sum(n) AS s, max(t) AS t FROM self WHERE x < 0.5")
        .to_arrow()
        .to_pylist()
    )
    rows = [row for row in table().to_pylist() if row["x"] < 0.5]
    numbers = [row["n"] for row in rows if row["n"] is not None]
    assert got == [{"c": len(numbers), "s": sum(numbers), "t": max(row["t"] for row in rows)}]


def test_a_kernel_computes_on_the_buffer_of_a_tile(engine: Engine) -> None:
    there = pg.from_arrow(pa.table({"x": np.arange(100, dtype=np.int32)})).to("kDLOpenCL:0")
    handle = _first_buffer(there.tile(0))
    program = _program(
        engine,
        "__kernel void twice(__global const int *x, __global int *out) { int i = get_global_id(0); out[i] = 2 * x[i]; }",
    )
    out = cl.Buffer(engine.context, cl.mem_flags.WRITE_ONLY, 400)
    program.twice(engine.queue, (100,), None, cl.Buffer.from_int_ptr(handle), out)
    got = np.empty(100, np.int32)
    cl.enqueue_copy(engine.queue, got, out, is_blocking=True)
    assert (got == 2 * np.arange(100)).all()


def test_columns_hand_over_the_object_of_the_driver_and_where_to_begin(engine: Engine) -> None:
    there = pg.from_arrow(pa.table({"x": np.arange(100, dtype=np.int32)})).to("kDLOpenCL:0")
    column = there[40:60].tile(0).column("x")
    assert column.__dlpack_device__() == (4, 0)
    assert column.address == _first_buffer(there.tile(0))
    with pg.buffer.get_buffer(column) as buffer:
        assert (buffer.device_info, buffer.byte_offset, buffer.nbytes) == ((4, 0), 160, 80)
        got = np.empty(20, np.int32)
        theirs = cl.Buffer.from_int_ptr(buffer.pointer)
        cl.enqueue_copy(engine.queue, got, theirs, src_offset=buffer.byte_offset, is_blocking=True)
        assert (got == np.arange(40, 60)).all()
    with pytest.raises(TypeError, match="kDLOpenCL:0"):
        np.asarray(column)
    with pytest.raises(RuntimeError, match="Unsupported device"):
        np.from_dlpack(column)
    assert np.from_dlpack(column, device="cpu").tolist() == list(range(40, 60))
    assert memoryview(column.to("kDLCPU")).tolist() == list(range(40, 60))


READS: dict[str, Callable[[pg.Grid], list[int]]] = {
    "copy to the host": lambda grid: grid.to("kDLCPU").to_arrow()["x"].to_pylist(),
    "SQL": lambda grid: grid.sql("SELECT x FROM self").to_arrow()["x"].to_pylist(),
    "column": lambda grid: memoryview(grid.tile(0).column("x").to("kDLCPU")).tolist(),
}


def _write(_engine: Engine, queue: Any, memory: Any, begin: Any) -> Any:
    sevens = np.full(100, 7, np.int32)
    return cl.enqueue_copy(queue, memory, sevens, wait_for=[begin], is_blocking=False)


def _compute(engine: Engine, queue: Any, memory: Any, begin: Any) -> Any:
    program = _program(engine, "__kernel void late(__global int *x) { x[get_global_id(0)] = 7; }")
    return program.late(queue, (100,), None, memory, wait_for=[begin])


@pytest.mark.parametrize("work", [_write, _compute])
@pytest.mark.parametrize("how", READS)
def test_an_event_is_waited_for_before_the_memory_is_read(
    engine: Engine, how: str, work: Callable[..., Any]
) -> None:
    there = pg.from_arrow(pa.table({"x": np.zeros(100, np.int32)})).to("kDLOpenCL:0")
    # Somebody works there in a queue of their own, and begins a while after we wait for it.
    begin, queue = cl.UserEvent(engine.context), cl.CommandQueue(engine.context)
    memory = cl.Buffer.from_int_ptr(_first_buffer(there.tile(0)))
    done = work(engine, queue, memory, begin)
    queue.flush()
    place = ctypes.c_void_p(done.int_ptr)
    grid = _with_event(there.tile(0), place)
    waited = engine.waited
    timer = threading.Timer(0.3, begin.set_status, args=[cl.command_execution_status.COMPLETE])
    timer.start()
    assert engine.waited == waited, "nothing waits for an import"
    assert READS[how](grid) == [7] * 100
    assert READS[how](grid) == [7] * 100
    assert engine.waited == waited + 1, "once"
    assert done.command_execution_status == cl.command_execution_status.COMPLETE
    timer.join()


def _program(engine: Engine, text: str) -> Any:
    """What PoCL makes of a text, if it has a compiler for the processor."""
    program = cl.Program(engine.context, text)
    try:
        return program.build()
    except cl.RuntimeError as error:
        if "unknown target CPU" in str(error):
            pytest.skip("PoCL knows no kernels for this processor: unknown target CPU")
        raise


def _with_event(tile: pg.Tile, event: ctypes.c_void_p) -> pg.Grid:
    """The same memory as another library would give it, with an event."""
    schema, array = tile.__arrow_c_device_array__()
    struct = taken(array, DeviceArray)
    struct.sync_event = ctypes.addressof(event)
    pair = Counted(taken(schema, Schema)), Counted(struct)
    grid = pg.from_arrow(produce("__arrow_c_device_array__", tuple(each.capsule for each in pair)))
    for each in pair:
        del each.capsule
    return grid


def _first_buffer(tile: pg.Tile) -> int:
    """The data pointer of the only column, as a consumer of the C struct sees it."""
    _, array = tile.__arrow_c_device_array__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    root = ctypes.cast(pointer(array, b"arrow_device_array"), ctypes.POINTER(ctypes.c_void_p))
    # length, null_count, offset, n_buffers, n_children, buffers, children
    child = ctypes.cast(
        ctypes.cast(root[6], ctypes.POINTER(ctypes.c_void_p))[0], ctypes.POINTER(ctypes.c_void_p)
    )
    return int(ctypes.cast(child[5], ctypes.POINTER(ctypes.c_void_p))[1])
