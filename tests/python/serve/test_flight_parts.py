"""Answers of SQL with an endpoint for each of their parts, for clients that read all: by a header, by an option of a session."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from services import ENDLESS, act, command, ours, parsed, proto, running, service, statement, until

HEADER = "x-partgrid-endpoints"
PARTS = fl.FlightCallOptions(headers=[(HEADER.encode(), b"parts")], timeout=60)
# Some 60 MB.
ORDERED = "SELECT *, repeat(dest, 30) AS wide FROM flights ORDER BY distance, flight"
KEYS = ["distance", "flight"]


@pytest.fixture(scope="module")
def server(flights: pg.Grid) -> Iterator[pg.Server]:
    with pg.Server({"flights": flights, "few": pa.table({"a": [1, 2, 3]})}) as server:
        yield server


@pytest.fixture(scope="module")
def ordered(flights: pg.Grid) -> pa.Table:
    """Of what `ORDERED` gives, the columns that ties leave as they are."""
    return flights.sql("SELECT distance, flight FROM self ORDER BY distance, flight").to_arrow()


def in_parts(client: fl.FlightClient, text: str) -> fl.FlightInfo:
    return client.get_flight_info(statement(text), PARTS)


def test_each_part_of_an_ordered_answer_has_an_endpoint_with_its_location(
    client: fl.FlightClient, server: pg.Server, ordered: pa.Table
) -> None:
    info = in_parts(client, ORDERED)
    assert info.ordered
    assert info.total_records == ordered.num_rows
    assert info.total_bytes > 0
    assert len(info.endpoints) > 2
    for endpoint in info.endpoints:
        places = [place.uri.decode() for place in endpoint.locations]
        assert places == ["arrow-flight-reuse-connection://?", server.uri]
        assert endpoint.expiration_time is not None
    # In any order, one of them twice: together they are the answer.
    last_first = [client.do_get(each.ticket).read_all() for each in reversed(info.endpoints)]
    assert all(part.num_rows > 0 for part in last_first)
    again = client.do_get(info.endpoints[0].ticket).read_all()
    assert again == last_first[-1]
    together = pa.concat_tables(reversed(last_first))
    assert together.schema == info.schema
    assert together.select(KEYS).equals(ordered)
    # The rows of a part can be fetched on a connection of its own, as its location says.
    with fl.connect(info.endpoints[1].locations[1].uri) as other:
        assert other.do_get(info.endpoints[1].ticket).read_all() == last_first[-2]


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_a_server_at_all_interfaces_names_no_location_but_the_connection(address: str) -> None:
    rows = pa.table({"a": [1, 2, 3]})
    anywhere, here = ("0.0.0.0", "127.0.0.1") if "." in address else ("[::]", "[::1]")
    with pg.Server({"few": rows}, address=address, insecure=True) as server:
        uri = server.uri.replace(anywhere, here)
        with fl.connect(uri) as client:
            infos = [in_parts(client, "SELECT * FROM few")]
            infos.append(client.get_flight_info(statement("SELECT * FROM few")))
            infos.append(client.get_flight_info(fl.FlightDescriptor.for_path("few")))
            infos += client.list_flights()
            for info in infos:
                [endpoint] = info.endpoints
                places = [place.uri.decode() for place in endpoint.locations]
                assert places == ["arrow-flight-reuse-connection://?"]
                assert client.do_get(endpoint.ticket).read_all() == rows
        with adbc.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT * FROM few")
            assert cursor.fetch_arrow_table() == rows
        grid = pg.connect(uri).grid("few")
        assert grid.to_arrow() == rows
        # Handles name the memory of the server, not its address.
        assert pickle.loads(pickle.dumps(grid)).to_arrow() == rows


def test_what_other_hosts_call_a_server_is_its_location() -> None:
    named = "grpc://flights.example:8815"
    settings = {"server.advertised": named}
    with pg.Server(address="0.0.0.0:0", insecure=True, settings=settings) as server:
        assert server.uri == named
    anywhere = ("--insecure", "--address", "0.0.0.0:0", "--http", "127.0.0.1:0")
    warning = "warning: the server listens at all interfaces"
    with service(*anywhere, ports=False) as one:
        until(lambda: warning in "".join(one.said))
    with service(*anywhere, "--set", f"server.advertised={named}", ports=False) as one:
        assert one.uri == named
        one.kill(15)
        assert warning not in one.ended()[1]


def test_all_rows_are_in_the_parts_once(client: fl.FlightClient, flights: pg.Grid) -> None:
    info = in_parts(client, "SELECT * FROM flights")
    tables = [client.do_get(each.ticket).read_all() for each in info.endpoints]
    found = pg.from_arrow(pa.concat_tables(tables))
    assert found.shape == flights.shape
    for grid in (found, flights):
        sums = "SELECT sum(flight) AS f, sum(distance) AS d, count(arr_delay) AS a FROM self"
        assert grid.sql(sums).to_arrow().to_pylist() == [
            {"f": 664_096_549, "d": 350_217_607, "a": 327_346}
        ]


@pytest.mark.parametrize("text", ["SELECT * FROM flights WHERE month = 13", "SELECT * FROM few"])
def test_a_small_answer_has_one_endpoint(client: fl.FlightClient, text: str) -> None:
    info = in_parts(client, text)
    [endpoint] = info.endpoints
    rows = client.do_get(endpoint.ticket).read_all()
    assert rows.schema == info.schema
    assert rows.num_rows == info.total_records
    assert rows.num_rows == (3 if "few" in text else 0)


def test_what_is_no_query_has_one_endpoint(client: fl.FlightClient) -> None:
    info = client.get_flight_info(command("CommandGetCatalogs"), PARTS)
    [endpoint] = info.endpoints
    assert client.do_get(endpoint.ticket).read_all().to_pylist() == [{"catalog_name": "partgrid"}]


def test_the_parts_of_a_cancelled_answer_are_gone(client: fl.FlightClient) -> None:
    info = in_parts(client, ORDERED)
    first, second, *_ = info.endpoints
    assert client.do_get(first.ticket).read_all().num_rows > 0
    [body] = act(client, "RenewFlightEndpoint", proto((1, second.serialize())))
    assert parsed(body)[1] == [proto((1, second.ticket.ticket))]
    cancel = proto((1, info.serialize()))
    assert parsed(act(client, "CancelFlightInfo", cancel)[0]) == {1: [1]}
    for endpoint in (first, second):
        with pytest.raises(pa.ArrowKeyError, match="no such answer"):
            client.do_get(endpoint.ticket).read_all()
        with pytest.raises(pa.ArrowKeyError, match="no such answer"):
            act(client, "RenewFlightEndpoint", proto((1, endpoint.serialize())))
    # Nothing is left to end.
    with pytest.raises(pa.ArrowKeyError, match="no such answer"):
        act(client, "CancelFlightInfo", cancel)
    assert in_parts(client, "SELECT 1 AS one").total_records == 1


def test_a_query_that_ends_while_its_parts_are_waited_for_is_an_error(
    client: fl.FlightClient, server: pg.Server
) -> None:
    caught: list[BaseException] = []

    def ask() -> None:
        try:
            in_parts(client, ENDLESS)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    [run] = until(lambda: running(server))
    act(client, "CancelRun", ours("RunName", (1, int(run["id"], 16))))
    thread.join(30)
    assert not thread.is_alive()
    with pytest.raises(fl.FlightInternalError, match="aborted.*the query was cancelled"):
        raise caught[0]
    with pytest.raises(pa.ArrowInvalid, match="zero"):
        in_parts(client, "SELECT 1 / (a - a) AS x FROM few")
    until(lambda: not running(server))


def test_a_query_ends_when_the_client_that_waits_for_its_parts_goes_away(
    client: fl.FlightClient, server: pg.Server
) -> None:
    headers = [(HEADER.encode(), b"parts")]
    with pytest.raises(fl.FlightTimedOutError):
        client.get_flight_info(
            statement(ENDLESS), fl.FlightCallOptions(headers=headers, timeout=0.5)
        )
    until(lambda: not running(server))


def test_another_number_of_endpoints_is_refused_by_name(client: fl.FlightClient) -> None:
    headers = [(HEADER.encode(), b"many")]
    with pytest.raises(pa.ArrowInvalid, match=f'header {HEADER} must be one or parts, got "many"'):
        client.get_flight_info(statement("SELECT 1"), fl.FlightCallOptions(headers=headers))


def test_the_plan_behind_a_part_is_that_of_its_query(client: fl.FlightClient) -> None:
    info = in_parts(client, "SELECT * FROM flights WHERE month = 7")
    for analyze in (False, True):
        request = ours("ExplainRequest", (1, info.endpoints[0].ticket.ticket), (2, analyze))
        [plan] = act(client, "Explain", request)
        assert b"GridScanExec" in plan


def test_the_parts_of_an_answer_stay_when_its_grid_is_dropped(
    client: fl.FlightClient, server: pg.Server
) -> None:
    connection = pg.connect(server.uri)
    connection.upload(pa.table({"a": [1, 2, 3]}), "passing")
    info = in_parts(client, "SELECT a + 1 AS b FROM passing ORDER BY a")
    ticket = info.endpoints[0].ticket
    request = ours("ExplainRequest", (1, ticket.ticket))
    assert "GridScanExec" in act(client, "Explain", request)[0].decode()
    connection.sql("DROP TABLE passing")

    def plan_is_gone() -> bool:
        try:
            act(client, "Explain", request)
        except pa.ArrowKeyError as error:
            return "the plan of this answer is not kept any more" in str(error)
        return False

    until(plan_is_gone)
    assert client.do_get(ticket).read_all().to_pydict() == {"b": [2, 3, 4]}


def test_a_session_says_it_for_all_its_queries(server: pg.Server, ordered: pa.Table) -> None:
    option = adbc_driver_flightsql.ConnectionOptions.OPTION_SESSION_OPTION_PREFIX.value
    option += "endpoints"
    cookies = {adbc_driver_flightsql.DatabaseOptions.WITH_COOKIE_MIDDLEWARE.value: "true"}
    with (
        adbc.connect(server.uri, db_kwargs=cookies, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        raw = connection.adbc_connection
        raw.set_options(**{option: "parts"})
        assert raw.get_option(option) == "parts"
        partitions, schema = cursor.adbc_execute_partitions(ORDERED)
        assert len(partitions) > 2
        found = []
        for partition in partitions:
            cursor.adbc_read_partition(partition)
            found.append(cursor.fetch_arrow_table())
        assert pa.concat_tables(found).select(KEYS).equals(ordered)
        assert found[0].schema.equals(schema)
        # Whoever reads the whole answer gets it in order as well.
        cursor.execute(ORDERED)
        assert cursor.fetch_arrow_table().select(KEYS).equals(ordered)
        with pytest.raises(adbc_driver_manager.Error, match="endpoints"):
            raw.set_options(**{option: "several"})
        raw.set_options(**{option: "one"})
        partitions, _ = cursor.adbc_execute_partitions(ORDERED)
        assert len(partitions) == 1


def test_rows_of_several_sets_of_parameters_follow_one_another(server: pg.Server) -> None:
    prefix = adbc_driver_flightsql.DatabaseOptions.RPC_CALL_HEADER_PREFIX.value
    headers = {prefix + HEADER: "parts"}
    with (
        adbc.connect(server.uri, db_kwargs=headers, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        rows = pa.record_batch({"a": [1, 2, None], "b": ["x", "y", "z"]})
        cursor.execute("SELECT ? AS a, ? AS b", rows)
        assert cursor.fetchall() == [(1, "x"), (2, "y"), (None, "z")]
        # Each set has its rows, and the first parts are those of the first.
        months = pa.record_batch({"month": [2, 1]})
        cursor.execute("SELECT * FROM flights WHERE month = ?", months)
        found = cursor.fetch_arrow_table()["month"].to_pylist()
        assert found == [2] * 24951 + [1] * 27004
