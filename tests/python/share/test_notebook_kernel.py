"""A kernel of a notebook: what is pickled into it opens the very memory of its owner, until the kernel begins anew or shuts down."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

import partgrid as pg
from services import status, until
from sharing import BUFFERS, ON_LINUX, numbers, own_segments

pytestmark = ON_LINUX

# For each thing that a kernel is asked, however busy the machine is.
SECONDS = 120

BANDS = [300_000, 200_000]
SUMS = [sum(range(rows)) for rows in BANDS]

# What a cell makes stays for the cells after it.
OPENED = """
def tables(sent):
    grid, tiles, handles = pickle.loads(sent)
    return [grid.to_arrow(), *(pa.table(each) for each in tiles), *(pa.table(each.tile()) for each in handles)]

def told(table):
    sizes = [buffer.size for buffer in copied(table)]
    return len(sizes), sum(sizes), int(table["a"].to_numpy().sum())
"""


class Kernel:
    """A kernel in a process of its own, asked as a notebook does."""

    def __init__(self, manager: KernelManager) -> None:
        self.manager = manager
        self.client = manager.blocking_client()
        self.client.start_channels()

    def run(self, cell: str, expression: str = "None") -> Any:
        """Runs a cell; gives what an expression says after it."""
        content = self.client.execute(
            cell, user_expressions={"said": expression}, reply=True, timeout=SECONDS
        )["content"]
        assert content["status"] == "ok", content
        said = content["user_expressions"]["said"]
        assert said["status"] == "ok", said
        return ast.literal_eval(said["data"]["text/plain"])

    def begin(self) -> int:
        """Waits until it runs cells, and gives its process."""
        self.client.wait_for_ready(timeout=SECONDS)
        process: int = self.run(BUFFERS + OPENED, "os.getpid()")
        return process


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    """A kernel that keeps nothing in the folders of the user."""
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    # Of ports, one that is free is somebody's by the time the kernel takes it. The path of a socket has at most 107 bytes.
    with TemporaryDirectory() as folder:
        manager = KernelManager(transport="ipc", ip=f"{folder}/kernel")
        manager.start_kernel()
        one = Kernel(manager)
        try:
            yield one
        finally:
            one.client.stop_channels()
            manager.shutdown_kernel(now=True)


def read_by(process: int) -> list[tuple[int, int]]:
    """The tiles of this process that another has open."""
    return sorted(each["position"] for each in own_segments() if process in each["readers"])


@pytest.mark.parametrize("of", ["a server", "this process"])
def test_a_kernel_of_a_notebook_opens_the_same_memory(kernel: Kernel, of: str) -> None:
    made = numbers(*BANDS)
    with pg.Server({"numbers": made}) as server:
        grid = pg.connect(server.uri).grid("numbers") if of == "a server" else made.to_shared()
        handles = [each["data"] for each in grid.__partitioned__["partitions"].values()]
        sent = pickle.dumps((grid, grid.tiles, handles))
        assert len(sent) < 5000, "no rows"
        for end in (kernel.manager.restart_kernel, kernel.manager.shutdown_kernel):
            process = kernel.begin()
            assert read_by(process) == []
            said = kernel.run(f"opened = tables({sent!r})", "[told(each) for each in opened]")
            # Buffers that are not of the memory of this process, and their bytes.
            assert said == [(0, 0, each) for each in (sum(SUMS), *SUMS, *SUMS)]
            assert read_by(process) == [(0, 0), (1, 0)]
            assert status(server)["memory"]["copied_bytes"] == 0
            # What a cell shows, the notebook keeps.
            kernel.run("opened[0]")
            kernel.run("del opened")
            assert read_by(process) == [(0, 0), (1, 0)]
            end()
            until(lambda process=process: read_by(process) == [], SECONDS)
