"""What a server bounds: turns, time, bytes, connections."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from greeting import greeted, pinged
from services import (
    ENDLESS,
    asked,
    command,
    http_answer,
    inner,
    ours,
    proto,
    query_request,
    running,
    service,
    statement,
    tickets,
    until,
)

PREFIX = "/arrow.flight.protocol.FlightService/"


@pytest.fixture(scope="module")
def server(flights: pg.Grid) -> Iterator[pg.Server]:
    with pg.Server({"flights": flights}) as server:
        yield server


@pytest.fixture
def client(server: pg.Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.uri) as client:
        yield client


def to_create(name: str) -> fl.FlightDescriptor:
    return command("CommandStatementIngest", (1, proto((1, 1), (2, 1))), (2, name))


def test_who_comes_when_all_turns_are_taken_is_told_at_once() -> None:
    with (
        pg.Server(settings={"limits.queries": 1, "limits.waiting": 0}) as server,
        fl.connect(server.uri) as client,
    ):
        info = client.get_flight_info(statement(ENDLESS))
        reader = client.do_get(info.endpoints[0].ticket)
        until(lambda: running(server))
        begun = time.monotonic()
        for _ in range(20):
            with pytest.raises((MemoryError, fl.FlightError, pa.ArrowException)) as caught:
                asked(client, "SELECT 1")
            assert "RESOURCE_EXHAUSTED" in str(caught.value) or "waiting" in str(caught.value)
        assert time.monotonic() - begun < 20
        with pytest.raises(pg.errors.ResourcesExhaustedError):
            pg.connect(server.uri).sql("SELECT 1").to_arrow()
        reader.cancel()
        until(lambda: not running(server))
        assert asked(client, "SELECT 1 AS a")["a"].to_pylist() == [1]


def test_a_join_that_finds_nothing_ends_in_time() -> None:
    query = (
        "SELECT count(*) AS n FROM generate_series(1, 200000) a, generate_series(1, 200000) b"
        " WHERE a.value * b.value = 7"
    )
    with pg.Server(settings={"limits.query_time": 0.3}) as server:
        begun = time.monotonic()
        with pytest.raises(pg.errors.ResourcesExhaustedError, match="timeout of 0.3 seconds"):
            pg.connect(server.uri).sql(query).to_arrow()
        assert time.monotonic() - begun < 20


HEAVY = "SELECT array_length(array_agg(value)) AS n FROM generate_series(1, 3000000)"


def refusals(uri: str, query: str, bounds: dict[str, Any]) -> list[str]:
    """How a query ends with bounds of its connection, and with bounds of its own."""
    said = []
    for of_all, of_one in ((bounds, {}), ({}, bounds)):
        with pytest.raises(pg.errors.ResourcesExhaustedError) as caught:
            pg.connect(uri, **of_all).sql(query, **of_one).to_arrow()
        said.append(str(caught.value))
    return said


@pytest.mark.parametrize(
    ("seconds", "bounds", "texts"),
    [
        (
            0.3,
            {},
            [
                "longer than the server's timeout of 0.3 seconds (setting: limits.query_time) ",
                "ask the administrator to raise limits.query_time",
            ],
        ),
        (
            0.3,
            {"timeout": 60},
            ["the server's timeout of 0.3 seconds", "raise limits.query_time"],
        ),
        (60, {"timeout": 0.3}, [" timeout of 0.3 seconds", "\nhint: raise timeout"]),
    ],
    ids=str,
)
def test_a_query_that_is_ended_is_told_who_can_give_it_more_time(
    seconds: float, bounds: dict[str, Any], texts: list[str]
) -> None:
    with pg.Server(settings={"limits.query_time": seconds}, http=None) as server:
        for said in refusals(server.uri, ENDLESS, bounds):
            assert all(text in said for text in texts), said


@pytest.mark.parametrize(
    ("setting", "bounds", "texts"),
    [
        (
            "limits.query_memory",
            {},
            [
                "limit of the query, 1.0 MB by the setting limits.query_memory, has no room",
                "ask the administrator to raise limits.query_memory",
            ],
        ),
        (
            "limits.query_memory",
            {"memory_limit": "5MB"},
            [
                "limit of the query, 1.0 MB by the setting limits.query_memory, has no room",
                "ask the administrator to raise limits.query_memory",
            ],
        ),
        (
            "limits.memory",
            {"memory_limit": "5MB"},
            [
                "limit of the server, 1.0 MB by the setting limits.memory, has no room",
                "ask the administrator to raise limits.memory",
            ],
        ),
        (
            "limits.query_memory",
            {"memory_limit": "500kB"},
            [
                "limit of the query, 500.0 kB, has no room",
                "hint: raise memory_limit, or ask for fewer rows or columns",
            ],
        ),
    ],
    ids=str,
)
def test_a_query_without_memory_is_told_who_can_give_it_more(
    setting: str, bounds: dict[str, Any], texts: list[str]
) -> None:
    with pg.Server(settings={setting: "1MB"}, http=None) as server:
        for said in refusals(server.uri, HEAVY, bounds):
            assert all(text in said for text in texts), said


def test_a_wide_table_is_planned_in_time() -> None:
    wide = pa.table({f"column_{number}": [1] for number in range(1000)})
    with pg.Server({"wide": wide}, settings={"limits.query_time": 60}) as server:
        # What this process computes, however much others do meanwhile.
        worked = time.process_time()
        assert pg.connect(server.uri).sql("SELECT * FROM wide").to_arrow() == wide
        assert time.process_time() - worked < 3


def test_an_answer_has_only_so_many_rows(flights: pg.Grid) -> None:
    with pg.Server({"f": flights}, settings={"limits.answer_rows": 1000}) as server:
        connection = pg.connect(server.uri)
        with pytest.raises(
            pg.errors.ResourcesExhaustedError, match="more rows than the 1000"
        ) as caught:
            connection.sql("SELECT month FROM f").to_arrow()
        assert "limits.answer_rows" in str(caught.value)
        assert connection.sql("SELECT month FROM f LIMIT 1000").to_arrow().num_rows == 1000
        assert connection.sql("SELECT count(*) AS n FROM f").to_arrow()["n"].to_pylist() == [336776]


def test_a_statement_has_only_so_much_time(flights: pg.Grid) -> None:
    exhausted = pytest.raises(pg.errors.ResourcesExhaustedError, match="timeout of 0.5 seconds")
    with pg.Server({"f": flights}, settings={"limits.query_time": 0.5}) as server, exhausted:
        pg.connect(server.uri).sql(ENDLESS).to_arrow()


def test_limits_hold_and_are_named(flights: pg.Grid) -> None:
    settings = {
        "limits.answer": "1MB",
        "limits.upload": "8MB",
        "limits.message": "4MiB",
        "limits.query_memory": "64MB",
    }
    with pg.Server({"f": flights}, settings=settings) as server:
        connection = pg.connect(server.uri)
        with pytest.raises(pg.errors.ResourcesExhaustedError, match="more bytes than the 1000000"):
            connection.sql("SELECT * FROM f").to_arrow()
        rows = pa.table({f"c{at}": np.arange(10_000) for at in range(50)})
        assert connection.upload(rows, "fits")["rows"] == 10_000
        large = pa.table({"a": np.arange(2_000_000)})
        with pytest.raises(pg.errors.ResourcesExhaustedError, match="upload may have 8000000"):
            connection.upload(large, "large")
        with fl.connect(server.uri) as client:
            batches = large.to_batches(max_chunksize=10_000)
            with pytest.raises((MemoryError, pa.ArrowException, fl.FlightError)) as caught:
                put(client, "large", batches)
            assert "an upload may have 8000000 bytes" in str(caught.value)
            with pytest.raises((MemoryError, pa.ArrowException, fl.FlightError)) as caught:
                put(client, "large", large.to_batches())
            assert "smaller messages" in str(caught.value)
            put(client, "honest", batches[:50])
        assert server.tables == ["f", "fits", "honest"]


def put(client: fl.FlightClient, name: str, batches: list[pa.RecordBatch], **ipc: Any) -> None:
    options = fl.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(**ipc), timeout=30)
    writer, reader = client.do_put(to_create(name), batches[0].schema, options)
    try:
        for batch in batches:
            writer.write_batch(batch)
        writer.done_writing()
        reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("packed", ["lz4", "zstd"])
@pytest.mark.parametrize("what", ["one value", "nothing", "noise"])
def test_packed_rows_of_honest_clients_are_taken(
    server: pg.Server, client: fl.FlightClient, packed: str, what: str
) -> None:
    values = {"one value": np.zeros(200_000), "noise": np.random.default_rng(1).random(200_000)}
    array = pa.array(values[what]) if what in values else pa.nulls(200_000, pa.float64())
    batch = pa.record_batch({"a": array})
    name = f"packed {packed} {what}"
    put(client, name, [batch], compression=packed)
    assert server.grid(name).to_arrow() == pa.table(batch)
    server.deregister(name)


def test_a_ticket_with_one_column_ten_thousand_times_is_refused(
    client: fl.FlightClient,
) -> None:
    info = client.get_flight_info(fl.FlightDescriptor.for_path("flights"))
    grid = inner(info.endpoints[0].ticket.ticket)[1][0]
    ticket = fl.Ticket(ours("TileTicket", (1, grid), (4, bytes(10_000)), (5, True)))
    begun = time.monotonic()
    with pytest.raises((pa.ArrowInvalid, MemoryError, fl.FlightError)):
        client.do_get(ticket).read_chunk()
    assert time.monotonic() - begun < 20


def test_silent_connections_are_closed() -> None:
    with pg.Server(settings={"limits.connections": 3}) as server:
        silent = []
        for uri in (server.uri, server.uri, server.http_uri):
            host, port = uri.rsplit("/", 1)[1].split(":")
            silent.append(socket.create_connection((host, int(port))))
        for each in silent:
            each.settimeout(30)
            while each.recv(1000):
                """What the server says before it closes."""
            each.close()
        assert pg.connect(server.uri).grids() == []


def test_one_connection_more_than_may_be_is_refused() -> None:
    with pg.Server(settings={"limits.connections": 2}) as server:
        host, port = server.uri.rsplit("/", 1)[1].split(":")
        address = (host, int(port))
        first, second = (greeted(address) for _ in range(2))
        with socket.create_connection(address, timeout=10) as third:
            assert is_hung_up(third)
        with pytest.raises(pg.errors.StorageError):
            pg.connect(server.uri)
        # Those of the page are counted by themselves, and these two go on.
        assert http_answer(server.http_uri, "/readyz")[0] == 200
        assert pinged(first)
        assert pinged(second)
        first.close()
        until(lambda: lets_in(server))
        second.close()


def is_hung_up(one: socket.socket) -> bool:
    """Whether the server closes it without a word."""
    try:
        return one.recv(1) == b""
    except ConnectionError:
        return True


def lets_in(server: pg.Server) -> bool:
    try:
        return pg.connect(server.uri).grids() == []
    except pg.errors.StorageError:
        return False


def is_closed(drip: socket.socket, byte: int) -> bool:
    """Whether the other side has gone half a second after one more byte."""
    try:
        drip.sendall(bytes([byte]))
        while drip.recv(1000):
            """What the server says meanwhile."""
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def is_sent_away(uri: str, said: bytes) -> bool:
    """Whether a connection is closed before all is said, of which a byte comes now and then."""
    host, port = uri.rsplit("/", 1)[1].split(":")
    with socket.create_connection((host, int(port)), timeout=0.5) as drip:
        return any(is_closed(drip, byte) for byte in said)


def test_connections_on_which_a_byte_comes_now_and_then_are_closed() -> None:
    # All of it would take 12 and 30 seconds.
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: 12345\r\n"
    with pg.Server() as server, ThreadPoolExecutor(2) as threads:
        drips = [
            threads.submit(is_sent_away, server.uri, preface),
            threads.submit(is_sent_away, server.http_uri, head),
        ]
        assert [drip.result() for drip in drips] == [True, True]
        assert pg.connect(server.uri).grids() == []


@pytest.mark.parametrize("silence", [0.0, 86_401, "long"])
def test_a_silence_that_cannot_be_waited_for_is_refused(silence: Any) -> None:
    with pytest.raises(pg.errors.InvalidArgumentError, match=r"limits\.silence"):
        pg.Server(settings={"limits.silence": silence})


def test_a_ticket_is_good_however_many_were_given_before() -> None:
    with service() as one, grpc.insecure_channel(one.uri.removeprefix("grpc://")) as channel:
        info = channel.unary_unary(PREFIX + "GetFlightInfo")
        get = channel.unary_stream(PREFIX + "DoGet")
        request = query_request("SELECT 1 AS a")

        def ask(count: int) -> list[bytes]:
            begun = [info.future(request, timeout=60) for _ in range(count)]
            return [ticket for each in begun for ticket in tickets(each.result())]

        for _ in range(11):
            ask(1000)
        for ticket in ask(500):
            assert len(list(get(ticket, timeout=60))) >= 2
