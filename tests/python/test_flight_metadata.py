"""Arrow Flight and Flight SQL, message by message, as `pyarrow.flight` and gRPC send them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from served import with_few
from services import (
    act,
    asked,
    command,
    flight_sql,
    inner,
    parsed,
    proto,
    statement,
)

TEXT = pa.string()


KEYS = pa.schema(
    [
        ("pk_catalog_name", TEXT),
        ("pk_db_schema_name", TEXT),
        pa.field("pk_table_name", TEXT, nullable=False),
        pa.field("pk_column_name", TEXT, nullable=False),
        ("fk_catalog_name", TEXT),
        ("fk_db_schema_name", TEXT),
        pa.field("fk_table_name", TEXT, nullable=False),
        pa.field("fk_column_name", TEXT, nullable=False),
        pa.field("key_sequence", pa.int32(), nullable=False),
        ("fk_key_name", TEXT),
        ("pk_key_name", TEXT),
        pa.field("update_rule", pa.uint8(), nullable=False),
        pa.field("delete_rule", pa.uint8(), nullable=False),
    ]
)


@pytest.fixture(scope="module")
def server(flights: pg.Grid) -> Iterator[pg.Server]:
    with with_few(flights) as server:
        yield server


def test_asking_for_the_schema_runs_nothing(client: fl.FlightClient, server: pg.Server) -> None:
    schema = client.get_schema(statement("CREATE TABLE made AS SELECT 1 AS a")).schema
    assert schema.names == ["status"]
    assert "made" not in server.tables
    with pytest.raises(pa.ArrowInvalid, match="nope"):
        client.get_schema(statement("SELECT nope FROM flights"))


def test_prepared_statements_by_hand(client: fl.FlightClient) -> None:
    query = "SELECT origin, count(*) AS n FROM flights WHERE month = $1 GROUP BY origin"
    name = "ActionCreatePreparedStatementRequest"
    [body] = act(client, "CreatePreparedStatement", flight_sql(name, (1, query)))
    made = inner(body)
    assert pa.ipc.read_schema(pa.py_buffer(made[2][0])).names == ["origin", "n"]
    [parameter] = pa.ipc.read_schema(pa.py_buffer(made[3][0]))
    assert (parameter.name, pa.types.is_integer(parameter.type)) == ("1", True)
    run = command("CommandPreparedStatementQuery", (1, made[1][0]))
    for months in ([1], [2, 3], [1]):
        values = pa.record_batch({"1": months})
        writer, reader = client.do_put(run, values.schema)
        writer.write_batch(values)
        writer.done_writing()
        assert parsed(reader.read().to_pybytes())[1] == [made[1][0]]
        writer.close()
        assert asked(client, run).num_rows == 3 * len(months)
    with pytest.raises(NotImplementedError, match="no transactions"):
        act(client, "CreatePreparedStatement", flight_sql(name, (1, query), (2, b"t")))
    closing = flight_sql("ActionClosePreparedStatementRequest", (1, made[1][0]))
    assert act(client, "ClosePreparedStatement", closing) == []
    with pytest.raises(pa.ArrowKeyError, match="no such prepared statement"):
        asked(client, run)


def test_what_the_server_can_do_is_said(client: fl.FlightClient) -> None:
    found = asked(client, command("CommandGetSqlInfo"))
    info = dict(zip(found["info_name"].to_pylist(), found["value"].to_pylist(), strict=True))
    assert info[0] == "partgrid"
    assert info[1] == pg.__version__
    # Read only, SQL, Substrait, transactions, cancelling, bulk ingestion.
    assert [info[number] for number in (3, 4, 5, 8, 9, 10)] == [False, True, False, 0, True, True]
    high = asked(client, "SELECT unnest([1, NULL]) AS a ORDER BY a DESC")["a"].to_pylist()
    assert (info[507], high) == (0, [None, 1])
    some = asked(client, command("CommandGetSqlInfo", (1, 0), (1, 4)))
    assert some["info_name"].to_pylist() == [0, 4]
    types = asked(client, command("CommandGetXdbcTypeInfo"))
    assert "BIGINT" in types["type_name"].to_pylist()
    one = asked(client, command("CommandGetXdbcTypeInfo", (1, 12)))
    assert set(one["data_type"].to_pylist()) == {12}


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ([], ["100%", "few_1", "few_2", "few_v", "flights"]),
        ([(3, "few%")], ["few_1", "few_2", "few_v"]),
        ([(3, "few__")], ["few_1", "few_2", "few_v"]),
        ([(3, "FEW%")], []),
        ([(3, "few.*")], []),
        ([(4, "VIEW")], ["few_v"]),
        ([(4, "TABLE"), (4, "VIEW"), (3, "f%v")], ["few_v"]),
        ([(4, "SYSTEM")], []),
        ([(1, "partgrid"), (2, "pub%"), (3, "flights")], ["flights"]),
        ([(1, "")], []),
        ([(1, "other")], []),
        ([(2, "other")], []),
    ],
)
def test_tables_are_found_by_pattern(
    client: fl.FlightClient, fields: list[tuple[int, Any]], names: list[str]
) -> None:
    found = asked(client, command("CommandGetTables", *fields))
    assert found["table_name"].to_pylist() == names
    assert found.schema.names == ["catalog_name", "db_schema_name", "table_name", "table_type"]
    with_schema = asked(client, command("CommandGetTables", *fields, (5, True)))
    assert with_schema["table_name"].to_pylist() == names
    for name, schema in zip(names, with_schema["table_schema"].to_pylist(), strict=True):
        columns = asked(client, f'SELECT * FROM "{name}" LIMIT 0').schema
        assert pa.ipc.read_schema(pa.py_buffer(schema)).equals(columns)


def test_there_is_one_catalog_with_one_schema(client: fl.FlightClient) -> None:
    assert asked(client, command("CommandGetCatalogs")).to_pydict() == {
        "catalog_name": ["partgrid"]
    }
    schemas = asked(client, command("CommandGetDbSchemas"))
    assert schemas.to_pylist() == [{"catalog_name": "partgrid", "db_schema_name": "public"}]
    assert asked(client, command("CommandGetDbSchemas", (2, "x%"))).num_rows == 0
    types = asked(client, command("CommandGetTableTypes"))
    assert types.to_pydict() == {"table_type": ["TABLE", "VIEW"]}


def test_there_are_no_keys(client: fl.FlightClient) -> None:
    found = asked(client, command("CommandGetPrimaryKeys", (3, "flights")))
    assert (found.num_rows, found.schema.names[3]) == (0, "column_name")
    for name in ("CommandGetExportedKeys", "CommandGetImportedKeys"):
        assert asked(client, command(name, (3, "flights"))) == KEYS.empty_table()
    cross = command("CommandGetCrossReference", (3, "flights"), (6, "few_1"))
    assert asked(client, cross) == KEYS.empty_table()


def test_statements_by_do_put(client: fl.FlightClient, server: pg.Server) -> None:
    def put(descriptor: fl.FlightDescriptor) -> int:
        writer, reader = client.do_put(descriptor, pa.schema([]))
        writer.done_writing()
        said = reader.read()
        writer.close()
        return parsed(said.to_pybytes()).get(1, [0])[0]

    put(command("CommandStatementUpdate", (1, "CREATE TABLE made_1 AS SELECT 1 AS a")))
    assert "made_1" in server.tables
    put(command("CommandStatementUpdate", (1, "DROP TABLE made_1")))
    assert "made_1" not in server.tables
    with pytest.raises(NotImplementedError, match="no transactions"):
        put(command("CommandStatementUpdate", (1, "SELECT 1"), (2, b"t")))
    plan = command("CommandStatementSubstraitPlan", (1, proto((1, b"plan"))))
    with pytest.raises(NotImplementedError, match="Substrait"):
        put(plan)
    with pytest.raises(NotImplementedError, match="Substrait"):
        client.get_flight_info(plan)
    with pytest.raises(pa.ArrowInvalid, match="CommandGetCatalogs"):
        put(command("CommandGetCatalogs"))
