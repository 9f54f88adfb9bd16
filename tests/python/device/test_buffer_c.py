"""The extended buffer protocol for extensions in C: the capsule, and the declarations of docs/devices.md."""

from __future__ import annotations

import ctypes
import gc
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import partgrid as pg
from buffers import (
    CANARY,
    FULL_RO,
    PYTHON,
    SIMPLE,
    WRITABLE,
    Extended,
    Info,
    Watched,
    on_device,
    on_host,
)
from conftest import ROOT
from devices import Faulting


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
