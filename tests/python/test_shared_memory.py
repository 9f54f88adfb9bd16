"""Shared memory: tiles that other processes read in place, and what happens when one of them dies, stops or lies."""

from __future__ import annotations

import contextlib
import copy
import decimal
import gc
import mmap
import multiprocessing
import os
import pickle
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from programs import on_ranks
from type_samples import samples

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="shared memory is for Linux")

BUFFERS = """
import os, pickle, sys
import partgrid as pg, pyarrow as pa

def buffers(array):
    for buffer in array.buffers():
        if buffer is not None and buffer.size:
            yield buffer
    if isinstance(array, pa.DictionaryArray):
        yield from buffers(array.dictionary)

def outside(table):
    maps = []
    for line in open("/proc/self/maps"):
        if "memfd:partgrid" in line:
            place, rights = line.split()[:2]
            assert rights == "r--s", line
            maps.append(tuple(int(each, 16) for each in place.split("-")))
    def within(buffer):
        return any(a <= buffer.address and buffer.address + buffer.size <= b for a, b in maps)
    columns = [chunk for column in table.columns for chunk in column.chunks]
    return sum(not within(buffer) for column in columns for buffer in buffers(column))
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


# What travels.


def test_another_process_reads_every_type_in_place() -> None:
    table = pa.table(samples()).replace_schema_metadata({"of": "the schema"})
    grid = pg.from_arrow(table)
    code = BUFFERS + (
        "[grid] = objects\n"
        "table = grid.to_arrow()\n"
        "assert table.schema.metadata == {b'of': b'the schema'}\n"
        "table.validate(full=True)\n"
        "print(outside(table))\n"
    )
    for each in (grid, grid.to_shared()):
        assert in_another(code, each) == "0"


def test_values_of_every_type_are_the_same_in_another_process() -> None:
    table = pa.table(samples())
    for part in (table, table.slice(3, 4), table.slice(0, 0)):
        code = (
            "import partgrid as pg, pyarrow as pa\n"
            "grid, stream = objects\n"
            "expected = pa.ipc.open_stream(stream).read_all()\n"
            "found = grid.to_arrow()\n"
            "assert found.schema.equals(expected.schema, check_metadata=True)\n"
            "for name in expected.column_names:\n"
            "    assert found[name].to_pylist() == expected[name].to_pylist(), name\n"
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_table(part)
        in_another(code, pg.from_arrow(part), sink.getvalue().to_pybytes())


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_grids_tiles_and_handles_go_to_processes_of_multiprocessing(method: str) -> None:
    grid = numbers(1000, 10).to_shared()
    handles = [each["data"] for each in grid.__partitioned__["partitions"].values()]
    with multiprocessing.get_context(method).Pool(2) as pool:
        [(process, found)] = pool.map(total, [grid])
        assert process != os.getpid()
        assert found == sum(range(1000)) + sum(range(10))
        assert pool.map(tile_sum, grid.tiles) == [sum(range(1000)), sum(range(10))]
        assert pool.map(tile_sum, handles) == [sum(range(1000)), sum(range(10))]


def test_joblib_sends_names_and_no_data() -> None:
    grid = numbers(100_000, 50_000)
    assert len(pickle.dumps(grid)) < 1000
    assert len(pickle.dumps(grid.tile(0))) < 1000
    with joblib.parallel_config(backend="loky", n_jobs=2):
        found = joblib.Parallel()(joblib.delayed(tile_sum)(tile) for tile in grid.tiles)
    assert found == [sum(range(100_000)), sum(range(50_000))]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_in_this_process_a_pickle_gives_the_very_memory(protocol: int) -> None:
    grid = numbers(5, 3)
    back = pickle.loads(pickle.dumps(grid, protocol))
    address = [chunk.buffers()[1].address for chunk in grid.to_arrow()["a"].chunks]
    assert [chunk.buffers()[1].address for chunk in back.to_arrow()["a"].chunks] == address
    assert back.__partitioned__ == grid.__partitioned__
    tile = grid.tile(1)
    again = pickle.loads(pickle.dumps(tile, protocol))
    assert (again.position, again.start, again.shape) == ((1, 0), (5, 0), (3, 1))
    assert pa.record_batch(again)["a"].buffers()[1].address == address[1]
    assert copy.deepcopy(grid).cuts == grid.cuts


def test_a_pickled_grid_knows_its_shape_order_and_size_before_anything_is_opened() -> None:
    table = pa.table({"a": [1, 2, 3, 4], "b": ["w", "x", "y", "z"]})
    grid = pg.from_arrow(table)
    code = (
        "import partgrid as pg\n"
        "[grid] = objects\n"
        "print(grid.shape, grid.cuts, grid.columns, grid.nbytes, grid.schema.names)\n"
        "print([tile.location for tile in grid.tiles])\n"
        "print(pg.shared_memory()[0]['segments'])\n"
        "print(repr(grid).splitlines()[0])\n"
    )
    lines = in_another(code, grid).splitlines()
    assert lines[0] == f"(4, 2) ((0, 4), (0, 2)) ['a', 'b'] {grid.nbytes} ['a', 'b']"
    [place] = grid.tile(0).location
    assert lines[1] == str([[place]])
    assert lines[3].endswith("in shared memory")


def test_sorted_columns_and_column_bands_travel(tmp_path: Any) -> None:
    pg.from_arrow(pa.table({"a": [3, 1, 2], "b": [1.0, 2.0, 3.0]})).write_parquet(tmp_path / "x")
    grid = pg.read_parquet(tmp_path / "x", sort_by="a", tile_columns=1)
    code = "[grid] = objects\nprint(grid.sorted_by, grid.tiling, grid.to_arrow().to_pydict())"
    expected = {"a": [1, 2, 3], "b": [2.0, 3.0, 1.0]}
    assert in_another(code, grid) == f"[('a', 'ascending')] (1, 2) {expected}"


def test_a_lazy_grid_is_read_by_its_owner(tmp_path: Any) -> None:
    pg.from_arrow(pa.table({"a": [3, 1, 2]})).write_parquet(tmp_path / "x")
    grid = pg.read_parquet(tmp_path / "x", lazy=True)
    code = "print(objects[0].to_arrow()['a'].to_pylist())"
    assert in_another(code, grid) == "[3, 1, 2]"


def test_a_reader_hands_on_the_names_of_the_owner() -> None:
    grid = numbers(7)
    code = (
        "import subprocess\n"
        "[grid] = objects\n"
        "grid.to_arrow()\n"
        "code = 'import pickle, sys; grid = pickle.load(sys.stdin.buffer);"
        " print(grid.to_arrow().num_rows, grid.tile(0).location[-1][1])'\n"
        "command = [sys.executable, '-c', code]\n"
        "done = subprocess.run(command, input=pickle.dumps(grid), capture_output=True)\n"
        "print(done.stdout.decode(), done.stderr.decode())\n"
    )
    assert in_another(code, grid) == f"7 {os.getpid()}"


def test_rows_and_columns_of_a_shared_grid_need_no_other_segment() -> None:
    grid = numbers(1000, 1000).to_shared()
    part = grid[990:1010, ["a"]]
    before = len(own_segments())
    code = (
        "import partgrid as pg\n"
        "print(objects[0].to_arrow()['a'].to_pylist())\n"
        "owner = next(each for each in pg.shared_memory() if each['pid'] == objects[1])\n"
        "print(len(owner['segments']), sum(s['readers'].count(objects[2]()) for s in owner['segments']))"
    )
    values, listed = in_another(code, part, os.getpid(), os.getpid).splitlines()
    assert values == str([*range(990, 1000), *range(10)])
    assert listed == f"{before} 2"


def test_a_grid_of_an_spmd_program_does_not_pickle() -> None:
    def pickled(comm: Any) -> str:
        grid = pg.engines.mpi.from_local(pa.table({"a": [1]}), comm)
        try:
            pickle.dumps(grid)
        except pg.errors.UnsupportedError as error:
            return str(error)
        return "pickled"

    assert all("SPMD program" in said for said in on_ranks(2, pickled))


# Memory.


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


def test_a_private_tile_is_copied_once_and_only_as_long_as_it_is_read() -> None:
    grid = numbers(500_000, 500_000)
    assert own_segments() == []
    sent = pickle.dumps(grid)
    assert own_segments() == []
    code = (
        "import pickle, sys\ngrid = pickle.load(sys.stdin.buffer)\n"
        "grid.to_arrow()\nprint('open', flush=True)\nsys.stdin.buffer.read()\n"
    )
    readers = [
        subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1) for _ in range(3)
    ]
    for reader in readers:
        reader.stdin.write(sent)
        reader.stdin.flush()
    assert [reader.stdout.readline() for reader in readers] == [b"open\n"] * 3
    segments = own_segments()
    processes = sorted(reader.pid for reader in readers)
    assert [each["position"] for each in segments] == [(0, 0), (1, 0)]
    for each in segments:
        assert each["copy"]
        assert sorted(each["readers"]) == processes
        assert 4_000_000 <= each["nbytes"] < 4_010_000
    for reader in readers:
        reader.communicate()
    assert soon(lambda: own_segments() == [])


def soon(holds: Callable[[], bool], seconds: float = 5) -> bool:
    """Whether something holds within some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.01)
    return False


def test_what_is_shared_takes_memory_once() -> None:
    before = shared_kilobytes()
    grid = pg.from_arrow(pa.table({"a": np.ones(8 << 20)})).to_shared()
    assert 63 << 10 <= shared_kilobytes() - before < 72 << 10
    code = (
        "import partgrid as pg, pyarrow.compute as pc\n"
        "[grid] = objects\n"
        "assert pc.sum(grid.to_arrow()['a']).as_py() == 8 << 20\n"
        "status = open('/proc/self/status').read()\n"
        "print(next(line.split()[1] for line in status.splitlines() if 'RssShmem' in line))\n"
    )
    assert int(in_another(code, grid)) >= 64 << 10, "read in place"
    assert shared_kilobytes() - before < 72 << 10
    del grid
    gc.collect()
    assert soon(lambda: shared_kilobytes() - before < 8 << 10)


def test_there_is_no_thread_before_something_is_handed_over() -> None:
    code = (
        "import os, pickle, partgrid as pg, pyarrow as pa\n"
        "grid = pg.from_arrow(pa.table({'a': [1]}))\n"
        "threads = lambda: {open(f'/proc/self/task/{t}/comm').read() for t in os.listdir('/proc/self/task')}\n"
        "grid.__partitioned__\n"
        "assert not any('partgrid' in name for name in threads()), threads()\n"
        "pickle.dumps(grid)\n"
        "import time\n"
        "while not any('partgrid' in name for name in threads()):\n    time.sleep(0.01)\n"
        "print(sorted(name.strip() for name in threads() if 'partgrid' in name))\n"
    )
    assert in_another(code) == "['partgrid-share']"


# Processes that die.

CYCLES = """
import gc, os, pickle, signal, sys, time
import numpy as np, pyarrow as pa, partgrid as pg

def state():
    gc.collect()
    # Of this process, whose children are gone: other processes of the machine share memory as well.
    links = []
    for name in os.listdir('/proc/self/fd'):
        try:
            links.append(os.readlink('/proc/self/fd/' + name))
        except OSError:
            pass
    maps = [line.split() for line in open('/proc/self/maps') if '/memfd:partgrid' in line]
    mapped = {part[4]: [int(end, 16) for end in part[0].split('-')] for part in maps}
    shared = sum(end - start for start, end in mapped.values()) >> 10
    return len(links), sum(link.startswith('socket:') for link in links), shared

def exchange(child):
    to_parent, from_parent = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(60)
            os.close(to_parent[0]); os.close(from_parent[1])
            child(os.fdopen(from_parent[0], 'rb'), os.fdopen(to_parent[1], 'wb'))
        finally:
            os._exit(1)
    os.close(to_parent[1]); os.close(from_parent[0])
    return pid, os.fdopen(to_parent[0], 'rb'), os.fdopen(from_parent[1], 'wb')

def table(number):
    return pa.table({'a': np.full(1 << 18, number)})

def owner(receive, send, number):
    grid = pg.from_arrow(table(number))
    if number % 2:
        grid = grid.to_shared()
    pickle.dump(grid.tile(0), send)
    send.flush()
    receive.read()

def reader(receive, send):
    tile = pickle.load(receive)
    assert pa.record_batch(tile)['a'][5].as_py() == 7
    send.write(b'x'); send.flush()
    receive.read()

def killed(pid, *files):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for each in files:
        each.close()
"""

OWNERS_KILLED = (
    CYCLES
    + """
def cycle(number):
    pid, receive, send = exchange(lambda r, s: owner(r, s, number))
    tile = pickle.load(receive)
    batch = pa.record_batch(tile)
    killed(pid, receive, send)
    values = batch['a']
    assert values[0].as_py() == number and values[-1].as_py() == number
    try:
        pickle.loads(pickle.dumps(tile)).to_arrow()
    except pg.errors.PartitionLostError:
        pass
"""
)

READERS_KILLED = (
    CYCLES
    + """
grids = [pg.from_arrow(table(7)), pg.from_arrow(table(7)).to_shared()]

def cycle(number):
    sent = pickle.dumps(grids[number % 2].tile(0))
    # The child has no grid of its parent.
    pid, receive, send = exchange(lambda r, s: (grids.clear(), gc.collect(), reader(r, s)))
    send.write(sent); send.flush()
    assert receive.read(1) == b'x'
    killed(pid, receive, send)
"""
)

MANY = """
for number in range(10):
    cycle(number)
time.sleep(0.2)
before = state()
started = time.monotonic()
for number in range(200):
    cycle(number)
for _ in range(100):
    after = state()
    if after[0] <= before[0] and after[1] <= before[1]:
        break
    time.sleep(0.05)
print(*before, *after, f'{time.monotonic() - started:.1f}')
"""


@pytest.mark.parametrize("code", [OWNERS_KILLED, READERS_KILLED], ids=["owners", "readers"])
def test_after_200_processes_that_were_killed_nothing_is_left(code: str) -> None:
    *numbers, _ = in_another(code + MANY, timeout=240).split()
    before, after = [int(each) for each in numbers[:3]], [int(each) for each in numbers[3:]]
    assert after[0] <= before[0], "descriptors"
    assert after[1] <= before[1], "sockets"
    # 200 tiles are 400 MiB.
    assert after[2] - before[2] < 32 << 10


def test_the_memory_of_a_killed_owner_stays_as_long_as_it_is_read_and_goes_then() -> None:
    code = (
        "import os, pickle, sys, time, numpy as np, partgrid as pg, pyarrow as pa\n"
        "grid = pg.from_arrow(pa.table({'a': np.arange(4 << 20)})).to_shared()\n"
        "sys.stdout.buffer.write(pickle.dumps(grid)); sys.stdout.buffer.flush()\n"
        "time.sleep(60)\n"
    )
    before = shared_kilobytes()
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=-1)
    grid = pickle.load(owner.stdout)
    table = grid.to_arrow()
    owner.kill()
    owner.communicate()
    assert table["a"].to_numpy().sum() == sum(range(4 << 20))
    assert shared_kilobytes() - before >= 31 << 10
    assert grid.sql("SELECT count(*) AS n FROM self").to_arrow()["n"][0].as_py() == 4 << 20
    del table, grid
    gc.collect()
    assert soon(lambda: shared_kilobytes() - before < 8 << 10)


OWNER = (
    "import pickle, sys, partgrid as pg, pyarrow as pa\n"
    "grid = pg.from_arrow(pa.table({'a': [1, 2, 3]}))\n"
    "sys.stdout.buffer.write(pickle.dumps(grid.tile(0))); sys.stdout.buffer.flush()\n"
    "tile = grid.tile(0); other = pickle.dumps(tile)\n"
    "sys.stdout.buffer.write(pickle.dumps(grid)); sys.stdout.buffer.flush()\n"
    "sys.stdin.read()\n"
)


@contextlib.contextmanager
def owner_of_a_grid() -> Iterator[tuple[subprocess.Popen[bytes], pg.Grid]]:
    """A process with a grid of three rows in private memory."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdin=-1, stdout=-1)
    try:
        pickle.load(owner.stdout)
        yield owner, pickle.load(owner.stdout)
    finally:
        owner.kill()
        owner.communicate()


def test_a_tile_of_a_process_that_ended_is_lost_at_once() -> None:
    with owner_of_a_grid() as (owner, grid):
        owner.kill()
        owner.wait()
        started = time.monotonic()
        with pytest.raises(pg.errors.PartitionLostError, match=f"pid {owner.pid}"):
            grid.to_arrow()
        assert time.monotonic() - started < 5


def test_a_process_that_is_stopped_is_waited_for_some_seconds_and_works_when_it_goes_on() -> None:
    with owner_of_a_grid() as (owner, grid):
        os.kill(owner.pid, signal.SIGSTOP)
        try:
            started = time.monotonic()
            with pytest.raises(pg.errors.ResourcesExhaustedError, match="does not answer"):
                pa.record_batch(grid.tile(0))
            assert time.monotonic() - started < 10
            [stopped] = [each for each in pg.shared_memory() if each["pid"] == owner.pid]
            assert stopped["segments"] is None
        finally:
            os.kill(owner.pid, signal.SIGCONT)
        assert grid.to_arrow()["a"].to_pylist() == [1, 2, 3]
        # Stopped with a connection that is in use.
        table = grid.to_arrow()
        handle = next(iter(grid.__partitioned__["partitions"].values()))["data"]
        os.kill(owner.pid, signal.SIGSTOP)
        try:
            assert handle.tile().to_arrow()["a"].to_pylist() == [1, 2, 3], "open already"
            assert table["a"].to_pylist() == [1, 2, 3]
            started = time.monotonic()
            del table, grid, handle
            gc.collect()
            # Waiting for it would take two seconds at least.
            assert time.monotonic() - started < 2, "ending a lease waits for nobody"
        finally:
            os.kill(owner.pid, signal.SIGCONT)


def test_waiting_for_a_process_that_is_stopped_obeys_ctrl_c() -> None:
    with owner_of_a_grid() as (owner, grid):
        handle = next(iter(grid.__partitioned__["partitions"].values()))["data"]
        code = (
            "import os, signal, threading, time\n"
            "def interrupt():\n    time.sleep(0.5)\n    os.kill(os.getpid(), signal.SIGINT)\n"
            "threading.Thread(target=interrupt).start()\n"
            "started = time.monotonic()\n"
            "try:\n    objects[0].tile()\n"
            "except KeyboardInterrupt:\n    print(time.monotonic() - started < 1.9, flush=True)\n"
            "os._exit(0)\n"
        )
        os.kill(owner.pid, signal.SIGSTOP)
        try:
            assert in_another(code, handle) == "True"
        finally:
            os.kill(owner.pid, signal.SIGCONT)


def test_a_pickled_tile_opens_as_long_as_the_grid_or_the_tile_is_there() -> None:
    grid = numbers(3, 4)
    code = "import pyarrow as pa\nprint(pa.record_batch(pickle.loads(objects[0])).num_rows)"
    sent = pickle.dumps(grid.tile(1))
    assert in_another(code, sent) == "4", "the tile is gone, the grid is there"
    tile = grid.tile(1)
    del grid
    gc.collect()
    sent = pickle.dumps(tile)
    assert in_another(code, sent) == "4", "the grid is gone, the tile is there"
    del tile
    gc.collect()
    with pytest.raises(pg.errors.PartitionLostError):
        pickle.loads(sent).to_arrow()


def test_a_grid_that_was_dropped_is_lost_for_others() -> None:
    sent = pickle.dumps(numbers(3))
    gc.collect()
    code = (
        "import partgrid as pg\n"
        "try:\n    pickle.loads(objects[0]).to_arrow()\n"
        "except pg.errors.PartitionLostError as error:\n    print(error)\n"
    )
    assert "the grid was dropped" in in_another(code, sent)
    with pytest.raises(pg.errors.PartitionLostError, match="the grid was dropped"):
        pickle.loads(sent).to_arrow()


def test_errors_of_the_owner_come_as_they_are() -> None:
    grid = numbers(3)
    handle = next(iter(grid.__partitioned__["partitions"].values()))["data"]
    name, [parts] = handle.__reduce__()
    parts = (parts[0], [4, 0], *parts[2:])
    code = (
        "import partgrid as pg\n"
        "try:\n    objects[0](objects[1]).tile()\n"
        "except pg.errors.NotFoundError as error:\n    print(error)\n"
    )
    assert "(4, 0)" in in_another(code, name, parts)


def test_forked_children_use_neither_connections_nor_threads_of_their_parent() -> None:
    with owner_of_a_grid() as (owner, grid):
        code = (
            "import gc, os, partgrid as pg, pyarrow as pa\n"
            "grid, owner = objects\n"
            "table = grid.to_arrow()\n"
            "mine = pg.from_arrow(pa.table({'a': [9]}))\n"
            "pickle.dumps(mine)\n"
            "def sockets():\n"
            "    links = [os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{fd}')]\n"
            "    return sum(link.startswith('socket') for link in links)\n"
            "def readers():\n"
            "    [entry] = [each for each in pg.shared_memory() if each['pid'] == owner]\n"
            "    return [s['readers'] for s in entry['segments']]\n"
            "assert sockets() >= 2 and readers() == [[os.getpid()]]\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    code = 1\n"
            "    try:\n"
            "        assert sockets() == 0, sockets()\n"
            "        assert table['a'].to_pylist() == [1, 2, 3]\n"
            "        del table, grid\n"
            "        gc.collect()\n"
            "        again = pickle.loads(pickle.dumps(pg.from_arrow(pa.table({'a': [1]}))))\n"
            "        assert {os.getpid(), os.getppid()} <= {each['pid'] for each in pg.shared_memory()}\n"
            "        code = 0\n"
            "    finally:\n"
            "        os._exit(code)\n"
            "assert os.waitpid(child, 0)[1] == 0\n"
            "assert readers() == [[os.getpid()]]\n"
            "assert grid.to_arrow()['a'].to_pylist() == [1, 2, 3]\n"
            "print('good')\n"
        )
        assert in_another(code, grid, owner.pid) == "good"


def test_the_end_of_an_owner_is_noticed_though_its_children_live() -> None:
    code = (
        "import os, pickle, sys, time, partgrid as pg, pyarrow as pa\n"
        "grid = pg.from_arrow(pa.table({'a': [1]}))\n"
        "sent = pickle.dumps(grid)\n"
        "if os.fork() == 0:\n    time.sleep(20)\n    os._exit(0)\n"
        "sys.stdout.buffer.write(sent); sys.stdout.buffer.flush()\n"
        "sys.stdin.read()\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1)
    grid = pickle.load(owner.stdout)
    owner.kill()
    owner.wait()
    # It would not answer if its children had its socket.
    with pytest.raises(pg.errors.PartitionLostError, match="has ended"):
        grid.to_arrow()


def test_many_readers_at_once_get_the_right_tiles() -> None:
    grid = pg.from_arrow(
        pa.Table.from_batches(
            [pa.record_batch({"a": np.full(10_000, number)}) for number in range(20)]
        )
    )
    code = (
        "import pyarrow as pa, random, threading\n"
        "[grid] = objects\n"
        "wrong = []\n"
        "def read():\n"
        "    for number in random.sample(range(20), 20):\n"
        "        values = pa.record_batch(pickle.loads(pickle.dumps(grid.tile(number))))['a']\n"
        "        if values.to_numpy().tolist() != [number] * 10_000: wrong.append(number)\n"
        "threads = [threading.Thread(target=read) for _ in range(4)]\n"
        "[each.start() for each in threads]; [each.join() for each in threads]\n"
        "assert not wrong, wrong\n"
    )
    sent = pickle.dumps((grid,))
    program = f"import pickle, sys\nobjects = pickle.load(sys.stdin.buffer)\n{code}"
    readers = [
        subprocess.Popen([sys.executable, "-c", program], stdin=-1, stderr=-1) for _ in range(8)
    ]
    for reader in readers:
        _, said = reader.communicate(sent, timeout=60)
        assert reader.returncode == 0, said.decode()
    assert soon(lambda: own_segments() == [])


# Processes that lie.


class Liar:
    """An owner that answers as it is told: a descriptor, and how long it is said to be."""

    def __init__(self, answer: Callable[[socket.socket], None], proof: int | None = None) -> None:
        self.name, self.secret = random.getrandbits(64), random.getrandbits(64)
        self.answer = answer
        self.proof = self.secret if proof is None else proof
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(f"\0partgrid-{self.name:016x}")
        self.socket.listen()

    def handle(self) -> pg.Handle:
        """A handle that leads here."""
        [(host, _)] = numbers(1).tile(0).location
        parts = (5, [0, 0], self.name << 64 | self.secret, host, os.getpid(), "kDLCPU")
        return pg.Handle._from_parts(parts)

    def serve(self) -> None:
        """Answers one reader."""
        connection, _ = self.socket.accept()
        with contextlib.suppress(OSError), connection:
            assert connection.recv(100) == b"\x01PGSM\x01\x00"
            connection.send(b"\x01PGSM\x01\x00" + struct.pack("<Q", self.proof))
            if connection.recv(100):
                self.answer(connection)
                connection.recv(100)

    def opened(self) -> str:
        """What a process that opens the handle says of it."""
        code = (
            "import partgrid as pg\n"
            "try:\n    print(objects[0].tile().to_arrow().to_pydict())\n"
            "except pg.errors.PartgridError as error:\n    print(type(error).__name__, error)\n"
        )
        command = f"import pickle, sys\nobjects = pickle.load(sys.stdin.buffer)\n{code}"
        reader = subprocess.Popen([sys.executable, "-c", command], stdin=-1, stdout=-1, stderr=-1)
        reader.stdin.write(pickle.dumps((self.handle(),)))
        reader.stdin.close()
        self.serve()
        said, error = reader.stdout.read(), reader.stderr.read()
        assert reader.wait(30) == 0, (reader.returncode, error.decode())
        self.socket.close()
        return said.decode()


def granted(descriptors: list[int], num_bytes: int) -> Callable[[socket.socket], None]:
    """Hands these over as a tile at (0, 0)."""
    packet = b"\x03" + struct.pack("<QQIQQB", 1, num_bytes, 2, 0, 0, 0)

    def answer(connection: socket.socket) -> None:
        socket.send_fds(connection, [packet], descriptors)

    return answer


SEALS = 0x1 | 0x2 | 0x4 | 0x8


def memory(content: bytes, seals: int = SEALS, flags: int = 0, more: int = 0) -> int:
    """A memory file, sealed or not."""
    descriptor = os.memfd_create("liar", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags)
    os.write(descriptor, content)
    if more:
        os.truncate(descriptor, more)
    if seals:
        import fcntl  # noqa: PLC0415

        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def ipc_file(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


GOOD = ipc_file(pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}))


def test_what_a_liar_hands_over_is_read_when_it_is_sealed() -> None:
    assert (
        "{'a': [1, 2, 3], 'b': ['x', 'y', 'z']}"
        in Liar(granted([memory(GOOD)], len(GOOD))).opened()
    )


@pytest.mark.parametrize("missing", [0x1, 0x2, 0x4, 0x8, SEALS])
def test_memory_that_could_change_is_refused(missing: int) -> None:
    descriptor = memory(GOOD, SEALS & ~missing)
    said = Liar(granted([descriptor], len(GOOD))).opened()
    assert said.startswith(
        "InvalidDataError a shared tile must be a memory file with the seals 0xf"
    )


def test_another_file_is_refused(tmp_path: Any) -> None:
    (tmp_path / "x").write_bytes(GOOD)
    named = f"/dev/shm/partgrid-test-{os.getpid()}"
    with open(named, "wb") as sink:
        sink.write(GOOD)
    try:
        descriptors = [
            os.open(tmp_path / "x", os.O_RDONLY),
            os.open(named, os.O_RDONLY),
            *os.pipe(),
        ]
    finally:
        os.unlink(named)
    for descriptor in descriptors:
        said = Liar(granted([descriptor], len(GOOD))).opened()
        assert said.startswith("InvalidDataError a shared tile must be a memory file"), said
        os.close(descriptor)


def test_lengths_that_do_not_fit_and_holes_are_refused() -> None:
    for num_bytes in (len(GOOD) - 1, len(GOOD) + 4096, 0, 1 << 62):
        said = Liar(granted([memory(GOOD)], num_bytes)).opened()
        assert said.startswith("InvalidDataError a shared tile must have the"), said
    assert "InvalidDataError" in Liar(granted([memory(b"")], 0)).opened()
    sparse = memory(GOOD, more=1 << 30)
    said = Liar(granted([sparse], 1 << 30)).opened()
    assert said.startswith("InvalidDataError a shared tile must be in memory as a whole"), said


@pytest.mark.parametrize("count", [0, 2, 3])
def test_a_tile_comes_with_one_descriptor(count: int) -> None:
    descriptors = [memory(GOOD) for _ in range(count)]
    said = Liar(granted(descriptors, len(GOOD))).opened()
    assert said.startswith("ProtocolError"), said


def test_torn_and_foreign_content_is_an_error_and_no_crash() -> None:
    for content in (b"x", b"x" * 10_000, GOOD[:-20], GOOD[:100] + GOOD[-100:], GOOD[64:]):
        said = Liar(granted([memory(content)], len(content))).opened()
        assert said.startswith("InvalidDataError a shared tile could not be read"), said
    compressed = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    table = pa.table({"a": [1] * 10_000})
    with pa.ipc.new_file(compressed, table.schema, options=options) as writer:
        writer.write_table(table)
    content = compressed.getvalue().to_pybytes()
    said = Liar(granted([memory(content)], len(content))).opened()
    assert "the buffers are compressed" in said


def test_flipped_bytes_of_a_footer_are_an_error_and_no_crash() -> None:
    chance = random.Random(1)
    code = (
        "import os, partgrid as pg\n"
        "os.dup2(os.open('/dev/null', os.O_WRONLY), 2)\n"
        "outcomes = set()\n"
        "for handle in objects[0]:\n"
        "    try:\n        handle.tile()\n        outcomes.add('opened')\n"
        "    except pg.errors.PartgridError as error:\n        outcomes.add(type(error).__name__)\n"
        "print(sorted(outcomes))\n"
    )
    liars = []
    for _ in range(150):
        content = bytearray(GOOD)
        for _ in range(chance.randint(1, 4)):
            # The footer is at the end; values are not looked at.
            content[-chance.randint(1, 400)] = chance.randrange(256)
        liars.append(Liar(granted([memory(bytes(content))], len(content))))
    command = f"import pickle, sys\nobjects = pickle.load(sys.stdin.buffer)\n{code}"
    reader = subprocess.Popen([sys.executable, "-c", command], stdin=-1, stdout=-1)
    reader.stdin.write(pickle.dumps(([liar.handle() for liar in liars],)))
    reader.stdin.close()
    for liar in liars:
        liar.serve()
        liar.socket.close()
    assert b"InvalidDataError" in reader.stdout.read()
    assert reader.wait(30) == 0


def test_memory_that_is_not_aligned_is_copied_and_right() -> None:
    values = [decimal.Decimal(number) for number in range(101)]
    for rows in range(1, 20):
        table = pa.table({"n": ["x" * rows] * 101, "d": pa.array(values, pa.decimal128(20, 0))})
        content = ipc_file(table)
        said = Liar(granted([memory(content)], len(content))).opened()
        assert said.strip() == str(table.to_pydict())


def test_who_does_not_know_the_secret_is_refused() -> None:
    said = Liar(granted([memory(GOOD)], len(GOOD)), proof=1).opened()
    assert said.startswith("ProtocolError")
    assert "not the process that gave the handle" in said


@pytest.mark.parametrize(
    "packet", [b"\x09", b"\x03", b"\x03" + b"\xff" * 60, b"\x05" * 30, b"x" * 70_000]
)
def test_answers_that_make_no_sense_are_refused(packet: bytes) -> None:
    def answer(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        connection.send(packet)

    assert Liar(answer).opened().startswith("ProtocolError")


def test_an_owner_that_hangs_up_is_lost() -> None:
    def hang_up(connection: socket.socket) -> None:
        connection.close()

    said = Liar(hang_up).opened()
    assert said.startswith("PartitionLostError"), said


def raw_reader() -> socket.socket:
    """A connection to this process, past the greeting."""
    [sent] = pickle.loads(pickle.dumps(numbers(1))).__partitioned__["partitions"].values()
    parts = sent["data"].__reduce__()[1][0]
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(f"\0partgrid-{parts[2] >> 64:016x}")
    connection.settimeout(10)
    return connection


def test_an_owner_hangs_up_on_requests_that_make_no_sense() -> None:
    for request in (b"\x02", b"\x02" + b"\xff" * 40, b"\x77", b"\x01PGSM\x01\x00", b"y" * 65_000):
        with raw_reader() as connection:
            connection.send(b"\x01PGSM\x01\x00")
            assert connection.recv(100)[:7] == b"\x01PGSM\x01\x00"
            connection.send(request)
            assert connection.recv(100) == b""
    with raw_reader() as connection:
        connection.send(b"\x01PGSM\x02\x00")
        assert b"one version of partgrid" in connection.recv(1000)
    with raw_reader() as connection:
        assert b"does not answer" in connection.recv(1000), "who says nothing is not waited for"
    assert numbers(1).tile(0).nbytes == 8, "and goes on"


def test_nobody_can_change_a_shared_tile() -> None:
    grid = numbers(1000).to_shared()
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("/memfd:partgrid"):
                found.append(int(name))
    assert found
    for descriptor in found:
        for length in (0, 1 << 30):
            with pytest.raises(PermissionError):
                os.truncate(descriptor, length)
        with pytest.raises(PermissionError):
            os.pwrite(descriptor, b"x", 0)
        with pytest.raises(PermissionError):
            mmap.mmap(descriptor, 100, mmap.MAP_SHARED, mmap.PROT_WRITE)
        with pytest.raises(OSError, match="Operation not permitted"):
            os.posix_fallocate(descriptor, 0, 1 << 30)
    with pytest.raises(ValueError, match="read-only"):
        grid.to_arrow()["a"].chunk(0).to_numpy()[0] = 1


def test_another_user_is_refused_on_both_sides() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    grid = numbers(3)
    code = (
        "import os, socket, partgrid as pg, pyarrow\n"
        "grid, name = objects\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "try:\n    grid.to_arrow()\n"
        "except pg.errors.PermissionDeniedError as error:\n    print(error)\n"
        "connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "connection.connect(name)\n"
        "try:\n    connection.send(b'\\x01PGSM\\x01\\x00')\n    print(connection.recv(100))\n"
        "except OSError:\n    print(b'')\n"
        "print(pg.shared_memory())\n"
    )
    [part] = grid.__partitioned__["partitions"].values()
    name = f"\0partgrid-{part['data'].__reduce__()[1][0][2] >> 64:016x}"
    said, answer, listed = in_another(code, grid, name).splitlines()
    assert (
        said
        == "memory is shared by processes of one user, got user 0 at the other end and user 65534 here"
    )
    assert answer == "b''"
    assert listed == "[]"


# What is listed.


def test_ps_shows_owners_segments_and_readers() -> None:
    grid = numbers(1000, 20).to_shared()
    code = (
        "import subprocess, os\n"
        "table = objects[0].tile(0).to_arrow()\n"
        "print(os.getpid())\n"
        "command = [sys.executable, '-m', 'partgrid', 'ps']\n"
        "print(subprocess.run(command, capture_output=True, text=True, check=True).stdout)\n"
    )
    reader, header, *lines = in_another(code, grid).splitlines()
    assert header.split() == ["owner", "grid", "tile", "bytes", "kind", "readers"]
    own = [line.split() for line in lines if line.startswith(str(os.getpid()))]
    own = [fields for fields in own if fields[1] == own_segments()[-1]["grid"]]
    first, second = own
    assert first[2:4] == ["(0,", "0)"]
    assert first[5:] == ["shared", reader]
    assert second[5:] == ["shared"]
    assert int(first[4].replace(",", "")) == own_segments()[-2]["nbytes"]
    assert "share" in lines[-1]
    del grid
    assert not [each for each in own_segments() if each["grid"] == own[0][1]]
