"""The extended buffer protocol, asked for by a consumer in ctypes.

Memory of the device here faults when the host touches it.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import struct
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from buffers import (
    ANY_CONTIGUOUS,
    C_CONTIGUOUS,
    F_CONTIGUOUS,
    FORMAT,
    FULL_RO,
    HOSTS,
    ND,
    SIMPLE,
    STRIDES,
    VALUES,
    WRITABLE,
    Consumer,
    Extended,
    Info,
    Plain,
    grid,
    on_device,
    on_host,
    storage,
)
from devices import Faulting


def test_the_structs_have_the_sizes_that_are_published() -> None:
    assert ctypes.sizeof(Plain) == 80
    assert ctypes.sizeof(Extended) == pg.buffer.STRUCT_SIZE == 104
    assert ctypes.sizeof(Info) == pg.buffer.INFO_SIZE == 64
    assert pg.buffer.DEVICE == 0x1000_0000
    assert pg.buffer.COOKIE.to_bytes(8, "big") == b"PartGrid"
    known = 0
    for flag in [*inspect.BufferFlags] if hasattr(inspect, "BufferFlags") else [0x3FF]:
        known |= flag
    assert not known & pg.buffer.DEVICE


@pytest.mark.parametrize("name", HOSTS)
def test_memory_of_the_cpu_says_so_to_who_can_hear_it(name: str) -> None:
    obj = HOSTS[name]()
    consumer = Consumer()
    extended = consumer.ask(obj)
    assert (extended.flags, extended.ext_flags) == (pg.buffer.DEVICE, 0)
    assert (extended.device, extended.device_info) == (None, None)
    assert extended.base.buf == obj.address
    assert ctypes.cast(extended.base.buf, ctypes.POINTER(ctypes.c_double))[999] == 999.0
    assert extended.base.internal != pg.buffer.COOKIE
    assert consumer.is_within()
    consumer.release()
    for flag, cookie in [(True, False), (False, True), (False, False)]:
        consumer = Consumer(flag=flag, cookie=cookie)
        extended = consumer.ask(obj)
        assert extended.base.buf == obj.address
        assert extended.base.internal != pg.buffer.COOKIE
        assert consumer.is_untouched()
        consumer.release()


def test_memory_of_a_device_is_given_with_the_handshake_alone(driver: Faulting) -> None:
    column = on_device()
    consumer = Consumer()
    extended = consumer.ask(column)
    assert (extended.flags, extended.ext_flags) == (pg.buffer.DEVICE, 0)
    assert extended.device == b"partgrid:dlpack-device"
    info = Info.from_address(extended.device_info)
    assert (info.version, info.device_type, info.device_id) == (pg.buffer.INFO_VERSION, 12, 3)
    assert (info.sync_event, info.byte_offset, list(info.reserved)) == (None, 0, [0] * 4)
    base = extended.base
    assert (base.len, base.itemsize, base.ndim, base.readonly, base.format) == (8000, 8, 1, 1, b"d")
    assert (base.shape[0], base.strides[0]) == (1000, 8)
    assert base.buf in driver.buffers
    assert driver.read(3, base.buf, 0, 16) == struct.pack("dd", 0.0, 1.0)
    assert consumer.is_within()
    consumer.release()
    for flag, cookie in [(True, False), (False, True), (False, False)]:
        consumer = Consumer(flag=flag, cookie=cookie)
        with pytest.raises(BufferError, match="in that of kDLExtDev:3") as caught:
            consumer.ask(column)
        assert 'column.to("kDLCPU")' in str(caught.value)
        assert consumer.is_untouched()
        assert not consumer.extended.base.obj
        # Without the flag nobody looks at it, or clears what a consumer said to nobody.
        assert not (flag and consumer.extended.base.internal)
    assert driver.read_bytes == 16


def test_a_row_slice_begins_where_its_first_element_is(driver: Faulting) -> None:
    there = grid().to("kDLExtDev:0")[10:20]
    with pg.buffer.get_buffer(there.tile(0).column("x")) as buffer:
        # A handle of such a device is no address to add to.
        assert (buffer.pointer in driver.buffers, buffer.byte_offset) == (True, 80)
        assert (buffer.shape, buffer.nbytes) == ((10,), 80)
        first = driver.read(0, buffer.pointer, buffer.byte_offset, 8)
        assert struct.unpack("d", first) == (10.0,)


REFUSED: list[tuple[str, int, str]] = [
    ("x", FULL_RO | WRITABLE, "read-only"),
    ("x", WRITABLE, "read-only"),
    ("n", FULL_RO, "has 1"),
    ("t", FULL_RO, "the column is Utf8"),
    ("b", FULL_RO, "booleans are stored as bits"),
    ("l", FULL_RO, "the column is List"),
]


@pytest.mark.parametrize(("column", "flags", "text"), REFUSED)
def test_what_is_no_strided_buffer_is_refused(
    driver: Faulting, column: str, flags: int, text: str
) -> None:
    table = pa.table({"x": [1.0], "n": pa.nulls(1, pa.int64()), "t": ["a"]})
    table = table.append_column("b", pa.array([True])).append_column("l", pa.array([[1]]))
    there = pg.from_arrow(table).to("kDLExtDev:0").tile(0).column(column)
    consumer = Consumer()
    with pytest.raises(BufferError, match=text):
        consumer.ask(there, flags)
    assert consumer.is_untouched()
    assert not consumer.extended.base.internal
    assert not consumer.extended.base.obj
    assert not driver.read_bytes


def test_requests_that_the_layout_cannot_meet_are_refused() -> None:
    columns = pg.storage.zeros((4, 3), layout=(1, 0))
    gaps = pg.storage.zeros((4, 3), alignment_size=64)
    for obj, flags in [
        (columns, SIMPLE),
        (columns, ND),
        (columns, C_CONTIGUOUS),
        (gaps, F_CONTIGUOUS),
        (gaps, ANY_CONTIGUOUS),
    ]:
        consumer = Consumer()
        with pytest.raises(BufferError):
            consumer.ask(obj, flags)
        assert consumer.is_untouched()
        assert not consumer.extended.base.internal
    for obj, flags in [(columns, F_CONTIGUOUS), (columns, ANY_CONTIGUOUS), (gaps, STRIDES)]:
        consumer = Consumer()
        assert consumer.ask(obj, flags).flags == pg.buffer.DEVICE
        consumer.release()


def test_fields_that_were_not_asked_for_are_null(driver: Faulting) -> None:
    for flags, shown in [
        (SIMPLE, (None, None, None, 1)),
        (ND, (None, (1000,), None, 1)),
        (STRIDES, (None, (1000,), (8,), 1)),
        (ND | FORMAT, ("d", (1000,), None, 1)),
    ]:
        with pg.buffer.get_buffer(on_device(), flags) as buffer:
            assert (buffer.format, buffer.shape, buffer.strides, buffer.ndim) == shown
            assert buffer.device_info == (12, 3)
    assert not driver.read_bytes


def test_a_buffer_is_held_until_it_is_released(driver: Faulting) -> None:
    column = on_device()
    count = sys.getrefcount(column)
    buffer = pg.buffer.get_buffer(column)
    assert buffer.obj is column
    assert sys.getrefcount(column) == count + 1
    buffer.release()
    buffer.release()
    assert sys.getrefcount(column) == count
    assert buffer.released
    for read in ("pointer", "obj", "memoryview", "__enter__"):
        with pytest.raises(ValueError, match="released"):
            getattr(buffer, read)()
    with pytest.raises(RuntimeError), pg.buffer.get_buffer(column):
        raise RuntimeError
    assert sys.getrefcount(column) == count
    # The exporter goes first.
    last = pg.buffer.get_buffer(column)
    del column, buffer
    gc.collect()
    assert driver.read(3, last.pointer, 8, 8) == struct.pack("d", 1.0)
    del last
    gc.collect()
    assert not driver.buffers


def test_refused_requests_leak_nothing(driver: Faulting) -> None:
    column, array = on_device(), on_host()
    counts = sys.getrefcount(column), sys.getrefcount(array)
    for _ in range(1000):
        for obj, flags in [(column, FULL_RO | WRITABLE), (array, FULL_RO | WRITABLE)]:
            with pytest.raises(BufferError):
                pg.buffer.get_buffer(obj, flags)
        with pytest.raises(BufferError):
            memoryview(column)
    del obj
    assert (sys.getrefcount(column), sys.getrefcount(array)) == counts
    del column
    gc.collect()
    assert not driver.buffers


def test_writers_of_a_storage_are_counted_through_extended_buffers() -> None:
    field = pg.storage.zeros((3, 2), layout=(1, 0))
    with pg.buffer.get_buffer(field) as buffer:
        assert not buffer.readonly
        with pytest.raises(pg.errors.InvalidArgumentError):
            pg.from_storage(field)
    assert pg.from_storage(field).shape == (3, 2)
    with pytest.raises(BufferError, match="belongs to a grid"):
        pg.buffer.get_buffer(field, FULL_RO | WRITABLE)


@pytest.mark.parametrize("name", HOSTS)
def test_a_memoryview_comes_of_memory_of_the_host(name: str) -> None:
    obj = HOSTS[name]()
    with pg.buffer.get_buffer(obj) as buffer:
        assert (buffer.device, buffer.device_info, buffer.sync_event) == (None, None, 0)
        view = buffer.memoryview()
    assert view.tolist() == VALUES


def test_a_memoryview_never_comes_of_memory_of_a_device(driver: Faulting) -> None:
    with pg.buffer.get_buffer(on_device()) as buffer:
        with pytest.raises(BufferError, match="kDLExtDev:3"):
            buffer.memoryview()
        with pytest.raises(TypeError):
            memoryview(buffer)
        assert repr(buffer) == "ExtendedBuffer (1000,) of 'd', read-only, of device (12, 3)"
    assert not driver.read_bytes


@pytest.mark.parametrize(
    "obj",
    [
        b"abcd",
        bytearray(b"abcd"),
        memoryview(b"abcd"),
        np.arange(4, dtype="u1"),
        pa.py_buffer(b"abcd"),
    ],
    ids=lambda obj: type(obj).__name__,
)
def test_producers_that_know_no_devices_are_on_the_cpu(obj: Any) -> None:
    consumer = Consumer()
    extended = consumer.ask(obj)
    assert (extended.flags, extended.device, extended.device_info) == (0, None, None)
    assert consumer.is_untouched()
    consumer.release()
    with pg.buffer.get_buffer(obj) as buffer:
        assert (buffer.nbytes, buffer.device, buffer.shape) == (4, None, (4,))
        assert buffer.memoryview().nbytes == 4


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="bytes-like"):
        pg.buffer.get_buffer(5)
    for flags in (-1, 2**31, "FULL"):
        with pytest.raises(pg.errors.InvalidArgumentError, match="flags must"):
            pg.buffer.get_buffer(b"", flags)
        with pytest.raises(pg.errors.InvalidArgumentError, match="flags must"):
            pg.buffer.supports(b"", flags)


@pytest.mark.usefixtures("driver")
def test_types_say_which_flags_they_take() -> None:
    supports, device = pg.buffer.supports, pg.buffer.DEVICE
    for obj in (on_host(), storage(), on_device()):
        assert supports(obj, device)
        assert supports(obj, device | FULL_RO)
        assert not supports(obj, 0x0800_0000)
    assert supports(storage(), WRITABLE)
    assert not supports(on_device(), WRITABLE)
    for obj in (b"", np.zeros(1)):
        assert supports(obj, FULL_RO | WRITABLE)
        assert not supports(obj, device)
    for obj in (5, None, "text", object):
        assert not supports(obj, 0)


def test_supported_flags_of_zero_and_minus_one_are_those_of_the_draft() -> None:
    class Silent(bytearray):
        __buffer_supported_flags__ = 0

    class Simple(bytearray):
        __buffer_supported_flags__ = -1

    flags = [0, 1, 0x11C, pg.buffer.DEVICE]
    assert [pg.buffer.supports(Silent(b"a"), each) for each in flags] == [True, True, True, False]
    assert [pg.buffer.supports(Simple(b"a"), each) for each in flags] == [True, False, False, False]
