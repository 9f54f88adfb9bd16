"""Tables that clients of Flight SQL make: bulk ingestion, CREATE, and what pandas and Polars write."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from services import command, parsed, proto


@pytest.fixture(scope="module")
def server(flights: pg.Grid) -> Iterator[pg.Server]:
    with pg.Server({"flights": flights}) as server:
        yield server


def test_an_update_runs_once_for_each_row_and_not_at_all_without(
    server: pg.Server, cursor: Any, name: str
) -> None:
    cursor.executemany(f"CREATE TABLE {name} AS SELECT 1 AS a", [])
    assert name not in server.tables


def test_ingestion_creates_appends_and_replaces(server: pg.Server, cursor: Any, name: str) -> None:
    rows = pa.table({"a": [1, 2], "b": ["x", None]})
    with pytest.raises(adbc_driver_manager.Error, match="no such table to append to"):
        cursor.adbc_ingest(name, rows, mode="append")
    assert cursor.adbc_ingest(name, rows, mode="create") == 2
    with pytest.raises(adbc_driver_manager.Error, match="exists already") as caught:
        cursor.adbc_ingest(name, rows, mode="create")
    assert name in str(caught.value)
    assert cursor.adbc_ingest(name, rows, mode="append") == 2
    assert cursor.adbc_ingest(name, rows, mode="create_append") == 2
    assert server.grid(name).to_arrow().num_rows == 6
    assert cursor.adbc_ingest(name, rows.select(["b"]), mode="replace") == 2
    assert server.grid(name).to_arrow() == rows.select(["b"])
    with pytest.raises(adbc_driver_manager.Error, match="must have the columns of the table"):
        cursor.adbc_ingest(name, rows, mode="append")
    assert server.grid(name).to_arrow() == rows.select(["b"])
    with pytest.raises(adbc_driver_manager.Error, match="temporary"):
        cursor.adbc_ingest(name + "x", rows, mode="create", temporary=True)
    assert cursor.adbc_ingest(name, iter_batches(50), mode="replace") == 500
    assert server.grid(name).shape == (500, 1)


def iter_batches(count: int) -> pa.RecordBatchReader:
    batches = [pa.record_batch({"n": list(range(10))}) for _ in range(count)]
    return pa.RecordBatchReader.from_batches(batches[0].schema, batches)


def test_tables_and_views_are_made_and_dropped(server: pg.Server, cursor: Any, name: str) -> None:
    cursor.execute(f"CREATE TABLE {name} AS SELECT origin, count(*) AS n FROM flights GROUP BY 1")
    assert cursor.fetchall() == [(f"table {name}, 3 rows",)]
    assert server.grid(name).shape == (3, 2)
    cursor.execute(f"CREATE VIEW {name}_v AS SELECT n FROM {name} WHERE origin = 'JFK'")
    cursor.execute(f"SELECT * FROM {name}_v")
    assert cursor.fetchall() == [(111279,)]
    for kind, each in (("VIEW", f"{name}_v"), ("TABLE", name)):
        cursor.execute(f"DROP {kind} {each}")
        assert each not in server.tables
    assert cursor.executemany(f"CREATE TABLE {name} AS SELECT 1 AS a", None) is None


def test_updates_tell_how_many_rows_they_wrote(cursor: Any, name: str) -> None:
    def count(text: str, values: Any = None) -> int:
        cursor.executemany(text, values)
        return int(cursor.rowcount)

    assert count(f"CREATE TABLE {name} AS SELECT * FROM flights LIMIT 5") == 5
    assert count(f"CREATE OR REPLACE TABLE {name} AS SELECT ? AS a", [(1,), (2,)]) == 2
    assert count(f"SELECT * FROM {name}") == 0
    assert count(f"DROP TABLE {name}") == 0


def ingested(
    client: fl.FlightClient,
    name: str,
    if_there: int = 1,
    header: str | None = None,
    **options: str,
) -> dict[int, list[Any]]:
    """Sends three rows, to create (1), append to (2) or replace (3) a table; gives the fields of what is told of it."""
    pairs = [(1000, proto((1, key), (2, value))) for key, value in options.items()]
    there = (1, proto((1, 1), (2, if_there)))
    headers = [(b"x-partgrid-ack", header.encode())] if header is not None else []
    rows = pa.table({"a": [1, 2, 3]})
    writer, reader = client.do_put(
        command("CommandStatementIngest", there, (2, name), *pairs),
        rows.schema,
        fl.FlightCallOptions(headers=headers, timeout=30),
    )
    try:
        writer.write_table(rows)
        writer.done_writing()
        return parsed(reader.read().to_pybytes())
    finally:
        writer.close()


# The number of rows, as Flight SQL has it, and in a field of partgrid whether they outlive the server.
DURABLE, HERE = {1: [3], 1000: [1]}, {1: [3], 1000: [0]}


def test_a_server_without_a_catalog_promises_that_nothing_lasts(
    client: fl.FlightClient, server: pg.Server, connection: Any, name: str
) -> None:
    assert ingested(client, name) == HERE
    assert ingested(client, name, 2, ack="memory") == HERE
    assert ingested(client, name, 3, "memory") == HERE
    wishes: list[tuple[str | None, dict[str, str]]] = [("durable", {}), (None, {"ack": "durable"})]
    for header, options in wishes:
        with pytest.raises(NotImplementedError, match="the server has no catalog"):
            ingested(client, name, 2, header, **options)
    assert server.grid(name).to_arrow().num_rows == 3
    option = adbc_driver_flightsql.StatementOptions.RPC_CALL_HEADER_PREFIX.value + "x-partgrid-ack"
    with connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{option: "memory"})
        assert cursor.adbc_ingest(name, pa.table({"a": [4]}), mode="append") == 1
    # The driver adds to the headers of a statement, and takes none away.
    with connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{option: "durable"})
        with pytest.raises(adbc_driver_manager.Error, match="no catalog"):
            cursor.adbc_ingest(name, pa.table({"a": [5]}), mode="append")
    assert server.grid(name).to_arrow()["a"].to_pylist() == [1, 2, 3, 4]


def test_a_client_says_whether_its_rows_are_to_last(tmp_path: Path) -> None:
    with pg.Server(catalog=tmp_path) as server, fl.connect(server.uri) as client:
        assert ingested(client, "usual") == DURABLE
        assert ingested(client, "durable", ack="durable") == DURABLE
        assert ingested(client, "here", ack="memory") == HERE
        assert ingested(client, "here", 2, "memory") == HERE
        # Rows that would be forgotten with those of before are refused; others take those of before along.
        with pytest.raises(NotImplementedError, match="to a table that is kept"):
            ingested(client, "durable", 2, ack="memory")
        assert ingested(client, "later", ack="memory") == HERE
        assert ingested(client, "later", 2, "durable") == DURABLE
        assert ingested(client, "usual", 3, ack="memory") == HERE
        assert server.grid("usual").to_arrow().num_rows == 3
    with pg.Server(catalog=tmp_path) as server:
        assert server.tables == ["durable", "later"]
        assert server.grid("durable").to_arrow().num_rows == 3
        assert server.grid("later").to_arrow().num_rows == 6


def test_a_load_that_was_in_memory_alone_lasts_once_it_is_repeated_so(tmp_path: Path) -> None:
    rows = pa.table({"a": [1, 2, 3]})
    prefix = adbc_driver_flightsql.StatementOptions.RPC_CALL_HEADER_PREFIX.value
    with (
        pg.Server(catalog=tmp_path) as server,
        adbc.connect(server.uri, autocommit=True) as connection,
    ):
        for ack in ("memory", "durable", "memory"):
            with connection.cursor() as cursor:
                said = {"x-partgrid-ack": ack, "x-partgrid-load-id": "one"}
                options = {prefix + header: value for header, value in said.items()}
                cursor.adbc_statement.set_options(**options)
                assert cursor.adbc_ingest("t", rows, mode="create_append") == 3
    with pg.Server(catalog=tmp_path) as server:
        assert server.grid("t").to_arrow() == rows


def test_what_is_no_acknowledgement_is_refused_by_name(client: fl.FlightClient, name: str) -> None:
    wrong: list[tuple[str | None, dict[str, str], str]] = [
        ("soon", {}, 'memory or durable, got "soon"'),
        ("", {}, 'memory or durable, got ""'),
        (None, {"ack": "now"}, 'memory or durable, got "now"'),
        ("memory", {"ack": "durable"}, "must say the same"),
    ]
    for header, options, text in wrong:
        with pytest.raises(pa.ArrowInvalid, match=text):
            ingested(client, name, 1, header, **options)
    with pytest.raises(NotImplementedError, match='knows one option of ingestion, "ack"'):
        ingested(client, name, 1, None, ack="memory", compression="zstd")
    update = command("CommandStatementUpdate", (1, "SELECT 1"))
    headers = [(b"x-partgrid-ack", b"memory")]
    writer, reader = client.do_put(update, pa.schema([]), fl.FlightCallOptions(headers=headers))
    writer.done_writing()
    assert reader.read() is None
    with pytest.raises(NotImplementedError, match="goes with rows of a table"):
        writer.close()


def test_polars_pandas_and_duckdb_read_and_write_through_adbc(
    server: pg.Server, connection: Any, name: str
) -> None:
    query = "SELECT origin, count(*) AS n FROM flights GROUP BY origin ORDER BY origin"
    expected = {"origin": ["EWR", "JFK", "LGA"], "n": [120835, 111279, 104662]}
    frame = pl.read_database(query, connection)
    assert frame.to_dict(as_series=False) == expected
    frame.write_database(name, connection, engine="adbc", if_table_exists="replace")
    assert server.grid(name).to_polars().to_dict(as_series=False) == expected
    table = pd.read_sql(query, connection)
    assert table.to_dict("list") == expected
    assert table.to_sql(name, connection, if_exists="replace", index=False) == 3
    assert table.to_sql(name, connection, if_exists="append", index=False) == 3
    assert pd.read_sql(f"SELECT sum(n) AS n FROM {name}", connection)["n"][0] == 2 * 336776
    with connection.cursor() as cursor:
        cursor.execute(query)
        found = duckdb.from_arrow(cursor.fetch_record_batch()).sum("n").fetchall()
    assert found == [(336776,)]


def test_rows_that_many_append_at_once_are_all_there(server: pg.Server, name: str) -> None:
    def append(number: int) -> int:
        with adbc.connect(server.uri, autocommit=True) as own, own.cursor() as cursor:
            rows = pa.table({"by": [number] * 100, "n": list(range(100))})
            return sum(cursor.adbc_ingest(name, rows, mode="create_append") for _ in range(5))

    with ThreadPoolExecutor(16) as threads:
        assert sum(threads.map(append, range(16))) == 8000
    found = pg.connect(server.uri).sql(
        f"SELECT count(*) AS n, count(DISTINCT by) AS b, sum(n) AS s FROM {name}"
    )
    assert found.to_arrow().to_pylist() == [{"n": 8000, "b": 16, "s": 16 * 5 * 4950}]


def test_tables_are_where_the_server_says(
    server: pg.Server, connection: Any, cursor: Any, name: str
) -> None:
    rows = pa.table({"a": [1]})
    cursor.execute(f"CREATE VIEW {name}_v AS SELECT 1 AS a")
    with pytest.raises(adbc_driver_manager.Error, match="is a view"):
        cursor.adbc_ingest(f"{name}_v", rows, mode="replace")
    server.deregister(f"{name}_v")
    where = {"catalog_name": "partgrid", "db_schema_name": "public"}
    assert cursor.adbc_ingest(name, rows, mode="create", **where) == 1
    for wrong in ({"catalog_name": "other"}, {"db_schema_name": "other"}):
        with (
            connection.cursor() as other,
            pytest.raises(adbc_driver_manager.Error, match="partgrid.public"),
        ):
            other.adbc_ingest(name, rows, mode="replace", **wrong)
    for odd in ("", "x" * 201, "a\nb"):
        with pytest.raises(adbc_driver_manager.Error):
            cursor.adbc_ingest(odd, rows, mode="create")
