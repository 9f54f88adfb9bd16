"""Loads of a server, and queries, that are under way: how far they are, and everything that ends them."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from held import ROWS, HeldFiles, held_files
from services import COMMAND, act, http_answer, ours, running, statement, status, until

WAITS = """
import signal, sys
import partgrid as pg

signal.signal(signal.SIGINT, signal.default_int_handler)
uri, *urls = sys.argv[1:]
try:
    pg.connect(uri).load_parquet(urls, "taken", progress=True)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.fixture
def files() -> Iterator[HeldFiles]:
    with held_files() as files:
        yield files


@pytest.fixture
def server(files: HeldFiles) -> Iterator[pg.Server]:
    with pg.Server(settings={"load.from": files.place}) as server:
        yield server


def job(server: pg.Server) -> dict[str, Any]:
    """The latest load of a server."""
    return next(iter(status(server)["jobs"]), {"state": "", "rows": 0})


@contextmanager
def half_done(server: pg.Server, files: HeldFiles) -> Iterator[Future[dict[str, int]]]:
    """A load that a client waits for, with two of four files read."""
    load = pg.connect(server.uri).load_parquet
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(load, files.urls, "taken", progress=False)
        try:
            files.let_go(0, 1)
            until(lambda: job(server)["rows"] == 2 * ROWS)
            yield waiting
        finally:
            files.let_go()


def seen(stream: int, text: str, seconds: float = 20) -> str:
    """What comes out of a pipe or a terminal, up to a text."""
    came, end = "", time.monotonic() + seconds
    while text not in came:
        ready, _, _ = select.select([stream], [], [], max(end - time.monotonic(), 0))
        assert ready, f"{text!r} did not come: {came!r}"
        part = os.read(stream, 65536).decode(errors="replace")
        assert part, f"it ended without {text!r}: {came!r}"
        came += part
    return came


def run(server: pg.Server, *arguments: str) -> str:
    command = [str(COMMAND), "--server", server.uri, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def by_the_action(server: pg.Server, number: str) -> None:
    with fl.connect(server.uri) as client:
        act(client, "CancelJob", ours("JobName", (1, int(number, 16))))


def by_the_page(server: pg.Server, number: str) -> None:
    path = f"/api/jobs/{number}/cancel"
    answer = http_answer(server.http_uri, path, method="POST", **{"X-Partgrid": "page"})
    assert (answer[0], answer[2]) == (204, b"")


def by_the_command(server: pg.Server, number: str) -> None:
    run(server, "ps", "--cancel", f"l{number}")


def test_a_load_says_how_far_it_is(server: pg.Server, files: HeldFiles) -> None:
    with half_done(server, files) as waiting:
        half = job(server)
        assert (half["state"], half["can_cancel"]) == ("running", True)
        assert half["progress"] == pytest.approx(0.5, abs=0.01)
        assert half["bytes"] == pytest.approx(half["total_bytes"] / 2, rel=0.01)
        assert half["remaining_seconds"] > 0
        assert "taken" not in server.tables
        [line] = [line for line in run(server, "ps").splitlines() if "load taken" in line]
        assert "50 %" in line
        files.let_go(2)
        until(lambda: job(server)["rows"] == 3 * ROWS)
        assert job(server)["progress"] == pytest.approx(0.75, abs=0.01)
        assert not waiting.done()
        files.let_go(3)
        assert waiting.result(20) == {"rows": files.rows}
    done = job(server)
    assert (done["state"], done["progress"], done["can_cancel"]) == ("done", 1.0, False)
    assert server.grid("taken").to_arrow()["id"].to_pylist() == list(range(files.rows))


@pytest.mark.parametrize("end", [by_the_action, by_the_page, by_the_command])
def test_a_load_that_runs_can_be_ended(
    server: pg.Server, files: HeldFiles, end: Callable[[pg.Server, str], None]
) -> None:
    with half_done(server, files) as waiting:
        end(server, job(server)["id"])
        with pytest.raises(pg.errors.CancelledError, match="the load was cancelled"):
            waiting.result(20)
        ended = job(server)
        assert (ended["state"], ended["can_cancel"]) == ("cancelled", False)
        assert "0 loads running" in run(server, "ps")
    assert "taken" not in server.tables
    # Nothing of it is in the way of the next one.
    again = pg.connect(server.uri).load_parquet(files.urls, "taken")
    assert again == {"rows": files.rows}


def test_ctrl_c_of_load_parquet_ends_the_load_there(server: pg.Server, files: HeldFiles) -> None:
    waiting = subprocess.Popen(
        [sys.executable, "-c", WAITS, server.uri, *files.urls],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "COLUMNS": "120"},
    )
    try:
        assert waiting.stderr is not None
        files.let_go(0, 1)
        bar = seen(waiting.stderr.fileno(), "2/4 tiles")
        assert "loading:  50%|" in bar
        waiting.send_signal(signal.SIGINT)
        said, _ = waiting.communicate(timeout=20)
        assert (waiting.returncode, said) == (0, b"interrupted\n")
        until(lambda: job(server)["state"] == "cancelled")
        assert "taken" not in server.tables
    finally:
        waiting.kill()
        waiting.communicate()


def test_ctrl_c_of_the_command_ends_the_load_there(server: pg.Server, files: HeldFiles) -> None:
    near, far = pty.openpty()
    termios.tcsetwinsize(far, (40, 120))
    waiting = subprocess.Popen(
        [str(COMMAND), "--server", server.uri, "load", *files.urls, "--name", "taken"],
        stdin=subprocess.DEVNULL,
        stdout=far,
        stderr=far,
        env={**os.environ, "TERM": "xterm", "PARTGRID_PROGRESS": "1"},
    )
    try:
        files.let_go(0, 1)
        assert "50%" in seen(near, "2/4 tiles")
        waiting.send_signal(signal.SIGINT)
        seen(near, "interrupted; the server ended the load")
        assert waiting.wait(20) == 130
        until(lambda: job(server)["state"] == "cancelled")
        assert "taken" not in server.tables
    finally:
        waiting.kill()
        waiting.wait()
        os.close(near)
        os.close(far)


def test_a_query_says_how_far_it_is_while_its_reader_waits() -> None:
    tiles = 128
    # One tile, many times: all of them take the memory of one.
    batch = pa.record_batch({"n": np.random.default_rng(1).integers(0, 2**62, 1 << 17)})
    large = pg.from_arrow(pa.Table.from_batches([batch] * tiles))
    # What this client takes in ahead stays small: a window that follows the network may come to hold all that is left.
    window = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 20)]
    with (
        pg.Server({"large": large}) as server,
        fl.connect(server.uri, generic_options=window) as client,
    ):
        info = client.get_flight_info(statement("SELECT n FROM large"))
        reader = client.do_get(info.endpoints[0].ticket)
        rows = reader.read_chunk().data.num_rows
        before = until(lambda: running(server)[0]["tiles_done"])
        while rows < large.shape[0] / 2:
            rows += reader.read_chunk().data.num_rows
        [now] = running(server)
        assert before < tiles / 2 - 1 <= now["tiles_done"] < tiles
        assert now["tiles_total"] == tiles
        assert now["progress"] == pytest.approx(now["tiles_done"] / tiles, abs=0.05)
        [line] = [line for line in run(server, "ps").splitlines() if "SELECT n" in line]
        assert " %" in line
        rows += sum(chunk.data.num_rows for chunk in reader)
        assert rows == large.shape[0]
        until(lambda: not running(server))
        [done] = status(server)["queries"]
        assert (done["state"], done["rows"], done["tiles_done"]) == ("done", rows, tiles)
