"""A server that stops: loads and polled queries finish in time, or are ended and their clients told; nothing new begins meanwhile.

What runs reads a file that comes when the test lets it, so that nothing here ends by chance.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from gated_files import Gated, gated
from services import (
    ENDLESS,
    act,
    flight_sql,
    http_answer,
    ours,
    parsed,
    proto,
    query_request,
    refused,
    rows_of,
    running,
    service,
    status,
    tickets,
    until,
)

PREFIX = "/arrow.flight.protocol.FlightService/"
ROWS = pa.table({"a": list(range(1000)), "t": [f"row {number}" for number in range(1000)]})
# A connection on which nobody asked after anything would have ended long before.
A_WHILE = 1.2


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Gated]:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    with gated(tmp_path / "rows.parquet") as files:
        yield files


@pytest.fixture
def aside() -> Iterator[Callable[..., Future[Any]]]:
    """Has something done beside the test."""
    threads = ThreadPoolExecutor(8)
    yield threads.submit
    threads.shutdown(wait=False, cancel_futures=True)


def loading(files: Gated, **more: Any) -> pg.Server:
    """A server that may load the file, and has it as a grid whose tiles are read when they are used."""
    settings = {"load.from": files.place}
    return pg.Server({"slow": pg.read_parquet(files.url, lazy=True)}, settings=settings, **more)


def stops(server: Any) -> None:
    """Waits until nobody can come in any more."""
    until(lambda: refused(server.uri))


def takes_nobody(server: Any) -> None:
    """New connections are refused, and who watches is told why."""
    assert http_answer(server.http_uri, "/readyz")[::2] == (503, b"stopping\n")
    assert http_answer(server.http_uri, "/healthz")[0] == 200
    assert status(server)["server"]["state"] == "stopping"
    with pytest.raises(pg.errors.StorageError, match="no server answers"):
        pg.connect(server.uri)


class Polling:
    """A client that asks how far its query is."""

    def __init__(self, server: Any) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.insecure_channel(server.uri.removeprefix("grpc://"), options)
        self.poll = self.channel.unary_unary(PREFIX + "PollFlightInfo")
        self.info = self.channel.unary_unary(PREFIX + "GetFlightInfo")
        self.get = self.channel.unary_stream(PREFIX + "DoGet")
        self.act = self.channel.unary_stream(PREFIX + "DoAction")

    def begin(self, text: str) -> dict[int, list[Any]]:
        return parsed(self.poll(query_request(text), timeout=20))

    def end(self, known: dict[int, list[Any]]) -> dict[int, list[Any]]:
        """What is known once there is nothing more to ask."""
        while 2 in known:
            known = parsed(self.poll(known[2][0], timeout=20))
        return known


def test_a_load_finishes_before_the_command_ends(
    files: Gated, tmp_path: Path, aside: Callable[..., Future[Any]]
) -> None:
    words = ["--catalog", tmp_path / "catalog", "--set", f"load.from={files.place}"]
    with service(*words) as one:
        connection = pg.connect(one.uri)
        files.close()
        done = aside(connection.load_parquet, files.url, "loaded", progress=False)
        until(lambda: files.asked)
        one.kill(signal.SIGTERM)
        stops(one)
        takes_nobody(one)
        time.sleep(A_WHILE)
        assert one.process.poll() is None
        # Its client still hears of it, and begins nothing else.
        assert status(one)["jobs"][0]["state"] == "running"
        with pytest.raises(pg.errors.StorageError, match="the server is stopping"):
            connection.sql("SELECT 1")
        with pytest.raises(pg.errors.StorageError, match="the server is stopping"):
            connection.upload(ROWS, "more")
        files.gate.set()
        assert done.result(20) == {"rows": ROWS.num_rows}
        assert one.ended()[0] == 0
    with pg.Server(catalog=tmp_path / "catalog") as again:
        assert again.tables == ["loaded"]
        assert again.grid("loaded").to_arrow() == ROWS


def test_a_load_finishes_without_the_client_that_began_it(
    files: Gated, aside: Callable[..., Future[Any]]
) -> None:
    server = loading(files)
    files.close()
    with fl.connect(server.uri) as client:
        act(client, "Load", ours("LoadRequest", (1, "loaded"), (2, files.url)))
    until(lambda: files.asked)
    stopping = aside(server.stop, within=30)
    stops(server)
    time.sleep(A_WHILE)
    assert not stopping.done()
    files.gate.set()
    stopping.result(20)
    assert server.tables == ["loaded", "slow"]
    assert server.grid("loaded").to_arrow() == ROWS


def test_a_polled_query_finishes_and_its_rows_are_fetched(
    files: Gated, aside: Callable[..., Future[Any]]
) -> None:
    server = loading(files)
    files.close()
    polling = Polling(server)
    known = polling.begin("SELECT * FROM slow ORDER BY a")
    until(lambda: files.asked and running(server))
    stopping = aside(server.stop, within=30)
    stops(server)
    end = aside(polling.end, known)
    time.sleep(A_WHILE)
    takes_nobody(server)
    assert not end.done()
    assert not stopping.done()
    # On the connection of the query nothing else begins.
    load = ours("LoadRequest", (1, "more"), (2, files.url))
    prepare = flight_sql("ActionCreatePreparedStatementRequest", (1, "SELECT 1"))
    for begin in (
        lambda: polling.info(query_request("SELECT 1"), timeout=20),
        lambda: polling.poll(query_request("SELECT 1"), timeout=20),
        lambda: list(polling.act(proto((1, "Load"), (2, load)), timeout=20)),
        lambda: list(polling.act(proto((1, "CreatePreparedStatement"), (2, prepare)), timeout=20)),
    ):
        with pytest.raises(grpc.RpcError, match="the server is stopping") as caught:
            begin()
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    # What goes on is asked after.
    assert list(polling.act(proto((1, "Status")), timeout=20))
    files.gate.set()
    known = end.result(20)
    tables = [rows_of(polling.get(ticket, timeout=20)) for ticket in tickets(known[1][0])]
    assert pa.concat_tables(tables) == ROWS
    polling.channel.close()
    stopping.result(20)


def test_what_does_not_finish_in_time_is_ended_and_its_clients_are_told(
    files: Gated, aside: Callable[..., Future[Any]]
) -> None:
    server = loading(files)
    files.close()
    connection, polling = pg.connect(server.uri), Polling(server)
    known = polling.begin("SELECT * FROM slow ORDER BY a")
    end = aside(polling.end, known)
    until(lambda: files.asked and running(server))
    asked = files.asked
    load = aside(connection.load_parquet, files.url, "loaded", progress=False)
    until(lambda: files.asked > asked)
    begun = time.monotonic()
    server.stop(within=0.5)
    assert time.monotonic() - begun < 10
    with pytest.raises(pg.errors.CancelledError, match="the load was cancelled"):
        load.result(20)
    with pytest.raises(grpc.RpcError, match="the query was cancelled") as caught:
        end.result(20)
    assert caught.value.code() == grpc.StatusCode.ABORTED
    # In this process neither goes on.
    asked = files.asked
    files.gate.set()
    time.sleep(0.3)
    assert files.asked == asked
    assert server.tables == ["slow"]


def test_who_has_gone_is_not_waited_for() -> None:
    server = pg.Server()
    polling = Polling(server)
    polling.begin(ENDLESS)
    until(lambda: running(server))
    polling.channel.close()
    # One that rests and asked after nothing is closed at once.
    resting = pg.connect(server.uri)
    begun = time.monotonic()
    server.stop(within=60)
    assert time.monotonic() - begun < 20
    with pytest.raises(pg.errors.StorageError):
        resting.grids()
    # The query would keep a core of this process busy.
    worked = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - worked < 0.3
