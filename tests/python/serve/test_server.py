"""The life of a server: starting, stopping, settings, names, signals of the command."""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from conftest import DATA
from services import (
    ENDLESS,
    asked,
    command,
    drained,
    free_ports,
    http_answer,
    proto,
    refused,
    running,
    service,
    shown,
    statement,
    status,
    until,
    write_tokens,
)


def test_a_server_serves_until_it_is_stopped(flights: pg.Grid) -> None:
    with pg.Server({"f": flights}) as server:
        assert re.fullmatch(r"grpc://127\.0\.0\.1:\d+", server.uri)
        assert repr(server) == f'Server("{server.uri}")'
        assert server.tables == ["f"]
        assert http_answer(server.http_uri, "/healthz")[0] == 200
        assert http_answer(server.http_uri, "/readyz")[0] == 200
        connection = pg.connect(server.uri)
        assert connection.grids() == ["f"]
        assert status(server)["server"]["uri"] == server.uri
    with pytest.raises(pg.errors.StorageError):
        connection.grids()
    with pytest.raises(pg.errors.StorageError, match="no server answers at"):
        pg.connect(server.uri)
    with pytest.raises(ConnectionRefusedError):
        http_answer(server.http_uri, "/healthz")
    server.stop()
    assert server.grid("f").shape == flights.shape


def test_the_page_can_be_off() -> None:
    with pg.Server(http=None) as server:
        assert server.http_uri is None
        assert pg.connect(server.uri).grids() == []


def test_stopping_lets_what_runs_finish() -> None:
    with pg.Server() as server, fl.connect(server.uri) as client:
        query = "SELECT value FROM generate_series(1, 5000000)"
        info = client.get_flight_info(statement(query))
        reader = client.do_get(info.endpoints[0].ticket)
        rows = len(reader.read_chunk().data)
        stopping = threading.Thread(target=server.stop, kwargs={"within": 30})
        stopping.start()
        until(lambda: refused(server.uri))
        rows += drained(reader)
        stopping.join(30)
        assert not stopping.is_alive()
        assert rows == 5_000_000


def test_stopping_ends_what_does_not_finish_in_time() -> None:
    server = pg.Server()
    client = fl.connect(server.uri)
    info = client.get_flight_info(statement(ENDLESS))
    reader = client.do_get(info.endpoints[0].ticket)
    until(lambda: running(server))
    begun = time.monotonic()
    server.stop(within=0.5)
    assert time.monotonic() - begun < 20
    with pytest.raises((pa.ArrowException, fl.FlightError)):
        drained(reader)
    with pytest.raises((pa.ArrowException, fl.FlightError)):
        client.get_flight_info(statement("SELECT 1"))


def test_nothing_is_taken_after_the_end(tmp_path: Path) -> None:
    server = pg.Server(catalog=tmp_path)
    client = fl.connect(server.uri)
    rows = pa.record_batch({"a": [1, 2]})
    options = proto((1, 1), (2, 1))
    ingest = command("CommandStatementIngest", (1, options), (2, "late"))
    writer, reader = client.do_put(ingest, rows.schema)
    writer.write_batch(rows)
    server.stop(within=0.2)
    with pytest.raises((pa.ArrowException, fl.FlightError, OSError)):
        finish(writer, reader, rows)
    with pg.Server(catalog=tmp_path) as again:
        assert again.tables == []
    assert server.tables == []


def finish(writer: Any, reader: Any, rows: pa.RecordBatch) -> None:
    writer.write_batch(rows)
    writer.done_writing()
    if reader.read() is None:
        writer.close()
        raise OSError("there was no answer")


def test_an_address_is_of_one_server() -> None:
    # Not one that the system gives to somebody else as soon as it is free.
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    with pg.Server(address=address) as server:
        assert server.uri == f"grpc://{address}"
        with pytest.raises(pg.errors.StorageError, match="cannot listen at"):
            pg.Server(address=address)
        page = server.http_uri.removeprefix("http://")
        with pytest.raises(pg.errors.StorageError, match=page):
            pg.Server(http=page)
    with pg.Server(address=address) as again:
        assert again.uri == server.uri


def test_names_follow_what_is_registered(flights: pg.Grid) -> None:
    with pg.Server() as server:
        connection = pg.connect(server.uri)
        server.register("t", pa.table({"a": [1]}))
        assert connection.sql("SELECT * FROM t").to_arrow().to_pydict() == {"a": [1]}
        server.register("t", flights)
        assert connection.sql("SELECT count(*) AS n FROM t").to_arrow()["n"][0].as_py() == 336776
        assert server.deregister("t")
        assert not server.deregister("t")
        with pytest.raises(pg.errors.QueryError, match="t"):
            connection.sql("SELECT * FROM t")
        for wrong in ("", "x" * 201, "a\nb"):
            with pytest.raises(pg.errors.InvalidArgumentError, match="name of a grid"):
                server.register(wrong, flights)


def test_the_command_serves_tells_and_stops_at_a_signal(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        grid = f"airlines={DATA / 'airlines.parquet'}"
        with service("--grid", grid, NOTIFY_SOCKET=str(tmp_path / "notify")) as one:
            assert manager.recv(100) == b"READY=1"
            assert pg.connect(one.uri).grids() == ["airlines"]
            assert "loaded airlines: 16 rows" in "".join(one.said)
            one.kill(signal.SIGTERM)
            assert manager.recv(100) == b"STOPPING=1"
            assert one.ended()[0] == 0


def test_the_second_signal_ends_what_still_runs() -> None:
    with service() as one, fl.connect(one.uri) as client:
        info = client.get_flight_info(statement(ENDLESS))
        reader = client.do_get(info.endpoints[0].ticket)
        until(lambda: running(one))
        one.kill(signal.SIGINT)
        until(lambda: "stopping" in "".join(one.said))
        assert one.process.poll() is None
        one.kill(signal.SIGTERM)
        assert one.ended()[0] == 0
        with pytest.raises((pa.ArrowException, fl.FlightError)):
            drained(reader)


def test_tokens_are_read_again_at_a_signal(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    before = write_tokens(path, a={})
    with service("--tokens", path) as one, fl.connect(one.uri) as client:
        assert asked(client, "SELECT 1 AS a", before["a"]).num_rows == 1
        after = write_tokens(path, b={})
        one.kill(signal.SIGHUP)
        until(lambda: "were read again" in "".join(one.said))
        with pytest.raises(fl.FlightUnauthenticatedError):
            asked(client, "SELECT 1 AS a", before["a"])
        assert asked(client, "SELECT 1 AS a", after["b"]).num_rows == 1
        path.write_text("nonsense")
        one.kill(signal.SIGHUP)
        until(lambda: "what cannot be used stays as it was" in "".join(one.said))
        assert asked(client, "SELECT 1 AS a", after["b"]).num_rows == 1
        list(client.list_flights(options=shown(after["b"])))


@pytest.mark.parametrize("keeps", [False, True])
def test_one_of_several_who_drop_a_table_has_dropped_it(tmp_path: Path, keeps: bool) -> None:
    with pg.Server(catalog=tmp_path / "catalog" if keeps else None, http=None) as server:
        for _ in range(3):
            pg.connect(server.uri).sql("CREATE TABLE race AS SELECT 1 AS i")
            barrier = threading.Barrier(4)
            said: list[str] = []

            def drop(barrier: threading.Barrier = barrier, said: list[str] = said) -> None:
                connection = pg.connect(server.uri)
                barrier.wait(20)
                try:
                    said.append(str(connection.sql("DROP TABLE race").to_arrow()[0][0]))
                except pg.errors.QueryError as error:
                    said.append(str(error).split("\n", 1)[0])

            threads = [threading.Thread(target=drop) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            assert said.count("dropped race") == 1, said
            assert len([text for text in said if "no table `race`" in text]) == 3, said
            gone = pg.connect(server.uri).sql("DROP TABLE IF EXISTS race").to_arrow()
            assert gone[0].to_pylist() == ["there is no `race`"]
