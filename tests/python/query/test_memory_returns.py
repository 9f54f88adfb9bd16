"""What queries used is given back: 200 of them at once under a memory limit, none lost, none wrong, and the process as small as before."""

import subprocess
import sys
import textwrap
import time

import pyarrow as pa
import pytest

import partgrid as pg


def test_two_hundred_queries_at_once_leave_nothing_behind() -> None:
    program = textwrap.dedent(
        """
        import gc, time
        from concurrent.futures import ThreadPoolExecutor
        import numpy as np, pyarrow as pa
        import partgrid as pg

        def resident():
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

        rows = 1_000_000
        session = pg.Session(memory_limit="1GB")
        columns = {"id": np.arange(rows), "g": np.arange(rows) % 1000, "t": [f"text {row % 5000}" for row in range(rows)]}
        session.register("t", pg.from_arrow(pa.table(columns)))
        shapes = [
            ("SELECT g, count(*) AS c, sum(id) AS s FROM t WHERE id >= {} GROUP BY g", lambda n: 1000),
            ("SELECT t, count(*) AS c FROM t WHERE id <> {} GROUP BY t", lambda n: 5000),
            ("SELECT id FROM t WHERE id >= {} ORDER BY t, id DESC LIMIT 100", lambda n: 100),
            ("SELECT a.id FROM t AS a JOIN t AS b ON a.id = b.id WHERE a.id < {}", lambda n: n),
        ]

        def asked(number):
            text, wanted = shapes[number % 4]
            return len(session.sql(text.format(number)).collect()) == wanted(number)

        with ThreadPoolExecutor(200) as pool:
            assert all(pool.map(asked, range(8)))
            time.sleep(12)
            gc.collect()
            before = resident()
            assert sum(pool.map(asked, range(200))) == 200
        assert session.memory_bytes == 0
        for _ in range(40):
            # The allocator gives memory back when nobody has used it for a while.
            time.sleep(1)
            if resident() <= 1.05 * before:
                break
        else:
            raise AssertionError((before, resident()))
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_an_answer_that_was_read_keeps_nothing_of_its_joins() -> None:
    """Whoever keeps answers may ask what their runs did; what the joins held, and their part of the limit, is given back."""
    rows = 200_000
    session = pg.Session(threads=2, memory_limit="60MB")
    session.register("t", pg.from_arrow(pa.table({"k": [row * 7 for row in range(rows)]})))
    texts = [
        "SELECT count(*) FROM t a JOIN t b ON a.k = b.k + 7",
        "SELECT a.k FROM t a JOIN t b ON a.k = b.k LIMIT 1",
        "SELECT count(*) FROM t a, (SELECT max(k) AS k FROM t) b WHERE a.k < b.k",
        "WITH n AS (SELECT DISTINCT k FROM t) SELECT count(*) FROM n a JOIN n b ON a.k = b.k",
    ]
    kept = []
    for text in texts * 5:
        result = session.sql(text)
        assert result.to_arrow().num_rows == 1
        kept.append(result)
    end = time.monotonic() + 10
    while session.memory_bytes and time.monotonic() < end:
        time.sleep(0.01)
    assert session.memory_bytes == 0
    for result in kept:
        metrics = result.metrics
        assert metrics.peak_memory > 0, result.explain()
        assert any("Join" in operator["name"] for operator in metrics.operators)
    shown = session.sql(texts[0]).explain(analyze=True)
    assert "HashJoinExec: mode=" in shown
    assert "build_mem_used=" in shown


@pytest.mark.parametrize("where", ["here", "server"])
def test_answers_that_are_kept_hold_no_rows_of_joins(where: str) -> None:
    """What a scan is told of a join, to leave rows unread, is all that the join had read: it goes with the run. A server keeps answers for some minutes."""
    program = textwrap.dedent(
        """
        import contextlib, gc, sys
        import numpy as np, pyarrow as pa
        import partgrid as pg

        def resident():
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1000

        rows = 300_000
        grid = pg.from_arrow(pa.table({"k": np.arange(rows) * 7, "x": np.arange(rows) % 9}))
        kept = []
        with contextlib.ExitStack() as stack:
            if sys.argv[1] == "server":
                asked = pg.connect(stack.enter_context(pg.Server({"t": grid})).uri)
            else:
                asked = pg.Session()
                asked.register("t", grid)

            def ask(number):
                # Another text each time: a server gives the same answer to the same one.
                text = f"SELECT a.x, count(*) FROM t a JOIN t b ON a.k = b.k + 7 AND a.x <> {number} + 10 GROUP BY a.x"
                kept.append(asked.sql(text))
                assert kept[-1].to_arrow().num_rows == 9

            for number in range(10):
                ask(number)
            gc.collect()
            before = resident()
            for number in range(10, 50):
                ask(number)
            gc.collect()
            # Each join reads 300,000 keys of 8 bytes and what finds them: together more than 200 MB.
            assert resident() < before + 80, (before, resident())
            print(f"{before:.0f} MB, then {resident():.0f} MB")
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, where], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
