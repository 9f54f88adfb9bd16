"""Grids of a server in shared memory: once in memory however many read them, what counts, and whose memory a pickle names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from services import Service, metrics, service, status, until, write_tokens
from sharing import BUFFERS, ON_LINUX, numbers

pytestmark = ON_LINUX

READER = """
import sys, partgrid as pg
grid = pg.connect(sys.argv[1]).grid(sys.argv[2])
print(grid.sql(f"SELECT sum({grid.columns[0]}) AS s FROM self").to_arrow()["s"][0].as_py(), flush=True)
grid.to_arrow()
print("open", flush=True)
sys.stdin.read()
"""


class Program:
    """A program in a process of its own, whose lines are read one by one."""

    def __init__(self, code: str, *arguments: str, sent: bytes = b"", **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | environment,
        )
        self.tell(sent)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def tell(self, sent: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(sent)
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def program(*arguments: Any, **more: Any) -> Any:
    one = Program(*arguments, **more)
    try:
        yield one
    finally:
        one.end()


def segments_of(process: int) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = pg.shared_memory()
    return next((each["segments"] for each in listed if each["pid"] == process), [])


def private_bytes(process: int) -> int:
    """What a process has in memory of its own."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def in_memory(one: Service) -> int:
    """The memory of the server with that of its segments."""
    process = one.process.pid
    return private_bytes(process) + sum(each["nbytes"] for each in segments_of(process))


def written(folder: Path, rows: int) -> Path:
    """A file of a column of numbers that cannot be packed, in tiles of a million rows."""
    path = folder / "long.parquet"
    table = pa.table({"a": np.random.default_rng(7).random(rows)})
    pq.write_table(table, path, row_group_size=1 << 20, compression="none", use_dictionary=False)
    return path


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "in a catalog"])
def test_a_grid_of_a_server_is_in_memory_once_when_others_map_it(
    tmp_path: Path, kept: bool
) -> None:
    size = 8 << 23
    path = written(tmp_path, size // 8)
    # Memory that is free goes back at once, not after ten seconds.
    at_once = {"_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0"}
    catalog = ["--catalog", tmp_path / "catalog"] if kept else []
    with service("--set", f"load.from={tmp_path}", *catalog, **at_once) as one:
        process, connection = one.process.pid, pg.connect(one.uri)
        empty = in_memory(one)
        connection.load_parquet(str(path), "long")
        expected = connection.sql("SELECT sum(a) AS s FROM long").to_arrow()["s"][0].as_py()
        until(lambda: size <= in_memory(one) - empty < 1.25 * size)
        with program(READER, one.uri, "long") as first, program(READER, one.uri, "long") as second:
            for reader in (first, second):
                assert float(reader.line()) == pytest.approx(expected)
                assert reader.line() == "open"
            segments = segments_of(process)
            positions = sorted(each["position"] for each in segments)
            assert positions == [(band, 0) for band in range(8)]
            assert not any(each["copy"] for each in segments)
            readers = sorted([first.process.pid, second.process.pid])
            assert all(sorted(each["readers"]) == readers for each in segments)
            until(lambda: in_memory(one) - empty < 1.25 * size)
            assert private_bytes(process) - empty < 0.25 * size
            memory = status(one)["memory"]
            assert memory["copied_bytes"] == 0
            assert size <= memory["grid_bytes"] < 1.1 * size
            assert metrics(one)["partgrid_copied_memory_bytes"] == 0
        asked = connection.sql("SELECT sum(a) AS s FROM long").to_arrow()["s"][0].as_py()
        assert asked == pytest.approx(expected)
        made = {each["position"] for each in segments_of(process)}
        with program(READER, one.uri, "long") as third:
            assert float(third.line()) == pytest.approx(expected)
            assert third.line() == "open"
            assert {each["position"] for each in segments_of(process)} >= made
            # What somebody has open stays, and counts, also without its grid.
            connection.sql("DROP TABLE long")
            until(lambda: status(one)["memory"]["copied_bytes"] >= size)
            assert status(one)["memory"]["grid_bytes"] == 0
            assert all(each["copy"] for each in segments_of(process))
        until(lambda: segments_of(process) == [])
        until(lambda: in_memory(one) - empty < 0.25 * size)


@pytest.mark.parametrize("sees", [None, "l*"], ids=["all names", "some names"])
def test_a_grid_that_was_queried_goes_when_it_is_dropped(tmp_path: Path, sees: str | None) -> None:
    size = 8 << 23
    path = written(tmp_path, size // 8)
    at_once = {"_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0"}
    some = {} if sees is None else {"grids": [sees]}
    tokens = write_tokens(tmp_path / "tokens.toml", ann={"scope": "write", **some})
    shown = {"adbc.flight.sql.authorization_header": f"Bearer {tokens['ann']}"}
    arguments = ["--set", f"load.from={tmp_path}", "--tokens", tmp_path / "tokens.toml"]
    with service(*arguments, **at_once) as one:
        connection = pg.connect(one.uri, token=tokens["ann"])
        connection.sql("CREATE TABLE last AS SELECT 1 AS a")
        empty = in_memory(one)
        connection.load_parquet(str(path), "long")
        query = "SELECT count(*) AS n FROM long WHERE a < {}"
        results = [connection.sql(query.format(2 + number)) for number in range(3)]
        assert [each.to_arrow()["n"][0].as_py() for each in results] == [size // 8] * 3
        with adbc.connect(one.uri, shown, autocommit=True) as client, client.cursor() as cursor:
            # The statement stays prepared.
            cursor.execute("SELECT count(*) AS n FROM long WHERE a < ?", [0.5])
            few = cursor.fetchall()
            assert in_memory(one) - empty >= size
            connection.sql("DROP TABLE long")
            until(lambda: in_memory(one) - empty < 0.25 * size)
            with pytest.raises(pg.errors.NotFoundError, match="expired"):
                results[0].to_arrow()
            connection.load_parquet(str(path), "long")
            cursor.execute("SELECT count(*) AS n FROM long WHERE a < ?", [0.5])
            assert cursor.fetchall() == few


def test_copies_count_and_are_bounded(tmp_path: Path) -> None:
    path = written(tmp_path, 4 << 20)
    lazy = pg.read_parquet(path, lazy=True)
    settings = {"limits.grids": "20MiB"}
    with pg.Server({"lazy": lazy}, settings=settings) as server:
        connection = pg.connect(server.uri)
        connection.upload(pa.table({"b": [1]}), "small")
        with program(READER, server.uri, "lazy") as reader:
            assert float(reader.line()) > 0
            assert reader.line() == "open"
            # Two tiles of 8 MiB fit, the others are fetched.
            copied = status(server)["memory"]["copied_bytes"]
            assert 16 << 20 <= copied < 17 << 20
            assert metrics(server)["partgrid_copied_memory_bytes"] == copied
            own = [
                each for each in segments_of(os.getpid()) if reader.process.pid in each["readers"]
            ]
            assert [each["copy"] for each in own] == [True, True]
            with pytest.raises(pg.errors.ResourcesExhaustedError) as caught:
                connection.upload(pa.table({"b": np.arange(1 << 19)}), "more")
            assert f"copies that processes of this host read {copied}" in str(caught.value)
        until(lambda: status(server)["memory"]["copied_bytes"] == 0)
        connection.upload(pa.table({"b": np.arange(1 << 19)}), "more")


SENDER = """
import json, pickle, sys, partgrid as pg
grid = pg.connect(sys.argv[1], token=sys.argv[2]).grid("numbers")

def pickled():
    handles = [entry["data"] for entry in grid.__partitioned__["partitions"].values()]
    return [pickle.dumps(each).hex() for each in (grid, grid.tiles, handles)]

before = pickled()
assert pickle.loads(bytes.fromhex(before[0])).to_arrow() == grid.to_arrow()
assert pickled() == before
print(json.dumps(before), flush=True)
sys.stdin.read()
"""

OPENER = (
    BUFFERS
    + """
import json
grid, tiles, handles = (pickle.loads(bytes.fromhex(each)) for each in json.loads(sys.stdin.readline()))
first = pa.table(tiles[0])
print("read", outside(first), flush=True)
sys.stdin.readline()
try:
    parts = [pa.table(each) for each in tiles] + [pa.table(each.tile()) for each in handles]
    rows = grid.to_arrow()
    for table in (rows, *parts):
        assert table["a"].to_pylist()[:3] == [0, 1, 2]
    print(rows.num_rows, sum(outside(table) for table in (rows, *parts)), grid.tile(1).location[-1][1], flush=True)
except pg.errors.PartgridError as error:
    print(type(error).__name__, flush=True)
sys.stdin.readline()
"""
)


@pytest.fixture
def guarded(tmp_path: Path) -> Any:
    """A server that asks for tokens, and that of a reader."""
    tokens = write_tokens(tmp_path / "tokens.toml", ann={"scope": "read"}, bob={"scope": "write"})
    with service("--tokens", tmp_path / "tokens.toml") as one:
        pg.connect(one.uri, token=tokens["bob"]).upload(numbers(300_000, 200_000), "numbers")
        yield one, tokens["ann"]


def test_a_pickled_grid_of_a_server_is_the_memory_of_the_server(
    guarded: tuple[Service, str],
) -> None:
    one, token = guarded
    with program(SENDER, one.uri, token) as sender:
        line = sender.line()
        for each in json.loads(line):
            raw = bytes.fromhex(each)
            assert token.encode() not in raw
            assert one.uri.encode() not in raw
        with program(OPENER, sent=line.encode() + b"\n") as opener:
            assert opener.line() == "read 0"
            sender.end()
            opener.tell(b"go on\n")
            assert opener.line() == f"500000 0 {one.process.pid}"
            owners = {each["pid"]: each["segments"] for each in pg.shared_memory()}
            assert not owners.get(sender.process.pid)
            segments = owners[one.process.pid]
            assert sorted(each["position"] for each in segments) == [(0, 0), (1, 0)]
            assert all(set(each["readers"]) == {opener.process.pid} for each in segments)


def test_a_pickled_grid_of_a_server_elsewhere_is_as_its_process_has_it(
    guarded: tuple[Service, str],
) -> None:
    one, token = guarded
    with program(SENDER, one.uri, token, PARTGRID_HOST="192.0.2.9") as sender:
        line = sender.line()
        assert all(token.encode() not in bytes.fromhex(each) for each in json.loads(line))
        with program(OPENER, sent=line.encode() + b"\n") as opener:
            assert opener.line() == "read 0"
            opener.tell(b"go on\n")
            assert opener.line() == f"500000 0 {sender.process.pid}"
        with program(OPENER, sent=line.encode() + b"\n") as opener:
            assert opener.line() == "read 0"
            sender.end()
            opener.tell(b"go on\n")
            # Whoever opens it is on another host, as it says.
            assert opener.line() == "NotLocalError"
