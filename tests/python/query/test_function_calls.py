"""Functions of Python in SQL that call partgrid again, that take long, and that run while Python ends."""

import subprocess
import sys
import threading
import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import partgrid as pg
from partgrid.errors import PartgridError, ResourcesExhaustedError


def test_a_function_may_ask_for_sql_itself() -> None:
    inner = pg.Session()
    inner.register("t", pa.table({"i": [1, 2, 3]}))

    def most(values: pa.Array) -> pa.Array:
        found = inner.sql("SELECT max(i) AS m FROM t").to_arrow()["m"][0].as_py()
        return pa.array([found] * len(values), pa.int64())

    outer = pg.Session(threads=4)
    outer.register("t", pa.table({"i": list(range(20_000))}))
    outer.register_function("most", most, ["int64"], "int64")
    got = outer.sql("SELECT sum(most(i)) AS s FROM t", timeout=60).to_arrow()
    assert got["s"].to_pylist() == [60_000]
    # Many at once, each of which waits for work of the same threads.
    answers: list[int] = []

    def ask() -> None:
        answers.extend(
            outer.sql("SELECT min(most(i)) AS m FROM t", timeout=60).to_arrow()["m"].to_pylist()
        )

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert answers == [3] * 8


def test_a_stopped_query_calls_its_function_no_more() -> None:
    calls = 0

    def slow(values: pa.Array) -> pa.Array:
        nonlocal calls
        calls += 1
        time.sleep(0.1)
        return values

    session = pg.Session(threads=2)
    session.register("t", pa.table({"i": pa.array(range(3_000_000), pa.int64())}))
    session.register_function("slow", slow, ["int64"], "int64")
    for sql in (
        "SELECT max(slow(i)) AS m FROM t",
        "SELECT count(*) AS n FROM t WHERE slow(i) > 7",
        "SELECT slow(i) AS s FROM t",
    ):
        with pytest.raises(ResourcesExhaustedError, match="timeout"):
            session.sql(sql, timeout=0.5).to_arrow()
        # Those that have begun may end; one for each thread.
        time.sleep(0.4)
        before = calls
        assert session.sql("SELECT count(*) AS n FROM t").to_arrow()["n"].to_pylist() == [3_000_000]
        time.sleep(0.3)
        assert calls == before, sql


ENDS = """
import sys, time
import pyarrow as pa
import partgrid as pg

session = pg.Session(threads=2)
session.register("t", pa.table({{"i": list(range(3000))}}))
session.register_function("f", lambda values: (time.sleep(0.3), values)[1], ["int64"], "int64", volatile=True)
try:
    session.sql("SELECT count(f(a.i)) FROM t a, t b", timeout=0.5).to_arrow()
except pg.PartgridError as error:
    print(type(error).__name__, flush=True)
{more}
"""

FORK = """
import os
if (child := os.fork()) == 0:
    print(session.sql("SELECT count(f(i)) AS n FROM t").to_arrow()["n"].to_pylist(), flush=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize(("more", "said"), [("", []), ("sys.exit(0)", []), (FORK, ["[3000]"])])
def test_python_may_end_while_a_function_runs(more: str, said: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDS.format(more=more)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout.split("\n")[:-1]) == (
        0,
        ["ResourcesExhaustedError", *said],
    ), ended.stderr


def test_the_timeout_is_one_of_planning_as_well() -> None:
    session = pg.Session()
    session.register("t", pa.table({"i": [1]}))
    columns = ", ".join(f"i + {number} AS c{number}" for number in range(6000))
    begun = time.monotonic()
    with pytest.raises(
        ResourcesExhaustedError, match="planning took longer than the timeout of 0.05 seconds"
    ):
        session.sql(f"SELECT {columns} FROM t", timeout=0.05)
    assert time.monotonic() - begun < 30
    assert session.sql("SELECT i FROM t").to_arrow()["i"].to_pylist() == [1]


def test_joined_texts_keep_the_limit() -> None:
    session = pg.Session(memory_limit="100MB")
    session.register("t", pa.table({"s": ["a"] * 50_000}))
    for call in ("concat_ws(repeat('x', 10000), s, s, s, s)", "concat(s, repeat('x', 5000))"):
        with pytest.raises(ResourcesExhaustedError):
            session.sql(f"SELECT {call} AS c FROM t").to_arrow()
    short = session.sql("SELECT concat_ws('-', s, s) AS c FROM t").to_arrow()
    assert pc.unique(short["c"]).to_pylist() == ["a-a"]
    assert issubclass(ResourcesExhaustedError, PartgridError)
