"""Tables that clients of Flight SQL make: bulk ingestion, CREATE, and what pandas and Polars write."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import partgrid as pg


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
