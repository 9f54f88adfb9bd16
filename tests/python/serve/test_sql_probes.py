"""Statements that would write, read files or look at settings, on every way that a text can take into a server: refused, and nothing was done."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from served import tokens_of
from services import command, flight_sql, proto, shown

OUT = Path(tempfile.gettempdir(), "partgrid-probe-must-not-exist")

PROBES = [
    f"COPY secret TO '{OUT}.csv'",
    f"COPY (SELECT 1) TO '{OUT}.parquet'",
    f"COPY secret TO '{OUT}.json' STORED AS JSON",
    f"COPY (VALUES (1)) TO '{OUT}' PARTITIONED BY (column1)",
    f"EXPLAIN COPY secret TO '{OUT}.csv'",
    f"EXPLAIN ANALYZE COPY secret TO '{OUT}.csv'",
    f"EXPLAIN VERBOSE COPY secret TO '{OUT}.csv'",
    "EXPLAIN INSERT INTO secret VALUES ('x')",
    "EXPLAIN ANALYZE INSERT INTO secret VALUES ('x')",
    "EXPLAIN ANALYZE DELETE FROM secret",
    "CREATE EXTERNAL TABLE e STORED AS CSV LOCATION '/etc/passwd'",
    "CREATE EXTERNAL TABLE IF NOT EXISTS e STORED AS PARQUET LOCATION 'file:///etc'",
    "CREATE UNBOUNDED EXTERNAL TABLE e (a INT) STORED AS CSV LOCATION '/dev/zero'",
    "CREATE OR REPLACE EXTERNAL TABLE secret STORED AS CSV LOCATION '/etc/passwd'",
    "INSERT INTO secret VALUES ('x')",
    "INSERT INTO secret SELECT 'x'",
    "INSERT OVERWRITE secret VALUES ('x')",
    "WITH a AS (SELECT 'x' AS hidden) INSERT INTO secret SELECT * FROM a",
    "UPDATE secret SET hidden = 'x'",
    "DELETE FROM secret",
    "DELETE FROM secret WHERE hidden = 'gold'",
    "TRUNCATE TABLE secret",
    "MERGE INTO secret USING secret s ON true WHEN MATCHED THEN DELETE",
    "ALTER TABLE secret RENAME TO open",
    "CREATE INDEX i ON secret (hidden)",
    "SET datafusion.execution.batch_size = 1",
    "SET TIME ZONE = '+1'",
    "RESET datafusion.execution.batch_size",
    "SHOW ALL",
    "SHOW datafusion.execution.batch_size",
    "SELECT * FROM information_schema.df_settings",
    "PREPARE p AS SELECT 1",
    "PREPARE p(INT) AS SELECT $1",
    "EXECUTE p",
    "EXECUTE p(1)",
    "DEALLOCATE p",
    "CREATE FUNCTION f(INT) RETURNS INT RETURN $1",
    "CREATE OR REPLACE FUNCTION abs(INT) RETURNS INT RETURN 1",
    "DROP FUNCTION abs",
    "CREATE SCHEMA s",
    "CREATE DATABASE d",
    "DROP SCHEMA public CASCADE",
    "SELECT 1; DROP TABLE secret",
    "SELECT 1; SELECT 2",
    "BEGIN",
    "COMMIT",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM 'http://127.0.0.1:1/x.parquet'",
    "SELECT * FROM read_csv('/etc/passwd')",
    "TABLE '/etc/passwd'",
    "ATTACH DATABASE '/etc/passwd' AS a",
]

REFUSED = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.NOT_FOUND,
}

PREFIX = "/arrow.flight.protocol.FlightService/"

Way = Callable[[grpc.Channel, str, list[tuple[str, str]]], None]


def asked(method: str, message: bytes) -> Way:
    """Sends one message of Flight; `message` has the place of the text as its type."""

    def ask(channel: grpc.Channel, text: str, metadata: list[tuple[str, str]]) -> None:
        body = flight_sql(message.decode(), (1, text))
        sent = proto((1, 2), (2, body))
        if method == "DoPut":
            sent = proto((1, sent))
        if method == "DoAction":
            sent = proto((1, "CreatePreparedStatement"), (2, body))
        call = channel.stream_stream(PREFIX + method)
        list(call(iter([sent]), metadata=metadata, timeout=20))

    return ask


WAYS: dict[str, Way] = {
    "a query": asked("GetFlightInfo", b"CommandStatementQuery"),
    "its columns": asked("GetSchema", b"CommandStatementQuery"),
    "a query to poll": asked("PollFlightInfo", b"CommandStatementQuery"),
    "an update": asked("DoPut", b"CommandStatementUpdate"),
    "a prepared statement": asked("DoAction", b"ActionCreatePreparedStatementRequest"),
}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("probes")
    return {"folder": str(folder), **tokens_of(folder)}


@pytest.fixture(scope="module")
def server(tokens: dict[str, str]) -> Iterator[pg.Server]:
    grids = {"secret": pa.table({"hidden": ["gold"]})}
    with pg.Server(grids, tokens=Path(tokens["folder"]) / "tokens.toml") as server:
        yield server


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("caller", ["reader", "admin"])
def test_probes_are_refused_on_every_way(
    server: pg.Server, tokens: dict[str, str], way: str, caller: str
) -> None:
    metadata = [("authorization", f"Bearer {tokens[caller]}")]
    with grpc.insecure_channel(server.uri.removeprefix("grpc://")) as channel:
        for probe in PROBES:
            with pytest.raises(grpc.RpcError) as caught:
                WAYS[way](channel, probe, metadata)
            assert caught.value.code() in REFUSED, (probe, caught.value.details())
            assert "gold" not in caught.value.details()
    assert server.tables == ["secret"]
    assert server.grid("secret").to_arrow()["hidden"].to_pylist() == ["gold"]
    assert list(OUT.parent.glob(OUT.name + "*")) == []


def test_as_the_name_of_a_table_a_probe_is_only_a_name(
    server: pg.Server, client: fl.FlightClient, tokens: dict[str, str]
) -> None:
    rows = pa.table({"a": [1]})
    for probe in PROBES:
        made = command("CommandStatementIngest", (1, proto((1, 1), (2, 3))), (2, probe))
        writer, reader = client.do_put(made, rows.schema, shown(tokens["writer"]))
        writer.write_table(rows)
        writer.done_writing()
        reader.read()
        writer.close()
    made = [name for name in server.tables if name != "secret"]
    assert sorted(made) == sorted(PROBES)
    for name in made:
        server.deregister(name)
    assert server.grid("secret").to_arrow()["hidden"].to_pylist() == ["gold"]
    assert list(OUT.parent.glob(OUT.name + "*")) == []
