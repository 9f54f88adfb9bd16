"""What tests of shared memory need: programs in processes of their own, and what is shared at a moment."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="shared memory is for Linux")

BUFFERS = """
import os, pickle, sys
import partgrid as pg, pyarrow as pa

def buffers(array):
    for buffer in array.buffers():
        if buffer is not None and buffer.size:
            yield buffer
    if isinstance(array, pa.DictionaryArray):
        yield from buffers(array.dictionary)

def copied(table):
    maps = []
    for line in open("/proc/self/maps"):
        if "memfd:partgrid" in line:
            place, rights = line.split()[:2]
            assert rights == "r--s", line
            maps.append(tuple(int(each, 16) for each in place.split("-")))
    def within(buffer):
        return any(a <= buffer.address and buffer.address + buffer.size <= b for a, b in maps)
    columns = [chunk for column in table.columns for chunk in column.chunks]
    return [buffer for column in columns for buffer in buffers(column) if not within(buffer)]

def outside(table):
    return len(copied(table))
"""


def in_another(code: str, *objects: Any, timeout: float = 60) -> str:
    """Runs a program in a process of its own, with unpickled `objects`, and returns what it prints."""
    code = f"import pickle, sys\nobjects = pickle.load(sys.stdin.buffer)\n{code}"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, input=pickle.dumps(objects), capture_output=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def own_segments() -> list[dict[str, Any]]:
    """What this process shares."""
    gc.collect()
    processes: list[dict[str, Any]] = pg.shared_memory()
    return next((each["segments"] for each in processes if each["pid"] == os.getpid()), [])


def grids_shared() -> set[str]:
    """The grids of which this process shares tiles. A server within it may have lent some, of another test."""
    return {each["grid"] for each in own_segments()}


def total(grid: pg.Grid) -> tuple[int, int]:
    """Runs in other processes."""
    return os.getpid(), grid.sql("SELECT sum(a) AS s FROM self").to_arrow()["s"][0].as_py()


def tile_sum(tile: Any) -> int:
    """Runs in other processes; takes a tile or a handle."""
    tile = tile if isinstance(tile, pg.Tile) else tile.tile()
    return int(pa.record_batch(tile)["a"].to_numpy().sum())


def numbers(*rows: int) -> pg.Grid:
    """A grid in private memory with so many rows in each tile."""
    batches = [pa.record_batch({"a": np.arange(count, dtype=np.int64)}) for count in rows]
    return pg.from_arrow(pa.Table.from_batches(batches))


def family() -> set[int]:
    """This process and its children, and theirs."""
    found, left = set(), [os.getpid()]
    while left:
        pid = left.pop()
        found.add(pid)
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                children = Path(f"/proc/{pid}/task/{thread}/children").read_text()
                left.extend(int(child) for child in children.split())
    return found


def shared_kilobytes() -> int:
    """Memory of the segments that this process and its children hold, each once; `Shmem` of the system counts other programs too."""
    sizes: dict[int, int] = {}
    for pid in family():
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if descriptor.readlink().as_posix().startswith("/memfd:partgrid"):
                        known = descriptor.stat()
                        sizes[known.st_ino] = known.st_blocks // 2
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                if "/memfd:partgrid" in line:
                    bounds, _, _, _, inode, *_ = line.split()
                    start, end = (int(bound, 16) for bound in bounds.split("-"))
                    sizes.setdefault(int(inode), (end - start) >> 10)
    return sum(sizes.values())


def soon(holds: Callable[[], bool], seconds: float = 20) -> bool:
    """Whether something holds within some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.01)
    return False
