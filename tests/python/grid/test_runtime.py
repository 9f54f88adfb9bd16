"""Import, threads, the GIL, Ctrl-C and fork."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import partgrid as pg
from partgrid import _cpu

HEAVY = {
    "join": "SELECT count(*) FROM t a, t b WHERE a.x + b.x % 7 = 3",
    "aggregate": "SELECT sum(sqrt(a.x * 1.0 + b.x)) FROM t a CROSS JOIN t b",
    "sort": "SELECT a.x, b.y FROM t a CROSS JOIN t b ORDER BY b.y, a.x",
    "window": "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY a.x, b.y) r FROM t a, t b)",
    "scan": "SELECT count(*) FROM t WHERE "
    + " OR ".join(f"sqrt(x + {n}) = -1" for n in range(200)),
}

SETUP = """
import signal, sys, threading, time, os
import numpy as np, partgrid as pg, polars as pl, pyarrow as pa
rows = {rows}
x = pa.array(np.arange(rows))
grid = pg.from_arrow(pa.table({{"x": x, "y": x}}))
session = pg.Session()
session.register("t", grid)
"""

INTERRUPTED = """
result = session.sql({query!r})
def interrupt():
    time.sleep(1.0)
    global sent
    sent = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    {read}
except KeyboardInterrupt:
    print("interrupted after", time.monotonic() - sent)
else:
    print("finished")
sys.stdout.flush()
print(session.sql("SELECT count(*) AS n FROM t").to_arrow()["n"][0].as_py(), flush=True)
os._exit(0)
"""


def run(code: str, timeout: float = 60) -> str:
    """Runs a program in a process of its own and returns what it prints."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_light() -> None:
    code = (
        "import sys, os; before = set(sys.modules)\n"
        "import partgrid\n"
        "print(len(os.listdir('/proc/self/task')))\n"
        "print([n for n in ('pandas', 'pyarrow', 'polars', 'numpy') if n in sys.modules])\n"
    )
    assert run(code).split("\n")[:2] == ["1", "[]"]


def test_engines_are_loaded_when_they_are_named() -> None:
    code = (
        "import sys, partgrid as pg\n"
        "loaded = lambda: [n for n in sys.modules if n == 'asyncio' or 'engines' in n]\n"
        "print(loaded())\n"
        "print({'engines', 'from_dask', 'from_modin'} <= {*dir(pg)} & {*pg.__all__})\n"
        "print(pg.engines.mpi.__name__, 'partgrid.engines.ray' in sys.modules, dir(pg.engines))\n"
        "print(pg.from_dask is pg.engines.dask.from_dask, pg.from_modin is pg.engines.modin.from_modin)\n"
        "from partgrid import *\n"
        "print(from_dask is pg.from_dask, engines.ray.__name__)\n"
        "for where, name in (pg, 'grids'), (pg.engines, 'spark'):\n"
        "    try: getattr(where, name)\n"
        "    except AttributeError as error: print(error)\n"
    )
    assert run(code).splitlines() == [
        "[]",
        "True",
        "partgrid.engines.mpi False ['dask', 'modin', 'mpi', 'ray']",
        "True True",
        "True partgrid.engines.ray",
        "module 'partgrid' has no attribute 'grids'",
        "module 'partgrid.engines' has no attribute 'spark'; the engines are dask, modin, mpi, ray",
    ]


def test_attributes_never_need_other_libraries() -> None:
    code = (
        "import sys\n"
        "for name in ('pandas', 'pyarrow', 'polars', 'numpy'): sys.modules[name] = None\n"
        "import partgrid as pg\n"
        "grid = pg.read_parquet('data/airlines.parquet')\n"
        "print(grid.shape, grid.columns, repr(grid) != '', '<svg' in grid._repr_html_())\n"
        "print(len(grid.sql('SELECT * FROM self')), grid.__partitioned__['shape'])\n"
        "print(len(memoryview(grid.sql('SELECT 1 AS a').to_grid().distarray('a').sections[0].buffer)))\n"
    )
    expected = "(16, 2) ['carrier', 'name'] True True\n16 (16, 2)\n1\n"
    assert run(code) == expected


READS = {
    "len": "len(result)",
    "to_arrow": "result.to_arrow()",
    "reader": "for batch in pa.RecordBatchReader.from_stream(result): pass",
    "list": "list(pa.RecordBatchReader.from_stream(result))",
    "polars": "pl.DataFrame(result)",
}
CASES = [(name, "len") for name in HEAVY]
CASES += [("join", read) for read in READS if read != "len"] + [("scan", "reader")]


@pytest.mark.parametrize(("name", "read"), CASES, ids=str)
def test_ctrl_c_is_a_keyboard_interrupt_and_frees_the_engine(name: str, read: str) -> None:
    rows = 30_000_000 if name == "scan" else 200_000
    code = SETUP.format(rows=rows) + INTERRUPTED.format(query=HEAVY[name], read=READS[read])
    first, second = run(code).strip().split("\n")
    assert first.startswith("interrupted after"), first
    # Measured: 0.01 to 0.05 s. The bound only tells waiting from not waiting.
    assert float(first.split()[-1]) < 5.0
    assert int(second) == rows


def test_ctrl_c_stops_a_load() -> None:
    code = """
import os, signal, threading, time
import partgrid as pg
def interrupt():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
count = 0
try:
    while True:
        pg.read_parquet(["data/flights"] * 1, tile_rows=500); count += 1
except KeyboardInterrupt:
    print("interrupted")
print(pg.read_parquet("data/flights").shape)
"""
    assert run(code) == "interrupted\n(336776, 19)\n"


def test_the_gil_is_released_while_a_query_runs() -> None:
    table = pa.table({"x": range(20_000)})
    grid = pg.from_arrow(table)
    result = grid.sql("SELECT sum(a.x * b.x) AS s FROM self a, self b")
    ticks = 0
    done = threading.Event()

    def work() -> None:
        len(result)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        ticks += 1
        time.sleep(0.001)
    thread.join()
    assert ticks > 20


def test_many_threads_may_share_a_session(flights: pg.Grid) -> None:
    session = pg.Session()
    session.register("f", flights)
    answers: list[int] = []

    def work(month: int) -> None:
        table = session.sql(f"SELECT count(*) AS n FROM f WHERE month = {month}").to_arrow()
        answers.append(table["n"][0].as_py())

    threads = [threading.Thread(target=work, args=(month,)) for month in range(1, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(answers) == 336776


FORK = """
import os, sys, signal
import partgrid as pg, pyarrow as pa
{before}
child = os.fork()
if child == 0:
    signal.alarm(20)
    try:
        {inside}
        os._exit(0)
    except BaseException as error:
        print(type(error).__name__, error, file=sys.stderr, flush=True)
        os._exit(3)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
{after}
"""
USED = """
grid = pg.read_parquet("data/flights")
session = pg.Session(); session.register("f", grid)
result = session.sql("SELECT count(*) AS n FROM f WHERE month = 2"); assert len(result) == 1
pending = session.sql("SELECT month FROM f")
handle = grid.__partitioned__["partitions"][(1, 0)]["data"]
stream = pa.RecordBatchReader.from_stream(session.sql("SELECT * FROM f"))
stream.read_next_batch()
"""
WORKS_IN_CHILD = {
    "query": "assert session.sql('SELECT count(*) AS n FROM f').to_arrow()['n'][0].as_py() == 336776",
    "load": "assert len(pg.read_parquet('data/airlines.parquet')) == 16",
    "tile": "assert len(pg.get(handle)) == 24951",
    "grid": "assert len(grid.sql('SELECT * FROM self WHERE month = 1')) == 27004",
    "partitioned": "assert grid.__partitioned__['partitions'][(0, 0)]['location'][0][1] == os.getpid()",
    "answer": "assert len(result) == 1",
}


@pytest.mark.parametrize("name", WORKS_IN_CHILD, ids=str)
def test_a_forked_child_works(name: str) -> None:
    code = FORK.format(before=USED, inside=WORKS_IN_CHILD[name], after="print(len(result))")
    assert run(code) == "0\n1\n"


@pytest.mark.parametrize("read", ["len(pending)", "stream.read_next_batch()", "stream.read_all()"])
def test_what_cannot_cross_a_fork_raises_at_once(read: str) -> None:
    inside = (
        f"try: {read}\n"
        "        except (ValueError, pa.ArrowInvalid) as error: assert 'before a fork' in str(error)\n"
        "        else: raise SystemError('no error')"
    )
    assert run(FORK.format(before=USED, inside=inside, after="stream.read_all()")) == "0\n"


MANY_FORKS = """
import os
import partgrid as pg
import pyarrow as pa

session = pg.Session(threads=2)
session.register("t", pg.from_arrow(pa.table({"a": range(100_000)})))
server = pg.Server(http=None)
for _ in range(150):
    assert session.sql("SELECT count(*) AS n FROM t WHERE a % 2 = 0").to_arrow()["n"][0].as_py() == 50_000
    if (child := os.fork()) == 0:
        found = session.sql("SELECT sum(a) AS s FROM t WHERE a < 3").to_arrow()["s"][0].as_py()
        os._exit(0 if found == 3 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_threads_that_wait_during_a_fork_do_not_disturb_the_child() -> None:
    """A queue of waiting threads goes through their stacks, which a child has lost."""
    run(MANY_FORKS)


def test_a_fork_while_another_thread_queries_does_not_hang() -> None:
    before = (
        USED
        + """
import threading
stop = threading.Event()
def query():
    while not stop.is_set():
        len(session.sql("SELECT carrier, sum(distance) FROM f GROUP BY carrier"))
threads = [threading.Thread(target=query) for _ in range(2)]
for thread in threads: thread.start()
children = []
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        signal.alarm(100)
        assert session.sql("SELECT count(*) AS n FROM f").to_arrow()["n"][0].as_py() == 336776
        os._exit(0)
    children.append(pid)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
stop.set()
for thread in threads: thread.join()
"""
    )
    code = "import os, sys, signal\nimport partgrid as pg, pyarrow as pa\n" + before
    assert run(code, timeout=120) == f"{[0] * 20}\n"


def test_the_interpreter_ends_while_a_query_runs() -> None:
    code = SETUP.format(rows=100_000) + (
        "stream = session.sql('SELECT a.x FROM t a CROSS JOIN t b').__arrow_c_stream__()\n"
        "print('end')"
    )
    started = time.monotonic()
    assert run(code) == "end\n"
    assert time.monotonic() - started < 30


def test_signals_of_other_kinds_do_not_stop_a_query() -> None:
    code = (
        SETUP.format(rows=20_000)
        + """
signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
seen = []
def send():
    for _ in range(5):
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGUSR1)
threading.Thread(target=send).start()
print(session.sql("SELECT count(*) AS n FROM t a, t b WHERE a.x + b.x >= 0").to_arrow()["n"][0].as_py())
print(len(seen) > 0)
"""
    )
    assert run(code) == "400000000\nTrue\n"


def test_an_old_processor_is_an_import_error_and_no_crash(tmp_path: Path) -> None:
    old = tmp_path / "cpuinfo"
    old.write_text("processor\t: 0\nflags\t\t: fpu sse2 avx bmi1 bmi2 f16c abm movbe\n")
    if os.uname().machine == "x86_64":
        with pytest.raises(ImportError, match="lacks avx2, fma"):
            _cpu.check(old)
    _cpu.check(tmp_path / "none")
    _cpu.check()
