"""Shared memory when a process dies, stops, or is forked."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from sharing import (
    ON_LINUX,
    grids_shared,
    in_another,
    numbers,
    shared_kilobytes,
    soon,
)

pytestmark = ON_LINUX

CYCLES = """
import faulthandler, gc, os, pickle, signal, sys, time, traceback
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
            # A child that hangs says where.
            faulthandler.dump_traceback_later(60, exit=True)
            os.close(to_parent[0]); os.close(from_parent[1])
            child(os.fdopen(from_parent[0], 'rb'), os.fdopen(to_parent[1], 'wb'))
        except BaseException:
            traceback.print_exc()
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
    sent = pickle.load(receive)
    # Where the machine is overloaded, the owner may take longer to answer than one waits for it.
    while True:
        try:
            tile = pickle.loads(sent)
            assert pa.record_batch(tile)['a'][5].as_py() == 7
            break
        except pg.errors.ResourcesExhaustedError:
            traceback.print_exc()
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
    pickle.dump(sent, send); send.flush()
    if receive.read(1) != b'x':
        raise SystemExit(f'child {number} ended early: {os.waitpid(pid, 0)[1]}')
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
for _ in range(400):
    after = state()
    if after[0] <= before[0] and after[1] <= before[1]:
        break
    time.sleep(0.05)
print(*before, *after, f'{time.monotonic() - started:.1f}')
"""


@pytest.mark.parametrize("code", [OWNERS_KILLED, READERS_KILLED], ids=["owners", "readers"])
def test_after_200_processes_that_were_killed_nothing_is_left(code: str) -> None:
    *numbers, _ = in_another(code + MANY, timeout=600).split()
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
        # Waiting for it would take five seconds.
        assert time.monotonic() - started < 4.5


def test_a_process_that_is_stopped_is_waited_for_some_seconds_and_works_when_it_goes_on() -> None:
    with owner_of_a_grid() as (owner, grid):
        os.kill(owner.pid, signal.SIGSTOP)
        try:
            started = time.monotonic()
            with pytest.raises(pg.errors.ResourcesExhaustedError, match="does not answer"):
                pa.record_batch(grid.tile(0))
            assert time.monotonic() - started < 20
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
            # Waiting for it would take five seconds.
            assert time.monotonic() - started < 4.5, "ending a lease waits for nobody"
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
            "except KeyboardInterrupt:\n    print(time.monotonic() - started < 4.5, flush=True)\n"
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
    before = grids_shared()
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
    assert soon(lambda: grids_shared() <= before)
