"""Arrays on devices of every type: what other libraries are told of them, who waits for their events, and that they are released once.

The memory is that of the host, which nobody may read under the name of a device; that of the driver in `devices.py` ends whoever does.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import signal
import subprocess
import sys
from typing import Any

import nanoarrow.device
import pyarrow as pa
import pytest
import tvm_ffi

import partgrid as pg
from conformance import arrow_capsules
from conftest import ROOT, TESTS
from devices import Faulting
from partgrid import errors
from structs import BATCH, DeviceArray, DeviceStream
from test_device_columns import imported

# The table of the core.
TABLE = re.findall(r'\("(kDL\w+)", (\d+)\)', (ROOT / "src" / "location.rs").read_text())
TYPES = {name: int(number) for name, number in TABLE}
ON_HOST = {"kDLCPU", "kDLCUDAHost", "kDLROCMHost", "kDLCUDAManaged"}


def test_all_types_of_dlpack_are_here() -> None:
    assert len(TYPES) == len(TABLE) == 16
    assert {TYPES[name] for name in ON_HOST} == {1, 3, 11, 13}
    assert (ctypes.sizeof(DeviceArray), ctypes.sizeof(DeviceStream)) == (128, 48)


@pytest.mark.parametrize("name", sorted(TYPES.keys() - ON_HOST))
def test_nanoarrow_takes_a_tile_and_a_column_on_any_device(name: str) -> None:
    grid, pair = imported(TYPES[name])
    tile = grid.tile(0)
    assert tile.location[0][2] == f"{name}:1"
    for given, kind in ((tile, "+s"), (tile.column("b"), "u")):
        taken = nanoarrow.device.c_device_array(given)
        assert (taken.device_type_id, taken.device_id) == (TYPES[name], 1)
        assert (taken.array.length, taken.schema.format) == (3, kind)
    with pytest.raises(errors.NotLocalError, match=f"{name}:1"):
        grid.to_arrow()
    del grid, tile, given
    gc.collect()
    assert pair[1].count == 0, "nanoarrow has it"
    del taken
    gc.collect()
    assert [each.count for each in pair] == [1, 1]


@pytest.mark.parametrize("name", sorted(TYPES))
def test_tvm_takes_a_tensor_on_any_device(name: str) -> None:
    grid, pair = imported(TYPES[name])
    column = grid.tile(0).column("a")
    tensor = tvm_ffi.from_dlpack(column.__dlpack__(max_version=(1, 1)))
    # There is one CPU.
    number = 0 if name == "kDLCPU" else 1
    assert tensor.__dlpack_device__() == (TYPES[name], number)
    assert (tensor.shape, str(tensor.dtype)) == ((3,), "int64")
    assert tensor.data_ptr() == BATCH.column(0).buffers()[1].address
    del grid, column
    gc.collect()
    assert pair[1].count == 0, "tvm has it"
    del tensor
    gc.collect()
    assert [each.count for each in pair] == [1, 1]


def test_events_of_memory_that_rocm_has_pinned_are_waited_for_by_its_engine() -> None:
    engine = Faulting()
    pg.register_copy_engine("kDLROCM", engine)
    grid, pair = imported(TYPES["kDLROCMHost"], 4096)
    assert engine.waited == [(1, 4096)]
    assert grid.to_arrow().to_pydict() == BATCH.to_pydict()
    assert (engine.waited, engine.read_bytes) == ([(1, 4096)], 0)
    del grid
    gc.collect()
    assert [each.count for each in pair] == [1, 1]


@pytest.mark.usefixtures("driver")
def test_a_tile_on_a_device_keeps_the_rules_of_capsules() -> None:
    table = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]})
    tile = pg.from_arrow(table).to("kDLExtDev:0").tile(0)
    broken = {name: seen.split(":")[0] for name, seen in arrow_capsules.deviations(tile).items()}
    # What these want to read is not here; pyarrow says so in words of its own.
    assert broken == {
        "array: two capsules": "raised NotLocalError",
        "array: can be asked for twice": "raised NotLocalError",
        "schema: that of the data": "raised ArrowKeyError",
    }


def test_whoever_reads_memory_of_the_driver_on_the_host_is_ended() -> None:
    """Else no test with this driver would show anything."""
    program = """
import ctypes, resource
from devices import Faulting
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
driver = Faulting()
handle, owner = driver.write(0, b"x" * 100)
assert driver.read(0, handle, 0, 100) == b"x" * 100
print("the driver reads it", flush=True)
print(ctypes.string_at(handle, 1), flush=True)
"""
    done = run(program)
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "the driver reads it\n")


def run(program: str) -> subprocess.CompletedProcess[str]:
    environment: dict[str, Any] = os.environ | {"PYTHONPATH": str(TESTS)}
    environment.pop("PYTHONFAULTHANDLER", None)
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
