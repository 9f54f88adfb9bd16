"""The extended buffer protocol: a consumer in ctypes, unmodified consumers, and that nothing is written behind a plain struct.

Memory of the device here faults when the host touches it.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import inspect
import io
import os
import pickle
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import arro3.core
import nanoarrow as na
import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from conftest import ROOT
from devices import Faulting

FULL_RO, SIMPLE, WRITABLE, ND, STRIDES, C_CONTIGUOUS = 0x11C, 0, 1, 8, 0x18, 0x38
F_CONTIGUOUS, ANY_CONTIGUOUS, FORMAT = 0x58, 0x98, 4
CANARY = 0xA5
VALUES = [float(number) for number in range(1000)]


class Plain(ctypes.Structure):
    """`Py_buffer`."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


class Extended(ctypes.Structure):
    """The same, and what the draft puts behind it."""

    _fields_ = (
        ("base", Plain),
        ("flags", ctypes.c_int),
        ("ext_flags", ctypes.c_int),
        ("device", ctypes.c_char_p),
        ("device_info", ctypes.c_void_p),
    )


class Info(ctypes.Structure):
    """What `device_info` leads to."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int64),
        ("sync_event", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 4),
    )


class Watched(ctypes.Structure):
    """A struct, and bytes that nobody may touch."""

    _fields_ = (("extended", Extended), ("canary", ctypes.c_ubyte * 64))


# Not `ctypes.pythonapi`, whose functions have one signature for all who use them.
PYTHON = ctypes.PyDLL(None)
get_buffer = PYTHON.PyObject_GetBuffer
get_buffer.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
release_buffer = PYTHON.PyBuffer_Release
release_buffer.argtypes, release_buffer.restype = [ctypes.c_void_p], None


class Consumer:
    """Asks with the struct that the draft describes, the handshake as told."""

    def __init__(self, *, flag: bool = True, cookie: bool = True) -> None:
        self.watched = Watched()
        ctypes.memset(ctypes.addressof(self.watched.canary), CANARY, 64)
        self.flag = pg.buffer.DEVICE if flag else 0
        self.cookie = cookie

    @property
    def extended(self) -> Extended:
        return self.watched.extended

    def ask(self, obj: Any, flags: int = FULL_RO) -> Extended:
        ctypes.memset(ctypes.addressof(self.extended), 0, ctypes.sizeof(Extended))
        if self.cookie:
            self.extended.base.internal = pg.buffer.COOKIE
        get_buffer(obj, ctypes.addressof(self.watched), flags | self.flag)
        return self.extended

    def release(self) -> None:
        release_buffer(ctypes.addressof(self.watched))

    def is_untouched(self) -> bool:
        """Whether nobody wrote behind the plain struct."""
        behind = bytes(self.watched)[ctypes.sizeof(Plain) :]
        return behind == bytes(24) + bytes([CANARY] * 64)

    def is_within(self) -> bool:
        """Whether nobody wrote behind the extended struct."""
        return bytes(self.watched.canary) == bytes([CANARY] * 64)


@pytest.fixture
def driver() -> Faulting:
    made = Faulting()
    pg.register_copy_engine("kDLExtDev", made)
    return made


def grid() -> pg.Grid:
    return pg.from_arrow(pa.table({"x": VALUES, "n": pa.array([None, *range(999)], pa.int32())}))


def on_device() -> Any:
    return grid().to("kDLExtDev:3").tile(0).column("x")


def on_host() -> Any:
    return grid().tile(0).column("x")


def storage() -> Any:
    made = pg.storage.empty((1000,), "float64")
    np.asarray(made)[:] = VALUES
    return made


HOSTS: dict[str, Callable[[], Any]] = {"array": on_host, "storage": storage}


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


CONSUMERS: dict[str, Callable[[Any], Any]] = {
    "memoryview": lambda obj: memoryview(obj).tobytes(),
    "bytes": bytes,
    "bytearray": lambda obj: bytes(bytearray(obj)),
    "numpy.frombuffer": lambda obj: np.frombuffer(obj, "u1").tobytes(),
    "hashlib": lambda obj: hashlib.sha256(obj).digest(),
    "struct": lambda obj: struct.unpack_from("8000s", obj)[0],
    "io.BytesIO": lambda obj: io.BytesIO().write(obj),
    "pickle.PickleBuffer": lambda obj: bytes(pickle.PickleBuffer(obj)),
    "ctypes": lambda obj: bytes((ctypes.c_ubyte * 8000).from_buffer_copy(obj)),
    "pyarrow.py_buffer": lambda obj: pa.py_buffer(obj).to_pybytes(),
    "nanoarrow.c_buffer": lambda obj: bytes(na.c_buffer(obj)),
}
BYTES = struct.pack("1000d", *VALUES)
ANSWERS = {"hashlib": hashlib.sha256(BYTES).digest(), "io.BytesIO": 8000}


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("name", HOSTS)
def test_consumers_of_today_read_memory_of_the_host(name: str, consumer: str) -> None:
    assert CONSUMERS[consumer](HOSTS[name]()) == ANSWERS.get(consumer, BYTES)


@pytest.mark.parametrize("name", HOSTS)
def test_numpy_reads_memory_of_the_host_where_it_lies(name: str) -> None:
    obj = HOSTS[name]()
    array = np.asarray(obj)
    assert (array.ctypes.data, array.tolist()) == (obj.address, VALUES)
    assert b"".join([obj]) == BYTES


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_consumers_of_today_are_refused_memory_of_a_device(driver: Faulting, consumer: str) -> None:
    with pytest.raises(BufferError, match="kDLExtDev:3"):
        CONSUMERS[consumer](on_device())
    assert not driver.read_bytes


OTHERWISE: list[tuple[str, type[Exception], Callable[[Any], Any]]] = [
    ("numpy.asarray", TypeError, np.asarray),
    ("numpy.array", TypeError, np.array),
    ("numpy.array of a list", TypeError, lambda obj: np.array([obj])),
    ("numpy.asarray with a type", TypeError, lambda obj: np.asarray(obj, "float32")),
    ("bytes.join", TypeError, lambda obj: b"".join([obj])),
    ("arro3", ValueError, arro3.core.Buffer),
]


@pytest.mark.parametrize(
    ("error", "consume"), [each[1:] for each in OTHERWISE], ids=[each[0] for each in OTHERWISE]
)
def test_consumers_that_raise_something_else_raise_nevertheless(
    driver: Faulting, error: type[Exception], consume: Callable[[Any], Any]
) -> None:
    with pytest.raises(error):
        consume(on_device())
    assert not driver.read_bytes


@pytest.mark.usefixtures("driver")
def test_numpy_is_told_the_remedy() -> None:
    with pytest.raises(TypeError, match="numpy reads memory of the host") as caught:
        np.asarray(on_device())
    assert 'column.to("kDLCPU")' in str(caught.value)
    assert np.asarray(on_device().to("kDLCPU")).tolist() == VALUES


class Interface(ctypes.Structure):
    """What the capsule `partgrid.buffer.C_API` holds."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("extended_bytes", ctypes.c_uint32),
        ("info_bytes", ctypes.c_uint32),
        (
            "get_buffer_ext",
            ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int),
        ),
        ("release_ext", ctypes.PYFUNCTYPE(None, ctypes.c_void_p)),
        ("supports", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_int)),
    )


def interface() -> Interface:
    take = PYTHON.PyCapsule_Import
    take.restype, take.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_int]
    return Interface.from_address(take(b"partgrid.buffer.C_API", 0))


def test_extensions_in_c_ask_through_the_capsule(driver: Faulting) -> None:
    api = interface()
    assert (api.version, api.extended_bytes, api.info_bytes) == (1, 104, 64)
    watched = Watched()
    ctypes.memset(ctypes.addressof(watched), CANARY, ctypes.sizeof(watched))
    place = ctypes.addressof(watched)
    column = on_device()
    assert api.get_buffer_ext(column, place, FULL_RO) == 0
    assert (watched.extended.flags, watched.extended.base.len) == (pg.buffer.DEVICE, 8000)
    assert Info.from_address(watched.extended.device_info).device_id == 3
    api.release_ext(place)
    assert bytes(watched.extended) == bytes(104)
    api.release_ext(place)
    ctypes.memset(place, CANARY, ctypes.sizeof(Extended))
    with pytest.raises(BufferError, match="read-only"):
        api.get_buffer_ext(column, place, FULL_RO | WRITABLE)
    assert bytes(watched.extended) == bytes(104)
    assert api.get_buffer_ext(b"abc", place, FULL_RO) == 0
    assert (watched.extended.flags, watched.extended.base.len) == (0, 3)
    assert watched.extended.base.internal != pg.buffer.COOKIE
    api.release_ext(place)
    assert bytes(watched.canary) == bytes([CANARY] * 64)
    assert (api.supports(column, pg.buffer.DEVICE), api.supports(b"", pg.buffer.DEVICE)) == (1, 0)

    class Odd(bytes):
        __buffer_supported_flags__ = "all"

    with pytest.raises(TypeError):
        api.supports(Odd(), 0)
    del column
    gc.collect()
    assert not driver.buffers


DOCUMENT = (ROOT / "docs" / "devices.md").read_text()


PROBE = """
#include <stddef.h>
_Static_assert(sizeof(Py_buffer_extended) == {struct}, "struct");
_Static_assert(sizeof(partgrid_device_info) == {info}, "info");
_Static_assert(offsetof(partgrid_device_info, byte_offset) == {offset}, "offset");
_Static_assert(PyBUF_DEVICE == {device}, "flag");

/* What an extension does: bytes, type and number of the device; 1 for memory of the CPU; -1 with an exception. */
int probe(PyObject *obj, int flags, int64_t *found) {{
    partgrid_buffer_api *api = PyCapsule_Import("partgrid.buffer.C_API", 0);
    Py_buffer_extended ext;
    if (!api || api->extended_bytes != sizeof ext || api->get_buffer_ext(obj, &ext, flags)) return -1;
    int is_cpu = !(ext.flags & PyBUF_DEVICE) || !ext.device;
    found[0] = ext.base.len;
    if (!is_cpu) {{
        partgrid_device_info *info = ext.device_info;
        found[1] = info->device_type;
        found[2] = info->device_id;
    }}
    found[3] = api->supports(obj, PyBUF_DEVICE);
    api->release_ext(&ext);
    return is_cpu;
}}
"""


def test_an_extension_in_c_uses_the_declarations_as_they_stand(
    driver: Faulting, tmp_path: Path
) -> None:
    include = Path(sysconfig.get_paths()["include"])
    if shutil.which("cc") is None or not (include / "Python.h").exists():
        pytest.skip("cc or Python.h is missing, which compile the declarations of docs/devices.md")
    declared = "\n".join(re.findall(r"```c\n(.*?)```", DOCUMENT, flags=re.DOTALL))
    program, library = tmp_path / "probe.c", tmp_path / "probe.so"
    sizes = {"struct": pg.buffer.STRUCT_SIZE, "info": pg.buffer.INFO_SIZE}
    places = {"offset": Info.byte_offset.offset, "device": pg.buffer.DEVICE}
    program.write_text(declared + PROBE.format(**sizes, **places))
    command = ["cc", "-std=c11", "-Wall", "-Werror", "-shared", "-fPIC", f"-I{include}"]
    subprocess.run([*command, "-o", library, program], check=True)
    probe = ctypes.PyDLL(str(library)).probe
    probe.argtypes = [ctypes.py_object, ctypes.c_int, ctypes.POINTER(ctypes.c_int64)]
    found = (ctypes.c_int64 * 4)()
    column = on_device()
    assert probe(column, FULL_RO, found) == 0
    assert list(found) == [8000, 12, 3, 1]
    assert probe(on_host(), FULL_RO, found) == 1
    assert (found[0], found[3]) == (8000, 1)
    assert probe(b"abc", SIMPLE, found) == 1
    assert (found[0], found[3]) == (3, 0)
    with pytest.raises(BufferError, match="read-only"):
        probe(column, FULL_RO | WRITABLE, found)
    with pytest.raises(TypeError, match="bytes-like"):
        probe(5, FULL_RO, found)
    del column
    gc.collect()
    assert not driver.buffers


def test_the_examples_of_the_document_run() -> None:
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    [example] = [code for code in examples if "pg.buffer" in code]
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=ROOT, check=True, capture_output=True, text=True
    )
    wanted = re.findall(r"print\(.*?\)  # (.*)", example)
    assert wanted
    assert done.stdout.splitlines() == wanted


def interpreters() -> list[Path]:
    """Every Python from 3.12 on that this machine has: the one that runs, those on the path, those of pyenv."""
    found = [Path(sys.executable)] if sys.version_info >= (3, 12) else []
    for minor in range(12, 16):
        on_path = shutil.which(f"python3.{minor}")
        installed = (Path.home() / ".pyenv" / "versions").glob(f"3.{minor}.*/bin/python")
        candidates = [*sorted(installed), *([Path(on_path)] if on_path else [])]
        found += [path for path in candidates if runs(path, minor)][:1]
    return found


def runs(path: Path, minor: int) -> bool:
    code = "import sys; print(sys.version_info.minor, sys.implementation.name)"
    done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.split() == [str(minor), "cpython"]


PYTHONS = interpreters()
NO_PYTHON = "no CPython from 3.12 on is here, where any program can pass any flag: obj.__buffer__"


@pytest.mark.parametrize(
    "python",
    PYTHONS or [pytest.param(None, marks=pytest.mark.skip(reason=NO_PYTHON))],
    ids=lambda path: path.parts[-3] if path else "3.12",
)
def test_no_way_of_python_writes_behind_a_plain_struct(python: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"PYTHONMALLOC": "debug", "PYTHONPATH": str(ROOT / "python")}
        return subprocess.run(
            [python, ROOT / "tests" / "python" / "buffer_requests.py", *arguments],
            cwd=ROOT,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    done = run()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "array True True",
        "storage True False",
        "device False True",
        "through None True",
        "through True",
        "extended (12, 0)",
    ]
    # The check would have found it.
    done = run("overflow")
    assert done.returncode != 0
    assert "pad byte" in done.stderr
