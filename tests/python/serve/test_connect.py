"""`connect`: a server's grids and answers in another process, without copies on the same host; uploads."""

from __future__ import annotations

import datetime
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from services import ENDLESS, asked, ours, running, service, until
from sharing import BUFFERS
from type_samples import samples

COUNT = "SELECT origin, count(*) AS n FROM flights GROUP BY origin ORDER BY origin"


@pytest.fixture(scope="module")
def server(flights: pg.Grid) -> Iterator[pg.Server]:
    types = {name: values for name, values in samples().items() if name != "run_end_encoded"}
    banded = pg.read_parquet("data/flights", tile_columns=5)
    with pg.Server({"flights": flights, "types": pa.table(types), "banded": banded}) as server:
        yield server


@pytest.fixture
def connection(server: pg.Server) -> pg.Connection:
    return pg.connect(server.uri)


def elsewhere(code: str, *arguments: str) -> str:
    """What a program prints in a process of its own."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="shared memory is for Linux")
@pytest.mark.parametrize("name", ["flights", "types", "banded"])
def test_another_process_maps_the_tiles_of_a_server(server: pg.Server, name: str) -> None:
    code = BUFFERS + (
        "grid = pg.connect(sys.argv[1]).grid(sys.argv[2])\n"
        "assert 'memfd:partgrid' not in open('/proc/self/maps').read()\n"
        "table = grid.to_arrow()\n"
        "table.validate(full=True)\n"
        "print(outside(table))\n"
    )
    assert elsewhere(code, server.uri, name) == "0"


def test_a_mapped_grid_outlives_its_name_and_tiles_not_read_are_lost(server: pg.Server) -> None:
    server.register("passing", pa.table({"a": np.arange(1000)}))
    code = (
        "import sys, partgrid as pg\n"
        "connection = pg.connect(sys.argv[1])\n"
        "one, other = connection.grid('passing'), connection.grid('passing')\n"
        "rows = one.to_arrow()\n"
        "print('go', flush=True)\n"
        "sys.stdin.readline()\n"
        "assert one.to_arrow() == rows\n"
        "try:\n"
        "    print(other.to_arrow() == rows)\n"
        "except (pg.errors.PartitionLostError, pg.errors.NotFoundError):\n"
        "    print('lost')\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, server.uri],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "go\n"
    server.deregister("passing")
    out, _ = child.communicate("\n", timeout=30)
    assert out in ("lost\n", "True\n")
    assert child.returncode == 0


def test_in_the_process_of_the_server_the_grid_is_the_very_one(
    connection: pg.Connection, flights: pg.Grid
) -> None:
    found = connection.grid("flights")
    assert found.cuts == flights.cuts
    addresses = [
        [chunk.buffers()[1].address for chunk in grid.to_arrow()["distance"].chunks]
        for grid in (found, flights)
    ]
    assert addresses[0] == addresses[1]


def test_answers_of_a_server_are_results(connection: pg.Connection) -> None:
    result = connection.sql(COUNT)
    expected = {"origin": ["EWR", "JFK", "LGA"], "n": [120835, 111279, 104662]}
    assert result.columns == ["origin", "n"]
    assert result.to_arrow().to_pydict() == expected
    assert len(result) == 3
    assert pa.Table.from_batches(result.stream()).to_pydict() == expected
    assert pa.table(result).to_pydict() == expected
    assert result.to_pandas().to_dict("list") == expected
    assert result.to_polars().to_dict(as_series=False) == expected
    assert result.to_grid().shape == (3, 2)
    assert result.progress() is None
    assert result.metrics is None
    assert "GridScanExec" in result.explain()
    assert "output_rows=3" in result.explain(analyze=True)
    assert "JFK" in repr(result)
    with pytest.raises(pg.errors.QueryError, match="no column `nope`"):
        connection.sql("SELECT nope FROM flights")


def test_parameters_are_sent_as_values(connection: pg.Connection) -> None:
    asked = connection.sql(
        "SELECT count(*) AS n FROM flights WHERE origin = $1 AND month = $2", ["JFK", 2]
    )
    assert asked.to_arrow()["n"].to_pylist() == [8421]
    assert "GridScanExec" in asked.explain()
    named = "SELECT $name AS name, $b AS b, $when AS d"
    day = datetime.date(2024, 2, 29)
    row = connection.sql(named, {"when": day, "name": "O'Neil; --", "b": b"\x00"}).to_arrow()
    assert row.to_pylist() == [{"name": "O'Neil; --", "b": b"\x00", "d": day}]
    ten = {str(number): number for number in range(1, 11)}
    turned = connection.sql(
        "SELECT $2 AS b, $1 AS a, $3 + $4 + $5 + $6 + $7 + $8 + $9 AS c, $10 AS d", ten
    )
    assert turned.to_arrow().to_pylist() == [{"b": 2, "a": 1, "c": 42, "d": 10}]
    with pytest.raises(pg.errors.PartgridError, match=r"\$a"):
        connection.sql("SELECT $1 AS a", {"a": 5}).to_arrow()
    nothing = connection.sql("SELECT count(*) AS n FROM flights WHERE tailnum = $1", [None])
    assert nothing.to_arrow()["n"].to_pylist() == [0]
    with pytest.raises(pg.errors.QueryError, match=r"\$2"):
        connection.sql("SELECT $1 + $2", [1])
    connection.sql("CREATE TABLE made AS SELECT $1 AS a", [7])
    assert connection.sql("SELECT a FROM made").to_arrow()["a"].to_pylist() == [7]
    connection.sql("DROP TABLE made")
    connection.sql("CREATE TABLE made AS SELECT $x AS a", {"x": "text"})
    assert connection.sql("SELECT a FROM made").to_arrow()["a"].to_pylist() == ["text"]
    connection.sql("DROP TABLE made")


def test_queries_of_a_connection_have_its_bounds(server: pg.Server) -> None:
    short = pg.connect(server.uri, timeout=0.2)
    with pytest.raises(pg.errors.ResourcesExhaustedError, match=r"0\.2"):
        short.sql(ENDLESS).to_arrow()
    heavy = "SELECT array_length(array_agg(value)) AS n FROM generate_series(1, 3000000)"
    small = pg.connect(server.uri, memory_limit="1MB")
    with pytest.raises(pg.errors.ResourcesExhaustedError, match="memory"):
        small.sql(heavy).to_arrow()
    assert pg.connect(server.uri).sql(heavy).to_arrow().column(0).to_pylist() == [3000000]
    until(lambda: not running(server))


def test_one_query_has_its_own_bounds_in_place_of_those_of_the_connection(
    server: pg.Server,
) -> None:
    heavy = "SELECT array_length(array_agg(value)) AS n FROM generate_series(1, 3000000)"
    connection = pg.connect(server.uri, memory_limit="1MB")
    with pytest.raises(
        pg.errors.ResourcesExhaustedError, match=r"timeout of 0\.2 seconds"
    ) as caught:
        connection.sql(ENDLESS, timeout=0.2).to_arrow()
    assert str(caught.value.hint).startswith("raise timeout")
    large = connection.sql(heavy, timeout=60, memory_limit="200MB")
    assert [large.to_arrow()["n"].to_pylist() for _ in range(2)] == [[3_000_000]] * 2
    asked = connection.sql("SELECT $1 AS a", [7], timeout=60, memory_limit="2MB")
    assert asked.to_arrow()["a"].to_pylist() == [7]
    # The others have what the connection says.
    with pytest.raises(
        pg.errors.ResourcesExhaustedError, match=r"limit of the query, 1\.0 MB, has"
    ):
        connection.sql(heavy, timeout=float("inf")).to_arrow()
    for wrong, text in (
        ({"timeout": 0}, "timeout must be more than 0 seconds"),
        ({"timeout": -1}, "timeout must be seconds from now"),
        ({"memory_limit": 0}, "memory_limit must be at least 1"),
    ):
        with pytest.raises(pg.errors.InvalidArgumentError, match=text):
            connection.sql("SELECT 1", **wrong)
    until(lambda: not running(server))


def test_a_query_of_a_server_is_cancelled(connection: pg.Connection, server: pg.Server) -> None:
    result = connection.sql(ENDLESS)
    stream = result.stream()
    caught: list[BaseException] = []

    def read() -> None:
        try:
            list(stream)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    until(lambda: running(server))
    result.cancel()
    thread.join(10)
    assert isinstance(caught[0], pg.errors.CancelledError)
    with pytest.raises(pg.errors.NotFoundError):
        result.to_arrow()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_makes_its_own_connection(connection: pg.Connection) -> None:
    child = os.fork()
    if child == 0:
        try:
            connection.grids()
        except pg.errors.InvalidArgumentError as error:
            os._exit(0 if "before a fork" in str(error) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    "uri", ["", "x", "http://127.0.0.1:1", "grpc://", "grpc://nohost", "grpc://a b:1"]
)
def test_what_is_no_uri_is_refused(uri: str) -> None:
    with pytest.raises(pg.errors.InvalidArgumentError, match="URI of (a|the) server"):
        pg.connect(uri)


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        ("db1", "say grpc://db1:8815, or grpc"),
        ("db1:1", "say grpc://db1:1, or grpc"),
        ("grpcs://db1:1", "say grpc://db1:1, or grpc"),
        ("GRPC://db1:1/", "say grpc://db1:1, or grpc"),
        ("https://db1:1", "is where the status page is"),
        ("grpc://db1:1/flights", "ends with its port"),
    ],
)
def test_what_may_have_been_meant_by_what_is_no_uri_is_said(uri: str, remedy: str) -> None:
    with pytest.raises(pg.errors.InvalidArgumentError, match=f"\nhint: .*{remedy}"):
        pg.connect(uri)


@pytest.mark.parametrize("uri", ["grpc://db1", "grpc://db1:0", "grpc://db1:99999"])
def test_a_port_that_is_none_or_missing_is_said_with_an_example(uri: str) -> None:
    said = r"must have a port from 1 to 65535, such as grpc://db1:8815, got "
    with pytest.raises(pg.errors.InvalidArgumentError, match=said + f'"{uri}"'):
        pg.connect(uri)


def test_where_nobody_answers_is_said() -> None:
    with pytest.raises(pg.errors.StorageError, match="no server answers at grpc://127.0.0.1:1"):
        pg.connect("grpc://127.0.0.1:1")


def test_a_server_that_says_nothing_is_not_waited_for_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        begun = time.monotonic()
        with pytest.raises(pg.errors.StorageError) as caught:
            pg.connect(uri)
        assert time.monotonic() - begun < 20
        assert f"the server at {uri} has not answered for 10 s\nhint: " in str(caught.value)


def test_a_server_that_is_gone_is_named() -> None:
    with service() as one:
        connection, uri = pg.connect(one.uri), one.uri
    with pytest.raises(pg.errors.StorageError, match=uri) as caught:
        connection.grids()
    assert "\nhint: " in str(caught.value)


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ({"timeout": 0}, "timeout must be more than 0 seconds, got 0"),
        ({"timeout": -1}, "timeout must be seconds from now, got -1"),
        ({"timeout": float("nan")}, "timeout must be seconds from now, got nan"),
        ({"memory_limit": 0}, "memory_limit must be at least 1, got 0"),
        ({"memory_limit": "x"}, "memory_limit must read like 512MB"),
    ],
    ids=str,
)
def test_bounds_that_cannot_be_are_refused_by_their_names(
    connection: pg.Connection, bounds: dict[str, Any], text: str
) -> None:
    with pytest.raises(pg.errors.InvalidArgumentError) as caught:
        pg.connect(connection.uri, **bounds)
    assert str(caught.value).startswith(text)


def test_a_token_goes_to_another_host_over_tls_only() -> None:
    with pytest.raises(pg.errors.InvalidArgumentError, match="over TLS") as caught:
        pg.connect("grpc://partgrid.invalid:1", token="secret")
    assert "insecure=True" in str(caught.value)
    assert "secret" not in str(caught.value)
    with pytest.raises(pg.errors.StorageError):
        pg.connect("grpc://partgrid.invalid:1", token="secret", insecure=True)


@pytest.mark.parametrize(
    "query",
    [
        "SHOW TABLES",
        "DESCRIBE flights",
        "EXPLAIN SELECT month FROM flights",
        "VALUES (1)",
        "DROP VIEW IF EXISTS nothing",
        "SELECT count(*) AS n FROM flights",
    ],
)
def test_a_server_explains_whatever_a_session_does(
    connection: pg.Connection, flights: pg.Grid, query: str
) -> None:
    session = pg.Session()
    session.register("flights", flights)
    here, there = session.sql(query), connection.sql(query)
    assert there.explain().split(":")[0] == here.explain().split(":")[0]
    assert "metrics=" in there.explain(analyze=True)
    assert there.to_arrow().num_rows == here.to_arrow().num_rows or "SHOW" in query


def test_an_upload_keeps_cuts_and_bands(connection: pg.Connection, server: pg.Server) -> None:
    banded = pg.read_parquet("data/flights", tile_columns=5, lazy=True)
    assert banded.tiling[1] > 1
    answer = connection.upload(banded, "sent")
    assert answer == {"rows": 336776, "durable": False}
    sent = server.grid("sent")
    assert sent.cuts == banded.cuts
    assert sent.to_arrow() == banded.to_arrow()
    assert sent.schema == banded.schema
    with pytest.raises(pg.errors.QueryError, match="exists already"):
        connection.upload(banded, "sent")
    few = pa.table({"a": [1]})
    assert connection.upload(few, "sent", if_exists="replace")["rows"] == 1
    assert server.grid("sent").to_arrow() == few
    with pytest.raises(pg.errors.InvalidArgumentError, match="if_exists must be"):
        connection.upload(few, "sent", if_exists="append")
    for wrong in ("", "a\nb", "x" * 201):
        with pytest.raises(pg.errors.InvalidArgumentError, match="name of a grid"):
            connection.upload(few, wrong)
    server.deregister("sent")


def test_an_upload_may_be_durable_and_says_so(tmp_path: Path) -> None:
    with service("--catalog", tmp_path) as one:
        connection = pg.connect(one.uri)
        rows = pa.table({"a": [1, 2, 3]})
        assert connection.upload(rows, "kept") == {"rows": 3, "durable": True}
        assert connection.grid("kept").to_arrow() == rows


def test_an_upload_that_is_not_committed_leaves_nothing(server: pg.Server) -> None:
    rows = pa.record_batch({"a": [1, 2, 3]})
    schema = rows.schema.serialize().to_pybytes()

    def begin(client: fl.FlightClient, rows_to: int) -> bytes:
        cuts = bytes([0, rows_to]), bytes([0, 1])
        body = ours("BeginUpload", (1, "half"), (2, schema), (3, cuts[0]), (4, cuts[1]))
        [answer] = client.do_action(fl.Action("BeginUpload", body))
        return answer.body.to_pybytes()[2:]

    def put(client: fl.FlightClient, upload: bytes, band: int, batch: Any) -> None:
        body = ours("UploadCommand", (1, upload), (2, band), (3, 0))
        writer, _ = client.do_put(fl.FlightDescriptor.for_command(body), batch.schema)
        writer.write_batch(batch)
        writer.done_writing()
        writer.close()

    with fl.connect(server.uri) as client:
        upload = begin(client, 3)
        commit = fl.Action("CommitUpload", ours("Upload", (1, upload)))
        with pytest.raises(pa.ArrowInvalid, match=r"\[0, 0\]|\(0, 0\)|tile"):
            list(client.do_action(commit))
        with pytest.raises(pa.ArrowInvalid, match="must have 3 rows, got 2"):
            put(client, upload, 0, rows[:2])
        with pytest.raises(pa.ArrowInvalid, match="columns of its column band"):
            put(client, upload, 0, pa.record_batch({"b": [1, 2, 3]}))
        with pytest.raises(pa.ArrowKeyError, match="no such place"):
            put(client, upload, 1, rows)
        put(client, upload, 0, rows)
        put(client, upload, 0, rows)
        assert "half" not in server.tables
        list(client.do_action(fl.Action("AbortUpload", ours("Upload", (1, upload)))))
        with pytest.raises(pa.ArrowKeyError, match="no such upload"):
            list(client.do_action(commit))
        assert "half" not in server.tables
        upload = begin(client, 3)
        put(client, upload, 0, rows)
        list(client.do_action(fl.Action("CommitUpload", ours("Upload", (1, upload)))))
        assert asked(client, "SELECT sum(a) AS s FROM half")["s"].to_pylist() == [6]
    server.deregister("half")
