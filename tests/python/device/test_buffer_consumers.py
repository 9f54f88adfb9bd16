"""Consumers that know nothing of the extended buffer protocol: they read memory of the host as ever, and are refused memory of a device.

Memory of the device here faults when the host touches it.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import os
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import arro3.core
import nanoarrow as na
import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from buffers import HOSTS, VALUES, on_device
from conftest import ROOT
from devices import Faulting

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


def interpreter(minor: int) -> Path | None:
    """A Python of this version: the one that runs, one of pyenv, or one on the path."""
    if sys.version_info[:2] == (3, minor):
        return Path(sys.executable)
    on_path = shutil.which(f"python3.{minor}")
    installed = (Path.home() / ".pyenv" / "versions").glob(f"3.{minor}.*/bin/python")
    candidates = [*sorted(installed), *([Path(on_path)] if on_path else [])]
    return next((path for path in candidates if runs(path, minor)), None)


def runs(path: Path, minor: int) -> bool:
    code = "import sys; print(sys.version_info.minor, sys.implementation.name)"
    done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.split() == [str(minor), "cpython"]


# From 3.12 on any program can pass any flag: obj.__buffer__
VERSIONS = [12, 13, 14]


@pytest.mark.parametrize("minor", VERSIONS, ids=lambda minor: f"3.{minor}")
def test_no_way_of_python_writes_behind_a_plain_struct(minor: int) -> None:
    python = interpreter(minor)
    if python is None:
        pytest.skip(f"CPython 3.{minor} is not on this machine")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        # The package that is tested, wherever it is installed: this Python knows nothing of it.
        package = Path(pg.__file__).parent.parent
        environment = {"PYTHONMALLOC": "debug", "PYTHONPATH": str(package)}
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
