"""Who may do what: tokens, scopes, names of grids, what belongs to whom."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import grpc
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from served import guarded, tokens_of
from services import (
    asked,
    command,
    flight_sql,
    http_answer,
    shown,
    status,
)

PREFIX = "/arrow.flight.protocol.FlightService/"


METHODS = ["Handshake", "ListFlights", "GetFlightInfo", "PollFlightInfo", "GetSchema", "DoGet"]


METHODS += ["DoPut", "DoExchange", "DoAction", "ListActions"]


YESTERDAY = (dt.datetime.now(dt.UTC) - dt.timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")


REFUSED = (fl.FlightUnauthorizedError, pg.errors.PermissionDeniedError)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("security")


@pytest.fixture(scope="module")
def tokens(folder: Path) -> dict[str, str]:
    return tokens_of(folder, late={"scope": "admin", "expires": YESTERDAY})


@pytest.fixture(scope="module")
def server(folder: Path, tokens: dict[str, str]) -> Iterator[pg.Server]:
    with guarded(folder, tokens) as server:
        yield server


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("header", ["none", "wrong", "late", "user", "empty", "odd"])
def test_no_method_answers_without_a_good_token(
    server: pg.Server, tokens: dict[str, str], method: str, header: str
) -> None:
    shows = {
        "wrong": "Bearer pgt_wrong",
        "late": f"Bearer {tokens['late']}",
        "user": f"Basic {'YWRtaW46YWRtaW4='}",
        "empty": "Bearer ",
        "odd": "Digest " + "x" * 600,
    }
    metadata = [("authorization", shows[header])] if header in shows else []
    with grpc.insecure_channel(server.uri.removeprefix("grpc://")) as channel:
        call = channel.stream_stream(PREFIX + method)
        with pytest.raises(grpc.RpcError) as caught:
            list(call(iter([b""]), metadata=metadata, timeout=10))
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert ("expired" in caught.value.details()) == (header == "late")


# Nothing is looked at of what is sent to the two others.
@pytest.mark.parametrize("method", sorted({*METHODS} - {"Handshake", "DoExchange"}))
def test_what_is_no_message_is_told_to_those_who_may_come_in(
    server: pg.Server, tokens: dict[str, str], method: str
) -> None:
    def said(message: bytes, token: str) -> tuple[grpc.StatusCode, str]:
        call = channel.stream_stream(PREFIX + method)
        with pytest.raises(grpc.RpcError) as caught:
            list(call(iter([message]), metadata=[("authorization", f"Bearer {token}")], timeout=10))
        return caught.value.code(), caught.value.details()

    # A field that is longer than the message, and one that is no field.
    with grpc.insecure_channel(server.uri.removeprefix("grpc://")) as channel:
        for torn in (b"\x0a\x7fcut", b"\xff" * 30):
            code, text = said(torn, tokens["reader"])
            assert code == grpc.StatusCode.INVALID_ARGUMENT, text
            assert text.startswith("the request is no message of its method: ")
            assert "Protobuf" not in text
            assert said(torn, "wrong")[0] == grpc.StatusCode.UNAUTHENTICATED


def test_a_token_may_be_shown_as_a_password(server: pg.Server, tokens: dict[str, str]) -> None:
    with fl.connect(server.uri) as client:
        bearer = client.authenticate_basic_token("anybody", tokens["reader"])
        assert bearer == (b"authorization", f"Bearer {tokens['reader']}".encode())
        with pytest.raises(fl.FlightUnauthenticatedError):
            client.authenticate_basic_token("reader", "wrong")
    for options in (
        {"adbc.flight.sql.authorization_header": f"Bearer {tokens['reader']}"},
        {"username": "anybody", "password": tokens["reader"]},
    ):
        with adbc.connect(server.uri, db_kwargs=options, autocommit=True) as connection:
            found = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
            assert len(found[0]["catalog_db_schemas"][0]["db_schema_tables"]) == 4
    with pytest.raises(pg.errors.PermissionDeniedError, match="a token is needed"):
        pg.connect(server.uri).grids()


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE made AS SELECT 1 AS a",
        "CREATE OR REPLACE TABLE secret AS SELECT 1 AS a",
        "CREATE VIEW made AS SELECT 1 AS a",
        "DROP TABLE secret",
        "DROP TABLE IF EXISTS secret",
        "DROP VIEW open_v",
        "EXPLAIN ANALYZE CREATE TABLE made AS SELECT 1 AS a",
    ],
)
def test_a_token_to_read_changes_nothing(
    server: pg.Server, client: fl.FlightClient, tokens: dict[str, str], text: str
) -> None:
    before = server.tables
    with pytest.raises(
        (*REFUSED, pa.ArrowInvalid), match="right to write|may not|EXPLAIN"
    ) as caught:
        asked(client, text, tokens["reader"])
    if "right to write" in str(caught.value):
        assert "the scope `write`, this one has `read`" in str(caught.value)
        assert "partgrid token NAME --scope write" in str(caught.value)
    with pytest.raises((*REFUSED, pa.ArrowInvalid)):
        update(client, text, tokens["reader"])
    body = flight_sql("ActionCreatePreparedStatementRequest", (1, text))
    with pytest.raises((*REFUSED, pa.ArrowInvalid)):
        list(client.do_action(fl.Action("CreatePreparedStatement", body), shown(tokens["reader"])))
    assert server.tables == before
    assert server.grid("secret").columns == ["hidden"]


def update(client: fl.FlightClient, text: str, token: str) -> None:
    descriptor = command("CommandStatementUpdate", (1, text))
    writer, _ = client.do_put(descriptor, pa.schema([]), shown(token))
    writer.done_writing()
    writer.close()


def test_a_token_to_read_sends_nothing(server: pg.Server, tokens: dict[str, str]) -> None:
    rows = pa.table({"a": [1]})
    options = {"adbc.flight.sql.authorization_header": f"Bearer {tokens['reader']}"}
    with (
        adbc.connect(server.uri, db_kwargs=options, autocommit=True) as connection,
        connection.cursor() as cursor,
        pytest.raises(adbc_driver_manager.Error, match="scope `write`"),
    ):
        cursor.adbc_ingest("made", rows, mode="create")
    with pytest.raises(pg.errors.PermissionDeniedError, match="scope `write`"):
        pg.connect(server.uri, token=tokens["reader"]).upload(rows, "made")
    assert "made" not in server.tables


def test_names_that_are_not_for_a_token_do_not_exist_for_it(
    server: pg.Server, client: fl.FlightClient, tokens: dict[str, str]
) -> None:
    few, admin = tokens["few"], tokens["admin"]
    assert pg.connect(server.uri, token=few).grids() == ["open_1"]
    names = asked(client, command("CommandGetTables", (5, True)), few)["table_name"].to_pylist()
    assert names == ["open_1", "open_v"]
    for table in ("tables", "columns", "views"):
        found = asked(client, f"SELECT * FROM information_schema.{table}", few)
        # A view says of what it is made.
        assert "secret" not in str(found.to_pydict()).replace("FROM secret", "")
    unknown = [
        "SELECT * FROM secret",
        "SELECT * FROM SECRET",
        'SELECT * FROM partgrid.public."secret"',
        "SELECT * FROM tiles('secret')",
        "SELECT * FROM open_v",
        "DESCRIBE secret",
        "SHOW COLUMNS FROM secret",
        "EXPLAIN SELECT * FROM secret",
        "WITH a AS (SELECT * FROM secret) SELECT * FROM a",
        "SELECT (SELECT hidden FROM secret)",
        "TABLE secret",
    ]
    for text in unknown:
        with pytest.raises((pa.ArrowInvalid, *REFUSED, NotImplementedError)) as caught:
            asked(client, text, few)
        assert "gold" not in str(caught.value)
        assert "did you mean" not in str(caught.value)
    info = client.get_flight_info(fl.FlightDescriptor.for_path("secret"), shown(admin))
    with pytest.raises(pa.ArrowKeyError, match="no such grid"):
        client.do_get(info.endpoints[0].ticket, shown(few)).read_all()
    for ask in (client.get_flight_info, client.get_schema):
        with pytest.raises(pa.ArrowKeyError, match="secret"):
            ask(fl.FlightDescriptor.for_path("secret"), shown(few))
    assert http_answer(server.http_uri, "/api/grids/secret", few)[0] == 404
    assert [grid["name"] for grid in status(server, few)["grids"]] == ["open_1"]


def test_names_that_are_not_for_a_token_are_not_made_by_it(
    server: pg.Server, client: fl.FlightClient, tokens: dict[str, str]
) -> None:
    few, rows = tokens["few"], pa.table({"a": [1]})
    for text in (
        "CREATE TABLE made AS SELECT 1 AS a",
        "CREATE OR REPLACE TABLE secret AS SELECT 1 AS a",
        "CREATE OR REPLACE VIEW secret AS SELECT 1 AS a",
        "DROP TABLE secret",
    ):
        with pytest.raises((*REFUSED, pa.ArrowInvalid)):
            asked(client, text, few)
    connection = pg.connect(server.uri, token=few)
    for name in ("secret", "made", "OPEN_2"):
        with pytest.raises(pg.errors.PermissionDeniedError, match="no right to this name"):
            connection.upload(rows, name, if_exists="replace")
    assert connection.upload(rows, "mine") == {"rows": 1, "durable": True}
    asked(client, "DROP TABLE mine", few)
    assert server.tables == ["lost", "open_1", "open_v", "secret"]
