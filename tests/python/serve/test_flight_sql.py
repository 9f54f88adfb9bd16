"""Flight SQL by the clients that people use: ADBC, and pandas, Polars and DuckDB through it; every Arrow type unchanged."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from services import ENDLESS, asked, running, until
from type_samples import samples


@pytest.fixture(scope="module")
def server(flights: pg.Grid) -> Iterator[pg.Server]:
    structs = {name: values for name, values in samples().items() if name.startswith("struct")}
    grids: dict[str, Any] = {f"of_{name}": pa.table({name: structs[name]}) for name in structs}
    with pg.Server({"flights": flights, **grids}) as server:
        yield server


@pytest.fixture
def connection(server: pg.Server) -> Iterator[Any]:
    with adbc.connect(server.uri, autocommit=True) as connection:
        yield connection


@pytest.fixture
def cursor(connection: Any) -> Iterator[Any]:
    with connection.cursor() as cursor:
        yield cursor


def rows(cursor: Any, query: str) -> list[Any]:
    cursor.execute(query)
    return cursor.fetchall()


def test_values_of_parameters_go_by_position(cursor: Any) -> None:
    cursor.execute("SELECT count(*) FROM flights WHERE dep_delay > ? AND origin = ?", (60, "JFK"))
    assert cursor.fetchone() == (8401,)
    cursor.execute("SELECT count(*) FROM flights WHERE dep_delay > $2 AND origin = $1", ("JFK", 60))
    assert cursor.fetchone() == (8401,)
    cursor.execute("SELECT ? AS v", (None,))
    assert cursor.fetchall() == [(None,)]


def test_each_row_of_parameters_is_a_run_and_answers_follow_one_another(cursor: Any) -> None:
    rows = pa.record_batch({"a": [1, 2, None], "b": ["x", "y", "z"]})
    cursor.execute("SELECT ? AS a, ? AS b", rows)
    assert cursor.fetchall() == [(1, "x"), (2, "y"), (None, "z")]


def test_named_parameters_take_the_columns_of_their_names(cursor: Any) -> None:
    rows = pa.record_batch({"late": [60], "from": ["JFK"]})
    query = "SELECT count(*) FROM flights WHERE origin = $from AND dep_delay > $late"
    cursor.execute(query, rows)
    assert cursor.fetchone() == (8401,)


def test_a_prepared_statement_runs_again_with_other_values(cursor: Any) -> None:
    query = "SELECT count(*) FROM flights WHERE month = ?"
    found = []
    for month in (1, 2, 1):
        cursor.execute(query, (month,))
        found += cursor.fetchone()
    assert found == [27004, 24951, 27004]
    cursor.adbc_prepare(query)
    cursor.executemany(query, [(1,), (2,)])


@pytest.mark.parametrize("depth", ["catalogs", "db_schemas", "tables", "all"])
def test_objects_are_listed_at_every_depth(connection: Any, depth: Any) -> None:
    found = connection.adbc_get_objects(
        depth=depth, table_name_filter="of_struct%", table_types_filter=["TABLE"]
    ).read_all()
    [catalog] = found.to_pylist()
    assert catalog["catalog_name"] == "partgrid"
    if depth == "catalogs":
        assert not catalog["catalog_db_schemas"]
        return
    [schema] = catalog["catalog_db_schemas"]
    assert schema["db_schema_name"] == "public"
    tables = schema["db_schema_tables"]
    if depth == "db_schemas":
        assert not tables
        return
    names = [each["table_name"] for each in tables]
    assert names == ["of_struct", "of_struct_of_list", "of_struct_of_struct"]
    columns = [each["column_name"] for table in tables for each in table["table_columns"] or []]
    assert columns == ([] if depth == "tables" else [name[3:] for name in names])


def test_what_there_is_is_said(connection: Any, server: pg.Server, flights: pg.Grid) -> None:
    assert connection.adbc_get_table_schema("flights") == pa.schema(flights.schema)
    schema = connection.adbc_get_table_schema(
        "flights", catalog_filter="partgrid", db_schema_filter="public"
    )
    assert schema == pa.schema(flights.schema)
    with pytest.raises(adbc_driver_manager.Error, match="NOT_FOUND"):
        connection.adbc_get_table_schema("nowhere")
    assert sorted(connection.adbc_get_table_types()) == ["TABLE", "VIEW"]
    info = connection.adbc_get_info()
    assert info["vendor_name"] == "partgrid"
    assert info["vendor_version"] == pg.__version__
    assert server.uri.startswith("grpc://127.0.0.1:")


def test_an_answer_comes_in_partitions(connection: Any, cursor: Any) -> None:
    partitions, schema = cursor.adbc_execute_partitions("SELECT DISTINCT origin FROM flights")
    assert schema.names == ["origin"]
    found = []
    for partition in partitions:
        with connection.cursor() as reader:
            reader.adbc_read_partition(partition)
            found += [row[0] for row in reader.fetchall()]
    assert sorted(found) == ["EWR", "JFK", "LGA"]


def test_a_long_query_is_cancelled(server: pg.Server, connection: Any) -> None:
    caught: list[BaseException] = []
    cursor = connection.cursor()

    def ask() -> None:
        try:
            rows(cursor, ENDLESS)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: running(server))
    cursor.adbc_cancel()
    thread.join(30)
    assert not thread.is_alive()
    assert "ancel" in str(caught[0])
    until(lambda: not running(server))
    cursor.close()


def test_there_are_no_transactions_and_this_is_said(server: pg.Server, connection: Any) -> None:
    with pytest.warns(Warning, match="autocommit"):
        adbc.connect(server.uri).close()
    with pytest.raises(adbc_driver_manager.Error, match="(?i)transaction"):
        connection.adbc_connection.set_autocommit(False)
    with connection.cursor() as cursor:
        for text in ("BEGIN", "COMMIT", "ROLLBACK"):
            with pytest.raises(adbc_driver_manager.Error):
                cursor.execute(text)
        cursor.execute("SELECT 1")


def test_options_of_a_session_hold_for_its_queries(server: pg.Server) -> None:
    prefix = adbc_driver_flightsql.ConnectionOptions.OPTION_SESSION_OPTION_PREFIX.value
    cookies = {adbc_driver_flightsql.DatabaseOptions.WITH_COOKIE_MIDDLEWARE.value: "true"}
    with adbc.connect(server.uri, db_kwargs=cookies, autocommit=True) as connection:
        raw = connection.adbc_connection
        raw.set_options(**{f"{prefix}timeout": "0.3"})
        assert raw.get_option(f"{prefix}timeout") == "0.3"
        with (
            connection.cursor() as cursor,
            pytest.raises(adbc_driver_manager.Error, match="timeout of 0.3 seconds"),
        ):
            rows(cursor, ENDLESS)
        with pytest.raises(adbc_driver_manager.Error, match="nonsense"):
            raw.set_options(**{f"{prefix}nonsense": "1"})


@pytest.mark.parametrize(
    ("query", "kind", "text"),
    [
        ("SELECT nope FROM flights", adbc.ProgrammingError, "no column `nope`"),
        ("SELECT * FROM nowhere", adbc.ProgrammingError, "nowhere"),
        ("SELEC 1", adbc.ProgrammingError, "SELEC"),
        ("SELECT 1; SELECT 2", adbc.ProgrammingError, "one statement, got several"),
        (
            "SELECT 1 / (dep_delay - dep_delay) FROM flights WHERE FALSE OR 1 / 0 = 1",
            adbc.Error,
            "zero",
        ),
        ("INSERT INTO flights SELECT * FROM flights", adbc.Error, "INSERT"),
        ("INSERT INTO flights VALUES (1)", adbc.Error, r'adbc_ingest\(name, rows, mode="append"\)'),
        ("UPDATE flights SET month = 1", adbc.Error, r"DROP TABLE, DROP VIEW\), got UPDATE"),
        ("CREATE TABLE t (a INT)", adbc.Error, "rows become one by bulk ingest"),
        ("CREATE TEMP TABLE t AS SELECT 1", adbc.Error, "hint: leave the word out, and DROP TABLE"),
    ],
)
def test_errors_have_a_kind_and_a_text(cursor: Any, query: str, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        rows(cursor, query)
    assert rows(cursor, "SELECT 1") == [(1,)]


def test_a_long_text_in_another_script_comes_whole(cursor: Any, server: pg.Server) -> None:
    name = "столбец" * 100
    with pytest.raises(adbc_driver_manager.Error, match="столбец" * 20):
        cursor.execute(f'SELECT "{name}" FROM flights')
    with (
        fl.connect(server.uri) as client,
        pytest.raises(pa.ArrowInvalid, match="столбец"),
    ):
        asked(client, f'SELECT "{name * 3}" FROM flights')
