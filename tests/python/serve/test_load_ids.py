"""Loads that are repeated because the answer was lost: with an id, what was done is not done again, also after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from conftest import DATA
from served import numbers
from services import command, flight_sql, proto, service, status

REFUSED = pytest.raises(pg.errors.InvalidArgumentError, match="is that of another load")


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    return tmp_path / "catalog"


@pytest.fixture(params=["memory", "catalog"])
def server(request: pytest.FixtureRequest, catalog: Path) -> Iterator[pg.Server]:
    where: dict[str, Any] = {"catalog": catalog} if request.param == "catalog" else {}
    with pg.Server(settings={"load.from": str(DATA)}, **where) as server:
        yield server


def put(client: fl.FlightClient, rows: pa.Table, load_id: str | None, if_there: int) -> None:
    """Creates (1), appends (2) or replaces (3) `g` by DoPut."""
    made = command("CommandStatementIngest", (1, proto((1, 1), (2, if_there))), (2, "g"))
    headers = [] if load_id is None else [(b"x-partgrid-load-id", load_id.encode())]
    options = fl.FlightCallOptions(headers=headers, timeout=30)
    writer, reader = client.do_put(made, rows.schema, options)
    try:
        writer.write_table(rows, max_chunksize=300)
        writer.done_writing()
        reader.read()
    finally:
        writer.close()


def held(server: Any) -> pa.Table:
    return pg.connect(server.uri).grid("g").to_arrow()


def test_an_upload_that_is_repeated_changes_nothing(server: pg.Server) -> None:
    connection = pg.connect(server.uri)
    first = connection.upload(numbers(1), "g", load_id="monday")
    assert connection.upload(numbers(1), "g", load_id="monday") == first
    assert connection.upload(numbers(1), "g", load_id="monday", if_exists="replace") == first
    for rows in (numbers(2), numbers(1).slice(1), numbers(1).rename_columns(["n", "u"])):
        with REFUSED:
            connection.upload(rows, "g", load_id="monday", if_exists="replace")
    with pytest.raises(pg.errors.QueryError, match="exists already"):
        connection.upload(numbers(1), "g", load_id="tuesday")
    with pytest.raises(pg.errors.QueryError, match="exists already"):
        connection.upload(numbers(1), "g")
    assert held(server) == numbers(1)
    connection.upload(numbers(2), "g", load_id="tuesday", if_exists="replace")
    # The grid of that load is gone, and with it what is known of it.
    connection.upload(numbers(3), "g", load_id="monday", if_exists="replace")
    assert held(server) == numbers(3)
    # An id is one of its table.
    assert connection.upload(numbers(4), "h", load_id="monday")["rows"] == 1000


def test_rows_that_are_appended_again_are_there_once(
    server: pg.Server, client: fl.FlightClient
) -> None:
    put(client, numbers(1), "1", 1)
    for _ in range(2):
        put(client, numbers(2), "2", 2)
        put(client, numbers(1), "1", 1)
    put(client, numbers(3), None, 2)
    put(client, numbers(2), "2", 2)
    expected = pa.concat_tables([numbers(1), numbers(2), numbers(3)])
    assert held(server) == expected
    for rows, if_there in ((numbers(9), 2), (numbers(2), 3)):
        with pytest.raises(pa.ArrowInvalid, match="is that of another load"):
            put(client, rows, "2", if_there)
    assert held(server) == expected
    # Without an id each call is one of its own.
    put(client, numbers(3), None, 2)
    assert held(server).num_rows == 4000


def test_a_load_that_is_repeated_reads_nothing(server: pg.Server) -> None:
    connection = pg.connect(server.uri)
    wishes: dict[str, Any] = {"columns": ["carrier"], "load_id": "airlines 1"}
    for _ in range(2):
        assert connection.load_parquet(DATA / "airlines.parquet", "g", **wishes) == {"rows": 16}
    with REFUSED:
        connection.load_parquet(DATA / "airlines.parquet", "g", load_id="airlines 1")
    with REFUSED:
        connection.load_parquet(DATA / "planes.parquet", "g", **wishes, if_exists="replace")
    assert server.grid("g").columns == ["carrier"]
    # The second one had nothing to do.
    jobs = [job for job in status(server)["jobs"] if job["name"] == "g"]
    assert [job["state"] for job in jobs] == ["done", "done"]


def test_ids_are_known_after_a_death(catalog: Path) -> None:
    settings = ["--catalog", catalog, "--set", f"load.from={DATA}"]
    with service(*settings) as one, fl.connect(one.uri) as client:
        pg.connect(one.uri).load_parquet(DATA / "airlines.parquet", "a", load_id="loaded")
        put(client, numbers(1), "made", 1)
        put(client, numbers(2), "added", 2)
        one.kill()
    with service(*settings) as one, fl.connect(one.uri) as client:
        connection = pg.connect(one.uri)
        assert connection.load_parquet(DATA / "airlines.parquet", "a", load_id="loaded") == {
            "rows": 16
        }
        put(client, numbers(2), "added", 2)
        put(client, numbers(1), "made", 1)
        assert held(one) == pa.concat_tables([numbers(1), numbers(2)])
        with pytest.raises(pa.ArrowInvalid, match="is that of another load"):
            put(client, numbers(3), "added", 2)
    with service(*settings) as one:
        # A server that only read the manifest writes the ids again.
        with fl.connect(one.uri) as client:
            put(client, numbers(4), "more", 2)
        one.kill()
    with service(*settings) as one, fl.connect(one.uri) as client:
        put(client, numbers(2), "added", 2)
        assert held(one).num_rows == 3000


def test_an_upload_that_was_to_be_in_memory_is_durable_once_it_is_asked_for(catalog: Path) -> None:
    with service("--catalog", catalog) as one:
        connection = pg.connect(one.uri)
        for ack in ("memory", "memory", "durable", "durable"):
            said = connection.upload(numbers(1), "g", load_id="monday", ack=ack)
            assert said == {"durable": ack == "durable", "rows": 1000}
        one.kill()
    with service("--catalog", catalog) as one:
        assert held(one) == numbers(1)


@pytest.mark.parametrize("wrong", ["", "a\nb", "x" * 201])
def test_wrong_ids_are_refused(server: pg.Server, wrong: str) -> None:
    connection = pg.connect(server.uri)
    with pytest.raises(pg.errors.InvalidArgumentError, match="load id"):
        connection.upload(numbers(1), "g", load_id=wrong)
    with pytest.raises(pg.errors.InvalidArgumentError, match="load id"):
        connection.load_parquet(DATA / "airlines.parquet", "g", load_id=wrong)
    assert server.tables == []


def test_what_is_no_load_takes_no_id(server: pg.Server, client: fl.FlightClient) -> None:
    update = fl.FlightDescriptor.for_command(
        flight_sql("CommandStatementUpdate", (1, "CREATE TABLE made AS SELECT 1 AS a"))
    )
    options = fl.FlightCallOptions(headers=[(b"x-partgrid-load-id", b"1")], timeout=30)
    writer, reader = client.do_put(update, pa.schema([]), options)
    writer.done_writing()

    def end() -> None:
        # pyarrow raises at one of the two, depending on what came first.
        assert reader.read() is None
        writer.close()

    with pytest.raises((NotImplementedError, fl.FlightError), match="rows of a table"):
        end()
    assert server.tables == []
