"""A server under load: many clients, too many, too much, slow ones, and those that go away in the middle."""

from __future__ import annotations

import gc
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from conftest import TESTS
from services import (
    ENDLESS,
    asked,
    parsed,
    query_request,
    running,
    service,
    statement,
    status,
    tickets,
    until,
)

CLIENTS = int(os.environ.get("PARTGRID_LOAD_CLIENTS", "100"))


QUERIES = int(os.environ.get("PARTGRID_LOAD_QUERIES", "50"))


MANY_ROWS = "SELECT value, value * 2 AS twice FROM generate_series(1, 100000000)"


PREFIX = "/arrow.flight.protocol.FlightService/"


@pytest.fixture(scope="module")
def server(flights: pg.Grid) -> Iterator[pg.Server]:
    with pg.Server({"flights": flights}) as server:
        yield server


@pytest.fixture
def client(server: pg.Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.uri) as client:
        yield client


def test_of_many_clients_with_small_queries_none_is_lost() -> None:
    def ask(number: int) -> list[float]:
        took = []
        with grpc.insecure_channel(address, options) as channel:
            info, get = (
                channel.unary_unary(PREFIX + "GetFlightInfo"),
                channel.unary_stream(PREFIX + "DoGet"),
            )
            for turn in range(QUERIES):
                begun = time.monotonic()
                request = query_request(f"SELECT a + {turn} AS a FROM t WHERE a = {number}")
                [ticket] = tickets(info(request, timeout=60))
                *_, last = map(parsed, get(ticket, timeout=60))
                assert last[1000][0][:8] == (number + turn).to_bytes(8, "little")
                took.append(time.monotonic() - begun)
        return took

    options = [("grpc.use_local_subchannel_pool", 1)]
    with service() as one:
        address = one.uri.removeprefix("grpc://")
        pg.connect(one.uri).upload(pa.table({"a": np.arange(CLIENTS)}), "t")
        with ThreadPoolExecutor(CLIENTS) as threads:
            each = list(threads.map(ask, range(CLIENTS)))
        took = sorted(seconds for client in each for seconds in client)
        assert len(took) == CLIENTS * QUERIES
        median, last = statistics.median(took), took[int(len(took) * 0.99)]
        print(
            f"{CLIENTS} clients: {len(took)} small queries, median {median * 1000:.1f} ms,"
            f" p99 {last * 1000:.1f} ms, which is {last / median:.1f} times as much"
        )
        assert last < 20 * median
        assert running(one) == []


def test_clients_that_ask_one_statement_with_values_of_subqueries_keep_to_their_own() -> None:
    text = (
        "SELECT (SELECT min(x) FROM t WHERE g = 1) AS a, (SELECT max(x) FROM t WHERE g = 1) AS b,"
        " count(*) AS n FROM t WHERE g = 1"
    )
    with service() as one:
        x = np.arange(600)
        pg.connect(one.uri).upload(pa.table({"g": x % 7, "x": x}), "t")

        def ask(_: int) -> list[pa.Table]:
            connection = pg.connect(one.uri)
            return [connection.sql(text).to_arrow() for _ in range(50)]

        with ThreadPoolExecutor(6) as threads:
            answers = [answer for some in threads.map(ask, range(6)) for answer in some]
        assert len(answers) == 300
        assert all(answer.to_pydict() == {"a": [1], "b": [596], "n": [86]} for answer in answers)
        # One ticket, taken by all of them.
        planned = pg.connect(one.uri).sql(text)
        with ThreadPoolExecutor(6) as threads:
            answers = list(threads.map(lambda _: planned.to_arrow(), range(300)))
        assert all(answer.to_pydict() == {"a": [1], "b": [596], "n": [86]} for answer in answers)


def median_seconds(client: fl.FlightClient) -> float:
    """How long a small query of a client takes."""
    took = []
    for _ in range(50):
        begun = time.monotonic()
        asked(client, "SELECT 1")
        took.append(time.monotonic() - begun)
    return statistics.median(took)


def test_a_slow_reader_slows_nobody_and_takes_little_memory() -> None:
    with service() as one, fl.connect(one.uri) as slow, fl.connect(one.uri) as quick:
        asked(quick, "SELECT 1")
        alone = median_seconds(quick)
        before = status(one)["memory"]["resident_bytes"]
        readers = []
        for _ in range(3):
            info = slow.get_flight_info(statement(MANY_ROWS))
            readers.append(slow.do_get(info.endpoints[0].ticket))
            readers[-1].read_chunk()
        assert len(running(one)) == 3
        beside = median_seconds(quick)
        # Who is kept waiting by one that does not read waits for ever.
        assert beside < 30 * alone
        assert status(one)["memory"]["resident_bytes"] - before < 300_000_000
        for reader in readers:
            reader.cancel()
        until(lambda: not running(one))


def test_readers_that_never_read_keep_no_turns() -> None:
    with service("--set", "limits.queries=1") as one, fl.connect(one.uri) as quick:
        never = [fl.connect(one.uri) for _ in range(5)]
        readers = []
        for client in never:
            info = client.get_flight_info(statement(MANY_ROWS))
            readers.append(client.do_get(info.endpoints[0].ticket))
        until(lambda: len(running(one)) == len(readers))
        connection = pg.connect(one.uri)
        for turn in range(20):
            rows = pa.table({"a": np.arange(1000) + turn})
            connection.upload(rows, "t", if_exists="replace")
            assert asked(quick, fl.FlightDescriptor.for_path("t")) == rows
            assert asked(quick, "SELECT * FROM t ORDER BY a") == rows
        assert len(running(one)) == len(readers)
        for reader in readers:
            batch = reader.read_chunk().data
            assert (batch["value"].to_numpy() * 2 == batch["twice"].to_numpy()).all()
            reader.cancel()
        until(lambda: not running(one))


def client_of(server: pg.Server, code: str) -> subprocess.Popen[str]:
    """A client in a process of its own, which says `began`."""
    begin = (
        "import sys, pyarrow as pa, pyarrow.flight as fl\n"
        f"sys.path.insert(0, {str(TESTS)!r})\n"
        "from services import ENDLESS, command, proto, statement\n"
        f"client = fl.connect({server.uri!r})\n"
    )
    code = f"{begin}{code}\nprint('began', flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", code]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "began\n"
    return child


@pytest.mark.parametrize("query", ["ENDLESS", repr(MANY_ROWS)])
def test_a_reader_that_dies_stops_its_query(server: pg.Server, query: str) -> None:
    child = client_of(
        server,
        f"info = client.get_flight_info(statement({query}))\n"
        "reader = client.do_get(info.endpoints[0].ticket)",
    )
    until(lambda: running(server))
    child.send_signal(signal.SIGKILL)
    child.communicate()
    until(lambda: not running(server))
    assert status(server)["queries"][0]["state"] == "cancelled"


def test_a_writer_that_dies_leaves_nothing(server: pg.Server) -> None:
    child = client_of(
        server,
        "batch = pa.record_batch({'a': list(range(10_000))})\n"
        "made = command('CommandStatementIngest', (1, proto((1, 1), (2, 1))), (2, 'half'))\n"
        "writer, reader = client.do_put(made, batch.schema)\n"
        "writer.write_batch(batch)",
    )
    failed = len(status(server)["errors"])
    child.send_signal(signal.SIGKILL)
    child.communicate()
    until(lambda: len(status(server)["errors"]) > failed)
    assert status(server)["errors"][0]["kind"] == "Cancelled"
    assert "half" not in server.tables


def test_a_statement_that_makes_a_table_is_listed_and_ends_with_its_client(
    server: pg.Server,
) -> None:
    request = query_request(f"CREATE TABLE never AS {ENDLESS}")
    with grpc.insecure_channel(server.uri.removeprefix("grpc://")) as channel:
        call = channel.unary_unary(PREFIX + "GetFlightInfo").future(request, timeout=30)
        [run] = until(lambda: running(server))
        assert "never" in run["sql"]
        call.cancel()
        until(lambda: not running(server))
    assert "never" not in server.tables


def test_readers_see_one_version_while_a_writer_replaces_it(server: pg.Server) -> None:
    versions = [pa.table({"a": np.full(50_000, number)}) for number in (1, 2)]
    connection = pg.connect(server.uri)
    connection.upload(versions[0], "flips")
    ended = threading.Event()

    def flip() -> None:
        for turn in range(60):
            connection.upload(versions[turn % 2], "flips", if_exists="replace")
        ended.set()

    writer = threading.Thread(target=flip)
    writer.start()
    query = "SELECT min(a) AS low, max(a) AS high, count(*) AS n FROM flips"
    seen = set()
    while not ended.is_set():
        [row] = connection.sql(query).to_arrow().to_pylist()
        assert row["low"] == row["high"]
        assert row["n"] == 50_000
        seen.add(row["low"])
    writer.join()
    assert seen <= {1, 2}
    server.deregister("flips")


def test_clients_that_come_and_go_leave_nothing() -> None:
    def visit(turn: int) -> None:
        connection = pg.connect(one.uri)
        connection.sql(f"SELECT {turn} AS a").to_arrow()
        if turn % 10 == 0:
            with fl.connect(one.uri) as client:
                info = client.get_flight_info(statement(MANY_ROWS))
                client.do_get(info.endpoints[0].ticket).read_chunk()

    def descriptors() -> int:
        return len(os.listdir(f"/proc/{one.process.pid}/fd"))

    with service() as one:
        for turn in range(20):
            visit(turn)
        gc.collect()
        before = descriptors()
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(visit, range(300)))
        gc.collect()
        until(lambda: descriptors() <= before + 2)
        until(lambda: not running(one))
