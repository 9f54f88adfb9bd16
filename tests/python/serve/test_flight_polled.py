"""Queries that are polled: how far they are, their rows in parts, what they may keep."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import grpc
import pyarrow as pa
import pytest

import partgrid as pg
from services import ENDLESS, parsed, proto, query_request, rows_of, running, status, tickets, until

PREFIX = "/arrow.flight.protocol.FlightService/"


@pytest.fixture(scope="module")
def server(flights: pg.Grid) -> Iterator[pg.Server]:
    with pg.Server({"flights": flights}) as server:
        yield server


def test_a_long_query_is_polled(server: pg.Server, flights: pg.Grid) -> None:
    # Some 60 MB.
    query = "SELECT *, repeat(dest, 30) AS wide FROM flights ORDER BY distance, flight"
    with grpc.insecure_channel(server.uri.removeprefix("grpc://")) as channel:
        poll = channel.unary_unary(PREFIX + "PollFlightInfo")
        get = channel.unary_stream(PREFIX + "DoGet")
        known = parsed(poll(query_request(query), timeout=20))
        far = []
        while 2 in known:
            far += known.get(3, [])
            known = parsed(poll(known[2][0], timeout=20))
        assert known[3] == [struct.pack("<d", 1)]
        assert all(0 <= number <= 1 for [number] in map(struct.Struct("<d").unpack, far))
        info = known[1][0]
        parts = [rows_of(get(ticket, timeout=20)) for ticket in tickets(info)]
        assert len(parts) > 2
        assert all(part.num_rows > 0 for part in parts)
        # Ties leave the other columns as they like.
        ordered = flights.sql("SELECT distance, flight FROM self ORDER BY 1, 2").to_arrow()
        assert pa.concat_tables(parts).select(["distance", "flight"]) == ordered
        # Each can be had again.
        assert rows_of(get(tickets(info)[1], timeout=20)) == parts[1]


def test_a_query_that_is_polled_can_be_cancelled(server: pg.Server) -> None:
    with grpc.insecure_channel(server.uri.removeprefix("grpc://")) as channel:
        poll = channel.unary_unary(PREFIX + "PollFlightInfo")
        known = parsed(poll(query_request(ENDLESS), timeout=10))
        assert running(server)
        info = parsed(known[1][0])
        body = proto((1, proto((2, known[2][0]), *((3, each) for each in info.get(3, [])))))
        act = channel.unary_stream(PREFIX + "DoAction")
        list(act(proto((1, "CancelFlightInfo"), (2, body)), timeout=10))
        until(lambda: not running(server))
        with pytest.raises(grpc.RpcError) as caught:
            poll(known[2][0], timeout=10)
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_rows_of_a_polled_query_count_against_its_memory(flights: pg.Grid) -> None:
    settings = {"limits.query_memory": "32MB"}
    with (
        pg.Server({"flights": flights}, settings=settings) as server,
        grpc.insecure_channel(server.uri.removeprefix("grpc://")) as channel,
    ):
        poll = channel.unary_unary(PREFIX + "PollFlightInfo")

        def end(query: str) -> dict[int, list[Any]]:
            known = parsed(poll(query_request(query), timeout=20))
            while 2 in known:
                known = parsed(poll(known[2][0], timeout=20))
            return known

        # What is there already counts for nothing.
        assert tickets(end("SELECT * FROM flights")[1][0])
        with pytest.raises(grpc.RpcError) as caught:
            end("SELECT value, repeat('x', 100) AS w FROM generate_series(1, 2000000)")
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "memory" in caught.value.details()
        until(lambda: not running(server) and status(server)["memory"]["query_bytes"] == 0)
