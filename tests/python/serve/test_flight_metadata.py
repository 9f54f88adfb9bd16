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

# The types of the answers of GetSqlInfo by their places in the union, and the numbers of each in FlightSql.proto; the others are truth values.
STRING, BOOL, BIGINT, INT32, STRINGS, MAP = range(6)
NUMBERS = [*range(12), 100, 101, *range(500, 577)]
OF_TYPE = {
    STRING: [0, 1, 2, 6, 7, 504, 513, 514, 529, 530, 531],
    BIGINT: [*range(541, 556), *range(557, 562)],
    INT32: [
        *(8, 100, 101, 503, 505, 507, 522, 525, 526, 528, 533, 534, 535, 538, 540, 562, 564),
        *range(567, 572),
    ],
    STRINGS: [508, 509, 510, 511, 512],
    MAP: [517],
}

# Types of SQL by their numbers in SqlSupportsConvert, and the columns that they make.
CONVERTS: dict[int, tuple[str, pa.DataType]] = {
    0: ("BIGINT", pa.int64()),
    2: ("BOOLEAN", pa.bool_()),
    3: ("CHAR", pa.string_view()),
    4: ("DATE", pa.date32()),
    5: ("DECIMAL(38, 10)", pa.decimal128(38, 10)),
    6: ("FLOAT", pa.float32()),
    7: ("INTEGER", pa.int32()),
    11: ("TEXT", pa.string_view()),
    12: ("NUMERIC(38, 10)", pa.decimal128(38, 10)),
    13: ("REAL", pa.float32()),
    14: ("SMALLINT", pa.int16()),
    15: ("TIME", pa.time64("ns")),
    16: ("TIMESTAMP", pa.timestamp("ns")),
    17: ("TINYINT", pa.int8()),
    18: ("BYTEA", pa.binary()),
    19: ("VARCHAR", pa.string_view()),
}

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


def sql_info(client: fl.FlightClient, *numbers: int) -> dict[int, Any]:
    """The answers of GetSqlInfo by number; all without any."""
    found = asked(client, command("CommandGetSqlInfo", *((1, number) for number in numbers)))
    return dict(zip(found["info_name"].to_pylist(), found["value"].to_pylist(), strict=True))


def test_each_number_of_the_specification_is_answered_with_its_type(
    client: fl.FlightClient,
) -> None:
    found = asked(client, command("CommandGetSqlInfo"))
    assert found["info_name"].to_pylist() == NUMBERS
    kinds = {number: BOOL for number in NUMBERS}
    kinds |= {number: kind for kind, numbers in OF_TYPE.items() for number in numbers}
    [value] = found["value"].chunks
    types = [value.type.field(kind).type for kind in range(6)]
    assert types[:4] == [pa.string(), pa.bool_(), pa.int64(), pa.int32()]
    assert pa.types.is_list(types[STRINGS])
    assert pa.types.is_map(types[MAP])
    codes = dict(zip(NUMBERS, value.type_codes.to_pylist(), strict=True))
    assert codes == kinds
    # Null are the versions of Substrait, of which the server takes none, and nothing else.
    info = sql_info(client)
    assert [number for number in NUMBERS if info[number] is None] == [6, 7]
    # A number that is none has no answer.
    assert sql_info(client, 574, 99, 600) == {574: True}
    described = client.get_schema(command("CommandGetSqlInfo")).schema
    assert described == found.schema


def test_what_is_said_of_sql_is_so(client: fl.FlightClient) -> None:
    info = sql_info(client)
    # Outer joins, subqueries, correlated ones, unions, LIKE with ESCAPE.
    assert [info[number] for number in (528, 538, 539, 540, 523)] == [2, 15, True, 3, True]
    # No transactions, and none of their levels; rows come once, to be read.
    assert [info[number] for number in (562, 563, 564, 567, 569)] == [0, False, 1, 2, 2]
    # Prepared statements last an hour and are 4,096; names, texts, connections.
    assert [info[number] for number in (100, 558, 559, 557, 549)] == [
        3_600_000,
        4096,
        200,
        262_144,
        1024,
    ]
    keywords = info[508]
    assert keywords == sorted(keywords)
    assert {"SELECT", "LATERAL", "WITHIN"} <= set(keywords)
    assert not {"INSERT", "DELETE", "PREPARE"} & set(keywords)
    for number, some in {
        509: {"abs", "power", "round"},
        510: {"repeat", "upper", "regexp_replace"},
        511: {"arrow_typeof", "coalesce", "nullif"},
        512: {"date_part", "date_trunc", "now"},
    }.items():
        assert info[number] == sorted(info[number])
        assert some <= set(info[number])
    # Characters of names without quotes, beyond letters and digits.
    for letter in info[514]:
        assert asked(client, f"SELECT 1 AS a{letter}").schema.names == [f"a{letter}"]


def test_conversions_are_those_of_cast(client: fl.FlightClient, server: pg.Server) -> None:
    said = {start: set(into) for start, into in sql_info(client, 517)[517]}
    columns = {f"c{number}": pa.array([None], kind) for number, (_, kind) in CONVERTS.items()}
    server.register("convertible", pa.table(columns))
    try:
        found: dict[int, set[int]] = {}
        for start in CONVERTS:
            found[start] = set()
            for into, (name, _) in CONVERTS.items():
                try:
                    asked(client, f"SELECT CAST(c{start} AS {name}) AS a FROM convertible")
                except (pa.ArrowInvalid, NotImplementedError):
                    continue
                found[start].add(into)
    finally:
        server.deregister("convertible")
    assert said == found


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

    def update(text: str) -> int:
        return put(command("CommandStatementUpdate", (1, text)))

    # The number of rows that were written, which are none where a name changes alone.
    assert update("CREATE TABLE made_1 AS SELECT unnest([1, 2, 3]) AS a") == 3
    assert server.grid("made_1").to_arrow().num_rows == 3
    assert update("CREATE TABLE IF NOT EXISTS made_1 AS SELECT 1 AS a") == 0
    assert update("CREATE OR REPLACE TABLE made_1 AS SELECT 1 AS a WHERE false") == 0
    assert update("CREATE VIEW made_v AS SELECT * FROM flights") == 0
    assert update("SELECT * FROM flights") == 0
    assert update("DROP VIEW made_v") == 0
    assert update("DROP TABLE made_1") == 0
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


def test_a_prepared_update_tells_the_rows_of_all_its_sets_of_values(
    client: fl.FlightClient, server: pg.Server
) -> None:
    text = "CREATE OR REPLACE TABLE made_2 AS SELECT unnest([1, 2]) AS a, $1 AS b"
    request = flight_sql("ActionCreatePreparedStatementRequest", (1, text))
    [body] = act(client, "CreatePreparedStatement", request)
    run = command("CommandPreparedStatementUpdate", (1, inner(body)[1][0]))
    values = pa.record_batch({"1": [7, 8]})
    writer, reader = client.do_put(run, values.schema)
    writer.write_batch(values)
    writer.done_writing()
    assert parsed(reader.read().to_pybytes()) == {1: [4]}
    writer.close()
    assert server.grid("made_2").to_arrow().to_pydict() == {"a": [1, 2], "b": [8, 8]}
    asked(client, "DROP TABLE made_2")
