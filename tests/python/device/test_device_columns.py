"""Columns of tiles on devices as other libraries take them: DLPack, Arrow C Device, the array interface of CUDA; and memory of devices that the host reads.

Memory of the device here faults when the host touches it.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import nanoarrow as na
import nanoarrow.device
import numpy as np
import pyarrow as pa
import pytest
import tvm_ffi

import partgrid as pg
from devices import Faulting
from partgrid import errors
from structs import (
    BATCH,
    Array,
    Counted,
    DeviceArray,
    Release,
    Schema,
    Versioned,
    device_struct,
    produce,
    release,
    schema_struct,
    taken,
)
from type_samples import samples

DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64"]
SAMPLES = samples()
READABLE = {"kDLCUDAHost": 3, "kDLROCMHost": 11, "kDLCUDAManaged": 13}


def column_of(values: Any, ordinal: int = 3) -> Any:
    table = pa.table({"x": pa.array(values)})
    return pg.from_arrow(table).to(f"kDLExtDev:{ordinal}").tile(0).column("x")


def test_a_column_says_what_and_where_it_is(driver: Faulting) -> None:
    column = column_of(np.arange(5, dtype="int16"))
    assert repr(column) == "DeviceColumn 'x' (5,) of Int16 on kDLExtDev:3"
    shown = column.name, column.device, column.shape, column.dtype, column.nbytes, len(column)
    assert shown == ("x", "kDLExtDev:3", (5,), "h", 10, 5)
    assert column.strides == (2,)
    assert column.address in driver.buffers
    assert column.__dlpack_device__() == (12, 3)
    assert not hasattr(column, "__cuda_array_interface__")
    assert not hasattr(column, "__array_interface__")
    assert not driver.read_bytes


@pytest.mark.parametrize("dtype", DTYPES)
def test_tvm_takes_a_tensor_of_any_number_where_it_is(driver: Faulting, dtype: str) -> None:
    column = column_of(np.arange(10).astype(dtype))
    tensor = tvm_ffi.from_dlpack(column.__dlpack__(max_version=(1, 1)))
    assert (str(tensor.dtype), tuple(tensor.shape)) == (dtype, (10,))
    assert tensor.data_ptr() == column.address
    assert tensor.__dlpack_device__() == (12, 3)
    del column
    gc.collect()
    held = driver.read(3, tensor.data_ptr(), 0, 10 * np.dtype(dtype).itemsize)
    assert np.frombuffer(held, dtype).tolist() == list(range(10))
    del tensor
    gc.collect()
    assert not driver.buffers


def test_who_asks_for_the_old_struct_gets_a_copy_or_the_remedy(driver: Faulting) -> None:
    column = column_of(np.arange(10.0))
    with pytest.raises(BufferError, match=r"read-only.*\nhint: pass copy=True"):
        tvm_ffi.from_dlpack(column)
    tensor = tvm_ffi.from_dlpack(column.__dlpack__(copy=True))
    assert tensor.data_ptr() != column.address
    assert tensor.__dlpack_device__() == (12, 3)
    held = driver.read(3, tensor.data_ptr(), 0, 80)
    assert np.frombuffer(held).tolist() == list(range(10))
    del tensor, column
    gc.collect()
    assert not driver.buffers


def test_an_unused_capsule_frees_and_a_slice_says_where_it_begins(driver: Faulting) -> None:
    table = pa.table({"x": np.arange(10.0)})
    there = pg.from_arrow(table).to("kDLExtDev:1")[4:8]
    capsule = there.tile(0).column("x").__dlpack__(max_version=(1, 0))
    struct = taken(capsule, Versioned)
    assert struct.flags == 1
    tensor = struct.tensor
    assert (tensor.data in driver.buffers, tensor.byte_offset) == (True, 32)
    assert ctypes.c_int64.from_address(tensor.shape).value == 4
    assert ctypes.c_int64.from_address(tensor.strides).value == 1
    release(struct)
    unused = there.tile(0).column("x").__dlpack__(max_version=(1, 0))
    del there
    gc.collect()
    assert driver.buffers
    del unused
    gc.collect()
    assert not driver.buffers


WISHES: list[tuple[dict[str, Any], str]] = [
    ({"stream": 1}, "stream must be None or -1"),
    ({"stream": "1"}, "stream must be an integer or None"),
    ({"dl_device": (2, 0)}, "where the column is"),
    ({"dl_device": (12, 0)}, "where the column is"),
    ({"dl_device": (1, 0), "copy": False}, "only as a copy"),
    ({"max_version": None}, "read-only"),
    ({"max_version": (0, 8)}, "read-only"),
]


@pytest.mark.parametrize(("wish", "text"), WISHES)
def test_wishes_that_cannot_be_met_are_buffer_errors(
    driver: Faulting, wish: dict[str, Any], text: str
) -> None:
    column = column_of(np.arange(3.0))
    with pytest.raises(BufferError, match=text):
        column.__dlpack__(**({"max_version": (1, 0)} | wish))
    assert not driver.read_bytes


def test_all_keywords_may_be_given(driver: Faulting) -> None:
    column = column_of(np.arange(3.0))
    for stream in (None, -1):
        capsule = column.__dlpack__(
            stream=stream, max_version=(1, 3), dl_device=(12, 3), copy=False
        )
        assert tvm_ffi.from_dlpack(capsule).data_ptr() == column.address
    assert not driver.read_bytes


def test_numpy_refuses_it_unless_it_asks_for_the_cpu(driver: Faulting) -> None:
    column = column_of(np.arange(10.0))
    with pytest.raises(RuntimeError, match="Unsupported device"):
        np.from_dlpack(column)
    assert not driver.read_bytes
    here = np.from_dlpack(column, device="cpu")
    assert here.tolist() == list(range(10))
    assert driver.read_bytes == 80
    with pytest.raises(errors.NotLocalError, match="kDLExtDev:3"):
        pg.from_dlpack(column)


NOT_NUMBERS: list[tuple[pa.Array, type[Exception], str]] = [
    (pa.array([1, None, None]), errors.InvalidDataError, "the column has 2"),
    (pa.array([True]), errors.UnsupportedError, "booleans are stored as bits"),
    (pa.array(["a"]), errors.UnsupportedError, "the column is Utf8"),
    (pa.array([[1]]), errors.UnsupportedError, "the column is List"),
    (pa.array([0], pa.timestamp("s")), errors.UnsupportedError, "arrow_cast"),
]


@pytest.mark.parametrize(("values", "error", "text"), NOT_NUMBERS)
def test_what_is_no_plain_number_is_refused_as_of_the_host(
    driver: Faulting, values: pa.Array, error: type[Exception], text: str
) -> None:
    column = column_of(values)
    for read in (lambda: column.dtype, lambda: column.address):
        with pytest.raises(error, match=text) as caught:
            read()
        assert "(column: x)" in str(caught.value)
    with pytest.raises(BufferError, match=text):
        column.__dlpack__(max_version=(1, 0))
    # As Arrow it is handed over nevertheless.
    assert nanoarrow.device.c_device_array(column).array.length == len(values)
    assert not driver.read_bytes
    with pytest.raises(error, match=text):
        column.to("kDLCPU")


def test_nulls_of_a_slice_are_counted_where_they_are(driver: Faulting) -> None:
    values = pa.array([None if row == 3 else row for row in range(100)], pa.int32())
    there = pg.from_arrow(pa.table({"x": values})).to("kDLExtDev:0")
    without = there[20:90].tile(0).column("x")
    assert without.dtype == "i"
    # The bits of rows 20 to 89 lie in bytes 2 to 11.
    assert driver.read_bytes == 10
    assert without.dtype == "i"
    assert driver.read_bytes == 10, "counted once"
    with pytest.raises(BufferError, match="the column has 1"):
        there[2:5].tile(0).column("x").__dlpack__(max_version=(1, 0))


def test_a_column_goes_to_other_devices_and_comes_back(driver: Faulting) -> None:
    column = column_of(np.arange(10.0))
    assert column.to("kDLExtDev:3") is column
    other = column.to("kDLExtDev:0")
    assert (other.device, other.address != column.address) == ("kDLExtDev:0", True)
    assert memoryview(other.to("kDLCPU")).tolist() == list(range(10))
    with pytest.raises(errors.UnsupportedError, match="nothing copies to and from kDLMetal:0"):
        column.to("kDLMetal:0")
    with pytest.raises(errors.InvalidArgumentError, match="device must be"):
        column.to("gpu")
    tile = pg.from_arrow(pa.table({"x": [1, None]})).to("kDLExtDev:0").tile(0)
    with pytest.raises(errors.UnsupportedError, match="filled on the host only") as caught:
        tile.column("x", fill_null=0)
    assert 'to("kDLCPU")' in str(caught.value)
    assert memoryview(tile.to("kDLCPU").column("x", fill_null=7)).tolist() == [1, 7]
    with pytest.raises(errors.NotFoundError, match="y"):
        tile.column("y")
    assert driver.buffers


def test_an_empty_column_has_no_address(driver: Faulting) -> None:
    column = column_of(np.zeros(0))
    assert (column.address, column.shape) == (0, (0,))
    with pg.buffer.get_buffer(column) as buffer:
        assert (buffer.pointer, buffer.nbytes) == (0, 0)
    assert tvm_ffi.from_dlpack(column.__dlpack__(max_version=(1, 0))).shape == (0,)
    assert not driver.buffers


@pytest.mark.parametrize("name", SAMPLES)
def test_nanoarrow_takes_a_column_of_any_type_where_it_is(driver: Faulting, name: str) -> None:
    values = SAMPLES[name]
    there = pg.from_arrow(pa.table({"a": range(len(values)), "c": values})).to("kDLExtDev:2")
    for part in (there, there[1:5]):
        column = part.tile(0).column("c")
        array = nanoarrow.device.c_device_array(column)
        assert (array.device_type_id, array.device_id) == (12, 2)
        assert array.array.length == len(column) == len(part)
        assert array.schema.name == "c"
        # As a table of one column it comes back with its values.
        back = as_table(column).to("kDLCPU").to_arrow()["c"]
        assert back.equals(part.to("kDLCPU").to_arrow()["c"])
    del there, part, column, array, back
    gc.collect()
    assert not driver.buffers


def test_nanoarrow_refuses_a_tensor_of_a_device_that_it_does_not_know(driver: Faulting) -> None:
    column = column_of(np.arange(6, dtype="int32"))
    with pytest.raises(ValueError, match="Device not found for type 12/3"):
        na.c_buffer(DLPackOnly(column))
    del column
    gc.collect()
    assert not driver.buffers


class DLPackOnly:
    """Hides the other interfaces. Asks for a copy on the device, since nanoarrow takes the old struct only."""

    def __init__(self, column: Any) -> None:
        self.column = column

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.column.__dlpack__(stream=stream, copy=True)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.column.__dlpack_device__()


def as_table(column: Any) -> pg.Grid:
    """A grid of one column, by its C structs in a struct."""
    schema, array = column.__arrow_c_device_array__()
    inner_schema, inner = taken(schema, Schema), taken(array, DeviceArray)
    pair = Counted(struct_schema(inner_schema)), Counted(struct_array(inner))
    grid = pg.from_arrow(produce("__arrow_c_device_array__", tuple(each.capsule for each in pair)))
    for each in pair:
        del each.capsule
    return grid


def struct_schema(child: Schema) -> Schema:
    children = (ctypes.c_void_p * 1)(ctypes.addressof(child))

    def end(address: int) -> None:
        if child.release:
            Release(child.release)(ctypes.addressof(child))
        Schema.from_address(address).release = None

    callback = Release(end)
    made = Schema(b"+s", b"", None, 0, 1, ctypes.addressof(children), None)
    made.release = ctypes.cast(callback, ctypes.c_void_p).value
    made.kept = (child, children, callback)
    return made


def struct_array(child: DeviceArray) -> DeviceArray:
    children = (ctypes.c_void_p * 1)(ctypes.addressof(child.array))
    buffers = (ctypes.c_void_p * 1)(None)

    def end(address: int) -> None:
        if child.array.release:
            Release(child.array.release)(ctypes.addressof(child.array))
        Array.from_address(address).release = None

    callback = Release(end)
    array = Array(child.array.length, 0, 0, 1, 1)
    array.buffers, array.children = ctypes.addressof(buffers), ctypes.addressof(children)
    array.release = ctypes.cast(callback, ctypes.c_void_p).value
    made = DeviceArray(array, child.device_id, child.device_type, child.sync_event)
    made.kept = (child, children, buffers, callback)
    return made


def test_requested_schemas_and_unknown_keywords_are_refused(driver: Faulting) -> None:
    column = column_of(np.arange(3))
    with pytest.raises(errors.UnsupportedError, match="without requested_schema"):
        column.__arrow_c_device_array__(pa.field("x", pa.int8()).__arrow_c_schema__())
    with pytest.raises(NotImplementedError, match="knows no argument other"):
        column.__arrow_c_device_array__(other=1)
    assert nanoarrow.device.c_device_array(column).array.length == 3
    assert pa.field(column) == pa.field("x", pa.int64())
    with pytest.raises(KeyError, match="12"):
        pa.array(column)
    del column
    gc.collect()
    assert not driver.buffers


def imported(device: int, event: int | None = None) -> tuple[pg.Grid, tuple[Counted, Counted]]:
    """A grid of what a producer says to be on a device. The handles are addresses of the host, which nobody may read there."""
    struct = device_struct(device, event)
    struct.device_id = 1
    pair = Counted(schema_struct()), Counted(struct)
    grid = pg.from_arrow(produce("__arrow_c_device_array__", tuple(each.capsule for each in pair)))
    for each in pair:
        del each.capsule
    return grid, pair


def test_an_event_is_waited_for_or_handed_on(driver: Faulting) -> None:
    grid, _ = imported(12, 4096)
    column = grid.tile(0).column("a")
    with pg.buffer.get_buffer(column) as buffer:
        assert (buffer.device_info, buffer.sync_event) == ((12, 1), 4096)
    array = taken(column.__arrow_c_device_array__()[1], DeviceArray)
    assert array.sync_event == 4096
    release(array)
    tvm_ffi.from_dlpack(column.__dlpack__(max_version=(1, 0), stream=-1))
    assert driver.waited == []
    tvm_ffi.from_dlpack(column.__dlpack__(max_version=(1, 0)))
    assert driver.waited == [(1, 4096)]
    tvm_ffi.from_dlpack(column.__dlpack__(max_version=(1, 0)))
    assert driver.waited == [(1, 4096)], "once"
    assert not driver.read_bytes


def test_cuda_gets_its_array_interface(driver: Faulting) -> None:
    grid, pair = imported(2)
    column = grid.tile(0).column("a")
    interface = column.__cuda_array_interface__
    address = BATCH.column(0).buffers()[1].address
    assert interface == {
        "version": 3,
        "typestr": "<i8",
        "shape": (3,),
        "strides": None,
        "data": (address, True),
    }
    assert column.__dlpack_device__() == (2, 1)
    for stream in (None, -1, 1, 2, 0x7F00):
        tensor = tvm_ffi.from_dlpack(column.__dlpack__(stream=stream, max_version=(1, 0)))
        assert (tensor.__dlpack_device__(), tensor.data_ptr()) == ((2, 1), address)
    for stream in (0, -2):
        with pytest.raises(BufferError, match="address of a stream of CUDA"):
            column.__dlpack__(stream=stream, max_version=(1, 0))
    texts = grid.tile(0).column("b")
    with pytest.raises(AttributeError, match="the column is Utf8"):
        _ = texts.__cuda_array_interface__
    assert not hasattr(texts, "__cuda_array_interface__"), "who asks whether there is one is told"
    del grid, column, tensor, texts
    gc.collect()
    assert [each.count for each in pair] == [1, 1]
    rocm = imported(10)[0].tile(0).column("a")
    assert not hasattr(rocm, "__cuda_array_interface__")
    assert rocm.__dlpack__(stream=0, max_version=(1, 0))
    with pytest.raises(BufferError, match="stream of ROCm"):
        rocm.__dlpack__(stream=2, max_version=(1, 0))
    assert not driver.read_bytes


def test_memory_may_be_freed_by_python_while_an_exception_is_on_its_way() -> None:
    """The producer here frees with code of Python, which an exception that is set would end."""
    grids = [imported(device) for device in (1, 2, 2, 1)]
    pairs = [pair for _, pair in grids]
    tiles = [grid.tile(0) for grid, _ in grids[:3]]
    columns = [tile.column("b") for tile in tiles[2:]]
    last = [grid for grid, _ in grids[3:]]
    grids.clear()
    # Each is the last to hold its memory, and goes when the exception leaves the call.
    with pytest.raises(errors.UnsupportedError, match="the column is Utf8"):
        tiles.pop(0).column("b")
    with pytest.raises(errors.NotLocalError, match="kDLCUDA:1"):
        tiles.pop(0).__arrow_c_array__()
    tiles.clear()
    with pytest.raises(AttributeError, match="the column is Utf8"):
        _ = columns.pop().__cuda_array_interface__
    with pytest.raises(errors.NotFoundError):
        _ = last.pop()["nothing"]
    gc.collect()
    assert [each.count for pair in pairs for each in pair] == [1] * 8


def test_a_slice_on_a_gpu_begins_at_an_address() -> None:
    column = imported(2)[0][1:3].tile(0).column("a")
    address = BATCH.column(0).buffers()[1].address + 8
    assert column.__cuda_array_interface__["data"] == (address, True)
    struct = taken(column.__dlpack__(max_version=(1, 0)), Versioned)
    assert (struct.tensor.data, struct.tensor.byte_offset) == (address, 0)
    release(struct)
    with pg.buffer.get_buffer(column) as buffer:
        assert (buffer.pointer, buffer.byte_offset, buffer.device_info) == (address, 0, (2, 1))


@pytest.mark.parametrize("name", READABLE)
def test_numpy_reads_memory_that_the_host_reads_too(name: str) -> None:
    number = READABLE[name]
    grid, pair = imported(number)
    tile = grid.tile(0)
    column = tile.column("a")
    part = grid[1:].tile(0).column("a")
    assert (part.__dlpack_device__(), part.address) == ((number, 1), column.address + 8)
    address = BATCH.column(0).buffers()[1].address
    assert column.__dlpack_device__() == (number, 1)
    tensor = np.from_dlpack(column)
    assert (tensor.ctypes.data, tensor.tolist()) == (address, [1, 2, 3])
    plain = np.asarray(column)
    assert (plain.ctypes.data, plain.tolist()) == (address, [1, 2, 3])
    on_cpu = np.from_dlpack(column, device="cpu")
    assert on_cpu.ctypes.data == address
    assert tvm_ffi.from_dlpack(tensor_of(column)).__dlpack_device__() == (number, 1)
    has_interface = hasattr(column, "__cuda_array_interface__")
    assert has_interface == name.startswith("kDLCUDA")
    with pg.buffer.get_buffer(column) as buffer:
        assert (buffer.device_info, buffer.pointer) == ((number, 1), address)
        assert buffer.memoryview().tolist() == [1, 2, 3]
    # As Arrow it is what the host reads, which pyarrow takes.
    assert pa.record_batch(tile).equals(BATCH)
    del grid, tile, column, part, tensor, plain, on_cpu, buffer
    gc.collect()
    assert [each.count for each in pair] == [1, 1]


def tensor_of(column: Any) -> Any:
    return column.__dlpack__(max_version=(1, 0))


def test_tensors_that_cuda_moves_are_read_in_place() -> None:
    column = imported(13)[0].tile(0).column("a")
    back = pg.from_dlpack(column, names=["a"])
    assert back.tile(0).column("a").address == column.address
    assert back.to_arrow()["a"].to_pylist() == [1, 2, 3]


class OnlyDeviceStream:
    """Hides all methods but one."""

    def __init__(self, grid: pg.Grid) -> None:
        self.grid = grid

    def __arrow_c_device_stream__(self, requested_schema: Any = None, **kwargs: Any) -> Any:
        return self.grid.__arrow_c_device_stream__(requested_schema, **kwargs)


def bands(count: int) -> pg.Grid:
    """A grid of two row bands, with so many column bands."""
    rows = [(0, 40), (40, 100)]
    cells = [[band_table(*row, band) for band in range(count)] for row in rows]
    return pg._native._from_parts(cells)


def band_table(start: int, stop: int, band: int) -> pa.Table:
    numbers = pa.array([None if row % 7 == band else row for row in range(start, stop)])
    return pa.table({f"n{band}": numbers, f"t{band}": [f"row {row}" for row in range(start, stop)]})


def whole(num_bands: int) -> pa.Table:
    tables = [band_table(0, 100, band) for band in range(num_bands)]
    columns = {name: table[name] for table in tables for name in table.column_names}
    return pa.table(columns)


def test_column_bands_of_a_device_are_streamed_side_by_side(driver: Faulting) -> None:
    there = bands(3).to("kDLExtDev:1")
    assert len(there.tile(0, 1).columns) == 2
    count, read = len(driver.buffers), driver.read_bytes
    stream = pg.from_arrow(OnlyDeviceStream(there))
    assert (len(driver.buffers), driver.read_bytes) == (count, read), "without a copy"
    assert stream.shape == (100, 6)
    assert stream.tile(1).location[0][2] == "kDLExtDev:1"
    assert stream.to("kDLCPU").to_arrow().to_pylist() == whole(3).to_pylist()
    part = there[30:70, ["t2", "n0"]]
    read = driver.read_bytes
    streamed = pg.from_arrow(OnlyDeviceStream(part))
    assert driver.read_bytes == read
    expected = whole(3).slice(30, 40).select(["t2", "n0"])
    assert streamed.to("kDLCPU").to_arrow().to_pylist() == expected.to_pylist()
    del there, stream, part, streamed
    gc.collect()
    assert not driver.buffers
