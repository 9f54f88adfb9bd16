"""What belongs to whom: tickets, statements, uploads and queries of one caller are nothing to another."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from conftest import DATA
from hostile import harmed
from services import (
    ENDLESS,
    asked,
    command,
    flight_sql,
    http_answer,
    inner,
    ours,
    parsed,
    proto,
    running,
    shown,
    statement,
    status,
    until,
    write_tokens,
)

DENIED = fl.FlightUnauthorizedError


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path = tmp_path_factory.mktemp("callers") / "tokens.toml"
    callers = {name: {"scope": name} for name in ("admin", "read", "write")}
    return {"file": str(path), **write_tokens(path, other={}, **callers)}


@pytest.fixture(scope="module")
def server(tokens: dict[str, str]) -> Iterator[pg.Server]:
    grids, settings = {"open_1": pa.table({"a": [1, 2, 3]})}, {"load.from": str(DATA)}
    with pg.Server(grids, tokens=tokens["file"], settings=settings) as server:
        yield server


@pytest.fixture
def client(server: pg.Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.uri) as client:
        yield client


def act(client: fl.FlightClient, name: str, body: bytes, token: str) -> bytes:
    return b"".join(
        each.body.to_pybytes() for each in client.do_action(fl.Action(name, body), shown(token))
    )


def test_what_one_caller_was_given_is_nothing_to_another(
    server: pg.Server, client: fl.FlightClient, tokens: dict[str, str]
) -> None:
    writer, admin = tokens["write"], tokens["admin"]
    info = client.get_flight_info(statement("SELECT 1 AS a"), shown(writer))
    with pytest.raises(DENIED, match="this ticket was given to another token"):
        client.do_get(info.endpoints[0].ticket, shown(admin)).read_all()
    cancel = proto((1, info.serialize()))
    with pytest.raises(DENIED, match="this ticket was given to another token"):
        act(client, "CancelFlightInfo", cancel, admin)
    with pytest.raises(DENIED):
        act(client, "RenewFlightEndpoint", proto((1, info.endpoints[0].serialize())), admin)
    headers = [(b"authorization", f"Bearer {writer}".encode()), (b"x-partgrid-endpoints", b"parts")]
    parts = client.get_flight_info(
        statement("SELECT 1 AS a"), fl.FlightCallOptions(headers=headers)
    )
    with pytest.raises(DENIED, match="this answer was given to another token"):
        client.do_get(parts.endpoints[0].ticket, shown(admin)).read_all()
    with pytest.raises(DENIED, match="this answer was given to another token"):
        act(client, "CancelFlightInfo", proto((1, parts.serialize())), admin)
    assert client.do_get(parts.endpoints[0].ticket, shown(writer)).read_all().num_rows == 1
    body = flight_sql("ActionCreatePreparedStatementRequest", (1, "SELECT $1 AS a"))
    handle = inner(act(client, "CreatePreparedStatement", body, writer))[1][0]
    with pytest.raises(DENIED, match="this prepared statement was given to another token"):
        asked(client, command("CommandPreparedStatementQuery", (1, handle)), admin)
    schema = pa.schema([("a", pa.int64())]).serialize().to_pybytes()
    body = ours("BeginUpload", (1, "up"), (2, schema), (3, b"\0\1"), (4, b"\0\1"))
    upload = parsed(act(client, "BeginUpload", body, writer))[1][0]
    for name in ("CommitUpload", "AbortUpload"):
        with pytest.raises(DENIED, match="this upload was given to another token"):
            act(client, name, ours("Upload", (1, upload)), admin)
    act(client, "AbortUpload", ours("Upload", (1, upload)), writer)
    with pytest.raises(pa.ArrowKeyError):
        client.do_get(fl.Ticket(ours("PartTicket", (1, bytes(16)))), shown(admin)).read_all()
    assert asked(client, "SELECT 1 AS a", writer).num_rows == 1
    assert server.tables == ["open_1"]


def test_a_token_to_read_begins_and_ends_nothing_of_others(
    server: pg.Server, client: fl.FlightClient, tokens: dict[str, str]
) -> None:
    reader, writer = tokens["read"], tokens["write"]
    schema = pa.schema([("a", pa.int64())]).serialize().to_pybytes()
    upload = ours("BeginUpload", (1, "up"), (2, schema), (3, b"\0\0"), (4, b"\0\1"))
    load = ours("LoadRequest", (1, "loaded"), (2, str(DATA / "airlines.parquet")))
    for name, body in (("Load", load), ("BeginUpload", upload)):
        with pytest.raises(DENIED, match="scope `write`"):
            act(client, name, body, reader)
    begun = ours("Upload", (1, parsed(act(client, "BeginUpload", upload, writer))[1][0]))
    for name in ("CommitUpload", "AbortUpload"):
        with pytest.raises(DENIED, match="this upload was given to another token"):
            act(client, name, begun, reader)
    # The first one has the number 0, which is not written.
    number = parsed(act(client, "Load", load, writer)).get(1, [0])[0]
    job = ours("JobName", (1, number))
    for name in ("JobProgress", "CancelJob"):
        with pytest.raises(pa.ArrowKeyError, match="no such job"):
            act(client, name, job, reader)
    info = client.get_flight_info(statement(ENDLESS), shown(writer))
    rows = client.do_get(info.endpoints[0].ticket, shown(writer))
    [run] = until(lambda: running(server, writer))
    cancel = ours("RunName", (1, int(run["id"], 16)))
    with pytest.raises(pa.ArrowKeyError, match="no such query"):
        act(client, "CancelRun", cancel, reader)
    assert running(server, writer)
    # Whose they are may do all of it.
    act(client, "CancelRun", cancel, writer)
    with pytest.raises(fl.FlightInternalError, match="the query was cancelled"):
        rows.read_all()
    until(lambda: parsed(act(client, "JobProgress", job, writer))[1] == [b"done"])
    act(client, "AbortUpload", begun, writer)
    assert server.deregister("loaded")


def test_tickets_of_others_that_were_changed_give_nothing(
    client: fl.FlightClient, tokens: dict[str, str]
) -> None:
    info = client.get_flight_info(statement("SELECT 'gold' AS a"), shown(tokens["write"]))
    ticket = info.endpoints[0].ticket.ticket
    source = random.Random(7)
    for _ in range(200):
        with pytest.raises((pa.ArrowException, fl.FlightError, NotImplementedError)) as caught:
            client.do_get(fl.Ticket(harmed(source, ticket)), shown(tokens["read"])).read_all()
        assert "gold" not in str(caught.value)
        assert "INTERNAL" not in str(caught.value)
    for _ in range(2):
        # The caller may ask again, until the answer is given up.
        assert client.do_get(fl.Ticket(ticket), shown(tokens["write"])).read_all().num_rows == 1
    act(client, "CancelFlightInfo", proto((1, info.serialize())), tokens["write"])
    for caller in ("write", "admin"):
        with pytest.raises(pa.ArrowKeyError, match="no such ticket"):
            client.do_get(fl.Ticket(ticket), shown(tokens[caller])).read_all()


def test_a_token_that_was_narrowed_opens_nothing_of_before(tmp_path: Path) -> None:
    path = tmp_path / "t"
    made = write_tokens(path, a={"scope": "write"}, b={})
    with (
        pg.Server({"s": pa.table({"a": [1]})}, tokens=path) as server,
        fl.connect(server.uri) as client,
    ):
        body = flight_sql("ActionCreatePreparedStatementRequest", (1, "SELECT a FROM s"))
        handle = inner(act(client, "CreatePreparedStatement", body, made["a"]))[1][0]
        info = client.get_flight_info(statement("SELECT a FROM s"), shown(made["a"]))
        schema = pa.schema([("a", pa.int64())]).serialize().to_pybytes()
        body = ours("BeginUpload", (1, "up"), (2, schema), (3, b"\0\0"), (4, b"\0\1"))
        upload = parsed(act(client, "BeginUpload", body, made["a"]))[1][0]
        write_tokens(path, a={"scope": "read", "grids": ["x"], "token": made["a"]})
        server.reload()
        with pytest.raises((pa.ArrowException, fl.FlightError)):
            asked(client, command("CommandPreparedStatementQuery", (1, handle)), made["a"])
        with pytest.raises((pa.ArrowException, fl.FlightError)):
            client.do_get(info.endpoints[0].ticket, shown(made["a"])).read_all()
        with pytest.raises((pa.ArrowException, fl.FlightError)):
            act(client, "CommitUpload", ours("Upload", (1, upload)), made["a"])
        assert server.tables == ["s"]


def test_callers_see_and_cancel_their_own_queries(
    server: pg.Server, client: fl.FlightClient, tokens: dict[str, str]
) -> None:
    info = client.get_flight_info(statement(ENDLESS), shown(tokens["read"]))
    reader = client.do_get(info.endpoints[0].ticket, shown(tokens["read"]))
    [run] = until(lambda: running(server, tokens["admin"]))
    assert run["caller"] == "read"
    assert len(running(server, tokens["read"])) == 1
    assert status(server, tokens["other"])["queries"] == []
    assert status(server, tokens["other"])["errors"] == []
    path = f"/api/queries/{run['id']}/cancel"

    def cancel(token: str | None, **headers: str) -> int:
        return http_answer(server.http_uri, path, token, "POST", **headers)[0]

    page = {"X-Partgrid": "page"}
    assert cancel(tokens["admin"]) == 403
    assert cancel(None, **page) == 401
    assert cancel(tokens["other"], **page) == 404
    assert http_answer(server.http_uri, path, tokens["admin"])[0] == 405
    assert running(server, tokens["admin"])
    assert cancel(tokens["read"], **page) == 204
    with pytest.raises(fl.FlightInternalError, match="the query was cancelled"):
        reader.read_all()
    until(lambda: not running(server, tokens["admin"]))
