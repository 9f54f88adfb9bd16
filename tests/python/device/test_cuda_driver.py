"""The copy engine of CUDA against a stand-in for the driver, which is compiled here: what is called, in which context, and what becomes of errors.

The stand-in has memory that faults when the host touches it, and copies that are on their way until somebody waits. Real GPUs are for `make test-gpu`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import TESTS

START = """
import ctypes, gc, threading
import numpy as np, pyarrow as pa
import partgrid as pg
from partgrid import errors
from type_samples import others, samples

driver = ctypes.CDLL("libcuda.so")
driver.stand_in_bytes.restype = driver.stand_in_event.restype = ctypes.c_size_t

def current():
    context = ctypes.c_void_p()
    assert driver.cuCtxGetCurrent(ctypes.byref(context)) == 0
    return context.value

def table(rows=1000):
    return pa.table({"x": np.arange(rows, dtype="f8"), "t": [f"row {row}" for row in range(rows)]})
"""

PROGRAMS = {
    "every type goes to either GPU and comes back": """
for ordinal in (0, 1):
    for name, column in (samples() | others()).items():
        ours = pg.from_arrow(pa.table({"c": column}))
        there = ours.to(f"kDLCUDA:{ordinal}")
        assert there.tile(0).location[0][2] == f"kDLCUDA:{ordinal}"
        assert driver.stand_in_staged() == 0, "a copy is still on its way"
        assert there.to("kDLCPU").to_arrow().equals(ours.to_arrow()), name
        assert there[2:7].to("kDLCPU").to_arrow().equals(ours[2:7].to_arrow()), name
across = pg.from_arrow(table()).to("kDLCUDA:0").to("kDLCUDA:1")
assert across.to("kDLCPU").to_arrow().equals(table())
assert driver.stand_in_bytes() > 0
del there, across
gc.collect()
assert driver.stand_in_bytes() == 0
""",
    "the context of the caller is current again": """
other = ctypes.c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(other), 1) == 0
assert current() is None
there = pg.from_arrow(table()).to("kDLCUDA:0")
assert current() is None
driver.cuCtxSetCurrent(other)
there.to("kDLCPU")
there.sql("SELECT sum(x) FROM self").to_arrow()
del there
gc.collect()
assert current() == other.value
assert driver.stand_in_bytes() == 0
found = []
thread = threading.Thread(target=lambda: (pg.from_arrow(table()).to("kDLCUDA:1"), found.append(current())))
thread.start()
thread.join()
assert found == [None]
""",
    "SQL copies the columns it needs": """
there = pg.from_arrow(table()).to("kDLCUDA:0")
assert there.sql("SELECT sum(x) AS s FROM self WHERE x >= 500").to_arrow()["s"].to_pylist() == [374750.0]
""",
    "columns say where they are": """
column = pg.from_arrow(table())[100:200].to("kDLCUDA:1").tile(0).column("x")
interface = column.__cuda_array_interface__
assert interface["shape"] == (100,) and interface["typestr"] == "<f8" and interface["data"] == (column.address, True)
out = ctypes.create_string_buffer(800)
context = ctypes.c_void_p()
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1)
driver.cuCtxSetCurrent(context)
assert driver.cuMemcpyDtoH_v2(out, ctypes.c_uint64(column.address), ctypes.c_size_t(800)) == 0
assert np.frombuffer(out, "f8").tolist() == list(np.arange(100.0, 200.0))
assert column.__dlpack_device__() == (2, 1)
with pg.buffer.get_buffer(column) as buffer:
    assert (buffer.pointer, buffer.device_info) == (column.address, (2, 1))
assert memoryview(column.to("kDLCPU")).tolist() == list(np.arange(100.0, 200.0))
""",
    "an event is the one that the pointer leads to": """
from structs import Counted, DeviceArray, produce, schema_struct, taken, Schema
there = pg.from_arrow(pa.table({"n": [1, 2, 3]})).to("kDLCUDA:0")
schema, array = there.tile(0).__arrow_c_device_array__()
struct = taken(array, DeviceArray)
event = ctypes.c_void_p(0x5eed)
struct.sync_event = ctypes.addressof(event)
pair = Counted(taken(schema, Schema)), Counted(struct)
again = pg.from_arrow(produce("__arrow_c_device_array__", tuple(each.capsule for each in pair)))
for each in pair:
    del each.capsule
assert driver.stand_in_waited() == 0
assert again.to("kDLCPU").to_arrow()["n"].to_pylist() == [1, 2, 3]
assert (driver.stand_in_waited(), driver.stand_in_event()) == (1, 0x5eed)
""",
    "memory that CUDA has pinned or moves is waited for when it comes": """
from structs import BATCH, Counted, device_struct, produce, schema_struct
event = ctypes.c_void_p(0x5eed)
for number, ordinal in ((3, 1), (13, 1), (3, -1)):
    before = driver.stand_in_waited()
    struct = device_struct(number, ctypes.addressof(event))
    struct.device_id = ordinal
    pair = Counted(schema_struct()), Counted(struct)
    grid = pg.from_arrow(produce("__arrow_c_device_array__", tuple(each.capsule for each in pair)))
    for each in pair:
        del each.capsule
    assert (driver.stand_in_waited() - before, driver.stand_in_event()) == (1, 0x5eed)
    assert grid.to_arrow().to_pydict() == BATCH.to_pydict()
    assert grid.tile(0).column("a").__dlpack_device__() == (number, max(ordinal, 0))
    assert driver.stand_in_waited() - before == 1, "once"
    assert current() is None
    del grid
    gc.collect()
    assert [each.count for each in pair] == [1, 1]
""",
    "storages lie in memory of the GPU": """
def values(storage):
    "The elements, copied by the driver itself."
    context = ctypes.c_void_p()
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), storage.__dlpack_device__()[1])
    driver.cuCtxSetCurrent(context)
    last = sum((extent - 1) * stride for extent, stride in zip(storage.shape, storage.strides))
    out = np.zeros(last + storage.itemsize, "u1")
    assert driver.cuMemcpyDtoH_v2(ctypes.c_void_p(out.ctypes.data), ctypes.c_uint64(storage.address), ctypes.c_size_t(out.size)) == 0
    driver.cuCtxSetCurrent(None)
    return np.ndarray(storage.shape, storage.__cuda_array_interface__["typestr"], out, strides=storage.strides)

for dtype, value in [("f8", 1.25), ("i4", -7), ("i2", 258), ("u1", 9), ("?", True), ("c16", 2 - 3j), ("f8", 0.0)]:
    for shape in [(), (5,), (70, 3, 41), (300_000,)]:
        for backend in ("gt:gpu", "dace:gpu"):
            how = {"backend": backend} if len(shape) == 3 else {"device": "gpu", "alignment_size": 64}
            full = pg.storage.full(shape, value, dtype, **how)
            assert driver.stand_in_staged() == 0, "a copy is still on its way"
            assert values(full).tolist() == np.full(shape, value, dtype).tolist(), (dtype, shape)
            assert len(shape) == 3 or full.address % 64 == 0
assert values(pg.storage.zeros((40, 30), device="gpu")).tolist() == np.zeros((40, 30)).tolist()
assert values(pg.storage.ones((4, 3), "f4", device="gpu")).tolist() == np.ones((4, 3)).tolist()
storage = pg.storage.zeros((4, 3), device="gpu", dims="IJ", alignment_size=32, aligned_index=(1, 1))
assert (storage.address + sum(storage.strides)) % 32 == 0
assert repr(storage).endswith("on kDLCUDA:0"), repr(storage)
interface = storage.__cuda_array_interface__
assert interface["data"] == (storage.address, False) and interface["shape"] == (4, 3) and interface["strides"] == storage.strides
assert storage.__gt_dims__ == ("I", "J") and storage.__gt_origin__ == (1, 1)
assert not hasattr(storage, "__array_interface__")
assert storage.__dlpack_device__() == (2, 0)
for refused, ask in [
    (TypeError, lambda: np.asarray(storage)),
    (BufferError, lambda: memoryview(storage)),
    (BufferError, lambda: storage.__dlpack__(dl_device=(1, 0))),
    (BufferError, lambda: storage.__dlpack__(copy=True)),
    (BufferError, lambda: storage.__dlpack__(stream=0)),
    (TypeError, lambda: pg.storage.as_numpy(storage)),
    (errors.NotLocalError, lambda: pg.from_storage(storage)),
    (TypeError, lambda: storage[0]),
]:
    try:
        ask()
    except refused as error:
        assert "kDLCUDA:0" in str(error) or "GPU" in str(error) or "CUDA" in str(error) or "(2, 0)" in str(error), error
    else:
        raise AssertionError(refused)
storage.__dlpack__(stream=1, max_version=(1, 1), dl_device=(2, 0))
with pg.buffer.get_buffer(storage) as buffer:
    assert (buffer.pointer, buffer.device_info) == (storage.address, (2, 0))
none = pg.storage.zeros((0, 3), device="gpu")
assert none.__cuda_array_interface__["data"] == (0, False), "as the interface has it"
del none
like = pg.storage.ones_like(storage)
assert like.__dlpack_device__() == (2, 0) and like.dims == ("I", "J")
context = ctypes.c_void_p()
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1)
driver.cuCtxSetCurrent(context)
assert pg.storage.zeros((3,), device="gpu").__dlpack_device__() == (2, 1), "the GPU that is current"
assert current() == context.value
driver.cuCtxSetCurrent(None)
import os
os.environ["STAND_IN_BYTES"] = "800000"
try:
    pg.storage.zeros((1000, 1000), device="gpu")
except errors.ResourcesExhaustedError as error:
    assert "kDLCUDA:0" in str(error), error
else:
    raise AssertionError
del storage, like, full, interface, buffer
gc.collect()
assert driver.stand_in_bytes() == 0
""",
    "errors of the driver are kinds of ours": """
import os
grid = pg.from_arrow(table(100_000))
def refused(kind, text, wanted="kDLCUDA:0"):
    try:
        grid.to(wanted)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)
refused(errors.NotFoundError, "no kDLCUDA:2: this machine has 2 GPUs", "kDLCUDA:2")
os.environ["STAND_IN_BYTES"] = "800000"
refused(errors.ResourcesExhaustedError, "bytes on kDLCUDA:0 failed")
gc.collect()
assert driver.stand_in_bytes() == 0, "what was copied before is freed"
assert current() is None
""",
    "without a GPU the driver says so": """
import os
os.environ["STAND_IN_DEVICES"] = "0"
try:
    pg.from_arrow(table()).to("kDLCUDA:0")
except errors.NotFoundError as error:
    assert "starting the CUDA driver failed" in str(error), error
    assert "nvidia-smi" in str(error), error
else:
    raise AssertionError
os.environ["STAND_IN_DEVICES"] = "1"
for code, remedy in (("34", "is the stub of the toolkit"), ("803", "have different versions")):
    os.environ["STAND_IN_STARTS"] = code
    try:
        pg.from_arrow(table()).to("kDLCUDA:0")
    except errors.StorageError as error:
        assert "starting the CUDA driver failed" in str(error), error
        assert remedy in str(error), error
    else:
        raise AssertionError(code)
os.environ["STAND_IN_STARTS"] = "0"
assert pg.from_arrow(table()).to("kDLCUDA:0").to("kDLCPU").to_arrow().equals(table()), "asked again"
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stand-in."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("cc is missing, which compiles the stand-in for the driver of CUDA")
    folder = tmp_path_factory.mktemp("driver")
    library, source = folder / "libcuda.so", TESTS / "cuda_driver.c"
    command = [compiler, "-std=c11", "-Wall", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", library, source], check=True)
    (folder / "libcuda.so.1").symlink_to(library)
    return folder


@pytest.mark.parametrize("name", PROGRAMS)
def test_with_the_stand_in(folder: Path, name: str) -> None:
    environment = {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        [sys.executable, "-c", START + PROGRAMS[name]],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_tests_for_gpus_hold_with_the_stand_in(folder: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs"]
    done = subprocess.run(
        [*command, TESTS.parent / "gpu" / "test_cuda.py"],
        env=os.environ | {"LD_LIBRARY_PATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "there is a GPU on this machine" in done.stdout
    assert " 1 skipped" in done.stdout
