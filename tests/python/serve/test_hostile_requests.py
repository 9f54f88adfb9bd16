"""Requests of somebody who means harm: each gets a typed answer in time, memory stays, the next client is served.

`PARTGRID_HOSTILE_REQUESTS` says how many are sent to each method.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pyarrow as pa
import pytest

import partgrid as pg
from hostile import ANSWERS, PREFIX, REQUESTS, TYPED, harmed, send, unharmed, victim
from services import Service, flight_sql, ours, parsed, proto, status


@pytest.fixture(scope="module")
def one() -> Iterator[Service]:
    with victim() as one:
        yield one


@pytest.fixture
def channel(one: Service) -> Iterator[grpc.Channel]:
    with unharmed(one) as channel:
        yield channel


def good_actions() -> dict[str, bytes]:
    """Bodies of actions that are right, or nearly so, by name."""
    ticket = flight_sql("TicketStatementQuery", (1, bytes(16)))
    endpoint = proto((1, proto((1, ticket))))
    query = flight_sql("CommandStatementQuery", (1, "SELECT * FROM t WHERE a > 1"))
    info = proto((2, proto((1, 2), (2, query))), (3, endpoint))
    schema = pa.schema([("a", pa.int64())]).serialize().to_pybytes()
    option = proto((1, "timeout"), (2, proto((1, "3"))))
    upload = ours("Upload", (1, bytes(16)))
    fields = ((1, "t"), (3, 1), (4, bytes(16)), (5, 1), (7, 1), (8, bytes(16)), (9, bytes(16)))
    part = ours("GridPart", *fields)
    # Which tiles they are is for `src/cluster/hostile.rs`.
    tiles = proto((1, 1), (2, proto(*fields)), (3, bytes(16)), (4, schema), (5, 1))
    return {
        "CreatePreparedStatement": flight_sql(
            "ActionCreatePreparedStatementRequest", (1, "SELECT $1")
        ),
        "ClosePreparedStatement": flight_sql("ActionClosePreparedStatementRequest", (1, bytes(16))),
        "CancelQuery": flight_sql("ActionCancelQueryRequest", (1, info)),
        "CancelFlightInfo": proto((1, info)),
        "RenewFlightEndpoint": proto((1, endpoint)),
        "SetSessionOptions": proto((1, option)),
        "GetSessionOptions": b"",
        "CloseSession": b"",
        "BeginUpload": ours("BeginUpload", (1, "u"), (2, schema), (3, b"\0\3"), (4, b"\0\1")),
        "CommitUpload": upload,
        "AbortUpload": upload,
        "Load": ours("LoadRequest", (1, "l"), (2, "/data/a.parquet"), (4, "a"), (6, 100)),
        "JobProgress": ours("JobName", (1, 7), (2, 1000)),
        "CancelJob": ours("JobName", (1, 7)),
        "Status": b"",
        "CancelRun": ours("RunName", (1, 7)),
        "Explain": ours("ExplainRequest", (1, ticket), (2, True)),
        "Parts": b"",
        "Part": part,
        "PartStatistics": part,
        "PartSample": part,
        "PartFiles": part,
        "Rebalance": ours("RebalanceRequest", (1, "t")),
        "LeaveTiles": part,
        "LookAtCatalog": b"",
        "TakeTiles": tiles,
        "WriteTiles": tiles,
        "ArrangeTiles": tiles,
        "ReadTiles": tiles,
    }


def good_requests() -> dict[str, list[bytes]]:
    """Requests that are right, by method."""
    commands = [
        flight_sql("CommandStatementQuery", (1, "SELECT * FROM t WHERE a > 1")),
        flight_sql("CommandGetTables", (1, "partgrid"), (3, "t%"), (4, "TABLE"), (5, True)),
        flight_sql("CommandGetSqlInfo", (1, bytes([0, 1, 4]))),
        flight_sql("CommandGetXdbcTypeInfo", (1, 4)),
        flight_sql("CommandGetDbSchemas", (2, "p%")),
        flight_sql("CommandPreparedStatementQuery", (1, bytes(16))),
        flight_sql("CommandGetCrossReference", (3, "t"), (6, "t")),
        ours("PollCommand", (1, bytes(16))),
        ours("UploadCommand", (1, bytes(16)), (2, 0), (3, 0)),
    ]
    described = [proto((1, 2), (2, each)) for each in commands] + [proto((1, 1), (3, "t"))]
    tickets = [
        *commands,
        ours("TileTicket", (1, bytes(16)), (2, 0), (3, 0), (4, b"\0"), (5, True)),
        ours("PartTicket", (1, bytes(16)), (2, 0)),
        flight_sql("TicketStatementQuery", (1, bytes(16))),
    ]
    schema = pa.schema([("a", pa.int64())]).serialize().to_pybytes()
    return {
        "Handshake": [proto((1, 1), (2, b"hello"))],
        "ListFlights": [proto((1, "t*"))],
        "GetFlightInfo": described,
        "PollFlightInfo": described,
        "GetSchema": described,
        "DoGet": [proto((1, ticket)) for ticket in tickets],
        "DoAction": [proto((1, name), (2, body)) for name, body in good_actions().items()],
        "ListActions": [b""],
        "DoPut": [proto((1, each), (2, schema[8:])) for each in described],
        "DoExchange": [proto((1, each)) for each in described],
    }


def send_broken(channel: grpc.Channel, method: str, count: int) -> None:
    source = random.Random(method)
    good = good_requests()[method]
    for number in range(count):
        message = harmed(source, source.choice(good)) if number % 10 else source.randbytes(40)
        send(channel, method, message)
    for message in (b"\xff" * 1000, bytes(100_000), proto((2, b"\xff" * 300_000)), b"\x0a" * 5000):
        send(channel, method, message)


def test_all_actions_are_among_the_requests(channel: grpc.Channel) -> None:
    told = channel.unary_stream(PREFIX + "ListActions")(b"", timeout=ANSWERS)
    assert {parsed(each)[1][0].decode() for each in told} == {*good_actions()}


@pytest.mark.parametrize("method", good_requests())
def test_broken_requests_are_answered(channel: grpc.Channel, method: str) -> None:
    send_broken(channel, method, REQUESTS)


def test_broken_actions_of_members_are_answered(tmp_path: Path) -> None:
    members = tmp_path / "members"
    members.write_text("")
    with victim("--join", f"file:{members}") as one, unharmed(one) as channel:
        assert send(channel, "DoAction", proto((1, "Parts"))) is None
        send_broken(channel, "DoAction", REQUESTS)


@pytest.mark.parametrize("name", sorted(good_actions()))
def test_bodies_of_actions_cut_anywhere_are_answered(channel: grpc.Channel, name: str) -> None:
    body = good_actions()[name]
    for length in range(len(body) + 1):
        send(channel, "DoAction", proto((1, name), (2, body[:length])))


WRONG_TEXTS = [
    b"\xff\xfe",
    b"SELECT '" + b"\xc3" + b"'",
    b"SELECT " + b"(" * 5000 + b"1" + b")" * 5000,
    b"SELECT " + b"1+" * 20_000 + b"1",
    b"SELECT '" + b"x" * 300_000 + b"'",
    b"SELECT * FROM " + b", ".join(b"t t%d" % number for number in range(300)),
    b"SELECT * FROM generate_series(1, 9000000000000000000)",
    b"WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM r) SELECT max(a) FROM r",
    b"SELECT length(repeat('x', 2000000000))",
    b"SELECT lpad('x', 2147483647)",
    b"SELECT array_agg(repeat('x', 1000)) FROM generate_series(1, 100000000)",
    b"SELECT \0",
    b"",
    b"--",
    b";" * 100_000,
]


@pytest.mark.parametrize("text", WRONG_TEXTS, ids=lambda text: text[:20].decode("latin-1"))
def test_texts_that_would_do_harm_end_in_time(
    channel: grpc.Channel, one: Service, text: bytes
) -> None:
    descriptor = proto((1, 2), (2, flight_sql("CommandStatementQuery", (1, text))))
    code = grpc.StatusCode.OK
    try:
        info = channel.unary_unary(PREFIX + "GetFlightInfo")(descriptor, timeout=ANSWERS)
        ticket = parsed(parsed(info)[3][0])[1][0]
        call = channel.unary_stream(PREFIX + "DoGet")(ticket, timeout=ANSWERS)
        for number, _ in enumerate(call):
            if number == 20:
                call.cancel()
    except grpc.RpcError as error:
        code = error.code()
    assert code in TYPED
    assert status(one)["memory"]["resident_bytes"] < 1_000_000_000


@pytest.mark.parametrize("text", ["length(repeat('x', 2000000000))", "lpad('x', 2147483647)"])
def test_values_over_the_limit_are_refused_before_they_are_made(one: Service, text: str) -> None:
    begun = time.monotonic()
    with pytest.raises(pg.errors.ResourcesExhaustedError, match="would need"):
        pg.connect(one.uri).sql(f"SELECT {text}").to_arrow()
    assert time.monotonic() - begun < 1
