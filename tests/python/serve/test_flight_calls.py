"""Arrow Flight, call by call: grids, tiles, queries, actions, sessions, long queries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from served import with_few
from services import (
    ENDLESS,
    Fixed,
    act,
    flight_sql,
    inner,
    ours,
    parsed,
    proto,
    query_request,
    rows_of,
    running,
    statement,
    tickets,
    until,
)

PREFIX = "/arrow.flight.protocol.FlightService/"


@pytest.fixture(scope="module")
def server(flights: pg.Grid) -> Iterator[pg.Server]:
    with with_few(flights) as server:
        yield server


def test_grids_are_listed_by_pattern(client: fl.FlightClient) -> None:
    def listed(pattern: bytes) -> list[str]:
        return sorted(each.descriptor.path[0].decode() for each in client.list_flights(pattern))

    assert listed(b"") == ["100%", "few_1", "few_2", "flights"]
    assert listed(b"few_?") == ["few_1", "few_2"]
    assert listed(b"nothing*") == []
    for wrong in (b"[", b"\xff"):
        with pytest.raises(pa.ArrowInvalid, match="pattern of names"):
            listed(wrong)


def test_a_grid_has_an_endpoint_for_each_row_band(
    client: fl.FlightClient, server: pg.Server, flights: pg.Grid
) -> None:
    info = client.get_flight_info(fl.FlightDescriptor.for_path("flights"))
    assert info.schema == pa.schema(flights.schema)
    assert (info.total_records, info.total_bytes) == (336776, flights.nbytes)
    assert info.ordered
    assert len(info.endpoints) == 12
    for endpoint in info.endpoints:
        places = [place.uri.decode() for place in endpoint.locations]
        assert places == ["arrow-flight-reuse-connection://?", server.uri]
        assert endpoint.expiration_time is None
    described = json.loads(info.app_metadata)
    assert described["row_cuts"] == list(flights.cuts[0])
    tables = [client.do_get(each.ticket).read_all() for each in info.endpoints]
    assert pa.concat_tables(tables) == flights.to_arrow()
    assert client.get_schema(info.descriptor).schema == info.schema


def test_a_ticket_of_tiles_gives_the_columns_that_are_wanted(
    client: fl.FlightClient, flights: pg.Grid
) -> None:
    info = client.get_flight_info(fl.FlightDescriptor.for_path("flights"))
    grid = inner(info.endpoints[3].ticket.ticket)[1][0]

    def wanted(*fields: tuple[int, Any]) -> pa.Table:
        ticket = fl.Ticket(ours("TileTicket", (1, grid), (2, 3), *fields))
        return client.do_get(ticket).read_all()

    expected = flights.tile(3).to_arrow()
    assert wanted((5, True), (4, 2), (4, 0)) == pa.table(expected).select([2, 0])
    assert wanted((3, 0), (5, True), (4, 1)) == pa.table(expected).select([1])
    assert wanted((5, True)).num_rows == expected.num_rows
    for wrong in ([(3, 1)], [(2, 12)], [(4, 400), (5, True)], [(4, 0)] * 50 + [(5, True)]):
        with pytest.raises((pa.ArrowInvalid, pa.ArrowKeyError)):
            wanted(*wrong)
    nobody = ours("TileTicket", (1, bytes(16)))
    with pytest.raises(pa.ArrowKeyError, match="no such grid"):
        client.do_get(fl.Ticket(nobody)).read_all()


def test_a_query_has_one_endpoint_that_can_be_renewed_and_fetched_again(
    client: fl.FlightClient,
) -> None:
    descriptor = statement("SELECT count(*) AS n FROM flights")
    info = client.get_flight_info(descriptor)
    [endpoint] = info.endpoints
    assert endpoint.expiration_time is not None
    assert (info.total_records, info.total_bytes) == (-1, -1)
    for _ in range(2):
        assert client.do_get(endpoint.ticket).read_all()["n"].to_pylist() == [336776]
    [body] = act(client, "RenewFlightEndpoint", proto((1, endpoint.serialize())))
    assert parsed(body)[1] == [proto((1, endpoint.ticket.ticket))]
    assert client.get_schema(descriptor).schema.names == ["n"]
    result = act(client, "CancelFlightInfo", proto((1, info.serialize())))
    assert parsed(result[0]) == {1: [1]}
    with pytest.raises(pa.ArrowKeyError, match="no such ticket"):
        client.do_get(endpoint.ticket).read_all()


def test_actions_are_listed_and_others_refused(client: fl.FlightClient) -> None:
    known = {action.type for action in client.list_actions()}
    assert {"CreatePreparedStatement", "CancelFlightInfo", "SetSessionOptions"} <= known
    for name in ("BeginTransaction", "EndTransaction", "BeginSavepoint", "EndSavepoint"):
        with pytest.raises(NotImplementedError, match="no transactions"):
            act(client, name)
    with pytest.raises(NotImplementedError, match="Substrait"):
        act(client, "CreatePreparedSubstraitPlan")
    with pytest.raises(NotImplementedError, match='no action "Explode"'):
        act(client, "Explode")
    assert known == {line.type for line in client.list_actions()}


def test_a_running_query_is_cancelled_by_its_flight_info(
    client: fl.FlightClient, server: pg.Server
) -> None:
    info = client.get_flight_info(statement(ENDLESS))
    reader = client.do_get(info.endpoints[0].ticket)
    until(lambda: running(server))
    assert parsed(act(client, "CancelFlightInfo", proto((1, info.serialize())))[0]) == {1: [1]}
    # ABORTED: pyarrow would take CANCELLED for Ctrl-C, and interrupt this process.
    with pytest.raises(fl.FlightInternalError, match="aborted.*the query was cancelled"):
        reader.read_all()
    until(lambda: not running(server))
    old = flight_sql("ActionCancelQueryRequest", (1, info.serialize()))
    with pytest.raises(pa.ArrowKeyError):
        act(client, "CancelQuery", old)


def test_a_running_query_is_cancelled_by_the_action_of_before(
    client: fl.FlightClient, server: pg.Server
) -> None:
    info = client.get_flight_info(statement(ENDLESS))
    reader = client.do_get(info.endpoints[0].ticket)
    until(lambda: running(server))
    body = flight_sql("ActionCancelQueryRequest", (1, info.serialize()))
    [result] = act(client, "CancelQuery", body)
    assert b"ActionCancelQueryResult" in result
    assert inner(result) == {1: [1]}
    with pytest.raises(fl.FlightInternalError, match="aborted.*the query was cancelled"):
        reader.read_all()
    until(lambda: not running(server))
    with pytest.raises(pa.ArrowKeyError, match="no such ticket"):
        client.do_get(info.endpoints[0].ticket).read_all()


# With what a packed buffer begins, after its length.
PACKED = {"lz4": b"\x04\x22\x4d\x18", "zstd": b"\x28\xb5\x2f\xfd"}


@pytest.mark.parametrize("packed", ["lz4", "zstd", ""])
def test_answers_are_packed_as_the_session_says(
    server: pg.Server, flights: pg.Grid, packed: str
) -> None:
    query = "SELECT month, origin, dep_time FROM flights WHERE month = 2 ORDER BY dep_time, origin"
    asks = {
        query_request(query): flights.sql(query.replace("flights", "self")).to_arrow(),
        proto((1, 1), (3, "flights")): pa.table(flights.tile(0).to_arrow()),
    }
    with grpc.insecure_channel(server.uri.removeprefix("grpc://")) as channel:
        option = proto((1, "compression"), (2, proto((1, packed))))
        call = channel.unary_stream(PREFIX + "DoAction")
        answer = call(proto((1, "SetSessionOptions"), (2, proto((1, option)))), timeout=10)
        assert parsed(b"".join(answer)).get(1, [b""]) == [b""], "no option was wrong"
        cookie = [("cookie", dict(answer.initial_metadata())["set-cookie"])]
        info = channel.unary_unary(PREFIX + "GetFlightInfo")
        get = channel.unary_stream(PREFIX + "DoGet")
        for request, expected in asks.items():
            ticket, *_ = tickets(info(request, metadata=cookie, timeout=10))
            messages = list(get(ticket, metadata=cookie, timeout=10))
            rows = rows_of(messages)
            assert rows == expected
            bodies = [parsed(message).get(1000, [b""])[0] for message in messages]
            begun = {name for name, begin in PACKED.items() for body in bodies if begin in body}
            assert begun == ({packed} if packed else set())
            num_bytes = sum(map(len, bodies))
            assert num_bytes < rows.nbytes if packed else num_bytes > rows.nbytes * 0.9


def test_a_session_is_the_cookie_of_its_client(server: pg.Server) -> None:
    with grpc.insecure_channel(server.uri.removeprefix("grpc://")) as channel:
        call = channel.unary_stream(PREFIX + "DoAction")

        def act(name: str, body: bytes, cookie: str | None) -> tuple[bytes, Any]:
            metadata = [("cookie", cookie)] if cookie else []
            answer = call(proto((1, name), (2, body)), metadata=metadata, timeout=10)
            body = b"".join(answer)
            found = dict(answer.initial_metadata())
            return parsed(body).get(1, [b""])[0], found.get("set-cookie")

        options = [
            proto((1, "timeout"), (2, proto((4, 1.5)))),
            proto((1, "memory_limit"), (2, proto((3, Fixed(10**8))))),
            proto((1, "compression"), (2, proto((1, "slow")))),
            proto((1, "colour"), (2, proto((1, "blue")))),
        ]
        body = proto(*((1, option) for option in options))
        errors, cookie = act("SetSessionOptions", body, None)
        found = {parsed(each)[1][0]: parsed(each)[2][0] for each in parsed(errors)[1]}
        assert found == {b"compression": proto((1, 2)), b"colour": proto((1, 1))}

        def named(cookie: str | None) -> set[bytes]:
            found, _ = act("GetSessionOptions", b"", cookie)
            return {parsed(each)[1][0] for each in parsed(found)[1]}

        always = {b"catalog", b"schema"}
        assert named(cookie) == {b"timeout", b"memory_limit"} | always
        assert named(None) == always
        assert parsed(act("CloseSession", b"", cookie)[0]) == {1: [1]}
        assert named(cookie) == always


def test_other_descriptors_are_refused(client: fl.FlightClient) -> None:
    for path in ([], ["a", "b"]):
        with pytest.raises(pa.ArrowInvalid, match="its name alone"):
            client.get_flight_info(fl.FlightDescriptor.for_path(*path))
    # What is not there is not found, with the names that are.
    for ask in (client.get_flight_info, client.get_schema):
        with pytest.raises(pa.ArrowKeyError, match="no table `nowhere`(?s:.*)hint: .*flights"):
            ask(fl.FlightDescriptor.for_path("nowhere"))
    for wrong in (b"", b"\xff", b"hello", proto((1, "type.googleapis.com/x.Y"))):
        with pytest.raises(pa.ArrowInvalid):
            client.get_flight_info(fl.FlightDescriptor.for_command(wrong))
    assert client.authenticate_basic_token(b"anybody", b"anything")[0] == b"authorization"
    with pytest.raises(NotImplementedError, match="no exchanges"):
        client.do_exchange(fl.FlightDescriptor.for_path("flights"))[1].read_all()
