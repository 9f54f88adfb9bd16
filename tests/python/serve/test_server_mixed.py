"""A server that many clients use at once, each in its own way: right answers, or that it is busy; and connections that come, rest and go leave nothing.

`PARTGRID_MIXED_SECONDS` says how long the clients ask (600 for a release),
`PARTGRID_MIXED_CONNECTIONS` how many connections come and go (10,000 for a release).
"""

from __future__ import annotations

import os
import random
import re
import socket
import statistics
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from greeting import HELLO, greeted, pinged
from resting import Had, settled
from served import ingest
from services import (
    ENDLESS,
    Service,
    asked,
    query_request,
    running,
    service,
    status,
    tickets,
    until,
)

SECONDS = float(os.environ.get("PARTGRID_MIXED_SECONDS", "3"))


CONNECTIONS = int(os.environ.get("PARTGRID_MIXED_CONNECTIONS", "1000"))


CLIENTS = 64


ROWS = 200_000


PREFIX = "/arrow.flight.protocol.FlightService/"


BUSY = re.compile("wait for their turn as may|RESOURCE_EXHAUSTED|ResourceExhausted")


class Asking(threading.Thread):
    """A client that asks until its time is over, and looks at every answer."""

    def __init__(self, uri: str, number: int, stop: float) -> None:
        super().__init__(daemon=True)
        self.uri, self.number, self.stop = uri, number, stop
        self.source = random.Random(number)
        self.took: dict[str, list[float]] = {"point": [], "scan": [], "put": []}
        self.asked: Counter[str] = Counter()
        self.busy: Counter[str] = Counter()
        self.wrong: list[str] = []

    def run(self) -> None:
        # Clients of pyarrow share connections; those with other options do not.
        options = [("grpc.use_local_subchannel_pool", 1)]
        with fl.connect(self.uri, generic_options=options) as client:
            while time.monotonic() < self.stop and not self.wrong:
                kind = self.source.choices(["point", "scan", "put"], [8, 1, 1])[0]
                begun = time.monotonic()
                self.asked[kind] += 1
                try:
                    getattr(self, kind)(client)
                except AssertionError as error:
                    self.wrong.append(f"{kind}: {error}")
                except Exception as error:
                    if BUSY.search(str(error)):
                        self.busy[kind] += 1
                        time.sleep(0.01)
                    else:
                        self.wrong.append(f"{kind}: {type(error).__name__}: {error}")
                else:
                    self.took[kind].append(time.monotonic() - begun)

    def point(self, client: fl.FlightClient) -> None:
        at = self.source.randrange(ROWS)
        found = asked(client, f"SELECT n, t FROM base WHERE n = {at}").to_pylist()
        assert found == [{"n": at, "t": f"row {at}"}], found

    def scan(self, client: fl.FlightClient) -> None:
        most = self.source.randrange(1, ROWS)
        found = asked(client, f"SELECT n FROM base WHERE n < {most}")
        assert found.num_rows == most, (found.num_rows, most)
        values = found["n"].to_numpy()
        assert int(values.sum()) == most * (most - 1) // 2

    def put(self, client: fl.FlightClient) -> None:
        name, first = f"own_{self.number}", self.source.randrange(1 << 40)
        count = self.source.randint(1, 2000)
        rows = pa.table({"n": np.arange(first, first + count)})
        ingest(client, name, rows, 3)
        found = asked(client, f"SELECT count(*) AS c, min(n) AS m FROM {name}").to_pylist()
        assert found == [{"c": count, "m": first}], found


def base() -> pa.Table:
    return pa.table({"n": np.arange(ROWS), "t": [f"row {at}" for at in range(ROWS)]})


def test_clients_that_ask_scan_and_write_at_once_get_right_answers(tmp_path: Path) -> None:
    with service("--catalog", tmp_path) as one:
        pg.connect(one.uri).upload(base(), "base")
        stop = time.monotonic() + SECONDS
        clients = [Asking(one.uri, number, stop) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(SECONDS + 60)
        assert not any(client.is_alive() for client in clients)
        assert [what for client in clients for what in client.wrong] == []
        for kind in ("point", "scan", "put"):
            took = sorted(second for client in clients for second in client.took[kind])
            assert took, f"nobody was served a {kind}"
            busy = sum(client.busy[kind] for client in clients)
            # Each was answered, or told that the server is busy: none is lost.
            assert len(took) + busy == sum(client.asked[kind] for client in clients)
            median, last = statistics.median(took), took[int(len(took) * 0.99)]
            print(
                f"{kind}: {len(took)} in {SECONDS:.0f} s ({len(took) / SECONDS:.0f}/s),"
                f" {busy} told that it is busy,"
                f" median {median * 1000:.1f} ms, p99 {last * 1000:.1f} ms,"
                f" which is {last / median:.1f} times as much"
            )
        until(lambda: not running(one))
        names = {f"own_{number}" for number in range(CLIENTS)}
        assert set(pg.connect(one.uri).grids()) <= {"base", *names}
    with service("--catalog", tmp_path) as one:
        assert pg.connect(one.uri).grid("base").to_arrow() == base()


def visit(one: Service, address: tuple[str, int], number: int) -> None:
    """A connection that goes as others do: at once, after words, without a goodbye, in the middle of a word, or after a question."""
    match number % 5:
        case 0:
            socket.create_connection(address, timeout=20).close()
        case 1:
            greeted(address).close()
        case 2:
            rude = greeted(address)
            # What is closed so is reset.
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            rude.close()
        case 3:
            half = socket.create_connection(address, timeout=20)
            half.sendall(HELLO[:-4])
            half.close()
        case 4:
            options = [("grpc.use_local_subchannel_pool", 1)]
            with grpc.insecure_channel(one.uri.removeprefix("grpc://"), options) as channel:
                info = channel.unary_unary(PREFIX + "GetFlightInfo")
                assert tickets(info(query_request("SELECT 1 AS a"), timeout=60))


def test_connections_that_rest_ask_and_go_leave_nothing() -> None:
    def ask(number: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        with fl.connect(one.uri, generic_options=options) as client:
            for turn in range(5):
                found = asked(client, f"SELECT count(*) AS n FROM t WHERE a >= {number + turn}")
                assert found["n"].to_pylist() == [1000 - number - turn]

    # Clients that take long to connect are not the matter here.
    with service("--set", "limits.query_time=120") as one:
        host, port = one.uri.removeprefix("grpc://").split(":")
        address = (host, int(port))
        before = Had(one)
        with fl.connect(one.uri) as client:
            ingest(client, "t", pa.table({"a": np.arange(1000)}), 3)
        idle = [greeted(address) for _ in range(256)]
        with ThreadPoolExecutor(64) as threads:
            list(threads.map(ask, range(64)))
        assert all(pinged(each) for each in idle)
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(lambda number: visit(one, address, number), range(CONNECTIONS)))
        assert all(pinged(each) for each in idle)
        for each in idle:
            each.close()
        settled(one, before)
        ask(0)


QUERIES, WAITING = 4, 4


class Crowd(threading.Thread):
    """A client that asks for what never ends."""

    def __init__(self, uri: str) -> None:
        super().__init__(daemon=True)
        self.channel = grpc.insecure_channel(
            uri.removeprefix("grpc://"), [("grpc.use_local_subchannel_pool", 1)]
        )
        self.call: grpc.Call | None = None
        self.code: grpc.StatusCode | None = None
        self.details = ""

    def run(self) -> None:
        info = self.channel.unary_unary(PREFIX + "GetFlightInfo")
        [ticket] = tickets(info(query_request(ENDLESS), timeout=60))
        self.call = self.channel.unary_stream(PREFIX + "DoGet")(ticket, timeout=60)
        try:
            list(self.call)
        except grpc.RpcError as error:
            self.details = error.details()
            self.code = error.code()


def test_of_ten_times_as_many_as_are_admitted_the_rest_is_refused_at_once() -> None:
    admitted = QUERIES + WAITING
    words = [f"limits.queries={QUERIES}", f"limits.waiting={WAITING}", "limits.memory=1GB"]
    with service(*(word for each in words for word in ("--set", each))) as one:
        crowd = [Crowd(one.uri) for _ in range(10 * admitted)]
        for each in crowd:
            each.start()
        # Those that are refused are told while those that run go on: nothing that runs ends by itself.
        until(lambda: sum(each.code is not None for each in crowd) == 9 * admitted, 60)
        refused = [each for each in crowd if each.code is not None]
        assert {each.code for each in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        for each in refused:
            assert f"{QUERIES} queries run and as many wait" in each.details
            assert "try again later" in each.details
        assert len(running(one)) == admitted
        with fl.connect(one.uri) as client, pytest.raises(Exception, match="try again later"):
            asked(client, "SELECT 1 AS a")
        # What takes no turn is done.
        assert pg.connect(one.uri).upload(pa.table({"a": [1, 2, 3]}), "t")["rows"] == 3
        for each in crowd:
            if each.call is not None and each.code is None:
                each.call.cancel()
        for each in crowd:
            each.join(20)
            each.channel.close()
        until(lambda: not running(one))
        until(lambda: status(one)["memory"]["query_bytes"] == 0)
        with fl.connect(one.uri) as client:
            assert asked(client, "SELECT sum(a) AS s FROM t")["s"].to_pylist() == [6]
